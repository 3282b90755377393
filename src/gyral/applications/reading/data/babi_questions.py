"""bAbI questions as reading comprehension: candidates for the answer, mentions, chains and edges.

Dhingra et al. (2017, arXiv:1703.02620) link consecutive mentions of the same entity in the story and its
question. A story of task 2 with its edges, one of which ends in the question:

    mary got the football . mary went to the garden . where is the football ?
    0 ----------------------> 5
                 3 ---------------------------------------------> 14
"""

from collections.abc import Iterator

from gyral.applications.reading.data import wordnet
from gyral.applications.reading.data.questions import Question
from gyral.core.checks import check_choice
from gyral.data.babi.corpus import Babi
from gyral.data.babi.entities import EDGES, EntityMentions, lowered
from gyral.data.babi.stories import questions
from gyral.data.batching import IGNORED
from gyral.data.mentions import chain_edges, label_chains, plural


def read_questions(
    babi: Babi,
    split: str,
    *,
    edges: str,
    entities: str,
    plurals: bool = False,
    hypernyms: wordnet.Version | None = None,
) -> Iterator[Question]:
    """Yield the questions of a split. Words are in lower case, and the candidates are the classes of the data.

    Args:
        babi: the stories.
        split: "train", "val" or "test".
        edges: "entities": between consecutive mentions of an entity; "none".
        entities: kind of entities, see `gyral.data.babi.entities.ENTITIES`.
        plurals: whether the plural of a candidate also mentions it.
        hypernyms: WordNet, for edges of two further types; see `gyral.applications.reading.data.wordnet`.

    Raises:
        OptionError: another kind of edges or entities.
    """
    linked = check_choice("edges", edges, EDGES) == "entities"
    found = EntityMentions.of(entities)
    classes = {answer: number for number, answer in enumerate(babi.classes)}
    # no word mentions an answer of several words, such as "apple,milk"
    number_of = {
        word: number for number, answer in enumerate(babi.classes, start=1) for word in _words_of(answer, plurals)
    }
    for number, asked in enumerate(questions(babi.splits[split]), start=1):
        chains = found.chains(asked).values()
        document, query = lowered(asked.story), lowered([asked.words])
        yield Question(
            name=f"{babi.name} {split} question {number} (task {asked.task})",
            document=document,
            query=query,
            candidates=babi.classes,
            mentions=tuple(number_of.get(word, 0) for word in document),
            answer=classes.get(asked.answer, IGNORED),
            edges=(chain_edges(chains) if linked else ()) + wordnet.edges_of((*document, *query), hypernyms),
            chains=label_chains(chains, len(document) + len(query)),
            task=asked.task,
        )


def answers_in_stories(babi: Babi, plurals: bool = False) -> bool:
    """Return whether the answers of all training questions, or their plurals, are words of their stories.

    Case is ignored. In the release, this holds for tasks 1–5, 11–14 and 16 and, with plurals, for task 15.
    """
    return all(
        _words_of(asked.answer, plurals) & set(lowered(asked.story)) for asked in questions(babi.splits["train"])
    )


def _words_of(answer: str, plurals: bool) -> set[str]:
    """Return the words that mention an answer."""
    word = answer.lower()
    return {word, plural(word)} if plurals else {word}
