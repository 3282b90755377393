"""Run directories as a report finds them, written without training, and reports of them."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from omegaconf import OmegaConf

from gyral.core.measures import ACCURACY, BITS, OF_OBJECTIVES, PERPLEXITY, SUBSTITUTE, Remark, percentage
from gyral.runs.measures import write_measures
from tests.helpers.running import invoke

RESULTS = {
    "test/loss": 0.02,
    "test/accuracy": 0.875,
    "test/sequence_accuracy": 0.5,
    "test/baseline": 0.04,
    "monitor": 0.02,
    "parameters": 13_710,
    "seconds_a_step": 0.0123456,
}
MEASURES = (
    BITS,
    ACCURACY,
    PERPLEXITY,
    *OF_OBJECTIVES[1:],
    percentage("majority", "most frequent answer", at_end=True, floor_of="accuracy"),
)
REMARKS = (
    Remark("stand_ins", "°", "trained on the 1k file, because the 10k file does not exist"),
    Remark("generated", "*", "on GENERATED stories, which are not from bAbI", "GENERATED stories"),
    SUBSTITUTE,
)
TABLE1, TABLE2, FIG4 = "rum_paper/table1", "rum_paper/table2", "rum_paper/fig4"
PROVENANCE = {
    "id": "0f22b828c43a",
    "started": "2026-11-21T03:31:59+00:00",
    "command": ["/usr/bin/python", "/home/gyral/src/train.py", "-m", "seed=1,2", "~callbacks.progress_bar"],
    "git_commit": "ac466c4a7639e50dd91bd177ceb493ec96c6c0c5",
    "host": "laptop",
}
LOSSES = "step,train/loss,train/baseline\n" + "".join(f"{5 * n - 1},{1 / n},0.8\n" for n in range(1, 9))


def write_run(
    directory: Path,
    experiment: str,
    *overrides: str,
    seed: int = 1,
    length: int | None = None,
    accuracy: float | None = None,
    steps: int = 100_000,
    losses: str = LOSSES,
) -> Path:
    """Write the files of a run that a report reads; it is DONE if it has an accuracy. Returns its directory."""
    run = directory / f"{experiment}-{length}-{seed}-{'-'.join(overrides)}"
    run.mkdir(parents=True)
    axes = [f"experiment={experiment}", f"seed={seed}", "logger=none", "~callbacks.progress_bar"]
    if length is None:
        length = 30
    else:
        axes.append(f"task.length={length}")
    (run / "overrides.yaml").write_text(OmegaConf.to_yaml([*axes, *overrides]))
    (run / "config.yaml").write_text(OmegaConf.to_yaml({"seed": seed, "task": {"length": length}}))
    write_measures(run, MEASURES, REMARKS)
    metrics(run, losses)
    (run / "provenance.json").write_text(json.dumps(PROVENANCE))
    if accuracy is not None:
        done = {**RESULTS, "test/accuracy": accuracy, "parameters": 12_000 + length, "steps": steps}
        (run / "DONE").write_text(json.dumps(done))
    return run


def metrics(directory: Path, text: str) -> Path:
    (directory / "metrics.csv").write_text(text)
    return directory


def write_answers(
    directory: Path,
    row: str,
    qa: int | str,
    accuracy: float | None,
    seed: int = 1,
    table: str = TABLE2,
    monitor: float = 0.02,
    **more: float,
) -> Path:
    """Write a run of a task of bAbI."""
    run = write_run(directory, f"{table}/{row}", f"task.qa={qa}", seed=seed, accuracy=accuracy, steps=300)
    (run / "config.yaml").write_text(OmegaConf.to_yaml({"seed": seed, "task": {"qa": qa}}))
    if accuracy is not None:
        results = {**json.loads((run / "DONE").read_text()), "monitor": monitor, "parameters": 60_000.0}
        if table == TABLE2:
            results["test/majority"] = 0.5
        results |= {f"test/{name}": value for name, value in more.items()}
        (run / "DONE").write_text(json.dumps(results))
    return run


def report_of(directory: Path) -> tuple[dict[str, list[str]], str]:
    """Return the cells of each row of the table that is printed, their lines joined, and all that is printed."""
    with pytest.MonkeyPatch.context() as context:
        context.setattr("gyral.reports.render.terminal.WIDTH", 1000)  # no table goes on below
        outcome = invoke(f"sweep={directory}", entry="report")
    assert outcome.status == 0, outcome.err
    assert not outcome.err
    head, *blocks = re.split(r"\n ─+ *\n", outcome.out)[1:-1]
    edges = [0, *(match.end() for match in re.finditer(r"\S+(?: \S+)*(?=  |$)", head.splitlines()[-1]))]
    cells = {}
    for block in blocks:
        rows = [line.ljust(edges[-1]) for line in block.splitlines()]
        # the first column is flush left, the others end where their heads end
        edges[1] = edges[0] + max(len(re.match(r" .*?(?=  )", row).group()) for row in rows)  # type: ignore[union-attr]
        parts = [" ".join(filter(None, (row[a:b].strip() for row in rows))) for a, b in itertools.pairwise(edges)]
        cells[parts[0]] = parts[1:]
    return cells, outcome.out


def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Keep the figures that are drawn from now on."""
    figures: list[Any] = []

    def savefig(figure: Figure, path: Path, **_: Any) -> None:
        figures.append(figure)
        Path(path).touch()

    monkeypatch.setattr(Figure, "savefig", savefig)
    return figures
