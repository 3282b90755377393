"""The command line: help without torch, and one line for what is wrong."""

import json
import os
import re
import signal
import textwrap
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from gyral.config import command_line
from gyral.config.instantiation import check_values
from gyral.config.words import hints
from gyral.core.errors import OptionError
from gyral.core.signals import SIGNALS
from gyral.runs.run_record import select
from tests.helpers.running import SMALL_COPY, SMALL_RECALL, choices, compose_config, invoke, spawn

CHEAP = (*SMALL_RECALL, "model=rnn")


def test_help_and_cfg_import_no_torch() -> None:
    script = textwrap.dedent(
        """
        import contextlib, io, json, sys
        report = {}
        from gyral import train
        from gyral.config import command_line as cli
        for option in ("--help", "--help experiment", "--cfg job", "--cfg hydra", "--info defaults"):
            sys.argv = ["src/train.py", *option.split()]
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                try:
                    cli.main(train.train, "train")
                except SystemExit as end:
                    assert not end.code, end
            report[option] = out.getvalue()
        heavy = ("torch", "pytorch_lightning", "wandb", "numpy", "matplotlib")
        report["loaded"] = [name for name in heavy if name in sys.modules]
        print(json.dumps(report))
        """
    )
    outcome = spawn("-c", script)
    assert outcome.status == 0, outcome.err
    report = json.loads(outcome.out)
    assert report["loaded"] == []
    for group in ("model", "task", "optimizer", "scheduler", "trainer", "logger", "callbacks", "experiment"):
        assert re.search(rf"^{group}(/\S+)?: ", report["--help"], re.MULTILINE), group
    assert "python -m src.train model=rum task=copy" in report["--help"]
    assert "experiment: " + str(len(choices("experiment"))) in report["--help"]
    lines = report["--help"].splitlines()
    assert len(lines) <= 50, "the help must fit on one screen"
    assert max(map(len, lines)) <= 100
    listed = [line.partition(":")[0] for line in lines if re.match(r"\w+: \w+, ", line)]
    assert listed[:5] == ["task", "model", "optimizer", "scheduler", "trainer"]
    assert re.search(r"^experiment: rum_paper/table1/\{eurnn,.*\}$", report["--help experiment"], re.MULTILINE)
    assert "_base" not in report["--help"]
    for key in ("max_steps: ", "hidden_size: ", "lr: ", "delay: ", "seed: 1"):
        assert key in report["--help"]
        assert key in report["--cfg job"]
    assert "_target_: hydra_plugins.gyral.Default" in report["--cfg hydra"]
    assert not outcome.err.strip()


def test_the_command_prints_an_error_in_one_line() -> None:
    outcome = spawn("-m", "src.train", "model=foo", HYDRA_FULL_ERROR=None)
    assert outcome.status == 1
    assert outcome.out == ""
    assert outcome.err == f"error: model=foo: must be one of {', '.join(choices('model'))}\n"


@pytest.mark.parametrize("group", ["model", "task", "optimizer", "scheduler", "trainer", "logger", "callbacks"])
def test_an_unknown_choice_lists_the_choices(group: str) -> None:
    assert invoke(f"{group}=nothing").error == f"{group}=nothing: must be one of {', '.join(choices(group))}"


