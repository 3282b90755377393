"""Priority sort against a plain construction of single sequences."""

from typing import Any

import pytest

from gyral.core.errors import OptionError
from gyral.tasks.priority_sort import PrioritySortData
from tests.helpers.running import build_task

RUN = ("model=ntm", "model.cell.slots=6", "model.cell.width=4")  # of small_runs.py in tests/faults


def data(**options: Any) -> PrioritySortData:
    sizes = {"batch_size": 30, "val_batches": 1, "test_batches": 1, "data_seed": 3}
    return PrioritySortData(**{"items": 20, "highest": 16, "bits": 8, **sizes, **options})


def test_layout() -> None:
    [batch] = data().loader("train")
    assert batch.inputs.shape == (30, 37, 10)
    assert batch.targets.shape == (30, 37, 8)
    for row in range(30):
        *items, last = batch.inputs[row, :21].tolist()
        assert last == [0] * 9 + [1], "the flag that ends the input"
        assert batch.inputs[row, 21:].abs().sum() == 0
        assert {bit for item in items for bit in item[:8]} == {0, 1}
        assert all(-1 <= item[8] < 1 and item[9] == 0 for item in items)
        items.sort(key=lambda item: item[8], reverse=True)
        assert batch.targets[row, 21:].tolist() == [item[:8] for item in items[:16]]
        assert batch.targets[row, :21].isnan().all()
        assert batch.write[row].tolist() == [True] * 21 + [False] * 16
    priorities = batch.inputs[:, :20, 8]
    assert priorities.mean().item() == pytest.approx(0, abs=0.1)
    assert priorities.var().item() == pytest.approx(1 / 3, abs=0.05)


def test_memory_holds_the_input() -> None:
    reserved: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gyral.tasks.base.SequenceTask.reserve", lambda task, writes: reserved.append(writes))
        build_task("task=priority_sort", "model=gru")
    assert reserved == [21]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"highest": 21}, "highest=21: must be an integer from 1 to 20"),
        ({"items": 0}, "items=0: must be an integer ≥ 1"),
        ({"bits": 2.5}, "bits=2.5: must be an integer from 1 to 10000"),
    ],
)
def test_options_out_of_bounds_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError) as raised:
        data(**options)
    assert str(raised.value) == said
