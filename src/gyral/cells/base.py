"""The contract of a recurrent cell.

A cell is one recurrence: an initial state, `project` for the values that depend only on the inputs, for all steps at
once, and `step` for one step. `gyral.nn.recurrent.Recurrent` runs it over a sequence.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from inspect import unwrap
from os.path import relpath
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from gyral.cells.docstrings import Completed
from gyral.cells.inputs import StepInputs
from gyral.cells.masks import NO_MASKS, DropoutMasks, MaskedModule, first_parameter, kernel_zoneout
from gyral.core.checks import check_integer
from gyral.core.compat import register_tuples_of
from gyral.core.errors import UserError
from gyral.core.options import Options, PositiveInt, Probability, declares_options
from gyral.ops.autograd import outside_autocast

if TYPE_CHECKING:
    from gyral.ops.operator import Operator

__all__ = [
    "NO_MASKS",
    "AssociativeState",
    "DeclaredCell",
    "DropoutMasks",
    "HiddenState",
    "RecordedStep",
    "RecurrentCell",
    "RegularizedCell",
    "State",
    "kernel_zoneout",
]

State = Any  # a NamedTuple of tensors, batch first in every leaf


class RecurrentCell(MaskedModule, ABC):
    """Base class of all cells. B is the batch size, T the number of steps, X the input size, N the hidden size.

    The docstring of a cell describes the options and errors that its base classes do not; see `gyral.cells.docstrings`.

    Args:
        input_size: X ≥ 1.
        hidden_size: N ≥ 1.
        output_size: Width of the output of a step; N if None.
        zoneout: Probability, in [0, 1), that a unit of the hidden vector keeps its old value in training. Evaluation
            uses the expectation (Krueger et al. 2017).
        recurrent_dropout: Probability, in [0, 1), that a unit of the hidden vector is zero in the products with the
            recurrent weights, in training; the same units at all steps of a sequence (Gal and Ghahramani 2016).

    Raises:
        OptionError: An argument is out of bounds or has another type.
    """

    input_types: ClassVar[type[StepInputs] | tuple[type[StepInputs], ...]] = ()  # inputs other than (…, B, X)
    kernel_rows: tuple[str, ...] = ()  # names of the blocks of N rows of weight_ih; weight_hh has the first of them
    fused_operator: "ClassVar[Operator | None]" = None  # of `fused`, where `fused` runs without its kernels too
    kernel_operator: "ClassVar[Operator | None]" = None  # of `fused`, where `fused` needs its kernels
    scan_operator: "ClassVar[Operator | None]" = None  # that functions of torch surround where the first has no kernels
    steps_alone: ClassVar[bool] = False  # whether one step without gradients is faster by `step` than by `fused`
    no_decay_parameters: ClassVar[tuple[str, ...]] = ()  # parameters that set how memory decays; see optimizer.decay
    constant_parameters: tuple[str, ...] = ()  # parameters with rows that are held constant, which may have no decay
    vector_parameters: ClassVar[tuple[str, ...]] = ()  # gains and biases in tensors of more than one dimension
    estimates_gradient: bool = False  # whether its gradient is not a derivative, such as a straight-through one
    recorded: "list[RecordedStep] | None" = None  # the steps since the start of `record_steps`

    def __init_subclass__(cls, **further: Any) -> None:
        super().__init_subclass__(**further)
        register_tuples_of(cls)
        if cls.__doc__ and (code := getattr(cls.__init__, "__code__", None)):
            options = getattr(cls, "__options__", {}) if declares_options(cls) else {}
            arguments = [*options] or code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            bases = [each for each in cls.__mro__[1:] if issubclass(each, RecurrentCell)]
            # `type.__doc__` reads it through the descriptor: a run reads none
            cls.__doc__ = Completed(cls.__doc__, arguments, bases, "State" in vars(cls))  # type: ignore[assignment]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        output_size: int | None = None,
        *,
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
    ) -> None:
        check_integer("input_size", input_size)
        super().__init__(check_integer("hidden_size", hidden_size), zoneout, recurrent_dropout)
        self.input_size = input_size
        self.output_size = hidden_size if output_size is None else check_integer("output_size", output_size)

    def reset_parameters(self) -> None:
        """Reset all parameters: here those of the modules that the cell is made of, in their order.

        Raises:
            NotImplementedError: The cell has parameters of its own and does not override this method.
        """
        if self._parameters:
            raise NotImplementedError(f"{type(self).__name__} has no reset_parameters")
        for module in self.children():
            module.reset_parameters()  # type: ignore[operator]

    @abstractmethod
    def init_state(self, batch_size: int) -> State:
        """Return the state before the first step, every leaf (B, …), on the cell's device.

        Leaves have the dtype of the parameters. What a linear recurrence multiplies by its decays at every step has the
        dtype `state_dtype`, and so have the decays and whatever else is made of parameters once per sequence.
        """

    @property
    def state_dtype(self) -> torch.dtype:
        """float32, or float64 if the parameters are: bfloat16 rounds a decay of 0.999 to 1, which never forgets."""
        return torch.float64 if first_parameter(self).dtype == torch.float64 else torch.float32

    def to_state_dtype(self, *tensors: Tensor) -> list[Tensor]:
        """Return tensors in the dtype `state_dtype`."""
        dtype = self.state_dtype
        return [tensor.to(dtype) for tensor in tensors]

    def to_parameter_dtype(self, tensor: Tensor) -> Tensor:
        """Return a tensor in the dtype of the parameters, that of the outputs."""
        return tensor.to(first_parameter(self).dtype)

    def precise_linear(self, inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return the product in the dtype `state_dtype` and outside autocast.

        It is for the logits of decays and of exponential gates: the errors of all steps since a value was written add
        up in the exponent.
        """
        with outside_autocast(inputs.device):
            inputs, weight = self.to_state_dtype(inputs, weight)
            return F.linear(inputs, weight, None if bias is None else bias.to(self.state_dtype))

    @abstractmethod
    def project(self, inputs: Any) -> Any:
        """Return the values that depend only on the inputs (…, B, X); leaves keep the leading dimensions."""

    def sequence_constants(self, *shape: int) -> Any:
        """Return the values that a sequence of shape (T, B), or a step of shape (B,), needs besides inputs and state.

        These constants are computed once per sequence: random masks, with the leading dimensions of the shape, and
        functions of the parameters, wrapped in `gyral.ops.scan.Shared` because all steps share them. A cell with
        several of them returns its class `Constants`. This base class returns the masks of its options.
        """
        return self.draw_masks(*shape)

    @abstractmethod
    def step(self, projected: Any, state: State, constants: Any) -> tuple[Tensor, State]:
        """Take one step; return the output (B, output_size) and the new state.

        Args:
            projected: The values of `project` for this step.
            state: The state before the step.
            constants: The values of `sequence_constants` for this step.
        """

    def fused_unsupported_reason(self, *, starts: bool = False) -> str | None:
        """Return the reason why `fused` does not support these options, device or dtype, or None if it does.

        Without this method, `fused` supports everything.
        """
        return None if type(self).fused is not RecurrentCell.fused else f"{type(self).__name__} has no fused path"

    def fused(self, inputs: Any, state: State, lengths: Tensor | None, starts: Tensor | None) -> tuple[Tensor, State]:
        """Run the whole sequence (T, B, X) at once; see `gyral.nn.recurrent.Recurrent.forward`.

        Returns:
            The outputs (T, B, output_size) and the state after the last step of each sequence.
        """
        raise NotImplementedError(self.fused_unsupported_reason())

    def kernels_unsupported_reason(self) -> str | None:
        """Return the reason why `fused` runs functions of torch in place of kernels here, or None if it has kernels.

        On a GPU a CUDA graph records these functions.
        """
        device, operator = first_parameter(self).device, self.fused_operator
        if operator is not None and self.scan_operator is not None and device.type not in operator.kernels:
            operator = self.scan_operator
        return None if operator is None else operator.unsupported_on(device, self.state_dtype)

    def graph_unsupported_reason(self) -> str | None:
        """Return the reason why a CUDA graph cannot record the cell, such as decisions on values, or None."""
        return None

    def is_fused_recordable(self, starts: bool) -> bool:
        """Return whether a CUDA graph may record `fused` on a GPU, with or without `starts`.

        It may not if `fused` reads values on the host, as torch's layers read lengths.
        """
        return self.fused_operator is not None

    def fused_constants(self) -> Tensor | None:
        """Return what `fused` computes from the parameters alone, if a CUDA graph may not record this; else None."""
        return None

    def fused_from(
        self, constants: Tensor, inputs: Any, state: State, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, State]:
        """Do the same as `fused`, given `fused_constants`."""
        raise NotImplementedError

    def forward(
        self, inputs: Any, state: State | None = None, *, run: Callable[..., tuple[Tensor, State]] | None = None
    ) -> tuple[Tensor, State]:
        """Take one step on inputs (B, X), from the initial state if `state` is None, as `torch.nn.GRUCell` does.

        A layer calls a cell that has hooks with `run`, which computes the whole sequence (T, B, X), once for each.
        """
        if run is not None:
            return run(inputs, state)
        batch_size = tree_leaves(inputs)[0].shape[0]
        if state is None:
            state = self.init_state(batch_size)
        return self.step(self.project(inputs), state, self.sequence_constants(batch_size))

    # ---------------------------------------------------------------- for the time loop

    def scan_step(self, values: tuple[Any, Any], state: State) -> tuple[Tensor, State]:
        """Take one step with `values`, the projected inputs and constants of this step; `gyral.ops.scan.scan` calls it.

        Returns:
            The output (B, output_size) and the new state.
        """
        projected, constants = values
        taken = self.step(projected, state, constants)
        if not (isinstance(taken, tuple) and len(taken) == 2 and type(taken[1]) is type(state)):
            raise self._step_error(taken, state)
        output, new = taken
        if self.recorded is not None:
            self.recorded.append(RecordedStep(projected, output, new))
        return output, new

    def _step_error(self, taken: Any, state: State) -> UserError:
        """Return the error of a `step` that returns something else than an output and a state."""
        is_pair = isinstance(taken, tuple) and len(taken) == 2
        found = f"({', '.join(type(each).__name__ for each in taken)})" if is_pair else type(taken).__name__
        return self.contract_error("step", f"(output, state), here (Tensor, {type(state).__name__})", found)

    def contract_error(self, method: str, must: str, found: str) -> UserError:
        """Return the error of a method that returns something else than it must, with the place of the method."""
        code = getattr(unwrap(getattr(type(self), method)), "__code__", None)
        place = "" if code is None else f"{relpath(code.co_filename)}:{code.co_firstlineno}: "
        return UserError(f"{place}{type(self).__name__}.{method} must return {must}; it returned {found}")

    @contextmanager
    def record_steps(self) -> Iterator[list["RecordedStep"]]:
        """Within this context `scan_step` appends every step, and sequences run on the reference backend."""
        self.recorded = []
        try:
            yield self.recorded
        finally:
            self.recorded = None


