"""The delta rule: a memory matrix that forgets, erases what a key reads, and writes a value (Schlag, Irie and
Schmidhuber, "Linear transformers are secretly fast weight programmers", ICML 2021), in the form that also covers
gated linear attention, state spaces and products of several such steps.

A step decays the memory S (K, V) of a head, then takes n micro-steps, and reads:

    S ← e^{γ_t} ⊙ S                                     γ_t ≤ 0 for the whole memory, or for each of its K rows
    S ← S + k̂_{t,j} (w_{t,j} v_{t,j} − Sᵀ r_{t,j})ᵀ      j = 1 … n
    y_t = Sᵀ q̂_t

Here k̂ = k and q̂ = q, or unit vectors k̂ = k / √(Σ k² + 10⁻⁶) and q̂ = q / √(K (Σ q² + 10⁻⁶)); w is 1 or a rate of
writing; r = e k̂ with a rate of erasing e, or any vector, or zero. With e = w = β and unit vectors this is the delta
rule with rate β; without r it is linear attention.
"""

from torch import Tensor

from gyral.ops.autograd import outside_autocast
from gyral.ops.delta import naive
from gyral.ops.delta.naive import delta_step, to_unit
from gyral.ops.operator import Operator, check_dtypes

__all__ = ["delta_scan", "delta_step", "to_unit"]

OPERATOR = Operator(naive.delta_scan, {"cpu": "gyral.ops.delta.cpu", "cuda": "gyral.ops.delta.fla"})


def delta_scan(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s0: Tensor,
    *,
    decay: Tensor | None = None,
    erase: Tensor | None = None,
    write: Tensor | None = None,
    unit: bool = False,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run the recurrence over all steps: by kernels where there are some, else in plain torch.

    T steps, B batch size, H heads, K and V the sizes of keys and values, n micro-steps of a step. The G heads of keys
    divide H: head h has the keys of head ⌊h G / H⌋.

    Args:
        q: (T, B, G, K).
        k: (T, B, n, G, K).
        v: (T, B, n, H, V).
        s0: (B, H, K, V), the memory before the first step.
        decay: γ, (T, B, H) or (T, B, H, K), or None stands for zeros.
        erase: e, (T, B, n, G), or r, (T, B, n, G, K), or None stands for zeros.
        write: w, (T, B, n, H), or None stands for ones.
        unit: Whether k̂ and q̂ are unit vectors.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: its memory counts as zero.

    Returns:
        outputs (T, B, H, V), y_t, zero beyond the lengths, and the memory (B, H, K, V) after the last step of each row.

    Raises:
        TypeError: The tensors have several dtypes.
    """
    check_dtypes(q.dtype, k, v, s0, decay, erase, write)
    has_kernel = OPERATOR.has_kernel(q)
    with outside_autocast(q.device):
        run = OPERATOR if has_kernel else naive.delta_scan
        outputs, final = run(q, k, v, s0, decay, erase, write, lengths, starts, unit)
    return outputs, final
