"""LAMBADA as reading comprehension (Paperno et al. 2016, arXiv:1606.06031; Chu et al. 2017, arXiv:1610.08431).

The answer is the last word of a passage. The document is the passage up to its last " . ", the question is the rest
without the last word, and the candidates are the words of the document other than punctuation marks:

    passage     gavriel nodded to rowan . rowan was frowning . as they walked , gavriel murmured , `` good luck , rowan
    document    gavriel nodded to rowan . rowan was frowning .
    question    @begin as they walked , gavriel murmured , `` good luck , @end
    candidates  gavriel nodded to rowan was frowning
    answer      rowan

Chains are equal words, or coreference chains from a file.
"""

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

from gyral.applications.reading.data import wordnet
from gyral.applications.reading.data.chain_files import read_chains
from gyral.applications.reading.data.encoded import SPECIAL
from gyral.applications.reading.data.prepared import SIZE, ReadingCorpus, load
from gyral.applications.reading.data.questions import Question
from gyral.applications.reading.data.sources import QuestionSource
from gyral.applications.reading.data.standin import generated_corpus, passage
from gyral.applications.reading.data.words import BEGIN, END, FUNCTION_WORDS
from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import OptionError, UserError
from gyral.data.batching import IGNORED
from gyral.data.catalogue import CATALOGUE
from gyral.data.mentions import Chain, Mention, chain_edges, check_chains, exact_matches, label_chains
from gyral.data.raw_examples import Report, UnusableError, file_state

SOURCES = ("auto", "published", "development", "generated")
EDGES = ("matches", "coreference", "none")
TRAIN, DEVELOPMENT, TEST = "train.txt", "lambada_development_plain_text.txt", "lambada_test_plain_text.txt"
TRAIN_URL = "http://ttic.uchicago.edu/~kgimpel/data/lambada-train-valid.tar.gz"
TRAIN_FOLDER = "lambada-train-valid"  # in the archive of the training passages
PUBLISHED = "lambada"  # name of the corpus
CUT = 4382  # nine tenths of the 4,869 development passages, for training without training passages

# The words that are not candidates in the code of Dhingra et al. (bdhingra/coref-gru, branch lambada).
_MARKS = "!! ?! ?? !? ` `` '' -lrb- -rrb- -lsb- -rsb- , . : ; \" ' ? < > { } [ ] + - ( ) & % $ @ ! ^ # * .. ..."
MARKS = frozenset(_MARKS.split())
NOT_MATCHED = MARKS | FUNCTION_WORDS  # equal words of this kind do not form a chain


def load_lambada(
    data_dir: str | Path,
    *,
    source: str = "auto",
    edges: str = "matches",
    max_chains: int = 14,
    chains: str | Path | None = None,
    hypernyms: str | Path | None = None,
    vocabulary_size: int = SIZE,
    seed: int = 0,
    processes: int | None = None,
) -> ReadingCorpus:
    """Return LAMBADA from the folder `lambada` of the data folder, or a substitute.

    Args:
        data_dir: data folder.
        source: "published": trains on the passages of `train.txt` that Chu et al. (2017) extracted from the novels,
            validates on the development passages, tests on the test passages. "development": a substitute, which
            trains on the first nine tenths of the development passages and validates on the others. "generated": a
            small generated stand-in. "auto": the first of these that has files.
        edges: "matches": between words that are equal, other than punctuation marks and `FUNCTION_WORDS`;
            "coreference": between the mentions of the chains of a file; "none". The chains that a reader may
            have as inputs come from the file with "coreference", and otherwise from equal words.
        max_chains: most chains of a passage; those with the most mentions are kept.
        chains: file of coreference chains (`gyral.data.mentions.read_chains`) for edges "coreference". A document
            has the name of its file and its line, such as `lambada_test_plain_text.txt:17`, and the words of the
            passage without the last word.
        hypernyms: folder of WordNet's `data.noun` and `index.noun`, for edges of two further types: from a noun to the
            next word that is its hypernym, and to the next one that is its hyponym, up to three levels apart; see
            `gyral.applications.reading.data.wordnet`. The cell then has `edge_types=3`. None: without.
        vocabulary_size: maximum vocabulary size.
        seed: seed of generated passages.
        processes: see `gyral.applications.reading.data.prepared.load`.

    Raises:
        OptionError: an option is out of its bounds; a file is missing or cannot be read.
    """
    check_choice("source", source, SOURCES)
    check_choice("edges", edges, EDGES)
    check_integer("max_chains", max_chains, minimum=0)
    check_integer("vocabulary_size", vocabulary_size, len(SPECIAL) + 1)
    if (edges == "coreference") != (chains is not None):
        reason = "must be a file of coreference chains for edges=coreference, and null otherwise"
        raise OptionError("chains", chains, reason)
    form: dict[str, Any] = {"edges": edges, "max_chains": max_chains}
    version = wordnet.find(hypernyms)  # the errors of its files come before the work
    edge_types = wordnet.edge_types(version)
    if version is not None:
        form["hypernyms"] = version
    folder = Path(data_dir) / "lambada"
    is_there = any((folder / name).exists() for name in (DEVELOPMENT, TEST))
    if source == "generated" or (source == "auto" and not is_there):
        return generated_corpus(
            "generated_passages",
            passage,
            parse,
            tuple(form.items()),
            vocabulary_size=vocabulary_size,
            seed=seed,
            missing=missing(folder, DEVELOPMENT) if source == "auto" else "",
            edge_types=edge_types,
        )
    options: dict[str, Any] = {"edge_types": edge_types, "vocabulary_size": vocabulary_size, "processes": processes}
    corpus = _load_passages(folder, source, form, chains, **options)
    if corpus.name == PUBLISHED:
        return corpus
    reason = f"{missing(folder, TRAIN)}; " if source == "auto" else ""
    substitute = f"{reason}training on a SUBSTITUTE, nine tenths of the development passages of LAMBADA"
    return replace(corpus, substitute=f"{substitute}, with which no published result compares")


