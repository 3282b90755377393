"""Reports in LaTeX."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gyral.reports.render import latex
from gyral.reports.tables.columns import choose_columns
from gyral.reports.tables.sections import Section
from gyral.reports.tables.table import Column, Entry, Table

HOSTILE = '[*] \\x $y_{z}^2$ #1 & 5 % ~ <a|b> λ = 0.5, η″ 漢 — é\n"q"'


def has_booktabs() -> bool:
    """Return whether LaTeX can compile a report here."""
    found = shutil.which("pdflatex") and shutil.which("kpsewhich")
    return bool(found) and subprocess.run(["kpsewhich", "booktabs.sty"], capture_output=True).returncode == 0


def body_of(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("%"))


def hostile(section: Section) -> Section:
    """Return a section with a table whose texts have characters that LaTeX interprets or does not have."""
    entries = (Entry("1,234.5°*‡ ± 0.1", best=True), Entry("-0.5?", missing=("seed 2 FAILED",)), Entry(HOSTILE))
    columns = [Column(head, [entry] * 2) for head, entry in zip((HOSTILE, "[1]", "*"), entries, strict=True)]
    columns[-1] = replace(columns[-1], is_prose=True)
    table = Table(HOSTILE, [HOSTILE, "[0] starts an argument"], columns, caption=HOSTILE)
    return replace(section, title=HOSTILE, tables=[table], commands=[HOSTILE])


def test_tables_are_short_and_have_labels_and_the_best_numbers_in_bold(sections: list[Section]) -> None:
    text = latex.render(sections, ["a line"], "outputs/my sweep")
    body = body_of(text)
    assert r"    GRU & $21.5 \pm 2.1$ & $21.5$ & – & $17.6$ & $12{,}030$ & 14k \\" in body
    assert r"    LSTM & $25.0$\rlap{$^{\S}$} & $25.6$ &" in body
    assert r"RUM $\lambda = 1$, $\eta$ none" in body
    assert "not in the paper" not in body  # rows without any number
    assert "finding" not in body
    assert "all with" not in body
    assert r"\caption{Associative recall, accuracy on test in \%: mean $\pm$" in body
    labels = re.findall(r"\\label\{(.*?)\}", body)
    assert labels[:1] == ["tab:rum_paper_fig4"] or "tab:rum_paper_table1" in labels
    assert {"tab:rum_paper_table1", "tab:rum_paper_fig4", "tab:my-sweep-unknown"} <= {*labels}
    assert len(labels) == len({*labels}) == body.count(r"\begin{table}")
    assert "% a line\n" in text
    assert re.search(r"^% GRU: seed 1, DONE, \S+, commit ac466c4a76, W&B 0f22b828c43a, ", text, re.MULTILINE)


def test_entries_and_names_are_typeset(sections: list[Section]) -> None:
    lines = body_of(latex.render([hostile(sections[0])], [], "x")).splitlines()
    [first, second] = [line for line in lines if r"\mathbf" in line]
    assert r"$\mathbf{1{,}234.5} \pm 0.1$\rlap{$^{\circ*\ddagger}$} & $-0.5$\rlap{$^{?\S}$}" in first
    assert r"{[}{*}{]} \textbackslash{}x \$y\_\{z\}\textasciicircum{}2\$ \#1 \& 5 \% " in first
    assert r"\textless{}a\textbar{}b\textgreater{} $\lambda = 0.5$, $\eta$$''$ 漢 — é" in first
    assert second.startswith("    {[}0{]} starts an argument & ")


def test_a_table_becomes_smaller_until_it_fits(sections: list[Section]) -> None:
    [section] = [section for section in sections if section.sweep and section.sweep.name == "rum_paper_table1"]
    sizes = {width: latex.render([section], [], "x", width) for width in (None, "column", "page")}
    assert r"\footnotesize" in sizes[None]
    assert r"\setlength{\tabcolsep}{3pt}" in sizes["column"]
    assert "too wide" in sizes["column"]
    assert r"\begin{table*}" in sizes["page"]
    assert "size" not in body_of(sizes["page"])
    [chosen] = choose_columns([section], ["length = 30", "paper"])
    short = latex.render([chosen], [], "x", "column")
    assert r" & length=30 & paper \\" in short
    assert "too wide" not in short


@pytest.mark.parametrize(
    "names", [("循环", "记忆"), ("ループ", "メモリ"), ("цикл", "память"), ("סיבוב", "זיכרון"), ("☃", "☂")]
)
def test_names_in_all_scripts_stay_different(names: tuple[str, str], sections: list[Section]) -> None:
    table = Table("row", list(names), [Column("accuracy", [Entry("0.5"), Entry("0.25")])])
    text = latex.render([replace(sections[0], title="Mine", tables=[table], commands=[])], [], "x")
    for name in names:
        assert f"    {name} & " in body_of(text)
    signs = "".join(sorted({*"".join(names)}))
    assert f"% Needs XeLaTeX or LuaLaTeX, and a font with {signs}\n" in text


def test_a_report_in_latin_and_greek_letters_needs_no_other_latex(sections: list[Section]) -> None:
    assert "XeLaTeX" not in latex.render(sections, [], "x")


def test_square_signs_count_with_their_width() -> None:
    assert latex._width("循环") == 2 * latex.SQUARE_WIDTH > latex._width("ab")


@pytest.mark.skipif(not has_booktabs(), reason="needs LaTeX with booktabs")
@pytest.mark.parametrize("width", [None, "page"])
def test_reports_compile(width: str | None, sections: list[Section], tmp_path: Path) -> None:
    shown = [*sections, hostile(sections[0])]
    every = [replace(section, tables=[replace(table, details=()) for table in section.tables]) for section in shown]
    (tmp_path / "tables.tex").write_text(latex.render(every, [HOSTILE], "x", width))
    options = "[twocolumn]" if width else ""
    (tmp_path / "paper.tex").write_text(
        f"\\documentclass{options}{{article}}\\usepackage{{booktabs}}"
        "\\begin{document}\\input{tables}\\end{document}\n"
    )
    assert "% Needs XeLaTeX or LuaLaTeX, and a font with 漢\n" in (tmp_path / "tables.tex").read_text()
    (tmp_path / "tables.tex").write_text((tmp_path / "tables.tex").read_text().replace("漢", "?"))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    assert ran.returncode == 0, ran.stdout[-2000:]
    assert "Missing character" not in ran.stdout
