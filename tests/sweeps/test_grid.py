"""Sweeps: a directory, a marker and a W&B run for each job; the same command goes on where it stopped."""

import importlib
import itertools
import json
import os
import re
import shlex
import signal
import sys
from pathlib import Path

import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from gyral.config.overrides import combine
from gyral.core.cache import cache_directory
from gyral.core.errors import OptionError
from gyral.reports import catalogue as sweeps
from gyral.sweeps import duration, grid
from gyral.sweeps.checks import wrong_values
from gyral.tasks.base import SequenceTask
from tests.helpers.running import SMALL, Outcome, choices, compose_config, invoke, load_last, spawn
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


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """The directory and the output of a sweep of two jobs, which says how long the other job takes."""
    directory = tmp_path_factory.mktemp("sweeps") / "finished"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duration, "LONG", 0.0)
        patch.setattr(duration, "WORTH", 0)
        outcome = invoke("-m", *SHORT, "model=rnn", "task=copy", "seed=1,2", f"hydra.sweep.dir={directory}")
    assert outcome.status == 0, outcome.err
    return directory, outcome


def test_one_failing_job_does_not_stop_the_others_and_the_rest_is_not_trained_twice(tmp_path: Path) -> None:
    # a reader is no model for these tasks: of each task's jobs one fails
    command = ["-m", *SHORT, "model=attention_sum,rnn", "task=copy,recall", f"hydra.sweep.dir={tmp_path}"]
    outcome = invoke(*command)
    assert outcome.status == 1
    errors = [line for line in outcome.err.splitlines() if line.startswith("error: ")]
    assert sum(line.startswith("error: model=attention_sum: task=") for line in errors) == 2, "one line per failing job"
    assert "Traceback" not in outcome.err
    assert outcome.out.startswith(f"4 jobs in {tmp_path}, all with logger=none threads=1")
    assert "\nJob 2 of 4: model=attention_sum task=recall\n" in outcome.out
    assert outcome.out.count("\nDONE ") == 2
    assert outcome.out.count("\nFAILED ") == 2
    assert outcome.out.index("Runs on copy") < outcome.out.index("Runs on recall"), "the comparison, in spite of them"
    failing = {"copy/attention_sum": "FAILED", "recall/attention_sum": "FAILED"}
    expected = {"copy/rnn": "DONE", "recall/rnn": "DONE", **failing}
    assert markers(tmp_path) == expected
    [failed] = (tmp_path / "copy" / "attention_sum").iterdir()
    assert {"config.yaml", "overrides.yaml", "provenance.json", "FAILED", "train.log"} <= {*os.listdir(failed)}
    assert (failed / "FAILED").read_text().splitlines()[-1].endswith(errors[0].partition("model=attention_sum: ")[2])
    said = invoke(f"sweep={tmp_path}", entry="report").out
    assert "attention_sum" in said
    assert "FAILED" in said
    listed = outcome.err.partition("Failed:\n")[2].splitlines()
    assert sum(": model=attention_sum: task=" in line for line in listed) == 2

    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.ckpt")}
    assert len(times) == 6, "the last checkpoint, the previous one and the best"
    outcome = invoke(*command)
    assert outcome.status == 1
    assert outcome.out.count("was DONE") == 2
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.ckpt")} == times
    assert markers(tmp_path) == expected


def test_a_sweep_in_which_all_succeed_ends_with_zero_and_deterministic_directories(
    finished: tuple[Path, Outcome],
) -> None:
    directory, outcome = finished
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
    directories = {path.parent for path in directory.rglob("DONE")}
    assert len(directories) == 2
    assert sorted(directory.name.partition("seed=")[2][:1] for directory in directories) == ["1", "2"]
    assert all(found.parent == directory / "copy" / "rnn" for found in directories)
    one, other = sorted(directories)
    assert json.loads((one / "DONE").read_text())["test/loss"] != json.loads((other / "DONE").read_text())["test/loss"]


