"""A finished run that is lengthened ends bit-equal to one that was long from its start."""

import json
import shlex
import shutil
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from gyral.core.errors import OptionError
from gyral.runs import directory as run_directory
from gyral.runs.provenance import read_provenance
from gyral.runs.records import read_run
from tests.helpers import killing
from tests.helpers.running import (
    SMALL_RECALL,
    assert_same_run,
    invoke,
    load_last,
    small_text,
    train,
)

RUN = (*SMALL_RECALL, "model=gru", "model.cell.zoneout=0.2", "optimizer=adam", "trainer.val_check_interval=4")
SHORT, LONG = "trainer.max_steps=12", "trainer.max_steps=24"


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("long") / "run", *RUN, LONG)


@pytest.fixture(scope="module")
def short_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("short") / "run", *RUN, SHORT)


@pytest.fixture
def run(short_run: Path, tmp_path: Path) -> Path:
    """A copy of a finished run of 12 steps."""
    return Path(shutil.copytree(short_run, tmp_path / "run"))


def interrupt() -> None:
    raise KeyboardInterrupt


def check_equal(run: Path, long_run: Path) -> None:
    assert_same_run(long_run, run)
    done, wanted = (json.loads((directory / "DONE").read_text()) for directory in (run, long_run))
    assert done["steps"] == 24
    assert [done[key] for key in ("monitor", "test/loss", "test/accuracy")] == [
        wanted[key] for key in ("monitor", "test/loss", "test/accuracy")
    ]


def test_a_longer_run_equals_one_that_was_long_from_its_start(run: Path, long_run: Path) -> None:
    outcome = invoke(f"resume={run}", LONG)
    assert outcome.status == 0, outcome.err
    check_equal(run, long_run)
    assert OmegaConf.load(run / "config.yaml").trainer.max_steps == 24
    assert read_run(run).overrides["trainer.max_steps"] == LONG
    assert "is DONE" in invoke(f"resume={run}", LONG).err


# the last checkpoint is written after the validation, or at the end
@pytest.mark.parametrize("every", [4, pytest.param(5, marks=pytest.mark.slow), 12])
def test_it_does_not_matter_when_the_last_checkpoint_was_written(tmp_path: Path, long_run: Path, every: int) -> None:
    run = train(tmp_path / "run", *RUN, SHORT, f"callbacks.checkpoints.every={every}")
    assert invoke(f"resume={run}", LONG).status == 0
    assert load_last(run)["global_step"] == 24
    first, second = load_last(run), load_last(long_run)
    assert all((first["state_dict"][name] == value).all() for name, value in second["state_dict"].items())
    if every == 4:  # the rows of metrics.csv do not depend on it
        check_equal(run, long_run)


def test_a_longer_run_on_a_text_carries_its_state(tmp_path: Path) -> None:
    text = (*small_text(tmp_path), "model=gru", "optimizer=adam", "trainer.val_check_interval=4")
    long_run = train(tmp_path / "long", *text, LONG)
    run = train(tmp_path / "run", *text, SHORT)
    assert invoke(f"resume={run}", LONG).status == 0
    check_equal(run, long_run)


@pytest.mark.slow
def test_a_length_that_is_no_multiple_of_the_interval(tmp_path: Path) -> None:
    """The additional validation at the end of the short run changes no weight."""
    run = train(tmp_path / "run", *RUN, "trainer.max_steps=10")
    long_run = train(tmp_path / "long", *RUN, LONG)
    assert invoke(f"resume={run}", LONG).status == 0
    first, second = load_last(run), load_last(long_run)
    assert all((first["state_dict"][name] == value).all() for name, value in second["state_dict"].items())
    assert first["loops"]["fit_loop"]["epoch_loop.state_dict"] == second["loops"]["fit_loop"]["epoch_loop.state_dict"]


