"""The states of the CMA-ES sampler as JSON: a search is the same as with Optuna's own pickles."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from gyral.sweeps import cma_states

optuna = pytest.importorskip("optuna")
pytest.importorskip("cmaes")


def search(options: dict[str, bool]) -> list[dict[str, Any]]:
    study = optuna.create_study(sampler=optuna.samplers.CmaEsSampler(seed=3, n_startup_trials=2, **options))

    def objective(trial: Any) -> float:
        x, y, z = trial.suggest_float("x", -3, 3), trial.suggest_float("y", 0, 1), trial.suggest_int("z", 1, 9)
        return float((x - 1) ** 2 + y + z)

    study.optimize(objective, n_trials=30)
    assert any(key.endswith("optimizer:0") for trial in study.trials for key in trial.system_attrs)
    return [trial.params for trial in study.trials]


@pytest.mark.parametrize("option", [None, "use_separable_cma", "with_margin", "lr_adapt"])
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_states_as_json_equal_those_of_pickles(option: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    from optuna.samplers import _cmaes

    options = {option: True} if option else {}
    monkeypatch.setattr(_cmaes, "pickle", pickle)
    expected = search(options)
    cma_states.use_json()
    assert search(options) == expected


def test_a_pickle_is_not_read(tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> Any:
            return (tmp_path / "canary").touch, ()

    assert cma_states.States.loads(pickle.dumps(Hostile())) is None
    assert not (tmp_path / "canary").exists()
    pickle.loads(pickle.dumps(Hostile()))
    assert (tmp_path / "canary").exists()
