"""Links of the pages lead to files of a checkout, so that the pages can be read without the built site."""

import json
import re
from pathlib import Path

from tests.helpers.docs import load_script
from tests.helpers.found import at_least
from tests.helpers.running import ROOT

LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)[^)]*\)|(?:src|href)=\"(?!https?:|#)([^\"#]+)")
PAGES = sorted(
    {
        *ROOT.glob("*.md"),
        *(ROOT / "benchmarks").glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").glob("*.ipynb"),
        *(ROOT / "src" / "gyral" / "applications").rglob("README.md"),
    }
)


def text_of(page: Path) -> str:
    """Return the text of a page without its code."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def test_links_lead_to_files_of_a_checkout() -> None:
    links = [(page, found[1] or found[2]) for page in at_least(73, PAGES) for found in LINK.finditer(text_of(page))]
    assert not [link for link in at_least(265, links) if not (link[0].parent / link[1]).exists()]


def test_pages_have_no_placeholders_that_only_the_site_fills_in() -> None:
    for page in at_least(73, PAGES):
        assert "{{" not in text_of(page), page


def test_links_of_a_checkout_are_links_of_the_site() -> None:
    hooks = load_script("hooks")
    folder = ROOT / "docs" / "how-to"
    for text, wanted in (
        ("[a](../../examples/own_data.ipynb)", "[a](../tutorials/own_data.md)"),
        ("[a](../../conf/cell/gru.yaml#options)", "[a](../cells/gru.md#options)"),
        ("[a](../../conf/cell)", "[a](../cells/index.md)"),
        ("[a](../../README.md)", "[a](../index.md)"),
        ("[a](../speed.md)", "[a](../speed.md)"),
        ("[a](../../LICENSE)", "a"),
        ("cells[name](size)", "cells[name](size)"),
    ):
        assert hooks.adapted(text, folder, "how-to/data.md") == wanted
