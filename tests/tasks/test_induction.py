"""Induction heads against a solver that reads sequences token by token."""

from typing import Any

import numpy as np
import pytest

from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED
from gyral.tasks.induction import InductionData
from tests.helpers.running import build_task


def data(**options: Any) -> InductionData:
    sizes = {"batch_size": 2500, "val_batches": 4, "test_batches": 1, "data_seed": 3}
    return InductionData(**{"length": 16, "test_lengths": [], **sizes, **options})


@pytest.mark.parametrize(("length", "tokens"), [(3, 3), (16, 16), (64, 5)])
def test_target_follows_the_special_token(length: int, tokens: int) -> None:
    special = tokens - 1
    batches = list(data(length=length, vocabulary_size=tokens).loader("val"))
    inputs = [row for batch in batches for row in batch.inputs.tolist()]
    targets = [row for batch in batches for row in batch.targets.tolist()]
    assert len(inputs) == 10_000
    for read, wanted in zip(inputs, targets, strict=True):
        assert read.count(special) == 2
        assert read[-1] == special
        assert wanted == [IGNORED] * (length - 1) + [read[read.index(special) + 1]]
    places = np.bincount([read.index(special) for read in inputs])
    assert places / 10_000 == pytest.approx(np.full(length - 2, 1 / (length - 2)), abs=0.02)
    answers = np.bincount([row[-1] for row in targets])
    assert answers / 10_000 == pytest.approx(np.full(special, 1 / special), abs=0.02)


def test_lengths_and_sizes() -> None:
    made = data(length=8, test_lengths=[4, 32, 64], batch_size=8)
    assert [batch.inputs.shape for batch in made.loader("test")] == [(8, 8), (8, 4), (8, 32), (8, 64)]
    task = build_task("task=induction", "model=gru", "model.cell.hidden_size=4", test_batches=1)
    assert [batch.inputs.shape[1] for batch in task.data.loader("test")] == [256, 64, 1024, 4096]
    assert (task.model.vocabulary_size, task.model.head.out_features) == (16, 15)
    assert task.baseline == pytest.approx(np.log(15))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"length": 2}, "length=2: must be an integer ≥ 3"),
        ({"vocabulary_size": 2}, "vocabulary_size=2: must be an integer from 3 to 1000000"),
        ({"test_lengths": [64, 32]}, "test_lengths=[64, 32]: must be increasing integers ≥ 3, such as [4, 6]"),
    ],
)
def test_options_out_of_bounds_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as raised:
        data(**options)
    assert str(raised.value) == said
