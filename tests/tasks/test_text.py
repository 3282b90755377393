"""Language modelling: every symbol once, a state that continues, a loss independent of sizes, renderings, bad texts."""

import functools
import io
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from gyral.core.errors import OptionError, UserError
from gyral.core.measures import SPLITS
from gyral.data.batching import IGNORED
from gyral.data.text import corpora, ngrams
from gyral.data.text.corpora import Corpus, load_file
from gyral.data.text.windows import Windows
from gyral.data.vocabulary import END_OF_LINE, Vocabulary
from gyral.nn.recurrent import detach
from gyral.runs.metrics_file import read_metrics
from gyral.tasks.text import TextData, TextMetrics, TextTask, unigram_loss
from gyral.training import build
from tests.helpers.found import at_least
from tests.helpers.running import (
    SMALL_TEXT,
    assert_same,
    build_or_skip,
    build_task,
    choices,
    compose_config,
    invoke,
    load_last,
    shorten,
    small_text,
)

# for the contract of tasks
OPTIONS = {"corpus.path": str(Path(__file__).with_name("sample.txt")), "window_deviation": 2.0}
ALTERNATIVES: dict[str, list[Any]] = {
    "corpus.path": [None],
    "corpus.name": ["ptb_char", "ptb_word"],
    "corpus.val_fraction": [0.1],
    "corpus.test_fraction": [0.1],
    "corpus.minimum_count": [40],
    "window_deviation": [0.0],
}


def effects(task: TextTask) -> list[Any]:
    """Return what options change beside the data and the model, for the contract of tasks."""
    penalties = [task.activation_regularization, task.temporal_regularization]
    return [task.ngrams, task.reduction, *penalties, task.reset_probability, task.dynamic and vars(task.dynamic)]


OWN = ("task=text_file", "seed=1")
TINY = {"batch_size": 4, "window": 9, "eval_batch_size": 3, "warm_up": 5}


def corpus_of(train: str | list[str], val: str | list[str], test: str | list[str], level: str = "char") -> Corpus:
    """Return a corpus of these texts."""
    texts = [
        text.encode("latin-1") if level == "byte" and isinstance(text, str) else text for text in (train, val, test)
    ]
    vocabulary = Vocabulary.of(texts[0], level)
    return Corpus("made", vocabulary, {name: vocabulary.encode(text) for name, text in zip(SPLITS, texts, strict=True)})


def places(*sizes: int) -> Corpus:
    """Return a corpus in which each token of a split tells its own place."""
    vocabulary = Vocabulary("char", map(chr, range(0x4E00, 0x4E00 + max(sizes))))
    return Corpus("places", vocabulary, {s: np.arange(n, dtype=np.uint16) for s, n in zip(SPLITS, sizes, strict=True)})


def streamed(task: Any, steps: int) -> list[Any]:
    """Return the windows of a training stream of some steps."""
    task.data.trainer = SimpleNamespace(max_steps=steps, accumulate_grad_batches=1)
    return list(task.data.train_dataloader())


@torch.no_grad()
def evaluate(task: Any, split: str = "test") -> dict[str, float]:
    """Return the metrics of a split as a validation measures them."""
    training = task.training
    task.eval()
    for index, batch in enumerate(task.data.loader(split)):
        task.validation_step(batch, index)
    task.train(training)
    return {name: value.item() for name, value in task.metrics.compute().items()}


@pytest.mark.parametrize("sizes", [(60, 23, 31), (61, 2, 3)])
@pytest.mark.parametrize(("rows", "window", "warm_up"), [(1, 7, 0), (4, 5, 0), (4, 5, 6), (100, 400, 500)])
def test_evaluation_predicts_every_symbol_but_the_first_exactly_once(
    sizes: tuple[int, ...], rows: int, window: int, warm_up: int
) -> None:
    data = TextData(corpus=places(*sizes), batch_size=2, window=min(window, 9), eval_batch_size=rows, warm_up=warm_up)
    data.window = window
    for split, size in zip(SPLITS, sizes, strict=True):
        predicted = [target for batch in data.loader(split) for target in batch.targets[batch.answers].tolist()]
        assert sorted(predicted) == list(range(1, size))


