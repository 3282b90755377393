"""Sweeps: a directory, a marker and a W&B run for each job; the same command goes on where it stopped."""

import itertools
import json
import os
import re
import shlex
import signal
from pathlib import Path

import matplotlib
import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from gyral.config.overrides import combine
from gyral.core.cache import cache_directory
from gyral.reports import catalogue as sweeps
from gyral.sweeps.checks import wrong_values
from gyral.tasks.base import SequenceTask
from tests.helpers.running import SMALL, choices, compose_config, invoke, load_last, spawn
from tests.helpers.wandb_log import of_type, read_records

SHORT = (
    *(item for item in SMALL if not item.startswith(("trainer.", "task."))),
    "trainer.accelerator=cpu",
    "trainer.max_steps=4",
    "trainer.val_check_interval=2",
    "trainer.log_every_n_steps=2",
    "task.batch_size=4",
    "task.train_size=8",
    "task.val_size=4",
    "task.test_size=4",
)


def markers(directory: Path) -> dict[str, str]:
    """Return by job, task/model, which marker it left."""
    found = [path for name in ("DONE", "FAILED") for path in directory.rglob(name)]
    return {"/".join(path.relative_to(directory).parts[:2]): path.name for path in found}


def test_one_failing_job_does_not_stop_the_others_and_the_rest_is_not_trained_twice(tmp_path: Path) -> None:
    # a reader is no model for these tasks: of each task's jobs one fails
    command = ["-m", *SHORT, "model=gru,attention_sum,rnn", "task=copy,recall", f"hydra.sweep.dir={tmp_path}"]
    outcome = invoke(*command)
    assert outcome.status == 1
    errors = [line for line in outcome.err.splitlines() if line.startswith("error: ")]
    assert sum(line.startswith("error: model._target_=") for line in errors) == 2, "one line per failing job"
    assert "Traceback" not in outcome.err
    assert outcome.out.startswith(f"6 jobs in {tmp_path}, all with logger=none threads=1")
    assert "\nJob 2 of 6: model=gru task=recall\n" in outcome.out
    assert outcome.out.count("\nDONE ") == 4
    assert outcome.out.count("\nFAILED ") == 2
    assert outcome.out.index("Runs on copy") < outcome.out.index("Runs on recall"), "the comparison, in spite of them"
    expected = {f"{task}/{model}": "DONE" for task in ("copy", "recall") for model in ("gru", "rnn")}
    assert markers(tmp_path) == expected
    assert not list(tmp_path.rglob("attention_sum")), "a wrong option leaves no run directory"
    listed = outcome.err.partition("Failed:\n")[2].splitlines()
    assert sum(": model._target_=" in line for line in listed) == 2

    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.ckpt")}
    assert len(times) == 12, "the last checkpoint, the previous one and the best"
    outcome = invoke(*command)
    assert outcome.status == 1
    assert outcome.out.count("was DONE") == 4
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.ckpt")} == times
    assert markers(tmp_path) == expected


def test_a_sweep_in_which_all_succeed_ends_with_zero_and_deterministic_directories(tmp_path: Path) -> None:
    command = ["-m", *SHORT, "model=rnn", "task=copy", "seed=1,2", f"hydra.sweep.dir={tmp_path}"]
    outcome = invoke(*command)
    assert outcome.status == 0
    assert outcome.out.count("seconds a step") == 0, "jobs print no tables"
    scores = r"test accuracy [\d.]+ %, test loss [\d.]+, val loss [\d.]+"
    assert len(re.findall(rf"^DONE \S+: {scores}$", outcome.out, re.MULTILINE)) == 2, (
        "the monitored loss of both splits"
    )
    report, again, save = outcome.out.rpartition("\nTo show this again: ")
    shown = shlex.split(f"{again}{save}".splitlines()[1].partition(": ")[2])
    assert shown[:3] == ["python", "-m", "src.report"]
    assert report.endswith(invoke(*shown[3:], entry="report").out.rstrip("\n"))
    assert "'save=[comparison.pdf,comparison.tex]'" in save
    directories = {path.parent for path in tmp_path.rglob("DONE")}
    assert len(directories) == 2
    assert sorted(directory.name.partition("seed=")[2][:1] for directory in directories) == ["1", "2"]
    assert all(directory.parent == tmp_path / "copy" / "rnn" for directory in directories)

    one, other = sorted(directories)
    assert json.loads((one / "DONE").read_text())["test/loss"] != json.loads((other / "DONE").read_text())["test/loss"]

    # a job that is taken away is trained again, in the same place
    for path in [*(one / "checkpoints").iterdir(), one / "DONE"]:
        path.unlink()
    outcome = invoke(*command)
    assert outcome.status == 0, outcome.err
    assert outcome.out.count("was DONE") == 1
    assert {path.parent for path in tmp_path.rglob("DONE")} == directories
    assert load_last(one)["global_step"] == 4