def _load_passages(
    folder: Path, source: str, form: dict[str, Any], chains: str | Path | None, **options: Any
) -> ReadingCorpus:
    """Return the passages of files; the corpus has the name `PUBLISHED` if it has the training passages.

    Args:
        folder: folder of the files.
        source, chains: see `load_lambada`.
        form: options of `parse`.
        **options: see `gyral.applications.reading.data.prepared.load`.
    """
    files = _files(folder, source)
    found = None if chains is None else read_chains(chains)
    key = ["lambada", 1, form, None if chains is None else file_state(Path(chains))]
    sources = {
        split: QuestionSource(
            [file],
            functools.partial(parse, **form),
            option="data_dir",
            path=folder.parent,
            by_line=True,
            part=part,
            prepare=functools.partial(_with_chains, found),
            key=key,
        )
        for split, (file, part) in files.items()
    }
    name = PUBLISHED if files["train"][0].name == TRAIN else "lambada_development"
    try:
        return load(name, sources, folder.parent, **options)
    except OptionError:
        raise
    except UserError as error:
        if chains is None:
            raise
        raise OptionError("chains", chains, str(error)) from None  # a mention is outside its passage


def _files(folder: Path, source: str) -> dict[str, tuple[Path, slice]]:
    """Return the file of each split and the lines in it.

    Raises:
        OptionError: a file is missing.
    """
    train = next((path for path in (folder / TRAIN, folder / TRAIN_FOLDER / TRAIN) if path.exists()), None)
    for name in (DEVELOPMENT, TEST):
        if not (folder / name).exists():
            raise OptionError("data_dir", folder.parent, missing(folder, name))
    if source == "published" and train is None:
        raise OptionError("data_dir", folder.parent, missing(folder, TRAIN))
    development, test = folder / DEVELOPMENT, (folder / TEST, slice(None))
    if train is None or source == "development":
        return {"train": (development, slice(0, CUT)), "val": (development, slice(CUT, None)), "test": test}
    return {"train": (train, slice(None)), "val": (development, slice(None)), "test": test}


def missing(folder: Path, name: str) -> str:
    """Return a sentence about a file that does not exist, and how to get it."""
    if name == TRAIN:
        return f"{folder / name} does not exist: put {TRAIN} of {TRAIN_URL} (Chu et al. 2017) there"
    return f"{folder / name} does not exist; `gyral fetch lambada` downloads it {CATALOGUE['lambada'].origin}"


def _with_chains(chains: dict[str, list[Chain]] | None, line: bytes, place: str) -> tuple[bytes, list[Chain] | None]:
    """Return a line with its chains from a file, or with None without a file."""
    return line, None if chains is None else chains.get(place, [])


def parse(
    content: bytes | tuple[bytes, list[Chain] | None],
    place: str,
    report: Report,
    *,
    edges: str,
    max_chains: int,
    hypernyms: wordnet.Version | None = None,
) -> list[Question]:
    """Return the question of a passage.

    A passage without " . " has the document "." and no candidates.

    Args:
        content: the passage, or the passage and its chains.
        place: file and line, for messages and as the name of the question.
        report: counts unusual passages.
        edges, max_chains: see `load_lambada`.
        hypernyms: WordNet, for edges of two further types.

    Raises:
        UnusableError: the passage has fewer than three words.
        UserError: a mention is not within the words of the passage.
    """
    line, chains = content if isinstance(content, tuple) else (content, None)
    words = line.decode(errors="replace").split()
    if len(words) < 3:
        raise UnusableError("with fewer than three words")
    *words, answer = words
    if "." in words:
        end = len(words) - words[::-1].index(".")
    else:
        report.add(report.noted, "without ' . ', whose document is empty", place)
        words, end = [".", *words], 1
        chains = None
    if chains is None:
        chains = exact_matches(words, NOT_MATCHED)
    elif not chains:
        report.add(report.noted, "without coreference chains", place)
    check_chains(place, chains, len(words))
    # the question begins with an additional word
    chains = [tuple(Mention(*(step + (step >= end) for step in mention)) for mention in chain) for chain in chains]
    most = sorted(range(len(chains)), key=lambda number: (-len(chains[number]), number))[:max_chains]
    kept = [chains[number] for number in sorted(most)]
    document, query = tuple(words[:end]), (BEGIN, *words[end:], END)
    candidates = tuple(dict.fromkeys(word for word in document if word not in MARKS))
    linked = () if edges == "none" else chain_edges(kept)
    linked += wordnet.edges_of((*document, *query), hypernyms)
    number = {word: index for index, word in enumerate(candidates, start=1)}
    return [
        Question(
            place,
            document,
            query,
            candidates,
            tuple(number.get(word, 0) for word in document),
            number.get(answer, IGNORED + 1) - 1,
            linked,
            label_chains(kept, len(document) + len(query)),
        )
    ]
