"""The base class of cells that read earlier states along typed edges."""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.cells.base import DeclaredCell, State
from gyral.cells.inputs import LinkedInputs
from gyral.cells.masks import first_parameter
from gyral.core.errors import OptionError
from gyral.core.options import PositiveInt, derived
from gyral.ops import graph_gru
from gyral.ops.compiler import is_traced
from gyral.ops.scan import scan
from gyral.ops.sequences import reachable_since

DEFAULT_CAPACITY = 100  # states, unless the task says how many it needs


class GraphCell(DeclaredCell):
    """Base class of cells that read the hidden vectors of earlier steps along typed edges (Dhingra et al. 2017).

    Type 0 is the edge from the previous step, which every step has; the types 1 … E come with the inputs, see
    `gyral.core.edges.Edges`. Beside the last hidden vector, the state holds the C ones before it. A subclass defines
    `init_state`, `last_hidden` and `step_along`.

    Args:
        hidden_size: N ≥ 1, the size of the hidden vectors.
        edge_types: E ≥ 1, the number of types besides the edge from the previous step.
        edge_size: Number of units that each type 1 … E has of its own; the first N − E · edge_size units are those of
            type 0. None: all types share the N units.
        capacity: C; edges can reach back over C + 1 steps. None: the longest sequence of the task, or 100.

    Raises:
        OptionError: An argument is out of bounds or has another type, or no unit remains for type 0.
    """

    input_types = LinkedInputs

    edge_types: PositiveInt = 1
    edge_size: PositiveInt | None = None
    capacity: PositiveInt = derived(default=None)

    def check(self) -> None:
        if self.edge_size is not None and self.edge_types * self.edge_size >= self.hidden_size:
            reason = f"{self.edge_types} types of this size must be smaller than hidden_size, {self.hidden_size}"
            raise OptionError("edge_size", self.edge_size, reason)

    def __post_init__(self) -> None:
        self.has_own_capacity = self.capacity is not None
        self.capacity = self.capacity or DEFAULT_CAPACITY

    def reserve(self, writes: int) -> None:
        """Let edges reach back over `steps` steps, unless the option `capacity` is set."""
        if not self.has_own_capacity:
            self.capacity = writes

    def split(self, inputs: Tensor | LinkedInputs) -> tuple[Tensor, Tensor | None]:
        """Return the vectors (…, B, X) of inputs and their distances to earlier steps (…, B, E, D), None without edges.

        Raises:
            OptionError: The edges have another number of types.
        """
        if isinstance(inputs, Tensor):
            return inputs, None
        earlier = inputs.earlier
        if earlier is not None and earlier.shape[-2] != self.edge_types:
            raise OptionError("edge_types", self.edge_types, f"must be {earlier.shape[-2]}, the types of the edges")
        return inputs.values, earlier

    def empty_memory(self, batch_size: int) -> tuple[Tensor, Tensor]:
        """Return the memory (B, C, N), the latest vector last, and the number (B,) of steps so far, both 0."""
        memory = self.zeros(batch_size, self.capacity, self.hidden_size)
        return memory, torch.zeros(batch_size, dtype=torch.int64, device=memory.device)

    @abstractmethod
    def project(self, inputs: Tensor | LinkedInputs) -> LinkedInputs:
        """Return the projected vectors with the edges of the inputs; see `RecurrentCell.project`."""

    def step(self, projected: LinkedInputs, state: State, constants: Any) -> tuple[Tensor, State]:
        hidden, edges = self.last_hidden(state), projected.earlier
        past = torch.cat((state.memory, hidden.unsqueeze(1)), dim=1)
        linked = hidden.new_zeros(1, 1, 1).expand(hidden.shape[0], self.edge_types, self.hidden_size)
        if edges is not None:
            out_of_reach = self.out_of_reach(edges, state.count)
            self.check_reach(edges, out_of_reach)
            linked = gather_along(past, edges, out_of_reach)
        output, new = self.step_along(projected.values, hidden, linked, state, constants)
        return output, new._replace(memory=past[:, 1:], count=state.count + 1)

    @abstractmethod
    def last_hidden(self, state: State) -> Tensor:
        """Return h_{t−1} (B, N)."""

    @abstractmethod
    def step_along(
        self, projected: Any, hidden: Tensor, linked: Tensor, state: State, constants: Any
    ) -> tuple[Tensor, State]:
        """Take one step, except for the memory.

        Args:
            projected: The projected inputs of this step, without edges.
            hidden: h_{t−1} (B, N).
            linked: (B, E, N), for each type the sum of the hidden vectors at the sources of the edges; 0 without edge.
            state: The state before the step.
            constants: See `RecurrentCell.step`.

        Returns:
            The output (B, output_size) and the new state, whose memory and count are not read.
        """

    def own_units(self, hidden: Tensor, linked: Tensor) -> Tensor:
        """Return the vector (B, N) that has of each type its own units; `edge_size` is not None.

        Args:
            hidden: (B, N), of type 0.
            linked: (B, E, N), of the other types.
        """
        assert self.edge_size is not None
        first = self.hidden_size - self.edge_types * self.edge_size
        own = linked[..., first:].unflatten(-1, (self.edge_types, self.edge_size))
        return torch.cat((hidden[:, :first], own.diagonal(dim1=1, dim2=2).transpose(1, 2).flatten(1)), dim=1)

    # ---------------------------------------------------------------- the fused path

    def fused_unsupported_reason(self, *, starts: bool = False) -> str | None:
        name = type(self).__name__
        if torch.compiler.is_compiling():
            return f"torch.compile does not support the fused path of {name}"
        device = first_parameter(self).device.type
        return None if device == "cpu" else f"the fused path of {name} is only for the CPU"

    def fused(
        self, inputs: Tensor | LinkedInputs, state: State, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, State]:
        """Run the loop with a list of the hidden vectors in place of the memory, which a step would copy.

        So time and memory are linear in the number of steps. See `RecurrentCell.fused`.
        """
        projected, before = self.project(inputs), self.last_hidden(state)
        (vectors, edges), past = self.split(inputs), self.past(state)
        steps, rows = vectors.shape[:2]
        nothing = before.new_zeros(1, 1, 1).expand(rows, self.edge_types, self.hidden_size)
        sources, index = None, None
        if edges is not None:
            self.check_reach(edges, self.out_of_reach(edges, self.steps_before(steps, state.count, starts)))
            sources, index = sources_of(edges)
        history: list[Tensor] = []

        def step(values: tuple[Any, Tensor | None, Any], state: State) -> tuple[Tensor, State]:
            vectors, index, constants = values
            linked = nothing
            if index is not None and sources is not None and sources[len(history)]:
                found = [history[time] if time >= 0 else past[:, time] for time in sources[len(history)]]
                linked = F.embedding(index, torch.cat((torch.zeros_like(before), *found))).sum(dim=2)
            output, new = self.step_along(vectors, self.last_hidden(state), linked, state, constants)
            history.append(self.last_hidden(new).to(past.dtype))
            return output, new._replace(count=state.count + 1)

        def without_memory(state: State) -> State:
            return state._replace(memory=state.memory[:, :0])

        initial = None if starts is None else without_memory(self.init_state(rows))
        sequence = projected.values, index, self.sequence_constants(steps, rows)
        outputs, final = scan(step, sequence, without_memory(state), lengths, starts, initial)
        since = reachable_since(starts, past.shape[1])
        memory = graph_gru.latest(past, torch.stack(history), state.memory.shape[1] + 1, lengths, since)[:, :-1]
        return outputs, final._replace(memory=memory)

    def past(self, state: State) -> Tensor:
        """Return the hidden vectors (B, ≤ C + 1, N) that edges can reach, the latest last.

        The memory of a new sequence, which is large, is left out.
        """
        hidden = self.last_hidden(state).unsqueeze(1)
        return torch.cat((state.memory, hidden), dim=1) if is_traced() or bool(state.count.any()) else hidden

    # ---------------------------------------------------------------- edges that reach too far

    def out_of_reach(self, distances: Tensor, count: Tensor) -> Tensor:
        """Return where distances (…, B, E, D) exceed the reach of the cell or the number (…, B) of earlier steps."""
        return distances > count.clamp(max=self.capacity + 1)[..., None, None]

    def check_reach(self, distances: Tensor, out_of_reach: Tensor) -> None:
        """Raise an error if an edge reaches too far; within a compiler, which cannot raise one, do nothing.

        Raises:
            OptionError: An edge reaches back over more than C + 1 steps.
            ValueError: An edge comes from before the first step of its sequence.
        """
        if is_traced() or not bool(out_of_reach.any()):
            return
        distance = int(distances[out_of_reach].max())
        if distance > self.capacity + 1:
            reason = f"must be at least {distance - 1}, because an edge reaches back over {distance} steps"
            raise OptionError("capacity", self.capacity, reason)
        raise ValueError(f"edges have a distance of {distance} at a step with fewer steps before it")

    def steps_before(self, steps: int, count: Tensor, starts: Tensor | None) -> Tensor:
        """Return the number (T, B) of steps before each step of its segment; `count` (B,) steps were carried over."""
        time = torch.arange(steps, device=count.device).unsqueeze(1)
        if starts is None:
            return time + count
        last = torch.where(starts, time, -1).cummax(dim=0).values
        return torch.where(last < 0, time + count, time - last)


