"""The time loop around a cell: stacking, direction, lengths, backends. Written once, for all cells."""

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
    """Runs any cell over sequences; called as `torch.nn.GRU` is.

    Args:
        cell_factory: makes a cell from its input size, e.g. `functools.partial(RUMCell, hidden_size=100)`.
        input_size: X.
        num_layers: layers, each fed with the outputs of the one before.
        bidirectional: a second cell in each layer reads the sequence backwards; outputs are concatenated.
        dropout: probability on the outputs of each layer but the last, in training.
        locked_dropout: of `gyral.ops.dropout.SequenceDropout`.
        weight_drop: probability, in [0, 1), that an entry of the cells' recurrent weights, those named weight_hh…, is
            zero in training, the same ones at all steps of a sequence (AWD-LSTM: Merity et al., ICLR 2018).
        batch_first: inputs and outputs are (B, T, …) instead of (T, B, …).
        backend: "reference" is the readable loop over `cell.step`; "fused" the cell's own whole-sequence path;
            "compile" the loop over the step as `torch.compile` makes it (needs a C++ compiler on CPU); "graph" the
            whole loop as a CUDA graph; "auto" is fused where the cell has it, else graph on a GPU, else reference.

    Attributes:
        backend: what runs: never "auto". It may change when the module is moved to another device.

    Raises:
        OptionError: an argument out of bounds, an unknown backend, or "fused" where the cell has no fused path;
            `weight_drop` where the cell has no such weights.
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

        self.asked = backend
        self.backend = ""
        # the class's function, not a cell's method, which a deep copy of this module would share with the original
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
            raise OptionError(
                f"weight_drop={self.weight_drop}: {type(self.cells[0]).__name__} has no weights weight_hh; must be 0"
            )
        for module, name in weights:
            parametrize.register_parametrization(module, name, WeightDrop(self.weight_drop), unsafe=True)

    def _choose_backend(self, cell: RecurrentCell) -> str:
        """Return the backend for a cell where it lies now, and log it when it is another than the last."""
        chosen, reason = self.asked, ""
        device = next(cell.parameters()).device.type
        # a graph would go on with the weights that were dropped when it was captured
        loop = "graph" if device == "cuda" and self.weight_drop == 0 else "reference"
        if self.asked in ("auto", "fused"):
            obstacle = cell.fused_unsupported_reason()
            if obstacle is not None and self.asked == "fused":
                raise OptionError(f"backend=fused: {obstacle}; allowed here: auto, reference, compile, graph")
            if self.asked == "auto":
                chosen = "fused" if obstacle is None else loop
                reason = "" if obstacle is None else f"; {obstacle}"
        if chosen == "graph" and self.weight_drop > 0:
            raise OptionError("backend=graph: has no weight_drop; allowed with it: auto, reference, fused, compile")
        if chosen == "graph" and not torch.cuda.is_available():
            raise OptionError("backend=graph: there is no GPU; allowed here: auto, reference, fused, compile")
        if chosen != self.backend:
            log.info("%s runs on the %s backend (asked for: %s%s)", type(cell).__name__, chosen, self.asked, reason)
            self.backend = chosen
        return chosen

    def init_state(self, batch_size: int) -> tuple[State, ...]:
        """Return one initial state a cell: layer by layer, forward direction before backward."""
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
            state: one state a cell, as `init_state` orders them; the initial state if None.
            lengths: (B,) integers in [1, T]. Steps beyond a sequence's length leave its state alone and put out zeros;
                the backward direction starts at the sequence's own end.

        Returns:
            outputs (T, B, output_size) of the last layer, and the state after each sequence's last step.

        Raises:
            ValueError: lengths of another shape or out of [1, T]; a state that has not one entry a cell, or tensors of
                other shapes.
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

        # inside, a weight that is dropped is drawn once, whatever asks for it how often
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
                # under autocast some paths end in its type, which sequences that go on would add up errors in
                final.append(tree_map(lambda new, old: new.to(old.dtype), last, state[index]))
            outputs = torch.cat(layer, dim=-1) if len(layer) > 1 else layer[0]
        return outputs, tuple(final)

    def _check_shapes(self, state: tuple[State, ...], batch_size: int) -> None:
        """Raise `ValueError` where a given state has not the shapes that one for this batch has."""
        for given, one in zip(tree_leaves(state), tree_leaves(self.init_state(1)), strict=True):
            if given.shape != (batch_size, *one.shape[1:]):
                allowed = (batch_size, *one.shape[1:])
                raise ValueError(f"a tensor of the state has shape {tuple(given.shape)}, must have {allowed}")

    def _run(self, index: int, inputs: Any, state: State, lengths: Tensor | None) -> tuple[Tensor, State]:
        """Run one cell over (T, B, …) inputs in the order given."""
        cell = self._cell(index)
        backend = "reference" if cell.recorded is not None else self._choose_backend(cell)
        if backend == "fused":
            return cell.fused(inputs, state, lengths)
        shape = tree_flatten(inputs)[0][0].shape[:2]
        sequence = cell.project(inputs), cell.sequence_constants(*shape)
        if backend == "graph":
            if next(cell.parameters()).device.type != "cuda":
                raise OptionError(
                    "backend=graph: the model lies on no GPU; allowed there: auto, reference, fused, compile"
                )
            return self._graphs.run(cell, sequence, state, lengths)
        step = partial(self._compiled, cell) if backend == "compile" and self._compiled else cell.scan_step
        return scan(step, sequence, state, lengths)


def reverse(sequence: Any, lengths: Tensor | None) -> Any:
    """Reverse (T, B, …) leaves in time, each sequence within its own length; padding stays at the end."""
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
    """Pick batch rows (B',) from every leaf of a state, as beam search does."""
    return tree_map(lambda leaf: leaf.index_select(0, rows), state)
