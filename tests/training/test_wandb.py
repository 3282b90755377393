"""What an offline run of Weights & Biases holds, read by W&B's own reader. The run failed once and was resumed."""

import os
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import wandb
from omegaconf import open_dict
from torch import Tensor

from gyral.config.instantiation import check_section
from gyral.core.errors import OptionError
from gyral.tasks.base import SequenceTask
from gyral.training import loggers
from gyral.training.loggers import set_beside
from gyral.training.wandb_run import RESUMES_OFFLINE, RunLogger, group_of
from tests.helpers.running import SMALL_RECALL, compose_config, invoke
from tests.helpers.wandb_log import of_type, read_records

OPTIONS = ("model=rum", "model.cell.lambd=1", "optimizer.lr=0.01", "seed=2")
WANDB = ("logger=wandb", "logger.wandb.tags=[mine,RUM]", "logger.wandb.notes='two of them'")
UPLOADS = ("logger.wandb.log_model=true", "logger.wandb.predictions=3")


def start_twice(folder: Path) -> list[list[dict[str, Any]]]:
    """Return the records of both starts of a run, the only job of a sweep."""
    options = [option for option in SMALL_RECALL if option not in ("logger=none", "task.eval_batch_size=8")]
    arguments = [
        "-m",
        *options,
        *OPTIONS,
        *WANDB,
        *UPLOADS,
        "callbacks.checkpoints.every=6",
        f"hydra.sweep.dir={folder}",
    ]
    step = SequenceTask.training_step

    def fail_late(task: SequenceTask, batch: Any, index: int) -> Tensor:
        if task.global_step == 21:  # steps after 18 are repeated
            raise MemoryError
        return step(task, batch, index)

    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("WANDB_")]:
            patch.delenv(name)
        patch.setenv("WANDB_MODE", "offline")
        with patch.context() as failing:
            failing.setattr(SequenceTask, "training_step", fail_late)
            assert invoke(*arguments).status == 1
        outcome = invoke(*arguments, plot=True)
    wandb.teardown()
    assert outcome.status == 0, outcome.err
    return [read_records(path) for path in sorted(folder.rglob("offline-run-*"))]


def test_a_run_that_was_resumed_is_recorded_whole(tmp_path: Path) -> None:
    starts = start_twice(tmp_path / "two_cells")
    check_that_both_starts_are_one_run_with_name_group_type_tags_and_notes(starts)
    check_that_the_number_of_steps_is_the_axis_and_never_decreases(starts)
    check_that_every_metric_is_logged_once_at_its_step(starts)
    check_that_the_summary_has_the_best_of_the_monitored_metric_results_and_picture(starts)
    check_that_configuration_code_packages_and_outcome_are_recorded(starts)


def history(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row["item"] for row in of_type(records, "history")]


