"""LAMBADA as reading comprehension (Paperno et al. 2016, arXiv:1606.06031; Chu et al. 2017, arXiv:1610.08431).

The last word of a passage is asked for. The document is the passage up to its last " . ", the question is what follows
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

from gyral.core.checks import check_choice, check_integer
from gyral.core.errors import OptionError
from gyral.data.batching import IGNORED
from gyral.data.catalogue import CATALOGUE
from gyral.data.reading.edges import Chain, Mention, chain_edges, check_chains, exact_matches, label_chains, read_chains
from gyral.data.reading.prepared import SIZE, SPECIAL, ReadingCorpus, load
from gyral.data.reading.questions import Question
from gyral.data.reading.sources import QuestionSource
from gyral.data.reading.standin import generated_corpus, passage
from gyral.data.summaries.parsing import Report, UnusableError
from gyral.data.summaries.sources import file_state

SOURCES = ("auto", "published", "development", "generated")
EDGES = ("matches", "coreference", "none")
BEGIN, END = "@begin", "@end"  # around a question, as in the code of Dhingra et al. (bdhingra/ga-reader)
TRAIN, DEVELOPMENT, TEST = "train.txt", "lambada_development_plain_text.txt", "lambada_test_plain_text.txt"
TRAIN_URL = "http://ttic.uchicago.edu/~kgimpel/data/lambada-train-valid.tar.gz"
TRAIN_FOLDER = "lambada-train-valid"  # in the archive of the training passages
CUT = 4382  # of the 4,869 development passages, nine tenths: without training passages, these train

# The words that are no candidates in the code of Dhingra et al. (bdhingra/coref-gru, branch lambada).
MARKS = frozenset(
    "!! ?! ?? !? ` `` '' -lrb- -rrb- -lsb- -rsb- , . : ; \" ' ? < > { } [ ] + - ( ) & % $ @ ! ^ # * .. ...".split()
)
# Words whose equality says little: determiners, pronouns, prepositions, conjunctions, auxiliary verbs, particles.
FUNCTION_WORDS = frozenset(
    "a an the this that these those some any no every each all both either neither much many more most few less least "
    "such own other another same several i me my mine myself you your yours yourself he him his himself she her hers "
    "herself it its itself we us our ours ourselves they them their theirs themselves who whom whose which what "
    "someone something anyone anything everyone everything nobody nothing one ones there here of in on at by for with "
    "about against between into through during before after above below to from up down out off over under again "
    "further onto upon toward towards across along around behind beside beyond near within without like as than and "
    "but or nor so yet if because while until although though whether since unless when where why how not n't 's 'm "
    "'re 've 'll 'd am is are was were be been being have has had having do does did doing done will would shall "
    "should can could may might must ca wo let just only even too very also then now ever never always still already "
    "back away -- ' ´ ‖ ~ / _ ** *** ****".split()
)


def load_lambada(
    data_dir: str | Path,
    *,
    source: str = "auto",
    edges: str = "matches",
    max_chains: int = 14,
    chains: str | Path | None = None,
    size: int = SIZE,
    seed: int = 0,
    processes: int | None = None,
) -> ReadingCorpus:
    """Return LAMBADA from the folder `lambada` of the data folder, or what takes its place.

    Args:
        data_dir: data folder.
        source: "published": trains on the passages of `train.txt` that Chu et al. (2017) extracted from the novels,
            validates on the development passages, tests on the test passages. "development": a substitute, which
            trains on the first nine tenths of the development passages and validates on the others. "generated": a
            small generated stand-in. "auto": the first of these for which there are files.
        edges: "matches": between words that are equal, other than punctuation marks and `FUNCTION_WORDS`;
            "coreference": between the mentions of the chains of a file; "none". The chains that a reader may have as
            inputs are those of the file with "coreference", otherwise those of equal words.
        max_chains: most chains of a passage; those with the most mentions are kept.
        chains: file of coreference chains (`gyral.data.reading.edges.read_chains`) for edges "coreference". The name of
            a document is that of its file and its line, such as `lambada_test_plain_text.txt:17`; its words are those
            of the passage without the last one.
        size: maximum vocabulary size.
        seed: seed of generated passages.
        processes: number of worker processes; None: one for each available core.

    Raises:
        OptionError: an option is out of its bounds; a file is missing or cannot be read.
        UserError: the file of chains cannot be used.
    """
    check_choice("source", source, SOURCES)
    check_choice("edges", edges, EDGES)
    check_integer("max_chains", max_chains, minimum=0)
    check_integer("size", size, len(SPECIAL) + 1)
    if (edges == "coreference") != (chains is not None):
        reason = "must be a file of coreference chains for edges=coreference, and null otherwise"
        raise OptionError("chains", chains, reason)
    convert = functools.partial(parse, edges=edges, max_chains=max_chains)
    folder = Path(data_dir) / "lambada"
    lacking = missing(folder, DEVELOPMENT)
    if source == "auto" and not any((folder / name).exists() for name in (DEVELOPMENT, TEST)):
        return generated_corpus("generated_passages", passage, convert, size=size, seed=seed, missing=lacking)
    if source == "generated":
        return generated_corpus("generated_passages", passage, convert, size=size, seed=seed)
    files = _files(folder, source)
    found = None if chains is None else read_chains(chains)
    key = ["lambada", 1, edges, max_chains, None if chains is None else file_state(Path(chains))]
    sources = {
        split: QuestionSource(
            [file],
            convert,
            option="data_dir",
            path=file,
            by_line=True,
            part=part,
            prepare=functools.partial(_with_chains, found),
            key=key,
        )
        for split, (file, part) in files.items()
    }
    is_published = files["train"][0].name == TRAIN
    name = "lambada" if is_published else "lambada_development"
    corpus = load(name, sources, data_dir, size=size, processes=processes)
    substitute = f"{missing(folder, TRAIN)}; training on a SUBSTITUTE, nine tenths of the development passages"
    return corpus if is_published else replace(corpus, substitute=f"{substitute}, whose results are not comparable")


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
    """Return a line and the chains of a file for it; None without a file."""
    return line, None if chains is None else chains.get(place, [])


def parse(
    content: bytes | tuple[bytes, list[Chain] | None], place: str, report: Report, *, edges: str, max_chains: int
) -> list[Question]:
    """Return the question of a passage.

    A passage without " . " has the document ".", which has no candidates.

    Args:
        content: the passage, or the passage and its chains.
        place: file and line, for messages and as the name of the question.
        report: counts unusual passages.
        edges, max_chains: see `load_lambada`.

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
        chains = exact_matches(words, MARKS | FUNCTION_WORDS)
    elif not chains:
        report.add(report.noted, "without coreference chains", place)
    check_chains(place, chains, len(words))
    # the question begins with a word of its own
    chains = [tuple(Mention(*(step + (step >= end) for step in mention)) for mention in chain) for chain in chains]
    most = sorted(range(len(chains)), key=lambda number: (-len(chains[number]), number))[:max_chains]
    kept = [chains[number] for number in sorted(most)]
    document, query = tuple(words[:end]), (BEGIN, *words[end:], END)
    candidates = tuple(dict.fromkeys(word for word in document if word not in MARKS))
    number = {word: index for index, word in enumerate(candidates, start=1)}
    return [
        Question(
            place,
            document,
            query,
            candidates,
            tuple(number.get(word, 0) for word in document),
            number.get(answer, IGNORED + 1) - 1,
            () if edges == "none" else chain_edges(kept),
            label_chains(kept, len(document) + len(query)),
        )
    ]
