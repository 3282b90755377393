"""Light convolution (LightConv)."""

import torch
from torch import Tensor, nn

from gyral.cells.convolution import ConvolutionCell
from gyral.ops.dropout import dropout_mask
from gyral.ops.scan import Shared


class LightConvCell(ConvolutionCell):
    """Light convolution.

    Light convolution (Wu, Fan, Baevski, Dauphin and Auli, "Pay less attention with lightweight and dynamic
    convolutions", ICLR 2019): a window whose weights are the same at all steps.

        v_t = (W_a x_t + b_a) ⊙ σ(W_b x_t + b_b)
        y_{t,c} = Σ_{j=1}^{K} softmax(ω_{h(c)})_j v_{t−K+j, c}

    See `gyral.cells.convolution.ConvolutionCell` for heads and state.

    Parameters: `weight_ih` (2N, X), rows [W_a; W_b], Xavier-uniform; `bias` (2N,), zero; `weight` ω (H, K) according to
    `initialization`.

    It differs from the authors' code (`lightweight_convolution.py` of facebookresearch/fairseq on GitHub), where
    DropConnect draws other zeros at each step.

    Args:
        weight_dropout: Probability, in [0, 1), that a weight is zero in training after the softmax (DropConnect), the
            same weights at all steps of a batch; the others are multiplied by 1 / (1 − p).
        softmax: Whether the weights are normalized. False: they are ω, as in a depthwise convolution, which has a head
            for each channel.
        initialization: "default": ω is Xavier-uniform, in ±√(6 / (H + K)). "authors": as in the authors' code, where ω
            has a third dimension of size 1, it is uniform in ±√(6 / (K + H · K)), a narrower interval.

    Example:
        >>> layer = LightConv(16, 64, kernel_size=7)
    """

    def weight_shape(self) -> tuple[int, int]:
        return self.heads, self.kernel_size

    @torch.no_grad()
    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.xavier_uniform_(self.weight if self.initialization == "default" else self.weight.unsqueeze(1))

    def sequence_constants(self, *shape: int) -> Shared:
        """Return the weights (H, K) of all steps."""
        weights = self.weight.softmax(dim=-1) if self.softmax else self.weight
        if self.training and self.weight_dropout > 0:
            weights = weights * dropout_mask(weights, self.weight_dropout)
        return Shared(weights)

    def scores(self, values: Tensor) -> None:
        return None

    def weights(self, scores: Tensor | None, constants: Shared) -> Tensor:
        found: Tensor = constants.value
        return found

    def kernel_weights(self, scores: Tensor | None, constants: Shared) -> tuple[Tensor, None]:
        return constants.value, None
