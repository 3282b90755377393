"""n-gram models below the rows of a table."""

import json
from pathlib import Path

import pytest

from tests.helpers.running import invoke
from tests.helpers.written import report_of, write_run

SCORES = {1: 1.8854, 3: 0.5046, 5: 0.4871, 7: 0.4866}


def write_bits(directory: Path, seed: int, bits: float, ngrams: dict[int, float]) -> None:
    """Write a run of Table 3 that logged scores of n-gram models."""
    run = write_run(directory, "rum_paper/table3/lstm_1000", seed=seed, accuracy=0.7)
    results = {**json.loads((run / "DONE").read_text()), "test/bits": bits, "parameters": 4_586_450}
    results |= {f"test/ngram_{order}_bits": score for order, score in ngrams.items()}
    (run / "DONE").write_text(json.dumps(results))


def test_a_table_in_bits_has_ngrams_below_its_rows(tmp_path: Path) -> None:
    write_bits(tmp_path, 1, 1.2394, {})
    write_bits(tmp_path, 2, 1.2414, SCORES)
    entries, printed = report_of(tmp_path)
    assert entries["LSTM 1000"] == ["1.240 ± 0.001", "1.240", "4,586,450", "4.5M"]
    assert entries["FS-RUM-2"] == ["–", "1.189", "–", "11.2M"]
    assert list(entries)[-4:] == [f"{order}-gram (Witten–Bell)" for order in SCORES]
    for order, score in SCORES.items():
        assert entries[f"{order}-gram (Witten–Bell)"] == [f"{score:.3f}", "–", "–", "–"]
    assert "n-gram models" not in printed


@pytest.mark.parametrize(("logged", "absent"), [({}, "1,3,5,7"), ({1: 1.8854}, "3,5,7")])
def test_a_footnote_says_how_to_log_ngrams_that_no_run_has(
    tmp_path: Path, logged: dict[int, float], absent: str
) -> None:
    write_bits(tmp_path, 1, 1.2394, logged)
    entries, printed = report_of(tmp_path)
    assert ("1-gram (Witten–Bell)" in entries) is bool(logged)
    assert f"No run has scores of n-gram models; to log them, train a row with task.ngrams=[{absent}].\n" in printed
    assert "n-gram models" not in invoke(f"sweep={tmp_path}", "missing=false", entry="report").out
