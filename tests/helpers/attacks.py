"""Attacks: tests that are run many times, each time with other random numbers, and the table of their outcomes.

A test of attacks takes the fixture `attack` and has the marker `attacks(sampled=2, whole=300)`. `make test` runs the
sampled attacks, `make test-faults` all of them. The environment variable SEED chooses other attacks. One attack is
repeated by its number: `make test-faults SEED=7 ATTACKS="tests/faults/test_kills.py -k attack213"`.
"""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

OUTCOMES = "outcomes of an attack"  # name of the property of a test's report, which pytest-xdist passes on


@dataclass
class Attack:
    """One attack of a test.

    Attributes:
        test: name of the test.
        number: number of the attack, from 0.
        seed: the environment variable SEED, 0 by default.
        random: its random numbers, which depend on the three above alone.
        outcomes: how often each outcome was recorded.
    """

    test: str
    number: int
    seed: int
    random: Random = field(init=False)
    outcomes: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.random = Random(f"{self.seed} {self.test} {self.number}")

    def record(self, outcome: str, count: int = 1) -> None:
        """Count an outcome, such as "bit-equal", for the table at the end."""
        self.outcomes[outcome] += count


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--attacks", choices=("sampled", "whole"), default="sampled", help="how many attacks to make")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "attack" in metafunc.fixturenames:
        (marker,) = metafunc.definition.iter_markers("attacks")
        numbers = range(marker.kwargs[metafunc.config.getoption("--attacks")])
        metafunc.parametrize("attack", numbers, ids=[f"attack{number}" for number in numbers], indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out the tests of which no attack is sampled; pytest would report them as skipped."""
    items[:] = [item for item in items if not item.name.endswith("[NOTSET]")]


@pytest.fixture
def attack(request: pytest.FixtureRequest) -> Iterator[Attack]:
    """The attack of a test, whose outcome is a row of the table at the end."""
    made = Attack(request.node.originalname, request.param, int(os.environ.get("SEED", "0")))
    yield made
    request.node.user_properties.append((OUTCOMES, dict(made.outcomes)))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print a table of the tests of attacks: attacks, failed ones, and how often each outcome was recorded."""
    states: dict[str, Counter[str]] = {}
    outcomes: dict[str, Counter[str]] = {}
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        test, is_attack, _ = getattr(report, "nodeid", "").partition("[attack")
        if not is_attack or not isinstance(report, pytest.TestReport):
            continue
        states.setdefault(test, Counter())
        outcomes.setdefault(test, Counter())
        if report.when == "call" or not report.passed:
            states[test][report.outcome] += 1
        elif report.when == "teardown":  # the fixture has appended its outcome by then
            outcomes[test].update(dict(report.user_properties).get(OUTCOMES, {}))
    if states:
        terminalreporter.section(f"attacks (SEED={os.environ.get('SEED', '0')})")
    for test, counted in sorted(states.items()):
        recorded = "".join(f", {count:,} {outcome}" for outcome, count in sorted(outcomes[test].items()))
        terminalreporter.line(f"{test}: {counted.total():,} attacks, {counted['failed']:,} failed{recorded}")
