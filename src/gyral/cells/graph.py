"""The base class of cells that read earlier states along typed edges."""

from abc import abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gyral.cells.base import RecurrentCell, State
from gyral.core.checks import check_integer
from gyral.core.errors import OptionError
from gyral.ops.compiler import is_traced

DEFAULT_CAPACITY = 100  # states, unless the task says how many it needs


class LinkedInputs(NamedTuple):
    """Inputs (…, B, X), and their edges to earlier steps, distances (…, B, E, D), or None: there are no edges."""

    vectors: Tensor
    edges: Tensor | None


class GraphCell(RecurrentCell):
    """Base class of cells that read the hidden vectors of earlier steps along typed edges (Dhingra et al. 2017).

    Type 0 is the edge from the previous step, which every step has; the types 1 … E come with the inputs, see
    `gyral.core.edges.Edges`. The state holds the last C hidden vectors. A subclass defines `init_state` and
    `step_along`.

    Args:
        input_size: X ≥ 1.
        hidden_size: N ≥ 1, the size of the hidden vectors.
        edge_types: E ≥ 1.
        edge_size: Number of units that each type 1 … E has of its own; the first N − E · edge_size units are those of
            type 0. None: all types share the N units.
        capacity: C, how many steps an edge can reach back. None: the longest sequence of the task, or 100.

    Raises:
        OptionError: An argument is out of bounds, or no unit remains for type 0.
    """

    def __init__(
        self, input_size: int, hidden_size: int, *, edge_types: int, edge_size: int | None, capacity: int | None
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.edge_types = check_integer("edge_types", edge_types)
        self.edge_size = None if edge_size is None else check_integer("edge_size", edge_size)
        if edge_size is not None and edge_types * edge_size >= hidden_size:
            reason = f"{edge_types} types of this size must be smaller than hidden_size, {hidden_size}"
            raise OptionError("edge_size", edge_size, reason)
        self.has_own_capacity = capacity is not None
        self.capacity = DEFAULT_CAPACITY if capacity is None else check_integer("capacity", capacity)

    def reserve(self, writes: int) -> None:
        """Let edges reach back over so many steps, unless the option `capacity` is set."""
        if not self.has_own_capacity:
            self.capacity = writes

    def with_edges(self, inputs: Tensor, edges: Tensor) -> LinkedInputs:
        """Return inputs with edges.

        Raises:
            OptionError: The edges have another number of types.
        """
        if edges.shape[-2] != self.edge_types:
            raise OptionError("edge_types", self.edge_types, f"must be {edges.shape[-2]}, the types of the edges")
        return LinkedInputs(inputs, edges)

    def empty_memory(self, batch_size: int) -> tuple[Tensor, Tensor]:
        """Return the memory (B, C, N), which holds the latest vector last, and its count (B,) of vectors, both 0."""
        memory = self.zeros(batch_size, self.capacity, self.hidden_size)
        return memory, torch.zeros(batch_size, dtype=torch.int64, device=memory.device)

    def step(self, projected: LinkedInputs, state: State, constants: Any) -> tuple[Tensor, State]:
        memory, count, edges = state.memory, state.count, projected.edges
        linked = memory.new_zeros(1, 1, 1).expand(len(memory), self.edge_types, self.hidden_size)
        if edges is not None:
            out_of_reach = self.out_of_reach(edges, count)
            self.check_reach(edges, out_of_reach)
            linked = gather_along(memory, edges, out_of_reach)
        output, hidden, state = self.step_along(projected.vectors, linked, state, constants)
        memory = torch.cat((memory[:, 1:], hidden.to(memory.dtype).unsqueeze(1)), dim=1)
        return output, state._replace(memory=memory, count=count + 1)

    @abstractmethod
    def step_along(self, projected: Any, linked: Tensor, state: State, constants: Any) -> tuple[Tensor, Tensor, State]:
        """Take one step, except for the memory.

        Args:
            projected: The projected inputs of this step, without edges.
            linked: (B, E, N), for each type the sum of the hidden vectors at the sources of the edges; 0 without edge.
            state: The state before the step.
            constants: See `RecurrentCell.step`.

        Returns:
            The output (B, output_size), the hidden vector (B, N) and the state, whose memory and count are not read.
        """

    def previous(self, state: State) -> Tensor:
        """Return h_{t−1} (B, N)."""
        hidden: Tensor = state.memory[:, -1]
        return hidden

    def own_units(self, previous: Tensor, linked: Tensor) -> Tensor:
        """Return the vector (B, N) that has of each type its own units; `edge_size` is not None.

        Args:
            previous: (B, N), of type 0.
            linked: (B, E, N), of the other types.
        """
        assert self.edge_size is not None
        first = self.hidden_size - self.edge_types * self.edge_size
        own = linked[..., first:].unflatten(-1, (self.edge_types, self.edge_size))
        return torch.cat((previous[:, :first], own.diagonal(dim1=1, dim2=2).transpose(1, 2).flatten(1)), dim=1)

    # ---------------------------------------------------------------- edges that reach too far

    def out_of_reach(self, distances: Tensor, count: Tensor) -> Tensor:
        """Return where distances (…, B, E, D) exceed the capacity or the number (…, B) of earlier steps."""
        return distances > count.clamp(max=self.capacity)[..., None, None]

    def check_reach(self, distances: Tensor, out_of_reach: Tensor) -> None:
        """Raise an error if an edge reaches too far; within a compiler, which cannot raise one, do nothing.

        Raises:
            OptionError: An edge reaches back over more than `capacity` steps.
            ValueError: An edge comes from before the first step of its sequence.
        """
        if is_traced() or not bool(out_of_reach.any()):
            return
        distance = int(distances[out_of_reach].max())
        if distance > self.capacity:
            raise OptionError("capacity", self.capacity, f"must be at least {distance}, the longest edge")
        raise ValueError(f"edges have a distance of {distance} at a step with fewer steps before it")

    def steps_before(self, steps: int, count: Tensor, starts: Tensor | None) -> Tensor:
        """Return the number (T, B) of steps before each step of its segment; `count` (B,) steps were carried over."""
        time = torch.arange(steps, device=count.device).unsqueeze(1)
        if starts is None:
            return time + count
        last = torch.where(starts, time, -1).cummax(dim=0).values
        return torch.where(last < 0, time + count, time - last)


def gather_along(memory: Tensor, distances: Tensor, out_of_reach: Tensor) -> Tensor:
    """Return for each type the sum (B, E, N) of the vectors at distances (B, E, D) in a memory (B, C, N).

    The latest vector is the last of the memory. A distance of 0 adds nothing. What is out of reach,
    (B, E, D) bool, is NaN.
    """
    capacity, width = memory.shape[1:]
    index = (capacity - distances).clamp(0, capacity - 1).flatten(1).unsqueeze(-1).expand(-1, -1, width)
    vectors = memory.gather(1, index).view(*distances.shape, width)
    vectors = vectors.masked_fill((distances == 0).unsqueeze(-1), 0.0)
    return vectors.masked_fill(out_of_reach.unsqueeze(-1), torch.nan).sum(dim=2)
