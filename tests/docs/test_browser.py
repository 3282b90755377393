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


# What is wrong with the page that is shown: it can be scrolled sideways; something is wider than the screen and no
# parent of it scrolls; a parent hides a part of its text; an image is missing; an image would be dark on dark.
FAULTS = """
const [width, dark] = arguments, found = [], styles = new Map();
const style = e => styles.get(e) || styles.set(e, getComputedStyle(e)).get(e);
const name = e => `${e.tagName}.${e.className}: ${(e.src || e.textContent).trim().slice(0, 40)}`;
const parents = e => e ? [e, ...parents(e.parentElement)] : [];
const scrolls = e => parents(e.parentElement).some(
    p => ['auto', 'scroll'].includes(style(p).overflowX) && p.scrollWidth > p.clientWidth);
const page = document.documentElement;
if (page.scrollWidth > width || innerWidth > width) found.push('the page is ' + page.scrollWidth + ' wide');
if (document.body.dataset.mdColorScheme !== (dark ? 'slate' : 'default')) found.push('the scheme is another');
for (const e of document.querySelectorAll('article *, footer *, .md-tabs__item *')) {
    const box = e.getBoundingClientRect();
    if (!box.width || !box.height || style(e).visibility === 'hidden') continue;
    if ((box.right > width + 1 || box.left < -1) && !scrolls(e)) found.push('beyond the screen: ' + name(e));
    const hides = ['hidden', 'clip'].includes(style(e).overflowX) && !e.matches('.md-clipboard, table');
    if (hides && (e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1) && e.textContent.trim())
        found.push('clipped: ' + name(e));
}
for (const i of document.images) {
    if (i.complete && !i.naturalWidth) found.push('missing: ' + i.src);
    if (dark && style(i).filter === 'none') found.push('dark on dark: ' + i.src);
}
return found;
"""


def faults_of(driver: Any, width: int, dark: bool) -> list[str]:
    driver.execute_script("document.body.dataset.mdColorScheme = arguments[0]", "slate" if dark else "default")
    return list(driver.execute_script(FAULTS, width, dark))


@pytest.mark.parametrize(
    ("html", "fault"),
    [
        ('<p style="width: 2000px">wide</p>', "the page is 2"),
        ('<div style="overflow: hidden"><p style="width: 2000px">wide</p></div>', "beyond the screen: P.: wide"),
        ('<p style="width: 50px; overflow: hidden; white-space: nowrap">a long line</p>', "clipped: P.: a long line"),
        ('<img src="none.png">', "missing: "),
        ('<img src="none.png" style="filter: none">', "dark on dark: "),
    ],
)
def test_faults_of_a_page_are_found(browser: tuple[Any, str], html: str, fault: str) -> None:
    driver, address = browser
    resize(driver, 390)
    driver.get(f"{address}installation/")
    assert not faults_of(driver, 390, True)
    driver.execute_script("document.querySelector('article').insertAdjacentHTML('beforeend', arguments[0])", html)
    for _ in range(50):  # an image needs some time to be missing
        found = faults_of(driver, 390, True)
        if any(one.startswith(fault) for one in found):
            return
        time.sleep(0.1)
    raise AssertionError(found)


def test_every_page_fits_a_screen_and_a_phone(browser: tuple[Any, str]) -> None:
    driver, address = browser
    found, errors, widths = [], [], (1280, 390)
    driver.get_log("browser")  # of other tests
    for page in pages():
        driver.get(f"{address}{page}/")
        for width in widths:
            resize(driver, width)
            for dark in (False, True):
                found += [(page, width, "dark" if dark else "light", fault) for fault in faults_of(driver, width, dark)]
        widths = widths[::-1]  # the next page is loaded at the width that the browser has
        errors += [(page, entry["message"]) for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert not found
    assert not errors


def test_the_preference_of_the_browser_chooses_the_scheme(browser: tuple[Any, str]) -> None:
    driver, address = browser
    for dark, scheme in ((True, "slate"), (False, "default")):
        resize(driver, 1280, dark=dark)
        driver.get(f"{address}installation/")
        driver.execute_script("localStorage.clear()")  # what a reader has chosen comes first
        driver.refresh()
        assert driver.execute_script("return document.body.dataset.mdColorScheme") == scheme
