"""RUM's fused path on the CPU against the loop over `RUMCell.step`, which is held to Algorithm 1 elsewhere."""

import functools
import gc
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from gyral.cells.rum import ACTIVATIONS, RUMCell
from gyral.nn.recurrent import Recurrent
from gyral.ops import rotation, rum
from gyral.ops.rum import cpu as rum_cpu
from tests.helpers.kernels import skip_without
from tests.helpers.loops import for_each
from tests.helpers.running import ROOT, spawn
from tests.ops.float32 import check_float32

compiled = skip_without(rum_cpu.KERNEL.prepare)

FEW, MANY = 24, 1000  # random cases of the property test in `make test` and in `make test-all`


class Case:
    """Random sizes and options, with weights, inputs, state and cotangents drawn in float64."""

    def __init__(self, seed: int, **fixed: Any) -> None:
        pick = random.Random(seed)
        sizes = {
            "steps": pick.choice([1, 2, 3, 5, 9]),
            "batch": pick.choice([1, 2, 7, 8, 9, 16, 19]),
            "inputs": pick.choice([1, 2, 5, 11]),
            "hidden": pick.choice([2, 3, 4, 5, 15, 16, 17, 31, 32, 47, 48, 49, 63, 65, 100]),
        }
        options = {
            "lambd": pick.choice([0.0, 1.0]),
            "eta": pick.choice([None, None, 1.0, 0.3]),
            "activation": pick.choice(list(ACTIVATIONS)),
            "update_gate": pick.random() < 0.7,
            "trainable_target": pick.random() < 0.8,
            "trainable_embedding": pick.random() < 0.8,
            "layer_norm": pick.random() < 0.3,
            "zoneout": pick.choice([0.0, 0.0, 0.2, 0.7]),
        }
        self.sizes = {key: fixed.pop(key, value) for key, value in sizes.items()}
        self.training = fixed.pop("training", pick.random() < 0.5)
        ragged = fixed.pop("ragged", pick.random() < 0.3)
        resets = fixed.pop("resets", pick.random() < 0.3)
        self.options = options | fixed
        generator = torch.Generator().manual_seed(seed)
        self.draw = functools.partial(torch.randn, generator=generator, dtype=torch.float64)
        steps, batch, width, hidden = self.sizes.values()
        self.lengths = torch.randint(1, steps + 1, (batch,), generator=generator) if ragged else None
        self.starts = torch.rand(steps, batch, generator=generator) < pick.choice([0.1, 0.5]) if resets else None
        torch.manual_seed(seed)
        self.cell = RUMCell(width, hidden, **self.options).double()
        for parameter in self.cell.parameters():  # biases, gains and angles of every kind
            parameter.data += 0.3 * self.draw(parameter.shape)
        self.inputs = self.draw(steps, batch, width)
        with torch.no_grad():
            start = self.cell.init_state(batch)._replace(hidden=self.draw(batch, hidden))
            _, self.state = self.cell.eval()(self.draw(batch, width), start)
        self.cotangents = [self.draw(steps, batch, hidden), *(self.draw(leaf.shape) for leaf in self.state)]

    def __str__(self) -> str:
        given = {"training": self.training, "ragged": self.lengths is not None, "resets": self.starts is not None}
        return f"{self.sizes} {self.options} {given}"

    def results(self, backend: str, dtype: torch.dtype) -> dict[str, Tensor]:
        """Return outputs, final state and every gradient, in float64."""
        cell = RUMCell(self.sizes["inputs"], self.sizes["hidden"], **self.options)
        cell.load_state_dict(self.cell.state_dict())
        model = Recurrent(lambda _: cell, 1, backend=backend).to(dtype).train(self.training)
        inputs = self.inputs.to(dtype).requires_grad_()
        state = tree_map(lambda leaf: leaf.to(dtype).requires_grad_(), self.state)
        torch.manual_seed(7)  # of the zoneout masks
        outputs, (final,) = model(inputs, (state,), self.lengths, self.starts)
        values = [outputs, *final]
        leaves = {"inputs": inputs, **{f"initial {name}": leaf for name, leaf in state._asdict().items()}}
        leaves |= dict(cell.named_parameters())
        cotangents = [cotangent.to(dtype) for cotangent in self.cotangents]
        gradients = torch.autograd.grad(values, list(leaves.values()), cotangents, materialize_grads=True)
        found = dict(zip(["outputs", *(f"final {name}" for name in state._fields)], values, strict=True))
        found |= {f"gradient of {name}": gradient for name, gradient in zip(leaves, gradients, strict=True)}
        return {name: tensor.detach().double() for name, tensor in found.items()}


