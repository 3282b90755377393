"""A search that continues with other values: larger lists keep the trials, others are refused in one line."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gyral.core.errors import OptionError
from gyral.sweeps.larger_space import COPY, changes, continue_with, restore
from gyral.sweeps.space import text_of
from tests.sweeps.test_optuna import SHORT, read, search

optuna = pytest.importorskip("optuna")
optuna.logging.set_verbosity(optuna.logging.WARNING)
distributions = optuna.distributions
List, Float, Int = distributions.CategoricalDistribution, distributions.FloatDistribution, distributions.IntDistribution
LR = Float(1e-3, 0.1, log=True)
KEY = "model.cell.hidden_size"
ALONE: Any = SimpleNamespace(is_alone=True)


def searched(first: Any, values: list[Any], **failure: str) -> Any:
    """Return a study with one complete trial for each value, one that failed, one that runs and one that waits."""
    study = optuna.create_study(study_name="own", storage=optuna.storages.InMemoryStorage(), direction="maximize")
    study.set_user_attr("settings", {"seed": "1"})
    for value in values:
        study.enqueue_trial({KEY: value})
        trial = study.ask({KEY: first, "optimizer.lr": LR})
        trial.report(0.5, 3)
        study.tell(trial, float(trial.number))
    failed = study.ask({KEY: first, "optimizer.lr": LR})
    for attribute, text in failure.items():
        failed.set_user_attr(attribute, text)
    study.tell(failed, state=optuna.trial.TrialState.FAIL)
    study.ask({KEY: first, "optimizer.lr": LR}).set_user_attr("search", "mark")
    study.enqueue_trial({KEY: values[0]})
    return study


def described(study: Any) -> list[tuple[Any, ...]]:
    return [
        (t.number, t.state, t.value, t.params, t.user_attrs, t.system_attrs, t.intermediate_values, t.datetime_start)
        for t in study.trials
    ]


def continued(study: Any, new: Any, owned: Any = ALONE) -> Any:
    return continue_with(study, study._storage, owned, {KEY: new, "optimizer.lr": LR}, Path("search"), 9)


@pytest.mark.parametrize(
    ("first", "new"),
    [
        ([4, 8], [4, 8, 16]),
        ([8, 16], [4, 8, 16]),
        ([0.0, 0.3], [0.0, 0.1, 0.3]),
        (["relu", "tanh"], ["tanh", "relu", "gelu"]),
        ([True, False], [True, False, None]),
        ([1, 3], [None, 1, 3]),
    ],
)
def test_a_search_continues_with_more_choices(first: list[Any], new: list[Any]) -> None:
    study = searched(List(first), first)
    before = described(study)
    assert set(changes(study, {KEY: List(new)})) == {KEY}
    larger = continued(study, List(new))
    assert described(larger) == before
    assert (larger.study_name, larger.direction, larger.user_attrs) == (
        study.study_name,
        study.direction,
        {"settings": {"seed": "1"}},
    )
    assert optuna.get_all_study_names(study._storage) == ["own"]
    larger.sampler = optuna.samplers.TPESampler(seed=1, n_startup_trials=1)
    drawn = {repr(larger.ask({KEY: List(new), "optimizer.lr": LR}).params[KEY]) for _ in range(20)}
    assert repr(next(value for value in new if value not in first)) in drawn


@pytest.mark.parametrize(
    ("first", "new"),
    [
        (List([4, 8]), List([4, 8])),
        (Int(4, 8), Int(2, 64)),
        (Int(4, 8), Int(4, 16, step=4)),
        (Float(0.0, 1.0), Float(0.0, 2.0)),
        (LR, Float(1e-5, 1.0, log=True)),
    ],
)
def test_other_ends_of_an_interval_need_no_other_study(first: Any, new: Any) -> None:
    study = searched(first, [4, 8] if not isinstance(first, Float) else [0.05])
    assert continued(study, new) is study
    assert KEY in study.ask({KEY: new}).params


@pytest.mark.parametrize(
    ("first", "new", "said"),
    [
        (List([4, 8]), List([4, 16]), f"{KEY} is 4,8 there and 4,16 here"),
        (List([4, 8]), List(["4", "8", "16"]), f"{KEY} is 4,8 there and 4,8,16 here"),
        (List([4, 8]), Int(4, 16), f"{KEY} is 4,8 there and interval(4,16) here"),
        (Int(4, 16, step=4), LR, f"{KEY} is range(4,20,4) there and tag(log,interval(0.001,0.1)) here"),
        (Int(4, 16), Int(4, 16, log=True), f"{KEY} is interval(4,16) there and tag(log,interval(4,16)) here"),
    ],
)
def test_other_values_are_refused_with_the_difference(first: Any, new: Any, said: str) -> None:
    study = searched(first, [4, 8])
    with pytest.raises(OptionError) as raised:
        continued(study, new)
    advice = "choose another directory, or only add values"
    assert str(raised.value) == f"hydra.sweep.dir=search: holds a search with other values ({said}); {advice}"


def test_a_list_may_replace_an_interval_whose_values_it_has() -> None:
    study = searched(Int(4, 8), [4, 8])
    drawn = sorted({trial.params[KEY] for trial in study.trials if KEY in trial.params})
    larger = continued(study, List([*drawn, 16]))
    assert changes(larger, {KEY: List([*drawn, 16])}) == {}


def test_a_trial_that_failed_for_a_reason_waits_under_its_number() -> None:
    without = searched(List([4, 8]), [4, 8])
    assert continued(without, List([4, 8])) is without, "another process had its number"
    study = searched(List([4, 8]), [4, 8], reason="the disk was full")
    before = described(study)
    assert continued(study, List([4, 8]), SimpleNamespace(is_alone=False)) is study
    waiting = continued(study, List([4, 8]))
    after = described(waiting)
    assert after[2] == (2, optuna.trial.TrialState.WAITING, *before[2][2:4], {}, *before[2][5:])
    assert [*after[:2], *after[3:]] == [*before[:2], *before[3:]]
    again = waiting.ask({KEY: List([4, 8]), "optimizer.lr": LR})
    assert (again.number, again.params) == (2, before[2][3])


def test_a_study_of_several_searches_is_not_replaced() -> None:
    study = searched(List([4, 8]), [4, 8])
    with pytest.raises(OptionError, match=r"4,8 there and 4,8,16 here\); several searches share its study$"):
        continued(study, List([4, 8, 16]), SimpleNamespace(is_alone=False))


def test_a_study_whose_jobs_still_run_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gyral.sweeps.larger_space.is_in_use", lambda trial: trial.number == 3)
    with pytest.raises(OptionError, match=r"4,8 there and 4,8,16 here\), and its jobs still run$"):
        continued(searched(List([4, 8]), [4, 8]), List([4, 8, 16]))


@pytest.mark.parametrize("call", range(12))
def test_a_study_survives_a_kill_while_it_is_replaced(call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is killed at a call that changes the storage."""
    study = searched(List([4, 8]), [4, 8])
    before, storage, calls = described(study), study._storage, iter(range(100))
    for name in ("create_new_study", "create_new_trial", "delete_study"):
        method = getattr(storage, name)

        def counted(*arguments: Any, method: Any = method, **options: Any) -> Any:
            if next(calls) == call:
                raise KeyboardInterrupt
            return method(*arguments, **options)

        monkeypatch.setattr(storage, name, counted)
    with pytest.raises(KeyboardInterrupt):
        continued(study, List([4, 8, 16]))
    restore("own", storage)
    assert optuna.get_all_study_names(storage) == ["own"]
    restored = optuna.load_study(study_name="own", storage=storage)
    assert described(restored) == before
    restore("own", storage)
    assert described(continued(restored, List([4, 8, 16]))) == before


