"""DeltaProduct: several steps of the delta rule for each input."""

from gyral.cells.delta_rule import ScalarRatesCell
from gyral.core.checks import check_integer


class DeltaProductCell(ScalarRatesCell):
    """DeltaProduct (Siems, Carstensen, Zela, Hutter, Pontil and Grazzi, "DeltaProduct: improving state-tracking in
    linear RNNs via Householder products", NeurIPS 2025), gated or not.

        S ← e^{γ_t} S_{t−1}
        S ← S + β_{t,j} k̂_{t,j} (v_{t,j} − Sᵀ k̂_{t,j})ᵀ           for j = 1 … n;  then S_t = S

    The transition of S is a product of n generalized Householder matrices I − β k̂ k̂ᵀ, which with β up to 2 can be any
    product of n reflections. `DeltaRuleCell` has the equations of the layer, and `ScalarRatesCell` the parameters.

    Args:
        input_size: X ≥ 1.
        hidden_size: N ≥ 1, the width of the keys of all heads together.
        heads: H; the keys of each have K = ⌈N / H⌉ numbers.
        expand: V / K. The outputs have H V numbers.
        micro_steps: n ≥ 1.
        kernel_size: Number of steps in the window of the convolution, at least 2; None: no convolution.
        negative_eigenvalues: Whether β is twice as large; see `DeltaRuleCell`.
        decay: Whether there is a decay: Gated DeltaProduct.
        gate: Whether there is a gate.
        initialization: See `DeltaRuleCell`.

    Raises:
        OptionError: An argument is out of bounds or has another type.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        heads: int = 4,
        expand: int = 2,
        micro_steps: int = 2,
        kernel_size: int | None = 4,
        negative_eigenvalues: bool = True,
        decay: bool = True,
        gate: bool = True,
        initialization: str = "default",
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            heads=heads,
            expand=expand,
            micro_steps=check_integer("micro_steps", micro_steps),
            kernel_size=kernel_size,
            negative_eigenvalues=negative_eigenvalues,
            initialization=initialization,
            gate=gate,
            decay=decay,
        )
