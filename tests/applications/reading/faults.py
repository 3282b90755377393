"""Inputs of the reading tasks for the suites of tests/faults."""

import functools
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gyral.applications.reading.data import lambada
from gyral.applications.reading.data.cloze import ARTICLES
from gyral.applications.reading.data.standin import cloze, passage
from gyral.data import preparation
from tests.applications.reading.data.test_cloze import FILE
from tests.data.babi.conftest import packed, small_release
from tests.faults.inputs import RUN, Input, train_on
from tests.helpers.running import SMALL

MODEL = ("model=attention_sum", "model.embedding_size=4", "model.cell.hidden_size=4", *RUN)
SMALL_RUN = (
    *(option for option in SMALL if not option.startswith(("model.", "task."))),
    *("model=attention_sum", "model.embedding_size=4", "model.cell.hidden_size=5", "optimizer=adam"),
    *("task.batch_size=2", "task.eval_batch_size=4"),
)
SIZES = {"batch_size": 2, "eval_batch_size": 4}


def babi(folder: Path, random: Random, patch: pytest.MonkeyPatch, task: str, option: str) -> Input:
    """A release of bAbI, packed or unpacked."""
    options, files = small_release(folder, patch)
    if option == "path":
        files = [packed(files[0].parents[1], folder / "tasks.tar.gz")]
        options["path"] = str(files[0])
    return train_on((f"task={task}", *MODEL), {**options, **SIZES}, files, (option,))


def own_stories(folder: Path, random: Random, patch: pytest.MonkeyPatch, task: str) -> Input:
    """Stories of the user's own."""
    paths = [folder / "training.txt", folder / "test.txt"]
    for path in paths:
        path.write_text("1 Mary moved to the bathroom.\n2 Where is Mary?\tbathroom\t1\n" * 20, encoding="utf-8")
    return train_on((f"task={task}", *MODEL), {"files": list(map(str, paths)), **SIZES}, paths, ("files",))


