"""The semantic parser: from the words of a question to a program (Mao et al., ICLR 2019, section 3.1)."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot, pad

from gyral.applications.scenes.data.language import ARGUMENTS, KINDS, OPERATOR_IDS, OPERATORS, QuestionVocabulary
from gyral.cells.base import RecurrentCell
from gyral.nn.recurrent import Recurrent


class Programs(NamedTuple):
    """R programs of up to P steps: operators and arguments, both (R, P); 0 after the end."""

    operators: Tensor
    arguments: Tensor


class _Encoded(NamedTuple):
    """Encoded questions for the decoder.

    Attributes:
        states: (R, L, E) outputs of the encoder.
        is_word: (R, L) False at padding.
        summary: (R, E) mean of the states.
        named: (R, L) the argument that each word names; 0: none.
        counts: (R, arguments) number of words that name each argument.
    """

    states: Tensor
    is_word: Tensor
    summary: Tensor
    named: Tensor
    counts: Tensor


class ProgramParser(nn.Module):
    """A bidirectional encoder of questions and a decoder of programs, which attends to the question.

    A step of a program is an operator and, for some operators, an argument. The decoder chooses the operator by a
    softmax over the operators that the stack of sets permits, and the argument by a softmax over the words of the
    question that name an argument of the required kind. As in the paper, a lexicon contains the words that name
    concepts, relations or attributes, but not their meaning, and not the attribute of a concept. Each of these words is
    the argument of one step, and a program ends when no word is left. Otherwise, programs that skip words or repeat a
    filter often have the correct answer and displace the correct programs. For the same reason, the set of all objects
    must be narrowed before it is combined or compared with another set. The last step only permits operators that end
    the program, so that every program can be executed.

    Args:
        encoder, decoder: make the cells from their input sizes.
        vocabulary: the words of questions.
        embedding_size: size of the embeddings of words, operators and arguments.
        max_length: largest number of steps of a program.
        backend: see `gyral.nn.recurrent.Recurrent`.
    """

    named: Tensor  # the argument that each word names, 0 for none
    suits: Tensor  # (operators, arguments) whether an operator can have an argument
    changes: Tensor  # change of the number of sets on the stack by an operator
    takes: Tensor  # the number of sets that an operator needs
    ends: Tensor  # whether an operator ends a program

    def __init__(
        self,
        encoder: Callable[[int], RecurrentCell],
        decoder: Callable[[int], RecurrentCell],
        vocabulary: QuestionVocabulary,
        *,
        embedding_size: int,
        max_length: int,
        backend: str,
    ) -> None:
        super().__init__()
        self.max_length = max_length
        self.words = nn.Embedding(len(vocabulary), embedding_size)
        self.encoder = Recurrent(encoder, embedding_size, bidirectional=True, backend=backend)
        width = self.encoder.output_size
        self.operators = nn.Embedding(len(OPERATORS), embedding_size)
        self.arguments = nn.Embedding(len(ARGUMENTS), embedding_size)
        self.decoder = Recurrent(decoder, 2 * embedding_size + width, backend=backend)
        hidden = self.decoder.output_size
        self.attention = nn.Linear(hidden, width, bias=False)
        self.pointer = nn.Linear(hidden, width, bias=False)
        self.output = nn.Linear(hidden + width, len(OPERATORS))
        suits = [[name in KINDS[operator.argument] for name in ARGUMENTS] for operator in OPERATORS]
        changes = {"scene": 1, "intersect": -1, "union": -1}
        self._add_buffer("named", vocabulary.arguments)
        self._add_buffer("suits", suits)
        self._add_buffer("changes", [changes.get(operator.name, 0) for operator in OPERATORS])
        self._add_buffer("takes", [operator.takes for operator in OPERATORS])
        self._add_buffer("ends", [bool(operator.type) for operator in OPERATORS])

    def _add_buffer(self, name: str, values: "list[int] | list[bool] | list[list[bool]] | np.ndarray") -> None:
        self.register_buffer(name, torch.as_tensor(values), persistent=False)

    def sample(self, questions: Tensor, copies: int = 1, *, greedy: bool = False) -> Programs:
        """Return programs of questions (R, L): random programs, or the most likely step at each time.

        Args:
            questions: words, padded with 0.
            copies: programs for each question; the programs of a question are consecutive.
            greedy: whether the most likely steps are chosen.
        """
        with torch.no_grad():
            encoded = self._encode(questions)
            if copies > 1:
                encoded = _Encoded(*(part.repeat_interleave(copies, dim=0) for part in encoded))
            return self._sample(encoded, greedy)

    def _sample(self, encoded: _Encoded, greedy: bool) -> Programs:
        rows = len(encoded.named)
        operator = argument = depth = torch.zeros(rows, dtype=torch.long, device=encoded.named.device)
        found: list[tuple[Tensor, Tensor]] = []
        running, state = torch.ones_like(depth, dtype=torch.bool), None
        left = encoded.counts
        for step in range(self.max_length):
            inputs = self._inputs(operator, argument, encoded).unsqueeze(0)
            hidden, state = self.decoder(inputs, state)
            hidden = hidden.transpose(0, 1)
            permitted = self._permitted(operator, depth, step, left)
            scores = self._operator_scores(hidden, encoded).squeeze(1).masked_fill(~permitted, -torch.inf)
            operator = torch.where(running, _choose(scores, greedy), 0)
            is_named = self._nameable(operator, left, encoded)
            scores = self._word_scores(hidden, encoded).squeeze(1).masked_fill(~is_named, -torch.inf)
            scores = torch.where(is_named.any(dim=1, keepdim=True), scores, 0)
            word = _choose(scores, greedy)
            argument = encoded.named.gather(1, word.unsqueeze(1)).squeeze(1)
            argument = torch.where(is_named.any(dim=1), argument, 0)
            found.append((operator, argument))
            left = left - one_hot(argument, len(ARGUMENTS))
            depth = depth + self.changes[operator]
            running = running & ~self.ends[operator]
            if not running.any():
                break
        operators, arguments = (torch.stack(parts, dim=1) for parts in zip(*found, strict=True))
        return Programs(operators, arguments)

    def log_probability(self, questions: Tensor, programs: Programs, copies: int = 1) -> tuple[Tensor, Tensor]:
        """Return the log-probabilities (R · copies,) of programs, and the mean entropy of the choice of an operator.

        All steps are computed in parallel. An argument has the sum of the probabilities of the words that name it.

        Args:
            questions: (R, L).
            programs: (R · copies, P).
            copies: programs for each question.
        """
        encoded = self._encode(questions)
        if copies > 1:
            encoded = _Encoded(*(part.repeat_interleave(copies, dim=0) for part in encoded))
        operators, arguments = programs
        operator, argument = (pad(part, (1, -1)) for part in programs)  # of the step before
        expanded = encoded._replace(summary=encoded.summary.unsqueeze(1).expand(-1, operators.shape[1], -1))
        inputs = self._inputs(operator, argument, expanded)
        hidden = self.decoder(inputs.transpose(0, 1))[0].transpose(0, 1)
        depth = pad(self.changes[operators].cumsum(dim=1), (1, -1))
        taken = one_hot(argument, len(ARGUMENTS)).cumsum(dim=1)
        left = encoded.counts.unsqueeze(1) - taken
        permitted = torch.stack(
            [
                self._permitted(operator[:, step], depth[:, step], step, left[:, step])
                for step in range(operators.shape[1])
            ],
            dim=1,
        )
        is_step = operators > 0
        scores = self._operator_scores(hidden, encoded).masked_fill(~permitted & is_step.unsqueeze(2), -torch.inf)
        logs = scores.log_softmax(dim=-1)
        own = logs.gather(2, operators.unsqueeze(2)).squeeze(2).clamp(min=-30)  # a given program may not be permitted
        entropy = -(logs.exp() * logs.clamp(min=-30)).sum(dim=-1)

        is_named = self._nameable(operators, left, encoded)
        has_argument = (arguments > 0) & is_named.any(dim=-1)
        scores = self._word_scores(hidden, encoded).masked_fill(~is_named, -torch.inf)
        scores = torch.where(has_argument.unsqueeze(2), scores, 0)
        is_chosen = is_named & (encoded.named.unsqueeze(1) == arguments.unsqueeze(2))
        chosen = (scores.softmax(dim=-1) * is_chosen).sum(dim=-1)
        argued = torch.where(has_argument, chosen.clamp(min=1e-12), 1).log()
        total = ((own + argued) * is_step).sum(dim=1)
        return total, (entropy * is_step).sum() / is_step.sum()

    def _encode(self, questions: Tensor) -> _Encoded:
        is_word = questions > 0
        lengths = is_word.sum(dim=1).clamp(min=1)
        states = self.encoder(self.words(questions.t()), lengths=lengths)[0].transpose(0, 1)
        named = self.named[questions]
        summary = states.sum(dim=1) / lengths.unsqueeze(1)
        return _Encoded(states, is_word, summary, named, one_hot(named, len(ARGUMENTS)).sum(dim=1))

    def _inputs(self, operator: Tensor, argument: Tensor, encoded: _Encoded) -> Tensor:
        return torch.cat((self.operators(operator), self.arguments(argument), encoded.summary), dim=-1)

    def _operator_scores(self, hidden: Tensor, encoded: _Encoded) -> Tensor:
        scores = self.attention(hidden) @ encoded.states.mT
        scores = scores.masked_fill(~encoded.is_word.unsqueeze(1), -1e9)  # not −∞: an absent question has no words
        context = scores.softmax(dim=-1) @ encoded.states
        return self.output(torch.cat((hidden, context), dim=-1))

    def _word_scores(self, hidden: Tensor, encoded: _Encoded) -> Tensor:
        return self.pointer(hidden) @ encoded.states.mT

    def _permitted(self, before: Tensor, depth: Tensor, step: int, left: Tensor) -> Tensor:
        """Return a mask (R, operators) of the permitted operators, at least one.

        Args:
            before: (R,) the operators of the step before.
            depth: (R,) numbers of sets on the stack.
            step: number of the step.
            left: (R, arguments) number of remaining words that name each argument.
        """
        depth = depth.unsqueeze(1)
        takes_word = self.suits.any(dim=1)
        has_word = ((left > 0).unsqueeze(1) & self.suits).any(dim=2) | ~takes_word
        is_end = self.ends & (depth == self.takes) & has_word
        if step == self.max_length - 1:
            return is_end
        words = left[:, 1:].sum(dim=1, keepdim=True)
        leaves_none = words == takes_word
        is_operator = torch.arange(len(OPERATORS), device=depth.device) > 0
        goes_on = is_operator & ~self.ends & (depth >= self.takes) & (depth + self.changes <= 2) & has_word
        is_narrowed = (before != OPERATOR_IDS["scene"]).unsqueeze(1) | (self.takes == 1)
        can_be_narrowed = (self.takes > 0) | (depth == 0) | (words > 0)
        return (is_end & leaves_none | goes_on) & is_narrowed & can_be_narrowed

    def _nameable(self, operator: Tensor, left: Tensor, encoded: _Encoded) -> Tensor:
        """Return a mask (R, …, L) of the words that can be the arguments of operators (R, …)."""
        free = self.suits[operator] & (left > 0)
        named = encoded.named if operator.dim() == 1 else encoded.named.unsqueeze(1).expand(-1, operator.shape[1], -1)
        return free.gather(-1, named)


def _choose(scores: Tensor, greedy: bool) -> Tensor:
    """Return the indices (R,) of the highest scores, or random indices with probabilities softmax(scores)."""
    if not greedy:
        scores = scores - torch.empty_like(scores).exponential_().log()  # Gumbel noise
    return scores.argmax(dim=1)