@pytest.mark.parametrize(("rows", "window"), [(1, 7), (4, 5), (7, 8)])
def test_a_pass_of_training_predicts_every_symbol_but_the_first_exactly_once(rows: int, window: int) -> None:
    data = TextData(corpus=places(60, 5, 5), batch_size=rows, window=window, eval_batch_size=2, warm_up=3)
    length = len(data.train)
    data.trainer = SimpleNamespace(max_steps=2 * length, accumulate_grad_batches=1)  # type: ignore[assignment]
    batches = list(data.train_dataloader())
    for one_pass in (batches[:length], batches[length:]):
        predicted = [target for batch in one_pass for target in batch.targets[batch.answers].tolist()]
        assert sorted(predicted) == list(range(1, 60))
        assert [batch.continues for batch in one_pass] == [False] + [True] * (length - 1)


def learn(model: str, *overrides: str, steps: int = 80, **sizes: int) -> dict[str, Tensor]:
    """Return the weights of a network after some steps on a text."""
    torch.manual_seed(3)
    task = build_task(*overrides, f"model={model}", "optimizer=adam", **sizes)
    optimizer = torch.optim.Adam(task.parameters(), lr=0.01)
    for batch in streamed(task, steps):
        optimizer.zero_grad()
        task.loss(task(batch), batch).backward()
        torch.nn.utils.clip_grad_norm_(task.parameters(), 1.0)
        optimizer.step()
    return task.state_dict()


# RUM with time normalization: without it, its state grows as long as it reads
TRAINED = {"gru": ("model.cell.hidden_size=32",), "rum": ("model.cell.hidden_size=32", "model.cell.eta=1")}


@functools.cache
def weights(model: str) -> dict[str, Tensor]:
    """Return the weights of a small network that has learnt something of our own text."""
    return learn(model, *OWN, *TRAINED[model], batch_size=16, window=50)


def trained(model: str, **sizes: int) -> Any:
    task = build_task(*OWN, f"model={model}", *TRAINED[model], **sizes)
    task.load_state_dict({name: value for name, value in weights(model).items() if not name.startswith("metrics.")})
    return task


@pytest.mark.parametrize("model", ["gru", pytest.param("rum", marks=pytest.mark.slow)])
def test_the_loss_does_not_depend_on_the_sizes_of_evaluation(model: str) -> None:
    def bits(rows: int, window: int, warm_up: int = 500) -> float:
        return evaluate(trained(model, eval_batch_size=rows, window=window, warm_up=warm_up))["bits"]

    whole = bits(1, 5000)  # one row, which reads all that comes before
    assert whole < 0.8 * trained(model).baseline / math.log(2), "has learnt nothing, so that nothing matters"
    for rows, window in ((1, 700), (32, 37), (128, 150)):
        assert bits(rows, window) == pytest.approx(whole, abs=1e-4)
    # rows without context do worse
    assert bits(128, 150, warm_up=0) > whole + 1e-3


@pytest.mark.slow
def test_the_loss_on_the_penn_treebank_does_not_depend_on_the_sizes_of_evaluation() -> None:
    options = ("task=ptb_char", "model.cell.hidden_size=64")
    learnt = learn("gru", *options, steps=150, batch_size=64, window=100)

    def bits(rows: int, window: int, warm_up: int) -> float:
        task = build_task(*options, "model=gru", eval_batch_size=rows, window=window, warm_up=warm_up)
        task.load_state_dict({name: value for name, value in learnt.items() if not name.startswith("metrics.")})
        return evaluate(task)["bits"]

    whole = bits(1, 5000, 500)
    assert whole < 3
    for rows, window in ((1, 1000), (8, 150), (32, 20), (128, 150), (512, 1000)):
        assert bits(rows, window, 500) == pytest.approx(whole, abs=1e-4)
    assert bits(128, 150, 100) == pytest.approx(whole, abs=1e-4)
    assert bits(512, 150, 0) > whole + 1e-3


MODELS = {
    "gru": ("model=gru",),
    "rum": ("model=rum", "model.cell.lambd=1"),
    "fs_lstm": ("model=fs_lstm", "model.cell.slow_size=5"),
}


def tiny(model: str = "gru", *overrides: str, **sizes: float) -> Any:
    """Return a tiny network on the beginnings of our own text's splits."""
    config = compose_config(*OWN, *MODELS[model], "model.cell.hidden_size=6", *overrides)
    config.task.update({**TINY, **sizes})
    shorten(config, train=400, val=90, test=120)
    return build.build_task(config)