def uploaded(starts: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the history of the run after the upload of both starts."""
    return [row for records in (starts if RESUMES_OFFLINE else starts[1:]) for row in history(records)]


def summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: value for update in of_type(records, "summary") for name, value in update["update"].items()}


def check_that_both_starts_are_one_run_with_name_group_type_tags_and_notes(starts: list[list[dict[str, Any]]]) -> None:
    first, second = (of_type(records, "run")[-1] for records in starts)
    assert first["run_id"] == second["run_id"]
    assert (first.get("resume", False), second.get("resume", False)) == (False, RESUMES_OFFLINE)
    for run in (first, second):
        assert run["display_name"].startswith("RUM λ = 1 · recall · seed 2 · ")
        assert "length = 4" in run["display_name"]
        assert run["display_name"].endswith("learning rate = 0.01")
        assert (run["run_group"], run["job_type"]) == ("two_cells", "recall")
        assert run["tags"] == ["RUM", "recall", "mine"]
        assert run["notes"] == "two of them"
        assert run["project"] == "gyral"


def check_that_the_number_of_steps_is_the_axis_and_never_decreases(starts: list[list[dict[str, Any]]]) -> None:
    for records in starts:
        *hidden, everything, monitored = of_type(records, "metric")[:4]
        assert hidden == [{"name": name, "options": {"defined": True, "hidden": True}} for name in ("steps", "rows")]
        assert (everything["glob_name"], everything["step_metric"]) == ("*", "steps")
        assert everything["options"]["step_sync"]
        assert (monitored["name"], monitored["step_metric"]) == ("val/accuracy", "steps")
        assert monitored["summary"] == {"max": True}
    lines = [row for row in uploaded(starts) if "rows" in row]
    trained = [row["steps"] for row in lines if "test/loss" not in row]
    assert len(trained) == len({*trained}) == 12, "one line of the history for each logged step"
    steps = [row["steps"] for row in lines]
    assert all(before <= after for before, after in pairwise(steps))
    assert (steps[0], steps[-1]) == (2, 24)
    assert not any({"epoch", "trainer/global_step"} & set(row) for records in starts for row in history(records))


def check_that_every_metric_is_logged_once_at_its_step(starts: list[list[dict[str, Any]]]) -> None:
    rows = uploaded(starts)
    every, validations = list(range(2, 25, 2)), [8, 16, 24]
    for name in ("train/loss", "train/learning_rate", "train/gradient_norm", "train/seconds_a_step"):
        assert [row["steps"] for row in rows if name in row] == every, name
    for name in ("val/loss", "val/accuracy"):
        assert [row["steps"] for row in rows if name in row] == validations, name
    examples = [row["steps"] for row in rows if "example._type" in row]
    assert examples == validations[-len(examples) :]  # of the last start alone where it logs anew
    assert [row["steps"] for row in rows if "test/loss" in row] == [24]


def check_that_the_summary_has_the_best_of_the_monitored_metric_results_and_picture(
    starts: list[list[dict[str, Any]]],
) -> None:
    accuracies = [row["val/accuracy"] for row in history(starts[1]) if "val/accuracy" in row]
    values = summary(starts[1])
    assert values["val/accuracy"] == {"max": max(accuracies)}
    assert values["monitor"] >= max(accuracies)
    assert {"test/loss", "test/accuracy", "test/baseline", "parameters", "seconds_a_step"} <= set(values)
    assert values["steps"] == 24
    assert values["loss._type"] == "images/separated"
    assert values["test/predictions.nrows"] == 3
    uploaded = {
        content["path"] for artifact in of_type(starts[1], "artifact") for content in artifact["manifest"]["contents"]
    }
    assert uploaded == {"test/predictions.table.json", "best.ckpt"}


def check_that_configuration_code_packages_and_outcome_are_recorded(starts: list[list[dict[str, Any]]]) -> None:
    config = {key: value for update in of_type(starts[0], "config") for key, value in update["update"].items()}
    assert (config["model_name"], config["cell_name"], config["task_name"]) == ("RUM λ = 1", "RUM", "recall")
    assert config["optimizer"]["lr"] == 0.01
    assert config["parameters"] > 0
    (git,) = (record["git"] for record in of_type(starts[0], "environment") if "git" in record)
    assert git["commit"] == config["run"]["git_commit"]
    files = [file["path"] for record in of_type(starts[0], "files") for file in record["files"]]
    assert "requirements.txt" in files
    if RESUMES_OFFLINE:  # older versions do not list it
        assert ("diff.patch" in files) == config["run"]["changed"]
    assert [of_type(records, "exit")[0].get("exit_code", 0) for records in starts] == [1, 0]


def run_with(server: dict[str, Any], logged: list[dict[str, Any]]) -> Any:
    return SimpleNamespace(
        summary={"rows": server["rows"]} if "rows" in server else {},
        starting_step=server.get("lines", server.get("rows", 0)),  # lines of the history
        offline=server.get("offline", False),
        log=logged.append,
        settings=wandb.Settings(silent=True),
    )


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ({"rows": 4}, [10]),  # the server has all rows
        ({"rows": 3}, [8, 10]),  # it lacks a row that is repeated
        ({"rows": 1}, [4, 6, 8, 10]),  # it lacks rows from before the checkpoint
        ({"rows": 4, "lines": 3}, [8, 10]),  # its summary is ahead of its history
        ({"rows": 3, "lines": 4}, [8, 10]),  # a callback has logged a line of its own
        ({"offline": True}, [10] if RESUMES_OFFLINE else [2, 4, 6, 8, 10]),  # it is unknown
    ],
)
def test_what_the_server_lacks_is_logged_once(server: dict[str, Any], expected: list[int]) -> None:
    earlier = [{"step": str(step), "train/loss": "0.5", "val/loss": ""} for step in (1, 3, 5, 7)]
    logged: list[dict[str, Any]] = []
    logger, rows = RunLogger(run_with(server, logged), "."), [*earlier[:3]]
    logger.follow(rows, earlier)
    for step in (7, 9):
        rows.append({"step": step, "train/loss": 0.5})
        logger.log_metrics({"train/loss": 0.5}, step)
    logger.log_summary({})  # which sends the last line
    assert [row["steps"] for row in logged] == expected
    assert [row["rows"] for row in logged] == [steps // 2 for steps in expected]


@pytest.mark.parametrize(
    ("rows", "lines", "received"), [(6, 1, 2), (6, 2, 4), (6, 3, 5), (6, 4, 6), (3, 4, 3), (6, 0, 0), (6, 9, 6)]
)
def test_a_line_of_the_history_has_several_rows(rows: int, lines: int, received: int) -> None:
    given = [
        (1, "train/loss"),
        (1, "train/norm"),
        (3, "train/loss"),
        (3, "val/loss"),
        (3, "val/late"),
        (5, "train/loss"),
    ]
    earlier = [{"step": str(step), name: "0.5"} for step, name in given]
    logged: list[dict[str, Any]] = []
    logger = RunLogger(run_with({"rows": rows, "lines": lines}, logged), ".")
    logger.follow(earlier, earlier)
    logger.log_summary({})
    metrics = [(row["steps"] - 1, name) for row in logged for name in row if name not in ("steps", "rows")]
    assert metrics == given[received:]


@pytest.mark.parametrize(
    ("sweep", "group"),
    [
        ("rum_paper_table1", "rum_paper_table1"),
        ("model=rum,lstm seed=1,2 task=copy", "model=rum,lstm seed=1,2 task=copy"),
        ("model=rum,lstm seed=1,2 task=copy " + "task.delay=100 " * 5, "model=rum,lstm seed=1,2 ~"),
    ],
)
def test_groups_have_short_names(sweep: str, group: str) -> None:
    found = group_of(sweep.strip())
    assert found.startswith(group)
    assert len(found) <= 68
    assert len({group_of(f"{sweep}{word}") for word in ("", "threads=1", "threads=2")}) == 3


def test_the_first_validation_at_the_last_step_that_the_server_has_is_logged() -> None:
    earlier = [{"step": str(step), "train/loss": "0.5"} for step in (1, 3)]
    logged: list[dict[str, Any]] = []
    logger = RunLogger(run_with({"rows": 2}, logged), ".")
    logger.follow(earlier, earlier)
    logger.log_metrics({"train/loss": 0.5}, 3)
    logger.log_metrics({"val/loss": 0.4}, 3)
    assert [row.get("val/loss") for row in logged] == [0.4]


def test_predictions_and_the_confusion_matrix_are_logged_on_request(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    logged: list[Any] = []
    task: Any = SimpleNamespace(
        figures={"confusion": "the.figure"},
        data=SimpleNamespace(loader={"test": [[1, 2], [3, 4], [5, 6]]}.get),
        device="cpu",
        evaluating=nullcontext,
        transfer_batch_to_device=lambda batch, *_: batch,
        predict=lambda batch: [10 * number for number in batch],
        targets=lambda batch: batch,
        render=lambda batch, predicted, row: f"{batch[row]} → {predicted[row]}\x1b",
    )
    logger = RunLogger(run_with({}, []), ".")
    logger.predictions = 3
    monkeypatch.setattr(logger, "log_predictions", logged.append)
    monkeypatch.setattr(logger, "log_image", lambda key, images: logged.append((key, images)))
    monkeypatch.setattr(loggers, "find_object", lambda name: lambda run: f"{name} of {run.directory.name}")
    run: Any = SimpleNamespace(directory=tmp_path / "run")
    loggers.log_results([logger], {"test/loss": 1.0}, None, task, run)
    texts = ["1 → 10\\x1b", "2 → 20\\x1b", "3 → 30\\x1b"]
    assert logged == [texts, ("test/confusion", ["the.figure of run"])]
    logger.predictions = 0
    loggers.log_results([logger], {"test/loss": 1.0}, None, task, run)
    assert len(logged) == 2


def test_a_failing_run_of_wandb_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    logger = RunLogger(run_with({}, []), ".")
    logger._experiment.log = lambda _: 1 / 0
    set_beside(logger, logger.output)
    for step in range(4):
        logger.log_metrics({"train/loss": 0.5}, step)
    (line,) = [record.message for record in caplog.records]
    assert line.startswith(
        "Weights & Biases: division by zero; metrics.csv has all metrics; to upload what was logged:"
    )


WRONG: list[tuple[str, Any, str]] = [
    ("tags", [""], "=['']: must have at least 1 character"),
    ("tags", ["x" * 65], f"=['{'x' * 65}']: must have at most 64 characters"),
    ("tags", [1], "=[1]: must be a valid string"),
    ("project", "me/gyral", "=me/gyral: must not contain / \\ # ? % :"),
    ("project", "", "=: must have at least 1 character"),
    ("entity", 1, "=1: must be null or a valid string"),
    ("notes", ["a"], "=['a']: must be null or a valid string"),
    ("label", "a", "=a: no such option; allowed: run, project, entity, group, tags, notes, log_model, predictions"),
    ("predictions", -1, "=-1: must be greater than or equal to 0"),
]


def test_wrong_options_are_refused() -> None:
    for option, value, said in WRONG:
        config = compose_config("logger=wandb")
        check_section(config.logger.wandb, "logger.wandb")
        with open_dict(config):
            config.logger.wandb[option] = value
        with pytest.raises(OptionError) as raised:
            check_section(config.logger.wandb, "logger.wandb")
        assert str(raised.value) == f"logger.wandb.{option}{said}"
