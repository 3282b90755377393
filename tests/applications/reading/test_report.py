"""The tables of bAbI with readers: best seeds on validation, and lines of the paper."""

import re
from pathlib import Path

from tests.helpers.running import invoke
from tests.helpers.written import write_answers


def cells(line: str) -> list[str]:
    return re.split(r"  +", line.strip())


def test_the_best_seeds_on_validation_and_the_papers_lines_are_beside_the_means(tmp_path: Path) -> None:
    for qa in range(1, 21):
        for seed in (1, 2):
            # the seed that is better on validation is worse on test; seed 1 comes first if both are equal
            score, monitor = (0.9, 0.5) if seed == 1 else (0.8, 0.5 + 0.1 * (qa < 11))
            write_answers(tmp_path, "ga_mage16", qa, score, seed, table="mage_paper/babi", monitor=monitor)
    write_answers(tmp_path, "ga_mage16", 3, 0.9, table="mage_paper/babi_mix", substitute=1.0)
    outcome = invoke(f"sweep={tmp_path}", entry="report")
    assert outcome.status == 0, outcome.err
    lines = [cells(line) for line in outcome.out.splitlines()]
    # 10 tasks at 80 % and 10 at 90 %; the paper has failed on 5 of 20
    index = lines.index(["GA, MAGE (16)", "85.0 ± 7.1", "85.0", "91.3", "0 of 20", "1, 2", "60,000"])
    assert lines[index + 1] == ["paper 15"]
    index = lines.index(["2", "85.0"])
    assert lines[index + 1 : index + 4] == [["± 7.1"], ["best 80.0"], ["paper 99.0"]]
    index = lines.index(["11", "85.0"])
    assert lines[index + 2] == ["best 90.0"]
    assert ["GA, MAGE (16)", "90.0†", "90.0", "85.9", "0 of 1", "1", "60,000"] in lines  # the average of the paper
    index = lines.index(["3", "90.0†"])
    assert lines[index + 1] == ["paper 99.7"]
    assert "† on a SUBSTITUTE for the paper's data" in outcome.out
