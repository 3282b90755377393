"""Fills in the tables of docs/results/*.md from the records of finished runs: python docs/results.py

A page has comments of the form `<!-- gyral report sweep=results/records/<folder> -->`, optionally with `only=[…]`,
`columns=[…]` and `missing=false`, and the report of the records in this folder between the comment and `<!-- end -->`.
The comment `<!-- claims -->` is followed by the table of results/claims.yaml, and `<!-- probe <name> sweep=<sweep> -->`
by a table of a probe's results, which are beside the records of the sweep's runs.
"""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from gyral.applications.probes import published
from gyral.reports.catalogue import load, rows_of
from gyral.reports.claims import claims_table, read_claims
from gyral.reports.render import markdown
from gyral.reports.sweep_report import collect
from gyral.reports.tables.columns import choose_columns, read_names
from gyral.runs.record_files import read_probe
from gyral.runs.records import read

ROOT = Path(__file__).parents[1]
PAGES = Path("docs/results")
REPORT = re.compile(
    r"(<!-- gyral report sweep=(\S+)(?: only=(\S+))?(?: columns=(\[.+?\]))?( missing=false)? -->\n).*?(<!-- end -->)",
    re.DOTALL,
)
CLAIMS = re.compile(r"(<!-- claims -->\n).*?(<!-- end -->)", re.DOTALL)
PROBE = re.compile(r"(<!-- probe (\w+) sweep=(\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
TITLE = re.compile(r"^## .*\n\n", re.MULTILINE)
RUNS = re.compile(r"### Runs\n\n((?:\|.*\n?)+)")


def filled(page: str) -> str:
    """Return a page with its tables made from the records."""
    page = REPORT.sub(
        lambda match: f"{match[1]}\n{report(*match.group(2, 3, 4), missing=not match[5])}\n{match[6]}", page
    )
    page = PROBE.sub(lambda match: f"{match[1]}\n{probe_table(match[2], match[3])}\n\n{match[4]}", page)
    return CLAIMS.sub(lambda match: f"{match[1]}\n{claims()}\n\n{match[2]}", page)


def report(where: str, only: str | None, columns: str | None, missing: bool) -> str:
    """Return the report of the records in a folder as Markdown; the lists of runs can be folded."""
    sections, notes, _ = collect(where, everything=True, only=read_names("only", only), missing=missing)
    if notes:
        raise ValueError("\n".join(notes))
    shown = choose_columns(sections, read_names("columns", columns)) if columns else sections
    text = markdown.render(shown, [], with_runs=True)
    if only:  # the page has a heading for each part
        text = TITLE.sub("", text)
    return RUNS.sub(r"<details markdown>\n<summary>Runs, with commits and commands</summary>\n\n\1\n</details>\n", text)


def claims() -> str:
    """Return the table of claims."""
    return claims_table(read_claims(Path("results/claims.yaml"), read(Path("results/records"))[0]))


Numbers = dict[str, float]


def probe_table(probe: str, sweep: str) -> str:
    """Return the results of a probe for all rows of a sweep as a table in Markdown, means over their seeds."""
    found: dict[str, list[Numbers]] = {}
    for row in rows_of(load(sweep), read(Path("results/records"))[0]):
        numbers = [own for record in row.records if (own := read_probe(record, probe))]
        if numbers:
            sizes = "-".join(map(str, row.records[0].config["model"]["layer_sizes"]))
            found[f"{row.name} {sizes}"] = numbers
    lines = {"dynamic": dynamic, "treebank": trees, "syneval": syneval, "blimp": blimp}[probe](found)
    lines.insert(1, ["---", *["---:"] * (len(lines[0]) - 1)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def dynamic(rows: dict[str, list[Numbers]]) -> list[list[str]]:
    """Return the lines of a table with the perplexities on test without and with dynamic evaluation."""
    names = ("test/perplexity", "test/dynamic_perplexity")
    lines = [["", "seeds", "perplexity", "with dynamic evaluation"]]
    return lines + [[name, str(len(runs)), *(mean(runs, one) for one in names)] for name, runs in rows.items()]


def trees(rows: dict[str, list[Numbers]]) -> list[list[str]]:
    """Return the lines of a table with the scores of each layer's trees, of baselines, and of the best published."""
    labels = ("ADJP", "NP", "PP", "VP", "SBAR")
    columns = ["f1", "short_f1", *(f"recall/{label}" for label in labels)]
    lines = [["", "seeds", "F1, all 3,914", "F1, 555 of ≤ 10 words", *labels]]
    for name, runs in rows.items():
        for layer in [key.removesuffix("/f1") for key in runs[0] if re.fullmatch(r"layer \d+/f1", key)]:
            seeds = str(len(runs))
            lines.append([f"{name}, {layer}", seeds, *(mean(runs, f"{layer}/{column}") for column in columns)])
    runs = next(iter(rows.values()))[:1]
    for name in ("right branching", "balanced trees", "random distances, mean of 5", "best binary trees"):
        lines.append([name, "–", *(mean(runs, f"{name}/{column}") for column in columns)])
    best = published.TREES["ON-LSTM, layer 2"]
    recalls = (f"{best.recall[label]:.1f}" if label in best.recall else "–" for label in labels)
    lines.append(["ON-LSTM, layer 2, published (section 23)", "5", f"{best.f1:.1f}", f"{best.short_f1:.1f}", *recalls])
    return lines


def syneval(rows: dict[str, list[Numbers]]) -> list[list[str]]:
    """Return the lines of a table with the accuracy on each contrast, over the pairs whose forms are known."""
    lines = [["", "pairs", "forms known", *map(seeds_of, rows, rows.values()), "LSTM, published", "ON-LSTM, published"]]
    first = next(iter(rows.values()))[0]
    for key in [key.removesuffix("/pairs") for key in first if re.fullmatch(r"[^/]+/[^/]+/pairs", key)]:
        name = key.partition("/")[2]
        accuracies = (mean(runs, f"{key}/forms_accuracy") for runs in rows.values())
        lines.append([name, *counts(first, key), *accuracies, *(f"{100 * one:.1f}" for one in published.SYNEVAL[name])])
    return lines


def blimp(rows: dict[str, list[Numbers]]) -> list[list[str]]:
    """Return the lines of a table with the accuracies on each phenomenon, over all pairs and those with known forms."""
    heads = [head for name, runs in rows.items() for head in (seeds_of(name, runs), "on those")]
    lines = [["", "pairs", "forms known", *heads, "LSTM, published"]]
    first = next(iter(rows.values()))[0]
    for name, score in sorted(published.BLIMP.items(), key=lambda item: item[0] == "overall"):
        both = (mean(runs, f"{name}/{field}") for runs in rows.values() for field in ("accuracy", "forms_accuracy"))
        lines.append([name, *counts(first, name), *both, f"{score:.1f}"])
    return lines


def mean(runs: Sequence[Numbers], name: str) -> str:
    """Return a number's mean over runs and its standard deviation as text."""
    values = [run[name] for run in runs]
    return f"{fmean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


def counts(numbers: Numbers, key: str) -> tuple[str, str]:
    """Return as text how many pairs a set has, and the share of those whose forms are known."""
    pairs = numbers[f"{key}/pairs"]
    return f"{pairs:,.0f}", f"{100 * numbers[f'{key}/with_forms'] / pairs:.0f} %"


def seeds_of(name: str, runs: Sequence[Numbers]) -> str:
    """Return the head of a row's column: its name and the number of its seeds."""
    return f"{name} (n = {len(runs)})"


def main() -> int:
    """Write the pages; with the argument --check only say whether they are up to date."""
    os.chdir(ROOT)
    outdated = [path for path in sorted(PAGES.glob("*.md")) if filled(path.read_text()) != path.read_text()]
    for path in outdated:
        if "--check" in sys.argv:
            print(f"{path}: is not up to date; run `make results`")
        else:
            path.write_text(filled(path.read_text()))
            print(f"Wrote {path}")
    return int(bool(outdated) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