def gather_along(past: Tensor, distances: Tensor, out_of_reach: Tensor) -> Tensor:
    """Return for each type the sum (B, E, N) of the vectors at distances (B, E, D) in (B, C, N).

    The latest vector is the last one. A distance of 0 adds nothing. What is out of reach,
    (B, E, D) bool, is NaN.
    """
    rows, count, _ = past.shape
    first = count * torch.arange(rows, device=past.device).view(-1, 1, 1)
    # `gather` would save all of `past` for backward at every step
    vectors = past.flatten(0, 1)[first + (count - distances).clamp(0, count - 1)]
    vectors = vectors.masked_fill((distances == 0).unsqueeze(-1), 0.0)
    return vectors.masked_fill(out_of_reach.unsqueeze(-1), torch.nan).sum(dim=2)


def sources_of(distances: Tensor) -> tuple[list[list[int]], Tensor]:
    """Return, for each step, the distinct source steps of its edges and the index of each edge among them.

    Args:
        distances: (T, B, E, D), 0: no edge.

    Returns:
        For each step the steps, negative for those before the first one; and (T, B, E, D) the index of a vector among
        the B zeros, for absent edges, and the B vectors of each of these steps.
    """
    steps, rows = distances.shape[:2]
    edges = distances.nonzero(as_tuple=True)
    time = edges[0]
    (targets, sources), which = torch.stack((time, time - distances[edges])).unique(dim=1, return_inverse=True)
    counts = targets.bincount(minlength=steps)
    index = torch.zeros_like(distances)
    index[edges] = 1 + which - (counts.cumsum(0) - counts)[time]
    index = index * rows + torch.arange(rows, device=index.device).view(-1, 1, 1)
    return [part.tolist() for part in sources.split(counts.tolist())], index
