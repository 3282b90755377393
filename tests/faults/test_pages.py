"""Reports of runs whose names, overrides, hosts and failures are markup: the reports have them as text alone."""

import csv
import io
import itertools
import json
import math
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from markdown_it import MarkdownIt
from omegaconf import OmegaConf

from gyral.core.console import make_console
from gyral.core.files import FORMULAS, plain_text
from gyral.figures import common
from gyral.reports.render import SUFFIXES, latex, terminal, write
from gyral.reports.tables.sections import make_sections
from gyral.runs import records
from gyral.runs.metrics_file import logged_metrics, read_metrics
from gyral.sweeps import optuna
from gyral.training.loggers import MetricsFile
from tests.helpers.attacks import Attack
from tests.helpers.running import invoke
from tests.helpers.written import PROVENANCE, TABLE1, write_run
from tests.reports.render.test_html import Reader

MARKUP = (
    *("<!--<script>", "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "'\"><svg/onload=x>"),
    *("[a](javascript:alert(1))", "![a](http://x.y/z.png)", "`code`", "```", "\n```\n# Title\n", "| a | b |", "\\|"),
    *("\n\n---\n\n", "# Title", "- item", "1. item", "<https://x.y>", "**bold**", "~~gone~~", "$x^2$", "&copy;", "_"),
    *("\\input{/etc/passwd}", "\r\\input{/etc/passwd}", "\\end{tabular}", "100 %", "a & b", "{", "}", "^^M\\relax"),
    *("=cmd|' /C calc'!A0", "+1+1", "-2", "@SUM(A1)", "\t=1", '=HYPERLINK("http://x.y")', ",", '"', "\r\n", "&lt;"),
    *("\x1b[2J\x1b[31m", "\x07", "\x9b31m", "\x00", "\u2028", "\u202e", "\udcff", "[red]", "{}", "%s", "\x85", "\\"),
)
COMMANDS = re.compile(r"\\(?:[a-zA-Z]+|.)", re.DOTALL)
SIZES = (*filter(None, {size for size, *_ in latex.FITS}), r"\setlength{\tabcolsep}")  # which depend on lengths
SIGNS = {*COMMANDS.findall("".join(latex.ESCAPES.values())), r"\allowbreak"}  # LaTeX commands that print a sign


def write_runs(directory: Path, text: Any) -> None:
    """Write a run that is done and one that has failed, with texts of an attacker's in all of their files."""
    for number, accuracy in enumerate((0.25, None, 0.2)):
        run = write_run(directory, "none" if number < 2 else f"{TABLE1}/gru", seed=number, accuracy=accuracy)
        overrides = OmegaConf.load(run / "overrides.yaml")
        (run / "overrides.yaml").write_text(
            yaml.safe_dump([*overrides, "model=gru", f"+note={text()}".replace("\udcff", "")])
        )
        provenance = {**PROVENANCE, "command": ["python", text(), text()]}
        provenance |= {key: text() for key in ("id", "host", "started")}
        (run / "provenance.json").write_text(json.dumps(provenance))
        offered = json.loads((run / "measures.json").read_text())
        for measure in offered["measures"]:
            measure |= {"label": text(), "unit": text()}
        for remark, end in zip(offered["remarks"], "ⅠⅡⅢ", strict=True):  # no mark is a part of another
            remark |= {"mark": f"{text()}{end}", "footnote": text(), "data": text()}
        (run / "measures.json").write_text(json.dumps(offered))
        if accuracy is not None:
            done = json.loads((run / "DONE").read_text())
            (run / "DONE").write_text(json.dumps({**done, "test/substitute": 1.0}))
        else:
            (run / "FAILED").write_text(f"Traceback\n{text()}: {text()}", errors="surrogateescape")
        name = text().replace("/", ":").replace("\0", "")
        run.rename(directory / f"{name}{number}")


def render(directory: Path) -> dict[str, str]:
    """Return the report of a directory in all formats, by their suffixes, and as the terminal shows it."""
    found, told = records.read(directory)
    sections = make_sections(found, directory)
    assert len(found) == 3, told
    rendered = {}
    for suffix in SUFFIXES:
        path = directory.parent / f"report{suffix}"
        write(path, "Title", sections, told, with_runs=True)
        rendered[suffix] = path.read_bytes().decode()
    console = make_console(io.StringIO())
    for section in sections:
        terminal.print_section(console, section, with_runs=True)
    rendered["terminal"] = console.file.getvalue()  # type: ignore[attr-defined]
    return rendered


def structure(rendered: dict[str, str]) -> dict[str, Any]:
    """Return what of a report is not text: its tags, its blocks and spans, its commands, its cells."""
    page = rendered[".html"]
    spans: Counter[str] = Counter()
    for token in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(rendered[".md"]):
        spans[token.type] += 1
        spans.update(
            child.type for child in token.children or () if child.type not in ("text", "softbreak", "code_inline")
        )
    body = [line for line in rendered[".tex"].splitlines() if not line.lstrip().startswith(("%", *SIZES))]
    cells = list(csv.reader(io.StringIO(rendered[".csv"], newline="")))
    return {
        "tags": Counter(tag for tag, _ in Reader(page).tags if tag not in ("br", "small")),
        "spans": spans,
        "lines": len(body),
        "commands": {command for command in COMMANDS.findall("\n".join(body)) if command not in SIGNS},
        "widths": [len(line) for line in cells],
    }


@pytest.mark.attacks(sampled=1, whole=300)
def test_texts_of_runs_are_text_in_every_format(attack: Attack, tmp_path: Path) -> None:
    def text() -> str:
        return "".join(attack.random.choices(MARKUP, k=attack.random.randint(1, 3)))

    words = itertools.count()
    write_runs(tmp_path / "harmless" / "runs", lambda: f"word{next(words)}")
    write_runs(tmp_path / "hostile" / "runs", text)
    expected, rendered = structure(render(tmp_path / "harmless" / "runs")), render(tmp_path / "hostile" / "runs")
    assert structure(rendered) == expected
    for suffix, whole in rendered.items():
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u202e]", whole.replace("\r\n", "\n")), suffix
    for line in csv.DictReader(io.StringIO(rendered[".csv"], newline="")):
        for name, value in line.items():
            numeric = name in ("mean", "deviation", "runs", "paper", "value", "steps")
            assert numeric or not value.startswith(FORMULAS), (name, value)
    attack.record("files without markup", len(rendered))