def test_a_job_that_is_taken_away_is_trained_again_in_the_same_place_whatever_the_order_of_overrides(
    finished: tuple[Path, Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, outcome = finished
    first = outcome.out.splitlines()
    measured = r"about \d+ (s|min) on this machine, measured on 3 steps of 1 kind of job, all with .*"
    assert re.fullmatch(f"2 jobs in {re.escape(str(directory))}, {measured}", first[0])
    assert [line for line in first if line.startswith("The other job takes about ")] != []

    directories = {path.parent for path in directory.rglob("DONE")}
    one = min(directories)
    for path in [*(one / "checkpoints").iterdir(), one / "DONE"]:
        path.unlink()
    monkeypatch.setattr(duration, "LONG", 0.0)
    outcome = invoke("-m", "seed=1,2", "task=copy", "model=rnn", *reversed(SHORT), f"hydra.sweep.dir={directory}")
    assert outcome.status == 0, outcome.err
    assert outcome.out.count("was DONE") == 1
    assert {path.parent for path in directory.rglob("DONE")} == directories
    assert load_last(one)["global_step"] == 4
    again = outcome.out.splitlines()
    assert again[0].startswith(f"2 jobs in {directory}, 1 DONE, about 1 s by the steps of earlier runs, all with")
    assert not [line for line in again if line.startswith("The other")]


def test_many_and_long_overrides_still_give_each_job_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HydraConfig.instance(), "cfg", None)
    long = ["paths.data_dir=/" + "x" * 300, "scheduler=cosine", "scheduler.eta_min=0.00000012345678901234567"]
    for delay in (2, 3):
        config = compose_config(*SHORT, *long, "model=rnn", "task=copy", f"task.delay={delay}", hydra_too=True)
        HydraConfig.instance().set_config(config)
        (tmp_path / config.hydra.sweep.subdir).mkdir(parents=True)  # a name may have 255 bytes
    assert len([*tmp_path.glob("copy/rnn/*")]) == 2


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["model=rum,lstm", "model.cell.lambd=1", "seed=1,2"],
            "model.cell.lambd=1: model=lstm has no such option (job 3 of 4); it has hidden_size, proj_size,"
            " peepholes, zoneout_cell, initialization, bias, layer_norm, layer_norm_eps, zoneout, recurrent_dropout."
            " Write model=rum_associative,lstm instead",
        ),
        (
            ["task=recall,copy", "task.length=6", "model=rnn"],
            "task.length=6: task=copy has no such option (job 2 of 2); it has delay, symbols, recalled, train_size,"
            " val_size, test_size, batch_size, eval_batch_size, data_seed, monitor, mode. Write task=my_recall,copy"
            " instead with a file conf/task/my_recall.yaml of `defaults: [recall, _self_]` and `length: 6`",
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


def test_a_sweep_by_name_is_narrowed_and_shortened_and_continues_after_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.chdir(tmp_path)
    command = [*NAMED, "task.length=4"]
    with monkeypatch.context() as context:
        context.setattr(SequenceTask, "on_train_batch_end", interrupted)
        outcome = invoke(*command)
    assert outcome.status == 130
    last = outcome.err.rstrip().splitlines()[-1]
    assert last.startswith("Stopped. To continue the sweep: python -m src.train ")
    assert shlex.split(last.partition(": ")[2])[3:] == command
    assert "Stopped. To resume this run alone: " in outcome.err

    outcome = invoke("-m", *command)  # the same, said explicitly
    assert outcome.status == 0, outcome.err
    assert outcome.err.count("Resuming from") == 1
    directories = {path.parent for path in tmp_path.rglob("DONE")}
    sweep = tmp_path / "outputs" / "sweep" / "rum_paper_table1"
    assert {directory.parent for directory in directories} == {sweep / "gru", sweep / "rnn"}
    assert all(json.loads((directory / "DONE").read_text())["steps"] == 4 for directory in directories)

    printed = invoke("sweep=rum_paper_table1", entry="report").out
    assert "8 runs not started." in printed  # of these rows, with these lengths
    assert "1 of 2 seeds, 4 steps, at the checkpoints" in printed

    # what a paper says and how it is shown is not what a run is: the job's directory takes the row alone, too
    (directory,) = (sweep / "gru").iterdir()
    outcome = invoke("experiment=rum_paper/table1/gru", "task.length=4", *SHORT, f"hydra.run.dir='{directory}'")
    assert outcome.status == 0, outcome.err
    assert "is DONE and is not trained again" in outcome.err


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["-m", "task=copy", "seed=1,2"], ["-m", "task=copy", "seed=1,2"]),
        (["-m", "sweep=adding", "--multirun", "seed=1"], ["sweep=adding", "seed=1"]),
    ],
)
def test_the_command_that_continues_a_sweep_has_the_flag_that_it_needs(
    words: list[str], printed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["src/train.py", *words])
    assert shlex.split(grid.command_line())[3:] == printed


