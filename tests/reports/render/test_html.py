"""A report as a page: complete in one file, every number with its runs, in bounded time and memory."""

import itertools
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from gyral.reports import catalogue
from gyral.reports.render import html
from gyral.reports.tables.sections import make_sections
from gyral.runs import records
from tests.helpers.running import spawn
from tests.helpers.written import TABLE1, write_run

UNCLOSED = ("meta", "br")
needs_node = pytest.mark.skipif(not shutil.which("node"), reason="needs Node.js")


class Reader(HTMLParser):
    """Checks that tags are closed in order, and keeps the attributes of each."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in UNCLOSED:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def render(directory: Path) -> tuple[str, dict[str, Any]]:
    """Return the page of a directory's runs, and the data in it."""
    jobs, told = records.read(directory)
    text = html.render(str(directory), make_sections(jobs, directory), told)
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert data
    return text, json.loads(data.group(1))


def test_numbers_lead_to_their_runs_and_curves_to_their_points(tmp_path: Path) -> None:
    for seed in (1, 2):
        written = write_run(tmp_path, f"{TABLE1}/gru", seed=seed, accuracy=0.2 + seed / 100)
    (written / "git.diff").write_text("+")
    text, data = render(tmp_path)
    buttons = [attributes for tag, attributes in Reader(text).tags if tag == "button"]
    behind = json.loads(str(buttons[0]["data-runs"]))
    assert [(data["runs"][index]["seed"], round(value, 6)) for index, value in behind] == [("1", 21.0), ("2", 22.0)]
    first, second = (data["runs"][index] for index, _ in behind)
    assert (first["changed"], second["changed"]) == (False, True)
    assert second["place"] == str(written)
    assert second["commit"] == "ac466c4a7639e50dd91bd177ceb493ec96c6c0c5"
    assert second["command"] == "python -m src.train -m seed=1,2 '~callbacks.progress_bar'"
    assert second["wandb"] == "0f22b828c43a"
    assert second["curves"]["train/loss"] == [
        [5, 10, 15, 20, 25, 30, 35, 40],
        pytest.approx([1 / n for n in range(1, 9)], rel=1e-4),
    ]
    [section] = data["sections"]
    assert section["runs"] == [0, 1]
    assert ["GRU", "unknown, length = 30", 14000, 21.5] in section["paper"]
    assert "thinned" not in text