@pytest.mark.parametrize(
    ("word", "suggested"),
    [
        ("sede=3", "seed"),
        ("lr=0.1", "optimizer.lr"),
        ("batch_size=3", "task.batch_size"),
        ("task.batchsize=3", "task.batch_size or task.eval_batch_size"),
        ("model.hidden_size=3", "model.cell.hidden_size"),
        ("trainer.deterministic=true", "deterministic"),
        ("+lr=0.1", "optimizer.lr"),
        ("+trainner.max_steps=3", "trainer.max_steps"),
        ("model=RUM", "rum"),
        ("optimizer=Adam", "adam"),
    ],
)
def test_the_nearest_name_is_suggested(
    word: str, suggested: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert f"did you mean {suggested}?" in invoke(word).error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("ckpt_path=x", "ckpt_path=x: write resume=<run directory> to resume a run, weights="),
        ("data=x", "data=x: a task makes its own data; write task=<name>"),
        ("trainer.max_epochs=3", "trainer.max_epochs=3: training is counted in steps; write trainer.max_steps="),
        ("+trainer.max_epochs=3", "trainer.max_epochs=3: training is counted in steps; write trainer.max_steps="),
        (
            "+trainer.limit_train_batches=2",
            "trainer.limit_train_batches=2: training is counted in steps; write",
        ),
        ("+trainer.overfit_batches=1", "trainer.overfit_batches=1: write debug=overfit to train on one batch, task."),
        ("+trainer.fast_dev_run=true", "trainer.fast_dev_run=true: write debug=small"),
        ("+trainer.max_time=1", "trainer.max_time=1: training is counted in steps; write trainer.max_steps="),
        ("hydra/launcher=joblib -m", "hydra/launcher=joblib: write launcher=<name>: local, joblib, slurm, ray"),
        ("hydra/sweeper=optuna", "hydra/sweeper=optuna: write -m for all combinations of values, sweep=tune for"),
        ("--seed 1", "--seed: no such flag; options have no dashes: seed=<value>"),
        ("scheduler=null", "scheduler=null: must be one of cosine, multistep, none, piecewise, plateau, recent_best"),
        ("task=3", "task=3: must be one of adding, algorithm, "),
        ("model=${task}", "model=${task}: must be one of "),
        ("+paths.data_dirs=x", "paths.data_dirs=x: no such option; did you mean paths.data_dir?"),
        ("seed=1,2", "seed=1,2: several values need -m, as in: gyral train -m model=rum,lstm"),
        ("launcher=local,joblib", "launcher=local,joblib: several values need -m, as in: gyral train -m"),
        ("debug=small,overfit", "debug=small,overfit: several values need -m, as in: gyral train -m"),
        ("+trainer.enable_progress_bar=false", "trainer.enable_progress_bar=false: write ~callbacks.progress_bar"),
        ("logger=wandb +logger.wandb.x=3", "logger.wandb.x=3: no such option; allowed: run, project, entity,"),
    ],
)
def test_keys_of_other_frameworks_are_refused_with_their_replacement(
    words: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke(*words.split()).error.startswith(message)
    assert not list(tmp_path.iterdir())


def test_keys_of_other_frameworks_are_not_options() -> None:
    config = OmegaConf.to_container(compose_config("callbacks=cosines", "logger=wandb"))
    assert not {key for key in hints("train") if select(config, key) is not None} - {"trainer", "logger"}
    with pytest.raises(OptionError, match=r"trainer\.fast_dev_run=True: write debug=small"):
        check_values(compose_config("+trainer.fast_dev_run=true"), [])


def test_a_plus_before_an_experiment_and_the_flag_after_words_are_accepted(tmp_path: Path) -> None:
    outcome = invoke("+experiment=rum_paper/fig4/lstm", "--cfg", "job")
    assert outcome.status == 0, outcome.err
    assert "recalled: 10" in outcome.out
    outcome = invoke("task=copy", "optimizer.lr=0.1,fast", "-m", "seed=1", f"hydra.sweep.dir={tmp_path}")
    assert outcome.error.startswith("optimizer.lr=fast: ")


@pytest.mark.parametrize(("entry", "option"), [("evaluate", "run"), ("train", "resume"), ("train", "weights")])
def test_paths_need_no_quotes_for_hydra(entry: str, option: str, tmp_path: Path) -> None:
    path = tmp_path / "it's a=1,b=2 [x]"
    small = CHEAP if option == "weights" else ()
    error = invoke(*small, f"{option}={path}", entry=entry).error
    assert error.startswith(f"{option}={path}: ")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("rum_paper/fig4/gru_1000", "did you mean rum_paper/fig4/gru_100 or rum_paper/"),
        ("gru_100", "did you mean rum_paper/fig4/gru_100 or rum_paper/fig4_rates/gru_100? must be"),
        ("nothing", "must be"),
        ("3", "must be"),
    ],
)
def test_unknown_experiments_are_refused_with_near_names(name: str, near: str) -> None:
    error = invoke(f"experiment={name}").error
    assert error.startswith(f"experiment={name}: {near}")
    listed = f"must be one of {len(choices('experiment'))} names, which `gyral train --help experiment` lists"
    assert error.endswith(listed)
    assert len(error) < 300


@pytest.mark.parametrize(
    ("override", "key", "allowed"),
    [
        ("model.cell.hiden_size=3", "model.cell.hiden_size", ["hidden_size", "lambd"]),
        ("model.layers=3", "model.layers", ["num_layers", "cell"]),
        ("task.length=30", "task.length", ["delay", "recalled"]),
        ("optimizer.epps=0.5", "optimizer.epps", ["eps", "lr"]),
        ("trainer.steps=3", "trainer.steps", ["max_steps"]),
        ("sede=3", "sede", ["seed", "task", "model"]),
    ],
)
def test_an_unknown_key_lists_the_allowed_keys(override: str, key: str, allowed: list[str]) -> None:
    error = invoke("model=rum", "task=copy", override).error
    assert error.startswith(f"{key}")
    said = error.partition("allowed: ")[2].split(", ")
    assert set(allowed) <= set(said)


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("+model.cell.speed=3", "model.cell"),
        ("+task.speed=3", "task"),
        ("+optimizer.speed=3", "optimizer"),
        ("+trainer.speed=3", "trainer"),
        ("+callbacks.checkpoints.speed=3", "callbacks.checkpoints"),
    ],
)
def test_unused_options_are_refused(override: str, key: str, tmp_path: Path) -> None:
    error = invoke(*CHEAP, override, f"hydra.run.dir={tmp_path}").error
    assert "speed" in error
    assert error.startswith(key)
    assert not (tmp_path / "DONE").exists()


