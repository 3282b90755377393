"""Titles of figures, and the device of their batches."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from gyral.figures import memory, recovery, strips
from gyral.figures.common import add_title
from gyral.runs.directory import Run
from gyral.training import build
from tests.helpers.running import SMALL_ALGORITHM, build_task, compose_config


def test_a_title_has_readable_names_and_fits(tmp_path: Path) -> None:
    config = compose_config("model=rum", "task=recall", "model.cell.lambd=1.0", "model.cell.layer_norm=true")
    figure = Figure(figsize=(3.25, 2))
    add_title(figure, Run(tmp_path, config), "cos θ between the embedded input and the memory target")
    assert figure.get_suptitle().splitlines() == [
        "RUM λ = 1, layer norm on recall",
        "cos θ between the embedded input and the memory",
        "target",
    ]


# the parts of figures that run a model, given a run whose task is loaded
MEASURED: dict[str, tuple[tuple[str, ...], Callable[[Any], Any]]] = {
    "strips": (
        ("model=gru", *SMALL_ALGORITHM),
        lambda run: strips.predict_examples(build.load_trained(run, "best")[0]),
    ),
    "memory": (("model=lantm", *SMALL_ALGORITHM), memory.load_trace),
    "recovery": (
        ("model=gru", "task=group", "task.length=3", "task.batch_size=8", "model.cell.hidden_size=6"),
        lambda run: recovery.measure_recovery(build.load_trained(run, "best")[0]),
    ),
}


@pytest.mark.parametrize("name", MEASURED)
def test_models_read_batches_on_their_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options, measure = MEASURED[name]
    task = build_task(*options).eval()
    monkeypatch.setattr(build, "load_trained", lambda *_: (task, 1))
    moved: set[int] = set()

    def move(batch: Any, device: Any, index: int) -> Any:
        assert device == task.device
        copied = tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, batch)
        moved.update(leaf.untyped_storage().data_ptr() for leaf in tree_leaves(copied) if isinstance(leaf, Tensor))
        return copied

    def check(_: Any, inputs: tuple[Any, ...]) -> None:
        read = tree_leaves(inputs[0])
        assert read
        assert all(leaf.untyped_storage().data_ptr() in moved for leaf in read)

    monkeypatch.setattr(task, "transfer_batch_to_device", move)
    task.model.register_forward_pre_hook(check)
    measure(None)
    assert moved
