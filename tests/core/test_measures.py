"""How metrics are printed."""

import math
import re

from gyral.core.measures import ACCURACY, MSE, SEQUENCE_ACCURACY, percent, perplexity_of, printed
from tests.helpers.running import ROOT


def test_a_metric_is_printed_alike_everywhere() -> None:
    measures = (ACCURACY, SEQUENCE_ACCURACY, MSE)
    assert printed("val/accuracy", 0.28400001, measures) == "28.4 %"
    assert printed("test/accuracy_7_operators", 0.5, measures) == "50.0 %"
    assert printed("sequence_accuracy", 1.0, measures) == "100.0 %"
    assert printed("test/mse", 0.28400001, measures) == "0.2840"
    assert printed("test/loss", 0.28400001, measures) == "0.284"
    assert printed("test/loss", 0.123456789, measures) == "0.1235"
    assert (percent(0.284), percent(0.284, 1), percent(1)) == ("28 %", "28.4 %", "100 %")


def test_a_perplexity_that_is_no_number_is_infinite() -> None:
    assert [perplexity_of(loss) for loss in (0.0, 2.5, 710.0)] == [1.0, math.exp(2.5), math.inf]
    assert math.isnan(perplexity_of(math.nan))


def test_code_prints_percentages_by_these_functions_alone() -> None:
    folders = [ROOT / "src", ROOT / "docs", ROOT / "benchmarks", ROOT / "examples"]
    files = [file for folder in folders for kind in ("py", "html", "ipynb") for file in folder.rglob(f"*.{kind}")]
    of_python = re.compile(r"\{[^{}]*:[<>^]?\d*(?:\.\d)?%\}")  # "28%", without the space that all others have
    assert not [file for file in files if of_python.search(file.read_text(encoding="utf-8"))]
