"""The rotation scan: a memory that is a product of rotations, whose planes depend on the inputs alone.

With H_w = I − 2wwᵀ:
R_t = R_{t−1} H_{w₂} H_{w₁},  h̃_t = f(ε_t + R_t q_t),  h_t = σ(u_t) ⊙ h_{t−1} + (1 − σ(u_t)) ⊙ h̃_t
"""

from torch import Tensor

from gyral.ops.operator import Operator, check_dtypes
from gyral.ops.rotation_scan import naive
from gyral.ops.rotation_scan.naive import merge, reflect, reflections, split

__all__ = ["merge", "reflect", "reflections", "rotation_scan", "split"]

OPERATOR = Operator(naive.rotation_scan, {"cpu": "gyral.ops.rotation_scan.cpu"})


def rotation_scan(
    parts: Tensor,
    memory: Tensor,
    h0: Tensor,
    *,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
    double_angle: bool = True,
    activation: str = "relu",
) -> tuple[Tensor, Tensor, Tensor]:
    """Run all steps: by kernels where there are some, else in plain torch, in chunks.

    T steps, B batch size, N hidden size, H heads of d numbers. If H d > N, zeros fill the last heads. A kernel keeps R
    and h before every 64th step for its backward pass, and computes the others again.

    R is a product of rotations, from which rounding moves it away. Before every 64th step, R ← R (3I − RᵀR) / 2
    corrects it. The derivative of this step is that of the identity.

    Args:
        parts: (T, B, 4N), [τ; u; q; ε], u before its sigmoid.
        memory: (B, H, d, d), R before the first step, orthogonal.
        h0: (B, N), h before the first step.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the row before the step: h_{t−1} = 0 and R_{t−1} = I.
        double_angle: Whether w₁ = ε̂ and w₂ = τ̂: a rotation by twice the angle from ε to τ. Otherwise w₂ is the
            direction of ε̂ + τ̂: a rotation by that angle.
        activation: f: "relu", "tanh", "sigmoid" or "softsign".

    Returns:
        outputs (T, B, N), h_t, zero beyond the lengths, and after the last step of each row R (B, H, d, d) and
        h (B, N).

    Raises:
        TypeError: The tensors have several dtypes.
    """
    check_dtypes(parts.dtype, memory, h0)
    has_kernel = OPERATOR.has_kernel(parts)
    run = OPERATOR if has_kernel else naive.rotation_scan
    outputs, memory, hidden = run(parts, memory, h0, lengths, starts, double_angle, activation)
    return outputs, memory, hidden
