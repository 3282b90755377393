"""`gyral.ops.rum`, and the cell that runs on it; test_contract.py has what every operator keeps."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gyral.cells.rum import RUMCell
from gyral.nn.recurrent import Recurrent
from gyral.ops import rotation, rum
from gyral.ops.rum import cpu as rum_cpu
from tests.helpers.kernels import skip_without
from tests.helpers.loops import for_each
from tests.ops.contract import EVERY_MASK, FLAG, Contract, Named, choices, error

compiled = skip_without(rum.OPERATOR)

ACTIVATIONS = ("relu", "tanh", "sigmoid", "softsign")


def drawn(
    *sizes: int,
    lambd: float = 0.0,
    update_gate: bool = True,
    eta: float | None = None,
    activation: str = "relu",
    layer_norm: bool = False,
    keep: str = "mask",
    epsilon: float = 1e-5,
) -> tuple[Named, Named]:
    steps, batch, inputs, size = sizes

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64)

    gates = 3 if update_gate else 2
    tensors = {
        "x": draw(steps, batch, inputs),
        "w_ih": draw(gates * size, inputs),
        "w_hh": draw((gates - 1) * size, size) / math.sqrt(size),
        "b": 0.3 * draw(gates * size),
        "h0": draw(batch, size),
        "memory": torch.linalg.qr(draw(batch, size, size))[0] if lambd == 1 else None,
        "norms": 1 + 0.3 * draw(3, 2, size) if layer_norm else None,
    }
    mean, mask = torch.tensor(0.3, dtype=torch.float64), (torch.rand(steps, batch, size) < 0.3).double()
    options = {"eta": eta, "activation": activation, "epsilon": epsilon}
    return tensors, options | {"keep": {"none": None, "mean": mean, "mask": mask}[keep]}


def run(lengths: Tensor | None, **given: Any) -> tuple[Tensor | None, ...]:
    """Return the results, with cosines of zero beyond the lengths, where they are undefined; they have no gradient."""
    *values, cosines = rum.rum(lengths=lengths, **given)
    cosines = cosines.detach()
    if lengths is not None:
        cosines = cosines.masked_fill(torch.arange(len(cosines), device=lengths.device).unsqueeze(1) >= lengths, 0.0)
    return (values[0], cosines, *values[1:])


OPTIONS: list[Named] = [
    {},
    {"layer_norm": True, "epsilon": 0.1, "eta": 0.7, "activation": "tanh"},
    {"update_gate": False, "activation": "sigmoid", "keep": "mean"},
]

CONTRACT = Contract(
    run=run,
    draw=drawn,
    kinds=[{"lambd": lambd, **options} for lambd in (0.0, 1.0) for options in OPTIONS],
    # T, B, X, N
    sizes=[(1, 1, 1, 2), (3, 9, 2, 17), (5, 17, 3, 16), (9, 7, 1, 33)],
    random=choices(
        *([1, 2, 3, 5, 9], [1, 2, 7, 8, 9, 16, 19], [1, 2, 5, 11]),
        [2, 3, 4, 5, 15, 16, 17, 31, 32, 47, 48, 49, 63, 65, 100],
        lambd=[0.0, 1.0],
        eta=[None, None, 1.0, 0.3],
        activation=ACTIVATIONS,
        keep=["none", "mean", "mask"],
        epsilon=[1e-5, 0.1],
        **dict.fromkeys(("update_gate", "layer_norm"), FLAG),
    ),
    few=16,
    many=1000,
    stride=2,
    apart=3,
    small=(9, 19, 3, 21),
    tiny=(3, 2, 2, 4),
    states=["h0", "memory"],
    inputs=["x"],
    exact=1e-10,
    single=1e-3,
    is_smooth=lambda kind: "activation" in kind,
    loops=True,
)


@pytest.mark.named("1-1-500-1.0", "300-2-31-0.0", "3-31-300-0.0")
@pytest.mark.parametrize("lambd", [0.0, 1.0])
@pytest.mark.parametrize(
    ("steps", "batch", "hidden"), [(1, 1, 500), (40, 9, 100), (300, 2, 31), (3, 31, 300), (3, 31, 1000)]
)
def test_large_sizes(lambd: float, steps: int, batch: int, hidden: int) -> None:
    """At the scale of the initialization: a recurrence that loses no digits to chaos."""
    case = CONTRACT.case(
        (steps, 2 if (lambd, hidden) == (1, 1000) else batch, 5, hidden), {"lambd": lambd}, False, False
    )
    cell = RUMCell(5, hidden, lambd=lambd)
    names = {"w_ih": cell.weight_ih, "w_hh": cell.weight_hh, "b": cell.bias}
    case.tensors |= {name: parameter.detach().double() for name, parameter in names.items()}
    truth = case.results(CONTRACT.plain)
    del truth["result 1"]  # cosines: sums that cancel
    found, plain = case.results(dtype=torch.float32), case.results(CONTRACT.plain, torch.float32)
    for name, tensor in truth.items():
        assert error(found[name], tensor) <= 2 * max(error(plain[name], tensor), 1e-6), name


@for_each("every", [1, 2, 3, 5, 100])
def test_checkpoints_of_the_memory_change_nothing(monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    monkeypatch.setattr(rum_cpu, "CHECKPOINT_EVERY", every)
    for masks in EVERY_MASK:
        CONTRACT.case((10, 9, 3, 7), {"lambd": 1.0, "eta": 0.5, "activation": "tanh"}, *masks).check()


def turn(e: Tensor, target: Tensor) -> Tensor:
    """Return the memory (B, N, N) after one step from h = 0 and R = I: the rotation from e to the target (B, N)."""
    batch, size = e.shape
    w_ih, memory = torch.eye(2 * size), torch.eye(size).expand(batch, -1, -1)
    x = torch.cat((target, e), dim=1).unsqueeze(0)
    _, _, memory, _ = rum.rum(x, w_ih, e.new_zeros(size, size), e.new_zeros(2 * size), torch.zeros_like(e), memory)
    return memory


def angled(size: int, angles: Tensor) -> tuple[Tensor, Tensor]:
    """Return vectors (angles, N) in float64 with these angles between them, of norms about 1 and 3."""
    u = rotation.direction(torch.randn(len(angles), size, dtype=torch.float64)).unit
    v = rotation.direction(torch.randn(len(angles), size, dtype=torch.float64)).unit
    v = rotation.direction(v - rotation.dot(u, v) * u).unit
    return u, 3 * (u * angles.cos()[:, None] + v * angles.sin()[:, None])


@pytest.mark.parametrize("size", [2, 3, 100, pytest.param(1000, marks=pytest.mark.slow)])
def test_every_angle_gives_a_rotation(size: int) -> None:
    near = torch.logspace(-7, -0.5, 20, dtype=torch.float64)
    angles = torch.cat([torch.zeros(1, dtype=torch.float64), near, torch.pi - near[near >= 1e-5], 0.1 + 3 * near])
    e, target = (tensor.float() for tensor in angled(size, angles))
    memory = turn(e, target)
    x = torch.randn(len(angles), size)
    turned = torch.einsum("bij,bj->bi", memory, x)
    assert ((turned.norm(dim=1) / x.norm(dim=1) - 1).abs() < 1e-5).all()
    expected = rotation.matrix(e.double(), target.double())
    # near the angles 0 and π rounding of e and tau turns the plane; at 0 nothing is turned in it
    rounding = 1e-6 + 4 * torch.finfo(torch.float32).eps * (1 - angles.cos()) / angles.sin().clamp(min=1e-7)
    assert ((memory - expected).flatten(1).norm(dim=1) <= rounding).all()


@for_each("lambd", [0.0, 1.0])
@for_each("kind", ["opposite", "no embedding", "no target", "both", "equal"])
def test_parallel_opposite_and_zero_vectors(kind: str, lambd: float) -> None:
    options = {"lambd": lambd, "update_gate": False, "activation": "tanh", "keep": "none"}
    case = CONTRACT.case((2, 5, 4, 4), options, False, False)
    identity = torch.eye(4, dtype=torch.float64)
    target, embedded = (
        {"opposite": -2, "no target": 0, "both": 0}.get(kind, 2),
        {"no embedding": 0, "both": 0}.get(kind, 1),
    )
    case.tensors |= {"w_ih": torch.cat((target * identity, embedded * identity))}
    case.tensors["w_hh"].zero_(), case.tensors["b"].zero_()
    expected = case.results(CONTRACT.plain)
    for name, found in case.results().items():
        assert found.isfinite().all(), name
        # the gradient at opposite vectors is of the size 1/ε, and so is its rounding
        exact = 1e-2 if kind == "opposite" else 1e-9
        scale = expected[name].abs().max().item() if kind == "opposite" else 1.0
        torch.testing.assert_close(found, expected[name], rtol=exact, atol=1e-9 + exact * scale, msg=name)


@pytest.mark.parametrize("lambd", [0.0, 1.0])
@pytest.mark.parametrize(
    ("dtype", "exponents"), [(torch.float32, range(-22, -13)), (torch.float64, (-160, -140, -110))]
)
def test_tiny_embedded_inputs(dtype: torch.dtype, exponents: Any, lambd: float) -> None:
    """Kernels and naive function agree on what counts as zero, and have finite gradients."""
    options = {"lambd": lambd, "update_gate": False, "activation": "tanh", "keep": "none"}
    case = CONTRACT.case((1, 1, 8, 8), options, False, False)
    case.tensors["w_ih"] = torch.cat((torch.zeros(8, 8), torch.eye(8))).double()
    direction = torch.nn.functional.normalize(torch.randn(1, 1, 8, dtype=torch.float64), dim=-1)
    for exponent in exponents:
        case.tensors["x"] = direction * 10.0**exponent
        found, expected = (case.results(each, dtype)["gradient of x"] for each in (run, CONTRACT.plain))
        assert found.isfinite().all()
        assert expected.isfinite().all()
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4 * expected.abs().max().item())


def test_a_memory_rebuilt_over_two_thousand_steps_has_drifted_little(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, batch, size = 2000, 8, 100
    assert steps <= rum_cpu.CHECKPOINT_EVERY, "the drift is that of all steps"
    cell = RUMCell(10, size, lambd=1.0)
    rebuilt = []

    def run(**arguments: Any) -> None:
        kernel(**arguments)
        rebuilt.append(arguments["memory"])

    kernel = rum_cpu.KERNEL.run
    monkeypatch.setattr(rum_cpu.KERNEL, "run", run)
    outputs, (final,) = Recurrent(lambda _: cell, 10, backend="fused")(torch.randn(steps, batch, 10))
    outputs.backward(torch.randn_like(outputs))
    orthogonal = (final.memory.mT @ final.memory - torch.eye(size)).abs().max()
    drift = (rebuilt[1][..., :size] - torch.eye(size)).abs().max()
    assert orthogonal < 1e-5
    assert drift < 1e-5


# ---------------------------------------------------------------- the cell


@for_each("lambd", [0.0, 1.0])
def test_cosines_are_recorded_on_every_backend(lambd: float) -> None:
    cell = RUMCell(3, 4, lambd=lambd).double()
    inputs = 3 * torch.randn(6, 5, 3, dtype=torch.float64)
    found = []
    for backend in ("reference", "fused"):
        with cell.record_cosines() as cosines:
            Recurrent(lambda _: cell, 3, backend=backend)(inputs)
        found.append(torch.stack(cosines))
    assert found[0].shape == (6, 5)
    torch.testing.assert_close(found[1], found[0])
    lengths = torch.tensor([6, 2, 3, 1, 6])
    with cell.record_cosines() as cosines:
        Recurrent(lambda _: cell, 3, backend="fused")(inputs, lengths=lengths)
    ended = torch.arange(6).unsqueeze(1) >= lengths
    torch.testing.assert_close(torch.stack(cosines), found[0].masked_fill(ended, torch.nan), equal_nan=True)


# ---------------------------------------------------------------- memory

PEAK = """
import sys
from functools import partial
from benchmarks.measure import peak_memories
from gyral.cells.rum import RUMCell
from gyral.nn.recurrent import Recurrent

if __name__ == "__main__":
    batch, steps, width, size = map(int, sys.argv[1:])
    make = partial(Recurrent, partial(RUMCell, hidden_size=size, lambd=1.0), width)
    print(*peak_memories([make], (steps, batch, width), threads=1))
"""


def peak(tmp_path: Path, batch: int, steps: int, width: int, size: int) -> float:
    """Return the peak of forward and backward with λ = 1 in MiB, measured in processes that pytest has not filled."""
    from tests.helpers.running import ROOT, spawn

    (tmp_path / "peak.py").write_text(PEAK)
    outcome = spawn(str(tmp_path / "peak.py"), *map(str, (batch, steps, width, size)), PYTHONPATH=str(ROOT))
    assert outcome.status == 0, outcome.err
    return float(outcome.out)


@pytest.mark.slow
def test_memory_of_the_associative_state_does_not_grow_with_time(tmp_path: Path) -> None:
    """Peaks at T = 200 and 2,000 differ by what is kept of h and x, and by two more tensors (T, B, N) at most.

    The allocator frees memory late, so that more than what is kept may be in use. Keeping R would take 14,000 MiB.
    """
    batch, width, size = 8, 8, 512
    rest = []
    for steps in (200, 2000):
        # three projected parts, outputs, candidates; ten scalars; the gradient of the inputs
        kept = 4 * steps * batch * (5 * size + 10 + width) / 2**20
        rest.append(peak(tmp_path, batch, steps, width, size) - kept)
    assert 16 < rest[0] < 80, (
        "R is 8 MiB: its first, final and rebuilt value and its gradient, and those of the weights"
    )
    assert rest[1] - rest[0] <= 2 * 4 * 2000 * batch * size / 2**20


@pytest.mark.slow
def test_peak_memory_at_the_size_of_copying(tmp_path: Path) -> None:
    """At most 135 MB; storing every R would take 666 MB."""
    assert peak(tmp_path, 32, 520, 10, 100) * 2**20 <= 135e6