@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("training", [True, False])
def test_windows_score_the_same_as_one_long_sequence(model: str, training: bool) -> None:
    task = tiny(model)
    task.train(training)
    windows = Windows(task.data.corpus.splits["train"][:120], 3, 9, warm_up=4)
    whole = Windows(windows.tokens, 3, windows.columns, warm_up=4)[0]
    assert len(windows) > 4
    expected, _ = task.model(whole.inputs)
    with torch.no_grad():
        logits = [task(batch) for batch in windows]
    torch.testing.assert_close(torch.cat(logits, dim=1), expected)
    for index, batch in enumerate(windows):
        part = slice(9 * index, 9 * index + batch.inputs.shape[1])
        shortened = whole._replace(targets=whole.targets[:, part])
        torch.testing.assert_close(task.loss(logits[index], batch), task.loss(expected[:, part], shortened))


@pytest.mark.parametrize("model", list(MODELS))
def test_gradients_end_where_the_window_begins(model: str) -> None:
    task = tiny(model)
    first, second = streamed(task, 2)
    _, state = task.model(first.inputs)
    task.loss(task.model(second.inputs, detach(state))[0], second).backward()
    expected = {name: parameter.grad.clone() for name, parameter in task.named_parameters()}
    task.zero_grad()
    task(first)
    assert not any(leaf.requires_grad for leaf in tree_leaves(task._states[True]))
    task.loss(task(second), second).backward()
    for name, parameter in task.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name])


def test_the_state_is_fresh_at_each_pass_and_carried_within_it() -> None:
    task = tiny()
    length = len(task.data.train)
    assert 2 < length < 15
    with torch.no_grad():
        for batch in streamed(task, 2 * length):
            logits = task(batch)
            fresh = task.model(batch.inputs)[0]
            assert torch.equal(logits, fresh) is not batch.continues


@torch.no_grad()
def test_rows_begin_a_window_of_training_without_a_state_with_a_probability() -> None:
    task = tiny(reset_probability=0.5)
    first, second = streamed(task, 2)
    carried, fresh = task.model(second.inputs, task.model(first.inputs)[1])[0], task.model(second.inputs)[0]
    counts = [0, 0]
    for _ in range(20):
        task(first)
        for logits, *both in zip(task(second), carried, fresh, strict=True):
            (found,) = (index for index, expected in enumerate(both) if torch.equal(logits, expected))
            counts[found] += 1
    assert min(counts) > 20  # of 80
    before = evaluate(task, "val")
    assert evaluate(task, "val") == before


@torch.no_grad()
def test_the_state_is_fresh_for_every_evaluation() -> None:
    task = tiny()
    first = evaluate(task, "val")
    evaluate(task, "test")
    assert evaluate(task, "val") == first
    task(streamed(task, 1)[0])
    assert evaluate(task, "val") == first


@torch.no_grad()
def test_an_evaluation_does_not_change_the_training_state() -> None:
    task = tiny()
    windows = streamed(task, 4)
    expected = [task(batch) for batch in windows]
    for batch, logits in zip(windows, expected, strict=True):
        assert torch.equal(task(batch), logits)
        evaluate(task, "test")


def test_validations_of_a_run_do_not_change_what_it_learns(tmp_path: Path) -> None:
    arguments = (*small_text(tmp_path), "model=gru")
    for interval in (4, 24):
        outcome = invoke(
            *arguments, f"trainer.val_check_interval={interval}", f"hydra.run.dir={tmp_path / str(interval)}"
        )
        assert outcome.status == 0, outcome.err
    often, once = load_last(tmp_path / "4"), load_last(tmp_path / "24")
    for key in ("state_dict", "optimizer_states", "carried"):
        assert_same(often[key], once[key], key)
    assert (tmp_path / "4" / "examples.txt").read_text().count("prediction") == 6


