"""Dynamic convolution (DynamicConv)."""

from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.convolution import ConvolutionCell
from gyral.cells.initialization import fan_in_uniform_
from gyral.ops.dropout import dropout_mask


class DynamicConvCell(ConvolutionCell):
    """Dynamic convolution.

    Dynamic convolution (Wu, Fan, Baevski, Dauphin and Auli, "Pay less attention with lightweight and dynamic
    convolutions", ICLR 2019): a window whose weights are a function of the step.

        v_t = (W_a x_t + b_a) ⊙ σ(W_b x_t + b_b)
        y_{t,c} = Σ_{j=1}^{K} softmax(W_{h(c)} v_t)_j v_{t−K+j, c}

    See `gyral.cells.convolution.ConvolutionCell` for heads and state.

    Parameters: `weight_ih` (2N, X), rows [W_a; W_b], Xavier-uniform; `bias` (2N,), zero; `weight` (H · K, N), rows
    [W_1; …; W_H], according to `initialization`.

    Args:
        weight_dropout: Probability, in [0, 1), that a weight of a step is zero in training after the softmax
            (DropConnect); the others are multiplied by 1 / (1 − p).
        softmax: Whether the weights of a step are normalized. False: they are W v_t, with which Wu et al. report that
            training diverges (table 3).
        initialization: "default": `weight` is Xavier-uniform, in ±√(6 / (H · K + N)). "authors": it is uniform in
            ±1/√N, the default of `torch.nn.Linear`, as in the authors' code (`dynamic_convolution.py` of
            facebookresearch/fairseq on GitHub).

    Example:
        >>> layer = DynamicConv(16, 64, kernel_size=7)
    """

    def weight_shape(self) -> tuple[int, int]:
        return self.heads * self.kernel_size, self.hidden_size

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.initialization == "default":
            nn.init.xavier_uniform_(self.weight)
        else:
            fan_in_uniform_(self.weight)

    def sequence_constants(self, *shape: int) -> Tensor | None:
        """Return the factors (*shape, H, K) of the weights; None without dropout and in evaluation."""
        if not self.training or self.weight_dropout == 0:
            return None
        return dropout_mask(self.zeros(*shape, self.heads, self.kernel_size), self.weight_dropout)

    def scores(self, values: Tensor) -> Tensor:
        scores = F.linear(values, self.weight).to(self.weight.dtype)
        return scores.unflatten(-1, (self.heads, self.kernel_size))

    def weights(self, scores: Tensor | None, constants: Tensor | None) -> Tensor:
        assert scores is not None
        found = scores.softmax(dim=-1) if self.softmax else scores
        return found if constants is None else found * constants

    def kernel_weights(self, scores: Tensor | None, constants: Tensor | None) -> tuple[Tensor, Tensor | None]:
        assert scores is not None
        return scores, constants
