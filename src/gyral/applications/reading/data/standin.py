"""Small generated passages and questions, for machines without the corpora: people hand things to each other.

passage     Ada gave the lamp to Boris . Boris gave the lamp to Carla . in the end the lamp belonged to Carla
question    the lamp belonged to @placeholder .
"""

import functools
import json
import random
from collections.abc import Callable
from typing import Any

from gyral.applications.reading.data.encoded import SPECIAL, EncodedQuestions, StoredQuestions
from gyral.applications.reading.data.prepared import ReadingCorpus, parse_examples
from gyral.core.measures import SPLITS
from gyral.data.batching import IGNORED, mix_seed
from gyral.data.raw_examples import RawExample, Report
from gyral.data.vocabulary import Vocabulary

PEOPLE = ["Ada", "Boris", "Carla", "Deniz", "Emre", "Fatima"]
THINGS = ["basket", "ladder", "lamp"]
ABSENT = 0.2  # share of passages whose last word is not in the document
SIZES = {"train": 400, "val": 100, "test": 100}


def draw_story(uniform: Callable[[], float]) -> tuple[list[str], str, str]:
    """Return the sentences of a story, a thing in it, and the person who has it at the end."""
    holder: dict[str, str] = {}
    sentences = []
    for _ in range(3 + int(4 * uniform())):
        thing = _choose(uniform, THINGS)
        giver = holder.get(thing) or _choose(uniform, PEOPLE)
        holder[thing] = _choose(uniform, [person for person in PEOPLE if person != giver])
        sentences.append(f"{giver} gave the {thing} to {holder[thing]} .")
    thing = _choose(uniform, sorted(holder))
    return sentences, thing, holder[thing]


def passage(uniform: Callable[[], float]) -> bytes:
    """Return a passage in the form of LAMBADA, whose last word is the answer."""
    sentences, thing, person = draw_story(uniform)
    end = "was lost" if uniform() < ABSENT else f"belonged to {person}"
    return f"{' '.join(sentences)} in the end the {thing} {end}".encode()


def cloze(uniform: Callable[[], float]) -> bytes:
    """Return a question in the form of Who-did-What, as a line of JSON."""
    sentences, thing, person = draw_story(uniform)
    fields = {
        "document": " ".join(sentences),
        "question": f"the {thing} belonged to @placeholder .",
        "candidates": [name for name in PEOPLE if any(name in sentence for sentence in sentences)],
        "answer": person,
    }
    return json.dumps(fields).encode()


@functools.lru_cache(maxsize=4)  # for programs that build the same task several times
def generated_corpus(
    name: str,
    draw: Callable[[Callable[[], float]], bytes],
    parse: Callable[..., Any],
    options: tuple[tuple[str, Any], ...],
    *,
    vocabulary_size: int,
    seed: int,
    missing: str = "",
    edge_types: int = 1,
) -> ReadingCorpus:
    """Return generated questions in three splits of `SIZES`.

    Args:
        name: name of the corpus.
        draw: draws an example from random numbers in [0, 1).
        parse: returns the questions of an example, see `gyral.applications.reading.data.sources.QuestionSource`.
        options: names and values of further arguments of `parse`.
        vocabulary_size: maximum vocabulary size.
        seed: seed of the questions.
        missing: description of the missing files, for the log; empty if the user selects generated questions.
        edge_types: E, number of types of edges.
    """
    questions, reports = {}, {}
    for split in SPLITS:
        uniform = random.Random(mix_seed(seed, f"{name} {split}")).random  # Python guarantees this sequence
        examples = [RawExample(f"{split} {row + 1}", draw(uniform), 1.0) for row in range(SIZES[split])]
        reports[split] = Report()
        found = parse_examples(examples, functools.partial(parse, **dict(options)), reports[split])
        questions[split] = [question for question in found if question.answer != IGNORED or split != "train"]
    every = [question for split in SPLITS for question in questions[split]]
    words = [word for question in every for word in (*question.document, *question.query)]
    symbols = (*SPECIAL, *Vocabulary.of(words, "word").symbols)[:vocabulary_size]
    vocabulary = Vocabulary("word", symbols)
    splits: dict[str, StoredQuestions] = {
        split: EncodedQuestions(found, vocabulary, edge_types) for split, found in questions.items()
    }
    reason = f"{missing}; using GENERATED questions" if missing else "GENERATED questions"
    substitute = f"{reason}, whose results are not results on any published corpus"
    return ReadingCorpus(name, vocabulary, splits, reports, substitute)


def _choose(uniform: Callable[[], float], items: list[str]) -> str:
    return items[int(uniform() * len(items))]