class DeclaredCell(Options, RecurrentCell):
    """Base class of cells whose options are annotated attributes, as in a dataclass; see `gyral.core.options.Options`.

    A cell creates its parameters in `__post_init__`.
    """

    input_size: PositiveInt = field(kw_only=False)
    hidden_size: PositiveInt = field(kw_only=False)


class RegularizedCell(DeclaredCell):
    """Base class of cells with the options zoneout and recurrent dropout; see `RecurrentCell`."""

    zoneout: Probability = 0.0
    recurrent_dropout: Probability = 0.0


class RecordedStep(NamedTuple):
    """A step of a cell: its projected inputs, its output (B, output_size), and the state after it."""

    projected: Any
    output: Tensor
    state: State


class HiddenState(NamedTuple):
    """State of a cell whose only state is its hidden vector (B, N)."""

    hidden: Tensor


class AssociativeState(NamedTuple):
    """State of a cell with a hidden vector (B, N) and an associative memory (B, N, N)."""

    hidden: Tensor
    memory: Tensor

    def __getitem__(self, index: Any) -> Any:
        # `state[-1]` of torch.nn.GRU is the hidden vector of the last layer; here it would be the memory of all layers
        if isinstance(index, int) and index < 0:
            raise TypeError(f"state[{index}]: a state has two parts, hidden and memory; write state.hidden[{index}]")
        return tuple.__getitem__(self, index)