def error(result: Tensor, truth: Tensor) -> float:
    """Return ‖result − truth‖ / ‖truth‖; a truth below 1e-3 counts as that, since some gradients are zero by nature."""
    return (result - truth).norm().item() / max(truth.norm().item(), 1e-3)


def check_against_float64(seeds: range) -> None:
    """Compare the fused path with the loop: in float64 case by case, in float32 by its typical error."""

    def compared() -> Iterator[tuple[Any, ...]]:
        for case in map(Case, seeds):
            truth, fused = (case.results(backend, torch.float64) for backend in ("reference", "fused"))
            for name, tensor in truth.items():
                assert error(fused[name], tensor) < 1e-9, f"{name} of {case}"
            if case.options["zoneout"] == 0 or not case.training:  # else float32 and float64 draw different masks
                yield case, truth, *(case.results(backend, torch.float32) for backend in ("fused", "reference"))

    check_float32(compared(), error, {"outputs", "gradient of inputs"})


def test_random_sizes_and_options() -> None:
    check_against_float64(range(FEW))


@pytest.mark.slow
def test_a_thousand_random_sizes_and_options() -> None:
    check_against_float64(range(FEW, FEW + MANY))


@pytest.mark.named("1-1-500-1.0", "300-2-31-0.0", "3-31-300-0.0")
@pytest.mark.parametrize("lambd", [0.0, 1.0])
@pytest.mark.parametrize(
    ("steps", "batch", "hidden"), [(1, 1, 500), (40, 9, 100), (300, 2, 31), (3, 31, 300), (3, 31, 1000)]
)
def test_large_sizes(lambd: float, steps: int, batch: int, hidden: int) -> None:
    if lambd == 1 and hidden == 1000:
        batch = 2
    sizes = {"steps": steps, "batch": batch, "hidden": hidden, "inputs": 5}
    fixed = {"eta": None, "activation": "relu", "layer_norm": False, "zoneout": 0.0, "ragged": False, "resets": False}
    case = Case(3, **sizes, lambd=lambd, **fixed)
    # at the scale of the initialization: a recurrence that loses no digits to chaos
    case.cell.reset_parameters()
    truth = case.results("reference", torch.float64)
    fused, plain = case.results("fused", torch.float32), case.results("reference", torch.float32)
    for name, tensor in truth.items():
        assert error(fused[name], tensor) <= 2 * max(error(plain[name], tensor), 1e-6), name


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
def test_corners_agree_with_the_loop(kind: str, lambd: float) -> None:
    """Parallel, opposite and zero vectors: the same values and gradients as the loop, which says what they mean."""
    batch, size = 5, 4
    cell = RUMCell(size, size, lambd=lambd, update_gate=False, activation="tanh").double()
    with torch.no_grad():
        cell.weight_hh.zero_()
        cell.bias.zero_()
        cell.weight_ih.zero_()
        identity = torch.eye(size, dtype=torch.float64)
        cell.weight_ih[:size] = {"opposite": -2, "no target": 0, "both": 0}.get(kind, 2) * identity
        cell.weight_ih[size:] = {"no embedding": 0, "both": 0}.get(kind, 1) * identity
    state = cell.init_state(batch)._replace(hidden=torch.randn(batch, size, dtype=torch.float64))
    inputs = torch.randn(2, batch, size, dtype=torch.float64)
    found = []
    for backend in ("reference", "fused"):
        x, h = inputs.clone().requires_grad_(), state.hidden.clone().requires_grad_()
        outputs, (final,) = Recurrent(lambda _: cell, size, backend=backend)(x, (state._replace(hidden=h),))
        total = sum((value * torch.arange(value.numel()).view_as(value).sin()).sum() for value in (outputs, *final))
        found.append([outputs, *final, *torch.autograd.grad(total, [x, h, *cell.parameters()])])
    for one, other in zip(*found, strict=True):
        assert other.isfinite().all()
        if kind == "opposite":  # the gradient there is of the size 1/ε, and so is its rounding
            torch.testing.assert_close(other, one, rtol=1e-2, atol=1e-9 + 1e-2 * one.abs().max().item())
        else:
            torch.testing.assert_close(other, one, rtol=1e-9, atol=1e-9)


