"""The derivatives of RUM's activations (Fig. 3 of Dangovski et al., TACL 2019)."""

import torch
from matplotlib.figure import Figure

from gyral.cells.rum import ACTIVATIONS


def derivatives() -> Figure:
    """Draw the derivatives of the activations that RUM supports (Fig. 3)."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for name, activation in ACTIVATIONS.items():
        inputs = torch.linspace(-4, 4, 2001, requires_grad=True)
        [derivative] = torch.autograd.grad(activation(inputs).sum(), inputs)
        axes.plot(inputs.detach(), derivative, label=name)
    axes.set(xlabel="x", ylabel="derivative of the activation f(x)", title="Derivatives of the activations")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure
