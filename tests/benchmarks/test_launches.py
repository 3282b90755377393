"""What a training step asks of a GPU, counted without one: it may not grow."""

import pytest
import torch

from benchmarks import gpu_rows, launches
from benchmarks.gpu_rows import SIZES

SMALL, LONG, _ = SIZES
SAMPLED = ("EURNN", "GatedDeltaNet", "LRU", "MinGRU", "RGLRU", "RUM:lambd=1", "S5")
DIAGONAL = ("LRU", "MinGRU", "MinLSTM", "RGLRU", "S5")  # with kernels in Triton


def is_loop(model: str) -> bool:
    return launches.recorded()[launches.name_of(SMALL)][model]["path"] == "loop"


def check(model: str, size: tuple[int, int, int]) -> None:
    found, recorded = launches.count(model, *size), launches.Count(**launches.recorded()[launches.name_of(size)][model])
    assert found.path == recorded.path, "run python -m benchmarks.launches"
    assert found.launches <= recorded.launches
    assert (found.bytes, found.flops) == (recorded.bytes, recorded.flops)


def test_every_model_is_recorded_at_every_size() -> None:
    assert list(launches.recorded()) == [launches.name_of(size) for size in SIZES]
    assert all(list(counts) == list(gpu_rows.models()) for counts in launches.recorded().values())


def test_steps_of_large_hidden_sizes_are_few_launches() -> None:
    batch, steps, hidden = SIZES[2]
    for model, (forward, backward) in {"RUM": (2, 2), "RUM:lambd=1": (3, 4)}.items():
        counted = launches.count(model, batch, steps, hidden)
        assert counted.forward <= forward * steps + 15
        assert counted.backward <= backward * steps + 15


def test_a_diagonal_recurrence_is_at_most_14_launches() -> None:
    for counts in launches.recorded().values():
        assert all(launches.Count(**counts[model]).launches <= 14 for model in DIAGONAL)


@pytest.mark.parametrize("model", SAMPLED)
def test_a_step_launches_no_more_than_recorded(model: str) -> None:
    check(model, SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("model", gpu_rows.models())
def test_no_model_launches_more_than_recorded(model: str) -> None:
    check(model, SMALL)
    if not is_loop(model):
        check(model, LONG)


def test_the_counts_of_other_sizes_follow_from_the_recorded_ones() -> None:
    for model in gpu_rows.models():
        at_size = {size: launches.Count(**launches.recorded()[launches.name_of(size)][model]) for size in SIZES}
        if at_size[SMALL].path == "kernels":  # others are launched for large hidden sizes
            continue
        for size, counted in at_size.items():
            assert launches.between(at_size, size[1]) == (counted.forward, counted.backward)
        middle = at_size.pop(SIZES[2])
        found = sum(launches.between(at_size, SIZES[2][1]))
        assert found == pytest.approx(middle.launches, rel=0.02 if is_loop(model) else 0.2)
    batch, steps, hidden, inputs = 4, 24, 12, 3
    case = gpu_rows.Case("GRU", "float32", batch, steps, inputs, hidden)
    counted = launches.count("GRU", batch, steps, hidden, inputs)
    assert launches.expected(case) == launches.expected(case._replace(model="torch.nn.GRU")) == counted


def test_views_and_empty_tensors_launch_nothing() -> None:
    values = torch.zeros(2, 3)
    with launches.Launches() as counted:
        torch.empty(2).view(1, 2)
        values.t().reshape(6).detach()
        assert counted.count == 1  # reshape copies
        values.add_(1).mul(2)
    assert counted.count == 3


def test_bounds() -> None:
    batch, steps, hidden = 2, 3, 200
    inputs = 36
    found = launches.count("GRU", batch, steps, hidden)
    assert found.bytes == 4 * batch * steps * (3 * inputs + 6 * 3 * hidden + 4 * hidden)
    assert found.flops == 6 * batch * steps * 3 * hidden * (inputs + hidden)
    # RUM's memory of 200² numbers does not fit on chip: 13 bytes of each for a step
    without, with_memory = (launches.count(model, batch, steps, hidden) for model in ("RUM", "RUM:lambd=1"))
    assert with_memory.bytes - without.bytes == 13 * batch * steps * hidden**2
