"""Fills in the tables of docs/results/*.md from the records of finished runs: python docs/results.py

A page has comments of the form `<!-- gyral report sweep=results/records/<folder> -->`, optionally with `columns=[…]`,
and the report of the records in this folder between the comment and `<!-- end -->`. The comment `<!-- claims -->` is
followed by the table of results/claims.yaml.
"""

import os
import re
import sys
from pathlib import Path

from gyral.reports.claims import claims_table, read_claims
from gyral.reports.render import markdown
from gyral.reports.sweep_report import collect
from gyral.reports.tables.columns import choose_columns, read_names
from gyral.runs.records import read

ROOT = Path(__file__).parents[1]
PAGES = Path("docs/results")
REPORT = re.compile(r"(<!-- gyral report sweep=(\S+)(?: columns=\[(.+?)\])? -->\n).*?(<!-- end -->)", re.DOTALL)
CLAIMS = re.compile(r"(<!-- claims -->\n).*?(<!-- end -->)", re.DOTALL)
RUNS = re.compile(r"### Runs\n\n((?:\|.*\n?)+)")


def filled(page: str) -> str:
    """Return a page with its tables made from the records."""
    page = REPORT.sub(lambda match: f"{match[1]}\n{report(match[2], match[3])}\n{match[4]}", page)
    return CLAIMS.sub(lambda match: f"{match[1]}\n{claims()}\n\n{match[2]}", page)


def report(where: str, columns: str | None) -> str:
    """Return the report of the records in a folder as Markdown; the lists of runs can be folded."""
    sections, notes, _ = collect(where, everything=True)
    if notes:
        raise ValueError("\n".join(notes))
    shown = choose_columns(sections, read_names(columns)) if columns else sections
    text = markdown.render(shown, [], with_runs=True)
    return RUNS.sub(r"<details markdown>\n<summary>Runs, with commits and commands</summary>\n\n\1\n</details>\n", text)


def claims() -> str:
    """Return the table of claims."""
    return claims_table(read_claims(Path("results/claims.yaml"), read(Path("results/records"))[0]))


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
