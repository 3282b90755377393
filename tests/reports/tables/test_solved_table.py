"""The layout "solved": counts with exact intervals, medians, longest lengths and censored steps."""

import pytest

from gyral.reports.tables.solved_table import exact_interval


@pytest.mark.parametrize(
    ("solved", "runs", "expected"),
    [  # the values of R's binom.test
        (5, 5, (0.4781762, 1.0)),
        (0, 5, (0.0, 0.5218238)),
        (4, 5, (0.2835821, 0.9949492)),
        (3, 10, (0.0667395, 0.6524529)),
    ],
)
def test_intervals_are_those_of_clopper_and_pearson(solved: int, runs: int, expected: tuple[float, float]) -> None:
    assert exact_interval(solved, runs) == pytest.approx(expected, abs=1e-7)
