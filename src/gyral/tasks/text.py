"""Language modelling: predict the next character, word or byte of a text.

Three rows of a corpus, in windows of eight characters:

    row 0   the cat_| sat on _|the mat.
    row 1    A dog b|arks at i|t, and t
    row 2   he cat r|uns.  ...

Each row continues in the next window, and so does the state of the network.

    input       the_cat_
    target      he_cat_s
"""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten
from torchmetrics import Metric

from gyral.core.cache import cache_directory
from gyral.core.checks import check_choice, check_integer, check_real
from gyral.core.collectives import all_gather_object, local_rows, rank, world_size
from gyral.core.errors import OptionError
from gyral.core.forms import check_form
from gyral.core.measures import ACCURACY, BITS, PERPLEXITY, SPLITS
from gyral.core.options import NonNegativeInt, PositiveInt, Range
from gyral.data.batching import IGNORED, RepeatedBatches, Stream
from gyral.data.text.corpora import Corpus
from gyral.data.text.ngrams import evaluate_once
from gyral.data.text.windows import RandomWindows, Window, Windows
from gyral.nn.recurrent import detach
from gyral.ops.scan import choose_rows
from gyral.tasks.base import ModelFactory
from gyral.tasks.baselines import frequency_loss
from gyral.tasks.data_module import SplitData
from gyral.tasks.data_task import DataTask
from gyral.tasks.dynamic_evaluation import RULES, DynamicEvaluation
from gyral.tasks.metrics import AccuracyMetrics

log = logging.getLogger(__name__)
LINE_WIDTH = 60  # columns of a rendered example
VISIBLE = {" ": "_", "\n": "⏎", "\t": "⇥"}  # signs for invisible characters; others are shown as \x1b


