"""Chooses and runs a probe from the options of `gyral evaluate`."""

from collections.abc import Callable
from pathlib import Path

from gyral.applications.probes import parsing, tree_page
from gyral.applications.probes.data import pairs as minimal_pairs
from gyral.applications.probes.minimal_pairs import report_pairs
from gyral.applications.probes.report import ProbeReport, output_file
from gyral.core.errors import OptionError
from gyral.data.treebank import sentences as treebank
from gyral.tasks.base import SequenceTask

Probe = Callable[[SequenceTask, str], dict[str, float]]


def prepare(parse: str | None, pairs: str | None, save: str | None, data_dir: str | Path) -> Probe:
    """Read the data of a probe, and return the function that probes a task: it prints, saves and returns the results.

    Its arguments are a trained task and a description of its model.

    Args:
        parse: see `gyral.data.treebank.sentences.load`; None: no parsing.
        pairs: see `gyral.applications.probes.data.pairs.load`; needed without `parse`.
        save: path of the file to write, None for none.
        data_dir: data folder.

    Raises:
        OptionError: both are given, the data is missing or damaged, or the file has another suffix.
    """
    if parse is not None and pairs is not None:
        raise OptionError("pairs", pairs, "must be null with parse=; evaluate them one after the other")
    if parse is None:
        return _pairs_probe(str(pairs), output_file(save), data_dir)
    return _parsing_probe(str(parse), output_file(save, (".md", ".json", ".html")), data_dir)


def _parsing_probe(source: str, path: Path | None, data_dir: str | Path) -> Probe:
    sentences = treebank.load(source, data_dir)

    def probe(task: SequenceTask, model: str) -> dict[str, float]:
        induced = parsing.induce(task, sentences, source)
        data = parsing.describe_sentences(source, data_dir, task.data.corpus)
        report = parsing.report_parsing(induced, sentences, model, data)
        if path is not None and path.suffix == ".html":
            tree_page.write_page(path, report, sentences, induced)
        return _publish(report, path)

    return probe


def _pairs_probe(name: str, path: Path | None, data_dir: str | Path) -> Probe:
    sets = minimal_pairs.load(name, data_dir)
    return lambda task, model: _publish(report_pairs(task, name, sets, model), path)


def _publish(report: ProbeReport, path: Path | None) -> dict[str, float]:
    """Print a report, write it to a file in Markdown or JSON, and return its numbers."""
    report.show()
    if path is not None:
        if path.suffix != ".html":
            report.write(path)
        print(path)
    return report.numbers
