"""Lie-access neural Turing machine (LANTM)."""

from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_flatten, tree_unflatten

from gyral.cells.initialization import uniform_
from gyral.cells.inputs import MaskedInputs
from gyral.cells.lstm import BEYOND_KERNELS, LSTMCell
from gyral.cells.memory import Locations, MemoryCell
from gyral.core.checks import check_integer
from gyral.core.errors import OptionError
from gyral.core.options import FiniteFloat, OneOf, PositiveInt, derived
from gyral.ops import lie_access
from gyral.ops.compiler import is_traced
from gyral.ops.lie_access import read
from gyral.ops.lie_access.groups import GROUPS

WEIGHTINGS = ("inv_norm", "softmax")
DEFAULT_CAPACITY = 100  # of endless streams in the paper
OPEN = 100.0  # a gate before its sigmoid, which is 1
FORGOTTEN = 0.6  # of a full memory, in the paper


class Head(NamedTuple):
    """The outputs of the controller for the key of a head: numbers (…, 2) and the values (…, 1) of gates, in [0, 1]."""

    key: Tensor
    key_gate: Tensor
    step: Tensor
    step_gate: Tensor


class Heads(NamedTuple):
    """The outputs of the controller at a step: strength (…, 1), vector (…, W), and temperature (…, 1) of SoftMax."""

    write: Head
    strength: Tensor
    vector: Tensor
    read: Head
    temperature: Tensor | None