def test_nan_stays_visible() -> None:
    cell = RUMCell(3, 4)
    inputs = torch.randn(5, 2, 3)
    inputs[2, 1, 0] = torch.nan
    outputs, _ = Recurrent(lambda _: cell, 3, backend="fused")(inputs)
    assert outputs[:, 0].isfinite().all()
    assert outputs[:2].isfinite().all()
    assert outputs[2:, 1].isnan().all()


@for_each("lambd", [0.0, 1.0])
def test_tensors_may_have_any_memory_layout(lambd: float) -> None:
    cell = RUMCell(3, 5, lambd=lambd)
    model = Recurrent(lambda _: cell, 3, backend="fused")
    inputs, state = torch.randn(6, 4, 3), tree_map(lambda leaf: leaf.clone(), cell.init_state(4))
    state.hidden.normal_()

    def run(scatter: bool) -> list[Tensor]:
        def place(tensor: Tensor) -> Tensor:
            placed = tensor.mT.contiguous().mT if scatter else tensor.clone()
            assert placed.is_contiguous() is not scatter
            return placed.requires_grad_()

        x, start = place(inputs), tree_map(place, state)
        outputs, (final,) = model(x, (start,))
        cotangents = [place(value.detach().cos()).detach() for value in (outputs, *final)]
        gradients = torch.autograd.grad([outputs, *final], [x, *start, *cell.parameters()], cotangents)
        return [outputs, *final, *gradients]

    for one, other in zip(run(False), run(True), strict=True):
        torch.testing.assert_close(one, other)


@for_each("inside", [False, True])
@for_each("lambd", [0.0, 1.0])
def test_autocast_rounds_the_inputs_alone(lambd: float, inside: bool) -> None:
    """The kernels of the CPU have no half precision: what comes in it is taken as it is; the state stays float32."""
    cell = RUMCell(3, 5, lambd=lambd)
    model = Recurrent(lambda _: cell, 3, backend="fused")
    inputs = torch.randn(6, 4, 3).bfloat16()
    found = []
    for half in (True, False):
        x = inputs.clone().requires_grad_() if half else inputs.float().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            outputs, (final,) = model(x)
        assert outputs.dtype == final.hidden.dtype == torch.float32
        with torch.autocast("cpu", torch.bfloat16, enabled=half and inside):
            gradients = torch.autograd.grad(outputs.sum(), [x, *cell.parameters()])
        found.append([outputs, *gradients])
    assert found[0][1].dtype == torch.bfloat16
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other.to(one.dtype))


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


# ---------------------------------------------------------------- memory


@for_each("lambd", [0.0, 1.0])
@for_each("ragged", [False, True])
def test_uninitialized_memory_is_never_read(monkeypatch: pytest.MonkeyPatch, ragged: bool, lambd: float) -> None:
    fixed = {"lambd": lambd, "eta": 0.5, "layer_norm": True, "update_gate": True, "zoneout": 0.2, "training": False}
    case = Case(11, steps=9, batch=19, hidden=21, inputs=3, activation="tanh", ragged=ragged, resets=ragged, **fixed)
    monkeypatch.setattr(rum_cpu, "CHECKPOINT_EVERY", 4)
    clean = case.results("fused", torch.float64)
    new_empty = Tensor.new_empty
    poisoned = []

    def poison(self: Tensor, *shape: Any, **options: Any) -> Tensor:
        poisoned.append(shape)
        made = new_empty(self, *shape, **options)
        return made.fill_(torch.nan) if made.is_floating_point() else made

    monkeypatch.setattr(Tensor, "new_empty", poison)
    again = case.results("fused", torch.float64)
    assert len(poisoned) >= 4
    for name, tensor in clean.items():
        assert torch.equal(again[name], tensor), name


