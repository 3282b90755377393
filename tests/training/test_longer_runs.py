"""A finished run that is lengthened ends bit-equal to one that was long from its start."""

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from pytorch_lightning import Callback

from gyral.core.errors import OptionError
from gyral.runs import opening
from gyral.runs.directory import Run, load_run
from gyral.runs.provenance import read_provenance
from gyral.runs.records import read_run
from tests.helpers import killing
from tests.helpers.running import (
    SMALL_PROGRAMS,
    SMALL_RECALL,
    assert_same,
    assert_same_run,
    invoke,
    load_last,
    read_rows,
    small_text,
    train,
)

RUN = (
    *(word for word in SMALL_RECALL if not word.startswith(("trainer.max_steps", "trainer.val_check_interval"))),
    "model=gru",
    "model.cell.zoneout=0.2",
    "optimizer=adam",
    "trainer.val_check_interval=2",
)
SHORT, LONG = "trainer.max_steps=4", "trainer.max_steps=8"
slow = pytest.mark.slow


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("long") / "run", *RUN, LONG)


@pytest.fixture(scope="module")
def short_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("short") / "run", *RUN, SHORT)


@pytest.fixture
def run(short_run: Path, tmp_path: Path) -> Path:
    """A copy of a finished run of 4 steps."""
    return Path(shutil.copytree(short_run, tmp_path / "run"))


def interrupt() -> None:
    raise KeyboardInterrupt


def check_equal(run: Path, long_run: Path) -> None:
    assert_same_run(long_run, run)
    done, wanted = (json.loads((directory / "DONE").read_text()) for directory in (run, long_run))
    assert done["steps"] == 8
    assert [done[key] for key in ("monitor", "test/loss", "test/accuracy")] == [
        wanted[key] for key in ("monitor", "test/loss", "test/accuracy")
    ]


# the last checkpoint is written after the validation, or at the end
@pytest.mark.slow
@pytest.mark.parametrize("every", [2, 3, 4])
def test_it_does_not_matter_when_the_last_checkpoint_was_written(tmp_path: Path, long_run: Path, every: int) -> None:
    run = train(tmp_path / "run", *RUN, SHORT, f"callbacks.checkpoints.every={every}")
    assert invoke(f"resume={run}", LONG).status == 0
    assert load_last(run)["global_step"] == 8
    check_weights(run, long_run)
    if every == 2:  # the rows of metrics.csv do not depend on it
        check_equal(run, long_run)


def check_weights(run: Path, long_run: Path) -> None:
    first, second = load_last(run), load_last(long_run)
    assert all((first["state_dict"][name] == value).all() for name, value in second["state_dict"].items())


@pytest.mark.slow
def test_a_longer_run_on_a_text_carries_its_state(tmp_path: Path) -> None:
    """It ends in its first pass over the text, of 9 steps. Its last checkpoint was written at its end."""
    longer = "trainer.max_steps=12"
    text = (*small_text(tmp_path), "model=gru", "optimizer=adam", "trainer.val_check_interval=4")
    long_run = train(tmp_path / "long", *text, longer)
    run = train(tmp_path / "run", *text, SHORT, "callbacks.checkpoints.every=12")
    outcome = invoke(f"resume={run}", longer)
    assert outcome.status == 0, outcome.err
    check_weights(run, long_run)
    assert_same(load_last(run)["carried"], load_last(long_run)["carried"])


# What follows the validations, or is exchanged for the test. The learning rate makes the metric rise and fall.
FOLLOWING = {
    "average and plateau": ("callbacks=averaging", "callbacks.averaging.start=2", "scheduler=plateau"),
    "average from a validation on": ("callbacks=averaging", "callbacks.averaging.patience=1"),
    "patience": ("callbacks=early_stopping", "callbacks.early_stopping.patience=2"),
    "plateau": ("scheduler=plateau", "scheduler.patience=0"),
    "recent best": ("scheduler=recent_best", "scheduler.window=1"),
    "best": (),
    "pruning": ("+callbacks.pruning._target_=gyral.training.callbacks.pruning.Pruning",),
    "exponential average": (
        "+callbacks.mean._target_=pytorch_lightning.callbacks.EMAWeightAveraging",
        "+callbacks.mean.decay=0.5",
    ),
    "callback": ("+callbacks.own._target_=tests.training.test_longer_runs.Zeros",),
    "no multiple of the interval": ("trainer.val_check_interval=100",),
}
FIRST = "average and plateau"


