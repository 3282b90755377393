"""A report in LaTeX."""

import re

from gyral.reports.render import latex
from gyral.reports.tables.sections import Section


def test_latex_is_free_of_signs_that_it_would_trip_over(sections: list[Section]) -> None:
    text = latex.render(sections, ["a line"])
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert r"    GRU & 21.5 $\pm$ 2.1 & 21.5 & – & 17.6 & 12,030 & 14k \\" in body
    assert r"    LSTM & 25.0$^\dagger$ & 25.6 &" in body
    assert r"RUM $\lambda$ = 1, $\eta$ none" in body
    assert r"accuracy on test in \%" in body
    assert not re.search(r"(?<!\\)[%#_]", body)
    plain = re.sub(r"\$[^$]*\$", "", body)
    assert not set(re.findall(r"[^\x00-\x7f]", plain)) - {"–"}
    for opened in ("table", "tabular"):
        assert body.count(f"\\begin{{{opened}}}") == body.count(f"\\end{{{opened}}}") == 5
    for tabular in re.findall(r"\\begin\{tabular\}\{(\w+)\}(.*?)\\end", body, re.DOTALL):
        rows = [line for line in tabular[1].splitlines() if line.endswith(r"\\")]
        assert {len(re.findall(r"(?<!\\)&", row)) + 1 for row in rows} == {len(tabular[0])}
    assert "% a line\n" in text
    assert re.search(r"^% GRU: seed 1, DONE, \S+, commit ac466c4a76, W&B 0f22b828c43a, ", text, re.MULTILINE)
