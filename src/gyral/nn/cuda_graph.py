"""The time loop as a CUDA graph: one launch for all steps. Launching small kernels takes longer than running them."""

import contextlib
import gc
import warnings
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_flatten, tree_unflatten

from gyral.cells.base import RecurrentCell, State

Step = Callable[[Any, State], tuple[Tensor, State]]
Loop = Callable[[Step, Any, State, Tensor | None, Tensor | None, State | None], tuple[Tensor, State]]


class GraphedLoops:
    """Runs `loop` over cells as CUDA graphs, one per cell and set of shapes, captured at the first call.

    A graph has fixed shapes and its own memory, which its next run overwrites. The plain loop runs instead for shapes
    beyond the first `LIMIT` of a cell, and while an earlier run of the same graph waits for its backward pass.
    """

    LIMIT = 4

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._graphs: dict[tuple[Hashable, ...], Callable[..., Any]] = {}
        self._waiting: set[Hashable] = set()

    def __deepcopy__(self, memo: dict[int, Any]) -> "GraphedLoops":
        return GraphedLoops(self._loop)  # a graph belongs to the cell that it was captured with

    def __reduce__(self) -> tuple[Any, ...]:
        return GraphedLoops, (self._loop,)

    def run(
        self,
        cell: RecurrentCell,
        sequence: Any,
        state: State,
        lengths: Tensor | None = None,
        starts: Tensor | None = None,
        initial: State | None = None,
    ) -> tuple[Tensor, State]:
        """Return the result of the loop over the cell's `scan_step`; see `gyral.ops.scan.scan`."""
        arguments = sequence, state, lengths, starts, initial
        leaves, structure = tree_flatten(arguments)
        tensors = [leaf for leaf in leaves if leaf is not None]
        signature = tuple((leaf.shape, leaf.dtype, leaf.device, leaf.requires_grad) for leaf in tensors)
        trainable = tuple(parameter.requires_grad for parameter in cell.parameters())
        # a graph reads buffers where they were when it was captured
        buffers = tuple(buffer.data_ptr() for buffer in cell.buffers())
        key = (id(cell), cell.training, *_modes(), str(structure), signature, trainable, buffers)
        is_new = key not in self._graphs
        if key in self._waiting or (is_new and sum(other[0] == id(cell) for other in self._graphs) >= self.LIMIT):
            return self._loop(cell.scan_step, *arguments)
        tensors += cell.parameters()
        if is_new:
            flat = _FlatLoop(self._loop, cell, leaves, structure)
            samples = tuple(tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in tensors)
            self._graphs[key] = _capture(flat.run, samples)
        # the next run of a graph overwrites its outputs and gradients, so return copies
        results = [result.clone() for result in self._graphs[key](*map(_CopiedGradient.apply, tensors))]
        for result in results:
            if result.requires_grad:
                self._waiting.add(key)
                result.register_hook(lambda _: self._waiting.discard(key))
        return results[0], tree_unflatten(results[1:], tree_flatten(state)[1])


def _modes() -> tuple[Any, ...]:
    """Return the modes of torch that determine which operations a graph records."""
    gradients = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    return *gradients, torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")


def _capture(function: Callable[..., Any], samples: tuple[Tensor, ...]) -> Callable[..., Any]:
    """Return the function as a CUDA graph on the device of the samples."""
    _, _, enabled, dtype = _modes()
    # a capture refuses autocast's cache of weights, and records on the current device
    with (
        without_collection(),
        warnings.catch_warnings(),
        torch.cuda.device_of(samples[0]),
        torch.autocast("cuda", dtype, enabled, cache_enabled=False),
    ):
        # torch keeps the autograd graph of its warm-up, which ran on another stream
        warnings.filterwarnings("ignore", "The AccumulateGrad node's stream does not match")
        graphed: Callable[..., Any] = torch.cuda.make_graphed_callables(function, samples, allow_unused_input=True)
    return graphed


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Collect garbage now, and none within the context: an earlier graph that ends breaks the capture of another."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _FlatLoop(nn.Module):
    """The loop over one cell as a function of tensors only: the arguments of the loop, then parameters."""

    def __init__(self, loop: Loop, cell: RecurrentCell, leaves: list[Tensor | None], structure: Any) -> None:
        super().__init__()
        self.loop, self.cell, self.structure = loop, cell, structure
        self.absent = [leaf is None for leaf in leaves]
        self.names = [name for name, _ in self.named_parameters()]

    def run(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        count = len(tensors) - len(self.names)
        return functional_call(self, dict(zip(self.names, tensors[count:], strict=True)), tensors[:count])

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        present = iter(tensors)
        leaves = [None if absent else next(present) for absent in self.absent]
        output, final = self.loop(self.cell.scan_step, *tree_unflatten(leaves, self.structure))
        return output, *tree_flatten(final)[0]


class _CopiedGradient(torch.autograd.Function):
    """The identity function. Its gradient is a copy of the incoming gradient."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.clone()