class Zeros(Callback):
    """Sets all weights to zero at the end of training."""

    def on_train_end(self, trainer: Any, task: Any) -> None:
        for parameter in task.parameters():
            parameter.data.zero_()


@pytest.mark.parametrize("name", [FIRST, *(pytest.param(each, marks=slow) for each in FOLLOWING if each != FIRST)])
def test_what_the_end_of_a_run_changes_is_not_in_a_longer_run(tmp_path: Path, name: str) -> None:
    words = (*RUN, "trainer.val_check_interval=3", "optimizer.lr=0.5", *FOLLOWING[name])
    long_run = train(tmp_path / "long", *words, "trainer.max_steps=12")
    run = train(tmp_path / "run", *words, "trainer.max_steps=8")
    outcome = invoke(f"resume={run}", "trainer.max_steps=12", "trust=[tests,pytorch_lightning]")
    assert outcome.status == 0, outcome.err
    check_the_same_end(run, long_run)
    assert not [*run.glob("checkpoints/step_8*")]


def check_the_same_end(run: Path, long_run: Path) -> None:
    first, second = load_last(run), load_last(long_run)
    changing = {"pytorch-lightning_version", "hyper_parameters"}
    for key in {*first, *second} - changing:
        assert_same(first.get(key), second.get(key), key)
    results = [json.loads((directory / "DONE").read_text()) for directory in (run, long_run)]
    assert results[0]["monitor"] == results[1]["monitor"]
    assert results[0]["test/loss"] == results[1]["test/loss"]
    best = [torch.load(directory / "checkpoints/best.ckpt", weights_only=True) for directory in (run, long_run)]
    assert best[0]["global_step"] == best[1]["global_step"]


@pytest.mark.slow
def test_a_curriculum_that_follows_the_validations_equals_that_of_a_long_run(tmp_path: Path) -> None:
    lengths = ("trainer.max_steps", "trainer.val_check_interval")
    words = (*(word for word in SMALL_PROGRAMS if not word.startswith(lengths)), "model=gru")
    long_run = train(tmp_path / "long", *words, "trainer.val_check_interval=3", "trainer.max_steps=12")
    run = train(tmp_path / "run", *words, "trainer.val_check_interval=3", "trainer.max_steps=8")
    assert invoke(f"resume={run}", "trainer.max_steps=12").status == 0
    check_the_same_end(run, long_run)


@pytest.mark.slow
def test_a_job_continues_a_shorter_one_from_before_its_end(tmp_path: Path) -> None:
    words = (*RUN, "trainer.val_check_interval=3", "callbacks=averaging", "callbacks.averaging.start=2", "seed=3")
    command = ("-m", *words, f"hydra.sweep.dir={tmp_path / 'sweep'}")
    assert invoke(*command, "trainer.max_steps=8").status == 0
    [short] = (path.parent for path in tmp_path.glob("sweep/**/DONE"))
    outcome = invoke(*command, "trainer.max_steps=12")
    assert "Continuing the run of 8 steps" in outcome.err
    [longer] = (path.parent for path in tmp_path.glob("sweep/**/DONE") if path.parent != short)
    check_the_same_end(longer, train(tmp_path / "long", *words, "trainer.max_steps=12"))
    assert (short / "checkpoints" / "step_8").is_dir(), "the shorter run stays"


@pytest.mark.slow
@pytest.mark.parametrize("point", ["in_validation", "in_test"])
def test_a_run_that_was_killed_at_its_end_is_made_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    words = (*RUN, "trainer.val_check_interval=3", "callbacks=averaging", "callbacks.averaging.start=2")
    words = (*words, "callbacks.checkpoints.every=5")
    long_run = train(tmp_path / "long", *words, "trainer.max_steps=12")
    run = tmp_path / "run"
    with monkeypatch.context() as context:
        if point == "in_validation":
            killing.arm(point, 8, act=interrupt, patch=context.setattr)
        else:
            context.setattr("gyral.training.loop.test", lambda *_: interrupt())
        assert invoke(*words, "trainer.max_steps=8", f"hydra.run.dir={run}").status != 0
    assert load_last(run)["global_step"] == (5 if point == "in_validation" else 8)
    shorter = Path(shutil.copytree(run, tmp_path / "shorter"))
    assert invoke(f"resume={run}", "trainer.max_steps=12").status == 0
    check_the_same_end(run, long_run)
    assert [row["step"] for row in read_rows(run) if row["train/loss"]] == ["1", "3", "5", "7", "9", "11"]

    whole = train(tmp_path / "whole", *words, "trainer.max_steps=8")
    assert invoke(f"resume={shorter}").status == 0
    check_the_same_end(shorter, whole)


