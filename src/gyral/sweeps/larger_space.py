"""A search that is started again, maybe with other values of its axes. Imports no torch, and Optuna only if one runs.

Optuna takes other ends of an interval, but other choices of a list only in another study, and it runs no failed trial
again. Such a search therefore replaces its study by one of the same name and with the same trials: their lists have all
choices, and those that failed wait. Trials keep their numbers, which name their run directories, and samplers use them
as before.
"""

import logging
from pathlib import Path
from typing import Any

from gyral.core.errors import OptionError
from gyral.sweeps.ownership import Ownership, is_in_use
from gyral.sweeps.space import contains, text_of

log = logging.getLogger(__name__)

COPY = " (copy while choices are added)"  # the end of the name of a study
REASON = "reason"  # user attribute of a trial that failed


def continue_with(
    study: Any, storage: Any, owned: Ownership, distributions: dict[str, Any], directory: Path, n_trials: int
) -> Any:
    """Return the study of a search, whose trials may have failed or have been drawn from other distributions.

    Failed trials wait to be run again, unless several searches share the study.

    Args:
        study: the study as it is in the storage.
        storage: the storage.
        owned: the trials of this search.
        distributions: the distributions of this search by key.
        directory: the directory of the search.
        n_trials: the number of trials of the search.

    Raises:
        OptionError: the study cannot continue with these distributions; the line names the difference.
    """
    from optuna.trial import TrialState

    obstacle = _obstacle(study, owned)
    changed = changes(study, distributions)
    for key, earlier in changed.items():
        new = distributions[key]
        drawn = [trial.params[key] for trial in study.trials if key in trial.params]
        reason = f"holds a search with other values ({key} is {text_of(earlier)} there and {text_of(new)} here)"
        if not (hasattr(new, "choices") and all(contains(new, value) for value in drawn)):
            raise OptionError("hydra.sweep.dir", directory, f"{reason}; choose another directory, or only add values")
        if obstacle:
            raise OptionError("hydra.sweep.dir", directory, f"{reason}{obstacle}")
    failed = [trial for trial in study.trials if trial.state == TrialState.FAIL and REASON in trial.user_attrs]
    again = [] if obstacle else [trial.number for trial in failed if trial.number < n_trials]
    if not changed and not again:
        return study
    if again:
        log.info("Failed trials are run again: %s", ", ".join(map(str, again)))
    return _replace(study, storage, {key: distributions[key] for key in changed}, again)


def _obstacle(study: Any, owned: Ownership) -> str | None:
    """Return why a study cannot be replaced, as the end of a sentence."""
    if not owned.is_alone:
        return "; several searches share its study"
    if [trial.number for trial in study.trials] != [*range(len(study.trials))]:
        return ", and the numbers of its trials have gaps"
    if any(is_in_use(trial) for trial in study.trials if not trial.state.is_finished()):
        return ", and its jobs still run"
    return None


def changes(study: Any, distributions: dict[str, Any]) -> dict[str, Any]:
    """Return the earlier distributions, by key, that Optuna does not allow together with those of this search."""
    from optuna.distributions import check_distribution_compatibility

    found = {}
    for trial in study.trials:
        for key in trial.distributions.keys() & distributions.keys():
            try:
                check_distribution_compatibility(trial.distributions[key], distributions[key])
            except ValueError:
                found[key] = trial.distributions[key]
    return found


def _replace(study: Any, storage: Any, changed: dict[str, Any], again: list[int]) -> Any:
    """Replace a study by one with other distributions by key, in which the trials of some numbers wait."""
    import optuna
    from optuna.trial import TrialState

    name, copy = study.study_name, f"{study.study_name}{COPY}"
    optuna.copy_study(from_study_name=name, from_storage=storage, to_storage=storage, to_study_name=copy)
    optuna.delete_study(study_name=name, storage=storage)
    replaced = optuna.create_study(study_name=name, storage=storage, pruner=study.pruner, direction=study.direction)
    earlier = optuna.load_study(study_name=copy, storage=storage)
    for attribute, value in earlier.user_attrs.items():
        replaced.set_user_attr(attribute, value)
    for trial in earlier.trials:
        own = {key: distribution for key, distribution in changed.items() if key in trial.params}
        trial.distributions = {**trial.distributions, **own}
        if trial.number in again:
            trial.state, trial.datetime_complete = TrialState.WAITING, None
            trial.user_attrs = {key: value for key, value in trial.user_attrs.items() if key != REASON}
        replaced.add_trial(trial)
    optuna.delete_study(study_name=copy, storage=storage)
    return replaced


def restore(name: str, storage: Any) -> None:
    """Restore a study whose search was killed while it was replaced. The complete one of two has more trials."""
    import optuna

    copy = f"{name}{COPY}"
    names = optuna.get_all_study_names(storage)
    if copy not in names:
        return
    trials = {
        each: len(optuna.load_study(study_name=each, storage=storage).trials) for each in (name, copy) if each in names
    }
    if trials.get(name, -1) < trials[copy]:
        if name in trials:
            optuna.delete_study(study_name=name, storage=storage)
        optuna.copy_study(from_study_name=copy, from_storage=storage, to_storage=storage, to_study_name=name)
    optuna.delete_study(study_name=copy, storage=storage)
