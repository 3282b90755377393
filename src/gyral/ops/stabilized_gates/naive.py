"""The gates of `gyral.ops.stabilized_gates` in plain torch: a parallel scan in log₂ T passes.

It runs where there is no kernel, and gives the kernels' second derivatives.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.scan import is_any_number, scan
from gyral.ops.sequences import shift, zero_beyond

NEVER = -1e30  # the stabilizer before the first step, in place of −∞, whose differences are not numbers
LARGEST = 80.0  # exponent of e^{−m}: float32 ends at e^88, and outputs that are divided by e^80 are zero to all digits


def stabilized_gates(
    gates: Tensor,
    first: Tensor,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the gates of all steps.

    Args:
        gates: (T, B, 2H), the logits [i; f].
        first: (B, H), the stabilizer m before the first step; −10³⁰ if there is none.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: there is no m_{t−1}.
        scale: A factor of `write`.

    Returns:
        decay, write, e^{−m} (at most e⁸⁰) and the stabilizers m, (T, B, H) each. Without m_{t−1} the decay is 0: the
        memory is zero, and −10³⁰ in sums of decays would leave none of their digits. Beyond the lengths the logits are
        zeros.
    """
    if lengths is not None:
        ended = torch.arange(len(gates), device=gates.device).unsqueeze(1) >= lengths
        gates = gates.masked_fill(ended.unsqueeze(2), 0.0)
    write, forget = gates.chunk(2, dim=-1)
    forget = F.logsigmoid(forget)
    stabilizers = scan_maximum(forget, write, first, starts)
    before = shift(first, stabilizers)
    if starts is not None:
        before = before.masked_fill(starts.unsqueeze(-1), NEVER)
    decay = torch.where(before > NEVER / 2, forget + before - stabilizers, 0.0)
    found = decay, torch.exp(write - stabilizers) * scale, smallest_divisor(stabilizers), stabilizers
    decay, write, least, stabilizers = (zero_beyond(each, lengths) for each in found)
    return decay, write, least, stabilizers


def smallest_divisor(stabilizers: Tensor) -> Tensor:
    """Return e^{−m}, at most e⁸⁰."""
    return torch.exp((-stabilizers).clamp(max=LARGEST))


def scan_maximum(forget: Tensor, write: Tensor, first: Tensor, starts: Tensor | None = None) -> Tensor:
    """Return m_t = max(f̄_t + m_{t−1}, i_t) of all steps (T, B, H), in log₂ T passes, given m_0 (B, H).

    At a start, (T, B), the maximum is i_t alone.
    """
    steps = write.shape[0]
    if is_any_number(steps):  # the number of passes would be a constant of the exported program

        def step(gates: tuple[Tensor, Tensor], before: Tensor) -> tuple[Tensor, Tensor]:
            highest = torch.maximum(gates[0] + before, gates[1])
            return highest, highest

        return scan(step, (forget, write), first, None, starts, torch.full_like(first, NEVER))[0]
    closed = torch.zeros_like(write[..., :1], dtype=torch.bool) if starts is None else starts.unsqueeze(-1)
    found = torch.cat((torch.where(closed[:1], write[:1], torch.maximum(forget[:1] + first, write[:1])), write[1:]))
    sums, reach = forget, 1
    # found: the maximum over the last `reach` steps; sums: of f̄ over them; closed: whether one of them is a start
    while reach < steps:
        longer = torch.maximum(sums[reach:] + found[:-reach], found[reach:])
        found = torch.cat((found[:reach], torch.where(closed[reach:], found[reach:], longer)))
        sums = torch.cat((sums[:reach], sums[reach:] + sums[:-reach]))
        closed = torch.cat((closed[:reach], closed[reach:] | closed[:-reach]))
        reach *= 2
    return found
