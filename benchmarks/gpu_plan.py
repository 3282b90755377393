"""The rows of the GPU benchmark: which ones, in which order, and how long they take."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from benchmarks import gpu_rows, launches
from benchmarks.gpu_rows import Case

Size = tuple[int, int, int]  # batch, time steps, hidden size

FLA = ("GLA", "DeltaNet")  # cells that are also measured with the kernels of flash-linear-attention
SHORT_STEP = 10_000  # kernels of a training step that also runs at its full size in the comparison, to be counted
SLOW = 0.4  # seconds of a training step that is measured in a single round
LONGEST = 100_000  # kernels of a graph: longer ones may take more memory than there is
NODE = 4e-6  # seconds of a kernel in a graph
CAPTURE = 100e-6  # seconds to record one, for the graphs of forward and of the training step with their warm-ups
ROW = 0.9  # seconds of a row besides its own steps, to build it and for the rounds
SHARE = 0.85  # of the time that is planned


class Plan(NamedTuple):
    """The cases to measure.

    Attributes:
        cases: In their order.
        cut: Cases that are left out, with the reason.
        seconds: The expected time of the rows.
    """

    cases: list[Case]
    cut: list[str]
    seconds: float

    def __str__(self) -> str:
        return f"{len(self.cases)} rows in {self.seconds:.0f} s, {len(self.cut)} cut"


def names() -> tuple[str, ...]:
    """Return the names of all models: the layers of torch, then the cells."""
    return *gpu_rows.LAYERS, *gpu_rows.models()


def first_part(models: Sequence[str], precisions: Sequence[str], sizes: Sequence[Size], inputs: int) -> list[Case]:
    """Return all cases by model, so that every size has rows if the time ends."""
    found = []
    for model in models:
        for batch, steps, hidden in sizes:
            found += [Case(model, each, batch, steps, inputs, hidden) for each in precisions]
    return found


def second_part(first: Sequence[Case]) -> list[Case]:
    """Return the cases that follow: the models of the first part at the size with the most steps.

    The cells of `FLA` come first, with the kernels of flash-linear-attention, then all models in bfloat16.
    """
    steps = max(case.steps for case in first)
    longest = dict.fromkeys(case._replace(precision="float32") for case in first if case.steps == steps)
    found = [case._replace(fla=True) for case in longest if case.model in FLA]
    found += [case._replace(precision="bfloat16") for case in longest]
    return [case for case in found if case not in first]


def separate(cases: Sequence[Case], unsupported_reason: Callable[[Case], str | None]) -> tuple[list[Case], list[str]]:
    """Return the cases that can run here, and the others with the reason why they cannot."""
    reasons = {case: unsupported_reason(case) for case in cases}
    return [case for case in cases if reasons[case] is None], [
        f"{describe(case)}: {reason}" for case, reason in reasons.items() if reason is not None
    ]


def plan(given: Sequence[Case], seconds: float) -> Plan:
    """Leave out the cases with the longest graphs, as many as it takes for the others to fit into the time."""
    expected = {case: row_seconds(case) for case in given}
    cut = []
    for case in sorted(given, key=launches_of, reverse=True):
        if launches_of(case) <= LONGEST and sum(expected.values()) <= SHARE * seconds:
            break
        cut.append(f"{describe(case)}: its graph has {launches_of(case)} kernels")
        del expected[case]
    return Plan(list(expected), cut, sum(expected.values()))


def launches_of(case: Case) -> int:
    """Return the expected launches of a training step, or kernels of its graph."""
    return launches.expected(case).launches


def row_seconds(case: Case) -> float:
    """Return the expected time of a row."""
    step = step_seconds(case)
    return ROW + CAPTURE * launches_of(case) + (10 + (1 if step > SLOW else 3)) * step


def step_seconds(case: Case) -> float:
    """Return the expected time of a training step."""
    return NODE * launches_of(case)


def describe(case: Case) -> str:
    """Return a case in a few words."""
    package = " fla" if case.fla else ""
    return f"{case.model}{package} {case.precision} {case.batch}x{case.steps}x{case.hidden}"
