"""Cloze questions about entities: predict the entity that a sentence about a document lacks.

Two forms of files are read. The form of Hermann et al. (2015, arXiv:1506.03340) is one file `*.question` for each
question, whose parts are separated by empty lines: the address of the article, its words, the words of the question
with `@placeholder`, the answer, and the names of the entities, which are `@entity0`, `@entity1`, … in the texts:

    http://…

    @entity1 met @entity0 in @entity2 .

    @placeholder saw @entity0

    @entity1

    @entity0:Boris
    @entity1:Ada
    @entity2:Paris

The other form is JSON lines. Other corpora, such as Who-did-What (Onishi et al. 2016, arXiv:1608.05457), are easy to
convert to it. The placeholder is `@placeholder` or `XXX`:

    {"document": "Ada met Boris .", "question": "XXX saw Boris .", "candidates": ["Ada", "Boris"], "answer": "Ada"}
"""

from collections.abc import Sequence
from typing import Any

from gyral.applications.reading.data import wordnet
from gyral.applications.reading.data.questions import Question
from gyral.applications.reading.data.words import BEGIN, END, PLACEHOLDER
from gyral.data.batching import IGNORED
from gyral.data.mentions import chain_edges, entity_chains, label_chains
from gyral.data.raw_examples import Report, UnusableError, file_text, load_line

ENTITY = "@entity"
PLACEHOLDERS = (PLACEHOLDER, "XXX")


def parse_file(content: str, place: str, report: Report, **options: Any) -> list[Question]:
    """Return the question in a file, whose path is the content of the example.

    The options are those of `make_question`.

    Raises:
        UnusableError: the file cannot be read or is not in the form of the module's example.
    """
    parts = file_text(content).split("\n\n")
    if len(parts) < 4:
        raise UnusableError("without the parts of a .question file: address, article, question, answer, entities")
    document, query, answer = parts[1].split(), parts[2].split(), parts[3].strip()
    entities = sorted({word for word in (*document, *query) if word.startswith(ENTITY)})
    return make_question(place, document, query, entities, answer, **options)


def parse_line(content: bytes, place: str, report: Report, **options: Any) -> list[Question]:
    """Return the question in a line of JSON.

    The options are those of `make_question`.

    Raises:
        UnusableError: the line is not JSON with the fields of the module's example.
    """
    fields = load_line(content)
    if not isinstance(fields, dict):
        raise UnusableError("line that is not a JSON object")
    document, query = _words(fields, "document"), _words(fields, "question")
    candidates, answer = fields.get("candidates"), fields.get("answer")
    if not isinstance(candidates, list) or not all(isinstance(name, str) and name.split() for name in candidates):
        raise UnusableError("whose candidates are not a list of names")
    names = [" ".join(_split(name)) for name in candidates]
    if type(answer) is int and 0 <= answer < len(names):
        answer = names[answer]
    if not isinstance(answer, str):
        raise UnusableError("whose answer is neither a name nor the index of a candidate")
    entities, answer = list(dict.fromkeys(names)), " ".join(_split(answer))
    return make_question(place, document, query, entities, answer, **options)


def _words(fields: dict[str, Any], name: str) -> list[str]:
    value = fields.get(name)
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        value = " ".join(value)
    if not isinstance(value, str):
        raise UnusableError(f"whose {name} is neither a text nor a list of words")
    return _split(value)


def _split(text: str) -> list[str]:
    """Return the words of a text; half of a surrogate pair, which JSON may have, becomes a question mark."""
    return text.encode(errors="replace").decode().split()


def make_question(
    name: str,
    document: Sequence[str],
    query: Sequence[str],
    entities: Sequence[str],
    answer: str,
    *,
    edges: str,
    document_length: int | None = None,
    hypernyms: wordnet.Version | None = None,
) -> list[Question]:
    """Return a question whose candidates are the entities that the document mentions, as a list.

    Args:
        name: name of the question.
        document, query: their words; the placeholder is one of `PLACEHOLDERS`.
        entities: names of the entities.
        answer: name of the entity that the placeholder replaces.
        edges, document_length: see `gyral.applications.reading.data.cloze.load_cloze`.
        hypernyms: WordNet, for edges of two further types.

    Raises:
        UnusableError: the document is empty, mentions no entity, or the question has no placeholder.
    """
    document = tuple(document[:document_length])
    places = [place for place, word in enumerate(query) if word in PLACEHOLDERS]
    if not document:
        raise UnusableError("with an empty document")
    if not places:
        raise UnusableError(f"whose question has no {' or '.join(PLACEHOLDERS)}")
    query = (BEGIN, *(PLACEHOLDER if word in PLACEHOLDERS else word for word in query), END)
    chains = entity_chains((*document, *query), entities)
    candidates = tuple(entity for entity, (first, *_) in chains.items() if first.last < len(document))
    if not candidates:
        raise UnusableError("whose document mentions no candidate")
    linked = () if edges == "none" else chain_edges(chains.values())
    mentions = label_chains([chains[entity] for entity in candidates], len(document) + len(query))
    return [
        Question(
            name,
            document,
            query,
            candidates,
            mentions[: len(document)],
            candidates.index(answer) if answer in candidates else IGNORED,
            linked + wordnet.edges_of((*document, *query), hypernyms),
            label_chains(chains.values(), len(document) + len(query)),
            places[0] + 1,
        )
    ]