class LANTMCell(MemoryCell):
    """Lie-access neural Turing machine.

    Lie-access neural Turing machine (Yang, "Lie Access Neural Turing Machine", 2016).

    The memory is a list of vectors m_i with strengths s_i, each at a key a_i, a point of a plane. A write appends one.

        h_t = controller([x_t; ρ_{t−1}])
        v_t = (1 − γ) v_{t−1} + γ ṽ                   step of a head: an element of a Lie group
        k_t = v_t · ((1 − g) k_{t−1} + g k̃)           key of a head; · is the action of the group
        append (k_t of the write head, tanh(m̃), σ(s̃))
        ρ_t = Σ w_i m_i / Σ w_i                       w_i by the distance of a_i from the key of the read head
        output = h_t

    Both heads have their own k̃ and ṽ, two numbers each, and gates g and γ. They, m̃ (W numbers) and s̃ are linear in h_t,
    the gates after a sigmoid. The read includes the vector of the same step, unless `read_first`. An empty memory reads
    zero. Where a write
    mask is False, nothing is appended and the write head does not move.

    Weights of the read vector, d_i the distance of a_i from the key of the read head (see `gyral.ops.lie_access.read`):

        inv_norm    w_i = s_i / (d_i² + 1e-9)
        softmax     w_i = s_i exp(−d_i² / T)          T = softplus(T̃) + 1e-4, T̃ linear in h_t

    The paper does not list the exact outputs of its heads; its counts of parameters differ from those of this cell. Nor
    does it say whether a step reads before it appends. The authors' later code reads first, and by default sets
    v_t = ṽ: `read_first=True, interpolate_steps=False`.

    Parameters: the parameters of `controller`; `head_weight` (K, N) and `head_bias` (K,) with K = 13 + W outputs,
    one more with "softmax" and two less without `interpolate_steps`, both uniform in ±1/√N except `write_gate_bias`;
    the initial keys and steps of both heads `initial_keys` and `initial_steps` (2, 2), first of the write head, from
    N(0, 1); `initial_vectors`, the initial vectors of the state of the controller, zero. The fused path supports an
    `LSTMCell` without layer normalization, zoneout and dropout as controller, and all groups except "hyperbolic".

    Args:
        weighting: "inv_norm" or "softmax".
        group: "translation", "rotation", "scaling_rotation" or "hyperbolic"; see `gyral.ops.lie_access.groups`.
        normalize_steps: Whether ṽ is divided by its norm. The initial steps are not.
        interpolate_steps: Whether a step of a head is between the previous one and ṽ; otherwise v_t = ṽ, without γ.
        read_first: Whether a step reads before it appends its vector.
        write_gate_bias: Initial bias of g and γ of the write head. With −10 the head writes on a straight line.
        capacity: Largest number of vectors in the memory. None: the most that the task writes, or 100 for endless
            streams.
        forget: How many of the oldest vectors a full memory drops before a write; 0: such a write is an error. None:
            60 % of the capacity, rounded.

    Example:
        >>> import torch
        >>> from gyral import LANTM, MaskedInputs
        >>> write = torch.arange(50).unsqueeze(1).expand(50, 8) < 20  # the first 20 steps
        >>> layer = LANTM(16, 64, width=8, capacity=50)
        >>> outputs, state = layer(MaskedInputs(torch.randn(50, 8, 16), write))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    vector_parameters = ("initial_keys", "initial_steps")

    class State(NamedTuple):
        """State of the controller, and the memory. C is the capacity.

        Attributes:
            controller: State of the controller.
            read_vector: ρ (B, W).
            read_key, read_step, write_key, write_step: (B, 2).
            keys: (B, C, 2), of the vectors.
            vectors: (B, C, W), zero beyond `count`.
            strengths: (B, C), zero beyond `count`.
            count: (B,) int64, number of vectors.
        """

        controller: Any
        read_vector: Tensor
        read_key: Tensor
        read_step: Tensor
        write_key: Tensor
        write_step: Tensor
        keys: Tensor
        vectors: Tensor
        strengths: Tensor
        count: Tensor  # type: ignore[assignment]  # not the method of tuples

    weighting: Annotated[str, OneOf(WEIGHTINGS)] = "inv_norm"
    group: Annotated[str, OneOf(GROUPS)] = "translation"
    normalize_steps: bool = True
    interpolate_steps: bool = True
    read_first: bool = False
    write_gate_bias: FiniteFloat = -10.0
    capacity: PositiveInt = derived(default=None)
    forget: int = derived(default=None)

    def check(self) -> None:
        super().check()
        if self.forget is not None:
            check_integer("forget", self.forget, minimum=0, maximum=self.capacity or DEFAULT_CAPACITY)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.lie_group = GROUPS[self.group](self.normalize_steps)
        self.has_own_capacity, self.has_own_forget = self.capacity is not None, self.forget is not None
        self.capacity = self.capacity or DEFAULT_CAPACITY
        self.forget = self.forget if self.has_own_forget else round(FORGOTTEN * self.capacity)
        self.output_size = self.controller.output_size
        gates = int(self.interpolate_steps)
        self.sizes = [2, 1, 2, gates, 1, self.width, 2, 1, 2, gates, int(self.weighting == "softmax")]
        self.head_weight = nn.Parameter(torch.empty(sum(self.sizes), self.output_size))
        self.head_bias = nn.Parameter(torch.empty(sum(self.sizes)))
        self.initial_keys = nn.Parameter(torch.empty(2, 2))
        self.initial_steps = nn.Parameter(torch.empty(2, 2))
        leaves, _ = tree_flatten(self.controller.init_state(1))
        self.initial_vectors = nn.ParameterList(torch.empty(leaf.shape[1]) for leaf in leaves if _is_vector(leaf))
        self._initialize()

    def reset_parameters(self) -> None:
        self.controller.reset_parameters()
        self._initialize()

    @torch.no_grad()
    def _initialize(self) -> None:
        for parameter in (self.head_weight, self.head_bias):
            uniform_(parameter, self.output_size**-0.5)
        write = self.split(self.head_bias).write
        for gate in (write.key_gate, write.step_gate):
            gate.fill_(self.write_gate_bias)
        for parameter in (self.initial_keys, self.initial_steps):
            nn.init.normal_(parameter)
        for parameter in self.initial_vectors:
            nn.init.zeros_(parameter)

    def reserve(self, writes: int) -> None:
        """Set the capacity to the largest number of writes of a sequence, unless the option `capacity` is set.

        Raises:
            OptionError: The memory has a fixed capacity, which is smaller.
        """
        if not self.has_own_capacity:
            self.capacity = writes
            self.forget = min(self.forget, writes) if self.has_own_forget else 0
        elif self.capacity < writes and not self.has_own_forget:
            reason = f"must be at least {writes}, the vectors that the task writes; or set forget"
            raise OptionError("capacity", self.capacity, reason)

    def init_state(self, batch_size: int) -> State:
        leaves, structure = tree_flatten(self.controller.init_state(batch_size))
        learned = iter(self.initial_vectors)
        controller = [next(learned).expand_as(leaf) if _is_vector(leaf) else leaf for leaf in leaves]
        write_key, read_key = self.lie_group.point(self.initial_keys)
        write_step, read_step = self.lie_group.initial_element(self.initial_steps)
        capacity, width = self.capacity, self.width
        read_key, read_step, write_key, write_step = (
            vector.expand(batch_size, 2) for vector in (read_key, read_step, write_key, write_step)
        )
        return self.State(
            tree_unflatten(controller, structure),
            self.zeros(batch_size, width),
            read_key,
            read_step,
            write_key,
            write_step,
            self.zeros(batch_size, capacity, 2),
            self.zeros(batch_size, capacity, width),
            self.zeros(batch_size, capacity),
            torch.zeros(batch_size, dtype=torch.int64, device=self.head_weight.device),
        )

    def split(self, outputs: Tensor) -> Heads:
        """Return the parts of the outputs (…, K) of the heads, before any activation."""
        parts = outputs.split(self.sizes, dim=-1)
        write, (strength, vector), read = Head(*parts[:4]), parts[4:6], Head(*parts[6:10])
        return Heads(write, strength, vector, read, parts[10] if self.sizes[10] else None)

    def output(self, hidden: Tensor, state: State) -> Tensor:
        return hidden

    def use_memory(self, hidden: Tensor, controller: Any, state: State, write: Tensor | None) -> State:
        heads = self.split(F.linear(hidden, self.head_weight, self.head_bias))
        state = self.make_room(state, write)
        write_key, write_step = self.move(heads.write, state.write_key, state.write_step)
        index, first = torch.arange(self.capacity, device=hidden.device), state.count.unsqueeze(-1)
        slot, vacant = index == first, index > first
        count = state.count + 1
        if write is not None:
            allowed = write.unsqueeze(-1)
            write_key = torch.where(allowed, write_key, state.write_key)
            write_step = torch.where(allowed, write_step, state.write_step)
            slot, vacant = slot & allowed, vacant | ~allowed & (index == first)
            count = torch.where(write, count, state.count)
        # what a passed state has beyond its count is not part of the memory, and gets no gradient
        keys, vectors, strengths = state.keys, state.vectors, state.strengths.masked_fill(vacant, 0.0)
        keys, vectors = (leaf.masked_fill(vacant.unsqueeze(-1), 0.0) for leaf in (keys, vectors))
        keys = torch.where(slot.unsqueeze(-1), write_key.unsqueeze(1), keys)
        vectors = torch.where(slot.unsqueeze(-1), heads.vector.tanh().unsqueeze(1), vectors)
        strengths = torch.where(slot, heads.strength.sigmoid(), strengths)
        read_key, read_step = self.move(heads.read, state.read_key, state.read_step)
        if self.read_first:
            memory = state._replace(strengths=state.strengths.masked_fill(~self.filled(state.count), 0.0))
        else:
            memory = state._replace(keys=keys, vectors=vectors, strengths=strengths, count=count)
        weights = self.weigh(read_key, memory.keys, memory.strengths, memory.count, heads.temperature)
        read = torch.bmm(weights.unsqueeze(1), memory.vectors).squeeze(1)
        moved = read_key, read_step, write_key, write_step
        return self.State(controller, read, *moved, keys, vectors, strengths, count)

    def move(self, head: Head, key: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        """Return the new key and the new step (B, 2) of a head."""
        gate = head.step_gate.sigmoid() if self.interpolate_steps else torch.ones_like(head.key_gate)
        step = self.lie_group.interpolate(step, self.lie_group.element(head.step), gate)
        return self.lie_group.act(step, torch.lerp(key, self.lie_group.point(head.key), head.key_gate.sigmoid())), step

    def make_room(self, state: State, write: Tensor | None) -> State:
        """Drop the oldest vectors of the rows that are full and are about to be written.

        Raises:
            UserError: There are such rows, and `forget` is 0.
        """
        full = state.count >= self.capacity
        if write is not None:
            full = full & write
        if not is_traced():
            if not bool(full.any()):
                return state
            if self.forget == 0:
                raise lie_access.memory_full_error(self.capacity)
        index = torch.arange(self.capacity, device=full.device)
        kept = self.capacity - self.forget
        source = torch.where(full.unsqueeze(-1), (index + self.forget) % self.capacity, index)
        dropped = full.unsqueeze(-1) & (index >= kept)
        strengths = state.strengths.gather(1, source).masked_fill(dropped, 0.0)
        if self.forget == 0:  # within a compiler, which cannot raise an error
            strengths = strengths.masked_fill(full.unsqueeze(-1), torch.nan)
        source, dropped = source.unsqueeze(-1), dropped.unsqueeze(-1)
        return state._replace(
            keys=state.keys.gather(1, source.expand_as(state.keys)).masked_fill(dropped, 0.0),
            vectors=state.vectors.gather(1, source.expand_as(state.vectors)).masked_fill(dropped, 0.0),
            strengths=strengths,
            count=torch.where(full, kept, state.count),
        )

    def weigh(self, key: Tensor, keys: Tensor, strengths: Tensor, count: Tensor, temperature: Tensor | None) -> Tensor:
        """Return the weights (B, C) of the vectors in a read vector; their sum is 1, or 0 for an empty memory.

        Args:
            key: (B, 2), of the read head.
            keys, strengths, count: See `State`.
            temperature: T̃ (B, 1), or None with "inv_norm".
        """
        distances = self.lie_group.squared_distance(key.unsqueeze(1), keys)
        if temperature is None:
            return read.normalize_weights(read.inverse_norm_weights(distances, strengths))
        temperature = F.softplus(temperature) + read.MIN_TEMPERATURE
        return read.normalize_weights(read.softmax_weights(distances, strengths, temperature, self.filled(count)))

    def filled(self, count: Tensor) -> Tensor:
        """Return which slots (B, C) hold a vector."""
        return torch.arange(self.capacity, device=count.device) < count.unsqueeze(-1)

    # ---------------------------------------------------------------- the fused path

    def fused_unsupported_reason(self, *, starts: bool = False) -> str | None:
        controller = self.controller
        if type(controller) is not LSTMCell:
            return f"controller: only an LSTMCell has a fused path within LANTMCell, not {type(controller).__name__}"
        for option in BEYOND_KERNELS:
            if getattr(controller, option):
                return f"controller: {option} has no fused path within LANTMCell"
        return lie_access.unsupported_reason(self.head_weight, self.group)

    def fused(
        self, inputs: Tensor | MaskedInputs, state: State, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, State]:
        assert isinstance(self.controller, LSTMCell)
        vectors, write = self.project(inputs)
        weights = lie_access.Weights(*self.controller.summed_kernel_weights(), *self._kernel_heads())
        softmax = self.weighting == "softmax"
        options = lie_access.Options(self.group, self.lie_group.normalizes, softmax, self.forget, self.read_first)
        fresh = None if starts is None else _flatten(self.init_state(1))
        outputs, (hidden, cell, *rest) = lie_access.lie_access(
            vectors, weights, _flatten(state), options, write=write, lengths=lengths, starts=starts, fresh=fresh
        )
        return outputs, self.State(type(state.controller)(hidden, cell), *rest)

    def _kernel_heads(self) -> tuple[Tensor, Tensor]:
        """Return weights and bias of the heads with all gates; those that are left out are open."""
        if self.interpolate_steps:
            return self.head_weight, self.head_bias
        weight, bias = self.head_weight.split(self.sizes), self.head_bias.split(self.sizes)
        gate, opened = self.head_weight.new_zeros(1, self.output_size), self.head_bias.new_full((1,), OPEN)
        return (
            torch.cat((*weight[:3], gate, *weight[4:9], gate, *weight[10:])),
            torch.cat((*bias[:3], opened, *bias[4:9], opened, *bias[10:])),
        )

    # ---------------------------------------------------------------- for figures

    def gates(self, outputs: Tensor) -> dict[str, Tensor]:
        heads = self.split(F.linear(outputs, self.head_weight, self.head_bias))
        values = {
            "write key": heads.write.key_gate,
            "write step": heads.write.step_gate,
            "strength": heads.strength,
            "read key": heads.read.key_gate,
            "read step": heads.read.step_gate,
        }
        return {name: value.sigmoid().squeeze(-1) for name, value in values.items() if value.shape[-1]}

    def weightings(self, outputs: Tensor, state: State, write: Tensor | None = None) -> dict[str, Tensor]:
        """Return the weights (B, C) of the vectors of a state in its read vector.

        Args:
            outputs: The output of the step.
            state: The state after it.
            write: (B,) bool or None, whether the step was allowed to write.
        """
        temperature = self.split(F.linear(outputs, self.head_weight, self.head_bias)).temperature
        count = state.count
        if self.read_first:  # it read before it appended the last vector
            count = count - (1 if write is None else write.long())
        strengths = state.strengths.masked_fill(~self.filled(count), 0.0)
        return {"read": self.weigh(state.read_key, state.keys, strengths, count, temperature)}

    def locations(self, state: State) -> Locations:
        last = (state.count - 1).clamp(min=0).unsqueeze(-1)
        return Locations(state.read_key, state.write_key, state.strengths.gather(1, last).squeeze(-1), state.count)


def _flatten(state: LANTMCell.State) -> lie_access.MemoryState:
    leaves: Any = (*state.controller, *state[1:])
    return lie_access.MemoryState(*leaves)


def _is_vector(leaf: Tensor) -> bool:
    """Return whether a leaf of a state is a vector (B, N) of real numbers."""
    return leaf.dim() == 2 and leaf.is_floating_point()