def test_nothing_is_fetched(tmp_path: Path) -> None:
    write_run(tmp_path, f"{TABLE1}/gru", accuracy=0.2)
    text, _ = render(tmp_path)
    tags = Reader(text).tags
    assert not [attributes for _, attributes in tags if {"src", "href"} & set(attributes)]
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|@import|url\((?!#)|fetch\(", text)


def test_text_of_runs_is_no_markup(tmp_path: Path) -> None:
    written = write_run(tmp_path, f"{TABLE1}/gru", "+name='</script><b>'")
    (written / "FAILED").write_text("Error: <script>alert(1)</script> & more\n")
    text, data = render(tmp_path)
    assert not [tag for tag, _ in Reader(text).tags if tag == "b"]
    assert data["runs"][0]["reason"] == "Error: <script>alert(1)</script> & more"
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; more" in text


def test_values_that_are_not_finite_are_left_out(tmp_path: Path) -> None:
    losses = "step,train/loss,train/baseline\n4,nan,0.8\n9,0.5,0.8\n14,inf,0.8\n"
    write_run(tmp_path, f"{TABLE1}/gru", accuracy=float("nan"), losses=losses)
    _, data = render(tmp_path)
    assert data["runs"][0]["curves"]["train/loss"] == [[10], [0.5]]
    assert data["runs"][0]["score"] is None


def test_charts_have_the_units_of_tables_and_the_baselines(tmp_path: Path) -> None:
    losses = "step,train/loss,train/baseline,val/loss,val/accuracy\n4,0.5,0.8,,\n4,,,0.6,0.25\n"
    for seed, (row, accuracy) in itertools.product((1, 2), (("gru", 0.2), ("lstm", 0.3))):
        write_run(tmp_path, f"{TABLE1}/{row}", seed=seed, accuracy=accuracy, losses=losses)
    text, data = render(tmp_path)
    run, [section] = data["runs"][0], data["sections"]
    assert section["metrics"] == [
        ["train/loss", "training loss (nats)", None],
        ["val/loss", "validation loss (nats)", None],
        ["val/accuracy", "validation accuracy in %", [0, 100]],
    ]
    assert (run["curves"]["val/accuracy"], run["curves"]["val/loss"]) == ([[5], [25]], [[5], [0.6]])
    assert run["test"] == {"val/loss": 0.02, "val/accuracy": 20}
    assert run["floors"] == {name: [["memoryless baseline", 0.8]] for name in ("train/loss", "val/loss")}
    assert section["score"] == "test accuracy in %"
    assert re.findall(r"<strong><button[^>]*>(.*?)</button></strong>", text) == ["30.0 ± 0.0"]


def test_a_page_says_that_its_curves_are_thinned(tmp_path: Path) -> None:
    losses = "step,train/loss\n" + "".join(f"{step},{1 / (step + 1)}\n" for step in range(400))
    write_run(tmp_path, f"{TABLE1}/gru", accuracy=0.2, losses=losses)
    text, data = render(tmp_path)
    assert "thinned to the minimum and the maximum of each of 100 bins" in text
    assert len(data["runs"][0]["curves"]["train/loss"][0]) <= 202


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_a_thousand_runs_are_reported_in_seconds(tmp_path: Path) -> None:
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
import re, resource, sys
from gyral import report
from gyral.config import command_line as cli
sys.argv = ["src/report.py", "sweep={tmp_path / "runs"}", "save={saved}"]
cli.main(report.report, "_report/report")
used = resource.getrusage(resource.RUSAGE_SELF)
memory = re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read()).group(1)  # of this program alone
print(used.ru_utime + used.ru_stime, int(memory) / 1024)
"""
    outcome = spawn("-c", script)
    assert outcome.status == 0, outcome.err
    seconds, memory = map(float, outcome.out.splitlines()[-1].split())
    print(f"{seconds:.1f} s of a processor, at most {memory:.0f} MB, a page of {saved.stat().st_size / 1e6:.1f} MB")
    assert seconds < 10
    assert memory < 500
    assert saved.stat().st_size < 20e6


def run_script(script: str) -> Any:
    """Return what a script prints as JSON, in which charts.js is loaded without a browser."""
    browser = """
const context = {measureText: text => ({width: 6 * text.length})};
globalThis.document = {createElement: () => ({getContext: () => context})};
globalThis.matchMedia = () => ({matches: false});
"""
    source = browser + (html.FOLDER / "charts.js").read_text() + f"\nconsole.log(JSON.stringify({script}));"
    ran = subprocess.run(["node", "-"], input=source, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@needs_node
def test_scripts_are_valid() -> None:
    for name in html.SCRIPTS:
        subprocess.run(["node", "--check", html.FOLDER / name], check=True, timeout=60)


@needs_node
def test_ticks_are_round_and_their_labels_short() -> None:
    ranges = [(0, 640, 6, False), (0.9, 1.3, 4, False), (0.0005, 3, 5, True), (8, 60, 5, True), (9000, 9900, 4, True)]
    found = run_script(f"{json.dumps(ranges)}.map(range => ticks(...range).large.map(tickText))")
    assert found == [
        ["0", "200", "400", "600"],
        ["0.9", "1", "1.1", "1.2", "1.3"],
        ["0.001", "0.01", "0.1", "1"],
        ["10", "20", "50"],
        ["9,000", "9,250", "9,500", "9,750"],
    ]
    assert run_script("[0, -2000, 2.5e-5, 1e-4, 250000, 3e6].map(tickText)") == [
        "0", "−2,000", "2.5·10⁻⁵", "10⁻⁴", "250k", "3M",
    ]  # fmt: skip


@needs_node
def test_mean_and_band_are_over_the_steps_that_all_seeds_have_reached() -> None:
    curves = [[[0, 10, 20], [0, 1, 2]], [[5, 10, 20, 30], [2, 3, 4, 5]]]
    mean = run_script(f"average({curves})")
    assert (mean["x"], mean["y"]) == ([5, 10, 20], [1.25, 2, 3])
    assert mean["deviation"] == pytest.approx([1.5 / 2**0.5, 2**0.5, 2**0.5])
    assert mean["rest"] == [[[20], [2]], [[20, 30], [4, 5]]]


@needs_node
def test_an_exported_chart_has_lines_and_text() -> None:
    name = "RUM λ = 1 <&>"
    script = f"""(() => {{
  const chart = new Chart({{x: "step", y: "validation loss (nats)"}}), pen = new SvgPen(640, 400);
  chart.marks = [{{x: [1, 2, 3], y: [3, 2, 1], low: [2, 1, 0], high: [4, 3, 2], index: 0, line: true, name: "a"}}];
  chart.floors = [{{y: 2.5, name: "memoryless baseline"}}];
  chart.paint(pen, 640, 400, PAPER);
  pen.text({json.dumps(name)}, 10, 10, {{color: "#000000"}});
  return pen.toString();
}})()"""
    root = ElementTree.fromstring(run_script(script))
    space = "{http://www.w3.org/2000/svg}"
    texts = [node.text for node in root.iter(f"{space}text")]
    assert {"step", "validation loss (nats)", name, "1", "2.5"} <= {*texts}
    paths = [node.attrib for node in root.iter(f"{space}path")]
    assert len([path for path in paths if path.get("fill") == "#0072b2"]) == 1  # the band
    assert [path["d"].count("L") for path in paths if path.get("stroke") == "#0072b2"] == [2]
    assert any("stroke-dasharray" in path for path in paths)
    assert root.find(f"{space}rect").attrib["fill"] == "#ffffff"  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("chromium"), reason="needs chromium")
def test_a_browser_runs_a_page_without_errors(runs: Path, tmp_path: Path) -> None:
    page, profile = tmp_path / "page.html", tmp_path / "profile"
    page.write_text(render(runs)[0])
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
    command += ["--enable-logging=stderr", "--dump-dom", "--virtual-time-budget=3000", page.as_uri()]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert not re.findall(r".*CONSOLE.*", ran.stderr)
    assert ran.stdout.count("<canvas") >= 4
    assert "memoryless baseline" in ran.stdout
    assert ran.stdout.count(">SVG</button>") == ran.stdout.count("<canvas")