@pytest.mark.named("dynamic_conv", "external", "urnn")
@pytest.mark.parametrize("model", at_least(45, choices("cell")))
def test_a_checkpoint_restores_the_state_of_every_model(model: str) -> None:
    options = (*OWN, f"model={model}", "model.cell.hidden_size=12")
    stopped, resumed = build_task(*options, **TINY), build_task(*options, **TINY)
    resumed.load_state_dict(stopped.state_dict())
    checkpoint: dict[str, Any] = {}
    first, second, third = streamed(stopped, 3)
    with torch.no_grad():
        stopped(first), stopped(second)
        stopped.on_save_checkpoint(checkpoint)
        file = io.BytesIO()
        torch.save(checkpoint, file)
        file.seek(0)
        resumed.on_load_checkpoint(torch.load(file, weights_only=True))
        torch.manual_seed(5)
        expected = stopped(third)
        torch.manual_seed(5)
        assert torch.equal(resumed(third), expected)
        assert not torch.equal(resumed.model(third.inputs)[0], expected)


def test_a_checkpoint_before_the_first_step_has_no_state() -> None:
    checkpoint: dict[str, Any] = {}
    tiny().on_save_checkpoint(checkpoint)
    assert checkpoint["carried"] == []
    task = tiny()
    task.on_load_checkpoint(checkpoint)
    assert task(streamed(task, 1)[0]).isfinite().all()


@pytest.mark.parametrize(("level", "most"), [("char", 60), ("byte", 60), ("word", 200)])
def test_an_untrained_network_guesses_among_all_symbols(level: str, most: int) -> None:
    config = compose_config(*OWN, "model=gru", "model.cell.hidden_size=50")
    config.task.corpus.level = level
    shorten(config, train=200, val=20, test=2000)
    config.task.update({**TINY, "eval_batch_size": 20})
    task = build.build_task(config)
    symbols = len(task.data.corpus.vocabulary)
    assert 30 < symbols < most
    assert evaluate(task)["bits"] == pytest.approx(math.log2(symbols), abs=0.1)


def test_bits_and_perplexity_follow_from_the_loss() -> None:
    scores = evaluate(tiny())
    assert list(scores) == ["loss", "accuracy", "bits", "perplexity"]
    assert scores["bits"] == pytest.approx(scores["loss"] / math.log(2), rel=1e-6)
    assert scores["perplexity"] == pytest.approx(math.exp(scores["loss"]), rel=1e-6)
    # half of the symbols are certain, the others one of two: half a bit per symbol
    metrics = TextMetrics(4, 8)
    task = SimpleNamespace(logits=torch.full((1, 8, 4), -100.0), targets=torch.arange(8).view(1, 8) % 2)
    task.logits[..., 0] = 0
    task.logits[:, 1::2, 1] = 0
    batch = SimpleNamespace(targets=task.targets, answers=task.targets != IGNORED)
    metrics.update(task.logits, batch, torch.nn.functional.cross_entropy(task.logits[0], task.targets[0]))
    values = {name: value.item() for name, value in metrics.compute().items()}
    assert values == pytest.approx({"loss": math.log(2) / 2, "accuracy": 0.5, "bits": 0.5, "perplexity": 2**0.5})


def test_the_mean_of_the_losses_by_position_is_the_loss() -> None:
    task = tiny(window=7, warm_up=3)
    task.eval()
    count = torch.zeros(7, dtype=torch.float64)
    with torch.no_grad():
        for index, batch in enumerate(task.data.loader("test")):
            task.validation_step(batch, index)
            known = (batch.targets != IGNORED).sum(dim=0)
            count[: len(known)] += known
    positions = task.metrics.position_loss.compute()
    assert torch.equal(task.metrics.position_loss.count, count)
    assert len(set(count.tolist())) > 1, "the positions do not differ in how often they are predicted"
    loss = task.metrics.compute()["loss"].item()
    assert ((positions * count).sum() / count.sum()).item() == pytest.approx(loss, rel=1e-6)
    assert task.metrics.position_loss.count.sum() == 0, "does not start again"


