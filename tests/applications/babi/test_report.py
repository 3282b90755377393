"""The tables of bAbI: averages over tasks, in all formats."""

import csv
import re
from pathlib import Path

import pytest

from gyral.reports.render import csv as csv_format
from gyral.reports.render import latex, markdown
from gyral.reports.tables.sections import Section, make_sections
from gyral.runs import records
from tests.helpers.running import invoke
from tests.helpers.written import write_answers


def cells(line: str) -> list[str]:
    return re.split(r"  +", line.strip())


@pytest.fixture
def sections(tmp_path: Path) -> list[Section]:
    write_answers(tmp_path, "lstm", 1, 0.9)
    write_answers(tmp_path, "gru_attention", "all", 0.5, **{f"accuracy_qa{qa}": 0.05 * qa for qa in range(1, 21)})
    return make_sections(records.read(tmp_path)[0], tmp_path)


def test_averages_are_in_csv_markdown_and_latex(sections: list[Section]) -> None:
    lines = list(csv.DictReader(csv_format.render(sections).splitlines()))
    [average] = [line for line in lines if (line["row"], line["column"]) == ("GRU, attention, task.qa=all", "average")]
    assert (float(average["mean"]), float(average["paper"])) == (pytest.approx(52.5), 77.3)
    text = markdown.render(sections, [], with_runs=True)
    assert "| GRU, attention, task.qa=all | 52.5 | 77.3 | 2 of 20 | 1 | 60,000 |" in text
    labels = re.findall(r"\\label\{(.*?)\}", latex.render(sections, [], "x"))
    assert labels == ["tab:rum_paper_table2", "tab:rum_paper_table2-2"]


def test_a_table_of_tasks_has_averages_beside_the_papers_and_counts_what_is_solved(tmp_path: Path) -> None:
    for qa in range(1, 21):
        write_answers(tmp_path, "lstm", qa, 0.95 if qa < 3 else 0.5, stand_ins=float(qa == 3))
    for seed, accuracy in ((1, 0.9), (2, 1.0)):
        write_answers(tmp_path, "word_gru", 4, accuracy, seed=seed, generated=1.0)
    write_answers(tmp_path, "word_gru", 5, None)
    joint = {f"accuracy_qa{qa}": 0.05 * qa for qa in range(1, 21)}
    write_answers(tmp_path, "gru_attention", "all", 0.525, **joint)
    outcome = invoke(f"sweep={tmp_path}", entry="report")
    assert outcome.status == 0, outcome.err

    lines = [cells(line) for line in outcome.out.splitlines()]
    # 2 tasks at 95.0 % and 18 at 50.0 %, one of them trained on less
    assert ["LSTM", "54.5°", "67.2", "2 of 20", "1", "60,000"] in lines
    assert ["GRU, words", "95.0*", "58.2", "1 of 1", "1, 2", "60,000"] in lines
    assert ["of 1 of 20"] in lines
    index = lines.index(["GRU, attention", "52.5", "77.3", "2 of 20", "1", "60,000"])
    assert lines[index + 1] == ["task.qa=all"]
    assert ["RUM λ = 1", "–", "79.0", "–", "–", "–"] in lines
    assert ["1", "95.0", "5.0", "–", "50.0"] in lines
    assert ["3", "50.0°", "15.0", "–", "50.0"] in lines
    index = lines.index(["4", "50.0", "20.0", "95.0*", "50.0"])
    assert lines[index + 1] == ["± 7.1"]
    assert ["5", "50.0", "25.0", "unfinished at step 40", "50.0"] in lines
    assert ["20", "50.0", "100.0", "–", "50.0"] in lines
    assert "° trained on the 1k file" in outcome.out
    assert "* on GENERATED stories" in outcome.out
    assert "python -m src.train sweep=rum_paper_table2 " in outcome.out