def test_a_longer_run_that_was_killed_resumes(run: Path, long_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as context:
        killing.arm("before_step", 17, act=interrupt, patch=context.setattr)
        assert invoke(f"resume={run}", LONG).status != 0
    assert not (run / "DONE").exists()
    assert read_run(run).results is None
    assert invoke(f"resume={run}").status == 0
    check_equal(run, long_run)


@pytest.mark.parametrize("written", ["DONE", "overrides.yaml"])
def test_a_process_that_is_killed_while_it_starts_leaves_a_whole_run(
    run: Path, short_run: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    """Either the run is DONE as before, or it resumes and is tested again; it is never DONE with other steps."""
    name = {"DONE": "write_yaml", "overrides.yaml": "write_config"}[written]

    def die(*_: object) -> None:
        raise OSError("the process is killed here")

    with monkeypatch.context() as context:
        context.setattr(run_directory, name, die)
        assert invoke(f"resume={run}", LONG).status == 1
    assert not (run / "DONE").exists()
    assert OmegaConf.load(run / "config.yaml").trainer.max_steps == 12
    assert invoke(f"resume={run}").status == 0
    assert_same_run(short_run, run)


def test_a_refused_length_changes_nothing(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != "train.log"}
    for words, reason in [
        (["trainer.max_steps=6"], "must be more than 12"),
        (["trainer.max_steps=many"], "must be more than 12"),
        ([LONG, "seed=2"], "trainer.max_steps=<more steps> at most; leave out seed=2"),
    ]:
        assert reason in invoke(f"resume={run}", *words).error
    assert {path: path.read_bytes() for path in before} == before
    assert "is DONE" in invoke(f"resume={run}", SHORT).err


@pytest.mark.parametrize("scheduler", ["cosine", "wsd"])
def test_a_schedule_that_ends_with_the_run_is_named(tmp_path: Path, scheduler: str) -> None:
    run = train(tmp_path / "run", *RUN, "trainer.max_steps=4", f"scheduler={scheduler}")
    error = invoke(f"resume={run}", LONG).error
    assert f"scheduler.steps=4 ends with the run in {run}" in error
    assert f"weights={run}" in error
    assert (run / "DONE").exists()


def test_a_run_that_ended_early_is_not_lengthened(tmp_path: Path) -> None:
    run = train(tmp_path / "run", *RUN, SHORT, "callbacks.early_stopping.stopping_threshold=0")
    assert "ended after 4 of its 12 steps, by early stopping" in invoke(f"resume={run}", LONG).error
    assert (run / "DONE").exists()


def test_the_length_of_a_run_is_checked_without_a_trainer() -> None:
    config = OmegaConf.create({"trainer": {"max_steps": 4}, "scheduler": {"T_max": 4}})
    with pytest.raises(OptionError, match=r"scheduler\.T_max=4 ends with the run"):
        run_directory.lengthened(run_directory.Run(Path("run"), config), 8)


def test_a_sweep_with_more_steps_continues_each_of_its_jobs(tmp_path: Path, long_run: Path) -> None:
    command = ["-m", *RUN, "seed=1,2", f"hydra.sweep.dir={tmp_path}"]
    assert invoke(*command, SHORT).status == 0
    short = sorted(path.parent for path in tmp_path.rglob("DONE"))
    before = {path: path.read_bytes() for folder in short for path in folder.rglob("*") if path.is_file()}

    error = invoke(f"resume={short[0]}", LONG).error  # a row would have runs of different lengths
    again = shlex.split(error.partition("to continue all of them: ")[2])
    assert again[again.index("-m", 3) :][:1] == ["-m"]
    assert {*again} >= {*command[1:], LONG}
    assert SHORT not in again

    outcome = invoke(*command, LONG)
    assert outcome.status == 0, outcome.err
    assert outcome.err.count("Continuing the run of 12 steps in ") == 2
    assert {path: path.read_bytes() for path in before} == before, "the shorter runs stay"
    longer = sorted({path.parent for path in tmp_path.rglob("DONE")} - {*short})
    assert len(longer) == 2
    check_equal(longer[0], long_run)
    identities = {read_provenance(folder)["id"] for folder in (*short, *longer)}
    assert len(identities) == 4, "each has its own run in Weights & Biases"
    assert invoke(*command, LONG).out.count("was DONE") == 2


def test_a_longer_job_keeps_the_default_interval_of_validations_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [word for word in RUN if "val_check_interval" not in word]
    command = ["-m", *words, f"hydra.sweep.dir={tmp_path}"]
    assert invoke(*command, "trainer.max_steps=20").status == 0
    with monkeypatch.context() as context:
        killing.arm("before_step", 35, act=interrupt, patch=context.setattr)
        assert invoke(*command, "trainer.max_steps=40").status != 0
    outcome = invoke(*command, "trainer.max_steps=40")
    assert outcome.status == 0, outcome.err
    trainers = [OmegaConf.load(path).trainer for path in tmp_path.rglob("config.yaml")]
    assert sorted(trainer.max_steps for trainer in trainers) == [20, 40]
    assert {trainer.val_check_interval for trainer in trainers} == {1}, "20 validations in 20 steps"


def test_a_job_whose_schedule_ends_with_it_is_trained_from_its_start(tmp_path: Path) -> None:
    command = ["-m", *RUN, "scheduler=cosine", f"hydra.sweep.dir={tmp_path}"]
    assert invoke(*command, "trainer.max_steps=4").status == 0
    outcome = invoke(*command, "trainer.max_steps=8")
    assert outcome.status == 0, outcome.err
    assert "Continuing" not in outcome.err


def test_a_job_refused_before_it_starts_leaves_no_copies(tmp_path: Path) -> None:
    command = ["-m", *RUN, f"hydra.sweep.dir={tmp_path}"]
    assert invoke(*command, "trainer.max_steps=4").status == 0
    outcome = invoke(*command, "trainer.max_steps=8", "logger=csv", "+logger.csv.x=1")
    assert outcome.status == 1
    assert len([*tmp_path.rglob("metrics.csv")]) == 1


def test_a_longer_run_in_the_directory_of_a_job_says_how_to_train_the_job(tmp_path: Path) -> None:
    command = ["-m", *RUN, SHORT, f"hydra.sweep.dir={tmp_path}"]
    assert invoke(*command).status == 0
    [run] = [path.parent for path in tmp_path.rglob("DONE")]
    config = OmegaConf.load(run / "config.yaml")
    config.trainer.max_steps = 24  # as earlier versions have written after resume=<job>
    OmegaConf.save(config, run / "config.yaml")
    outcome = invoke(*command)
    assert "(trainer.max_steps is 24 there and 12 here); move or remove it, and the same command" in outcome.err