def test_wrong_values_are_refused_before_any_job_starts(tmp_path: Path) -> None:
    sweep = ["-m", *SHORT, "task=recall", "model=gru,rum", f"hydra.sweep.dir={tmp_path / 'new'}"]
    wrong = ("task.length=10,0", "model.cell.hidden_size=8,0", "trainer.max_steps=4,none", "seed=1,-1")
    outcome = invoke(*sweep, "optimizer.lr=0.1,fast,-0.2", *wrong)
    assert outcome.status == 1
    assert outcome.out == ""
    lines = outcome.err.splitlines()
    for said in (
        "optimizer.lr=fast: must be a valid number",
        "optimizer.lr=-0.2: must be a finite",
        "task.length=0: must be an integer from 2 to 400",
        "model.cell.hidden_size=0: must be an integer ≥ 1",
        "trainer.max_steps=none: must be a",
        "seed=-1: must be an integer from 0",
    ):
        assert [line for line in lines if line.startswith(f"error: {said}")], said
    assert len(lines) == 6, outcome.err
    # what only the classes know, which import PyTorch, comes when these are right
    assert invoke(*sweep, "task.length=10,11").error.startswith("task.length=11: must be even")
    assert invoke(*sweep, "optimizer.learning_rate=0.1,0.2").error.startswith(
        "optimizer.learning_rate: no such option; did you mean optimizer.lr? allowed: decay, dynamics_lr, lr,"
    )
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


def test_each_job_has_its_own_wandb_run_offline_without_a_key_and_without_asking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb  # here because the import takes seconds
    from wandb.sdk.lib import console_capture

    def init(**options: object) -> object:
        importlib.reload(console_capture)  # it copies what is written to the streams of the time of its import
        return start(**options)

    start = wandb.init
    monkeypatch.setattr(wandb, "init", init)
    home, sweep = tmp_path / "home", tmp_path / "sweep"
    home.mkdir()
    monkeypatch.setenv("GYRAL_CACHE", str(cache_directory()))  # of the real home
    monkeypatch.setenv("HOME", str(home))
    for name in [name for name in os.environ if name.startswith("WANDB_") or name == "NETRC"]:
        monkeypatch.delenv(name)
    wandb.teardown()  # it has read the environment once, for all runs of this process
    arguments = [*SHORT, "logger=wandb", "task=copy", "model=rnn", "seed=1,2", f"hydra.sweep.dir={sweep}"]
    arguments.remove("logger=none")
    outcome = invoke("-m", *arguments)
    wandb.teardown()
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
    assert "model=attention_sum: task=copy needs a SequenceModel" in outcome.err
    failed = {f"{task}/attention_sum": "FAILED" for task in ("copy", "recall")}
    assert markers(tmp_path) == {"copy/gru": "DONE", "recall/gru": "DONE", **failed}
    again = spawn("-m", "src.train", "-m", *arguments, f"hydra.sweep.dir={tmp_path}/wider", "model=gru,rum")
    assert again.status == 0, again.err
    assert set(markers(tmp_path / "wider").values()) == {"DONE"}