def question_files(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """Folders of questions in the form of Hermann et al. (2015), one of which has a single question."""
    root, files = folder / "questions", []
    for split, size in (("training", 3), ("validation", 1), ("test", 3)):
        (root / split).mkdir(parents=True)
        files += [root / split / f"{split}{number}.question" for number in range(size)]
    for file in files:
        file.write_text(FILE)
    options = {"path": str(root), "data_dir": str(folder), **SIZES}
    return train_on(("task=cloze", *MODEL), options, files, ("path",), names_folder=True)


def question_lines(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """Questions in lines of JSON."""
    files = write_questions(folder / "questions", random)
    options = {"path": str(folder / "questions"), "data_dir": str(folder), **SIZES}
    return train_on(("task=cloze", *MODEL), options, files, ("path",), names_folder=True)


def write_questions(root: Path, random: Random) -> list[Path]:
    root.mkdir()
    files = [root / f"{split}.jsonl" for split in ("training", "validation", "test")]
    for file in files:
        file.write_bytes(b"".join(cloze(random.random) + b"\n" for _ in range(4)))
    return files


def highlights(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """Articles that cloze questions are made of."""
    article = "We met Ada Bell in Paris.\nThen Boris Long saw Ada Bell.\nIn May Ada Bell left Paris for Boris Long."
    row = {"article": article, "highlights": ["In Paris we saw Ada Bell", "Then Boris Long left Paris"]}
    (folder / "cnn_dailymail").mkdir()
    files = sorted({folder / "cnn_dailymail" / name for name, _ in ARTICLES.values()})
    for file in files:
        file.write_text(f"{json.dumps(row)}\n" * 1000)
    options = {"source": "highlights", "data_dir": str(folder), **SIZES}
    return train_on(("task=cloze", *MODEL), options, files, ("data_dir",), names_folder=True)


def passages(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """Passages in the form of LAMBADA."""
    options, files = write_passages(folder, random)
    return train_on(("task=lambada", *MODEL), options, files, ("data_dir",), names_folder=True)


def chains(folder: Path, random: Random, patch: pytest.MonkeyPatch, form: str) -> Input:
    """A file of coreference chains, in lines of JSON or as in CoNLL-2012."""
    options, files = write_passages(folder, random)
    path = folder / f"my chains.{form}"
    if form == "jsonl":
        rows = [{"document": f"{file.name}:1", "chains": [[[0, 1], [3, 3]], [[4, 5], [6, 6]]]} for file in files]
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    else:
        words = ("(1", "1)", "-", "(1)|(2", "2)")
        lines = "".join(f"a 0 {word}\n" for word in words)
        parts = [f"#begin document ({file.name}:1); part 000\n{lines}" for file in files]
        path.write_text("".join(f"{part}#end document\n" for part in parts))
    options |= {"edges": "coreference", "chains": str(path)}
    # a mention outside a passage is an error at the passage
    return train_on(("task=lambada", *MODEL), options, [path], ("chains", "data_dir"))


def hypernyms(folder: Path, random: Random, patch: pytest.MonkeyPatch, task: str) -> Input:
    """The nouns of WordNet and their index."""
    if task == "lambada":
        options, _ = write_passages(folder, random)
    elif task == "cloze":
        write_questions(folder / "questions", random)
        options = {"path": str(folder / "questions"), "data_dir": str(folder), **SIZES}
    else:
        options = {**small_release(folder, patch)[0], **SIZES}
    (folder / "data.noun").write_text(
        "00000001 03 n 01 being 0 000 | a\n00000002 05 n 01 the 0 001 @ 00000001 n 0000 | b\n"
    )
    (folder / "index.noun").write_text("being n 1 1 ~ 1 0 00000001\nthe n 1 2 @ ~ 1 0 00000002\n")
    options |= {"hypernyms": str(folder)}
    files = [folder / "data.noun", folder / "index.noun"]
    return train_on((f"task={task}", *MODEL), options, files, ("hypernyms",), names_folder=True)


def write_passages(folder: Path, random: Random) -> tuple[dict[str, Any], list[Path]]:
    (folder / "lambada").mkdir()
    files = [folder / "lambada" / name for name in (lambada.TRAIN, lambada.DEVELOPMENT, lambada.TEST)]
    for file in files:
        file.write_bytes(b"".join(passage(random.random) + b"\n" for _ in range(6)))
    return {"data_dir": str(folder), **SIZES}, files


def cached_questions(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """The cache of a corpus of questions."""
    write_passages(folder, random)
    patch.setattr(preparation, "BLOCK", 4)

    def read(data_dir: Path = folder) -> list[Any]:
        found = lambada.load_lambada(data_dir, processes=1)
        batches = [own.batch(range(len(own))).inputs.tolist() for own in found.splits.values()]  # type: ignore[arg-type]
        return [found.vocabulary.symbols, batches]

    expected = read()
    return Input(sorted((folder / ".cache").glob("*/*")), (), read, expected=expected)


def run_on_generated(folder: Path, patch: pytest.MonkeyPatch, task: str) -> tuple[str, ...]:
    few = ("+trainer.limit_val_batches=2", "+trainer.limit_test_batches=2")
    return (*SMALL_RUN, f"task={task}", "task.generated=true", f"paths.data_dir={folder}", *few)


def run_on_lines(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    files = write_questions(folder / "questions", Random(0))
    return (*SMALL_RUN, "task=cloze", f"task.path={files[0].parent}", f"paths.data_dir={folder}")


def run_on_passages(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    write_passages(folder, Random(0))
    return (*SMALL_RUN, "task=lambada", f"paths.data_dir={folder}")


LOADERS = {
    **{
        f"{task}.{option}": functools.partial(babi, task=task, option=option)
        for task in ("babi_mix", "babi_reading")
        for option in ("data_dir", "path")
    },
    **{f"{task}.files": functools.partial(own_stories, task=task) for task in ("babi_mix", "babi_reading")},
    "cloze.path questions": question_files,
    "cloze.path jsonl": question_lines,
    "cloze.data_dir": highlights,
    "lambada.data_dir": passages,
    **{f"lambada.chains {form}": functools.partial(chains, form=form) for form in ("jsonl", "conll")},
    **{
        f"{task}.hypernyms": functools.partial(hypernyms, task=task)
        for task in ("babi_mix", "babi_reading", "cloze", "lambada")
    },
    "cache of questions": cached_questions,
}
SMALL_RUNS = {
    "babi_mix": functools.partial(run_on_generated, task="babi_mix"),
    "babi_reading": functools.partial(run_on_generated, task="babi_reading"),
    "cloze": run_on_lines,
    "lambada": run_on_passages,
}