def test_dollar_signs_are_no_formulas_in_figures(tmp_path: Path) -> None:
    for number in range(2):
        run = write_run(tmp_path, "none", seed=number, accuracy=0.5)
        (run / "overrides.yaml").write_text(yaml.safe_dump(["model=gru", rf"+note={number}$\x$"]))
    outcome = invoke(f"sweep={tmp_path}", f"save={tmp_path}/plot.png", "y=train/loss", entry="report")
    assert outcome.status == 0, outcome.err
    assert (tmp_path / "plot.png").is_file()


FORMULA_TEXTS = (
    *("=cmd|' /C calc'!A0", '=HYPERLINK("http://x.y","a")', "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1"),
    *("'=1", "''=1", "＝1+1", "＋1", "－1", "＠A1", "=1,=2", '"=1', "=", "-", "+x"),
)


def write_search(path: Path, text: str) -> list[list[str]]:
    trial = SimpleNamespace(
        number=0, params={text: text}, state=SimpleNamespace(name="FAIL"), value=-0.5, user_attrs={"reason": text}
    )
    optuna.write_trials(path, [trial], text)
    return [["trial", "state", text, text, "reason"], ["0", "FAIL", "-0.5", text, text]]


def write_metrics(path: Path, text: str) -> list[list[str]]:
    """Write metrics and continue the file, as a resumed run does."""
    MetricsFile(path).log_metrics({text: -1.5, "-0.975": math.nan}, 0)
    path.write_bytes(path.read_bytes().replace(b"-1.5,", b"-1.50,"))  # as a spreadsheet may save it
    resumed = MetricsFile(path, resumed_at=1)
    resumed.log_metrics({text: -1e-07}, 1)
    resumed.log_metrics({text: 2.0, f"{text}2": -math.inf}, 2)
    heads = ["step", text, "-0.975", f"{text}2"]
    assert logged_metrics(path.parent) == heads[1:]
    assert read_metrics(path.parent, text) == ([1, 2, 3], [-1.5, -1e-07, 2.0])
    assert common.read_numbers(path.parent, path.name, "none")[0] == heads
    return [heads, ["0", "-1.50", "nan", ""], ["1", "-1e-07", "", ""], ["2", "2.0", "", "-inf"]]


@pytest.mark.attacks(sampled=4, whole=2 * len(FORMULA_TEXTS))
def test_no_cell_is_a_formula_and_all_are_read_back(attack: Attack, tmp_path: Path) -> None:
    text = FORMULA_TEXTS[attack.number // 2 % len(FORMULA_TEXTS)]
    if attack.number % 2 and set(text) & set("\r\n"):
        text = text.strip("\r\n")  # names of metrics have no line ends
    expected = (write_metrics if attack.number % 2 else write_search)(tmp_path / "metrics.csv", text)
    with (tmp_path / "metrics.csv").open(newline="") as file:
        cells = list(csv.reader(file))
    for cell in (cell for line in cells for cell in line):
        assert not cell.startswith(FORMULAS) or re.fullmatch(r"-(inf|[\d.]+(e-\d+)?)", cell), cell
    assert [[plain_text(cell.replace("\\r", "\r")) for cell in line] for line in cells] == expected
    attack.record("files without formulas")