def test_values_vary_together_in_jobs_directories_and_the_report(tmp_path: Path) -> None:
    sizes, rates = "model.cell.hidden_size=8,16", "optimizer.lr=0.01,0.001"
    command = ["-m", *SHORT, "model=rnn", "task=copy", sizes, rates, f"hydra.sweep.dir={tmp_path}"]
    outcome = invoke(*command, "hydra.sweeper.together=[model.cell.hidden_size,optimizer.lr]")
    assert outcome.status == 0, outcome.err
    assert outcome.out.startswith("2 jobs in ")
    names = [path.parent.name for path in tmp_path.rglob("DONE")]
    pairs = {("hidden_size=16" in name, "lr=0.001" in name) for name in names}
    assert (len(names), pairs) == (2, {(False, False), (True, True)})
    [hint] = re.findall(r"^To draw the results over model.cell.hidden_size: (.*)$", outcome.out, re.MULTILINE)
    assert shlex.split(hint)[-3:] == ["plot=columns", "x=model.cell.hidden_size", "save=columns.pdf"]
    report = invoke(f"sweep={tmp_path}", entry="report")
    assert report.status == 0, report.err
    assert "not started" not in report.out
    assert "RNN hidden size = 8, learning rate = 0.01 " in report.out
    assert "RNN hidden size = 16, learning rate = 0.001 " in report.out


def test_keys_that_cannot_vary_together_are_refused(tmp_path: Path) -> None:
    axes = {key: [f"{key}={value}" for value in range(count)] for key, count in (("model", 3), ("lr", 2), ("seed", 3))}
    for together, said in (
        (["seed", "lr"], "must have as many values of each key; seed has 3, lr has 2"),
        (["seed", "eps"], "eps is not an axis of the sweep; it has model, lr, seed"),
        ([["seed", "model"], ["seed", "lr"]], "seed occurs twice; axes are model, lr, seed"),
    ):
        with pytest.raises(OptionError) as refused:
            combine(axes, together)
        assert (refused.value.option, refused.value.reason) == ("hydra.sweeper.together", said)
    words = ("optimizer.lr=0.01,0.1", "seed=1,2,3", "hydra.sweeper.together=[seed,optimizer.lr]")
    assert invoke("-m", *words, f"hydra.sweep.dir={tmp_path}").error.startswith("hydra.sweeper.together=")
    assert not list(tmp_path.iterdir())


def test_combinations_keep_the_order_of_the_axes() -> None:
    axes = {"a": ["a=1", "a=2"], "b": ["b=1"], "c": ["c=1", "c=2"]}
    assert combine(axes) == [("a=1", "b=1", "c=1"), ("a=1", "b=1", "c=2"), ("a=2", "b=1", "c=1"), ("a=2", "b=1", "c=2")]
    assert combine(axes, ["c", "a"]) == [("a=1", "b=1", "c=1"), ("a=2", "b=1", "c=2")]
    assert combine(axes, [["a", "c"], ["b"]]) == combine(axes, ["a", "c"])
    assert combine({}) == [()]
    assert combine({"a": ["a=1", "a=2", "a=1"]}) == [("a=1",), ("a=2",)], "a job is trained once"


def test_an_experiment_of_the_user_can_be_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf" / "experiment").mkdir(parents=True)
    (tmp_path / "conf" / "experiment" / "pilot.yaml").write_text(
        "# @package _global_\n"
        "defaults: [override /model: gru, override /task: copy]\n"
        "hydra: {mode: MULTIRUN, sweeper: {params: {seed: '2'}}}\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    outcome = invoke("experiment=pilot", *SHORT, "hydra.sweep.dir=pilots")
    assert outcome.status == 0, outcome.err
    assert outcome.out.startswith("1 job in pilots")
    assert len([*tmp_path.glob("pilots/copy/gru/*seed=2*/DONE")]) == 1
