"""The built site in Chromium: what the search finds first, and that every page fits a screen and a phone.

`make docs` builds the site; without it, Chromium, chromedriver or the package selenium, these tests are skipped.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.browser import chromium, resize, served
from tests.helpers.running import ROOT

pytestmark = pytest.mark.slow

SITE = ROOT / "site"
FIRST_HITS = {
    "LSTM": ("layers/LSTM/",),
    "GRU": ("layers/GRU/",),
    "RUM": ("layers/RUM/",),
    "DeltaNet": ("layers/DeltaNet/",),
    "bf16": ("options/#bf16",),
    "resume": ("how-to/resume/",),
    "learning rate": ("options/#learning-rate",),
    "hidden state": ("options/#hidden-state",),
    "hidden states": ("options/#hidden-state", "how-to/python/#hidden-states-of-a-trained-run"),
    "SLURM": ("how-to/slurm/",),
    "which cell": ("which-cell/",),
    "own data": ("how-to/data/", "tutorials/own_data/"),
    "own cell": ("how-to/cell/", "tutorials/new_cell/"),
    "install": ("installation/",),
    "batch size": ("options/#batch-size",),
    "seed": ("options/#seed",),
    "GPU": ("options/#gpu", "speed/"),
    "speed": ("speed/",),
    "dropout": ("options/#dropout",),
    "bidirectional": ("options/#bidirectional",),
    "packed sequence": ("options/#packed-sequence",),
    "checkpoint": ("options/#checkpoint", "how-to/resume/"),
    "sweep": ("how-to/sweeps/",),
    "wandb": ("how-to/wandb/",),
    "plot": ("options/#plot", "how-to/reports/"),
    "table": ("options/#table", "how-to/table/"),
    "evaluate": ("options/#evaluate", "how-to/resume/"),
    "generate": ("how-to/generate/", "options/#generate"),
    "language model": ("how-to/language-models/", "tutorials/language_model/"),
    "copying": ("results/copying/",),
    "recall": ("results/recall/", "tasks/recall/"),
    "state tracking": ("results/atlas/", "tutorials/state_tracking/"),
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, str]]:
    if not (SITE / "index.html").is_file():
        pytest.skip("the site is not built; make docs builds it")
    with served(SITE) as address, chromium(tmp_path_factory.mktemp("profile")) as driver:
        resize(driver, 1280)
        yield driver, address


def first_hit(driver: Any, address: str, words: str) -> list[str]:
    """Return the page and the sections that the first result of a search leads to."""
    driver.get(f"{address}installation/?q={words.replace(' ', '+')}")
    for _ in range(100):
        found = driver.execute_script(
            "const hit = document.querySelector('.md-search-result__list > li');"
            "return hit && [...hit.querySelectorAll('a')].map(a => a.pathname.slice(1) + a.hash)"
        )
        if found:
            return list(found)
        time.sleep(0.1)
    raise AssertionError(f"{words}: nothing found")


def test_the_first_hit_of_a_search_is_the_right_page(browser: tuple[Any, str]) -> None:
    found = {words: first_hit(*browser, words) for words in FIRST_HITS}
    wrong = {words: hits for words, hits in found.items() if not {*FIRST_HITS[words]} & {*hits}}
    assert not wrong


def test_internals_are_not_in_the_search(browser: tuple[Any, str]) -> None:
    index = (SITE / "search" / "search_index.json").read_text()
    assert '"location":"layers/RUM/' in index
    assert '"location":"reference/config/' not in index


def pages() -> list[str]:
    return sorted(path.parent.relative_to(SITE).as_posix() for path in Path(SITE).rglob("index.html"))


def test_every_page_fits_a_screen_and_a_phone(browser: tuple[Any, str]) -> None:
    driver, address = browser
    wide, errors = [], []
    for page in pages():
        driver.get(f"{address}{page}/")
        for width in (1280, 390):
            resize(driver, width)
            needed = driver.execute_script("return document.documentElement.scrollWidth")
            if needed > width:
                wide.append((page, width, needed))
            broken = driver.execute_script(
                "return [...document.images].filter(i => i.complete && !i.naturalWidth"
                " || i.getBoundingClientRect().right > innerWidth && !i.closest('table')).map(i => i.src)"
            )
            wide += [(page, width, image) for image in broken]
        errors += [(page, entry["message"]) for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert not wide
    assert not errors