@pytest.mark.parametrize(
    ("distribution", "text"),
    [
        (List([4, None, "a", 0.5]), "4,None,a,0.5"),
        (Int(4, 16), "interval(4,16)"),
        (Int(4, 16, log=True), "tag(log,interval(4,16))"),
        (Int(4, 16, step=4), "range(4,20,4)"),
        (Float(0.0, 1.0), "interval(0,1)"),
        (LR, "tag(log,interval(0.001,0.1))"),
    ],
)
def test_a_distribution_is_shown_in_the_grammar_of_the_command_line(distribution: Any, text: str) -> None:
    assert text_of(distribution) == text


@pytest.mark.slow
def test_the_command_continues_with_more_choices(tmp_path: Path) -> None:
    axis = f"{KEY}="
    assert any(word.startswith(axis) for word in SHORT)
    quick = ("trainer.max_steps=4", "trainer.val_check_interval=2")
    assert search(tmp_path, *quick, f"{axis}4,8", trials=2).status == 0
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("DONE")}
    outcome = search(tmp_path, *quick, f"{axis}4,8,16", trials=5)
    assert outcome.status == 0, outcome.err
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert [trial["trial"] for trial in read(tmp_path)] == list("01234")
    error = search(tmp_path, *quick, f"{axis}5,6", trials=6).error
    assert f"holds a search with other values ({KEY} is 4,8,16 there and 5,6 here); choose another directory" in error
    assert COPY not in error
