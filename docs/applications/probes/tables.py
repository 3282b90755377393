"""The tables of the results of probes: a function for each, whose argument docs/results.py reads from the records.

A row is a list of the numbers of each seed, whose method `mean` returns the mean of a number over seeds as text.
"""

import re
from typing import Any

from gyral.applications.probes import published


def treebank(rows: dict[str, Any]) -> list[list[str]]:
    """Return the lines of a table with the scores of each layer's trees, of baselines, and of the best published."""
    labels = ("ADJP", "NP", "PP", "VP", "SBAR")
    columns = ["f1", "short_f1", *(f"recall/{label}" for label in labels)]
    lines = [["", "seeds", "F1, all 3,914", "F1, 555 of ≤ 10 words", *labels]]
    for name, runs in rows.items():
        for layer in [key.removesuffix("/f1") for key in runs[0] if re.fullmatch(r"layer \d+/f1", key)]:
            seeds = str(len(runs))
            lines.append([f"{name}, {layer}", seeds, *(runs.mean(f"{layer}/{column}") for column in columns)])
    first = next(iter(rows.values()))[0]
    for name in ("right branching", "balanced trees", "random distances, mean of 5", "best binary trees"):
        lines.append([name, "–", *(f"{first[f'{name}/{column}']:.1f}" for column in columns)])
    best = published.TREES["ON-LSTM, layer 2"]
    recalls = (f"{best.recall[label]:.1f}" if label in best.recall else "–" for label in labels)
    lines.append(["ON-LSTM, layer 2, published (section 23)", "5", f"{best.f1:.1f}", f"{best.short_f1:.1f}", *recalls])
    return lines


def syneval(rows: dict[str, Any]) -> list[list[str]]:
    """Return the lines of a table with the accuracy on each contrast, over the pairs whose forms are known."""
    lines = [["", "pairs", "forms known", *map(seeds_of, rows, rows.values()), "LSTM, published", "ON-LSTM, published"]]
    first = next(iter(rows.values()))[0]
    for key in [key.removesuffix("/pairs") for key in first if re.fullmatch(r"[^/]+/[^/]+/pairs", key)]:
        name = key.partition("/")[2]
        accuracies = (runs.mean(f"{key}/forms_accuracy") for runs in rows.values())
        lines.append([name, *counts(first, key), *accuracies, *(f"{100 * one:.1f}" for one in published.SYNEVAL[name])])
    return lines


def blimp(rows: dict[str, Any]) -> list[list[str]]:
    """Return the lines of a table with the accuracies on each phenomenon, over all pairs and those with known forms."""
    heads = [head for name, runs in rows.items() for head in (seeds_of(name, runs), "on those")]
    lines = [["", "pairs", "forms known", *heads, "LSTM, published"]]
    first = next(iter(rows.values()))[0]
    for name, score in sorted(published.BLIMP.items(), key=lambda item: item[0] == "overall"):
        both = (runs.mean(f"{name}/{field}") for runs in rows.values() for field in ("accuracy", "forms_accuracy"))
        lines.append([name, *counts(first, name), *both, f"{score:.1f}"])
    return lines


def counts(numbers: dict[str, float], key: str) -> tuple[str, str]:
    """Return as text how many pairs a set has, and the share of those whose forms are known."""
    pairs = numbers[f"{key}/pairs"]
    return f"{pairs:,.0f}", f"{100 * numbers[f'{key}/with_forms'] / pairs:.0f} %"


def seeds_of(name: str, runs: Any) -> str:
    """Return the head of a row's column: its name and the number of its seeds."""
    return f"{name} (n = {len(runs)})"