@torch.no_grad()
def test_the_loss_at_a_position_is_the_mean_over_its_predictions() -> None:
    metrics = TextMetrics(5, 4)
    logits, targets = torch.randn(3, 4, 5), torch.randint(5, (3, 4))
    targets[0, 1] = targets[:, 3] = IGNORED
    batch = SimpleNamespace(targets=targets, answers=targets != IGNORED)
    for part in (slice(0, 4), slice(0, 2)):  # the last window may be shorter
        piece = SimpleNamespace(targets=targets[:, part], answers=batch.answers[:, part])
        metrics.update(logits[:, part], piece, torch.tensor(1.0))
    surprise = -logits.log_softmax(-1).gather(2, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1).double()
    expected = torch.stack([surprise[:, 0].mean(), surprise[1:, 1].mean(), surprise[:, 2].mean()])
    positions = metrics.position_loss.compute()
    torch.testing.assert_close(positions[:3], expected, rtol=1e-6, atol=0)
    assert positions[3].isnan()


@pytest.mark.parametrize("level", ["char", "word"])
def test_the_baseline_is_the_unigram_model_up_to_smoothing(level: str) -> None:
    corpus = build_task(*OWN, "model=rnn", **{"corpus.level": level}).data.corpus
    train, test = corpus.splits["train"], corpus.splits["test"]
    (probabilities,) = ngrams.witten_bell(train, test, len(corpus.vocabulary), 1)
    bits = -np.log2(probabilities[1:]).mean()
    assert unigram_loss(corpus) / math.log(2) == pytest.approx(bits, abs=1e-4)
    counts = np.bincount(train) / len(train)  # all symbols of the test split occur in training
    assert unigram_loss(corpus) == pytest.approx(-np.log(counts[test[1:]]).mean(), abs=1e-4)


def test_the_baseline_of_symbols_that_training_lacks_is_finite() -> None:
    corpus = Corpus("made", Vocabulary("char", "abc"), {s: np.array([0, 1, 2], np.uint8) for s in SPLITS})
    corpus.splits["train"] = np.array([0, 1, 0, 1], np.uint8)
    assert unigram_loss(corpus) == pytest.approx(-(math.log(3 / 7) + math.log(1 / 7)) / 2)


rendering = functools.cache(tiny)


def drawn(corpus: Corpus, window: int = 20, wrong: tuple[int, ...] = ()) -> list[str]:
    """Return the lines of a picture of the test split's first row, with other predictions at some places."""
    batch = Windows(corpus.splits["test"], 1, min(window, len(corpus.splits["test"]) - 1))[0]
    predicted = batch.targets.clone()
    predicted[0, list(wrong)] = 0
    task = rendering()
    task.data.corpus = corpus
    return task.render(batch, predicted).splitlines()


def test_characters_are_drawn_side_by_side() -> None:
    text = "a cat\tsat\n"
    assert drawn(corpus_of(text, text, text), wrong=(0, 3)) == [
        "input       a_cat⇥sat",
        "target      _cat⇥sat⏎",
        "prediction  ⇥ca⇥⇥sat⏎",
    ]


def test_words_are_drawn_in_columns() -> None:
    words = ["the", "cat", "<eos>", "on", "the", "mat"]
    lines = drawn(corpus_of(words, words, words, "word"), wrong=(1,))
    assert lines == [
        "input       the cat   <eos> on  the",
        "target      cat <eos> on    the mat",
        "prediction  cat the   on    the mat",
    ]


@pytest.mark.parametrize("level", ["char", "byte"])
def test_control_characters_do_not_break_lines_or_the_terminal(level: str) -> None:
    text = "".join(map(chr, range(256))) + ("\u2028\u200b\ufeff" if level == "char" else "")
    corpus = corpus_of(text, text, text, level)
    for start in range(0, len(text) - 1, 15):
        corpus.splits["test"] = corpus.splits["train"][start:]
        lines = drawn(corpus, window=15)
        assert len(lines) == 3
        assert all(line.isprintable() for line in lines)
    corpus.splits["test"] = corpus.vocabulary.encode("\x00\r\n\x1b a" if level == "char" else b"\x00\r\n\x1b a")
    assert drawn(corpus)[0] == r"input       \x00 \r ⏎    \x1b _"
    assert drawn(corpus)[1] == r"target      \r   ⏎  \x1b _    a"


def test_unicode_is_rendered_unchanged() -> None:
    text = "größe λ×η 日本\n"
    lines = drawn(corpus_of(text, text, text))
    assert lines[0] == "input       größe_λ×η_日本"
    assert lines[1] == "target      röße_λ×η_日本⏎"