def test_a_longer_run_that_was_killed_equals_one_that_was_long_from_its_start(
    run: Path, long_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as context:
        killing.arm("before_step", 7, act=interrupt, patch=context.setattr)
        assert invoke(f"resume={run}", LONG).status != 0
    assert not (run / "DONE").exists()
    assert read_run(run).results is None
    assert invoke(f"resume={run}").status == 0
    check_equal(run, long_run)
    assert OmegaConf.load(run / "config.yaml").trainer.max_steps == 8
    assert read_run(run).overrides["trainer.max_steps"] == LONG
    assert "is DONE" in invoke(f"resume={run}", LONG).err


@pytest.mark.parametrize("written", ["DONE", "overrides.yaml"])
def test_a_process_that_is_killed_while_it_starts_leaves_a_whole_run(
    run: Path, short_run: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    """Either the run is DONE as before, or it resumes and is tested again; it is never DONE with other steps."""
    name = {"DONE": "write_yaml", "overrides.yaml": "write_config"}[written]

    def die(*_: object) -> None:
        raise OSError("the process is killed here")

    with monkeypatch.context() as context:
        context.setattr(opening, name, die)
        assert invoke(f"resume={run}", LONG).status == 1
    assert not (run / "DONE").exists()
    assert OmegaConf.load(run / "config.yaml").trainer.max_steps == 4
    if written == "overrides.yaml":  # the later moment
        assert invoke(f"resume={run}").status == 0
        assert_same_run(short_run, run)


def test_a_refused_length_changes_nothing(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != "train.log"}
    for steps in (3, "many"):
        with pytest.raises(OptionError, match=f"max_steps={steps}: must be more than 4"):
            opening.lengthened(load_run(run), steps)
    for words, reason in [
        (["trainer.max_steps=3"], "must be more than 4"),
        ([LONG, "seed=2"], "trainer.max_steps=<more steps> at most; leave out seed=2"),
        (["task.delay=2"], f"resume={run}: uses the run's saved configuration, with trainer.max_steps=<more steps> at"),
    ]:
        assert reason in invoke(f"resume={run}", *words).error
    assert {path: path.read_bytes() for path in before} == before
    assert "is DONE" in invoke(f"resume={run}", SHORT).err


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["cosine", "wsd"])
def test_a_schedule_that_ends_with_the_run_is_named(tmp_path: Path, scheduler: str) -> None:
    run = train(tmp_path / "run", *RUN, "trainer.max_steps=4", f"scheduler={scheduler}")
    error = invoke(f"resume={run}", LONG).error
    assert f"scheduler.steps=4 ends with the run in {run}" in error
    assert f"weights={run}" in error
    assert (run / "DONE").exists()


def test_a_run_that_ended_early_is_not_lengthened(tmp_path: Path) -> None:
    run = train(tmp_path / "run", *RUN, SHORT, "callbacks.early_stopping.stopping_threshold=0")
    assert "ended after 2 of its 4 steps, by early stopping" in invoke(f"resume={run}", LONG).error
    assert (run / "DONE").exists()


@pytest.mark.parametrize("option", ["T_max", "steps"])  # of torch's schedule and of ours
def test_the_length_of_a_run_is_checked_without_a_trainer(option: str) -> None:
    config = OmegaConf.create({"trainer": {"max_steps": 4}, "scheduler": {option: 4}})
    reason = rf"scheduler\.{option}=4 ends with the run in run: .*\.max_steps=8, or one from its weights: weights=run$"
    with pytest.raises(OptionError, match=reason):
        opening.lengthened(Run(Path("run"), config), 8)


def test_a_sweep_of_two_runs_of_4_steps_is_lengthened(tmp_path: Path, long_run: Path) -> None:
    sweep = tmp_path / "sweep"
    assert invoke("-m", *RUN, "seed=1,2", SHORT, f"hydra.sweep.dir={sweep}").status == 0
    refuse_a_job_before_it_starts(sweep)
    say_how_to_train_the_job_of_a_longer_run(Path(shutil.copytree(sweep, tmp_path / "copy")))
    continue_each_of_its_jobs(sweep, long_run)


def continue_each_of_its_jobs(sweep: Path, long_run: Path) -> None:
    command = ["-m", *RUN, "seed=1,2", f"hydra.sweep.dir={sweep}"]
    short = sorted(path.parent for path in sweep.rglob("DONE"))
    before = {path: path.read_bytes() for folder in short for path in folder.rglob("*") if path.is_file()}

    error = invoke(f"resume={short[0]}", LONG).error  # a row would have runs of different lengths
    again = shlex.split(error.partition("to continue all of them: ")[2])
    assert again[again.index("-m", 3) :][:1] == ["-m"]
    assert {*again} >= {*command[1:-1], LONG}
    assert SHORT not in again

    outcome = invoke(*command, LONG)
    assert outcome.status == 0, outcome.err
    assert outcome.err.count("Continuing the run of 4 steps in ") == 2
    assert {path: path.read_bytes() for path in before} == before, "the shorter runs stay"
    longer = sorted({path.parent for path in sweep.rglob("DONE")} - {*short})
    assert len(longer) == 2
    [first] = [folder for folder in longer if OmegaConf.load(folder / "config.yaml").seed == 1]
    check_equal(first, long_run)
    identities = {read_provenance(folder)["id"] for folder in (*short, *longer)}
    assert len(identities) == 4, "each has its own run in Weights & Biases"
    assert invoke(*command, LONG).out.count("was DONE") == 2


def test_a_longer_job_keeps_the_default_interval_of_validations_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [word for word in RUN if "val_check_interval" not in word]
    command = ["-m", *words, f"hydra.sweep.dir={tmp_path}"]
    assert invoke(*command, "trainer.max_steps=2").status == 0
    with monkeypatch.context() as context:
        killing.arm("before_step", 6, act=interrupt, patch=context.setattr)
        assert invoke(*command, "trainer.max_steps=21").status != 0
    outcome = invoke(*command, "trainer.max_steps=21")
    assert outcome.status == 0, outcome.err
    trainers = [OmegaConf.load(path).trainer for path in tmp_path.rglob("config.yaml")]
    assert sorted(trainer.max_steps for trainer in trainers) == [2, 21]
    assert {trainer.val_check_interval for trainer in trainers} == {1}, "2 would be the default for 21 steps"


def test_a_job_whose_schedule_ends_with_it_is_trained_from_its_start(tmp_path: Path) -> None:
    command = ["-m", *RUN, "scheduler=cosine", f"hydra.sweep.dir={tmp_path}"]
    assert invoke(*command, "trainer.max_steps=4").status == 0
    outcome = invoke(*command, "trainer.max_steps=8")
    assert outcome.status == 0, outcome.err
    assert "Continuing" not in outcome.err


def refuse_a_job_before_it_starts(sweep: Path) -> None:
    outcome = invoke("-m", *RUN, "seed=1,2", f"hydra.sweep.dir={sweep}", LONG, "logger=csv", "+logger.csv.x=1")
    assert outcome.status == 1
    assert len([*sweep.rglob("metrics.csv")]) == 2, "a copy of a run that is not continued"


def say_how_to_train_the_job_of_a_longer_run(sweep: Path) -> None:
    run, other = sorted(path.parent for path in sweep.rglob("DONE"))
    shutil.rmtree(other)
    config = OmegaConf.load(run / "config.yaml")
    config.trainer.max_steps = 8  # as earlier versions have written after resume=<job>
    OmegaConf.save(config, run / "config.yaml")
    outcome = invoke("-m", *RUN, f"seed={config.seed}", SHORT, f"hydra.sweep.dir={sweep}")
    assert "(trainer.max_steps is 8 there and 4 here); move or remove it, and the same command" in outcome.err
