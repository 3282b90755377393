"""The derivatives of RUM's activations (Fig. 3 of Dangovski et al., TACL 2019)."""

import torch
from matplotlib.figure import Figure

from gyral.cells.rum import ACTIVATIONS
from gyral.plotting.layout import finish, make_grid
from gyral.plotting.style import add_legend, line_style


def derivatives() -> Figure:
    """Draw the derivatives of the activations that RUM supports (Fig. 3)."""
    figure, [axes] = make_grid(1, "column", share_x=False, share_y=False)
    inputs = torch.linspace(-4, 4, 2001, requires_grad=True)
    for index, (name, activation) in enumerate(ACTIVATIONS.items()):
        [derivative] = torch.autograd.grad(activation(inputs).sum(), inputs)
        axes.plot(inputs.detach(), derivative, label=name, **{**line_style(index), "marker": ""})
    axes.set(xlabel="x", ylabel="derivative of the activation", xlim=(-4, 4))
    add_legend(figure, *axes.get_legend_handles_labels())
    finish([axes], integer_x=False)
    return figure
