"""The interface of the kernels of `gyral.ops.lie_access`, and the products before and after them."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from gyral.core.errors import OptionError, UserError
from gyral.ops import buffers, kernels
from gyral.ops.lie_access.groups import Group, Rotation, ScalingRotation, Translation
from gyral.ops.sequences import project

MODULES = {"cpu": "gyral.ops.lie_access.cpu"}

GROUPS: tuple[type[Group], ...] = (Translation, Rotation, ScalingRotation)  # in the order of lie_access.cpp
SLACK = 16  # entries behind the last one of a log: kernels read whole registers


class Weights(NamedTuple):
    """The weights of the controller, an LSTM of N units, and of the heads. X inputs, W width of the vectors.

    Attributes:
        weight_ih: (4N, X + W), of the input and of the read vector, rows [i; f; g; o].
        bias: (4N,) or None.
        weight_hh: (4N, N).
        head_weight, head_bias: (K, N) and (K,). The outputs of the heads are, before any activation, those of the write
            head: key (2), gate of the key, step (2), gate of the step, strength, vector (W); and those of the read
            head: key (2), gate of the key, step (2), gate of the step, and with SoftMax the temperature.
    """

    weight_ih: Tensor
    bias: Tensor | None
    weight_hh: Tensor
    head_weight: Tensor
    head_bias: Tensor


class MemoryState(NamedTuple):
    """The state: vectors h and c (B, N) of the controller, and then as `gyral.cells.lantm.LANTMCell.State`."""

    hidden: Tensor
    cell_state: Tensor
    read_vector: Tensor
    read_key: Tensor
    read_step: Tensor
    write_key: Tensor
    write_step: Tensor
    keys: Tensor
    vectors: Tensor
    strengths: Tensor
    count: Tensor  # type: ignore[assignment]  # not the method of tuples

    def flatten(self) -> Tensor:
        """Return all vectors besides the memory in one row (B, D), in the order in which kernels store them."""
        return torch.cat((self.hidden, *self[2:7], self.cell_state), dim=1)

    @classmethod
    def of(cls, flat_state: Tensor, hidden_size: int, memory: tuple[Tensor, ...]) -> "MemoryState":
        """Return the state for a flat state and the leaves of the memory."""
        width = flat_state.shape[1] - 2 * hidden_size - 8
        hidden, *rest, cell_state = flat_state.split([hidden_size, width, 2, 2, 2, 2, hidden_size], dim=1)
        return cls(hidden, cell_state, *rest, *memory)


class Options(NamedTuple):
    """The options of a memory: `forget` of the oldest vectors go when it is full, 0: that is an error."""

    group: Group
    softmax: bool
    forget: int


class FixedArguments(NamedTuple):
    """The arguments of a sequence that have no gradient; see `gyral.ops.lie_access.run`."""

    options: Options
    count: Tensor  # type: ignore[assignment]  # not the method of tuples
    write: Tensor | None
    lengths: Tensor | None
    starts: Tensor | None


class Tensors(NamedTuple):
    """The arguments of a sequence that have a gradient.

    Attributes:
        inputs: (T, B, X).
        weight_x: (4N, X), of the inputs.
        bias: (4N,) or None.
        weight: (4N, N + W), of h and of the read vector.
        head_weight, head_bias: See `Weights`.
        flat_state, keys, vectors, strengths: The initial state; see `MemoryState`.
        fresh: The flat state (D,) to which `starts` resets rows, with an empty memory; or None.
    """

    inputs: Tensor
    weight_x: Tensor
    bias: Tensor | None
    weight: Tensor
    head_weight: Tensor
    head_bias: Tensor
    flat_state: Tensor
    keys: Tensor
    vectors: Tensor
    strengths: Tensor
    fresh: Tensor | None


class Arguments(NamedTuple):
    """The arguments of a kernel.

    Attributes:
        parts: (T, B, 4N), the projected inputs. `forward` overwrites it with values for `backward`, which overwrites it
            with its gradient.
        heads: (T, B, K), written by `forward`: the outputs of the heads. `backward` overwrites it with its gradient.
        flat_states: (T, B, D), written by `forward`: the flat states before each step; zero beyond the lengths.
        log: (B, 3 + W, E), written by `forward`: the entries of the memory in the order in which they were written;
            rows: both coordinates of the keys, strengths, elements of the vectors.
        tensors: The weights and the initial state; kernels do not read the inputs.
        fixed: See `FixedArguments`.
    """

    parts: Tensor
    heads: Tensor
    flat_states: Tensor
    log: Tensor
    tensors: Tensors
    fixed: FixedArguments


class Results(NamedTuple):
    """The return value of `forward`.

    Attributes:
        outputs: (T, B, N), h after each step.
        flat_state, keys, vectors, strengths, count: After the last step of each sequence; see `MemoryState`.
        windows: (T, B, 2) int64: begin and end of the filled part of the log after each step, for `backward`.
        is_full: Whether a vector was written to a full memory that forgets nothing; then no value has a meaning.
    """

    outputs: Tensor
    flat_state: Tensor
    keys: Tensor
    vectors: Tensor
    strengths: Tensor
    count: Tensor  # type: ignore[assignment]  # not the method of tuples
    windows: Tensor
    is_full: bool


class Gradients(NamedTuple):
    """Gradients of the initial state and `fresh`, or None; gradients of `parts` and `heads` overwrite these tensors."""

    flat_state: Tensor
    keys: Tensor | None
    vectors: Tensor | None
    strengths: Tensor | None
    fresh: Tensor | None


def memory_full_error(capacity: int) -> UserError:
    """Return the error of a write to a memory that is full and forgets nothing."""
    return OptionError("capacity", capacity, "is less than the vectors that are written; set a larger one, or forget")


def make_arguments(fixed: FixedArguments, tensors: Tensors) -> tuple[Arguments, Tensor]:
    """Project the inputs of all steps in one product; return the arguments and the buffer of its large tensors."""
    given: Any = (None if tensor is None else tensor.contiguous() for tensor in tensors)
    tensors = Tensors(*given)
    count = fixed.count.clamp(0, tensors.keys.shape[1])  # kernels would read beyond the end of the memory
    masks = (None if mask is None else mask.contiguous() for mask in fixed[2:])
    fixed = FixedArguments(fixed.options, count.contiguous(), *masks)
    inputs, weight_x = tensors.inputs, tensors.weight_x
    steps, batch, _ = inputs.shape
    entries = steps + SLACK + (int(count.max()) if batch else 0)
    shapes = [
        (steps, batch, len(weight_x)),
        (steps, batch, len(tensors.head_weight)),
        (steps, batch, tensors.flat_state.shape[1]),
        (batch, 3 + tensors.vectors.shape[2], entries),
    ]
    sizes = [a * b * c for a, b, c in shapes]
    buffer = buffers.acquire(sum(sizes), inputs)
    parts, heads, flat_states, log = (
        piece.view(shape) for piece, shape in zip(buffer.split(sizes), shapes, strict=True)
    )
    project(inputs, weight_x, tensors.bias, out=parts)
    flat_states[0] = tensors.flat_state
    return Arguments(parts, heads, flat_states, log, tensors, fixed), buffer


def run_forward(arguments: Arguments) -> Results:
    """Run the kernels forward.

    Raises:
        UserError: A vector was written to a full memory that forgets nothing.
    """
    results: Results = kernels.find(MODULES, arguments.parts).forward(arguments)
    if results.is_full:
        raise memory_full_error(arguments.tensors.keys.shape[1])
    return results


def run_backward(
    arguments: Arguments, results: Results, gradients: tuple[Tensor | None, ...], needs: tuple[bool, ...]
) -> list[Tensor | None]:
    """Run the kernels backward; return the gradient of each of `arguments.tensors`.

    Args:
        arguments, results: `backward` of the kernels overwrites the parts and the outputs of the heads.
        gradients: Gradients of outputs, flat_state, keys, vectors and strengths of the results, None stands for zeros.
        needs: Which of `arguments.tensors` need a gradient.
    """
    tensors = arguments.tensors
    needed = dict(zip(Tensors._fields, needs, strict=True))
    memory = needed["keys"] or needed["vectors"] or needed["strengths"]
    found: Gradients = kernels.find(MODULES, arguments.parts).backward(arguments, results, gradients, memory)
    parts, heads = arguments.parts.flatten(0, 1), arguments.heads.flatten(0, 1)
    seen = arguments.flat_states[..., : tensors.weight.shape[1]].flatten(0, 1)
    return [
        (parts @ tensors.weight_x).view(tensors.inputs.shape) if needed["inputs"] else None,
        (tensors.inputs.flatten(0, 1).T @ parts).T,  # twice as fast as the transposed product
        None if tensors.bias is None else parts.sum(0),
        parts.T @ seen,
        heads.T @ results.outputs.flatten(0, 1),
        heads.sum(0),
        *found,
    ]
