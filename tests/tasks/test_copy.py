"""Copying memory against an independent slow construction, sequence by sequence."""

import pytest
import torch

from gyral.core.errors import OptionError
from gyral.tasks.copy import CopyData
from tests.helpers.running import build_task


def data(**options: int) -> CopyData:
    sizes = {"batch_size": 8, "train_size": 300, "val_size": 8, "test_size": 8, "data_seed": 3}
    return CopyData(**{"delay": 6, "symbols": 8, "recalled": 10, **sizes, **options})


def construct(symbols: list[int], delay: int, marker: int) -> tuple[list[int], list[int], list[bool]]:
    """Build one sequence as in the paper: the data, blanks, the marker, and blanks for the answer."""
    count = len(symbols)
    inputs = symbols + [0] * (delay - 1) + [marker] + [0] * count
    targets = [0] * (delay + count) + symbols
    answers = [False] * (delay + count) + [True] * count
    return inputs, targets, answers


@pytest.mark.parametrize(("delay", "symbols", "recalled"), [(6, 8, 10), (1, 8, 10), (3, 2, 1), (1, 2, 1), (2, 200, 4)])
def test_layout(delay: int, symbols: int, recalled: int) -> None:
    made = data(delay=delay, symbols=symbols, recalled=recalled)
    rows = made.rows("train")
    batch = made.assemble(rows)
    assert batch.inputs.shape == (300, delay + 2 * recalled)
    for row in range(0, 300, 7):
        inputs, targets, answers = construct(rows[row].tolist(), delay, symbols + 1)
        assert batch.inputs[row].tolist() == inputs
        assert batch.targets[row].tolist() == targets
        assert batch.answers[row].tolist() == answers
    assert rows.min() == 1
    assert rows.max() == (symbols if symbols < 200 else rows.max())


def test_sizes_equal_the_paper() -> None:
    built = build_task("task=copy", "model=gru", delay=500, recalled=10, train_size=128)
    assert (built.data.length, built.data.marker) == (520, 9)
    assert (built.model.vocabulary_size, built.model.head.out_features) == (10, 9)


def test_symbols_are_uniform_and_independent() -> None:
    rows = data(train_size=40_000).rows("train").long() - 1
    for counts in (torch.bincount(rows[:, 0]), torch.bincount(rows[:, 9]), torch.bincount(rows[:, 3] * 8 + rows[:, 4])):
        expected = 40_000 / len(counts)
        # chi-square: its mean is the degrees of freedom, its deviation √(2 · degrees)
        degrees = len(counts) - 1
        assert ((counts - expected) ** 2 / expected).sum() < degrees + 5 * (2 * degrees) ** 0.5


def test_long_delays_are_abbreviated_in_the_rendering() -> None:
    built = build_task("task=copy", "model=gru", delay=500, recalled=10, train_size=128)
    batch = built.data.assemble(built.data.rows("val")[:1])
    lines = built.render(batch, batch.targets).splitlines()
    assert all(len(line) < 120 for line in lines)
    assert all("…496…" in line for line in lines)
    symbols = " ".join(map(str, built.data.rows("val")[0].tolist()))
    assert lines[0].startswith(f"input       {symbols} · ·")
    assert lines[0].endswith("? " + " ".join("·" * 10))
    assert lines[1].endswith(f"· {symbols}")


def test_rendering_is_aligned_when_symbols_have_several_digits() -> None:
    built = build_task("task=copy", "model=gru", symbols=150, recalled=4, delay=3)
    batch = built.data.assemble(built.data.rows("val")[:1])
    lines = built.render(batch, batch.targets).splitlines()
    marker = lines[0].index("?")
    # the marker is at the last blank before the answers
    assert lines[1][marker] == lines[2][marker] == "·"


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("delay", 0, "an integer ≥ 1"),
        ("delay", 2.0, "an integer ≥ 1"),
        ("recalled", 0, "an integer ≥ 1"),
        ("symbols", 1, "an integer from 2 to 200"),
        ("symbols", 201, "an integer from 2 to 200"),
        ("batch_size", 0, "an integer ≥ 1"),
        ("train_size", True, "an integer ≥ 1"),
        ("data_seed", -1, "an integer ≥ 0"),
    ],
)
def test_options_out_of_bounds_are_refused(option: str, value: int, allowed: str) -> None:
    with pytest.raises(OptionError) as raised:
        data(**{option: value})
    assert str(raised.value) == f"{option}={value}: must be {allowed}"
