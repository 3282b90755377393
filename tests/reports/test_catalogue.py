"""Sweeps of conf/sweep."""

import pytest

from gyral.reports import catalogue


@pytest.mark.parametrize("name", [sweep.name for sweep in catalogue.named()])
def test_every_sweep_says_how_it_is_shown(name: str) -> None:
    sweep = catalogue.load(name)
    assert sweep.title
    assert {"experiment", "seed"} <= set(sweep.axes)
    assert sweep.column is None or sweep.column in sweep.axes
    assert all(paper["row"] for paper in sweep.papers.values())
