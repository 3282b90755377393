"""DeltaNet: linear attention with the delta rule."""

from gyral.cells.delta_rule import ScalarRatesCell


class DeltaNetCell(ScalarRatesCell):
    """DeltaNet (Yang, Wang, Zhang, Shen and Kim, "Parallelizing linear transformers with the delta rule over sequence
    length", NeurIPS 2024), with the options of the published layer.

        S_t = S_{t−1} + β_t k̂_t (v_t − S_{t−1}ᵀ k̂_t)ᵀ

    `DeltaRuleCell` has the equations of the layer, and `ScalarRatesCell` the parameters; there is no decay.

    Args:
        input_size: X ≥ 1.
        hidden_size: N ≥ 1, the width of the keys of all heads together, and of the values.
        heads: H; keys and values of each have K = ⌈N / H⌉ numbers.
        kernel_size: Number of steps in the window of the convolution, at least 2; None: no convolution.
        negative_eigenvalues: Whether β is twice as large; see `DeltaRuleCell`.
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
        kernel_size: int | None = 4,
        negative_eigenvalues: bool = False,
        gate: bool = False,
        initialization: str = "default",
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            heads=heads,
            expand=1,
            micro_steps=1,
            kernel_size=kernel_size,
            negative_eigenvalues=negative_eigenvalues,
            initialization=initialization,
            gate=gate,
            decay=False,
        )
