"""The networks of `gyral.ops.fast_slow` in plain torch.

The kernels compute the same as `fast_slow`, which provides their second derivatives.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops import gated, rum
from gyral.ops.gated.naive import State, at, choose, reset_state

SLOW = 1  # the index of the slow subcell; all others are fast


def fast_slow(
    x: Tensor,
    weights: list[Tensor | None],
    states: list[Tensor | None],
    masks: list[Tensor | None],
    lengths: Tensor | None,
    starts: Tensor | None,
    kinds: str,
    units: list[int],
    chunks: list[int],
    activations: str,
    etas: list[float],
    epsilons: list[float],
) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor | None, Tensor | None]:
    """Run all steps; the lists have the entries of each subcell, see `gyral.ops.fast_slow.fast_slow`.

    Args:
        x: (T, B, X).
        weights: w_ih, b, w_hh and extra of each subcell.
        states: Hidden vector and cell state of the fast and of the slow state.
        masks: Factors of the inputs, zoneout, zoneout of the cell state, and recurrent dropout of each subcell.
        lengths, starts: Of the sequences.
        kinds, activations: Options, separated by spaces.
        units, chunks, epsilons: Options.
        etas: Time normalization, 0 for none.

    Returns:
        outputs (T, B, H), hidden vector and cell state of the fast and of the slow state, and for each subcell the
        cosines of RUM's rotations (S, T, B), 1 for other subcells; None if there is no RUM.
    """
    current: list[State] = list(zip(states[::2], states[1::2], strict=True))  # type: ignore[arg-type]
    outputs, cosines = [], []
    for time, inputs in enumerate(x.unbind(0)):
        active = None if lengths is None else (time < lengths).unsqueeze(1)
        new = current if starts is None else [reset_state(starts[time], state, None) for state in current]
        new, at_step = list(new), []
        for index, kind in enumerate(kinds.split()):
            w_ih, b, w_hh, extra = weights[4 * index : 4 * index + 4]
            factors, keep, keep_cell_state, drop = masks[4 * index : 4 * index + 4]
            assert w_ih is not None
            assert w_hh is not None
            if index == SLOW:
                inputs = new[0][0]  # the first fast subcell
            elif index == SLOW + 1:
                inputs = new[1][0]
            if index > SLOW + 1:  # without inputs
                parts = w_ih.new_zeros(x.shape[1], len(w_ih)) + (0.0 if b is None else b)
            else:
                parts = F.linear(inputs if factors is None else inputs * factors[time], w_ih, b)
            own = int(index == SLOW)
            hidden, cosine = new[own][0], parts.new_ones(x.shape[1], 1)
            if kind == "rum":
                options: Any = {
                    "activation": activations.split()[index],
                    "eta": etas[index] or None,
                    "epsilon": epsilons[index],
                }
                hidden, _, cosine = rum.naive.step(parts, w_hh, hidden, None, extra, at(keep, time), **options)
                new[own] = hidden, None
            else:
                own_weights = gated.naive.Weights(kind, w_hh, extra, None, units[index], chunks[index], epsilons[index])
                new[own] = gated.naive.step(
                    own_weights, parts, new[own], at(keep, time), at(keep_cell_state, time), drop
                )
            at_step.append(cosine.squeeze(1))
        output = new[0][0]
        outputs.append(output if active is None else torch.where(active, output, 0.0))
        current = new if active is None else [choose(active, *pair) for pair in zip(new, current, strict=True)]
        cosines.append(torch.stack(at_step))
    (fast, fast_cell), (slow, slow_cell) = current
    return (
        *(torch.stack(outputs), fast, fast_cell, slow, slow_cell),
        torch.stack(cosines, dim=1) if "rum" in kinds.split() else None,
    )