class PositionLoss(Metric):
    """Mean loss at each position of a window, (T,) in nats; NaN at positions without targets."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.total: Tensor
        self.count: Tensor
        self.add_state("total", torch.zeros(window, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros(window, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, logits: Tensor, targets: Tensor) -> None:
        losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none")
        length = targets.shape[1]
        self.total[:length] += losses.view_as(targets).sum(dim=0)
        self.count[:length] += (targets != IGNORED).sum(dim=0)

    def compute(self) -> Tensor:
        return self.total / self.count


class TextMetrics(AccuracyMetrics):
    """Loss and accuracy over all targets; bits per symbol and perplexity, which follow from the loss.

    Attributes:
        position_loss: loss at each position of a window. Read it before `compute`, which resets it.
    """

    names = (*AccuracyMetrics.names, "bits", "perplexity")

    def __init__(self, classes: int, window: int) -> None:
        super().__init__(classes)
        self.position_loss = PositionLoss(window)

    def update(self, logits: Tensor, batch: Window, loss: Tensor) -> None:
        super().update(logits, batch, loss)
        self.position_loss.update(logits, batch.targets)

    def compute(self) -> dict[str, Tensor]:
        values = super().compute()
        loss = values["loss"]
        values.update(bits=loss / math.log(2), perplexity=loss.exp())
        return {name: values[name] for name in self.names}


class TextData(SplitData):
    """Windows of a corpus: repeated passes over the training split, one pass over the others.

    Args:
        corpus: the text.
        batch_size, window: number of rows, and tokens per window, in training.
        eval_batch_size: number of rows in evaluation.
        warm_up: tokens that a row reads in evaluation before its first prediction.
        window_deviation: standard deviation of the number of tokens per window in training, with the mean `window`; see
            `gyral.data.text.windows.RandomWindows`. 0: all windows have `window` tokens. The seed of the lengths is
            `torch.initial_seed()` when the data is built, that is, the seed of the run.

    Raises:
        OptionError: a size is below 1 (`warm_up` and `window_deviation`: below 0), has the wrong type, or is too large
            for the training split.
    """

    counted = "symbols"
    small: ClassVar = {"batch_size": 8, "window": 6, "eval_batch_size": 5, "warm_up": 3}

    corpus: Corpus = field()
    batch_size: PositiveInt = field()
    window: PositiveInt = field()
    eval_batch_size: PositiveInt = field()
    warm_up: NonNegativeInt = field()
    window_deviation: Annotated[float, Range(0)] = 0.0

    def __post_init__(self) -> None:
        self.seed = torch.initial_seed()
        try:
            self.train = Windows(self.corpus.splits["train"], self.batch_size, self.window)
        except OptionError as error:
            reason = f"{error.reason} in the training split of {self.corpus.name}"
            raise OptionError(error.option, error.value, reason) from None

    def split_size(self, split: str) -> int:
        return len(self.corpus.splits[split])

    def loader(self, split: str) -> Windows:
        tokens = self.corpus.splits[check_choice("split", split, SPLITS)]
        predictions = len(tokens) - 1
        rows, window = min(self.eval_batch_size, predictions), min(self.window, predictions)
        return Windows(tokens, rows, window, self.warm_up)

    def stream(self) -> Stream[Window]:
        length = self.steps()
        if self.window_deviation > 0:
            windows = RandomWindows(self.train, self.window_deviation, seed=self.seed, length=length)
            steps, about = len(windows.bounds(0)) - 1, "about "
            stream: Stream[Window] = windows
        else:
            steps, about = len(self.train), ""
            stream = RepeatedBatches(self.train, length)
        log.info("%s: one pass over the training text takes %s%d steps", self.corpus.name, about, steps)
        return stream


class TextTask(DataTask[TextData]):
    """Predict each symbol of a text from all symbols before it (truncated backpropagation through time).

    The state is carried from window to window, detached from the graph. It is reset at the beginning of the text and of
    each evaluation, and by `reset_probability`. The baseline is the loss on the test split of the symbol frequencies of
    the training split, the best predictor without memory.

    Args:
        model: makes the model from the sizes of the task.
        corpus: the text.
        batch_size, window, eval_batch_size, warm_up, window_deviation: see `TextData`. With windows of random length,
            the learning rate of a step is multiplied by the number of its tokens per row / `window`.
        loss: loss of training: "mean", the mean over all symbols, or "sum", the sum over the steps of a window and the
            mean over the rows. A bound on the norm of the gradient
            (`trainer.gradient_clip_val`) is `window` times tighter for the sum. The code of Dangovski et al. (TACL
            2019; rdangovs/rotational-unit-of-memory on GitHub, tasks/LM/main.py) clips the gradient of the sum. Metrics
            are always means.
        ngrams: orders of the n-gram models (`gyral.data.text.ngrams`) whose results a test reports next to the
            results of the network, as `ngram_<order>_bits` and `ngram_<order>_perplexity`.
        activation_regularization: α ≥ 0. Training adds α times the mean square of the last layer's outputs, after
            dropout (AR: Merity et al., "Revisiting activation regularization for language RNNs", 2017).
        temporal_regularization: β ≥ 0. Training adds β times the mean square of the difference between the last layer's
            outputs, before dropout, at successive steps of a window (TAR, in the same paper). The logged training loss
            contains neither.
        reset_probability: probability with which a row of training begins a window from the initial state, as each row
            of an evaluation does once. Otherwise training reaches this state at the beginning of the text alone, and a
            cell that forgets nothing may not work from it. The code of Melis et al. (ICLR 2018; deepmind/lamb on
            GitHub) has this as `drop_state_probability`.
        dynamic: "sgd" or "rms": a test also reports the results of dynamic evaluation with this rule, as
            `dynamic_loss`, `dynamic_bits` and `dynamic_perplexity`; see `gyral.tasks.dynamic_evaluation`. None: no
            dynamic evaluation.
        **options: see `gyral.tasks.base.SequenceTask`: optimizer, scheduler, monitor, mode, overfit, prefetch.

    Raises:
        OptionError: an option is out of bounds, or too large for the corpus.
    """

    data_class = TextData
    measures = (BITS, ACCURACY, PERPLEXITY)
    causal = True
    generators: ClassVar = {
        "continue_text": "gyral.generation.text.continue_text",
        "show_surprisal": "gyral.generation.surprisal.show_surprisal",
    }
    predictor = "gyral.generation.texts.predict_texts"
    evaluations: ClassVar = {"dynamic": "gyral.tasks.text.use_dynamic_evaluation"}

    def __init__(
        self,
        model: ModelFactory,
        corpus: Corpus,
        *,
        loss: str = "mean",
        activation_regularization: float = 0.0,
        temporal_regularization: float = 0.0,
        reset_probability: float = 0.0,
        ngrams: Sequence[int] = (),
        dynamic: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(model, corpus=corpus, **options)
        self.reduction = check_choice("loss", loss, ("mean", "sum"))
        self.activation_regularization = check_real("activation_regularization", activation_regularization, minimum=0)
        self.temporal_regularization = check_real("temporal_regularization", temporal_regularization, minimum=0)
        self.reset_probability = check_real("reset_probability", reset_probability, minimum=0, maximum=1)
        self.dynamic = None if dynamic is None else DynamicEvaluation(check_choice("dynamic", dynamic, tuple(RULES)))
        longest = len(corpus.splits["train"])
        self.ngrams = [check_integer("ngrams", order, maximum=longest) for order in ngrams]
        self._states: dict[bool, Any] = {}  # after the last window of training (True) and of evaluation (False)
        self._regularization: Tensor | None = None  # penalty of the last window that `forward` has read in training
        self._lengths: list[int] = []  # tokens per row of the windows of this training step

    @classmethod
    def arguments(cls, data: TextData) -> dict[str, Any]:
        size = len(data.corpus.vocabulary)
        return {
            "vocabulary_size": size,
            "output_size": size,
            "baseline": partial(unigram_loss, data.corpus),
            "metrics": TextMetrics(size, data.window),
        }

    def forward(self, batch: Window) -> Tensor:
        """Return the logits (B, T, symbols). The state continues from the last window, or is reset."""
        state = self._states.get(self.training) if batch.continues else None
        if state is not None and self.training and self.reset_probability > 0:
            state = self._reset_some(state)
        if self.training and (self.activation_regularization or self.temporal_regularization):
            outputs, vectors, state = self.model.run(batch.inputs, state)
            dropped = self.model.output_dropout(outputs)
            logits = self.model.read_out(dropped, vectors)
            self._regularization = self._regularize(outputs, dropped)
        else:
            logits, state = self.model(batch.inputs, state)
        self._states[self.training] = detach(state)
        return logits

    def _reset_some(self, state: Any) -> Any:
        """Return a state in which some rows are those of the initial state."""
        some = tree_leaves(state)[0]
        rows = torch.rand(len(some), device=some.device) < self.reset_probability
        return tree_map(partial(choose_rows, rows), self.model.recurrent.init_state(1), state)

    def _regularize(self, outputs: Tensor, dropped: Tensor) -> Tensor:
        """Return AR plus TAR of the last layer's outputs (T, B, H), before and after dropout."""
        penalty = self.activation_regularization * dropped.square().mean()
        if self.temporal_regularization and len(outputs) > 1:
            penalty = penalty + self.temporal_regularization * (outputs[1:] - outputs[:-1]).square().mean()
        return penalty

    def training_step(self, batch: Window, index: int) -> Tensor:
        loss = super().training_step(batch, index)
        if self._regularization is not None:
            loss, self._regularization = loss + self._regularization, None
        return loss * batch.targets.shape[1] if self.reduction == "sum" else loss

    def on_train_batch_start(self, batch: Window, index: int) -> None:
        self._lengths.append(batch.inputs.shape[1])

    def optimizer_step(
        self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Callable[[], Any] | None = None
    ) -> None:
        """Take a step of the optimizer, with a learning rate in proportion to the window if its length varies."""
        rates = [group["lr"] for group in optimizer.param_groups]
        if self.data.window_deviation > 0:
            for group in optimizer.param_groups:
                group["lr"] *= sum(self._lengths) / len(self._lengths) / self.data.window
        super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self._lengths.clear()

    def test_results(self) -> dict[str, float]:
        results = super().test_results()
        assert self.trainer.test_dataloaders is not None
        if self.dynamic is not None:
            tokens = self.trainer.test_dataloaders.tokens
            adapted = self.dynamic.evaluate(self.model, self.data.corpus.splits["train"], tokens)
            results |= {f"dynamic_{name}": value for name, value in adapted.items()}
        # `gyral evaluate` may use another split, but the references are computed for the test split.
        if self.ngrams and self.trainer.test_dataloaders.tokens is self.data.corpus.splits["test"]:
            scores = evaluate_once(self.data.corpus, max(self.ngrams), [cache_directory()])
            for order, bits, perplexity in scores:
                if order in self.ngrams:
                    results |= {f"ngram_{order}_bits": bits, f"ngram_{order}_perplexity": perplexity}
        return results

    def symbols(self) -> Sequence[str]:
        return self.data.corpus.vocabulary.symbols

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        state = self._states.get(True)
        leaves = [] if state is None else tree_leaves(state)  # tree_leaves(None) is [None]
        leaves_of_all = all_gather_object([leaf.cpu() for leaf in leaves])
        checkpoint["carried"] = [torch.cat(rows) for rows in zip(*leaves_of_all, strict=True)]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        if checkpoint["carried"]:
            fresh, structure = tree_flatten(self.model.recurrent.init_state(1))
            rows = len(self.data.train.starts)
            check_form("carried", checkpoint["carried"], [leaf.expand(rows, *leaf.shape[1:]) for leaf in fresh])
            own = local_rows(checkpoint["carried"], rank(), world_size())
            leaves = [leaf.to(self.device) for leaf in own]
            self._states[True] = tree_unflatten(leaves, structure)

    def render(self, batch: Window, predicted: Tensor, row: int = 0) -> str:
        shown = {"input": batch.inputs[row], "target": batch.targets[row], "prediction": predicted[row]}
        words = {name: [self._visible(token) for token in tokens.tolist()] for name, tokens in shown.items()}
        widths = [max(map(len, column)) for column in zip(*words.values(), strict=True)]
        gap = 0 if max(widths) == 1 else 1
        ends = np.cumsum(widths) + gap * np.arange(len(widths))
        count = max(1, int((ends <= LINE_WIDTH).sum()))
        return "\n".join(
            f"{name:<11} " + (" " * gap).join(w.ljust(width) for w, width in zip(line, widths[:count], strict=False))
            for name, line in words.items()
        )

    def _visible(self, token: int) -> str:
        """Return a symbol with signs for invisible characters."""
        if token == IGNORED:
            return "·"
        symbol = self.data.corpus.vocabulary.symbols[token]
        return "".join(VISIBLE.get(c) or (c if c.isprintable() else repr(c)[1:-1]) for c in symbol)


def unigram_loss(corpus: Corpus, split: str = "test") -> float:
    """Return the loss on a split, in nats per symbol, of the symbol frequencies of the training split."""
    return frequency_loss(corpus.splits["train"], corpus.splits[split][1:], len(corpus.vocabulary))


def use_dynamic_evaluation(
    task: TextTask,
    request: Any,
    *,
    rule: str,
    lr: float | None = None,
    decay: float | None = None,
    window: int = 5,
    epsilon: float = 2e-5,
) -> None:
    """Also report the results of dynamic evaluation, which takes gradient steps on the evaluated text.

    Args:
        task: a trained task.
        request: not used.
        rule: sgd; or rms, scaled by the root mean square of the gradients on the training text.
        lr: learning rate; null: 0.1 for sgd, 0.00005 for rms.
        decay: towards the trained weights, in [0, 1]; null: 0.002.
        window: tokens per gradient step.
        epsilon: of rms, added to the root mean square.

    Raises:
        OptionError: an option is out of bounds.
    """
    task.dynamic = DynamicEvaluation(rule, lr, decay, window, epsilon)
