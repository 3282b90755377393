"""What the terminal shows at the end of a run."""

import math
import re
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from gyral.core.files import write_atomically
from gyral.runs.directory import Run
from gyral.runs.measures import write_measures
from gyral.runs.summary import print_next_commands, print_results
from tests.helpers.written import MEASURES, REMARKS, RESULTS

CONFIG = OmegaConf.create({"model": {"cell": {}}, "trainer": {"max_steps": 600}})


@pytest.fixture(autouse=True)
def measures(tmp_path: Path) -> None:
    write_measures(tmp_path, MEASURES, REMARKS)


def test_the_results_table_shows_whether_the_baseline_is_beaten(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    long = tmp_path / "seed=1,task.length=30,task.test_size=16,task.train_size=128,trainer.val_check_interval=2"
    long.mkdir()
    write_measures(long, MEASURES, REMARKS)
    print_results(long, RESULTS)
    printed = capsys.readouterr().out
    for words in ("0.02", "87.5 %", "50.0 %", "(nats)", "0.04", "yes, by a factor of 2", "13,710", "0.0123"):
        assert words in printed
    assert f"\nrun directory: {long}\n" in printed
    print_results(tmp_path, {**RESULTS, "test/loss": 0.05})
    assert re.search(r"baseline beaten +│ no", capsys.readouterr().out)
    print_results(tmp_path, {**RESULTS, "test/loss": 0.0})
    assert re.search(r"baseline beaten +│ yes +│", capsys.readouterr().out)


def test_the_loss_of_regression_has_its_own_unit(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    print_results(tmp_path, {**RESULTS, "test/mse": 0.02, "test/mae": 0.1, "test/r2": 0.9})
    printed = capsys.readouterr().out
    assert "test loss (mean squared error)" in printed
    assert "memoryless baseline (mean squared error)" in printed
    assert "nats" not in printed
    assert printed.count("mean squared error") == 2
    assert re.search(r"test mean absolute error +│ 0\.1000", printed)


@pytest.mark.parametrize("changes", [{"test/loss": 0.0}, {"test/loss": math.nan}, {"seconds_a_step": math.nan}])
def test_the_results_table_shows_extreme_values(
    changes: dict[str, float], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    print_results(tmp_path, {**RESULTS, **changes})
    assert "test accuracy" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "model", "comparison"),
    [
        (["model=rum", "task=copy"], "rum", "train -m model=rum,lstm task=copy seed=1,2,3"),
        (["task=copy", "seed=4"], "lstm", "train -m model=lstm,gru task=copy seed=1,2,3"),
        (["model=rum", "model.cell.lambd=1"], "rum", "train -m model=rum model.cell.lambd=1 seed=1,2,3"),
        (["experiment=rum_paper/fig4/lstm"], "lstm", "train -m experiment=rum_paper/fig4/lstm seed=1,2,3"),
        (["model=rum", "weights=outputs/x"], "rum", "train -m model=rum weights=outputs/x seed=1,2,3"),
        ([], "rum", "train -m model=rum,lstm seed=1,2,3"),
        (None, "rum", None),  # a run that was resumed
    ],
)
def test_next_commands_can_be_pasted(
    given: list[str] | None, model: str, comparison: str | None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    directory = tmp_path / "a run" / "seed=1,x=2"
    directory.mkdir(parents=True)
    write_atomically(directory / "provenance.json", "{}")
    run = Run(directory, CONFIG, {"steps": 600.0}, directory / "checkpoints/last.ckpt")
    print_next_commands(run, given, model, generates=True)
    commands = [line.strip() for line in capsys.readouterr().out.splitlines() if line.startswith("    ")]
    assert commands[0].endswith(f"evaluate 'run={directory}' split=val")
    assert commands[1].endswith(f"generate 'run={directory}'")
    assert commands[2:-1] == [] if comparison is None else commands[2].endswith(comparison)
    assert commands[-1].endswith(f"train 'resume={directory}' trainer.max_steps=1200")


@pytest.mark.parametrize("change", ["schedule", "stopped early", "of a sweep"])
def test_a_run_that_cannot_be_continued_gets_no_command_for_it(
    change: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_atomically(tmp_path / "provenance.json", '{"sweep": "rates"}' if change == "of a sweep" else "{}")
    config = OmegaConf.merge(CONFIG, {"scheduler": {"T_max": 600}} if change == "schedule" else {})
    results = {"steps": 200.0 if change == "stopped early" else 600.0}
    run = Run(tmp_path, config, results, tmp_path / "checkpoints/last.ckpt")
    print_next_commands(run, None, "rum", generates=False)
    assert "resume=" not in capsys.readouterr().out


def test_published_numbers_are_beside_those_of_the_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    published = {"test/accuracy": "61.0 %", "parameters": "14,000?", "finding": "stays at the baseline"}
    print_results(tmp_path, RESULTS, published)
    lines = [[part.strip() for part in re.split("[│┃]", line)[1:-1]] for line in capsys.readouterr().out.splitlines()]
    cells = {line[0]: line[1:] for line in lines if len(line) == 3}
    assert cells[""] == ["this run", "published"]
    assert cells["test accuracy"] == ["87.5 %", "61.0 %"]
    assert cells["parameters"] == ["13,710", "14,000?"]
    assert cells["finding of the paper"] == ["", "stays at the baseline"]
    assert cells["seconds per step"] == ["0.0123", ""]
    print_results(tmp_path, RESULTS, {})
    assert "this run" not in capsys.readouterr().out
