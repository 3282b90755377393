"""A run of about a second on every task of conf/task, with inputs that are made here.

It is the tiny example that the class of the task's data names as `small`. The test module of a task, see
tests/helpers/slices.py, may name options of this run, `RUN`, such as another model, and `OPTIONS` that all tests need.
"""

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from gyral.data.catalogue import PublishedFile
from gyral.data.text.corpora import TEXT_CORPORA
from gyral.data.text.synthetic import synthetic_text
from tests.helpers.running import SMALL, choices, read_choice
from tests.helpers.slices import module_of, offered, small_options

# zoneout makes every step depend on the state of the random generator
RUM = ("model=rum", "model.cell.lambd=1", "model.cell.zoneout=0.2")
STEPS = tuple(option for option in SMALL if not option.startswith("task."))


def small_run(folder: Path, patch: pytest.MonkeyPatch, task: str) -> tuple[str, ...]:
    """Return the options of a small run.

    Args:
        folder: for its inputs.
        patch: sets attributes.
        task: the task.
    """
    choice = read_choice("task", task)
    own = getattr(module_of(choice["_target_"]), "RUN", ())
    model = () if any(option.startswith("model=") for option in own) else RUM
    if choice.get("corpus", {}).get("name") in TEXT_CORPORA:
        publish_text(folder, patch, choice["corpus"]["name"])
    given = (f"task.{name}={value!r}" for name, value in small_options(choice, task).items())
    return (*STEPS, f"task={task}", *given, f"paths.data_dir={folder}", *model, *own)


def publish_text(folder: Path, patch: pytest.MonkeyPatch, name: str) -> None:
    """Write a small text with the names of a published corpus's files, and set the checksums of these."""
    corpus, files = TEXT_CORPORA[name], []
    for number, file in enumerate(corpus.files):
        text = synthetic_text()[: 3000 if number == 0 else 300].rpartition(" ")[0].encode()
        content = b"".join(b"%c " % letter for letter in text) if name == "ptb_char" else text
        path = folder / corpus.folder / file.name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        files.append(PublishedFile(file.name, len(content), hashlib.sha256(content).hexdigest()))
    patch.setitem(TEXT_CORPORA, name, corpus._replace(files=tuple(files)))


# By the name of the task. Each takes a folder for its inputs and what sets attributes, and returns options of a run.
SMALL_RUNS: dict[str, Callable[[Path, pytest.MonkeyPatch], tuple[str, ...]]] = {
    **{task: functools.partial(small_run, task=task) for task in choices("task")},
    **offered("SMALL_RUNS", "faults"),
}
