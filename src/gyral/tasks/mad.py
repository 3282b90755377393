"""The tasks of MAD: recall in context, also with noise or of motifs, compression and memorization.

An example of task.name=in_context_recall with length 12; keys are 0 … 7 and values 8 … 15. The loss is over every next
token, the accuracy over the values of keys that have occurred before:

    input       03 12 05 09 03 12 00 12 05 09 00
    target                  12          09    12

Examples of the others; n is a noise token, - the padding, and ? asks for what the model knows or has read:

    noisy_recall    03 12  n  n 05 09 03      fuzzy_recall    - 3 1 12 9 5 10 3 1 12
                                      12                                      12   9

    memorization    17  ? 42  ?               compression     3 1 7 ?
                       99    81                               3 1 7 ?   (all at once, from the last state)
"""

import math
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from gyral.core.checks import check_integer
from gyral.core.errors import OptionError
from gyral.core.measures import ACCURACY, SEQUENCE_ACCURACY
from gyral.core.options import OneOf, PositiveInt, Range
from gyral.data.batching import IGNORED, Batch, mix_seed
from gyral.models.attention import last_of
from gyral.tasks.data_module import GeneratedData
from gyral.tasks.data_task import DataTask
from gyral.tasks.metrics import SequenceMetrics
from gyral.tasks.rendering import align_answers

MOTIF = 3  # the most tokens of a key, and of a value, of fuzzy_recall


class Protocol(NamedTuple):
    """The published protocol of a task.

    Attributes:
        vocabulary_size: number of tokens, without noise tokens.
        length: number of tokens of a sequence.
        train_size: sequences in training.
        noise: share of pairs that are noise.
        shortest: the smallest length.
    """

    vocabulary_size: int = 16
    length: int = 128
    train_size: int = 12_800
    noise: float = 0.0
    shortest: int = 4


PROTOCOLS = {
    "in_context_recall": Protocol(),
    "noisy_recall": Protocol(noise=0.2),
    "fuzzy_recall": Protocol(shortest=4 * MOTIF - 1),
    "compression": Protocol(length=32, shortest=2),
    "memorization": Protocol(256, 32, 256, shortest=2),
}
NOISY = ("in_context_recall", "noisy_recall")