@pytest.mark.parametrize("arguments", [["model.cell.hidden_size"], ["model.cell={"], ["--nothing"]])
def test_arguments_without_a_key_are_refused(arguments: list[str]) -> None:
    outcome = invoke(*arguments)
    assert outcome.status != 0
    assert "Traceback" not in outcome.err
    assert arguments[0] in outcome.err


def test_an_environment_variable_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(Exception, match="nothing"):
        invoke("model=nothing")


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_a_command_with_the_status_of_ctrl_c(number: signal.Signals) -> None:
    # the tests may run where a signal is ignored, as under nohup or in the background
    former = signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit, match=r"^130$"), command_line.one_line_errors():
            os.kill(os.getpid(), number)
    finally:
        signal.signal(number, former)


def test_no_permission_to_write_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    error = invoke(*CHEAP, f"hydra.run.dir={tmp_path}/file/run").error
    assert str(tmp_path / "file") in error
    assert "Not a directory" in error
    assert (tmp_path / "file").read_bytes() == b""


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_a_directory_without_permission_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    error = invoke(*CHEAP, f"hydra.run.dir={tmp_path}/closed/run").error
    assert "Permission denied" in error


@pytest.mark.parametrize(
    ("entry", "arguments", "expected"),
    [
        ("train", ["resume={}"], "resume={}: must be a run directory, one that holds config.yaml"),
        ("evaluate", ["run={}"], "run={}: must be a run directory, one that holds config.yaml"),
        ("evaluate", ["split=val"], "run=<nothing>: must be a run directory"),
        ("evaluate", ["run={}", "split=all"], "split=all: must be one of train, val, test"),
    ],
)
def test_missing_runs_are_refused(entry: str, arguments: list[str], expected: str, tmp_path: Path) -> None:
    for directory in (tmp_path / "nothing", tmp_path):
        error = invoke(*(argument.format(directory) for argument in arguments), entry=entry).error
        assert error == expected.format(directory)
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("axis", ["seed=", "model=", "task=copy,", "task=,copy", "model=rum,,gru", "seed=1,"])
def test_empty_sweep_axes_are_refused(axis: str, tmp_path: Path) -> None:
    outcome = invoke("-m", *CHEAP, axis, f"hydra.sweep.dir={tmp_path}/sweep")
    assert outcome.status == 1
    assert f"error: {axis.partition('=')[0]}=" in outcome.err
    assert "Traceback" not in outcome.err
    assert not list(tmp_path.rglob("DONE"))
    assert not list(tmp_path.rglob("checkpoints"))


@pytest.mark.parametrize("override", ["seed=null", "model=", "task=", "model.cell.hidden_size=", "task.delay=null"])
def test_empty_values_are_refused(override: str, tmp_path: Path) -> None:
    outcome = invoke(*SMALL_COPY, override, f"hydra.run.dir={tmp_path}")
    assert override.partition("=")[0] in outcome.error
    assert not (tmp_path / "DONE").exists()


def test_a_run_directory_is_sufficient_to_repeat_the_run(tmp_path: Path) -> None:
    outcome = invoke(*CHEAP, "optimizer.lr=0.02", f"hydra.run.dir={tmp_path}", plot=True)
    assert outcome.status == 0, outcome.err
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    expected = {"config.yaml", "overrides.yaml", "provenance.json", "metrics.csv", "train.log", "DONE", "examples.txt"}
    assert names >= expected | {"checkpoints/last.ckpt", "checkpoints/best.ckpt", "loss.png"}
    assert "optimizer.lr=0.02" in (tmp_path / "overrides.yaml").read_text()
    config = (tmp_path / "config.yaml").read_text()
    assert "lr: 0.02" in config
    assert "${" not in config
    provenance = json.loads((tmp_path / "provenance.json").read_text())
    assert len(provenance["id"]) == 12
    assert provenance["packages"]["torch"]
    assert {"started", "command", "git_commit", "host", "platform", "processor", "cores", "python"} <= set(provenance)
    results = json.loads((tmp_path / "DONE").read_text())
    assert results["steps"] == 24
    for line in (
        "test loss",
        "test accuracy",
        "memoryless baseline",
        "baseline beaten",
        "parameters",
        "seconds per step",
    ):
        assert line in outcome.out
    assert "Traceback" not in outcome.err


def test_the_seed_determines_the_run_and_simultaneous_runs_have_different_directories(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    results = []
    for number, seed in enumerate((5, 5, 6), 1):
        options = ("trainer.max_steps=1", "trainer.log_every_n_steps=1", f"seed={seed}")
        assert invoke(*CHEAP, *options, plot=True).status == 0
        directories = sorted((tmp_path / "outputs" / "recall" / "rnn").iterdir())  # by the time
        assert len(directories) == number
        results.append(json.loads((directories[-1] / "DONE").read_text())["test/loss"])
    assert results[0] == results[1] != results[2]
    assert not list(tmp_path.rglob("loss.png"))  # there is no curve through one point