@for_each("lambd", [0.0, 1.0])
def test_one_and_two_threads_give_the_same(lambd: float) -> None:
    fixed = {"lambd": lambd, "layer_norm": True, "update_gate": True, "eta": None, "activation": "relu", "zoneout": 0.0}
    # With one input, the projection that PyTorch computes has no sum whose order could depend on the threads.
    case = Case(5, steps=20, batch=37, hidden=50, inputs=1, ragged=True, **fixed)
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(case.results("fused", torch.float32))
    torch.set_num_threads(1)
    products = {f"gradient of {name}" for name in ("inputs", "weight_ih", "weight_hh")}  # torch's own, of its library
    for name, tensor in found[0].items():
        for other in found[1:]:
            if name in products:
                torch.testing.assert_close(other[name], tensor, rtol=1e-5, atol=1e-5 * tensor.abs().max().item())
            else:
                assert torch.equal(other[name], tensor), name


def test_a_second_backward_over_the_same_graph_gives_the_same() -> None:
    cell = RUMCell(3, 5, lambd=1.0)
    inputs = torch.randn(6, 4, 3, requires_grad=True)
    outputs, _ = Recurrent(lambda _: cell, 3, backend="fused")(inputs)
    cotangent = torch.randn_like(outputs)
    leaves = [inputs, *cell.parameters()]
    first = torch.autograd.grad(outputs, leaves, cotangent, retain_graph=True)
    for _ in range(2):
        again = torch.autograd.grad(outputs, leaves, cotangent, retain_graph=True)
        assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


@for_each(
    "given",
    [
        (0.0, {"layer_norm": True, "layer_norm_eps": 0.1, "eta": 0.7, "activation": "tanh", "zoneout": 0.3}),
        (1.0, {"activation": "sigmoid", "update_gate": False, "trainable_target": False}),
    ],
)
def test_second_derivatives_equal_the_loop(given: tuple[float, dict[str, Any]]) -> None:
    lambd, options = given
    case = Case(1, steps=4, batch=3, inputs=2, hidden=5, lambd=lambd, ragged=True, training=True, **options)
    found = []
    for backend in ("reference", "fused"):
        model = Recurrent(lambda _: case.cell, 1, backend=backend).train()
        inputs, state = case.inputs.clone().requires_grad_(), tree_map(lambda leaf: leaf.clone(), case.state)
        state = tree_map(Tensor.requires_grad_, state)
        leaves = [inputs, *state, *case.cell.parameters()]
        torch.manual_seed(7)
        outputs, (final,) = model(inputs, (state,), case.lengths)
        total = sum(value.square().sum() for value in (outputs, *final))
        first = torch.autograd.grad(total, leaves, create_graph=True, materialize_grads=True)
        norm = sum(gradient.square().sum() for gradient in first)
        found.append([*first, *torch.autograd.grad(norm, leaves, materialize_grads=True)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-9, atol=1e-9)


def test_nothing_leaks() -> None:
    model = Recurrent(functools.partial(RUMCell, hidden_size=64, lambd=1.0), 8, backend="fused")
    inputs = torch.randn(10, 8, 8)

    def call(times: int) -> None:
        for _ in range(times):
            outputs, _ = model(inputs)
            outputs.sum().backward()
            model.zero_grad()

    def resident() -> int:
        gc.collect()
        return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * 4096

    if not Path("/proc/self/statm").exists():
        pytest.skip("no /proc to read the size of this process from")
    call(10)
    before = resident()
    call(20)
    # one call takes 0.8 MB
    assert resident() - before < 4e6


@for_each("every", [1, 2, 3, 5, 100])
def test_checkpoints_change_nothing_but_rounding(monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    case = Case(2, lambd=1.0, steps=10, batch=9, hidden=7, ragged=True)
    truth = case.results("reference", torch.float64)
    monkeypatch.setattr(rum_cpu, "CHECKPOINT_EVERY", every)
    for name, tensor in case.results("fused", torch.float64).items():
        assert error(tensor, truth[name]) < 1e-11, name


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
