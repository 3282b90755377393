"""The base class of cells with a controller and an external memory."""

from abc import abstractmethod
from dataclasses import field
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from gyral.cells.base import DeclaredCell, State
from gyral.cells.contract import check_cell, make_cell
from gyral.cells.feedforward import Affine, Feedforward
from gyral.cells.inputs import MaskedInputs
from gyral.cells.lstm import BEYOND_KERNELS, LSTMCell
from gyral.core.options import PositiveInt, derived
from gyral.ops import slot_memory
from gyral.ops.autograd import outside_autocast


class Locations(NamedTuple):
    """Where the heads of a memory with keys in a plane are after a step.

    Attributes:
        read: (B, 2), the key of the read head.
        write: (B, 2), the key of the write head.
        strength: (B,), the strength of the last vector that was written; 0 in an empty memory.
        count: (B,) integers, number of vectors in the memory.
    """

    read: Tensor
    write: Tensor
    strength: Tensor
    count: Tensor  # type: ignore[assignment]  # not the method of tuples


class MemoryCell(DeclaredCell):
    """Base class of cells in which a controller, any other cell, reads from and writes to an external memory.

    The controller reads [x_t; r_{t−1}], the input and what the read heads read at the previous step. The memory is part
    of the state, whose field `read_vector` (B, heads · W) is r. A subclass defines `init_state` and `use_memory`. The
    output is [h_t; r_t] with the output h_t of the controller, unless the subclass overrides `output`.

    Args:
        hidden_size: N ≥ 1, the hidden size of the controller.
        width: W ≥ 1, the width of the vectors in the memory.
        controller: Returns the controller for its input size and `hidden_size`, such as `partial(RUMCell, lambd=1)`;
            None: `LSTMCell`.

    Attributes:
        heads: Number of read heads.

    Raises:
        OptionError: An argument is out of bounds or has another type, or `controller` also sets a hidden size.
        UserError: See `gyral.cells.contract.make_cell`.
    """

    input_types = MaskedInputs

    controller: Any = derived(default=None)  # a factory, then the cell that it makes
    width: PositiveInt = 20
    heads: int = field(init=False, default=1)

    def check(self) -> None:
        check_cell(self.controller, self.input_size, hidden_size=self.hidden_size)

    def __post_init__(self) -> None:
        make = LSTMCell if self.controller is None else self.controller
        inputs = self.input_size + self.heads * self.width
        self.controller = make_cell(make, inputs, "controller", hidden_size=self.hidden_size)

    def project(self, inputs: Tensor | MaskedInputs) -> MaskedInputs:
        """Return the inputs with their mask; the controller's inputs also depend on what was read."""
        return MaskedInputs(inputs) if isinstance(inputs, Tensor) else inputs

    def sequence_constants(self, *shape: int) -> Any:
        return self.controller.sequence_constants(*shape)

    def step(self, projected: MaskedInputs, state: State, constants: Any) -> tuple[Tensor, State]:
        inputs = self.controller.project(torch.cat((projected.values, state.read_vector), dim=-1))
        hidden, controller = self.controller.step(inputs, state.controller, constants)
        with outside_autocast(hidden.device):  # products in bfloat16 would round the memory at each step
            state = self.use_memory(hidden.to(state.read_vector.dtype), controller, state, projected.write)
        return self.output(hidden, state), state

    @abstractmethod
    def use_memory(self, hidden: Tensor, controller: State, state: State, write: Tensor | None) -> State:
        """Return the state after a step.

        Args:
            hidden: h_t (B, output size of the controller).
            controller: The new state of the controller.
            state: The state before the step.
            write: (B,) bool or None, whether the memory may be written.
        """

    def output(self, hidden: Tensor, state: State) -> Tensor:
        """Return the output of a step from h_t and the state after the step."""
        return torch.cat([hidden, state.read_vector], dim=-1)


class SlotMemoryCell(MemoryCell):
    """Base class of NTM and DNC: an `interface` maps h_t to what the heads need, and `memory` takes the step.

    A subclass defines `init_state`, and a `State` with the fields `controller`, `read_vector` and those of the state of
    the memory. The fused path supports two controllers: `Feedforward`, and `LSTMCell` without layer normalization,
    zoneout and dropout.

    Args:
        slots: C ≥ 1.
        read_heads: Number of read heads, ≥ 1.
    """

    State: ClassVar[Any]

    slots: PositiveInt = 16
    read_heads: PositiveInt = 4
    memory: Any = field(init=False)

    def __post_init__(self) -> None:
        self.heads = self.read_heads
        super().__post_init__()
        self.memory = self.create_memory()
        self.interface = Affine(self.controller.output_size, self.memory.outputs_size)
        self.output_size = self.controller.output_size + self.heads * self.width

    @abstractmethod
    def create_memory(self) -> slot_memory.Memory:
        """Return the memory."""

    def use_memory(self, hidden: Tensor, controller: Any, state: Any, write: Tensor | None) -> Any:
        old: Any = type(self.memory.shapes)(*state[2:])
        read_vector, new = self.memory.step(self.interface(hidden), old, write)
        return self.State(controller, read_vector, *new)

    def fused_unsupported_reason(self, *, starts: bool = False) -> str | None:
        name, controller = type(self).__name__, self.controller
        if type(controller) not in (LSTMCell, Feedforward):
            kind = type(controller).__name__
            return f"controller: only LSTMCell and Feedforward have a fused path within {name}, not {kind}"
        for option in BEYOND_KERNELS:
            if getattr(controller, option, 0):
                return f"controller: {option} has no fused path within {name}"
        return slot_memory.unsupported_reason(self.interface.weight)

    def fused(
        self, inputs: Tensor | MaskedInputs, state: Any, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, Any]:
        vectors, write = self.project(inputs)
        controller = self.controller
        weight_hh: Tensor | None = None
        if isinstance(controller, Feedforward):
            linear: Any = controller.linear
            kind, weight_ih, bias = controller.activation, linear.weight, linear.bias
        else:
            assert isinstance(controller, LSTMCell)
            kind, (weight_ih, bias, weight_hh) = "lstm", controller.summed_kernel_weights()
        outputs, final = slot_memory.slot_memory(
            vectors,
            weight_ih,
            bias,
            weight_hh,
            self.interface.weight,
            self.interface.bias,
            _leaves(state),
            self.memory,
            controller=kind,
            write=write,
            lengths=lengths,
            starts=starts,
            fresh=None if starts is None else _leaves(self.init_state(1)),
        )
        parts = len(state.controller)
        return outputs, self.State(type(state.controller)(*final[:parts]), *final[parts:])


def _leaves(state: Any) -> tuple[Tensor, ...]:
    return (*state.controller, *state[1:])


def head_names(reads: int, writes: int) -> list[str]:
    """Return the names of read heads, then of write heads: "read", or "read 1", "read 2", … if there are several."""
    counts = (("read", reads), ("write", writes))
    return [kind if count == 1 else f"{kind} {index + 1}" for kind, count in counts for index in range(count)]