def test_a_long_window_is_cut_to_the_line_width() -> None:
    text = "abcdefghij" * 30
    for lines in (
        drawn(corpus_of(text, text, text), window=200),
        drawn(corpus_of(["mountain"] * 99, ["mountain"] * 99, ["mountain"] * 99, "word"), window=50),
        drawn(corpus_of(["x" * 200] * 9, ["x" * 200] * 9, ["x" * 200] * 9, "word")),
    ):
        assert len(lines) == 3
        words = lines[0][12:]
        assert len(words) in (60, 53, 200)  # 60 characters, 6 words of 8 with spaces, at least one word
        assert lines[1][12:] == lines[2][12:]


def test_a_missing_target_is_rendered_as_a_dot() -> None:
    task = tiny()
    batch = next(iter(task.data.loader("test")))
    target = task.render(batch, batch.targets.clamp(min=0), row=1).splitlines()[1]
    assert target[12:17] == "·····", "the warm-up"
    assert "·" not in target[17:]


def test_words_are_read_scored_and_drawn_from_the_command_line(tmp_path: Path) -> None:
    outcome = invoke(
        *small_text(tmp_path, 12_000),
        "model=gru",
        "task.corpus.level=word",
        "task.window=20",
        "trainer.max_steps=8",
        f"hydra.run.dir={tmp_path}",
    )
    assert outcome.status == 0, outcome.err
    assert "test bits per symbol" in outcome.out
    assert "test perplexity" in outcome.out
    examples = (tmp_path / "examples.txt").read_text().split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in examples] == ["step", "input", "target", "prediction"]
    assert " the " in examples[1]


TEXT = b"the quick brown fox jumps over the lazy dog. " * 20

# a file's content → other options, what the message begins with, what it says
REFUSED: dict[str, tuple[bytes | None, tuple[str, ...], str, str]] = {
    "empty": (b"", (), "task.corpus.path={path}", "is empty"),
    "one symbol": (b"a", (), "task.corpus.path={path}", "must have at least 2"),
    "no words": (b" \t ", ("level=word",), "task.corpus.path={path}", "must have at least 2"),
    "no validation": (b"abcdefgh" * 2, (), "task.corpus.path={path}", "its val split has 1 chars"),
    "shorter than a window": (TEXT[:60], ("task.window=54",), "task.window=54", "at most 53"),
    "shorter than a batch": (TEXT[:60], ("task.batch_size=54",), "task.batch_size=54", "at most 53"),
    "batch too large": (TEXT, ("task.batch_size=5000",), "task.batch_size=5000", "at most 809"),
    "not UTF-8": (TEXT + b"\xff\xfe", (), "task.corpus.path={path}", "is not UTF-8: byte 0xff at offset 900"),
    "words not in UTF-8": (TEXT + b"\xe9", ("level=word",), "task.corpus.path={path}", "is not UTF-8: byte 0xe9"),
    "unseen character": (TEXT + "é".encode(), ("minimum_count=1",), "task.corpus.path={path}", "'é' (U+00E9)"),
    "unseen by default": (TEXT + "é".encode(), (), "task.corpus.path={path}", "'é' (U+00E9)"),
    "unseen byte": (TEXT + b"\xff", ("level=byte",), "task.corpus.path={path}", "test split: byte 0xff"),
    "unseen word": (TEXT + b" new", ("level=word", "minimum_count=1"), "task.corpus.path={path}", "'new'"),
    "no file": (None, (), "task.corpus.path={path}", "No such file"),
    "level of nothing": (TEXT, ("level=letter",), "task.corpus.level=letter", "char, word, byte"),
}


BY_COMMAND = ("empty", "shorter than a window")  # the others are refused where the task is built


