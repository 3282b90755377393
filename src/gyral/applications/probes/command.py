"""The probes that `gyral evaluate` offers for language models."""

from pathlib import Path

from gyral.applications.probes import parsing, tree_page
from gyral.applications.probes.data import pairs as minimal_pairs
from gyral.applications.probes.minimal_pairs import report_pairs
from gyral.data.treebank import sentences as treebank
from gyral.runs.evaluation_report import EvaluationReport, Request, output_file
from gyral.tasks.base import SequenceTask


def probe_trees(task: SequenceTask, request: Request, *, parse: str) -> dict[str, float]:
    """Score the trees from the gates of a language model of words.

    Args:
        task: a trained task.
        request: `save` may be a file .md, .json or .html, with drawn trees.
        parse: treebank, or a file or folder with brackets (.mrg).

    Raises:
        OptionError: the data is missing or damaged, the file has another suffix, or the model has no forget gate.
    """
    path = output_file(request.save, (".md", ".json", ".html"))
    sentences = treebank.load(parse, request.data_dir)
    induced = parsing.induce(task, sentences, parse)
    data = parsing.describe_sentences(parse, request.data_dir, task.data.corpus)
    report = parsing.report_parsing(induced, sentences, request.title, data)
    if path is not None and path.suffix == ".html":
        tree_page.write_page(path, report, sentences, induced)
    return _publish(report, path)


def probe_pairs(task: SequenceTask, request: Request, *, pairs: str) -> dict[str, float]:
    """Score how often a language model prefers the grammatical sentence of a minimal pair.

    Args:
        task: a trained task.
        request: `save` may be a file .md or .json.
        pairs: syneval, blimp.

    Raises:
        OptionError: the data is missing or damaged, or the file has another suffix.
    """
    path = output_file(request.save)
    sets = minimal_pairs.load(pairs, request.data_dir)
    return _publish(report_pairs(task, pairs, sets, request.title), path)


def _publish(report: EvaluationReport, path: Path | None) -> dict[str, float]:
    """Print a report, write it to a file in Markdown or JSON, and return its numbers."""
    report.show()
    if path is not None:
        if path.suffix != ".html":
            report.write(path)
        print(path)
    return report.numbers
