"""RUM over a whole sequence.

`rum` runs the kernels of `cpu` or `triton`, which are imported on first use. `naive` computes the same in plain torch.
"""

from typing import Any

import torch
from torch import Tensor

from gyral.core.checks import check_choice
from gyral.ops.autograd import has_autocast
from gyral.ops.declaration import check_shape, product, projection
from gyral.ops.operator import Operator, cast_for_autocast
from gyral.ops.rum import naive

__all__ = ["rum", "unsupported_reason"]


def shapes(a: Any) -> None:
    """Check the shapes and options; see `gyral.ops.declaration.Checks`."""
    steps, batch, inputs = check_shape("x", a.x, *a.x.shape[:2], "X")
    _, size = check_shape("h0", a.h0, batch, "N")
    check_weights(a, inputs, size)
    check_shape("b", a.b, len(a.w_ih))
    check_shape("memory", a.memory, batch, size, size)
    check_shape("keep", a.keep, *(() if a.keep is None or a.keep.dim() == 0 else (steps, batch, size)))


def check_weights(a: Any, inputs: int, size: int) -> None:
    """Check the option, the weights and the normalizations for X inputs and N units."""
    gates = 1 + (len(a.w_hh) > size)
    check_shape("w_hh", a.w_hh, gates * size, size)
    check_shape("w_ih", a.w_ih, (gates + 1) * size, inputs)
    check_shape("norms", a.norms, 3, 2, size)
    check_choice("activation", a.activation, tuple(naive.ACTIVATIONS))


def products(a: Any) -> tuple[int, int]:
    """Return the operations of products; see `gyral.ops.declaration.formulas_of`."""
    rows = len(a.x) * len(a.h0)
    # R reads three vectors, and is changed by two outer products
    return projection(a), product(rows, a.w_hh) + (0 if a.memory is None else 5 * product(rows, a.memory[0]))


KERNELS = {"cpu": "gyral.ops.rum.cpu", "cuda": "gyral.ops.rum.triton"}
OPERATOR = Operator(naive.rum, KERNELS, constant=1, shapes=shapes, products=products)
unsupported_reason = OPERATOR.unsupported_reason


def rum(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b: Tensor,
    h0: Tensor,
    memory: Tensor | None = None,
    norms: Tensor | None = None,
    *,
    keep: Tensor | None = None,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
    activation: str = "relu",
    eta: float | None = None,
    epsilon: float = 1e-5,
    exponent: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """Run RUM over inputs (T, B, X); see `gyral.cells.rum.RUMCell` for the equations.

    Under autocast the products use its dtype if the kernels support it; all other operations use the dtype of the
    parameters.

    Args:
        x: (T, B, X).
        w_ih: (G N, X), rows [target; update gate, if there is one; embedded input], so G is 3 or 2.
        w_hh: ((G − 1) N, N), rows [target; update gate].
        b: (G N,).
        h0: (B, N), the state before the first step.
        memory: (B, N, N), the associative memory R before the first step; None: λ = 0.
        norms: (3, 2, N), gains and biases of the layer normalizations of target, gate and candidate, or None.
        keep: Zoneout: a mask (T, B, N) of 0 and 1, the probability (), or None.
        lengths: (B,) int64 in [1, T], or None if every sequence has T steps. Steps beyond the length of a sequence do
            not change its state, and their outputs are zero.
        starts: (T, B) bool, or None. True resets the state to h = 0 and R = I before the step.
        activation: "relu", "tanh", "sigmoid" or "softsign".
        eta: The norm of time normalization, or None.
        epsilon: What the layer normalizations add to the variance.
        exponent: λ with an associative memory, the power of it that a step keeps.

    Returns:
        outputs (T, B, N), the hidden state (B, N) and the memory (B, N, N) or None after the last step of each
        sequence, and cos θ_t (T, B) of the angle from ε̃_t to τ_t, which has no gradient: 1 where either is zero,
        undefined beyond the lengths.

    Raises:
        KernelUnavailableError: There are no kernels for this device and dtype; see `unsupported_reason`.
        InputError: See `gyral.ops.declaration.Checks`.
    """
    device = x.device.type
    has_mode = has_autocast(device) and torch.is_autocast_enabled(device)
    product_dtype = torch.get_autocast_dtype(device) if has_mode else None
    x, h0, memory = cast_for_autocast(w_hh.dtype, x, h0, memory)
    weights, options = (w_ih, w_hh, b), (activation, eta, epsilon, product_dtype)
    if memory is not None and exponent != 1:
        return _step_by_step(x, weights, h0, memory, norms, keep, lengths, starts, options, exponent)
    outputs, hidden, memory, cosines = OPERATOR.run(x, *weights, h0, memory, norms, keep, lengths, starts, *options)
    return outputs, hidden, memory, cosines


def recorded_cosines(cosines: Tensor, lengths: Tensor | None) -> tuple[Tensor, ...]:
    """Return the cosines (B,) of each step, given those of a kernel (T, B), which writes none beyond the lengths (B,).

    They are NaN there.
    """
    if lengths is not None:
        ended = torch.arange(cosines.shape[0], device=cosines.device).unsqueeze(1) >= lengths
        cosines = cosines.masked_fill(ended, torch.nan)
    return cosines.unbind(0)


def _step_by_step(
    x: Tensor,
    weights: tuple[Tensor, Tensor, Tensor],
    hidden: Tensor,
    memory: Tensor,
    norms: Tensor | None,
    keep: Tensor | None,
    lengths: Tensor | None,
    starts: Tensor | None,
    options: tuple[Any, ...],
    exponent: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Run the kernels on one step after another, each from a power of the memory after the last one."""
    from gyral.ops.rotation_power import rotation_power  # which only powers need

    outputs, cosines = [], []
    for time in range(len(x)):
        now = slice(time, time + 1)
        masks = keep if keep is None or keep.dim() == 0 else keep[now], None, None if starts is None else starts[now]
        before = hidden, rotation_power(memory, exponent)
        output, *after, cosine = OPERATOR.run(x[now], *weights, *before, norms, *masks, *options)
        if lengths is not None:
            runs = (time < lengths).unsqueeze(1)
            output = output.masked_fill(~runs, 0.0)
            after = [torch.where(runs, after[0], hidden), torch.where(runs.unsqueeze(2), after[1], memory)]
        hidden, memory = after
        outputs.append(output)
        cosines.append(cosine)
    return torch.cat(outputs), hidden, memory, torch.cat(cosines)
