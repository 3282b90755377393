"""Models that answer questions about documents by attention from the question to the document."""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves, tree_map

from gyral.applications.reading.data.questions import ReadingBatch
from gyral.applications.reading.models.readouts import AttentionSum
from gyral.cells.base import RecurrentCell
from gyral.cells.inputs import LinkedInputs
from gyral.core.checks import check_boolean, check_choice, check_integer, check_real
from gyral.core.edges import Edges
from gyral.core.errors import OptionError
from gyral.models.attention import ReadoutFactory
from gyral.nn.dropout import SequenceDropout
from gyral.nn.recurrent import Recurrent

INDICATOR_SIZE = 2  # size of the embedding that indicates words of the document that are in the question


class ReaderOutput(NamedTuple):
    """Outputs of a reader for B documents with T steps, or fewer if separate networks read document and question.

    Attributes:
        states: (T, B, H) outputs of the last layer.
        query: (B, H) state of the question.
        scores: (T, B) products of the two, −∞ beyond the document; their softmax over T is the attention.
        mentions: (T, B) the candidate that each step mentions, from 1; 0: none.
    """

    states: Tensor
    query: Tensor
    scores: Tensor
    mentions: Tensor

    @property
    def attention(self) -> Tensor:
        """The attention (T, B) to the steps of the document; each column has sum 1."""
        return self.scores.softmax(dim=0)


