"""The tasks of MAD against solvers that read sequences token by token."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED
from gyral.models.attention import LastStep
from gyral.tasks.mad import Decoder, MadData
from tests.helpers.running import build_task

# for the contract of tasks
OPTIONS = {"name": "noisy_recall"}  # whose options are those of all tasks


def data(name: str, **options: Any) -> MadData:
    sizes = {"train_size": 10_000, "val_size": 10_000, "test_size": 5, "data_seed": 3}
    return MadData(name=name, **{**sizes, **options})


def rows(made: MadData, split: str = "val") -> list[tuple[list[int], list[int], list[bool]]]:
    """Return the inputs, targets and answers of thousands of sequences."""
    batch = made.assemble(made.rows(split))
    assert len(batch.inputs) >= 2_000
    return list(zip(*(field.tolist() for field in (batch.inputs, batch.targets, batch.answers)), strict=True))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("in_context_recall", {"val_size": 2_000}),
        ("in_context_recall", {"length": 12, "vocabulary_size": 7}),
        ("noisy_recall", {"val_size": 2_000}),
        ("noisy_recall", {"length": 8, "noise": 0.8, "noise_tokens": 3}),
    ],
)
def test_recall_answers_with_the_value_that_the_key_had(name: str, options: dict[str, Any]) -> None:
    made = data(name, **options)
    keys, noise = made.keys, range(made.plain, made.tokens)
    noisy = pairs = 0
    for inputs, targets, answers in rows(made):
        tokens = [*inputs, targets[-1]]
        assert len(tokens) == made.protocol.length
        assert targets == tokens[1:]
        values: dict[int, int] = {}
        wanted = []
        for key, value in zip(tokens[::2], tokens[1::2], strict=True):
            if key in noise:
                assert value in noise
            else:
                assert key < keys <= value < made.plain
                assert values.get(key, value) == value
            wanted += [False, key in values]
            if key not in noise:
                values[key] = value
            noisy, pairs = noisy + (key in noise), pairs + 1
        assert answers == wanted[1:]
        assert answers[-1], "the last key has occurred before"
        assert values, "a sequence has a pair that is not noise"
    before_last = made.protocol.length // 2 - 1
    assert noisy / pairs == pytest.approx(made.protocol.noise * (before_last - 1) / (before_last + 1), abs=0.01)


def test_keys_values_and_last_keys_are_uniform() -> None:
    made = data("in_context_recall", length=8)
    tokens = np.array([[*inputs, targets[-1]] for inputs, targets, _ in rows(made)])
    for place in (0, 4, 6):
        assert np.bincount(tokens[:, place]) / 10_000 == pytest.approx(np.full(8, 1 / 8), abs=0.015)
    for place in (1, 7):
        assert np.bincount(tokens[:, place])[8:] / 10_000 == pytest.approx(np.full(8, 1 / 8), abs=0.015)
    # Of three pairs with two keys, the one that occurs twice is not asked more often.
    twice = [row for row in tokens if len({row[0], row[2], row[4]}) == 2]
    rarer = [sum(row[place] == row[6] for place in (0, 2, 4)) == 1 for row in twice]
    assert np.mean(rarer) == pytest.approx(0.5, abs=0.03)


def motifs(tokens: list[int], keys: int, padding: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the pairs of motifs in a sequence without its padding: runs of keys, then runs of values."""
    found: list[tuple[list[int], list[int]]] = []
    for token in tokens:
        assert token != padding
        if token < keys and (not found or found[-1][1]):
            found.append(([], []))
        found[-1][token >= keys].append(token)
    return [(tuple(key), tuple(value)) for key, value in found]


@pytest.mark.named("train-24")
@pytest.mark.parametrize("options", [{}, {"length": 24, "vocabulary_size": 9}], ids=["128", "24"])
@pytest.mark.parametrize("split", ["train", "val"])
def test_fuzzy_recall_answers_with_the_motif_that_the_key_had(split: str, options: dict[str, Any]) -> None:
    made = data("fuzzy_recall", **options)
    padding, sizes, room = made.tokens - 1, [0, 0, 0, 0], 0
    for inputs, targets, answers in rows(made, split):
        tokens = [*inputs, targets[-1]]
        assert len(tokens) == made.protocol.length + 1
        assert targets == tokens[1:]
        padded = next(step for step, token in enumerate(tokens) if token != padding)
        wanted, values = [False] * padded, dict[tuple[int, ...], tuple[int, ...]]()
        pairs = motifs(tokens[padded:], made.keys, padding)
        for key, value in pairs:
            assert len(set(key)) == len(key) <= 3
            assert 1 <= len(set(value)) == len(value) <= 3
            assert values.get(key, value) == value
            wanted += [False] * len(key) + [key in values] * len(value)
            values[key] = value
            sizes[len(key)] += 1
        assert answers == wanted[1:]
        assert answers[-1], "the last key has occurred before"
        room = max(room, padded)
    assert room <= 2 * 6, "another pair would have fitted"
    shares = np.array(sizes) / sum(sizes)
    assert shares.tolist() == [0, 0, 0, 1] if split == "val" else shares[1:].min() > 0.25


