"""A report as a page: complete in one file, every number with its runs, in bounded time and memory."""

import base64
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gyral.reports import catalogue
from gyral.reports.render import html
from gyral.reports.tables.sections import make_sections
from gyral.runs import records
from tests.helpers.running import spawn
from tests.helpers.written import FIG4, TABLE1, write_run

UNCLOSED = ("meta", "br", "img")
TEXT = "{http://www.w3.org/2000/svg}text"
LOSSES = "step,train/loss,train/baseline,val/loss,val/accuracy\n4,0.5,0.8,,\n4,,,0.6,0.25\n9,0.4,0.8,,\n9,,,0.5,0.3\n"


class Reader(HTMLParser):
    """Checks that tags are closed in order, and keeps the attributes of each and all text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in UNCLOSED:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data.strip())

    @property
    def figures(self) -> list[list[str]]:
        """The texts in each figure."""
        sources = [str(attributes["src"]) for tag, attributes in self.tags if tag == "img"]
        contents = [base64.b64decode(source.removeprefix("data:image/svg+xml;base64,")) for source in sources]
        return [[node.text or "" for node in ElementTree.fromstring(content).iter(TEXT)] for content in contents]


def render(directory: Path) -> str:
    """Return the page of a directory's runs."""
    jobs, told = records.read(directory)
    return html.render(make_sections(jobs, directory), told, str(directory))


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages have no figures, which take most of their time."""
    monkeypatch.setattr(html, "_draw", lambda section: iter(()))


@pytest.mark.usefixtures("without_figures")
def test_a_page_lists_the_runs_behind_its_numbers(tmp_path: Path) -> None:
    for seed in (1, 2):
        written = write_run(tmp_path, f"{TABLE1}/gru", seed=seed, accuracy=0.2 + seed / 100)
    (written / "git.diff").write_text("+")
    page = Reader(render(tmp_path))
    values = [attributes["title"] for tag, attributes in page.tags if tag == "td" and "title" in attributes]
    assert values[0] == "seed 1: 21, seed 2: 22"
    texts = [text for text in page.texts if text]
    assert texts[texts.index(str(written)) - 4 :] == [
        *("GRU", "2", "22.0", "100,000", str(written), "ac466c4a76 + uncommitted changes", "0f22b828c43a"),
        "python -m src.train -m seed=1,2 '~callbacks.progress_bar'",
    ]
    assert "Runs (2)" in page.texts


def check_that_it_stands_alone(text: str) -> None:
    """Check that a page needs neither scripts nor other files."""
    tags = Reader(text).tags
    assert not [tag for tag, _ in tags if tag in ("script", "link", "iframe", "object")]
    links = [
        str(attributes.get("src") or attributes.get("href"))
        for _, attributes in tags
        if {"src", "href"} & {*attributes}
    ]
    assert all(link.startswith("data:image/svg+xml;base64,") for link in links)
    assert not re.search(r"https?://|@import|url\(", text)


@pytest.mark.usefixtures("without_figures")
def test_text_of_runs_is_escaped(tmp_path: Path) -> None:
    written = write_run(tmp_path, f"{TABLE1}/gru", "+name='</style><b>'", losses=LOSSES)
    (written / "FAILED").write_text("Error: <script>alert(1)</script> & more\n")
    page = Reader(render(tmp_path))
    assert not [tag for tag, _ in page.tags if tag in ("b", "script")]
    assert any("Error: <script>alert(1)</script> & more" in text for text in page.texts)


def test_a_page_of_its_own_has_figures_with_curves_and_scores_with_the_units_of_tables(tmp_path: Path) -> None:
    for row, accuracy in (("gru", 0.2), ("lstm", 0.3)):
        write_run(tmp_path, f"{TABLE1}/{row}", accuracy=accuracy, losses=LOSSES)
    text = render(tmp_path)
    check_that_it_stands_alone(text)
    page = Reader(text)
    accuracy_curves, train_losses, losses, scores = page.figures
    assert {"validation accuracy (%)", "training step", "GRU", "LSTM"} <= {*accuracy_curves}
    assert {"training loss (nats)", "memoryless baseline (0.8)"} <= {*train_losses}
    assert {"validation loss (nats)", "memoryless baseline (0.8)"} <= {*losses}
    assert {"test accuracy (%)", "parameters", "hollow: published"} <= {*scores}
    assert next(attributes["alt"] for tag, attributes in page.tags if tag == "img") == (
        "validation accuracy (%), training step; one run for each row"
    )


def test_a_figure_of_training_losses_is_logarithmic(tmp_path: Path) -> None:
    write_run(tmp_path, f"{FIG4}/lstm", accuracy=0.125)
    [losses] = Reader(render(tmp_path)).figures
    assert {"training loss (nats)", "0.2", "0.5"} <= {*losses}


@pytest.mark.parametrize("losses", ["step,train/loss\n4,nan\n9,inf\n", "step,train/loss\n4,-1\n", "step,train/loss\n"])
def test_runs_without_a_value_that_can_be_drawn_have_a_page(losses: str, tmp_path: Path) -> None:
    write_run(tmp_path, f"{FIG4}/lstm", accuracy=float("nan"), losses=losses)
    assert "nan" in Reader(render(tmp_path)).texts


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_a_report_of_a_thousand_runs_needs_little_memory(tmp_path: Path) -> None:
    columns = [
        "train/loss",
        "train/baseline",
        *(f"train/more{index}" for index in range(8)),
        "val/loss",
        "val/accuracy",
    ]
    lines = [f"{5 * n},{2 / n},0.8,{','.join(['0.123456'] * 8)},,\n" for n in range(1, 401)]
    lines += [f"{200 * n},{',' * 10}{1 / n},{1 - 1 / (n + 1)}\n" for n in range(1, 11)]
    losses = ",".join(("step", *columns)) + "\n" + "".join(lines)
    rows = list(catalogue.load("rum_paper_table1").papers)
    for number in range(1000):
        row, seed = rows[number % len(rows)], number // len(rows) + 1
        write_run(tmp_path / "runs", row, "threads=1", seed=seed, accuracy=0.5 + seed / 1000, losses=losses)
    saved = tmp_path / "report.html"
    script = f"""
import re, sys
from gyral import report
from gyral.config import command_line as cli
sys.argv = ["src/report.py", "sweep={tmp_path / "runs"}", "save={saved}"]
cli.main(report.report, "_report/report")
memory = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read()).group(1)  # of this program alone
print(int(memory) / 1024)
"""
    outcome = spawn("-c", script)
    assert outcome.status == 0, outcome.err
    memory = float(outcome.out.splitlines()[-1])
    assert memory < 500
    assert saved.stat().st_size < 20e6


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("chromium"), reason="needs chromium")
@pytest.mark.parametrize("width", [390, 1200])
def test_a_browser_shows_the_figures_and_nothing_is_wider_than_the_window(
    width: int, runs: Path, tmp_path: Path
) -> None:
    page, profile = tmp_path / "page.html", tmp_path / "profile"
    check = """<script>onload = () => document.title = [innerWidth, document.documentElement.scrollWidth,
    ...[...document.images].map(image => image.naturalWidth)].join(" ")</script>"""
    page.write_text(render(runs).replace("</body>", f"{check}</body>"))
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
    command += [f"--window-size={width},900", "--dump-dom", "--virtual-time-budget=3000", page.as_uri()]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    title = re.search(r"<title>([\d ]+)</title>", ran.stdout)
    assert title, ran.stderr
    window, used, *figures = map(int, title[1].split())
    assert used <= window
    assert len(figures) >= 4
    assert all(figures)
