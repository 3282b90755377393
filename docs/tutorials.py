"""The notebooks of examples/ as pages, with the outputs that they were saved with. Building the site runs nothing."""

import base64
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ORDER = ("first_comparison", "new_cell", "state_tracking", "language_model", "own_data")


def notebooks() -> list[Path]:
    """Return the notebooks in the order of the navigation."""
    return [path for name in ORDER if (path := ROOT / "examples" / f"{name}.ipynb").is_file()]


def pages() -> list[str]:
    """Return the pages of the notebooks."""
    return [f"tutorials/{path.stem}.md" for path in notebooks()]


def rendered() -> Iterator[tuple[str, str, dict[str, bytes]]]:
    """Yield the name and the text of each page, and the contents of its figures by their names."""
    for path in notebooks():
        figures: dict[str, bytes] = {}
        parts = ["---\nsearch:\n  boost: 1.2\n---"]
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "markdown":
                parts.append(source)
                continue
            parts.append(f"```python\n{source}\n```")
            for output in cell["outputs"]:
                parts.append(_output(output, path.stem, figures))
        link = f"This page is the notebook `examples/{path.name}` with its outputs; open it with Jupyter to change it."
        yield f"tutorials/{path.stem}.md", "\n\n".join((*filter(None, parts), link)) + "\n", figures


def _output(output: dict[str, Any], stem: str, figures: dict[str, bytes]) -> str:
    """Return an output of a cell as Markdown."""
    data = output.get("data", {})
    if "image/png" in data:
        name = f"{stem}_{len(figures)}.png"
        figures[f"tutorials/{name}"] = base64.b64decode("".join(data["image/png"]))
        return f'![Figure of the code above]({name}){{ width="650" }}'
    if "text/html" in data:
        return _table("".join(data["text/html"]))
    text = "".join(data.get("text/plain", output.get("text", [])))
    return f"```text\n{_ANSI.sub('', text).rstrip()}\n```" if text.strip() else ""


_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class _Rows(HTMLParser):
    """Collects the rows of a table."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.is_open = False

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag == "tr":
            self.rows.append([])
        self.is_open = tag in ("td", "th")
        if self.is_open:
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self.is_open = self.is_open and tag not in ("td", "th")

    def handle_data(self, data: str) -> None:
        if self.is_open:
            self.rows[-1][-1] += data.strip()


def _table(html: str) -> str:
    """Return a table that pandas has written as one in Markdown."""
    reader = _Rows()
    reader.feed(html)
    head, *rows = [[cell.replace("|", " ") for cell in row] for row in reader.rows if row]
    if rows and not any(rows[0][1:]):  # the name of the index, below the names of the columns
        head, rows = [rows[0][0], *head[1:]], rows[1:]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))