def test_the_order_of_overrides_does_not_change_the_directories(tmp_path: Path) -> None:
    axes = ["seed=1,2", "task.delay=3"]
    assert invoke("-m", *SHORT, "model=rnn", *axes, f"hydra.sweep.dir={tmp_path}").status == 0
    directories = {path.parent for path in tmp_path.rglob("DONE")}
    assert len(directories) == 2
    outcome = invoke("-m", *reversed(axes), "model=rnn", *reversed(SHORT), f"hydra.sweep.dir={tmp_path}")
    assert outcome.status == 0, outcome.err
    assert outcome.out.count("was DONE") == 2
    assert {path.parent for path in tmp_path.rglob("DONE")} == directories


def test_many_and_long_overrides_still_give_each_job_a_directory(tmp_path: Path) -> None:
    axis = "task.delay=" + ",".join(str(delay) for delay in (2, 3))
    long = ["paths.data_dir=/" + "x" * 300, "scheduler=cosine", "scheduler.eta_min=0.00000012345678901234567"]
    outcome = invoke("-m", *SHORT, *long, "model=rnn", axis, f"hydra.sweep.dir={tmp_path}")
    assert outcome.status == 0, outcome.err
    names = [path.parent.name for path in tmp_path.rglob("DONE")]
    assert len(set(names)) == 2
    assert all(len(name.encode()) <= 255 for name in names)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["model=rum,lstm", "model.cell.lambd=1", "seed=1,2"],
            "model.cell.lambd=1: model=lstm has no such option (job 3 of 4); it has hidden_size, bias, proj_size,"
            " peepholes, layer_norm, layer_norm_eps, zoneout, zoneout_cell, recurrent_dropout, initialization."
            " Write model=rum_associative,lstm instead",
        ),
        (
            ["task=recall,copy", "task.length=6", "model=rnn"],
            "task.length=6: task=copy has no such option (job 2 of 2); it has delay, symbols, recalled, batch_size,"
            " train_size, val_size, test_size, data_seed, monitor, mode. Write task=my_recall,copy instead with a file"
            " conf/task/my_recall.yaml of `defaults: [recall, _self_]` and `length: 6`",
        ),
    ],
)
def test_an_option_that_not_all_models_have_is_refused_before_any_job_starts(
    arguments: list[str], expected: str, tmp_path: Path
) -> None:
    outcome = invoke("-m", *arguments, f"hydra.sweep.dir={tmp_path}")
    assert outcome.error == expected
    assert (outcome.out, list(tmp_path.iterdir())) == ("", [])


NAMED = ("sweep=rum_paper_table1", "experiment=rum_paper/table1/gru,rum_paper/table1/rnn", "seed=1", *SHORT)


def test_a_sweep_by_name_is_narrowed_and_shortened_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = [*NAMED, "task.length=4"]
    assert invoke(*command).status == 0
    directories = {path.parent for path in tmp_path.rglob("DONE")}
    sweep = tmp_path / "outputs" / "sweep" / "rum_paper_table1"
    assert {directory.parent for directory in directories} == {sweep / "gru", sweep / "rnn"}
    assert all(json.loads((directory / "DONE").read_text())["steps"] == 4 for directory in directories)
    first = next(iter(directories)) / "DONE"
    first.unlink()
    outcome = invoke("-m", *command)  # the same, said explicitly
    assert outcome.status == 0, outcome.err
    assert outcome.out.count("was DONE") == 1
    assert outcome.err.count("Resuming from") == 1
    assert {path.parent for path in tmp_path.rglob("DONE")} == directories

    printed = invoke("sweep=rum_paper_table1", entry="report").out
    assert "Runs missing: 68, not done: 0." in printed  # with these lengths
    assert "seed 1, 4 steps, at the checkpoints" in printed


