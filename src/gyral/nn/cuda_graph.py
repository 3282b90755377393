"""The time loop as a CUDA graph: one launch for all steps, where a launch a kernel would cost more than the kernels."""

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_flatten, tree_unflatten

from gyral.cells.base import RecurrentCell, State

Loop = Callable[[Callable[[Any, State], tuple[Tensor, State]], Any, State, Tensor | None], tuple[Tensor, State]]


class GraphedLoops:
    """Runs `loop` over cells as CUDA graphs, one for each cell and set of shapes, captured at its first call.

    A graph has fixed shapes and memory of its own, which its next run overwrites. So the plain loop runs instead for
    shapes beyond the first `LIMIT` of a cell, and while an earlier run of the same graph waits for its backward.
    """

    LIMIT = 4

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._graphs: dict[tuple[Hashable, ...], Callable[..., Any]] = {}
        self._waiting: set[Hashable] = set()

    def __deepcopy__(self, memo: dict[int, Any]) -> "GraphedLoops":
        return GraphedLoops(self._loop)  # graphs belong to the cells they were captured with

    def __reduce__(self) -> tuple[Any, ...]:
        return GraphedLoops, (self._loop,)

    def run(self, cell: RecurrentCell, sequence: Any, state: State, lengths: Tensor | None) -> tuple[Tensor, State]:
        """Return what the loop returns for the cell's step."""
        leaves, structure = tree_flatten((sequence, state, lengths))
        given = [leaf for leaf in leaves if leaf is not None]
        about = tuple((leaf.shape, leaf.dtype, leaf.requires_grad) for leaf in given)
        frozen = tuple(parameter.requires_grad for parameter in cell.parameters())
        key = (id(cell), torch.is_grad_enabled(), cell.training, str(structure), about, frozen)
        is_new = key not in self._graphs
        if key in self._waiting or (is_new and sum(other[0] == id(cell) for other in self._graphs) >= self.LIMIT):
            return self._loop(cell.scan_step, sequence, state, lengths)
        given += cell.parameters()
        if is_new:
            flat = _Flat(self._loop, cell, leaves, structure)
            samples = tuple(tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in given)
            self._graphs[key] = torch.cuda.make_graphed_callables(flat.run, samples, allow_unused_input=True)
        # what a graph puts out, gradients too, lies in memory that its next run overwrites: hand out copies
        results = [result.clone() for result in self._graphs[key](*map(_CopiedGradient.apply, given))]
        for result in results:
            if result.requires_grad:
                self._waiting.add(key)
                result.register_hook(lambda _: self._waiting.discard(key))
        return results[0], tree_unflatten(results[1:], tree_flatten(state)[1])


class _Flat(nn.Module):
    """The loop over one cell as a function of tensors alone: sequence, state, lengths, then parameters."""

    def __init__(self, loop: Loop, cell: RecurrentCell, leaves: list[Tensor | None], structure: Any) -> None:
        super().__init__()
        self.loop, self.cell, self.structure = loop, cell, structure
        self.absent = [leaf is None for leaf in leaves]
        self.names = [name for name, _ in self.named_parameters()]

    def run(self, *given: Tensor) -> tuple[Tensor, ...]:
        count = len(given) - len(self.names)
        return functional_call(self, dict(zip(self.names, given[count:], strict=True)), given[:count])

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        present = iter(given)
        leaves = [None if absent else next(present) for absent in self.absent]
        sequence, state, lengths = tree_unflatten(leaves, self.structure)
        output, final = self.loop(self.cell.scan_step, sequence, state, lengths)
        return output, *tree_flatten(final)[0]


class _CopiedGradient(torch.autograd.Function):
    """The identity, whose gradient is a copy."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.clone()
