"""Claims of papers and their verdicts."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from gyral.config.groups import choices
from gyral.core.errors import UserError
from gyral.core.measures import ACCURACY
from gyral.runs import records
from gyral.runs.record_files import SUFFIX, write_record
from tests.helpers.docs import load_script
from tests.helpers.found import at_least
from tests.helpers.running import ROOT
from tests.helpers.written import TABLE1, write_answers, write_run

page = load_script("claims")
HELD, REFUTED, UNDECIDED, UNTESTED = page.HELD, page.REFUTED, page.UNDECIDED, page.UNTESTED
ENTRY = {
    "claim": "GRU is better than LSTM.",
    "paper": "a paper",
    "rows": f"{TABLE1}/gru",
    "against": f"{TABLE1}/lstm",
    "measure": "accuracy",
    "expected": "higher",
    "command": "gyral train sweep=rum_paper_table1",
}


def claim(*values: list[float], bound: float | None = None, higher: bool = True) -> Any:
    return page.Claim("A sentence.", "a paper", "gyral train", ACCURACY, [[own] for own in values], bound, higher)


@pytest.mark.parametrize(
    ("values", "bound", "higher", "verdict"),
    [
        (([4.0, 5.0, 6.0], [1.0, 2.0]), None, True, HELD),
        (([4.0, 5.0, 6.0], [1.0, 2.0]), None, False, REFUTED),
        (([1.0, 5.0], [2.0, 4.0]), None, True, UNDECIDED),
        (([3.0, 3.2], [2.0, 2.4]), None, True, UNDECIDED),  # no value in common, but with two seeds p = 0.08
        (([3.0], [1.0, 2.0]), None, True, UNDECIDED),  # one seed
        (([99.999, 99.999], [99.995, 99.996]), None, True, UNDECIDED),  # printed as 100.0 and 100.0
        (([], [1.0, 2.0]), None, True, UNTESTED),
        (([99.4, 99.5],), 99.0, True, UNDECIDED),  # p = 0.07
        (([99.4, 99.5, 99.6],), 99.0, True, HELD),
        (([98.0, 98.0],), 98.0, True, HELD),
        (([98.0, 98.1],), 99.0, True, REFUTED),
        (([12.0, 13.0],), 20.0, False, HELD),
        (([],), 20.0, False, UNTESTED),
    ],
)
def test_verdicts(values: tuple[list[float], ...], bound: float | None, higher: bool, verdict: str) -> None:
    assert claim(*values, bound=bound, higher=higher).verdict == verdict


@pytest.mark.parametrize(
    ("values", "bound", "higher", "verdict"),
    [
        (([99.0] * 5, [50.0] * 5), None, True, HELD),  # p = 0.004
        (([99.0] * 5, [50.0] * 5), None, False, REFUTED),
        (([50.0] * 5, [99.0] * 5), None, False, HELD),
        (([99.0] * 4 + [0.0], [50.0] * 5), None, True, HELD),  # p = 0.024
        (([99.0] * 3, [50.0] * 3), None, True, UNDECIDED),  # p = 0.05
        (([99.0] * 4 + [0.0],), 0.8, True, HELD),
        (([99.0] * 3 + [0.0] * 2,), 0.8, True, REFUTED),
        (([0.0] * 5,), 0.0, False, HELD),
        (([],), 0.8, True, UNTESTED),
    ],
)
def test_verdicts_of_counts(values: tuple[list[float], ...], bound: float | None, higher: bool, verdict: str) -> None:
    one = replace(claim(*values, bound=bound, higher=higher), solved=99)
    assert one.verdict == verdict
    assert f"**{verdict}**" in page.claims_table([one])
    lacking = replace(one, seeds=6)
    assert lacking.verdict == (UNDECIDED if all(values) else UNTESTED)


def test_each_of_several_rows_is_compared_with_each() -> None:
    solves, fails, half = [99.0] * 5, [0.0] * 5, [99.0] * 3 + [0.0] * 2
    for values, verdict, counts in (
        ([[solves, solves], [fails, fails]], HELD, "| 10 of 10 | 0 of 10 | p = 0.004 |"),
        ([[fails, fails], [solves, solves]], REFUTED, "| 0 of 10 | 10 of 10 | p = 0.004 |"),
        ([[solves, solves], [fails, solves]], UNDECIDED, "| 10 of 10 | 0 of 5, 5 of 5 | p = 1 |"),
        ([[solves, half], [fails, fails]], UNDECIDED, "| 5 of 5, 3 of 5 | 0 of 10 | p = 0.083 |"),
    ):
        one = replace(claim(), values=values, solved=99)
        assert one.verdict == verdict
        assert counts in page.claims_table([one]).replace("\N{NO-BREAK SPACE}", " ")
    reached = replace(claim(bound=0.8), values=[[solves, half]], solved=99)
    assert reached.verdict == REFUTED  # 8 of 10, but one row has 3 of 5


def test_intervals_contain_the_difference_of_95_percent_of_samples() -> None:
    generator = np.random.default_rng(1)
    for sizes, deviations in (((3, 3), (1, 1)), ((2, 5), (1, 1)), ((5, 5), (1, 4)), ((3,), (2,))):
        found = 0
        for _ in range(1000):
            samples = [generator.normal(7, std, size).tolist() for size, std in zip(sizes, deviations, strict=True)]
            low, high = page.welch_interval(samples, 7.0)
            found += low <= 0 <= high
        assert 930 <= found <= 990


def test_numbers_equal_those_of_the_runs(tmp_path: Path) -> None:
    for seed, accuracy in ((1, 0.5), (2, 0.6)):
        write_run(tmp_path, f"{TABLE1}/gru", seed=seed, accuracy=accuracy)
        write_run(tmp_path, f"{TABLE1}/lstm", seed=seed, accuracy=0.3)
        write_run(tmp_path, f"{TABLE1}/gru", "optimizer.lr=0.1", seed=seed, accuracy=0.1)
    (tmp_path / "claims.yaml").write_text(OmegaConf.to_yaml([{**ENTRY, "options": ["task.length=30"]}]))
    [read] = page.read_claims(tmp_path / "claims.yaml", records.read(tmp_path)[0])
    assert read.values == [[[50.0, 60.0]], [[30.0, 30.0]]]
    table = page.claims_table([read])
    assert table.startswith("1 claim: 1 undecided.")
    assert "| 55.0 ± 7.1 (n = 2) | 30.0 ± 0.0 (n = 2) | -38.5 to +88.5 | **undecided** |" in table.replace(
        "\N{NO-BREAK SPACE}", " "
    )


def test_a_run_that_diverged_has_not_solved_its_task(tmp_path: Path) -> None:
    write_run(tmp_path, f"{TABLE1}/gru", seed=1, accuracy=0.5)
    (write_run(tmp_path, f"{TABLE1}/gru", seed=2) / "FAILED").write_text("NonFiniteError: step 3")
    (write_run(tmp_path, f"{TABLE1}/gru", seed=3) / "FAILED").write_text("OSError: No space left on device")
    write_run(tmp_path, f"{TABLE1}/lstm", seed=1, accuracy=0.3)
    (tmp_path / "claims.yaml").write_text(OmegaConf.to_yaml([{**ENTRY, "solved": 50}, ENTRY]))
    counted, compared = page.read_claims(tmp_path / "claims.yaml", records.read(tmp_path)[0])
    assert counted.counts == [[(1, 2)], [(0, 1)]]
    assert compared.values == [[[50.0]], [[30.0]]]


def test_the_mean_is_over_what_all_rows_have(tmp_path: Path) -> None:
    for qa, accuracy in ((1, 0.2), (2, 0.4)):
        write_answers(tmp_path, "gru", qa, accuracy)
    write_answers(tmp_path, "gru", 1, 0.9, seed=2)  # lacks task 2
    entry = {**ENTRY, "rows": "rum_paper/table2/gru", "mean_over": "task.qa", "bound": 20}
    del entry["against"]
    (tmp_path / "claims.yaml").write_text(OmegaConf.to_yaml([entry]))
    [read] = page.read_claims(tmp_path / "claims.yaml", records.read(tmp_path)[0])
    assert read.values == [[[pytest.approx(30.0)]]]
    write_answers(tmp_path, "lstm", 1, 0.1)
    write_answers(tmp_path, "lstm", 3, 0.2)  # which GRU lacks
    entry = {**ENTRY, "rows": "rum_paper/table2/gru", "against": "rum_paper/table2/lstm", "mean_over": "task.qa"}
    (tmp_path / "claims.yaml").write_text(OmegaConf.to_yaml([entry]))
    [read] = page.read_claims(tmp_path / "claims.yaml", records.read(tmp_path)[0])
    assert read.values == [[[pytest.approx(20.0), pytest.approx(90.0)]], [[pytest.approx(10.0)]]]
    assert read.averaged == 1


def test_the_seeds_of_several_rows_are_counted_if_there_are_all(tmp_path: Path) -> None:
    rows = [f"{TABLE1}/gru", f"{TABLE1}/lstm"]
    entry = {**ENTRY, "rows": rows, "bound": 0.0, "solved": 99, "expected": "lower", "options": ["task.length=30"]}
    del entry["against"]
    (tmp_path / "claims.yaml").write_text(OmegaConf.to_yaml([entry]))
    for count, verdict in ((1, UNDECIDED), (2, HELD)):
        for seed in (1, 2):
            write_run(tmp_path, rows[count - 1], seed=seed, accuracy=0.5)
        [read] = page.read_claims(tmp_path / "claims.yaml", records.read(tmp_path)[0])
        assert read.counts == [[(0, 2), (0, 2 * (count - 1))]]
        assert read.verdict == verdict


def test_a_claim_can_be_about_a_probe(tmp_path: Path) -> None:
    for row, f1 in (("gru", 40.0), ("lstm", 45.0)):
        for seed in (1, 2):
            run = records.read_run(write_run(tmp_path / "runs", f"{TABLE1}/{row}", seed=seed, accuracy=0.5))
            path = write_record(run, tmp_path / "records")
            numbers = {"layer 2/f1": f1 + seed}
            path.with_name(path.name.replace(SUFFIX, ".treebank.json")).write_text(json.dumps({"numbers": numbers}))
    (tmp_path / "claims.yaml").write_text(OmegaConf.to_yaml([{**ENTRY, "probe": "treebank", "measure": "layer 2/f1"}]))
    [read] = page.read_claims(tmp_path / "claims.yaml", records.read(tmp_path / "records")[0])
    assert read.values == [[[41.0, 42.0]], [[46.0, 47.0]]]
    assert read.verdict == REFUTED
    assert "treebank, layer 2/f1" in page.claims_table([read])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"measure": "acuracy"}, "claim 1: measure"),
        ({"expected": "more"}, r"0.expected: Input should be 'higher' or 'lower'"),
        ({"bound": 3}, "0: must have either against or bound"),
        ({"row": "x"}, "0.row: is not a field"),
        ({"rows": [f"{TABLE1}/gru", f"{TABLE1}/lstm"]}, "0: several rows need solved"),
    ],
)
def test_wrong_entries_are_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    (tmp_path / "claims.yaml").write_text(OmegaConf.to_yaml([{**ENTRY, **change}]))
    with pytest.raises(UserError, match=message):
        page.read_claims(tmp_path / "claims.yaml", [])


def test_the_claims_of_the_project_name_experiments() -> None:
    files = at_least(7, (ROOT / "results" / "claims").glob("*.yaml"))
    claims = at_least(60, (claim for path in files for claim in OmegaConf.load(path)))
    given = [claim[key] for claim in claims for key in ("rows", "against") if key in claim]
    named = {name for names in given for name in ([names] if isinstance(names, str) else names)}
    assert named <= {*choices("experiment")}
