"""The time loop for all cells, with layers, directions, lengths and backends."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only
from torch.utils.hooks import RemovableHandle

from gyral.cells.base import RecurrentCell, State
from gyral.cells.contract import make_cell
from gyral.cells.inputs import StepInputs
from gyral.cells.masks import first_parameter
from gyral.core.cache import keep_compiler_cache_private
from gyral.core.checks import check_boolean, check_choice, check_integer, check_real
from gyral.core.compat import is_compiler_failure
from gyral.core.errors import InputError, OptionError
from gyral.nn import arguments, hooks
from gyral.nn.arguments import map_leaves
from gyral.nn.block import PreNormStack, stream_width
from gyral.nn.choice import BACKENDS, ChoosesBackends, is_on_gpu, refuse
from gyral.nn.cuda_graph import GraphedLoops
from gyral.nn.dropout import SequenceDropout, drop_weights, hold_dropped_weights
from gyral.nn.states import HasStates, state_form
from gyral.nn.tracing import is_symbolic, record_call, refuse_script, scan_without_gradients
from gyral.ops.autograd import NOTHING
from gyral.ops.compiler import is_exporting_to_onnx
from gyral.ops.scan import choose_rows, is_any_number, scan
from gyral.ops.sequences import reverse, reverse_starts

MAX_LAYERS = 1000
AFTER = 10  # runs of kernels before a CUDA graph records them: lengths that vary would be recorded again and again


class RecurrentBase(ChoosesBackends, HasStates):
    """Cells in layers and directions, and the backend that runs them. A subclass defines the form of the state.

    Args:
        cell_factory: Returns a cell for its input size, such as `functools.partial(RUMCell, hidden_size=100)`; or
            a list with such a function for each layer.
        input_size: X.
        num_layers: Number of layers, at most 1,000; each reads the outputs of the layer below.
        bidirectional: Whether each layer has a second cell that reads the sequence backwards; their outputs are
            concatenated.
        dropout: Probability of dropout on the outputs of each layer except the last, in training.
        batch_first: Whether inputs and outputs are (B, T, …) instead of (T, B, …).
        backend: "reference" is the readable loop over `cell.step`; "fused" is the cell's own function for the whole
            sequence, which on a GPU is recorded as a CUDA graph without its kernels, and with them if the sequence is
            short; "compile" is the loop over the step compiled by `torch.compile` (needs a C++ compiler on a CPU);
            "graph" is the whole loop as a CUDA graph, see `gyral.nn.cuda_graph.GraphedLoops`; "auto" is "fused" if the
            cell supports it, else "graph" on a GPU, else "reference".
        locked_dropout: See `gyral.nn.dropout.SequenceDropout`.
        weight_drop: Probability, in [0, 1), that an entry of the cells' recurrent weights (parameters whose names start
            with weight_hh) is zero in training, the same entries at all steps of a sequence (AWD-LSTM: Merity et al.,
            ICLR 2018).
        block: None: each layer reads the outputs of the layer below. "prenorm" and "swiglu": each layer is in a
            residual block with a feed-forward network, see `gyral.nn.block.PreNormBlock`; `dropout` then acts on
            what each part of a block adds.
        block_size: Width of the blocks and of the outputs. None: the output size of the first layer.
        device, dtype: Of the parameters; the defaults of torch if None.

    Attributes:
        cells: The cells, layer by layer, forward direction before backward.
        backend: The backend in use, never "auto". It may change when the module moves to another device.
        requested_backend: The argument `backend`.
        returns_copies: Whether outputs and states are copies, which the caller may overwrite before a backward pass. A
            model that never does so may set it to False, and saves 1 % to 10 % of a training step.

    Raises:
        OptionError: An argument is out of bounds, the backend is unknown or not supported by the cell, or `weight_drop`
            is positive and the cell has no such weights.
        UserError: A factory returns no cell, or a cell whose methods do not return what they must.
    """

    returns_copies = True
    _handles = -1  # number of hooks of this process at the last check

    def __init__(
        self,
        cell_factory: Callable[[int], RecurrentCell] | Sequence[Callable[[int], RecurrentCell]],
        input_size: int,
        num_layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,
        batch_first: bool = False,
        backend: str = "auto",
        locked_dropout: bool = False,
        weight_drop: float = 0.0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        block: str | None = None,
        block_size: int | None = None,
    ) -> None:
        super().__init__()
        self.input_size = check_integer("input_size", input_size)
        self.num_layers = check_integer("num_layers", num_layers, maximum=MAX_LAYERS)
        self.bidirectional = check_boolean("bidirectional", bidirectional)
        self.directions = 2 if bidirectional else 1
        self.batch_first = check_boolean("batch_first", batch_first)
        self.sequence_dropout = SequenceDropout(dropout, locked_dropout)
        check_choice("backend", backend, BACKENDS)
        device = arguments.check_device(device)
        if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
            raise OptionError("dtype", dtype, "must be a floating-point dtype of torch")

        factories = list(cell_factory) if isinstance(cell_factory, Sequence) else [cell_factory] * num_layers
        if len(factories) != num_layers:
            raise OptionError("num_layers", num_layers, f"must be {len(factories)}, the number of cell factories")
        width = stream_width(block, block_size, factories[0], input_size, self.directions)
        cells: list[RecurrentCell] = []
        sizes = [input_size]
        for factory in factories:
            with nullcontext() if device is None else torch.device(device):
                layer = [make_cell(factory, width or sizes[-1]).to(dtype) for _ in range(self.directions)]
            cells += layer
            sizes.append(sum(cell.output_size for cell in layer))
        if len(set(map(id, cells))) < len(cells):
            raise ValueError("cell_factory returned the same cell twice, must return a new cell at each call")
        self.cells = nn.ModuleList(cells)
        self.name_weights()
        self.output_size = width or sizes[-1]
        self.block: PreNormStack | None = None
        if block is not None and width is not None:
            with nullcontext() if device is None else torch.device(device):
                self.block = PreNormStack(input_size, width, sizes[1:], self.sequence_dropout, block).to(dtype)
        self.weight_drop = check_real("weight_drop", weight_drop, minimum=0, below=1)
        if weight_drop > 0 and drop_weights(self, weight_drop) == 0:
            reason = f"{type(cells[0]).__name__} has no weights weight_hh; must be 0"
            raise OptionError("weight_drop", weight_drop, reason)

        self.requested_backend = backend
        self._logged: set[str] = set()
        self._compiled = None
        if backend == "compile":
            keep_compiler_cache_private()
            # the function of the class: a deep copy of this module would share a cell's method with the original
            self._compiled = torch.compile(type(cells[0]).scan_step, dynamic=False)
        self._graphs = GraphedLoops()
        if backend != "auto":  # which raises no error; the kernels of this device may never be needed
            self._choose_backend(cells[0])

    def run(
        self,
        inputs: Any,
        state: Any = None,
        lengths: Tensor | Sequence[int] | None = None,
        starts: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        """Run over whole sequences; see `Recurrent.forward`. The state has the form of `split_state`."""
        cells = self._cells()
        # compilers cannot depend on the number, which is that of the next hook
        if torch.compiler.is_compiling() or self._handles != RemovableHandle.next_id:
            hooks.refuse_hooks(self, cells)
            if not torch.compiler.is_compiling():
                self._handles = RemovableHandle.next_id
        first = cells[0]
        parameter = first_parameter(first)
        width, device = first.input_size if self.block is None else self.input_size, parameter.device
        steps, batch_size = arguments.check_inputs(inputs, width, parameter, self.batch_first)
        if lengths is not None:
            lengths = arguments.check_lengths(lengths, steps, batch_size, device)
        if starts is not None:
            starts = arguments.check_starts(starts, steps, batch_size, device, self.batch_first)
            if lengths is not None:  # beyond them, derivatives of a start at a step of zeros may not be numbers
                starts = starts & (torch.arange(steps, device=device).unsqueeze(1) < lengths)
        states = self._initial_states(batch_size) if state is None else self.split_state(state, batch_size)
        if self.batch_first:
            inputs = tree_map_only(Tensor, lambda leaf: leaf.transpose(0, 1), inputs)
        if isinstance(inputs, StepInputs):
            inputs = inputs.checked(lengths, device)
        if lengths is not None:
            inputs = arguments.zero_padding(inputs, lengths)
        is_dropping = self.weight_drop > 0 and self.training
        if steps == 0:
            outputs, final = self._empty_outputs(inputs), states
        else:
            with hold_dropped_weights(self) if is_dropping else NOTHING:
                outputs, final = self._run_rows(inputs, states, lengths, starts)
        found = outputs.transpose(0, 1) if self.batch_first else outputs, self.join_states(final)
        return arguments.copied(found) if self.returns_copies else found

    @property
    def dropout(self) -> float:
        """The probability of dropout between layers, which may be set."""
        probability: float = self.sequence_dropout.probability
        return probability

    @dropout.setter
    def dropout(self, probability: float) -> None:
        self.sequence_dropout.probability = check_real("dropout", probability, minimum=0, below=1)

    def __setstate__(self, state: dict[str, Any]) -> None:
        modules = state["_modules"]
        if "dropout" in modules:  # of a network that an earlier version has pickled
            state["_modules"] = {
                {"dropout": "sequence_dropout"}.get(name, name): part for name, part in modules.items()
            }
        super().__setstate__(state)

    def __prepare_scriptable__(self) -> NoReturn:  # torch.jit.script calls it first
        refuse_script(self)

    def name_weights(self) -> None:
        """Give the weights names of this network, in place of `cells.0.…`; here they keep those."""

    def reset_parameters(self) -> None:
        """Reset the parameters of all cells; required after `to_empty`."""
        for cell in self.cells:
            cell.reset_parameters()  # type: ignore[operator]
        if self.block is not None:
            self.block.reset_parameters()

    def _empty_outputs(self, inputs: Any) -> Tensor:
        """Return outputs (0, B, output_size) that depend on inputs and parameters, whose gradient is zero."""
        values = tree_leaves(inputs)[0]
        parameters = [parameter.flatten()[:0] for parameter in self.parameters()]
        nothing = torch.cat([part.sum().view(1) for part in (values.flatten(), *parameters)]).sum()
        return nothing.to(first_parameter(self).dtype).expand(0, values.shape[1], self.output_size)

    def _run_rows(
        self, inputs: Any, state: tuple[State, ...], lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, tuple[State, ...]]:
        """Run all cells over (T, B, …) inputs with T ≥ 1. A row of length 0 takes one step, which is then discarded."""
        if lengths is None or not arguments.has_empty(lengths):
            return self._run_layers(inputs, state, lengths, starts)
        is_empty = lengths == 0
        # from the initial state: what is not finite in the given one must not reach the gradients of the parameters
        before = tree_map(partial(choose_rows, is_empty), self._initial_states(lengths.shape[0]), state)
        outputs, final = self._run_layers(inputs, before, lengths.clamp(min=1), starts)
        final = tree_map(partial(choose_rows, is_empty), state, final)
        return outputs.masked_fill(is_empty.unsqueeze(1), 0.0), final

    def _run_layers(
        self,
        inputs: Any,
        state: tuple[State, ...],
        lengths: Tensor | None = None,
        starts: Tensor | None = None,
        run: Callable[..., tuple[Tensor, State]] | None = None,
    ) -> tuple[Tensor, tuple[State, ...]]:
        """Run all cells over (T, B, …) inputs, each by `run`; by `_run` if it is None."""
        run = run or self._run
        values: Any = inputs
        structures: list[Any] = [None]  # by direction
        if isinstance(inputs, StepInputs):
            values, structures = inputs.values, [inputs]
        resets = [starts]
        if self.directions > 1:
            structures.append(structures[0] and reverse(inputs.backward(), lengths))
            resets.append(None if starts is None else reverse_starts(starts, lengths))
        final: list[State] = []
        stream = outputs = values if self.block is None else self.block.enter(values)
        cells = self._cells()
        for first in range(0, len(cells), self.directions):
            if self.block is not None:
                outputs = self.block.normalize(first // self.directions, stream)
            elif first > 0:
                outputs = self.sequence_dropout(outputs)
            layer = []
            for direction in range(self.directions):
                sequence = reverse(outputs, lengths) if direction else outputs
                if structures[direction] is not None:
                    sequence = structures[direction]._replace(values=sequence)
                index = first + direction
                cell, given = cells[index], (sequence, state[index], lengths, resets[direction])
                if cell._forward_pre_hooks or cell._forward_hooks or cell._backward_hooks or cell._backward_pre_hooks:
                    result, last = hooks.call(run, cell, *given)
                else:
                    result, last = run(cell, *given)
                layer.append(reverse(result, lengths) if direction else result)
                final.append(last)
            outputs = torch.cat(layer, dim=-1) if len(layer) > 1 else layer[0]
            if self.block is not None:
                stream = self.block.add(first // self.directions, stream, outputs)
        if self.block is not None:
            outputs = self.block.finish(stream, lengths)
        # under autocast some paths return its dtype, in which errors would accumulate over calls
        return outputs, map_leaves(_like, tuple(final), state)

    def _run(
        self, cell: RecurrentCell, inputs: Any, state: State, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, State]:
        """Run one cell over (T, B, …) inputs."""
        backend, missing, recorded = self._choose_backend(cell, starts is not None)
        if cell.recorded is not None:
            backend = "reference"
        if isinstance(inputs, StepInputs):
            inputs = _understood(cell, inputs)
        if missing is not None and is_any_number(tree_leaves(inputs)[0].shape[0]):
            backend = "reference"  # the functions of torch in place of kernels have loops for one number of steps
        if backend == "fused":
            if cell.steps_alone and not torch.is_grad_enabled() and is_light_step(cell, inputs, lengths, starts):
                outputs, last = cell.forward(tree_map_only(Tensor, lambda leaf: leaf[0], inputs), state)
                if self.returns_copies and any(leaf is outputs for leaf in last):  # which is also in the state
                    outputs = outputs.clone()
                return outputs.unsqueeze(0), last
            if recorded > 0 and tree_leaves(inputs)[0].shape[:2].numel() * cell.output_size <= recorded:
                after = 1 if missing is not None else AFTER
                given = inputs, state, lengths, starts, cell.fused_constants()
                return self._graphs.run(run_fused, cell, *given, after=after)
            return run_fused(cell, inputs, state, lengths, starts)
        arguments.check_parameters(cell)
        steps, batch_size = tree_leaves(inputs)[0].shape[:2]
        sequence = cell.project(inputs), cell.sequence_constants(steps, batch_size)
        initial = None if starts is None else cell.init_state(batch_size)
        if backend == "graph":
            if not is_on_gpu(cell):
                refuse("graph", "the model is not on a GPU")
            return self._graphs.run(run_loop, cell, sequence, state, lengths, starts, initial)
        if is_exporting_to_onnx() and not torch.jit.is_tracing():  # as the older exporter does
            return scan_without_gradients(cell, sequence, state, lengths, starts, initial)
        step = partial(self._compiled, cell) if backend == "compile" and self._compiled else cell.scan_step
        try:
            return scan(step, sequence, state, lengths, starts, initial)
        except RuntimeError as error:
            if backend == "compile" and is_compiler_failure(error):
                refuse("compile", str(error).strip().splitlines()[0])
            raise


class Recurrent(RecurrentBase):
    """Runs any cell over sequences, like `torch.nn.GRU`; the state is a tuple with the state of each cell.

    See `RecurrentBase` for the arguments.
    """

    def forward(
        self,
        inputs: Any,
        state: Sequence[State] | None = None,
        lengths: Tensor | Sequence[int] | None = None,
        starts: Tensor | None = None,
    ) -> tuple[Tensor, tuple[State, ...]]:
        """Run over whole sequences.

        Args:
            inputs: (T, B, X), or (B, T, X) with `batch_first`; or `gyral.MaskedInputs` or `gyral.LinkedInputs`, which
                cells with an external memory or edges understand and others read as the vectors alone; or any structure
                of tensors (T, B, …) that the first cell's `project` takes.
            state: One state per cell: layer by layer, forward direction before backward; the initial state if None.
                Each may also be a plain tuple with the tensors of the cell's state.
            lengths: (B,) integers in [0, T]. Steps beyond the length of a sequence do not change its state, and their
                outputs are zero; the backward direction starts at the end of the sequence. An empty sequence, also
                with T = 0, returns the state that it is given.
            starts: (T, B) bool, or (B, T) with `batch_first`: True where a new segment of a row begins, such as an
                episode or a document. There the state before the step is the initial state of the cell, even
                if `state` is given. The backward direction is reset at the last step of each
                segment. Values beyond the length of a sequence have no effect.

        Returns:
            The outputs (T, B, output_size) of the last layer, and the state after the last step of each sequence.

        Raises:
            OptionError: The backend does not support the cell on this device.
            InputError: Inputs, state, lengths or starts have another shape, or inputs or state another device or dtype
                than the parameters, outside autocast, or a tensor is not dense; lengths are not in [0, T]; or an edge
                comes from before the first step.
            UserError: See `gyral.nn.hooks.refuse_hooks`.
        """
        if is_symbolic(inputs):
            return record_call(self, inputs, state, lengths, starts)
        return self.run(inputs, state, lengths, starts)

    def step(self, inputs: Any, state: tuple[State, ...]) -> tuple[Tensor, tuple[State, ...]]:
        """Take one step with the readable step of each cell, in evaluation: the computation that `gyral export` writes.

        Args:
            inputs: (B, X), or `gyral.MaskedInputs` with leaves (B, …).
            state: One state per cell, of a network in one direction.

        Returns:
            The outputs (B, output_size) of the last layer, and the state after the step.
        """
        return self._run_layers(inputs, state, run=_step)

    def split_state(self, state: Any, batch_size: int) -> tuple[State, ...]:
        if not isinstance(state, tuple | list):
            raise InputError(f"state is a {type(state).__name__}, must be a tuple with one state for each cell")
        if len(state) != len(self.cells):
            raise InputError(f"state has {len(state)} entries, must have one for each of {len(self.cells)} cells")
        pairs = zip(state, map(state_form, self._cells()), strict=True)
        return tuple(arguments.check_state(given, like, batch_size) for given, like in pairs)

    def join_states(self, states: tuple[State, ...]) -> tuple[State, ...]:
        return states


def is_light_step(cell: RecurrentCell, inputs: Any, lengths: Tensor | None, starts: Tensor | None) -> bool:
    """Return whether inputs (T, B, …) are one step, without further conditions, that the CPU takes now in float32."""
    if lengths is not None or starts is not None or torch.compiler.is_compiling() or is_on_gpu(cell):
        return False
    if first_parameter(cell).dtype != cell.state_dtype or torch.is_autocast_enabled("cpu"):
        return False  # steps in half precision round between more of their operations
    return bool(tree_leaves(inputs)[0].shape[0] == 1)


def _step(cell: RecurrentCell, inputs: Any, state: State, *_: None) -> tuple[Tensor, State]:
    """Take one step of a cell on inputs (B, X)."""
    return cell.forward(_understood(cell, inputs), state)


def _understood(cell: RecurrentCell, inputs: Any) -> Any:
    """Return inputs, without what the cell does not read."""
    return inputs.values if isinstance(inputs, StepInputs) and not isinstance(inputs, cell.input_types) else inputs


def _like(new: Tensor, old: Tensor) -> Tensor:
    return new if new.dtype == old.dtype else new.to(old.dtype)


def run_fused(
    cell: RecurrentCell,
    inputs: Any,
    state: State,
    lengths: Tensor | None,
    starts: Tensor | None,
    constants: Tensor | None = None,
) -> tuple[Tensor, State]:
    """Return the result of the fused path of a cell, given `fused_constants`, if it has any."""
    if starts is not None:  # selected here: NaN of the old state reaches neither values nor gradients
        state = tree_map(partial(choose_rows, starts[0]), cell.init_state(starts.shape[1]), state)
    if constants is not None:
        return cell.fused_from(constants, inputs, state, lengths, starts)
    return cell.fused(inputs, state, lengths, starts)


def run_loop(cell: RecurrentCell, *arguments: Any) -> tuple[Tensor, State]:
    """Return the result of the loop over the steps of a cell; see `gyral.ops.scan.scan`."""
    return scan(cell.scan_step, *arguments)


def detach(state: Any) -> Any:
    """Cut every leaf of a state from the graph, between windows of truncated backpropagation through time."""
    return tree_map(Tensor.detach, state)


def reorder(state: Any, rows: Tensor) -> Any:
    """Select batch rows (B',) from every leaf of a state, as beam search does."""
    return tree_map(lambda leaf: leaf.index_select(0, rows), state)