def test_a_sweep_and_a_row_can_be_combined(tmp_path: Path) -> None:
    """What a paper says and how it is shown is not what a run is: the job's directory takes the row alone, too."""
    options = ["task.length=4", *SHORT]
    row = ("sweep=rum_paper_table1", "experiment=rum_paper/table1/gru", "seed=1")
    assert invoke(*row, *options, f"hydra.sweep.dir={tmp_path}").status == 0
    (directory,) = (path.parent for path in (tmp_path / "gru").rglob("DONE"))
    outcome = invoke("experiment=rum_paper/table1/gru", *options, f"hydra.run.dir='{directory}'")
    assert outcome.status == 0, outcome.err
    assert "is DONE and is not trained again" in outcome.err


WRONG = {
    "optimizer.lr=0.1,fast,-0.2": ("optimizer.lr=fast: must be a valid number", "optimizer.lr=-0.2: must be a finite"),
    "task.length=10,11": ("task.length=11: must be even",),
    "model.cell.hidden_size=8,0": ("model.cell.hidden_size=0: must be an integer ≥ 1",),
    "trainer.max_steps=4,none": ("trainer.max_steps=none: must be a",),
    "seed=1,-1": ("seed=-1: must be an integer from 0",),
    "optimizer.learning_rate=0.1,0.2": (
        "optimizer.learning_rate: no such option; did you mean optimizer.lr? allowed: decay, dynamics_lr, lr,",
    ),
}


@pytest.mark.parametrize("axis", WRONG)
def test_wrong_values_are_refused_before_any_job_starts(axis: str, tmp_path: Path) -> None:
    outcome = invoke("-m", *SHORT, "task=recall", "model=gru,rum", axis, f"hydra.sweep.dir={tmp_path / 'new'}")
    assert outcome.status == 1
    assert outcome.out == ""
    lines = outcome.err.splitlines()
    assert len(lines) == len(WRONG[axis]), outcome.err
    for line, said in zip(lines, WRONG[axis], strict=True):
        assert line.startswith(f"error: {said}")
    assert not (tmp_path / "new").exists()


def test_values_are_checked_as_the_jobs_combine_them() -> None:
    jobs = [("task=recall", "task.length=4", "seed=1"), ("task=copy", "task.length=5", "seed=1")]
    composed = {job: OmegaConf.create({"task": {"of": job[0], "length": job[1][-1]}, "seed": 1}) for job in jobs}
    checked: list[tuple[str, object]] = []
    found = wrong_values(jobs, composed, pytest.fail, lambda config, section: checked.append((section, config.task)))
    assert [*found] == []
    assert checked == [
        ("task", {"of": "task=recall", "length": "4"}),
        ("seed", {"of": "task=recall", "length": "4"}),
        ("task", {"of": "task=copy", "length": "5"}),
    ]


def test_a_large_sweep_composes_no_job_for_its_values() -> None:
    jobs = [("task=copy", f"optimizer.lr={lr}", f"seed={seed}") for lr in range(20) for seed in range(100)]
    composed = {jobs[0]: OmegaConf.create({"optimizer": {"lr": 0}, "seed": 0})}
    checked: list[tuple[str, int, int]] = []
    note = lambda config, section: checked.append((section, config.optimizer.lr, config.seed))  # noqa: E731
    assert [*wrong_values(jobs, composed, pytest.fail, note)] == []
    assert {lr for section, lr, _ in checked if section == "optimizer"} == {*range(20)}
    assert {seed for section, _, seed in checked if section == "seed"} == {*range(100)}
    assert len(checked) == 120


