"""Runs that the tests of the formats share."""

from pathlib import Path

import pytest

from gyral.reports.tables.sections import Section, make_sections
from gyral.runs import records
from tests.helpers.written import FIG4, TABLE1, write_run


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of a table, of a figure, and of none."""
    directory = tmp_path_factory.mktemp("runs")
    for seed, accuracy in ((1, 0.20), (2, 0.23)):
        write_run(directory, f"{TABLE1}/gru", seed=seed, accuracy=accuracy)
    changed = write_run(directory, f"{TABLE1}/lstm", seed=2, accuracy=0.25)
    (changed / "git.diff").write_text("+")
    failed = write_run(directory, f"{TABLE1}/lstm")
    (failed / "FAILED").write_text("Traceback (most recent call last):\n  File\nNonFiniteError: loss_nan | 100 %\n")
    write_run(directory, f"{FIG4}/lstm", accuracy=0.125)
    other = write_run(directory, "none", accuracy=0.75)
    (other / "overrides.yaml").write_text("- model=gru\n- optimizer.lr=0.1\n")
    return directory


@pytest.fixture(scope="session")
def sections(runs: Path) -> list[Section]:
    jobs, told = records.read(runs)
    assert not told
    return make_sections(jobs, runs)
