"""A search that continues with other values of its axes. Imports no torch, and Optuna only if a search runs.

Optuna takes other ends of an interval, but other choices of a list only in another study. A search with more choices
therefore replaces its study by one of the same name and with the same trials, whose lists have all choices. Trials keep
their numbers, which name their run directories, and samplers use them as before.
"""

from pathlib import Path
from typing import Any

from gyral.core.errors import OptionError
from gyral.sweeps.ownership import Ownership, is_in_use
from gyral.sweeps.space import contains, text_of

COPY = " (copy while choices are added)"  # the end of the name of a study


def continue_with(study: Any, storage: Any, owned: Ownership, distributions: dict[str, Any], directory: Path) -> Any:
    """Return the study of a search, whose trials may have been drawn from other distributions.

    Args:
        study: the study as it is in the storage.
        storage: the storage.
        owned: the trials of this search.
        distributions: the distributions of this search by key.
        directory: the directory of the search.

    Raises:
        OptionError: the study cannot continue with these distributions; the line names the difference.
    """
    changed = changes(study, distributions)
    for key, earlier in changed.items():
        new = distributions[key]
        drawn = [trial.params[key] for trial in study.trials if key in trial.params]
        reason = f"holds a search with other values ({key} is {text_of(earlier)} there and {text_of(new)} here)"
        if not (hasattr(new, "choices") and all(contains(new, value) for value in drawn)):
            raise OptionError("hydra.sweep.dir", directory, f"{reason}; choose another directory, or only add values")
        if not owned.is_alone:
            raise OptionError("hydra.sweep.dir", directory, f"{reason}; several searches share its study")
        if [trial.number for trial in study.trials] != [*range(len(study.trials))]:
            raise OptionError("hydra.sweep.dir", directory, f"{reason}, and the numbers of its trials have gaps")
        if any(is_in_use(trial) for trial in study.trials if not trial.state.is_finished()):
            raise OptionError("hydra.sweep.dir", directory, f"{reason}, and its jobs still run")
    return _with_distributions(study, storage, {key: distributions[key] for key in changed}) if changed else study


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


def _with_distributions(study: Any, storage: Any, changed: dict[str, Any]) -> Any:
    import optuna

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
