"""Cloze questions about entities: CNN and Daily Mail (Hermann et al. 2015), other corpora, and substitutes."""

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

from gyral.applications.reading.data import wordnet
from gyral.applications.reading.data.cloze_forms import parse_file, parse_line
from gyral.applications.reading.data.encoded import SPECIAL
from gyral.applications.reading.data.highlights import parse_article
from gyral.applications.reading.data.prepared import SIZE, ReadingCorpus, load
from gyral.applications.reading.data.sources import QuestionSource
from gyral.applications.reading.data.standin import cloze, generated_corpus
from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import OptionError
from gyral.core.measures import SPLITS

SOURCES = ("auto", "published", "highlights", "generated")
EDGES = ("entities", "none")
FOLDERS = ("cnn/questions", "cnn")  # of the questions, in the data folder
NAMES = {"train": ("training", "train"), "val": ("validation", "val", "dev"), "test": ("test",)}
ADDRESS = "https://cs.nyu.edu/~kcho/DMQA/"
# The articles for generated questions: for each split, a file and a slice of it.
ARTICLES = {
    "train": ("validation_first1000.jsonl", slice(0, 900)),
    "val": ("validation_first1000.jsonl", slice(900, None)),
    "test": ("test_first500.jsonl", slice(None)),
}


def load_cloze(
    data_dir: str | Path,
    *,
    source: str = "auto",
    path: str | Path | None = None,
    edges: str = "entities",
    document_length: int | None = None,
    hypernyms: str | Path | None = None,
    vocabulary_size: int = SIZE,
    seed: int = 0,
    processes: int | None = None,
) -> ReadingCorpus:
    """Return cloze questions from a folder, or a substitute.

    Args:
        data_dir: data folder.
        source: "published": the questions in the folder `path`. "highlights": a substitute, questions made from the
            highlights of the first articles of CNN / Daily Mail (`gyral.applications.reading.data.highlights`),
            which are in the folder `cnn_dailymail` of the data folder: 900 of the validation split for training and
            100 for validation, 500 of the test split. "generated": a small generated stand-in. "auto": the first of
            these that has files.
        path: folder with the splits: folders `training`, `validation` and `test` of `.question` files, or files
            `training.jsonl`, `validation.jsonl` and `test.jsonl`; also named `train`, `val` or `dev`. None:
            `cnn/questions` or `cnn` in the data folder.
        edges: "entities": between consecutive mentions of an entity, in the document and the question; "none".
        document_length: maximum number of words of a document; the rest is dropped. None: all.
        hypernyms: folder of WordNet, for edges of two further types between nouns of the document and the question; see
            `gyral.applications.reading.data.lambada.load_lambada`. None: without.
        vocabulary_size: maximum vocabulary size.
        seed: seed of the questions from highlights or of generated questions.
        processes: see `gyral.applications.reading.data.prepared.load`.

    Raises:
        OptionError: an option is out of its bounds; a split is missing or cannot be read.
    """
    check_choice("source", source, SOURCES)
    check_integer("vocabulary_size", vocabulary_size, len(SPECIAL) + 1)
    form: dict[str, Any] = {"edges": check_choice("edges", edges, EDGES), "document_length": document_length}
    check_integer("document_length", 1 if document_length is None else document_length)
    version = wordnet.find(hypernyms)
    edge_types = wordnet.edge_types(version)
    if version is not None:
        form["hypernyms"] = version
    if path is not None and source not in ("auto", "published"):
        raise OptionError("path", path, f"must be null for source={source}")
    folder = _find_folder(Path(data_dir)) if path is None else Path(path)
    if folder is None and source == "published":
        raise OptionError("data_dir", data_dir, _missing(data_dir))
    options: dict[str, Any] = {"edge_types": edge_types, "vocabulary_size": vocabulary_size, "processes": processes}
    if folder is not None and source in ("auto", "published"):
        option = ("data_dir", data_dir) if path is None else ("path", path)
        sources = {split: _source(split, folder, option, form) for split in SPLITS}
        return load(f"cloze_{folder.resolve().name}", sources, data_dir, **options)
    missing = _missing(data_dir) if source == "auto" else ""
    articles = Path(data_dir) / "cnn_dailymail"
    is_there = all((articles / file).exists() for file, _ in ARTICLES.values())
    if source == "highlights" or (source == "auto" and is_there):
        return _load_highlights(articles, form, seed, missing, **options)
    return generated_corpus(
        "generated_cloze",
        cloze,
        parse_line,
        tuple(form.items()),
        vocabulary_size=vocabulary_size,
        seed=seed,
        missing=missing,
        edge_types=edge_types,
    )


def _missing(data_dir: str | Path) -> str:
    folder = Path(data_dir) / FOLDERS[0]
    return (
        f"{folder} does not exist: put the folders training, validation and test of cnn.tgz from {ADDRESS} (Hermann et "
        "al. 2015) there, or set path to a folder of questions"
    )


def _find_folder(data_dir: Path) -> Path | None:
    folders = [data_dir / name for name in FOLDERS]
    return next((folder for folder in folders if any((folder / name).exists() for name in NAMES["train"])), None)


def _source(split: str, folder: Path, option: tuple[str, Any], form: dict[str, Any]) -> QuestionSource:
    """Return the questions of a split in a folder.

    Raises:
        OptionError: there are none.
    """
    named: dict[str, Any] = {"option": option[0], "path": option[1], "key": ["cloze", 1, form]}
    for name in NAMES[split]:
        if (folder / name).is_dir():
            files = sorted((folder / name).glob("*.question"))
            if not files:
                raise OptionError(*option, f"{folder / name} has no file *.question")
            return QuestionSource(files, functools.partial(parse_file, **form), by_line=False, **named)
        if (file := folder / f"{name}.jsonl").exists():
            return QuestionSource([file], functools.partial(parse_line, **form), by_line=True, **named)
    names = " or ".join(NAMES[split])
    raise OptionError(*option, f"{folder} has no {split} split: neither a folder {names} nor {NAMES[split][0]}.jsonl")


def _load_highlights(folder: Path, form: dict[str, Any], seed: int, missing: str, **options: Any) -> ReadingCorpus:
    """Return questions that are made of the highlights of articles.

    Args:
        folder: folder of the articles.
        form: options of the questions.
        seed: see `load_cloze`.
        missing: sentence about the files in whose place the questions are, or "".
        **options: see `gyral.applications.reading.data.prepared.load`.
    """
    sources = {
        split: QuestionSource(
            [folder / file],
            functools.partial(parse_article, seed=seed, **form),
            option="data_dir",
            path=folder.parent,
            by_line=True,
            part=part,
            key=["highlights", 1, form, seed],
        )
        for split, (file, part) in ARTICLES.items()
    }
    corpus = load("cloze_highlights", sources, folder.parent, **options)
    substitute = f"{missing}{'; ' if missing else ''}a SUBSTITUTE, questions made of the highlights of 1,500 articles"
    return replace(corpus, substitute=f"{substitute}, with which no published result compares")