class Reader(nn.Module):
    """Bidirectional networks over document and question, and attention from the question to the document.

    With one layer it is the attention-sum reader of Kadlec et al. (ACL 2016), or with a readout for classes the
    bidirectional classifier of Dhingra et al. (arXiv:1703.02620, section 4). With K > 1 layers it is the
    gated-attention reader of Dhingra et al. (ACL 2017, equations 1 to 5): between the layers, with the outputs d_t of a
    layer at the steps of the document and Q at the steps of the question,

        β_t = softmax(Qᵀ d_t),   x_t = d_t ⊙ Q β_t

    are the inputs of the next layer. After the last layer, with the state h^q of the question, the attention to the
    document is α = softmax over the steps t of h^q·d_t. The state of the question is the state at the
    placeholder of the answer or, without a placeholder, the last state of the forward direction and the first state of
    the backward direction. The readout of the task computes the answer.

    Args:
        cell: makes a cell from its input size.
        vocabulary_size: number of words.
        output_size: number of classes, or largest number of candidates of a question.
        readout: makes the readout: `AttentionSum` or `AttentionClassifier`.
        num_layers: K.
        joined: whether one network reads the document and then the question as one sequence, with edges between them.
            False: each layer has a network for each of them, and edges between them are left out.
        query_inputs: inputs of the layers after the first at the steps of the question: "outputs", the outputs of the
            layer below; "embeddings", again the words, which needs `joined=False`.
        embedding_size: size of the trained embedding of the words.
        embedding_deviation: standard deviation of the initial embedding, which is drawn from a normal distribution with
            mean 0. With the value of torch, 1, readers of bAbI with 1,000 questions learn later and overfit.
        dropout: dropout probability, in [0, 1), of the inputs of each layer.
        query_indicator: whether the inputs of the last layer have an embedding, of size 2, of whether the word is in
            the question (qe-comm of Dhingra et al. 2017; Li et al. 2016).
        chain_features: n; each word has a one-hot vector of the chain of mentions that it belongs to, among the first n
            chains of its document. 0: none.
        backend: see `gyral.nn.recurrent.Recurrent`.

    Attributes:
        layers: the networks that read the document; the last one has the outputs H.
        query_layers: the networks that read the question; empty if joined.

    Raises:
        OptionError: an argument is out of bounds, or `query_inputs` is not possible with `joined`.
    """

    small: ClassVar = {"num_layers": 1, "embedding_size": 16, "cell": {"hidden_size": 16}}

    def __init__(
        self,
        cell: Callable[[int], RecurrentCell],
        vocabulary_size: int,
        output_size: int,
        *,
        readout: ReadoutFactory,
        num_layers: int = 1,
        joined: bool = True,
        query_inputs: str = "outputs",
        embedding_size: int = 64,
        embedding_deviation: float = 0.1,
        dropout: float = 0.0,
        query_indicator: bool = False,
        chain_features: int = 0,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        check_integer("num_layers", num_layers)
        self.joined = check_boolean("joined", joined)
        self.query_inputs = check_choice("query_inputs", query_inputs, ("outputs", "embeddings"))
        if joined and num_layers > 1 and query_inputs == "embeddings":
            raise OptionError("query_inputs", query_inputs, "must be outputs with joined=true")
        self.vocabulary_size = check_integer("vocabulary_size", vocabulary_size)
        self.embedding = nn.Embedding(vocabulary_size, check_integer("embedding_size", embedding_size))
        nn.init.normal_(self.embedding.weight, std=check_real("embedding_deviation", embedding_deviation, above=0))
        self.chain_features = check_integer("chain_features", chain_features, minimum=0)
        self.dropout = SequenceDropout(dropout)
        self.indicator: nn.Embedding | None = None
        if check_boolean("query_indicator", query_indicator):
            self.indicator = nn.Embedding(2, INDICATOR_SIZE)

        self.layers, self.query_layers = nn.ModuleList(), nn.ModuleList()
        words = embedding_size + chain_features
        width = query_width = words
        for index in range(num_layers):
            further = INDICATOR_SIZE if self.indicator is not None and index == num_layers - 1 else 0
            layer = Recurrent(cell, width + further, bidirectional=True, backend=backend)
            self.layers.append(layer)
            if not joined:
                self.query_layers.append(Recurrent(cell, query_width, bidirectional=True, backend=backend))
            width = layer.output_size
            query_width = words if query_inputs == "embeddings" else width
        self.readout = readout(width, words, output_size)

    def forward(self, batch: ReadingBatch) -> Tensor:
        """Return the logits (B, C) of the candidates or classes."""
        output = self.read(batch)
        return self.readout(output.scores, output.states, output.mentions)

    def read(self, batch: ReadingBatch) -> ReaderOutput:
        """Return the inputs of the attention and the readout for a batch."""
        places = _Places(batch)
        words = self._words(batch)
        vectors, questions = words[: places.steps(self.joined)], places.question(words)
        edges = tree_map(lambda leaf: leaf.transpose(0, 1), batch.edges)
        edges, question_edges = (edges, None) if self.joined else places.split_edges(edges)
        lengths = batch.lengths if self.joined else batch.document_lengths
        query_inputs = questions
        for index, layer in enumerate(self.layers):
            if index > 0:
                vectors = _gate(vectors, questions, places)
            is_last = index == len(self.layers) - 1
            vectors = self._with_indicator(vectors, batch, places) if is_last else vectors
            vectors, _ = layer(LinkedInputs(self.dropout(vectors), edges), lengths=lengths)
            if self.joined:
                questions = places.question(vectors)
                continue
            inputs = query_inputs if self.query_inputs == "embeddings" else questions
            linked = LinkedInputs(self.dropout(inputs), question_edges)
            questions, _ = self.query_layers[index](linked, lengths=places.question_lengths)
        query = places.question_state(questions)
        scores = torch.einsum("bh,tbh->tb", query, vectors)
        scores = scores.masked_fill(~places.in_document[: len(vectors)], -torch.inf)
        return ReaderOutput(vectors, query, scores, batch.mentions.t()[: len(vectors)])

    def answers_after(self, batch: ReadingBatch, steps: list[int]) -> Tensor:
        """Return the answers (n, B, C), as log-probabilities, that follow from n steps of the documents.

        For classes, the state at the step takes the place of the weighted states (Figure 4 of Dhingra et al. 2017). For
        mentions, the attention is restricted to the steps up to this one.

        Args:
            batch: documents that all have at least these steps.
            steps: steps, from 0, such as the ends of sentences.
        """
        output = self.read(batch)
        time = torch.arange(len(output.states), device=output.states.device).unsqueeze(1)
        answers = []
        for step in steps:
            is_read = time <= step if isinstance(self.readout, AttentionSum) else time == step
            scores = output.scores.masked_fill(~is_read, -torch.inf)
            answers.append(self.readout(scores, output.states, output.mentions).log_softmax(dim=-1))
        return torch.stack(answers)

    def _words(self, batch: ReadingBatch) -> Tensor:
        """Return the vectors (T, B, X) of the words, with their chains."""
        vectors = self.embedding(batch.inputs.t())
        if not self.chain_features:
            return vectors
        chains = batch.chains.t()
        chains = torch.where(chains <= self.chain_features, chains, 0)
        one_hot = F.one_hot(chains, self.chain_features + 1)[..., 1:]
        return torch.cat((vectors, one_hot.to(vectors.dtype)), dim=-1)

    def _with_indicator(self, vectors: Tensor, batch: ReadingBatch, places: "_Places") -> Tensor:
        if self.indicator is None:
            return vectors
        words = batch.inputs.t()
        asked = places.question(words).masked_fill(~places.in_question, -1)
        is_asked = (words[: len(vectors), None] == asked).any(dim=1)
        return torch.cat((vectors, self.indicator(is_asked.long())), dim=-1)

    @torch.no_grad()
    def state_size(self) -> int:
        """Return the number of recurrent state values that are carried from step to step for one sequence."""
        networks = [*self.layers, *self.query_layers]
        return sum(leaf.numel() for network in networks for leaf in tree_leaves(network.init_state(1)))


class _Places:
    """Positions of the documents and the questions of a batch.

    Attributes:
        question_lengths: (B,) number of steps of each question.
        in_document: (T, B) whether a step belongs to the document.
        in_question: (Q, B) whether a step belongs to the question rather than to its padding.
    """

    def __init__(self, batch: ReadingBatch) -> None:
        self._document_lengths = batch.document_lengths
        self.question_lengths = batch.lengths - batch.document_lengths
        steps = torch.arange(batch.inputs.shape[1], device=batch.inputs.device).unsqueeze(1)
        question_steps = steps[: int(self.question_lengths.max())]
        self.in_document = steps < batch.document_lengths
        self.in_question = question_steps < self.question_lengths
        self._index = (batch.document_lengths + question_steps).clamp(max=len(steps) - 1)  # (Q, B)
        self._placeholders = batch.placeholders

    def steps(self, joined: bool) -> int:
        """Return the number of steps of the inputs of the layers, with or without the questions."""
        return len(self.in_document) if joined else int(self._document_lengths.max())

    def question(self, sequence: Tensor) -> Tensor:
        """Return the steps (Q, B, …) of the questions in a sequence (T, B, …); padding is undefined."""
        index = self._index if sequence.dim() == 2 else self._index.unsqueeze(-1).expand(-1, -1, sequence.shape[-1])
        return sequence.gather(0, index)

    def question_state(self, outputs: Tensor) -> Tensor:
        """Return the states (B, H) of the questions from outputs (Q, B, H) of both directions."""
        rows = torch.arange(outputs.shape[1], device=outputs.device)
        forward, backward = outputs.chunk(2, dim=-1)
        ends = torch.cat((forward[self.question_lengths - 1, rows], backward[0]), dim=-1)
        step = self._placeholders - self._document_lengths
        return torch.where((step >= 0).unsqueeze(-1), outputs[step.clamp(min=0), rows], ends)

    def split_edges(self, edges: Edges) -> tuple[Edges, Edges]:
        """Return the edges within the documents (T, B, E, D) and within the questions (Q, B, E, D)."""
        steps, question_steps = self.steps(joined=False), torch.arange(len(self.in_question), device=self._index.device)
        own = question_steps.view(-1, 1, 1, 1)
        earlier = self._question_edges(edges.earlier)
        later = edges.inverted()
        place = torch.arange(steps, device=later.device).view(-1, 1, 1, 1)
        within = place + later[:steps] < self._document_lengths.view(-1, 1, 1)
        is_document = self.in_document[:steps, :, None, None]
        document = Edges(
            edges.earlier[:steps].masked_fill(~is_document, 0), later[:steps].masked_fill(~(is_document & within), 0)
        )
        return document, Edges(earlier.masked_fill(earlier > own, 0), self._question_edges(later))

    def _question_edges(self, distances: Tensor) -> Tensor:
        index = self._index[..., None, None].expand(-1, -1, *distances.shape[2:])
        return distances.gather(0, index).masked_fill(~self.in_question[..., None, None], 0)


def _gate(documents: Tensor, questions: Tensor, places: _Places) -> Tensor:
    """Return the documents with their steps multiplied by the question as each step attends to it.

    Args:
        documents: (T, B, H). Steps outside the document are returned unchanged.
        questions: (Q, B, H).
        places: positions of documents and questions.
    """
    scores = torch.einsum("tbh,qbh->btq", documents, questions)
    scores = scores.masked_fill(~places.in_question.t().unsqueeze(1), -torch.inf)
    attended = torch.einsum("btq,qbh->tbh", scores.softmax(dim=-1), questions)
    is_document = places.in_document[: len(documents)].unsqueeze(-1)
    return torch.where(is_document, documents * attended, documents)