def test_memorization_answers_with_fixed_values() -> None:
    made = data("memorization", train_size=2_000, val_size=2_000)
    assert (made.keys, made.plain, made.tokens, made.protocol.length) == (127, 255, 256, 32)
    values: dict[int, int] = {}
    for split in ("train", "val"):
        for inputs, targets, answers in rows(made, split):
            assert inputs[1::2] == [255] * 16
            assert targets[::2] == [IGNORED] * 16
            assert answers == [False, True] * 16
            for key, value in zip(inputs[::2], targets[1::2], strict=True):
                assert values.setdefault(key, value) == value
    assert sorted(values) == list(range(127))
    assert len(set(values.values())) == 127
    assert set(values.values()) <= set(range(127, 255))
    assert data("memorization", data_seed=4).memorized.tolist() != made.memorized.tolist()


def test_compression_predicts_all_tokens_from_the_last_state() -> None:
    for inputs, targets, answers in rows(data("compression", val_size=2_000)):
        assert len(inputs) == 32
        assert inputs == targets
        assert inputs[-1] == 15 not in inputs[:-1]
        assert all(answers)
    task = build_task("task=mad", "model=gru", "model.cell.hidden_size=6", name="compression")
    batch = next(iter(task.data.loader("val")))
    assert isinstance(task.model.readout, Decoder)
    assert task(batch).shape == (128, 32, 16)
    assert task.metrics.names == ("loss", "accuracy", "sequence_accuracy")
    hidden = task.model.run(batch.inputs)[0]
    changed = hidden.clone()
    changed[:-1] = 0
    assert torch.equal(task.model.read_out(changed, hidden), task(batch)), "only the last output enters"
    assert not torch.allclose(task(batch)[:, 0], task(batch)[:, 1]), "the positions differ"
    task.loss(task(batch), batch).backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in task.parameters())


@pytest.mark.parametrize("width", [1, 5, 8])
def test_decoder_has_sinusoidal_positions_of_any_width(width: int) -> None:
    positions = Decoder(width, 3, 7, length=4).positions
    assert positions.shape == (4, width)
    expected = [
        [(math.sin, math.cos)[i % 2](step / 10_000 ** ((i - i % 2) / max(width, 2))) for i in range(width)]
        for step in range(4)
    ]
    torch.testing.assert_close(positions, torch.tensor(expected))


@pytest.mark.parametrize(
    ("name", "vocabulary", "steps", "train"),
    [
        ("in_context_recall", 16, 127, 12_800),
        ("fuzzy_recall", 16, 128, 12_800),
        ("noisy_recall", 32, 127, 12_800),
        ("compression", 16, 32, 12_800),
        ("memorization", 256, 32, 256),
    ],
)
def test_sizes_are_published(name: str, vocabulary: int, steps: int, train: int) -> None:
    task = build_task("task=mad", "model=gru", "model.cell.hidden_size=4", name=name)
    batch = next(iter(task.data.loader("val")))
    assert batch.inputs.shape == (128, steps)
    assert task.model.vocabulary_size == task.objective.output_size == vocabulary
    assert (len(task.data.rows("train")), len(task.data.rows("test"))) == (train, 1280)
    assert isinstance(task.model.readout, Decoder if name == "compression" else type(None))
    assert not isinstance(task.model.readout, LastStep)


@pytest.mark.parametrize("name", ["in_context_recall", "noisy_recall", "fuzzy_recall", "compression", "memorization"])
def test_baseline_is_the_entropy_of_the_targets_at_each_step(name: str) -> None:
    made = data(name, length=12, vocabulary_size=None if name != "memorization" else 20)
    targets = made.assemble(made.rows("val")).targets
    losses = []
    for column in targets.T:
        shares = np.bincount(column[column != IGNORED]) / max(1, int((column != IGNORED).sum()))
        losses += [-sum(share * math.log(share) for share in shares if share)] * int((column != IGNORED).any())
    assert made.baseline() == pytest.approx(np.mean(losses), rel=2e-3)


@pytest.mark.parametrize("name", ["in_context_recall", "noisy_recall", "fuzzy_recall", "compression", "memorization"])
def test_rendering_shows_the_answers(name: str) -> None:
    task = build_task("task=mad", "model=gru", name=name, length=12)
    batch = next(iter(task.data.loader("val")))
    source, target, prediction = (line[12:] for line in task.render(batch, batch.targets).splitlines())
    assert target == prediction
    assert len(source.split()) == batch.inputs.shape[1]
    assert len(target.split()) == batch.answers[0].sum()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"name": "recall"},
            "name=recall: must be one of in_context_recall, noisy_recall, fuzzy_recall, compression, memorization",
        ),
        ({"name": "in_context_recall", "length": 7}, "length=7: must be even, since keys and values come in pairs"),
        ({"name": "in_context_recall", "length": 2}, "length=2: must be an integer ≥ 4"),
        ({"name": "fuzzy_recall", "length": 10}, "length=10: must be an integer ≥ 11"),
        ({"name": "fuzzy_recall", "vocabulary_size": 6}, "vocabulary_size=6: must be an integer from 7 to 30000"),
        ({"name": "compression", "noise": 0.1}, "noise=0.1: must be 0 for name=compression"),
        ({"name": "noisy_recall", "noise": 1}, "noise=1: must be a finite number ≥ 0 and < 1"),
        ({"name": "noisy_recall", "noise_tokens": 0}, "noise_tokens=0: must be an integer from 1 to 1000"),
        ({"name": "memorization", "train_size": 9}, "batch_size=128: must be at most train_size, 9"),
    ],
)
def test_options_out_of_bounds_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as raised:
        MadData(**options)
    assert str(raised.value) == said
