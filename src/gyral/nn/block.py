"""Residual blocks around the layers of a stack."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.base import RecurrentCell
from gyral.cells.contract import make_cell
from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import OptionError
from gyral.ops.sequences import zero_beyond

BLOCKS = ("prenorm", "swiglu")
EXPANSION = 4  # width of the hidden layer of the feed-forward network, relative to the width of the block
EPSILON = 1e-6  # of RMSNorm


def stream_width(
    block: str | None, size: int | None, factory: Callable[[int], RecurrentCell], input_size: int, directions: int
) -> int | None:
    """Return the width of the blocks of a stack: `size`, or the output size of its first layer; None without blocks.

    Raises:
        OptionError: The block is unknown, or there is a size without blocks.
        UserError: See `gyral.cells.contract.make_cell`.
    """
    if block is None and size is not None:
        raise OptionError("block_size", size, "has no effect without block")
    if block is None:
        return None
    check_choice("block", block, BLOCKS)
    if size is not None:
        return check_integer("block_size", size)
    with torch.random.fork_rng(devices=()):  # this cell is only built for its output size
        return directions * make_cell(factory, input_size).output_size


class PreNormBlock(nn.Module):
    """A residual block with normalization before each of its two parts.

    `kind` "prenorm" (Xiong et al., "On layer normalization in the transformer architecture", ICML 2020):

        y = x + W f(LN(x)) + b                                  f: any layer, such as a convolution
        z = y + W_2 ReLU(W_1 LN'(y) + b_1) + b_2                feed-forward network of 4D units

    `kind` "swiglu", as in published models of linear recurrences (Touvron et al., "LLaMA", 2023; Shazeer, "GLU variants
    improve transformer", 2020):

        y = x + W f(RMS(x))                                     RMS(x) = g ⊙ x / √(mean x² + 10⁻⁶)
        z = y + W_2 (SiLU(W_1 n) ⊙ W_3 n),  n = RMS'(y)         8D/3 units, rounded up to a multiple of 8

    Parameters are initialized as torch does: matrices and their biases uniform, normalization with gain 1 and bias 0.

    Args:
        width: D, size of x, y and z.
        inner_size: Size of the outputs of f.
        dropout: The dropout of what either part adds.
        kind: One of `BLOCKS`.
    """

    def __init__(self, width: int, inner_size: int, dropout: nn.Module, kind: str = "prenorm") -> None:
        super().__init__()
        self.norm = normalization(width, kind)
        self.output = nn.Linear(inner_size, width, bias=kind == "prenorm")
        self.feed_forward = FeedForward(width, dropout) if kind == "prenorm" else SwiGLU(width, dropout)
        self.dropout = dropout

    def add(self, stream: Tensor, outputs: Tensor) -> Tensor:
        """Return z for x (…, D) and the outputs of f (…, inner_size) for `norm(x)`."""
        added: Tensor = self.feed_forward(stream + self.dropout(self.output(outputs)))
        return added


def normalization(width: int, kind: str) -> nn.Module:
    """Return the normalization of a kind of block."""
    return nn.LayerNorm(width) if kind == "prenorm" else nn.RMSNorm(width, eps=EPSILON)


class FeedForward(nn.Module):
    """The second part of a block, y + W_2 ReLU(W_1 LN(y) + b_1) + b_2; see `PreNormBlock`."""

    def __init__(self, width: int, dropout: nn.Module) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, EXPANSION * width)
        self.contract = nn.Linear(EXPANSION * width, width)
        self.dropout = dropout

    def forward(self, stream: Tensor) -> Tensor:
        added: Tensor = self.dropout(self.contract(F.relu(self.expand(self.norm(stream)))))
        return stream + added


class SwiGLU(nn.Module):
    """The second part of a block, y + W_2 (SiLU(W_1 n) ⊙ W_3 n) with n = RMS(y); see `PreNormBlock`.

    The rows of `expand` are [W_1; W_3].
    """

    def __init__(self, width: int, dropout: nn.Module) -> None:
        super().__init__()
        hidden = -(-width * 2 * EXPANSION // 24) * 8
        self.norm = normalization(width, "swiglu")
        self.expand = nn.Linear(width, 2 * hidden, bias=False)
        self.contract = nn.Linear(hidden, width, bias=False)
        self.dropout = dropout

    def forward(self, stream: Tensor) -> Tensor:
        gate, values = self.expand(self.norm(stream)).chunk(2, dim=-1)
        added: Tensor = self.dropout(self.contract(F.silu(gate) * values))
        return stream + added


class PreNormStack(nn.Module):
    """The blocks of a stack of layers, with a linear layer before them and a normalization after them.

    The linear layer, without bias, is left out if the inputs have the width of the blocks.

    Args:
        input_size: X.
        width: D.
        inner_sizes: Size of the outputs of each layer.
        dropout, kind: See `PreNormBlock`.
    """

    def __init__(
        self, input_size: int, width: int, inner_sizes: list[int], dropout: nn.Module, kind: str = "prenorm"
    ) -> None:
        super().__init__()
        self.enter = nn.Identity() if input_size == width else nn.Linear(input_size, width, bias=False)
        self.layers = nn.ModuleList(PreNormBlock(width, size, dropout, kind) for size in inner_sizes)
        self.norm = normalization(width, kind)

    def normalize(self, layer: int, stream: Tensor) -> Tensor:
        """Return the inputs of a layer for x (T, B, D)."""
        normalized: Tensor = self.layers[layer].norm(stream)  # type: ignore[operator]
        return normalized

    def add(self, layer: int, stream: Tensor, outputs: Tensor) -> Tensor:
        """Return z (T, B, D) for x and the outputs of a layer."""
        block = self.layers[layer]
        assert isinstance(block, PreNormBlock)
        return block.add(stream, outputs)

    def finish(self, stream: Tensor, lengths: Tensor | None) -> Tensor:
        """Return the outputs of the stack (T, B, D) for z of the last block; zero beyond the lengths."""
        return zero_beyond(self.norm(stream), lengths)

    def reset_parameters(self) -> None:
        """Reset all parameters."""
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.LayerNorm | nn.RMSNorm):
                module.reset_parameters()
