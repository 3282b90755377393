"""Small runs and inputs of summarization for the suites of tests/faults."""

import csv
import functools
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gyral.applications.summarization.data import corpus
from gyral.applications.summarization.data.files import Output, read_articles
from gyral.applications.summarization.data.parsing import Fields
from gyral.data import preparation
from gyral.data.raw_examples import Report
from tests.applications.summarization.articles import article, example, write_chunk, write_lines, write_story
from tests.applications.summarization.small import SUMMARIES
from tests.faults.inputs import RUN, Input, train_on
from tests.helpers.running import SMALL

RUN_OPTIONS = (
    *(option for option in SMALL if "_size=" not in option and not option.startswith("model.")),
    "model=dec_rum",
    "model.embedding_size=4",
    "model.encoder.hidden_size=5",
    "model.decoder.hidden_size=5",
    "optimizer=adam",
    "task.batch_size=4",
    "task.eval_batch_size=4",
    "task.article_length=12",
    "task.summary_length=8",
    "task.decoding.beam=2",
    "task.decoding.min_length=2",
    "task.decoding.max_length=4",
    "task.decoded=1",
)
SIZES = ("model.embedding_size=4", "model.encoder.hidden_size=4", "model.decoder.hidden_size=4")
SUMMARIZER = ("model=pointer_generator", *SIZES, *RUN)
SUMMARY_SIZES = {
    **{"batch_size": 2, "article_length": 12, "summary_length": 8, "decoded": 1},
    **{"decoding.beam": 1, "decoding.min_length": 1, "decoding.max_length": 3},
}


def summaries(folder: Path, random: Random) -> dict[str, Path]:
    """Write the articles of each split."""
    numbers = iter(random.sample(range(1000), 24))
    sizes = {"train": 12, "val": 6, "test": 6}
    return {
        split: write_lines(folder / f"{split}.jsonl", [article(next(numbers)) for _ in range(size)])
        for split, size in sizes.items()
    }


def run_on_jsonl(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    files = summaries(folder, Random(0))
    given = (f"task.corpus.{split}={file}" for split, file in files.items())
    return (*RUN_OPTIONS, "task=summarization_jsonl", *given, f"paths.data_dir={folder}")


def run_on_cnn(folder: Path, patch: pytest.MonkeyPatch) -> tuple[str, ...]:
    summaries(folder / "cnn_dailymail", Random(1))
    return (*RUN_OPTIONS, "task=cnn_dailymail", f"paths.data_dir={folder}")


def articles(folder: Path, form: str) -> tuple[str, list[Path]]:
    """Write nine articles in a form; return the value of the option and the files of which one is damaged."""
    rows = [article(number) for number in range(9)]
    if form in ("jsonl", "json"):
        path = write_lines(folder / f"articles.{form}", rows)
        return str(path), [path]
    if form == "csv":
        path = folder / "articles.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file)
            lines.writerow(["article", "highlights"])
            lines.writerows([row["article"], "\n".join(row["highlights"])] for row in rows)
        return str(path), [path]
    if form == "bin":
        texts = [(row["article"].replace("\n", " "), " ".join(row["highlights"])) for row in rows]
        chunks = [example(article=text, abstract=f"<s> {summary} </s>") for text, summary in texts]
        paths = [write_chunk(folder / f"chunk_{number}.bin", chunks[number::3]) for number in range(3)]
        return str(folder / "chunk_*.bin"), paths
    marked = [row["article"] + "".join(f"\n\n@highlight\n\n{line}" for line in row["highlights"]) for row in rows]
    paths = [write_story(folder / "stories", f"http://a/{number}", text) for number, text in enumerate(marked)]
    if form == "story":
        return str(folder / "stories"), paths
    addresses = folder / "all.txt"
    addresses.write_text("".join(f"http://a/{number}\n" for number in range(len(rows))))
    return str(addresses), [addresses, addresses, *paths]


def own_articles(folder: Path, random: Random, patch: pytest.MonkeyPatch, split: str) -> Input:
    others = str(write_lines(folder / "others.jsonl", [article(number) for number in range(20, 26)]))
    form = random.choice(("jsonl", "json", "csv", "bin", "story", "list"))
    path, files = articles(folder, form)
    options = {f"corpus.{name}": others for name in ("train", "val", "test")} | {f"corpus.{split}": path}
    if form in ("jsonl", "csv") and random.random() < 0.3:
        options["corpus.mode"] = "sh2s"
    more = {"corpus.data_dir": str(folder), **SUMMARY_SIZES}
    return train_on(("task=summarization_jsonl", *SUMMARIZER), options | more, files, (f"corpus.{split}",))


def cnn_dailymail(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    place = folder / "cnn_dailymail"
    splits = {
        name: write_lines(place / f"{name}.jsonl", [article(number) for number in range(5)])
        for name in ("train", "val", "test")
    }
    options = {"corpus.data_dir": str(folder), **SUMMARY_SIZES}
    return train_on(("task=cnn_dailymail", *SUMMARIZER), options, list(splits.values()), ("corpus.data_dir",))


def cached_articles(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """The cache of a corpus of articles, or a part of it that an interrupted preparation has left."""
    patch.setenv("GYRAL_CACHE", str(folder / "user"))
    path = write_lines(folder / "articles.jsonl", [article(number) for number in range(20)])
    patch.setattr("gyral.data.preparation.BLOCK", 8)

    def read(data_dir: Path = folder) -> list[Any]:
        found = corpus.load(data_dir, train=path, val=path, test=path, processes=1)
        numbers = [(found.tokens[split].tolist(), found.bounds[split].tolist()) for split in ("train", "val", "test")]
        return [found.words, found.vocabulary.symbols, numbers]

    (folder / "other").mkdir()
    expected = read(folder / "other")
    if random.random() < 0.5:
        with patch.context() as stopped:
            stopped.setattr(preparation, "_word_list", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                read()
        parts = sorted((folder / ".cache").glob("*.parts/*.npz"))
        assert len(parts) == 9
        return Input(parts, (), read, expected=expected)
    read()
    return Input(sorted((folder / ".cache").glob("*/*")), (), read, expected=expected)


def given_articles(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """Articles that `gyral generate` summarizes."""
    name, files = articles(folder, random.choice(("jsonl", "csv", "bin", "story", "list")))
    return Input(files, ("input",), lambda: list(read_articles(name, Report(), Fields())))


def written_summaries(folder: Path, random: Random, patch: pytest.MonkeyPatch) -> Input:
    """A file of summaries that `gyral generate` continues."""
    path = folder / "given.txt"
    write_lines(path, [{"number": number, "place": "a", "summary": ["b"], "score": 0.5} for number in range(1, 4)])

    def read() -> None:
        with Output(path):
            pass

    return Input([path], ("out",), read)


SMALL_RUNS = {"cnn_dailymail": run_on_cnn, "summarization_jsonl": run_on_jsonl}
LOADERS = {
    **{
        f"summarization_jsonl.corpus.{split}": functools.partial(own_articles, split=split)
        for split in ("train", "val", "test")
    },
    "summarization_jsonl.corpus.data_dir": cached_articles,
    "cnn_dailymail.corpus.data_dir": cnn_dailymail,
    "gyral generate input": given_articles,
    "gyral generate out": written_summaries,
}
COMMAND_LINES = (SUMMARIES,)