class MadData(GeneratedData):
    """Sequences of the tasks, drawn once.

    * in_context_recall, noisy_recall: length/2 pairs of a key and a value. In each sequence, a key has one value, drawn
      from all values. The last key has occurred before. In noisy_recall, some pairs are two noise tokens instead.
    * fuzzy_recall: keys and values are motifs of one to three distinct tokens; in validation and test, keys have three.
      As many pairs as fit, then one of them once more; padding at the beginning fills up the sequence.
    * memorization: a random key at every other step, followed by the token that asks for its value. The values are
      distinct and the same in all sequences and splits.
    * compression: random tokens and a last token, at which the model predicts the whole sequence; see `Decoder`.

    Tokens of a vocabulary of V: the first half are keys, then values, then the padding (fuzzy_recall) or the token that
    asks (memorization, compression), then the noise tokens. Recall has length − 1 steps (fuzzy_recall: length) with the
    next token as the target.

    Args:
        name: in_context_recall, fuzzy_recall, noisy_recall, compression or memorization.
        vocabulary_size: V, number of tokens without noise tokens. None: 16; 256 for memorization, as published.
        length: number of tokens, even for recall and memorization. None: 128; 32 for memorization and compression, as
            published.
        noise: share of pairs that are noise, in [0, 1); only for in_context_recall and noisy_recall, which differ in
            its default alone. None: 0.2 for noisy_recall, else 0, as published.
        noise_tokens: number of noise tokens, if there is noise.
        batch_size, eval_batch_size, val_size, test_size, data_seed: see `gyral.tasks.data_module.GeneratedData`. The
            seed also determines the values of memorization.
        train_size: sequences in training. None: 12,800; 256 for memorization, as published.

    Raises:
        OptionError: an option is out of bounds.
    """

    small: ClassVar = {"length": 12}

    name: Annotated[str, OneOf(PROTOCOLS)] = "in_context_recall"
    vocabulary_size: Annotated[int, Range(4, 30_000)] | None = None
    length: Annotated[int, Range(2)] | None = None
    noise: Annotated[float, Range(0, below=1)] | None = None
    noise_tokens: Annotated[int, Range(1, 1000)] = 16
    batch_size = 128
    train_size: PositiveInt | None = None  # type: ignore[assignment]  # of the base class: never None
    val_size = 1280
    test_size = 1280

    def check(self) -> None:
        chosen = self.chosen()
        if chosen.train_size < self.batch_size:
            raise OptionError("batch_size", self.batch_size, f"must be at most train_size, {chosen.train_size}")
        check_integer("length", chosen.length, minimum=chosen.shortest)
        if self.name not in ("fuzzy_recall", "compression") and chosen.length % 2:
            raise OptionError("length", self.length, "must be even, since keys and values come in pairs")
        smallest = 2 * (MOTIF if self.name == "fuzzy_recall" else 2) + (self.name not in NOISY)
        check_integer("vocabulary_size", chosen.vocabulary_size, minimum=smallest, maximum=30_000)
        if chosen.noise and self.name not in NOISY:
            raise OptionError("noise", self.noise, f"must be 0 for name={self.name}")

    def chosen(self) -> Protocol:
        """Return the published protocol with the options that are given."""
        names = ("vocabulary_size", "length", "train_size", "noise")
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        return PROTOCOLS[self.name]._replace(**given)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.protocol = chosen = self.chosen()
        self.sizes["train"] = chosen.train_size
        self.marked = self.name not in NOISY  # whether a token is neither key, value nor noise
        self.plain = chosen.vocabulary_size - self.marked  # number of keys and values
        self.keys = self.plain // 2
        self.tokens = chosen.vocabulary_size + (self.noise_tokens if chosen.noise else 0)
        self.mark = self.plain  # the padding, or the token that asks
        self.longest_keys = False
        generator = torch.Generator().manual_seed(mix_seed(self.data_seed, "values"))
        self.memorized = self.keys + torch.randperm(self.plain - self.keys, generator=generator)[: self.keys]

    def rows(self, split: str) -> Tensor:
        self.longest_keys = split != "train"  # the keys of an evaluation of fuzzy_recall
        return super().rows(split)

    def draw(self, size: int, generator: torch.Generator) -> Tensor:
        """Draw inputs, targets and the mask of the answers: (size, 3T)."""
        draws = {
            **dict.fromkeys(NOISY, self._recall),
            "fuzzy_recall": self._fuzzy_recall,
            "memorization": self._memorization,
            "compression": self._compression,
        }
        return torch.cat([part.short() for part in draws[self.name](size, generator)], dim=1)

    def assemble(self, rows: Tensor) -> Batch:
        inputs, targets, answers = rows.chunk(3, dim=1)
        return Batch(inputs.long(), targets.long(), answers.bool())

    def _recall(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        pairs = self.protocol.length // 2
        keys = torch.randint(self.keys, (size, pairs), generator=generator)
        values = torch.randint(self.keys, self.plain, (size, self.keys), generator=generator)  # of each key
        noisy = torch.rand(size, pairs, generator=generator) < self.protocol.noise
        noisy.scatter_(1, torch.randint(pairs - 1, (size, 1), generator=generator), False)  # one pair at least
        noisy[:, -1] = False
        new = (_first_places(keys.masked_fill(noisy, -1)) == torch.arange(pairs)) & ~noisy
        new[:, -1] = False
        # The last key is one of those that have occurred, each with the same probability.
        asked = torch.rand(size, pairs, generator=generator).masked_fill(~new, -1).argmax(dim=1, keepdim=True)
        keys[:, -1:] = keys.gather(1, asked)
        tokens = torch.stack([keys, values.gather(1, keys)], dim=-1)
        if self.protocol.noise:
            drawn = torch.randint(self.plain, self.tokens, tokens.shape, generator=generator)
            tokens = torch.where(noisy.unsqueeze(-1), drawn, tokens)
        answers = torch.stack([torch.zeros_like(new), ~new & ~noisy], dim=-1)
        return _next_tokens(tokens.flatten(1), answers.flatten(1))

    def _fuzzy_recall(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        pairs = self.protocol.length // 2 + 1  # more than fit
        motifs = torch.cat(
            [
                _draw_distinct(0, self.keys, (size, pairs), generator),
                _draw_distinct(self.keys, self.plain, (size, pairs), generator),
            ],
            dim=-1,
        )
        sizes = torch.randint(1, MOTIF + 1, (size, pairs, 2), generator=generator)
        if self.longest_keys:
            sizes[..., 0] = MOTIF
        places = torch.arange(MOTIF)
        used = torch.cat([places < sizes[..., :1], places < sizes[..., 1:]], dim=-1)
        # A key that has occurred before has the value that it had first.
        digits = (motifs[..., :MOTIF] + 1) * used[..., :MOTIF]
        numbers = digits @ (self.keys + 1) ** places
        first = _first_places(numbers)
        value_of = first.unsqueeze(-1).expand(-1, -1, MOTIF)
        for tensor in (motifs, used):
            tensor[..., MOTIF:] = tensor[..., MOTIF:].gather(1, value_of)

        shown = used.sum(dim=-1).cumsum(dim=1) <= self.protocol.length + 1 - 2 * MOTIF
        asked = (torch.rand(size, 1, generator=generator) * shown.sum(dim=1, keepdim=True)).long()
        used &= shown.unsqueeze(-1)
        repeated = (first < torch.arange(pairs)).unsqueeze(-1) & (torch.arange(2 * MOTIF) >= MOTIF)
        last = asked.unsqueeze(-1).expand(-1, -1, 2 * MOTIF)
        motifs, used = (torch.cat([each, each.gather(1, last)], dim=1).flatten(1) for each in (motifs, used))
        asking = (torch.arange(2 * MOTIF) >= MOTIF).expand(size, -1)
        answered = torch.cat([repeated.flatten(1), asking], dim=1)

        tokens = torch.full((size, self.protocol.length + 1), self.mark)
        answers = torch.zeros_like(tokens, dtype=torch.bool)
        filled = torch.arange(self.protocol.length + 1) > self.protocol.length - used.sum(dim=1, keepdim=True)
        tokens[filled], answers[filled] = motifs[used], answered[used]
        return _next_tokens(tokens, answers)

    def _memorization(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        keys = torch.randint(self.keys, (size, self.protocol.length // 2), generator=generator)
        inputs = torch.stack([keys, torch.full_like(keys, self.mark)], dim=-1).flatten(1)
        targets = torch.stack([torch.full_like(keys, IGNORED), self.memorized[keys]], dim=-1).flatten(1)
        return inputs, targets, targets != IGNORED

    def _compression(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        tokens = torch.randint(self.plain, (size, self.protocol.length), generator=generator)
        tokens[:, -1] = self.mark
        return tokens, tokens, torch.ones_like(tokens)

    def baseline(self) -> float:
        """Return the loss of the best predictor that knows the step alone; see `MadTask`."""
        if self.name == "fuzzy_recall":
            targets = self.assemble(self.rows("val")).targets
            shares = nn.functional.one_hot(targets, self.tokens).double().mean(dim=0)
            return torch.special.entr(shares).sum(dim=-1).mean().item()
        if self.name == "memorization":
            return math.log(self.keys)
        if self.name == "compression":
            return (self.protocol.length - 1) / self.protocol.length * math.log(self.plain)
        pairs, keys, values = self.protocol.length // 2, self.keys, self.plain - self.keys
        noise = self.protocol.noise * (1 - 1 / (pairs - 1))  # one pair is never noise
        before_last = (pairs - 2) * self._entropy(keys, noise) + (pairs - 1) * self._entropy(values, noise)
        return (before_last + math.log(keys) + math.log(values)) / (self.protocol.length - 1)

    def _entropy(self, tokens: int, noise: float) -> float:
        """Return the entropy, in nats, of a token that is noise with a probability, else one of several tokens."""
        kinds = ((noise, self.noise_tokens), (1 - noise, tokens))
        return sum(share * math.log(count / share) for share, count in kinds if share)


def _next_tokens(tokens: Tensor, answers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the inputs, the next tokens as targets, and which targets are answers, from tokens (n, T + 1)."""
    return tokens[:, :-1], tokens[:, 1:], answers[:, 1:]


def _first_places(numbers: Tensor) -> Tensor:
    """Return, for each integer of rows (n, P), the place in its row where this integer occurs first."""
    ascending, order = numbers.sort(dim=1, stable=True)
    begins = torch.diff(ascending, dim=1, prepend=ascending[:, :1]) != 0
    starts = (begins * torch.arange(numbers.shape[1])).cummax(dim=1).values
    return torch.empty_like(order).scatter_(1, order, order.gather(1, starts))


def _draw_distinct(low: int, high: int, shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    """Return `MOTIF` distinct integers in [low, high), in random order: (*shape, MOTIF)."""
    drawn = torch.stack([torch.randint(high - low - i, shape, generator=generator) for i in range(MOTIF)], dim=-1)
    for place in range(1, MOTIF):
        # Counts only the integers that are left: skips those that were drawn.
        for earlier in drawn[..., :place].sort(dim=-1).values.unbind(dim=-1):
            drawn[..., place] += drawn[..., place] >= earlier
    return low + drawn


class Decoder(nn.Module):
    """Predicts every token of a sequence from the output h at the last step, as in MAD's compression.

        logits_t = W f(h + p_t),   f: LayerNorm, dense, GELU, LayerNorm, dense, GELU, LayerNorm

    p_t is the sinusoidal encoding of position t. It is the hidden size wide, as f is.

    Args:
        width: H, size of the outputs.
        input_size: X, size of the inputs, which this readout does not use.
        output_size: number of classes.
        length: T, number of positions.
    """

    positions: Tensor

    def __init__(self, width: int, input_size: int, output_size: int, *, length: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(layer for _ in range(2) for layer in (nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())),
            nn.LayerNorm(width),
            nn.Linear(width, output_size),
        )
        rates = 10_000 ** (-torch.arange(0, width, 2) / max(width, 2))
        angles = torch.arange(length).unsqueeze(1) * rates
        positions = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :width]
        self.register_buffer("positions", positions, persistent=False)

    def forward(self, outputs: Tensor, inputs: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return logits (B, T, output_size). See `gyral.models.attention.LastStep.forward` for the arguments."""
        return self.layers(last_of(outputs, lengths).unsqueeze(1) + self.positions)


class MadTask(DataTask[MadData]):
    """Tasks of "Mechanistic Architecture Design" (Poli et al. 2024, arXiv:2403.17844; athms/mad-lab, mad/data).

    Published are 200 passes with batches of 128, AdamW, learning rates 1e-4, 5e-4 and 1e-3, weight decay 0 and 0.1,
    cosine to 1e-6, width 128, two mixers and two SwiGLU networks. The sixth task is `task=selective_copy
    task.form=mad`. A published score is the mean over the defaults and changes of one option: a vocabulary of 32, 64 or
    128 (memorization: 512 to 8,192), a length of 256, 512 or 1,024 (compression: 64, 128, 256), 6,400 to 800 sequences
    for training, and noise of 0.4, 0.6 or 0.8 (noisy_recall). Memorization changes its vocabulary alone.

    In recall, the loss is over every next token and the accuracy over the answers. In the code of MAD, the loss of a
    test is over the answers alone, the noise tokens count in the vocabulary (32 for noisy_recall), and some sequences
    of fuzzy_recall end with a key that has not occurred before; here it always has.

    The baseline knows the step alone. With K keys and V values, it is the mean over the steps of ln K and ln V in
    recall, or of the entropy of a mixture with noise; ln K in memorization; ln(vocabulary_size − 1) in compression, but
    0 at the last position. In fuzzy_recall it is the entropy of the tokens at each step of the validation split.
    """

    data_class = MadData
    measures = (ACCURACY, SEQUENCE_ACCURACY)

    @classmethod
    def arguments(cls, data: MadData) -> dict[str, Any]:
        at_once = {
            "readout": partial(Decoder, length=data.protocol.length),
            "metrics": SequenceMetrics(data.tokens),  # a readout predicts one target by default
        }
        return {
            "vocabulary_size": data.tokens,
            "output_size": data.tokens,
            "baseline": data.baseline(),
            "max_writes": data.protocol.length,
            **(at_once if data.name == "compression" else {}),
        }

    def render(self, batch: Batch, predicted: Tensor, row: int = 0) -> str:
        width = len(str(self.data.plain - 1))
        names = [f"{token:0{width}}" for token in range(self.data.plain)]
        names += [("-" if self.data.name == "fuzzy_recall" else "?") * width] * self.data.marked
        names += ["n" * width] * (self.data.tokens - len(names))
        return align_answers(batch, predicted, row, names, names)
