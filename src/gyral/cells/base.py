"""The contract of a recurrent cell.

A cell is one recurrence. It has an initial state and four functions: `project` computes whatever depends only on the
inputs, for all steps at once; `sequence_constants` computes whatever depends on neither inputs nor state (random masks,
matrices built from parameters); `step` takes one step. A cell knows no task and no time loop:
`gyral.nn.recurrent.Recurrent` runs it over a sequence.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from gyral.core.checks import check_integer, check_real
from gyral.ops.dropout import bernoulli_mask, dropout_mask
from gyral.ops.scan import Shared
from gyral.ops.zoneout import zoneout

State = Any  # a NamedTuple of tensors, batch first in every leaf


class DropoutMasks(NamedTuple):
    """The random masks of a sequence (T, B) or of one step (B,).

    Attributes:
        zoneout: (…, B, output_size), 1 where a unit keeps its old value; None without zoneout and in evaluation.
        recurrent_dropout: (B, output_size), one mask for all steps; None without dropout and in evaluation.
    """

    zoneout: Tensor | None
    recurrent_dropout: Shared | None


class RecurrentCell(nn.Module, ABC):
    """Base class of all cells. B is the batch size, T the number of steps, X the input size, N the hidden size.

    Args:
        input_size: X ≥ 1.
        hidden_size: N ≥ 1.
        output_size: Width of the output of a step; N if None.
        zoneout: Probability, in [0, 1), that a unit of the hidden vector keeps its old value in training. Evaluation
            uses the expectation (Krueger et al. 2017).
        recurrent_dropout: Probability, in [0, 1), that a unit of the hidden vector is zero in the products with the
            recurrent weights, in training; the same units at all steps of a sequence (Gal and Ghahramani 2016).

    Attributes:
        fused_keeps_states: Whether the fused path keeps the state of every step for the backward pass.
        recorded: The states since the start of `record_states`; None outside of it.

    Raises:
        OptionError: An argument is out of bounds or has another type.
    """

    fused_keeps_states = False
    recorded: list[State] | None = None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        output_size: int | None = None,
        *,
        zoneout: float = 0.0,
        recurrent_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.input_size = check_integer("input_size", input_size)
        self.hidden_size = check_integer("hidden_size", hidden_size)
        self.output_size = hidden_size if output_size is None else output_size
        self.zoneout = check_real("zoneout", zoneout, minimum=0, below=1)
        self.recurrent_dropout = check_real("recurrent_dropout", recurrent_dropout, minimum=0, below=1)

    # ---------------------------------------------------------------- the recurrence

    @abstractmethod
    def init_state(self, batch_size: int) -> State:
        """Return the state before the first step, every leaf (B, …), on the cell's device and in its dtype."""

    @abstractmethod
    def project(self, inputs: Tensor) -> Any:
        """Return the values that depend only on the inputs (…, B, X); leaves keep the leading dimensions.

        `Recurrent` calls it once for the whole sequence (T, B, X).
        """

    def sequence_constants(self, *shape: int) -> Any:
        """Return the values that a sequence of shape (T, B), or a step of shape (B,), needs besides inputs and state.

        Random masks have the leading dimensions of the shape. Values that all steps share, such as a matrix built from
        parameters, are wrapped in `Shared`. The base class returns the masks of its own options.
        """
        return self.draw_masks(*shape)

    def with_write(self, inputs: Tensor, write: Tensor) -> Any:
        """Return inputs (T, B, X) together with the steps at which an external memory may be written, (T, B) bool.

        `project` and `fused` take the result in place of the inputs. A cell without an external memory returns the
        inputs.
        """
        return inputs

    def with_edges(self, inputs: Tensor, edges: Tensor) -> Any:
        """Return inputs (T, B, X) together with their edges to earlier steps, distances (T, B, E, D).

        `gyral.core.edges.Edges` describes the distances. `project` and `fused` take the result in place of the inputs.
        A cell that does not read along edges returns the inputs.
        """
        return inputs

    def reserve(self, writes: int) -> None:
        """Size an external memory for sequences with at most so many writes; a cell without one does nothing.

        Raises:
            OptionError: The memory has a fixed capacity, which is smaller.
        """

    @abstractmethod
    def step(self, projected: Any, state: State, constants: Any) -> tuple[Tensor, State]:
        """Take one step.

        Args:
            projected: The values of `project` for this step.
            state: The state before the step.
            constants: The values of `sequence_constants` for this step.

        Returns:
            The output (B, output_size) and the new state.
        """

    def forget_gate(self, projected: Any, state: State) -> Tensor | None:
        """Return the gate that multiplies the old state in a step, in [0, 1], or None if the cell has no such gate.

        It is that of evaluation, without random masks.

        Args:
            projected: The values of `project`, with leading dimensions (B,).
            state: The state before the step.

        Returns:
            (B, number of gates).
        """
        return None

    def scan_step(self, values: tuple[Any, Any], state: State) -> tuple[Tensor, State]:
        """Take one step with `values`, the projected inputs and constants of this step; `gyral.ops.scan.scan` calls it.

        Returns:
            The output (B, output_size) and the new state.
        """
        projected, constants = values
        output, new = self.step(projected, state, constants)
        if self.recorded is not None:
            self.recorded.append(new)
        return output, new

    @contextmanager
    def record_states(self) -> Iterator[list[State]]:
        """Within this context `scan_step` appends every new state, and sequences run on the reference backend."""
        self.recorded = []
        try:
            yield self.recorded
        finally:
            self.recorded = None

    def forward(
        self,
        inputs: Any,
        state: State | None = None,
        run: Callable[[Any, State | None], tuple[Tensor, State]] | None = None,
    ) -> tuple[Tensor, State]:
        """Take one step on inputs (B, X), from the initial state if `state` is None, as `torch.nn.GRUCell` does.

        `gyral.nn.recurrent.Recurrent` calls the cell once per sequence, with inputs (T, B, X) and the function `run`
        that runs the whole sequence. So forward hooks of a cell get (inputs, state, run) and (outputs, final state) of
        a sequence, on every backend, and pre-hooks that compute a weight compute it once per sequence.
        """
        if run is not None:
            return run(inputs, state)
        batch_size = inputs.shape[0]
        if state is None:
            state = self.init_state(batch_size)
        return self.step(self.project(inputs), state, self.sequence_constants(batch_size))

    # ---------------------------------------------------------------- the fused path

    def fused_unsupported_reason(self, *, starts: bool = False) -> str | None:
        """Return the reason why `fused` does not support these options, device or dtype, or None if it does."""
        return f"{type(self).__name__} has no fused path"

    def fused(
        self, inputs: Tensor, state: State, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, State]:
        """Run the whole sequence (T, B, X) at once; see `gyral.nn.recurrent.Recurrent.forward`.

        Returns:
            The outputs (T, B, output_size) and the state after the last step of each sequence.
        """
        raise NotImplementedError(self.fused_unsupported_reason())

    def graph_unsupported_reason(self) -> str | None:
        """Return the reason why a CUDA graph cannot record `step`, such as a decision on values, or None if it can."""
        return None

    def phases(self) -> list[Tensor]:
        """Return the parameters, or views of them, that determine the angles of the cell's rotations; none here."""
        return []

    def zeros(self, *shape: int) -> Tensor:
        """Return zeros on the cell's device and in its dtype."""
        parameter = next(self.parameters())
        return torch.zeros(shape, dtype=parameter.dtype, device=parameter.device)

    # ---------------------------------------------------------------- zoneout and recurrent dropout

    def draw_masks(self, *shape: int) -> DropoutMasks:
        """Draw the masks for a sequence of shape (T, B), or for a step of shape (B,)."""
        recurrent = None
        if self.training and self.recurrent_dropout > 0:
            mask = dropout_mask(self.zeros(shape[-1], self.hidden_size), self.recurrent_dropout)
            recurrent = Shared(self.expand_mask(mask))
        return DropoutMasks(self.draw_zoneout_mask(self.zoneout, *shape), recurrent)

    def draw_zoneout_mask(self, probability: float, *shape: int) -> Tensor | None:
        """Draw a mask (*shape, output_size); return None in evaluation and if the probability is zero."""
        if not self.training or probability == 0:
            return None
        return self.expand_mask(bernoulli_mask(self.zeros(*shape, self.hidden_size), probability))

    def expand_mask(self, mask: Tensor) -> Tensor:
        """Return the mask (…, output_size) of the hidden vector for a mask (…, N) of its units; here they are equal."""
        return mask

    def draw_fused_zoneout(self, *shape: int) -> Tensor | float | None:
        """Return zoneout in the form that kernels take; see `kernel_zoneout`."""
        return kernel_zoneout(self.draw_zoneout_mask(self.zoneout, *shape), self.zoneout)

    def apply_recurrent_dropout(self, hidden: Tensor, masks: DropoutMasks) -> Tensor:
        """Return the hidden vector (B, N) for the products with the recurrent weights."""
        return hidden if masks.recurrent_dropout is None else hidden * masks.recurrent_dropout.value

    def apply_zoneout(self, new: Tensor, old: Tensor, masks: DropoutMasks) -> Tensor:
        """Return the hidden vector (B, N) after zoneout."""
        if self.zoneout == 0:
            return new
        return zoneout(new, old, self.zoneout if masks.zoneout is None else masks.zoneout)


NO_MASKS = DropoutMasks(None, None)


def kernel_zoneout(mask: Tensor | None, probability: float) -> Tensor | float | None:
    """Return zoneout in the form that kernels take: the mask in training, the probability in evaluation, or None."""
    return (probability or None) if mask is None else mask


class HiddenState(NamedTuple):
    """State of a cell whose only state is its hidden vector (B, N)."""

    hidden: Tensor
