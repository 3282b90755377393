"""GRU that reads earlier states along typed edges (MAGE-GRU)."""

from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gyral.cells.graph import GraphCell
from gyral.cells.initialization import uniform_
from gyral.cells.inputs import LinkedInputs
from gyral.core.errors import OptionError
from gyral.core.options import OneOf
from gyral.ops import graph_gru

CARRIES = ("previous", "linked")


class MAGEGRUCell(GraphCell):
    """GRU that reads earlier states along typed edges.

    MAGE-GRU (Dhingra, Yang, Cohen and Salakhutdinov 2017, arXiv:1703.02620, equations 1 to 4).

    Each type of edges e = 0 … E has hidden units h^e of its own; type 0 is the edge from the previous step. The vector
    g_t has for each type the units h^e of the step from which the edge of this type comes, their sum over several such
    edges, and 0 without one. Then

        r = σ(W_r x_t + U_r g_t + b_r)                      reset gate
        z = σ(W_z x_t + U_z g_t + b_z)                      update gate
        n = tanh(W_n x_t + b_n + r ⊙ (U_n g_t))             candidate
        h_t = (1 − z) ⊙ n + z ⊙ c_t                         c_t = h_{t−1} or g_t, see `carry`

    The update gate is that of `torch.nn.GRU`, 1 minus the one of the paper. U has a block for each pair of types. With
    `edge_size=None`, all types share the N units ("shared" in the paper): g_t has size (E + 1) · N, the whole hidden
    vector for each type, and U a block for each type. Without edges, and with `edge_size=None` or `carry="previous"` as
    well as units of type 0 alone, the cell is a GRU.

    With `edge_attention`, the cell weighs the types before it reads them, which the paper suggests as future work: the
    part of g_t of each type e is multiplied by (E + 1) a_e, with

        a_t = softmax(W_a x_t + U_a g_t + b_a)              (E + 1,), 1 / (E + 1) each for weights of zero

    so that a type is ignored where its edges do not help. The equations are ours.

    It differs from the authors' code of a later paper (bdhingra/coref-gru on GitHub) in this: there, each of a fixed
    number of coreference chains has a slot of memory, a step reads the slot of its chain, the slots of the last step of
    the document start the question, and a later variant weighs the incoming edges of a step by a softmax, with types of
    equal size. Here the edges of a step are those of the sequence of document and question, and several edges of one
    type are summed with equal weights.

    Parameters: `weight_ih` (3N, X), `weight_hh` (3N, G), G = N or (E + 1) · N, and `bias` (3N,); rows in the order
    r, z, n; with `edge_attention` also `attention_ih` (E + 1, X), `attention_hh` (E + 1, G) and `attention_bias`
    (E + 1,). Weights of each gate and of the attention are Xavier-uniform, in ±√(6 / (rows + columns)), and biases are
    zero. In that code, weights are normal with this bound as standard deviation, √3 times as large; with them a
    gated-attention reader of bAbI task 2 needs twice as many updates before it learns.

    Args:
        hidden_size: N ≥ 1, the units of all types together.
        edge_size: The units of each type 1 … E; None: all types share the N units.
        carry: c_t. "previous": h_{t−1}, as in the paper's equations. "linked": g_t, as in its text and in that code;
            not with `edge_size=None`.
        edge_attention: Whether the types are weighed. There is no kernel for it; a loop in PyTorch runs it.

    Example:
        >>> import torch
        >>> from gyral import MAGEGRU, LinkedInputs
        >>> edges = torch.zeros(50, 8, 2, 1, dtype=torch.int64)
        >>> edges[12, 0, 1, 0] = 5  # row 0, type 2: from step 7 to step 12
        >>> layer = MAGEGRU(16, 64, edge_types=2, edge_size=16)
        >>> outputs, state = layer(LinkedInputs(torch.randn(50, 8, 16), edges))
        >>> outputs.shape
        torch.Size([50, 8, 64])
    """

    class State(NamedTuple):
        """h_{t−1} (B, N); the C hidden vectors before it (B, C, N), the latest last; the number (B,) of steps."""

        hidden: Tensor
        memory: Tensor
        count: Tensor  # type: ignore[assignment]  # not the method of tuples

    carry: Annotated[str, OneOf(CARRIES)] = "previous"
    edge_attention: bool = False

    def check(self) -> None:
        super().check()
        if self.edge_size is None and self.carry == "linked":
            raise OptionError("carry", self.carry, "must be previous with edge_size=null, where types share the units")

    def __post_init__(self) -> None:
        super().__post_init__()
        size, types = self.hidden_size, self.edge_types
        width = size if self.edge_size is not None else (types + 1) * size
        self.weight_ih = nn.Parameter(torch.empty(3 * size, self.input_size))
        self.weight_hh = nn.Parameter(torch.empty(3 * size, width))
        self.bias = nn.Parameter(torch.empty(3 * size))
        if self.edge_attention:
            self.attention_ih = nn.Parameter(torch.empty(types + 1, self.input_size))
            self.attention_hh = nn.Parameter(torch.empty(types + 1, width))
            self.attention_bias = nn.Parameter(torch.empty(types + 1))
            own = size if self.edge_size is None else self.edge_size
            self._widths = [width - types * own, *[own] * types]  # of the parts of g_t
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        for weight in (self.weight_ih, self.weight_hh):
            uniform_(weight, (6 / (self.hidden_size + weight.shape[1])) ** 0.5)
        nn.init.zeros_(self.bias)
        if self.edge_attention:
            nn.init.xavier_uniform_(self.attention_ih)
            nn.init.xavier_uniform_(self.attention_hh)
            nn.init.zeros_(self.attention_bias)

    def init_state(self, batch_size: int) -> State:
        return self.State(self.zeros(batch_size, self.hidden_size), *self.empty_memory(batch_size))

    def project(self, inputs: Tensor | LinkedInputs) -> LinkedInputs:
        vectors, edges = self.split(inputs)
        if not self.edge_attention:
            return LinkedInputs(F.linear(vectors, self.weight_ih, self.bias), edges)
        weight = torch.cat((self.weight_ih, self.attention_ih))
        return LinkedInputs(F.linear(vectors, weight, torch.cat((self.bias, self.attention_bias))), edges)

    def last_hidden(self, state: State) -> Tensor:
        return state.hidden

    def step_along(
        self, projected: Tensor, hidden: Tensor, linked: Tensor, state: State, constants: Any
    ) -> tuple[Tensor, State]:
        if self.edge_size is None:
            gathered = torch.cat((hidden, linked.flatten(1)), dim=1)
        else:
            gathered = self.own_units(hidden, linked)
        if self.edge_attention:
            projected, scores = projected.tensor_split([3 * self.hidden_size], dim=-1)
            gathered = self._weigh(gathered, scores)
        size = 2 * self.hidden_size
        input_gates, input_candidate = projected.split((size, self.hidden_size), dim=-1)
        hidden_gates, hidden_candidate = F.linear(gathered, self.weight_hh).split((size, self.hidden_size), dim=-1)
        reset, update = torch.sigmoid(input_gates + hidden_gates).chunk(2, dim=-1)
        candidate = torch.tanh(input_candidate + reset * hidden_candidate)
        carried = gathered if self.carry == "linked" else hidden
        new = candidate + update * (carried - candidate)
        return new, state._replace(hidden=new)

    def _weigh(self, gathered: Tensor, scores: Tensor) -> Tensor:
        """Return g_t (B, G) with its types weighed, from the part (B, E + 1) of their scores that the inputs give."""
        weights = (scores + F.linear(gathered, self.attention_hh)).softmax(dim=-1) * (self.edge_types + 1)
        parts = gathered.split(self._widths, dim=1)
        return torch.cat([part * weight for part, weight in zip(parts, weights.split(1, dim=1), strict=True)], dim=1)

    # ---------------------------------------------------------------- the fused path

    def fused_unsupported_reason(self, *, starts: bool = False) -> str | None:
        if self.edge_attention:
            return super().fused_unsupported_reason(starts=starts)
        return graph_gru.unsupported_reason(self.weight_hh)

    def fused(
        self, inputs: Tensor | LinkedInputs, state: State, lengths: Tensor | None, starts: Tensor | None
    ) -> tuple[Tensor, State]:
        if self.edge_attention:  # the loop of the base class, which has no copies of the memory
            return super().fused(inputs, state, lengths, starts)
        vectors, edges = self.split(inputs)
        before = self.steps_before(vectors.shape[0], state.count, starts)
        if edges is not None:
            self.check_reach(edges, self.out_of_reach(edges, before))
        outputs, past = graph_gru.graph_gru(
            vectors,
            self.weight_ih,
            self.weight_hh,
            self.bias,
            self.past(state),
            edges,
            edge_types=self.edge_types,
            edge_size=self.edge_size,
            carry=self.carry,
            capacity=state.memory.shape[1] + 1,
            lengths=lengths,
            starts=starts,
        )
        last = before[-1] if lengths is None else before.gather(0, (lengths - 1).unsqueeze(0)).squeeze(0)
        return outputs, self.State(past[:, -1], past[:, :-1], last + 1)