@pytest.mark.parametrize("case", REFUSED)
def test_texts_that_cannot_be_used_are_refused_in_one_line(case: str, tmp_path: Path) -> None:
    content, options, begins, says = REFUSED[case]
    path, data, run = tmp_path / "text.txt", tmp_path / "data", tmp_path / "run"
    data.mkdir()
    if content is not None:
        path.write_bytes(content)
    arguments = [option if "." in option else f"task.corpus.{option}" for option in options]
    given = [*arguments, f"task.corpus.path={path}", f"task.corpus.data_dir={data}"]
    if case in BY_COMMAND:
        chosen = {option.split("=")[0] for option in arguments}
        base = [item for item in SMALL_TEXT if item.split("=")[0] not in chosen]
        error = invoke(*base, "model=gru", *given, f"hydra.run.dir={run}").error
        assert not list(run.rglob("*.ckpt")) + list(run.rglob("*.tmp"))
        assert not (run / "DONE").exists()
    else:
        config = compose_config(*SMALL_TEXT, "model=gru")
        config.merge_with_dotlist(given)
        with pytest.raises(UserError) as raised:
            build.build_task(config)
        error = str(raised.value)
    assert error.startswith(begins.format(path=path) + ": "), error
    assert says in error
    assert "\n" not in error
    if not begins.startswith(("task.window", "task.batch_size")):  # there the text itself is fine, and kept
        assert not list(data.iterdir()), "something was written into the data folder"


