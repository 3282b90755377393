"""A run of about a second on every task of conf/task, with inputs that are made here."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gyral.data.catalogue import PublishedFile
from gyral.data.text.corpora import TEXT_CORPORA
from gyral.data.text.synthetic import synthetic_text
from tests.helpers.running import SMALL, SMALL_ALGORITHM, SMALL_COPY, SMALL_PROGRAMS, SMALL_RECALL, SMALL_TEXT
from tests.helpers.slices import offered

# zoneout makes every step depend on the state of the random generator
RUM = ("model=rum", "model.cell.lambd=1", "model.cell.zoneout=0.2")
PLAIN = tuple(option for option in SMALL if "_size=" not in option or option.startswith("model."))
BATCHES = ("task.batch_size=4", "task.val_batches=2", "task.test_batches=2")


def adding(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    return (*SMALL, "task=adding", "task.length=6", "model=lstm", "optimizer=adam")


def algorithm(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    return (*SMALL_ALGORITHM, "model=lantm")


def programs(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    return (*SMALL_PROGRAMS, "model=lstm", "model.embedding_size=4")


def priority_sort(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    sizes = ("task.items=4", "task.highest=3", "task.bits=3", "model.cell.slots=6", "model.cell.width=4")
    return (*PLAIN, *BATCHES, "task=priority_sort", "model=ntm", *sizes)


def repeat_copy(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    return (*PLAIN, *BATCHES, "task=repeat_copy", "model=dnc", "model.cell.slots=6", "model.cell.width=4")


def state_tracking(name: str) -> Callable[[Path, pytest.MonkeyPatch], tuple[str, ...]]:
    """Return the options of a run on short words of a task of state tracking."""

    def options(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
        return (*PLAIN, *BATCHES, f"task={name}", "task.length=6", "task.test_factors=[1,2]", *RUM)

    return options


def copy(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    return (*SMALL_COPY, "model=rum", "model.cell.zoneout=0.2")


def digits(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    pytest.importorskip("sklearn")
    fewer = ("task.batch_size=8", "+trainer.limit_val_batches=2", "+trainer.limit_test_batches=2")
    return (*PLAIN, "task=digits", *fewer, "model=gru", "scheduler=cosine")


def recall(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    return (*SMALL_RECALL, *RUM, "scheduler=plateau", "scheduler.patience=0")


def mqar(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    return (*PLAIN, *BATCHES, "task=mqar", "task.length=16", "task.vocabulary_size=20", *RUM)


def selective_copy(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    return (*PLAIN, *BATCHES, "task=selective_copy", "task.length=12", "task.recalled=3", "model=gru")


def induction(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    return (*PLAIN, *BATCHES, "task=induction", "task.length=6", "task.test_lengths=[8]", "model=gru")


def mad(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    return (*SMALL, "task=mad", "task.name=compression", "task.length=6", "model=gru")


def popgym(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    return (*PLAIN, *BATCHES, "task=popgym", "task.name=autoencode", "model=gru")


def rotations(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    return (*PLAIN, *BATCHES, "task=rotations", "task.length=4", "task.test_lengths=[6]", *RUM)


def sequences(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    generator = np.random.default_rng(0)
    split = np.array((["train"] * 4 + ["val", "test"]) * 16)
    inputs = generator.normal(size=(len(split), 6, 2))
    np.savez(folder / "own.npz", inputs=inputs, targets=(inputs.sum((1, 2)) > 0).astype(int), split=split)
    return (*PLAIN, "task=sequences", f"task.data={folder}/own.npz", "task.batch_size=8", "model=goru")


def text_file(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    (folder / "text.txt").write_text(synthetic_text()[:3000])
    return (*SMALL_TEXT, *RUM, f"task.corpus.path={folder}/text.txt", f"paths.data_dir={folder}")


def published_text(name: str) -> Callable[[Path, pytest.MonkeyPatch], tuple[str, ...]]:
    """Return the options of a run on a small text with the names of a published corpus's files, and its checksums."""

    def options(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
        corpus, files = TEXT_CORPORA[name], []
        for number, file in enumerate(corpus.files):
            text = synthetic_text()[: 3000 if number == 0 else 300].rpartition(" ")[0].encode()
            content = b"".join(b"%c " % letter for letter in text) if name == "ptb_char" else text
            path = folder / corpus.folder / file.name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
            files.append(PublishedFile(file.name, len(content), hashlib.sha256(content).hexdigest()))
        patch.setitem(TEXT_CORPORA, name, corpus._replace(files=tuple(files)))
        others = (option for option in SMALL_TEXT if not option.startswith("task="))
        models = {"ptb_word": ("model=fs_lstm", "model.embedding_size=5"), "enwik8": RUM}
        return (*others, f"task={name}", *models.get(name, ("model=lstm",)), f"paths.data_dir={folder}")

    return options


# By the name of the task. Each takes a folder for its inputs and what sets attributes, and returns options of a run.
SMALL_RUNS: dict[str, Callable[[Path, pytest.MonkeyPatch], tuple[str, ...]]] = {
    "copy": copy,
    "text_file": text_file,
    "adding": adding,
    "algorithm": algorithm,
    "priority_sort": priority_sort,
    "programs": programs,
    "repeat_copy": repeat_copy,
    **{
        name: state_tracking(name)
        for name in ("group", "regular", "modular_arithmetic_brackets", "chomsky", "recognition")
    },
    "digits": digits,
    "recall": recall,
    "sequences": sequences,
    "mqar": mqar,
    "selective_copy": selective_copy,
    "induction": induction,
    "mad": mad,
    "popgym": popgym,
    "rotations": rotations,
    **{name: published_text(name) for name in ("enwik8", "ptb_char", "ptb_word", "text8")},
    **offered("SMALL_RUNS", "faults"),
}
