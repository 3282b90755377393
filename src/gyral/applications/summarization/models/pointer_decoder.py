"""The decoder of a pointer-generator network: a cell that attends to the article, and its initial state."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_leaves, tree_map_with_path

from gyral.cells.base import RecurrentCell, State
from gyral.cells.contract import make_cell
from gyral.ops.scan import Shared

INITIAL_DEVIATION = 1e-4  # standard deviation of the weights that See et al. draw from a normal distribution


class Memory(NamedTuple):
    """The memory that a decoder attends to: B articles of S words.

    Attributes:
        states: (B, S, E) outputs h_i of the encoder.
        features: (B, S, A) the term W_h h_i of the attention scores.
        mask: (B, S) True at words, False at padding.
    """

    states: Tensor
    features: Tensor
    mask: Tensor


class DecoderState(NamedTuple):
    """State of a decoder with R rows.

    Attributes:
        cell: state of the cell.
        context: (R, E) last context vector.
        coverage: (R, S) sum of the attention of all steps so far, also if coverage is off.
    """

    cell: State
    context: Tensor
    coverage: Tensor


class AdditiveAttention(nn.Module):
    """Attention over an article's words (Bahdanau et al. 2015; See et al. 2017, eqs 1, 2 and 11).

    e_i = vᵀ tanh(W_h h_i + W_s s [+ w_c c_i] + b),   a = softmax(e)

    Initialization: `PointerGenerator` draws the matrices; w_c is zero unless it draws it, so that attention with
    coverage initially equals attention without it. If weights were saved without coverage, loading them into a module
    with coverage keeps its w_c.

    Args:
        memory_size: E, size of h_i.
        query_size: size of s.
        coverage: whether the term w_c c_i is used.

    Attributes:
        size: A, size of b; equal to E, as in the authors' code.
    """

    def __init__(self, memory_size: int, query_size: int, coverage: bool) -> None:
        super().__init__()
        self.size = memory_size
        self.memory = nn.Linear(memory_size, self.size, bias=False)
        self.query = nn.Linear(query_size, self.size)
        self.score = nn.Linear(self.size, 1, bias=False)
        self.coverage = nn.Parameter(torch.zeros(self.size)) if coverage else None
        self.register_load_state_dict_pre_hook(_keep_coverage)

    def scores(self, memory: Memory, query: Tensor, coverage: Tensor) -> Tensor:
        """Return e (R, S), −∞ at padding.

        Args:
            memory: memory of B articles.
            query: s (R, query_size): R / B consecutive rows per article.
            coverage: c (R, S).
        """
        articles = len(memory.mask)
        energies = memory.features.unsqueeze(1) + self.query(query).view(articles, -1, 1, self.size)
        if self.coverage is not None:
            energies.addcmul_(coverage.view(*energies.shape[:3], 1), self.coverage)
        # In place, so that only the tanh is saved for backward: these are the largest tensors of the network.
        scores = self.score(energies.tanh_()).squeeze(-1)
        return scores.masked_fill(~memory.mask.unsqueeze(1), -math.inf).flatten(0, 1)


def _keep_coverage(module: nn.Module, saved: dict[str, Any], prefix: str, *_: Any) -> None:
    """Add the coverage weights to a state dict that was saved without coverage."""
    assert isinstance(module, AdditiveAttention)
    if module.coverage is not None:
        saved.setdefault(prefix + "coverage", module.coverage.detach())


class Decoder(nn.Module):
    """A cell that attends to an article and reads the last context vector at each step.

    x_t = W [y_t; h*_{t−1}] + b,   (o_t, state_t) = cell(x_t, state_{t−1}),   h*_t = Σ_i a_{t,i} h_i

    Here y_t is the embedding of the last word and h* the context vector, zero before the first step. The query s_t of
    the attention is the concatenation of all vectors of the cell's state; for an LSTM [hidden; cell], as in the
    authors' code. If the state has none, such as that of a cell whose memory is a matrix, s_t is o_t.

    Args:
        cell: makes the cell from the size of x, which equals the size of y.
        input_size: X, size of y.
        memory_size: E, size of h_i.
        coverage: whether the attention depends on the sum of the earlier attention.

    Attributes:
        widths: sizes of o, h*, s and x, the vectors in the output of a step.
    """

    def __init__(self, cell: Callable[[int], RecurrentCell], input_size: int, memory_size: int, coverage: bool) -> None:
        super().__init__()
        self.merge_input = nn.Linear(input_size, input_size)
        self.merge_context = nn.Linear(memory_size, input_size, bias=False)
        self.cell = make_cell(cell, input_size)
        found = vectors(self.cell.init_state(1))
        query_size = sum(vector.shape[1] for vector in found.values()) or self.cell.output_size
        self.attention = AdditiveAttention(memory_size, query_size, coverage)
        self.widths = (self.cell.output_size, memory_size, query_size, input_size)

    def begin(self, memory: Memory, state: State) -> DecoderState:
        """Return the initial state of the decoder from the initial state of the cell."""
        context = memory.states.new_zeros(len(memory.states), memory.states.shape[2])
        return DecoderState(state, context, context.new_zeros(memory.mask.shape))

    def scan_step(self, step_inputs: tuple[Shared, Tensor, Any], state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Run one step; `gyral.ops.scan.scan` calls this method.

        Args:
            step_inputs: the memory; W_y y + b (R, X), the term of x that depends on the embedding; the sequence
                constants of the cell.
            state: state before the step.

        Returns:
            (R, sum of `widths` + 1 + S), the concatenation of o, h*, s, x, the coverage loss and the scores e; the new
            state.
        """
        shared, embedded, constants = step_inputs
        memory: Memory = shared.value
        inputs = embedded + self.merge_context(state.context)
        output, cell = self.cell.scan_step((self.cell.project(inputs), constants), state.cell)
        found = [leaf for leaf in tree_leaves(cell) if leaf.dim() == 2]
        query = torch.cat(found, dim=-1) if found else output
        scores = self.attention.scores(memory, query, state.coverage)
        attention = scores.softmax(dim=-1)
        context = (attention.view(len(memory.mask), -1, attention.shape[1]) @ memory.states).flatten(0, 1)
        loss = repetition(attention, state.coverage).unsqueeze(1)
        new = DecoderState(cell, context, state.coverage + attention)
        return torch.cat([output, context, query, inputs, loss, scores], dim=-1), new

    def split(self, steps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split outputs of `scan_step`, (…, sum of `widths` + 1 + S), into vectors, coverage loss and scores."""
        width = sum(self.widths)
        return steps[..., :width], steps[..., width], steps[..., width + 1 :]


class Bridge(nn.Module):
    """Computes the initial state of a decoder from the last states of both directions of an encoder, for any cells.

    A vector of the decoder's state is the initial value of its cell, which is zero for most cells, plus

        ReLU(W [forward; backward] + b)

    of the vectors of the same name in the last states of the encoder. Between two LSTMs, hidden vectors come from
    hidden vectors and memory vectors from memory vectors (See et al. 2017). If the encoder has no vector of that name,
    the first vector, which is the hidden vector, is computed from the last outputs of both directions, and other
    vectors keep their initial value. Matrices also keep their initial value, because a changed rotation is not a
    rotation.

    With `complete`, every vector of both cells is used, as in the code of Dangovski et al. (TACL 2019;
    rdangovs/rotational-unit-of-memory on GitHub, tasks/summarization/model.py). Vectors that the encoder does not have,
    such as the memory vector of an LSTM after a RUM, are computed from its last outputs. Vectors that the decoder does
    not have, such as the memory vector of an LSTM before a RUM, contribute to its hidden vector, which is its initial
    value plus

        ReLU(W' [v_0; v_1; …] + b'),   v = ReLU(W [forward; backward] + b)

    where v_0 is the value without `complete`, and v_1, … come from the vectors that the decoder does not have.

    A decoder whose state has no vector starts from its initial state, and knows the encoder by its attention alone.

    Initialization: W and b truncated normal with standard deviation 10⁻⁴.

    Args:
        encoder, decoder: the cells.
        complete: whether every vector of both cells is used.
    """

    def __init__(self, encoder: RecurrentCell, decoder: RecurrentCell, complete: bool = False) -> None:
        super().__init__()
        sources, wanted = vectors(encoder.init_state(1)), vectors(decoder.init_state(1))
        self.layers = nn.ModuleDict()
        self.sources: dict[str, str | None] = {}  # vector → its name in the encoder's state; None: from the outputs
        for place, (name, vector) in enumerate(wanted.items()):
            if name in sources or place == 0 or complete:
                self.sources[name] = name if name in sources else None
                width = sources[name].shape[1] if name in sources else encoder.output_size
                self.layers[_key(name)] = nn.Linear(2 * width, vector.shape[1])
        self.first, size = next(((name, vector.shape[1]) for name, vector in wanted.items()), ("", 0))
        self.merged = {name: v.shape[1] for name, v in sources.items() if complete and wanted and name not in wanted}
        self.merge: nn.Linear | None = None
        if self.merged:
            for name, width in self.merged.items():
                self.layers[f"merged_{_key(name)}"] = nn.Linear(2 * width, size)
            self.merge = nn.Linear((1 + len(self.merged)) * size, size)
        for parameter in self.parameters():
            draw_normal_(parameter)

    def forward(self, ends: Tensor, last: tuple[State, State], first: State) -> State:
        """Return the initial state of the decoder.

        Args:
            ends: (B, 2 · output size of the encoder's cell) last outputs of both directions.
            last: last states of both directions.
            first: initial state of the decoder's cell.
        """
        forward, backward = map(vectors, last)

        def compute(layer: str, source: str | None) -> Tensor:
            ended = ends if source is None else torch.cat([forward[source], backward[source]], dim=-1)
            return torch.relu(self.layers[layer](ended))

        def start(path: Any, leaf: Tensor) -> Tensor:
            name = keystr(path)
            if name not in self.sources:
                return leaf
            value = compute(_key(name), self.sources[name])
            if self.merge is not None and name == self.first:
                parts = [value, *(compute(f"merged_{_key(other)}", other) for other in self.merged)]
                value = torch.relu(self.merge(torch.cat(parts, dim=-1)))
            return leaf + value.to(leaf.dtype)

        return tree_map_with_path(start, first)


def repetition(attention: Tensor, coverage: Tensor) -> Tensor:
    """Return the coverage loss Σ_i min(a_i, c_i) (See et al. 2017, eq. 12).

    Args:
        attention: a (…, S) at one step.
        coverage: c (…, S), the sum of the attention at all earlier steps.
    """
    return torch.minimum(attention, coverage).sum(dim=-1)


def vectors(state: State) -> dict[str, Tensor]:
    """Return the leaves (B, N) of a state by name; the hidden vector is the first."""
    return {keystr(path): leaf for path, leaf in tree_flatten_with_path(state)[0] if leaf.dim() == 2}


def _key(name: str) -> str:
    """Return the name of a leaf of a state as a valid module name."""
    return name.removeprefix(".").replace(".", "_")


def draw_normal_(weight: Tensor) -> Tensor:
    """Draw a weight from a normal distribution that is truncated at two standard deviations."""
    bound = 2 * INITIAL_DEVIATION
    return nn.init.trunc_normal_(weight, std=INITIAL_DEVIATION, a=-bound, b=bound)
