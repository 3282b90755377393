"""Gated DeltaNet: the delta rule with a decay."""

from gyral.cells.delta_rule import ScalarRatesCell


class GatedDeltaNetCell(ScalarRatesCell):
    """Gated DeltaNet: the delta rule with a decay, without the matrix after the memory.

    Gated DeltaNet (Yang, Kautz and Hatamizadeh, "Gated delta networks: improving Mamba2 with delta rule", ICLR
    2025).

        S_t = e^{γ_t} S_{t−1} + β_t k̂_t (v_t − e^{γ_t} S_{t−1}ᵀ k̂_t)ᵀ

    `DeltaRuleCell` has the equations of the layer, and `ScalarRatesCell` the parameters. The published models have 6
    heads with K = 256.

    Args:
        key_size: K; ⌈V / 2⌉ if None.

    Example:
        >>> layer = GatedDeltaNet(16, 64, key_size=8)
    """

    has_decay = True
    values_per_key = 2
