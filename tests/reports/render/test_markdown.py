"""A report in Markdown."""

import re

from gyral.reports.render import markdown
from gyral.reports.tables.sections import Section


def test_markdown_has_a_row_of_every_row_in_every_layout(sections: list[Section]) -> None:
    text = markdown.render(sections, ["directory_x: cannot be read"], with_runs=True)
    numbers = "21.5 ± 2.1 (seeds 1, 2) | 21.5 | – | 17.6 | 12,030 | 14k |"
    assert f"| GRU | {numbers}\n" in text
    assert "| LSTM | 25.0 (seed 2; seed 1 FAILED) | 25.6 |" in text
    assert "| RUM λ = 1, η none | – | 100.0 |" in text
    assert re.search(r"\| LSTM \| 0\.0200 \| 0\.5000 \| 12\.5 \| stays at the baseline", text)
    assert "\nseed 1, 100,000 steps, at the checkpoints with the best validation score" in text  # of all of figure 4
    assert "## Runs on unknown" in text
    assert "directory\\_x: cannot be read" in text
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1, table
    assert "| `python -m src.train -m seed=1,2 '~callbacks.progress_bar'` |" in text
    assert "ac466c4a76 + uncommitted changes" in text