@pytest.mark.parametrize(
    ("name", "rows", "axes"),
    [
        ("rum_paper_table1", 17, {"task.length": ["30", "50"], "seed": ["1", "2"]}),
        ("rum_paper_fig4", 20, {"seed": ["1"]}),
    ],
)
def test_the_papers_sweeps_go_through_all_rows(name: str, rows: int, axes: dict[str, list[str]]) -> None:
    params = compose_config(f"sweep={name}", hydra_too=True).hydra.sweeper.params
    overrides = OverridesParser.create().parse_overrides([f"{key}={value}" for key, value in params.items()])
    (jobs,) = BasicSweeper.split_arguments(overrides, None)
    experiments = sweeps.load(name).axes["experiment"]
    assert len(experiments) == rows
    expected = itertools.product(experiments, *axes.values())
    keys = ["experiment", *axes]
    assert jobs == [[f"{key}={value}" for key, value in zip(keys, job, strict=True)] for job in expected]


def test_an_unknown_sweep_lists_the_sweeps() -> None:
    assert invoke("sweep=nothing").error == f"sweep=nothing: must be one of {', '.join(choices('sweep'))}"


def assert_offline_wandb_runs(directories: list[Path]) -> None:
    """Check that each run directory holds one offline W&B run, with the id that the directory gave it."""
    ids = []
    for directory in directories:
        (run,) = directory.glob("wandb/offline-run-*")
        ids.append(run.name.rpartition("-")[2])
        assert json.loads((directory / "provenance.json").read_text())["id"] == ids[-1]
        records = read_records(run)
        printed = "".join(output["line"] for output in of_type(records, "output_raw") if "line" in output)
        assert run.name in printed, "it has the console output of its own job"
        assert printed.count("wandb sync") == 1
        assert {record["run_group"] for record in of_type(records, "run")} == {"sweep"}
        assert of_type(records, "exit")[0].get("exit_code", 0) == 0
    assert len(set(ids)) == len(directories)


def test_each_job_has_its_own_wandb_run_offline_without_a_key_and_without_asking(tmp_path: Path) -> None:
    home, sweep = tmp_path / "home", tmp_path / "sweep"
    home.mkdir()
    arguments = [*SHORT, "logger=wandb", "task=copy", "model=rnn", "seed=1,2", f"hydra.sweep.dir={sweep}"]
    arguments.remove("logger=none")
    secrets = {"WANDB_MODE": None, "WANDB_API_KEY": None, "WANDB_BASE_URL": None, "NETRC": None}
    kept = {"GYRAL_CACHE": str(cache_directory()), "MPLCONFIGDIR": matplotlib.get_configdir()}  # of the real home
    outcome = spawn("-m", "src.train", "-m", *arguments, HOME=str(home), **kept, **secrets)
    assert outcome.status == 0, outcome.err
    directories = [path.parent for path in sweep.rglob("DONE")]
    assert len(directories) == 2
    assert_offline_wandb_runs(directories)
    assert outcome.err.count("wandb sync") == 2
    for directory in directories:
        assert str(directory) in outcome.err
    assert "Enter your choice" not in outcome.out + outcome.err


@pytest.mark.slow
def test_joblib_runs_the_jobs_of_a_sweep_side_by_side(tmp_path: Path) -> None:
    arguments = [*SHORT, "launcher=joblib", "hydra.launcher.n_jobs=2", "task=copy,recall"]
    arguments.remove("threads=1")  # the launcher sets it
    outcome = spawn("-m", "src.train", "-m", *arguments, "model=gru,attention_sum", f"hydra.sweep.dir={tmp_path}")
    assert outcome.status == 1
    assert "model._target_" in outcome.err
    assert markers(tmp_path) == {"copy/gru": "DONE", "recall/gru": "DONE"}
    again = spawn("-m", "src.train", "-m", *arguments, f"hydra.sweep.dir={tmp_path}/wider", "model=gru,rum")
    assert again.status == 0, again.err
    assert set(markers(tmp_path / "wider").values()) == {"DONE"}


