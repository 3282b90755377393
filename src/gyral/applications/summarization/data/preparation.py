"""Preparation of a corpus of articles with summaries: parallel tokenization, one word list, memory-mapped files."""

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gyral.applications.summarization.data.parsing import SPECIAL
from gyral.applications.summarization.data.parts import read_part, write_part
from gyral.applications.summarization.data.sources import ArticleSource
from gyral.data.preparation import described, total, word_list, write_parts, writing_corpus

log = logging.getLogger(__name__)

BLOCK = 1000  # records per part; an interrupted preparation resumes after the last complete part


def prepare(name: str, sources: Mapping[str, ArticleSource], target: Path, processes: int | None) -> None:
    """Tokenize the sources part by part in parallel, and join the parts.

    Args:
        name: name of the corpus, for the log and the progress bar.
        sources: source of each split.
        target: folder to write.
        processes: number of worker processes; None: one for each available core.

    Raises:
        OptionError: a split contains no pair, or cannot be read.
        UserError: a worker process was killed.
        OSError: the folder cannot be written.
    """
    log.info("preparing %s, once", name)
    working = target.with_name(f"{target.name}.parts")
    parts = write_parts(
        name,
        sources,
        working,
        block=BLOCK,
        write=write_part,
        read=read_part,
        example="pair of an article and a summary",
        unit="pairs",
        processes=processes,
    )
    _join(parts, target)
    shutil.rmtree(working)


def _join(parts: dict[str, list[Path]], target: Path) -> None:
    """Number all words of the parts and write the corpus: a folder that is written completely or not at all."""
    words, trained, _ = word_list(parts, read_part, SPECIAL)
    index = {word: number for number, word in enumerate(words)}
    with writing_corpus(target) as (folder, description):
        (folder / "words.txt").write_bytes("\n".join(words).encode())
        reports, end = {}, 0
        with (folder / "tokens.bin").open("wb") as file:
            for split, paths in parts.items():
                bounds, found = [np.array([end])], []
                for path in paths:
                    part = read_part(path)
                    numbers = np.array([index[word] for word in part.words], dtype=np.uint32)
                    file.write(numbers[part.tokens].data)
                    bounds.append(part.bounds + end)
                    end += len(part.tokens)
                    found.append(part.report)
                np.save(folder / f"{split}.npy", np.concatenate(bounds))
                reports[split] = total(found)
        description |= {"trained": trained, "reports": described(reports)}
