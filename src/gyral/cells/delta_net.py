"""DeltaNet: linear attention with the delta rule."""

from gyral.cells.delta_rule import ScalarRatesCell


class DeltaNetCell(ScalarRatesCell):
    """DeltaNet: linear attention with the delta rule, without the matrix after the memory.

    DeltaNet (Yang, Wang, Zhang, Shen and Kim, "Parallelizing linear transformers with the delta rule over sequence
    length", NeurIPS 2024), with the options of the published layer.

        S_t = S_{t−1} + β_t k̂_t (v_t − S_{t−1}ᵀ k̂_t)ᵀ

    `DeltaRuleCell` has the equations of the layer, and `ScalarRatesCell` the parameters; there is no decay.

    Args:
        key_size: K; V if None.

    Example:
        >>> layer = DeltaNet(16, 64, heads=2)
    """

    has_decay = False
    gate = False
