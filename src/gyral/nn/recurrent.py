"""The time loop for all cells, with layers, directions, lengths and backends."""

import logging
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map

from gyral.cells.base import RecurrentCell, State
from gyral.core.checks import check_boolean, check_choice, check_integer, check_real
from gyral.core.errors import OptionError
from gyral.nn.cuda_graph import GraphedLoops
from gyral.nn.dropout import SequenceDropout, WeightDrop
from gyral.ops.scan import scan

log = logging.getLogger(__name__)
BACKENDS = ("auto", "reference", "fused", "compile", "graph")


class Recurrent(nn.Module):
    """Runs any cell over sequences, with the interface of `torch.nn.GRU`.

    Args:
        cell_factory: Returns a cell for its input size, such as `functools.partial(RUMCell, hidden_size=100)`.
        input_size: X.
        num_layers: Number of layers; each reads the outputs of the layer below.
        bidirectional: Whether each layer has a second cell that reads the sequence backwards; their outputs are
            concatenated.
        dropout: Probability of dropout on the outputs of each layer except the last, in training.
        batch_first: Whether inputs and outputs are (B, T, …) instead of (T, B, …).
        backend: "reference" is the readable loop over `cell.step`; "fused" is the cell's own function for the whole
            sequence; "compile" is the loop over the step compiled by `torch.compile` (needs a C++ compiler on a CPU);
            "graph" is the whole loop as a CUDA graph; "auto" is "fused" if the cell supports it, else "graph" on a GPU,
            else "reference".
        locked_dropout: See `gyral.nn.dropout.SequenceDropout`.
        weight_drop: Probability, in [0, 1), that an entry of the cells' recurrent weights (parameters whose names start
            with weight_hh) is zero in training, the same entries at all steps of a sequence (AWD-LSTM: Merity et al.,
            ICLR 2018).

    Attributes:
        backend: The backend in use, never "auto". It may change when the module moves to another device.
        requested_backend: The argument `backend`.

    Raises:
        OptionError: An argument is out of bounds, the backend is unknown or not supported by the cell, or `weight_drop`
            is positive and the cell has no such weights.
    """

    def __init__(
        self,
        cell_factory: Callable[[int], RecurrentCell],
        input_size: int,
        num_layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
        batch_first: bool = False,
        backend: str = "auto",
        locked_dropout: bool = False,
        weight_drop: float = 0.0,
    ) -> None:
        super().__init__()
        check_integer("input_size", input_size)
        check_integer("num_layers", num_layers)
        self.directions = 2 if check_boolean("bidirectional", bidirectional) else 1
        self.batch_first = check_boolean("batch_first", batch_first)
        self.dropout = SequenceDropout(dropout, locked_dropout)
        check_choice("backend", backend, BACKENDS)

        cells: list[RecurrentCell] = []
        for _ in range(num_layers):
            layer = [cell_factory(input_size) for _ in range(self.directions)]
            cells += layer
            input_size = sum(cell.output_size for cell in layer)
        self.cells = nn.ModuleList(cells)
        self.output_size = input_size
        self.weight_drop = check_real("weight_drop", weight_drop, minimum=0, below=1)
        if weight_drop > 0:
            self._drop_weights()

        self.requested_backend = backend
        self.backend = ""
        # the function of the class: a deep copy of this module would share a cell's method with the original
        self._compiled = torch.compile(type(cells[0]).scan_step, dynamic=False) if backend == "compile" else None
        self._graphs = GraphedLoops(scan)
        self._choose_backend(cells[0])

    def _drop_weights(self) -> None:
        weights = [
            (module, name)
            for module in self.cells.modules()
            for name, _ in module.named_parameters(recurse=False)
            if name.startswith("weight_hh")
        ]
        if not weights:
            reason = f"{type(self.cells[0]).__name__} has no weights weight_hh; must be 0"
            raise OptionError("weight_drop", self.weight_drop, reason)
        for module, name in weights:
            parametrize.register_parametrization(module, name, WeightDrop(self.weight_drop), unsafe=True)

    def _choose_backend(self, cell: RecurrentCell) -> str:
        """Return the backend for a cell on its current device, and log it if it has changed."""
        chosen, note = self.requested_backend, ""
        device = next(cell.parameters()).device.type
        # a graph would reuse the entries that were dropped when it was captured
        loop = "graph" if device == "cuda" and self.weight_drop == 0 else "reference"
        if self.requested_backend in ("auto", "fused"):
            reason = cell.fused_unsupported_reason()
            if reason is not None and self.requested_backend == "fused":
                raise _backend_error("fused", reason)
            if self.requested_backend == "auto":
                chosen = "fused" if reason is None else loop
                note = "" if reason is None else f"; {reason}"
        if chosen == "graph" and self.weight_drop > 0:
            raise _backend_error("graph", "does not support weight_drop")
        if chosen == "graph" and not torch.cuda.is_available():
            raise _backend_error("graph", "there is no GPU")
        if chosen != self.backend:
            name, requested = type(cell).__name__, self.requested_backend
            log.info("%s runs on the %s backend (requested: %s%s)", name, chosen, requested, note)
            self.backend = chosen
        return chosen

    def init_state(self, batch_size: int) -> tuple[State, ...]:
        """Return the initial state of each cell: layer by layer, forward direction before backward."""
        return tuple(self._cell(index).init_state(batch_size) for index in range(len(self.cells)))

    def _cell(self, index: int) -> RecurrentCell:
        cell = self.cells[index]
        assert isinstance(cell, RecurrentCell)
        return cell

    def forward(
        self, inputs: Any, state: tuple[State, ...] | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, tuple[State, ...]]:
        """Run over whole sequences.

        Args:
            inputs: (T, B, X), or a structure of tensors with leading dimensions (T, B).
            state: One state per cell, in the order of `init_state`; the initial state if None.
            lengths: (B,) integers in [1, T]. Steps beyond the length of a sequence do not change its state, and their
                outputs are zero; the backward direction starts at the end of the sequence.

        Returns:
            The outputs (T, B, output_size) of the last layer, and the state after the last step of each sequence.

        Raises:
            OptionError: The backend does not support the cell on this device.
            ValueError: Lengths have another shape or are not in [1, T]; the state does not have one entry per cell, or
                its tensors have other shapes.
        """
        if self.batch_first:
            inputs = tree_map(lambda leaf: leaf.transpose(0, 1), inputs)
        steps, batch_size = tree_flatten(inputs)[0][0].shape[:2]
        if state is None:
            state = self.init_state(batch_size)
        elif len(state) != len(self.cells):
            raise ValueError(f"state has {len(state)} entries, must have one for each of {len(self.cells)} cells")
        else:
            self._check_shapes(state, batch_size)
        if lengths is not None:
            is_integer = not (lengths.is_floating_point() or lengths.is_complex())
            if lengths.shape != (batch_size,) or not is_integer or lengths.min() < 1 or lengths.max() > steps:
                raise ValueError(f"lengths must be {batch_size} integers from 1 to {steps}")
            lengths = lengths.to(next(self.parameters()).device, torch.int64)

        # within `cached` each dropped weight is drawn once, however often the cells read it
        with parametrize.cached() if self.weight_drop > 0 else nullcontext():
            outputs, final = self._run_layers(inputs, state, lengths)
        return (outputs.transpose(0, 1) if self.batch_first else outputs), final

    def _run_layers(
        self, inputs: Any, state: tuple[State, ...], lengths: Tensor | None
    ) -> tuple[Tensor, tuple[State, ...]]:
        """Run all cells over (T, B, …) inputs."""
        final: list[State] = []
        outputs = inputs
        for first in range(0, len(self.cells), self.directions):
            if first > 0:
                outputs = self.dropout(outputs)
            layer = []
            for index in range(first, first + self.directions):
                backward = index > first
                sequence = reverse(outputs, lengths) if backward else outputs
                result, last = self._run(index, sequence, state[index], lengths)
                layer.append(reverse(result, lengths) if backward else result)
                # under autocast some paths return its dtype, in which errors would accumulate over calls
                final.append(tree_map(lambda new, old: new.to(old.dtype), last, state[index]))
            outputs = torch.cat(layer, dim=-1) if len(layer) > 1 else layer[0]
        return outputs, tuple(final)

    def _check_shapes(self, state: tuple[State, ...], batch_size: int) -> None:
        """Raise `ValueError` if a tensor of the state does not have the shape that `init_state` gives it."""
        for given, one in zip(tree_leaves(state), tree_leaves(self.init_state(1)), strict=True):
            if given.shape != (batch_size, *one.shape[1:]):
                allowed = (batch_size, *one.shape[1:])
                raise ValueError(f"a tensor of the state has shape {tuple(given.shape)}, must have {allowed}")

    def _run(self, index: int, inputs: Any, state: State, lengths: Tensor | None) -> tuple[Tensor, State]:
        """Run one cell over (T, B, …) inputs."""
        cell = self._cell(index)
        backend = "reference" if cell.recorded is not None else self._choose_backend(cell)
        if backend == "fused":
            return cell.fused(inputs, state, lengths)
        shape = tree_flatten(inputs)[0][0].shape[:2]
        sequence = cell.project(inputs), cell.sequence_constants(*shape)
        if backend == "graph":
            if next(cell.parameters()).device.type != "cuda":
                raise _backend_error("graph", "the model is not on a GPU")
            return self._graphs.run(cell, sequence, state, lengths)
        step = partial(self._compiled, cell) if backend == "compile" and self._compiled else cell.scan_step
        return scan(step, sequence, state, lengths)


def _backend_error(backend: str, reason: str) -> OptionError:
    others = ", ".join(other for other in BACKENDS if other != backend)
    return OptionError("backend", backend, f"{reason}; allowed here: {others}")


def reverse(sequence: Any, lengths: Tensor | None) -> Any:
    """Reverse the leaves (T, B, …) in time, each sequence within its own length; padding stays at the end."""
    if lengths is None:
        return tree_map(lambda leaf: leaf.flip(0), sequence)

    def reverse_leaf(leaf: Tensor) -> Tensor:
        time = torch.arange(leaf.shape[0], device=leaf.device).unsqueeze(1)
        source = torch.where(time < lengths, lengths - 1 - time, time)
        return leaf.gather(0, source.view(*source.shape, *[1] * (leaf.dim() - 2)).expand_as(leaf))

    return tree_map(reverse_leaf, sequence)


def detach(state: Any) -> Any:
    """Cut every leaf of a state from the graph, between windows of truncated backpropagation through time."""
    return tree_map(Tensor.detach, state)


def reorder(state: Any, rows: Tensor) -> Any:
    """Select batch rows (B',) from every leaf of a state, as beam search does."""
    return tree_map(lambda leaf: leaf.index_select(0, rows), state)
