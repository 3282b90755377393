"""DeltaProduct: several steps of the delta rule for each input."""

from gyral.cells.delta_rule import ScalarRatesCell
from gyral.core.options import PositiveInt


class DeltaProductCell(ScalarRatesCell):
    """DeltaProduct: several steps of the delta rule for each input, without the matrix after the memory.

    DeltaProduct (Siems, Carstensen, Zela, Hutter, Pontil and Grazzi, "DeltaProduct: improving state-tracking in
    linear RNNs via Householder products", NeurIPS 2025), gated or not.

        S ← e^{γ_t} S_{t−1}
        S ← S + β_{t,j} k̂_{t,j} (v_{t,j} − Sᵀ k̂_{t,j})ᵀ           for j = 1 … n;  then S_t = S

    The transition of S is a product of n generalized Householder matrices I − β k̂ k̂ᵀ, which with β up to 2 can be any
    product of n reflections. `DeltaRuleCell` has the equations of the layer, and `ScalarRatesCell` the parameters.

    Args:
        key_size: K; ⌈V / 2⌉ if None.
        micro_steps: n ≥ 1.
        decay: Whether there is a decay: Gated DeltaProduct.

    Example:
        >>> layer = DeltaProduct(16, 64, micro_steps=3)
    """

    values_per_key = 2

    micro_steps: PositiveInt = 2
    decay: bool = True
    negative_eigenvalues = True

    @property
    def has_decay(self) -> bool:
        return self.decay
