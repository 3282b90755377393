"""Which search runs which trial of a study that several searches share. Imports no torch.

A search marks each trial that it runs and renews the mark. A trial whose mark is not renewed goes back to the queue of
the study, from which Optuna gives each trial to one search only. Nothing depends on the clocks of several machines.

Optuna's own heartbeat does not serve here: a trial that it retries has another number, and so another run directory,
and it never retries a trial whose search has ended before the first heartbeat.
"""

import itertools
import logging
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gyral.core.errors import UserError
from gyral.core.files import write_atomically
from gyral.core.inputs import read_text
from gyral.core.locks import lock_file
from gyral.runs.directory import LOCK
from gyral.runs.trial import trial_of

log = logging.getLogger(__name__)

ID_FILE = ".search"  # in the sweep's directory, so that all machines that see the directory know the same id
MARK = "search"  # user attribute of a trial, and the start of a user attribute of the study
RENEWAL = 10.0  # seconds between two renewals of a mark
GRACE = 60.0  # seconds without a renewal after which the search of a trial counts as dead


class Ownership:
    """The trials of a study that one search runs, and those whose search has ended.

    Args:
        study: the study.
        storage: its storage.
        directory: the sweep's directory. The caller holds its lock, so that no other process searches there.

    Attributes:
        id: the number of this search, the same in each start.
    """

    def __init__(self, study: Any, storage: Any, directory: Path) -> None:
        self.study, self.storage = study, storage
        self.mark = {"id": _search_id(directory), "directory": str(directory.resolve())}
        self.id = int(self.mark["id"], 16)
        self._ids: dict[int, int] = {}  # of the trials that this search runs, by number
        self._seen: dict[int, tuple[Any, float]] = {}  # last sign of life of other trials, and since when
        study.set_user_attr(f"{MARK} {self.mark['id']}", self.mark["directory"])

    @property
    def is_alone(self) -> bool:
        """Whether no other search has used the study."""
        return sum(name.startswith(f"{MARK} ") for name in self.study.user_attrs) == 1

    @contextmanager
    def renewed(self) -> Iterator[None]:
        """Renew the marks of all trials that this search runs, in a thread, within this context."""
        ended = threading.Event()

        def renew() -> None:
            for count in itertools.count(1):
                if ended.wait(RENEWAL):
                    return
                for own in list(self._ids.values()):
                    try:
                        self.storage.set_trial_user_attr(own, MARK, {**self.mark, "renewals": count})
                    except Exception as error:  # the trial has just ended, or the database does not answer now
                        log.debug("The mark of a trial was not renewed: %s", type(error).__name__)

        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def take(self, number: int) -> None:
        """Mark a trial, which Optuna has given to this search, as one that this search runs."""
        self._ids[number] = self._id_of(number)
        self.storage.set_trial_user_attr(self._ids[number], MARK, self.mark)

    def end(self, number: int) -> None:
        """Forget a trial, because it has ended."""
        self._ids.pop(number, None)

    def give_up(self, number: int) -> None:
        """Put a trial back into the queue of the study; it keeps its number and its options."""
        from optuna.trial import TrialState

        self._ids.pop(number, None)
        self.storage.set_trial_state_values(self._id_of(number), TrialState.WAITING)

    def release_stopped(self, belongs: Callable[[Any], bool]) -> None:
        """Put the trials whose search has ended back into the queue of the study.

        These are the trials of earlier starts of this search, and those whose mark has not been renewed for `GRACE`
        seconds while no process trains in their run directory.

        Args:
            belongs: returns whether a trial has only options of this search.
        """
        from optuna.trial import TrialState

        # in this order: a search that starts now marks the study before it takes its first trial
        running = self.study.get_trials(deepcopy=False, states=[TrialState.RUNNING])
        is_alone = self.is_alone
        for trial in running:
            if trial.number in self._ids or not belongs(trial):
                continue
            mark = trial.user_attrs.get(MARK)
            # between a search's taking a trial and marking it, the trial has no mark
            if is_alone if mark is None else isinstance(mark, dict) and self.mark.items() <= mark.items():
                self.give_up(trial.number)
            elif self._is_silent(trial) and not is_in_use(trial) and self._is_unchanged(trial):
                log.info("The search of trial %d has ended; the trial is continued", trial.number)
                self.give_up(trial.number)

    def _is_silent(self, trial: Any) -> bool:
        sign = trial.user_attrs.get(MARK), len(trial.intermediate_values)
        if self._seen.get(trial.number, (None, 0.0))[0] != sign:
            self._seen[trial.number] = sign, time.monotonic()
        return time.monotonic() - self._seen[trial.number][1] >= GRACE

    def _is_unchanged(self, trial: Any) -> bool:
        """Return whether no other search has taken a trial in the moments since it was read."""
        current = self.storage.get_trial(self._id_of(trial.number))
        return bool(current.state == trial.state and current.user_attrs.get(MARK) == trial.user_attrs.get(MARK))

    def _id_of(self, number: int) -> int:
        return int(trial_of(self.study, number)._trial_id)


def directory_of(trial: Any) -> Path | None:
    """Return the directory of the search that has run a trial, or None if this machine does not see it.

    The mark is data of a database that somebody else may have written. It counts only if the directory has the id of
    the same search.
    """
    mark = trial.user_attrs.get(MARK)
    if not isinstance(mark, dict) or not isinstance(mark.get("directory"), str):
        return None
    directory = Path(mark["directory"])
    found = read_id(directory)
    return directory if found is not None and found == mark.get("id") else None


def is_in_use(trial: Any) -> bool:
    """Return whether a process trains in the run directory of a trial: jobs of SLURM outlive their search."""
    directory = directory_of(trial)
    lock = None if directory is None else directory / f"trial_{trial.number}" / LOCK
    if lock is None or not lock.is_file():
        return False
    try:
        with lock_file(lock):
            return False
    except BlockingIOError:
        return True


def study_of(directory: Path, storage: Any) -> str | None:
    """Return the name of the study that the search in a directory has used, or None if the storage has none.

    The search may have had another directory then. If it has used several studies, that of this directory counts.
    """
    import optuna

    attribute = f"{MARK} {read_id(directory)}"
    found = [study for study in optuna.get_all_study_summaries(storage) if attribute in study.user_attrs]
    names = [study.study_name for study in found]
    return str(directory) if str(directory) in names else next(iter(names), None)


def _search_id(directory: Path) -> str:
    """Return the id of the search in a directory; choose one in its first start."""
    found = read_id(directory)
    if found is None:
        found = secrets.token_hex(4)
        write_atomically(directory / ID_FILE, f"{found}\n")
    return found


def read_id(directory: Path) -> str | None:
    """Return the id of the search in a directory, or None if there has been none."""
    try:
        found = re.fullmatch(r"([0-9a-f]{8})\n", read_text("hydra.sweep.dir", directory / ID_FILE))
    except UserError:
        return None
    return found and found[1]
