"""Mixed precision (trainer.precision=bf16-mixed) trains every model as float32 does; states stay in float32.

Pure half precision (bf16-true, 16-true) trains and tests every model, or refuses.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

from gyral.runs.directory import load_run
from gyral.training import build
from tests.helpers.found import at_least
from tests.helpers.running import SMALL, SMALL_COPY, choices, compose_config, invoke, small_text

STEPS = 12
CELLS = at_least(45, choices("cell"))
SAMPLED = ("rum",)  # the other cells are slow proofs
TASKS = {
    "copy": SMALL_COPY,
    "text": (
        *(option for option in SMALL if not option.startswith("task.")),
        "task=text_file",
        "task.batch_size=4",
        "task.window=16",
    ),
}
# options that the small size of the other models does not allow
OWN = {"on_lstm": ("model.cell.chunk_size=4",)}


def train(directory: Path, task: str, model: str, *overrides: str) -> tuple[Any, list[float]]:
    """Train for some steps without validation; return the task and its losses."""
    base = [o for o in TASKS[task] if "callbacks" not in o and "max_steps" not in o]
    config = compose_config(
        *base,
        f"model={model}",
        "optimizer=adam",
        "callbacks=none",
        "+trainer.limit_val_batches=0",
        f"trainer.max_steps={STEPS}",
        f"trainer.log_every_n_steps={2 * STEPS}",
        f"paths.data_dir={directory}",
        *OWN.get(model, ()),
        *overrides,
    )
    build.configure_process(config)
    built = build.build_task(config)
    losses: list[float] = []
    compute = built.loss

    def noted(*arguments: Any) -> Any:
        loss = compute(*arguments)
        losses.append(loss.item())
        return loss

    built.loss = noted
    build.build_trainer(config, directory).fit(built, datamodule=built.data)
    return built, losses


@pytest.mark.parametrize("backend", ["auto", pytest.param("reference", marks=pytest.mark.slow)])
@pytest.mark.parametrize("task", [pytest.param("copy", marks=pytest.mark.slow), "text"])
@pytest.mark.parametrize(
    "model", [pytest.param(name, marks=[] if name in SAMPLED else pytest.mark.slow) for name in CELLS]
)
def test_bfloat16_trains_like_float32(tmp_path: Path, model: str, task: str, backend: str) -> None:
    _, expected = train(tmp_path, task, model, f"model.backend={backend}")
    mixed, losses = train(tmp_path, task, model, f"model.backend={backend}", "trainer.precision=bf16-mixed")
    assert len(losses) == STEPS
    assert losses != expected, "autocast had no effect"
    assert all(map(math.isfinite, losses))
    # single steps may differ more: early on some cells turn on the signs of numbers near zero
    assert sum(losses[-4:]) == pytest.approx(sum(expected[-4:]), rel=0.02)
    assert all(parameter.dtype == torch.float32 for parameter in mixed.parameters())
    if task == "text":
        carried = tree_leaves(mixed._states[True])
        assert carried
        assert {leaf.dtype for leaf in carried if leaf.is_floating_point()} == {torch.float32}


def run_pure(directory: Path, precision: str, model: str, base: tuple[str, ...], *overrides: str) -> Any:
    """Train for three steps in half precision, validate and test."""
    base = tuple(option for option in base if not option.startswith(("trainer.max_steps", "trainer.val_check")))
    steps = ("trainer.max_steps=3", "trainer.val_check_interval=3", f"hydra.run.dir={directory / 'run'}")
    own = OWN.get(model, ())
    return invoke(*base, *steps, f"model={model}", f"trainer.precision={precision}", *own, *overrides)


DTYPES = {"bf16-true": torch.bfloat16, "16-true": torch.float16}
# torch has no complex numbers of half precision
COMPLEX = ("eurnn", "fs_eurnn", "full_urnn", "urnn")


@pytest.mark.parametrize("precision", ["bf16-true", pytest.param("16-true", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "model", [pytest.param(name, marks=[] if name == "rum" else pytest.mark.slow) for name in CELLS]
)
def test_pure_half_precision_trains_and_tests_or_refuses(tmp_path: Path, model: str, precision: str) -> None:
    # with its default of 1e-8 the optimizer refuses float16
    options = ("optimizer=adam", "optimizer.eps=1e-4", "task.test_size=128")
    outcome = run_pure(tmp_path, precision, model, SMALL_COPY, *options)
    if model in COMPLEX:
        assert "complex and supports the dtypes float32 and float64, not " in outcome.error
    else:
        assert outcome.status == 0, outcome.err
        reported = json.loads((tmp_path / "run" / "DONE").read_text())
        for name, value in measure(tmp_path / "run", DTYPES[precision]).items():
            assert reported[f"test/{name}"] == pytest.approx(value, rel=1e-4), name


def measure(directory: Path, dtype: torch.dtype) -> dict[str, float]:
    """Return the loss and the accuracy of a run of `SMALL_COPY` over all of its test at once, in double precision."""
    task, _ = build.load_trained(load_run(directory), "best")
    task.model.to(dtype)
    with task.evaluating():
        outputs, targets, answers = zip(
            *((task(batch).double(), batch.targets, batch.answers) for batch in task.data.loader("test")), strict=True
        )
    logits, labels, asked = torch.cat(outputs), torch.cat(targets), torch.cat(answers)
    correct = (logits.argmax(dim=-1) == labels)[asked]
    return {"loss": task.objective.loss(logits, labels).item(), "accuracy": correct.double().mean().item()}


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16-true", "16-true"])
def test_states_that_batches_carry_over_have_the_precision_of_the_model(tmp_path: Path, precision: str) -> None:
    outcome = run_pure(tmp_path, precision, "rum", small_text(tmp_path), "optimizer=adam", "optimizer.eps=1e-4")
    assert outcome.status == 0, outcome.err


@pytest.mark.slow
def test_an_epsilon_that_float16_rounds_to_zero_is_refused(tmp_path: Path) -> None:
    outcome = run_pure(tmp_path, "16-true", "gru", SMALL_COPY, "optimizer=adam")
    assert outcome.error.startswith("optimizer.eps=1e-08: is zero in float16 (trainer.precision); must be ≥ 6e-05")