def test_a_text_of_one_symbol_without_callbacks_is_trained_to_the_end(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("a" * 300)  # the loss is 0
    base = [item for item in SMALL_TEXT if "callbacks" not in item and "task.window" not in item]
    more = (
        f"task.corpus.path={tmp_path / 'text.txt'}",
        f"paths.data_dir={tmp_path}",
        "task.window=10",
    )
    run = tmp_path / "run"
    outcome = invoke(*base, *more, "model=gru", "callbacks=none", "trainer.max_steps=3", f"hydra.run.dir={run}")
    assert outcome.status == 0, outcome.err
    assert json.loads((run / "DONE").read_text())["monitor"] == 0


def test_a_folder_is_refused_as_a_text(tmp_path: Path) -> None:
    error = invoke(*SMALL_TEXT, "model=gru", f"task.corpus.path={tmp_path}", f"hydra.run.dir={tmp_path / 'run'}").error
    assert error == f"task.corpus.path={tmp_path}: cannot be read (Is a directory)"


def test_a_missing_corpus_is_an_error_with_the_fetch_command(tmp_path: Path) -> None:
    for name in ("ptb_char", "ptb_word", "text8", "enwik8"):
        config = compose_config("task=ptb_char", "model=gru")
        config.task.corpus.update({"name": name, "data_dir": str(tmp_path)})
        with pytest.raises(OptionError) as raised:
            build.build_task(config)
        error = str(raised.value)
        assert error.startswith(f"task.corpus.name={name}: {tmp_path}/")
        assert f" does not exist; `gyral fetch {name.partition('_')[0]}` downloads it from http" in error


def test_a_test_measures_ngram_models_and_the_run_is_the_same_without_them_or_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GYRAL_CACHE", str(tmp_path / "cache"))
    options = (*small_text(tmp_path), "model=gru", "trainer.max_steps=2", f"hydra.run.dir={tmp_path / 'run'}")
    assert invoke(*options, "task.ngrams=[1,3]").status == 0
    results = json.loads((tmp_path / "run" / "DONE").read_text())
    corpus = load_file(tmp_path / "text.txt", tmp_path)
    scores = ngrams.evaluate(corpus, 3)
    for order in (1, 3):
        assert results[f"test/ngram_{order}_bits"] == pytest.approx(scores[order - 1].bits, rel=1e-6)
        assert results[f"test/ngram_{order}_perplexity"] == pytest.approx(scores[order - 1].perplexity, rel=1e-6)
    assert "test/ngram_2_bits" not in results
    assert list((tmp_path / "cache").glob("ngrams-*.json"))
    assert "val/ngram" not in invoke(f"run={tmp_path / 'run'}", "split=val", entry="evaluate").out
    # A run that was started without the option, and with the text in another data folder, is the same run.
    moved = [f"paths.data_dir={tmp_path / 'moved'}" if item.startswith("paths.") else item for item in options]
    outcome = invoke(*moved)
    assert outcome.status == 0, outcome.err
    assert "is DONE and is not trained again" in outcome.err


def test_training_on_the_sum_scales_the_gradient_by_the_window_and_no_metric(tmp_path: Path) -> None:
    found = {}
    for loss in ("mean", "sum"):
        torch.manual_seed(2)
        task = build_task(*small_text(tmp_path), "model=gru", f"task.loss={loss}")
        trainer = SimpleNamespace(log_every_n_steps=100, global_step=0, accumulate_grad_batches=1)
        task.trainer = trainer
        returned = task.training_step(streamed(task, 1)[0], 0)
        gradients = torch.autograd.grad(returned, list(task.parameters()), materialize_grads=True)
        found[loss] = returned.detach(), gradients, task._losses, evaluate(task)
    assert task.data.window > 1
    steps = task.data.window
    torch.testing.assert_close(found["sum"][0], steps * found["mean"][0])
    for summed, mean in zip(found["sum"][1], found["mean"][1], strict=True):
        torch.testing.assert_close(summed, steps * mean, rtol=1e-5, atol=1e-8)
    assert found["sum"][2:] == found["mean"][2:], "metrics differ"


REGULARIZED = ("model=lstm", "model.num_layers=2", "model.output_dropout=0.5", "model.locked_dropout=true")


def test_training_adds_activation_regularization_but_logs_the_loss_without_it() -> None:
    task = tiny("gru", *REGULARIZED, "task.activation_regularization=2", "task.temporal_regularization=0.5")
    task.trainer = SimpleNamespace(accumulate_grad_batches=1, log_every_n_steps=100, global_step=0, loggers=[])
    [batch] = streamed(task, 1)
    torch.manual_seed(4)
    total = task.training_step(batch, 0)
    torch.manual_seed(4)
    outputs, _, _ = task.model.run(batch.inputs)
    dropped = task.model.output_dropout(outputs)
    loss = task.loss(task.model.head(dropped).transpose(0, 1), batch)
    assert (dropped == 0).any()
    change = outputs[1:] - outputs[:-1]
    torch.testing.assert_close(total, loss + 2 * dropped.square().mean() + 0.5 * change.square().mean())
    torch.testing.assert_close(task._losses[0], loss.detach())
    total.backward()
    task.eval()
    plain = tiny("gru", *REGULARIZED).eval()
    plain.load_state_dict(task.state_dict())
    with torch.no_grad():
        assert torch.equal(task(batch), plain(batch)), "an evaluation is regularized"


def test_the_learning_rate_of_a_step_is_in_proportion_to_its_window(tmp_path: Path) -> None:
    arguments = (*small_text(tmp_path), "model=gru", "optimizer=sgd", "optimizer.lr=0.5", "scheduler=step")
    varied = ("task.window_deviation=3", "trainer.log_every_n_steps=1", "scheduler.step_size=4", "trainer.max_steps=12")
    outcome = invoke(*arguments, *varied, f"hydra.run.dir={tmp_path / 'run'}")
    assert outcome.status == 0, outcome.err
    config = compose_config(*arguments, *varied)
    windows = streamed(build.build(config), 12)
    expected = [0.5 * 0.5 ** (step // 4) * w.inputs.shape[1] / config.task.window for step, w in enumerate(windows)]
    assert len({w.inputs.shape[1] for w in windows}) > 3
    rates = read_metrics(tmp_path / "run", "train/learning_rate")[1]
    assert rates == pytest.approx(expected, rel=1e-6)


def test_a_corpus_without_the_sentences_of_the_treebank_has_the_same_vocabulary() -> None:
    words = ["a", "b", END_OF_LINE, "c", END_OF_LINE, "a", "b", "c", END_OF_LINE, "b"]
    assert corpora.without_sentences(words, {("a", "b"), ("c", "x")}) == words[3:]
    assert corpora.without_sentences(words, set()) == words
    with pytest.raises(OptionError, match=r"^exclude=treebank: must be null for ptb_char; ptb_word has sentences$"):
        corpora.load("ptb_char", "data", exclude="treebank")


@pytest.mark.slow
def test_only_the_sentences_of_the_treebank_are_removed_from_the_text() -> None:
    whole, held_out = (
        build_or_skip(compose_config("task=ptb_word", "model=gru", *options)).data.corpus
        for options in ((), ("task.corpus.exclude=treebank",))
    )
    assert whole.vocabulary.symbols == held_out.vocabulary.symbols
    end = whole.vocabulary.encode([END_OF_LINE], "text")[0]
    assert [len(corpus.splits["train"]) for corpus in (whole, held_out)] == [929_589, 834_228]
    assert [int((corpus.splits["train"] == end).sum()) for corpus in (whole, held_out)] == [42_068, 37_519]
    assert all(np.array_equal(whole.splits[split], held_out.splits[split]) for split in ("val", "test"))