def test_values_vary_together_in_jobs_directories_and_the_report(tmp_path: Path) -> None:
    sizes, rates = "model.cell.hidden_size=8,16", "optimizer.lr=0.01,0.001"
    command = ["-m", *SHORT, "model=rnn", "task=copy", sizes, rates, "seed=1,2", f"hydra.sweep.dir={tmp_path}"]
    outcome = invoke(*command, "hydra.sweeper.together=[model.cell.hidden_size,optimizer.lr]")
    assert outcome.status == 0, outcome.err
    assert outcome.out.startswith("4 jobs in ")
    names = [path.parent.name for path in tmp_path.rglob("DONE")]
    pairs = {("hidden_size=16" in name, "lr=0.001" in name) for name in names}
    assert (len(names), pairs) == (4, {(False, False), (True, True)})
    [hint] = re.findall(r"^To draw the results over model.cell.hidden_size: (.*)$", outcome.out, re.MULTILINE)
    assert shlex.split(hint)[-3:] == ["plot=columns", "x=model.cell.hidden_size", "save=columns.pdf"]
    report = invoke(f"sweep={tmp_path}", entry="report")
    assert report.status == 0, report.err
    assert "missing" not in report.out
    assert "RNN hidden size = 8, learning rate = 0.01 " in report.out
    assert "RNN hidden size = 16, learning rate = 0.001 " in report.out


@pytest.mark.parametrize(
    ("together", "said"),
    [
        ("[seed,optimizer.lr]", "must have as many values of each key; seed has 3, optimizer.lr has 2"),
        ("[seed,optimizer.eps]", "optimizer.eps is no axis of the sweep; it has "),
        ("[[seed,model],[seed,optimizer.lr]]", "seed is there twice; axes are "),
    ],
)
def test_keys_that_cannot_vary_together_are_one_line(together: str, said: str, tmp_path: Path) -> None:
    axes = ("task=copy", "model=rnn,gru,lstm", "optimizer.lr=0.01,0.1", "seed=1,2,3")
    outcome = invoke("-m", *axes, f"hydra.sweep.dir={tmp_path}", f"hydra.sweeper.together={together}")
    assert outcome.status == 1
    assert outcome.err.startswith("error: hydra.sweeper.together=")
    assert said in outcome.err
    assert len(outcome.err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_combinations_keep_the_order_of_the_axes() -> None:
    axes = {"a": ["a=1", "a=2"], "b": ["b=1"], "c": ["c=1", "c=2"]}
    assert combine(axes) == [("a=1", "b=1", "c=1"), ("a=1", "b=1", "c=2"), ("a=2", "b=1", "c=1"), ("a=2", "b=1", "c=2")]
    assert combine(axes, ["c", "a"]) == [("a=1", "b=1", "c=1"), ("a=2", "b=1", "c=2")]
    assert combine(axes, [["a", "c"], ["b"]]) == combine(axes, ["a", "c"])
    assert combine({}) == [()]


def test_an_experiment_of_the_user_can_be_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "pilot.yaml").write_text(
        "# @package _global_\n"
        "defaults: [override /model: gru, override /task: copy]\n"
        "hydra: {mode: MULTIRUN, sweeper: {params: {seed: '1,2'}}}\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    outcome = invoke("experiment=pilot", *SHORT, "hydra.sweep.dir=pilots")
    assert outcome.status == 0, outcome.err
    assert outcome.out.startswith("2 jobs in pilots")


@pytest.mark.parametrize("sweep", ["-m", "sweep=rum_paper_fig4"])
def test_ctrl_c_prints_the_command_that_continues_the_sweep(
    sweep: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    rows = ["task=copy", "model=rnn,gru"] if sweep == "-m" else ["experiment=rum_paper/fig4/rnn", "task.delay=3"]
    command = [sweep, *SHORT, *rows, "seed=1,2", f"hydra.sweep.dir={tmp_path}"]
    with monkeypatch.context() as context:
        context.setattr(SequenceTask, "on_train_batch_end", interrupted)
        outcome = invoke(*command)
    assert outcome.status == 130
    last = outcome.err.rstrip().splitlines()[-1]
    assert last.startswith("Stopped. To continue the sweep: python -m src.train ")
    assert shlex.split(last.partition(": ")[2])[3:] == command
    if sweep == "-m":
        assert "Stopped. To resume this run alone: " in outcome.err
        outcome = invoke(*command)
        assert outcome.status == 0, outcome.err
        assert len([*tmp_path.rglob("DONE")]) == 4
