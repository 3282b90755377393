"""Translations of any sentences."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from gyral.applications.translation.task import TranslationTask
from gyral.core.checks import check_integer
from gyral.core.errors import OptionError
from gyral.core.inputs import open_input, read_lines, source_of
from gyral.tasks.predicted import Tables

log = logging.getLogger(__name__)
STANDARD_INPUT = "-"


def translate(
    task: TranslationTask,
    *,
    text: str | None = None,
    input: str | None = None,
    batch_size: int | None = None,
    beam: int | None = None,
    max_length: int | None = None,
    length_penalty: float | None = None,
    block_ngrams: int | None = None,
) -> Iterator[str]:
    """Translate sentences.

    Args:
        task: a trained task.
        text: the sentence.
        input: file with a sentence on each line; "-": standard input.
        batch_size: sentences that are translated together; None: the run's eval_batch_size.
        beam, max_length, length_penalty, block_ngrams: see `BeamSearch`; None: the value of the run.

    Yields:
        The translations, one line each. The translation of an empty line is empty.

    Raises:
        OptionError: neither or both of `text` and `input` are given; the file cannot be read, or is not UTF-8.
    """
    if (text is None) == (input is None):
        raise OptionError("text", text, "give either a text or an input, a file with a sentence on each line")
    given = {"beam": beam, "max_length": max_length, "length_penalty": length_penalty, "block_ngrams": block_ngrams}
    task.decoding = task.decoding.changed(**{name: value for name, value in given.items() if value is not None})
    size = task.data.eval_batch_size if batch_size is None else check_integer("batch_size", batch_size)
    count = 0
    with _lines(text, input) as lines:
        while block := list(islice(lines, size)):
            sentences = [line for line in block if line]
            written = iter(task.translations(sentences) if sentences else ())
            yield from (f"{next(written).text if line else ''}\n" for line in block)
            count += len(block)
    log.info("%s sentences", f"{count:,}")


def predict_translations(task: TranslationTask, data: Any) -> Tables:
    """Sentences: a text file with a sentence on each line, or a list of sentences.

    Args:
        task: a trained task.
        data: path of a file, "-" for standard input, or the sentences. The translation of an empty line is empty.

    Raises:
        OptionError: the file cannot be read, or is empty.
    """
    given = read_lines("data", data)
    lines, row = (" ".join(line.split()) for line in given), 0
    while block := list(islice(lines, task.data.eval_batch_size)):
        sentences = [line for line in block if line]
        written = iter(task.translations(sentences) if sentences else ())
        translated = [next(written) if line else None for line in block]
        yield {
            "row": range(row, row + len(block)),
            "source": block,
            "prediction": [found.text if found else "" for found in translated],
            "score": [found.score if found else 0.0 for found in translated],
        }
        row += len(block)
    if not row:
        raise OptionError("data", source_of(data), "is empty; must have a sentence on each line")
    return {}


@contextmanager
def _lines(text: str | None, input: str | None) -> Iterator[Iterator[str]]:
    """Yield the sentences of a text or of the lines of a file."""
    if text is not None:
        yield iter([" ".join(text.split())])
    elif input == STANDARD_INPUT:
        yield (_decoded(line, input) for line in sys.stdin.buffer)
    else:
        with open_input("input", input, Path(str(input))) as content:
            yield (_decoded(line, input) for line in content)


def _decoded(line: bytes, input: str | None) -> str:
    try:
        return " ".join(line.decode().removeprefix("\ufeff").split())
    except UnicodeDecodeError as error:
        raise OptionError("input", input, f"is not UTF-8: byte 0x{line[error.start]:02x} in {line[:40]!r}") from None
