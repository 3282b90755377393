"""Cloze questions from the highlights of articles, a substitute for published questions.

As in Hermann et al. (2015), one entity of a highlight is replaced by a placeholder, and all entities of the article and
the highlight by numbers in random order. Without a tagger of names and a coreference system, entities are spans of
capitalized words:

    article     Ada Bell met Boris in Paris . Bell likes it .
    highlight   Bell saw Boris
    document    @entity2 met @entity0 in @entity1 . @entity2 likes it .
    question    @placeholder saw @entity0
"""

import random
from collections.abc import Iterator, Sequence
from typing import Any

from gyral.applications.reading.data.cloze_forms import ENTITY, make_question
from gyral.applications.reading.data.questions import Question
from gyral.applications.reading.data.words import FUNCTION_WORDS, PLACEHOLDER
from gyral.data.batching import mix_seed
from gyral.data.mentions import Mention
from gyral.data.raw_examples import ARTICLE, SUMMARY, Report, UnusableError, field_lines, load_line
from gyral.data.text.penn import split_sentences, tokenize

MOST = 2  # largest number of questions of an article
_DATES = (
    "monday tuesday wednesday thursday friday saturday sunday january february march april may june july august "
    "september october november december jan. feb. aug. sept. oct. nov. dec."
)
# Words that begin a sentence or a title more often than they are a name, besides function words.
_OTHERS = (
    "meanwhile however according two three four five six seven eight nine ten first second last mr. mrs. ms. dr. read "
    "watch photos video new"
)
NO_NAMES = FUNCTION_WORDS.union(_DATES.split(), _OTHERS.split())


def parse_article(content: bytes, place: str, report: Report, *, seed: int, **options: Any) -> list[Question]:
    """Return the questions from an article and at most two of its highlights.

    Args:
        content: a line of JSON with `article` and `highlights`.
        place: file and line.
        report: counts unusual articles.
        seed: seed of the choice of highlights, entities and numbers.
        **options: see `gyral.applications.reading.data.cloze_forms.make_question`.

    Raises:
        UnusableError: the line is not JSON, or there is no highlight with an entity of the article.
    """
    fields = load_line(content)
    if not isinstance(fields, dict):
        raise UnusableError("line that is not a JSON object")
    uniform = random.Random(mix_seed(seed, place)).random  # Python guarantees this sequence
    document = tokenize("\n".join(field_lines(fields, ARTICLE)), lower=False)
    lines = [tokenize(line, lower=False) for line in field_lines(fields, SUMMARY)]
    names = _inner_names([document, *lines])
    spans = list(_spans(document, names))
    entities = _entities(document, spans)
    made: list[Question] = []
    for line in _shuffled(lines, uniform):
        found = list(_spans(line, names))
        asked = sorted({entities[name] for span in found if (name := _name(line, span)) in entities})
        if not asked or len(made) == MOST:
            continue
        answer = asked[int(uniform() * len(asked))]
        every = {**entities, **{name: name for span in found if (name := _name(line, span)) not in entities}}
        order = _shuffled(sorted(set(every.values())), uniform)
        symbols = {name: f"{ENTITY}{order.index(entity)}" for name, entity in every.items()}
        hidden = {name: PLACEHOLDER for name, entity in every.items() if entity == answer}
        made += make_question(
            f"{place} {len(made) + 1}",
            _replaced(document, spans, symbols),
            _replaced(line, found, {**symbols, **hidden}),
            sorted(set(symbols.values())),
            symbols[answer],
            **options,
        )
    if not made:
        raise UnusableError("without a highlight that has an entity of the article")
    return made


def _inner_names(texts: Sequence[Sequence[str]]) -> set[str]:
    """Return the capitalized words that occur within a sentence, not only at its beginning."""
    sentences = (sentence for text in texts for sentence in split_sentences(text))
    return {word for sentence in sentences for word in sentence[1:] if _is_name(word)}


def _is_name(word: str) -> bool:
    return word[0].isupper() and word.lower() not in NO_NAMES


def _spans(words: Sequence[str], inner_names: set[str]) -> Iterator[Mention]:
    """Yield the spans of capitalized words; one word that begins a sentence must occur within one, too."""
    step = 0
    for sentence in split_sentences(words):
        start = 0
        while start < len(sentence):
            end = start
            while end < len(sentence) and _is_name(sentence[end]):
                end += 1
            if end - start > 1 or (end > start and (start > 0 or sentence[start] in inner_names)):
                yield Mention(step + start, step + end - 1)
            start = max(end, start + 1)
        step += len(sentence)


def _name(words: Sequence[str], span: Mention) -> str:
    return " ".join(words[span.first : span.last + 1]).lower()


def _entities(words: Sequence[str], spans: Sequence[Mention]) -> dict[str, str]:
    """Return the entity of each name; a last name belongs to the first longer name that ends with it."""
    names = list(dict.fromkeys(_name(words, span) for span in spans))
    longer: dict[str, str] = {}
    for name in names:
        if " " in name:
            longer.setdefault(name.split()[-1], name)
    return {name: longer.get(name, name) for name in names}


def _replaced(words: Sequence[str], spans: Sequence[Mention], symbols: dict[str, str]) -> list[str]:
    """Return the words in lower case, with the symbols of their names."""
    found: list[str] = []
    step = 0
    for span in spans:
        found += [word.lower() for word in words[step : span.first]]
        found.append(symbols[_name(words, span)])
        step = span.last + 1
    return found + [word.lower() for word in words[step:]]


def _shuffled(items: Sequence[Any], uniform: Any) -> list[Any]:
    keys = [uniform() for _ in items]
    return [item for _, _, item in sorted(zip(keys, range(len(items)), items, strict=True))]
