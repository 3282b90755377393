"""The kernels of `gyral.ops.fast_slow` on the CPU against the loop over `FSRNNCell.step`."""

import copy
import ctypes
import functools
import gc
import logging
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from gyral.cells.base import RecurrentCell
from gyral.cells.eurnn import EURNNCell
from gyral.cells.fs_rnn import FSRNNCell
from gyral.cells.goru import GORUCell
from gyral.cells.gru import GRUCell
from gyral.cells.lstm import LSTMCell
from gyral.cells.rum import RUMCell
from gyral.cells.urnn import URNNCell
from gyral.core.errors import OptionError
from gyral.nn.recurrent import Recurrent
from gyral.ops import fast_slow
from gyral.ops.fast_slow import cpu as fast_slow_cpu
from gyral.ops.native import library
from gyral.ops.operator import KernelUnavailableError
from tests.helpers.kernels import look_again, skip_without
from tests.helpers.loops import for_each
from tests.helpers.memory import poison
from tests.ops.float32 import check_float32

compiled = skip_without(fast_slow_cpu.prepare, torch.device("cpu"))

FEW, MANY = 24, 500  # random cases of the property test in `make test` and in `make test-all`
SLOWS = ("lstm", "rum", "eurnn", "goru")

every_slow = for_each("slow", SLOWS)


def inner(kind: str, pick: random.Random, normalized: bool, noisy: bool) -> functools.partial[RecurrentCell]:
    """Return what makes a fast or slow cell, with options of its own drawn."""
    zoneout = pick.choice([0.0, 0.2, 0.6]) if noisy else 0.0
    if kind == "lstm":
        noise = {
            "zoneout": zoneout,
            "zoneout_cell": pick.choice([0.0, 0.5]),
            "recurrent_dropout": pick.choice([0.0, 0.3]),
        }
        return partial(LSTMCell, layer_norm=normalized, bias=pick.random() < 0.7, **(noise if noisy else {}))
    if kind == "eurnn":
        return partial(EURNNCell, capacity=1, is_complex=pick.random() < 0.5, zoneout=zoneout)
    if kind == "goru":
        dropout = pick.choice([0.0, 0.3]) if noisy else 0.0
        return partial(GORUCell, layer_norm=normalized, zoneout=zoneout, recurrent_dropout=dropout)
    return partial(
        RUMCell,
        eta=pick.choice([None, 1.0]),
        activation=pick.choice(["relu", "tanh"]),
        update_gate=pick.random() < 0.7,
        layer_norm=normalized,
        zoneout=zoneout,
    )


class Case:
    """Random sizes and options, with weights, inputs, state and cotangents drawn in float64."""

    def __init__(self, seed: int, **fixed: Any) -> None:
        pick = random.Random(seed)
        sizes = {
            "steps": pick.choice([1, 2, 3, 5]),
            "batch": pick.choice([1, 2, 7, 8, 9, 17]),
            "inputs": pick.choice([1, 2, 5, 11]),
            "hidden": pick.choice([2, 3, 4, 7, 8, 9, 15, 16, 17, 33]),
            "slow_size": pick.choice([2, 3, 5, 8, 16, 17, 31]),
            "num_fast": pick.choice([2, 2, 3, 4]),
        }
        self.sizes = {key: fixed.pop(key, value) for key, value in sizes.items()}
        noisy, ragged, training = pick.random() < 0.5, pick.random() < 0.4, pick.random() < 0.5
        fast, slow = pick.choice(["lstm", "lstm", "lstm", "rum", "eurnn", "goru"]), pick.choice(SLOWS)
        normalized = pick.random() < 0.5
        noisy, ragged, normalized = (
            fixed.pop(name, value) for name, value in (("noisy", noisy), ("ragged", ragged), ("normalized", normalized))
        )
        self.training = fixed.pop("training", training)
        resets = fixed.pop("resets", None)  # the fraction of steps at which a row begins anew
        self.draws = noisy and self.training  # float32 and float64 draw different masks
        steps, batch, width, hidden, slow_size, num_fast = self.sizes.values()
        generator = torch.Generator().manual_seed(seed)
        self.draw = functools.partial(torch.randn, generator=generator, dtype=torch.float64)
        self.lengths = torch.randint(1, steps + 1, (batch,), generator=generator) if ragged else None
        self.starts = None if resets is None else torch.rand(steps, batch, generator=generator) < resets
        torch.manual_seed(seed)
        self.cell = FSRNNCell(
            width,
            hidden,
            inner(fixed.pop("fast", fast), pick, normalized, noisy),
            inner(fixed.pop("slow", slow), pick, normalized, noisy),
            slow_size=slow_size,
            num_fast=num_fast,
            dropout=0.3 if noisy else 0.0,
        ).double()
        assert not fixed
        for parameter in self.cell.parameters():
            parameter.data += 0.3 * self.draw(parameter.shape)
        self.inputs = self.draw(steps, batch, width)
        self.state = tree_map(lambda leaf: self.draw(leaf.shape), self.cell.init_state(batch))
        shapes = [(steps, batch, self.cell.output_size), *(leaf.shape for leaf in tree_leaves(self.state))]
        self.cotangents = [self.draw(shape) for shape in shapes]

    def __str__(self) -> str:
        ragged = self.lengths is not None
        return f"{self.cell} {self.sizes} training={self.training} draws={self.draws} ragged={ragged} {self.starts}"

    def results(self, backend: str, dtype: torch.dtype) -> dict[str, Tensor]:
        """Return outputs, final state and every gradient, in float64."""
        cell = copy.deepcopy(self.cell).to(dtype)
        model = Recurrent(lambda _: cell, 1, backend=backend).train(self.training)
        inputs = self.inputs.to(dtype, copy=True).requires_grad_()
        state = tree_map(lambda leaf: leaf.to(dtype, copy=True).requires_grad_(), self.state)
        torch.manual_seed(7)  # of the masks
        outputs, (final,) = model(inputs, (state,), self.lengths, self.starts)
        values = [outputs, *tree_leaves(final)]
        leaves = {"inputs": inputs, **{f"initial {i}": leaf for i, leaf in enumerate(tree_leaves(state))}}
        leaves |= dict(cell.named_parameters())
        cotangents = [cotangent.to(dtype) for cotangent in self.cotangents]
        gradients = torch.autograd.grad(values, list(leaves.values()), cotangents, materialize_grads=True)
        found = {"outputs": outputs, **{f"final {i}": value for i, value in enumerate(values[1:])}}
        found |= {f"gradient of {name}": gradient for name, gradient in zip(leaves, gradients, strict=True)}
        return {name: tensor.detach().double() for name, tensor in found.items()}


def error(result: Tensor, truth: Tensor) -> float:
    """Return ‖result − truth‖ / ‖truth‖; a truth below 1e-3 counts as that, since some gradients are zero by nature."""
    return (result - truth).norm().item() / max(truth.norm().item(), 1e-3)


def check_equal(case: Case) -> dict[str, Tensor]:
    """Compare the fused path with the loop in float64; return what the loop gives."""
    truth, fused = (case.results(backend, torch.float64) for backend in ("reference", "fused"))
    assert fused.keys() == truth.keys()
    for name, tensor in truth.items():
        assert error(fused[name], tensor) < 1e-9, f"{name} of {case}"
    return truth


def check_against_float64(seeds: range) -> None:
    """Compare the fused path with the loop: in float64 case by case, in float32 by its typical error."""

    def compared() -> Iterator[tuple[Any, ...]]:
        for case in map(Case, seeds):
            truth = check_equal(case)
            if not case.draws:
                yield case, truth, *(case.results(backend, torch.float32) for backend in ("fused", "reference"))

    always = {"outputs", "gradient of inputs", "gradient of initial 0", "gradient of initial 1"}
    check_float32(compared(), error, always)


def test_random_sizes_and_options() -> None:
    check_against_float64(range(FEW))


def test_random_resets() -> None:
    for seed in range(FEW // 4):
        check_equal(Case(seed, resets=[0.1, 0.5, 1.0][seed % 3]))


def test_an_empty_batch() -> None:
    for ragged in (False, True):
        for name, tensor in check_equal(Case(2, batch=0, ragged=ragged, resets=0.5)).items():
            assert tensor.sum() == 0, name


@pytest.mark.slow
def test_hundreds_of_random_resets() -> None:
    for seed in range(FEW, FEW + MANY):
        check_equal(Case(seed, resets=[0.01, 0.1, 0.5, 1.0][seed % 4]))


def test_a_learned_initial_state_within_the_step_is_refused() -> None:
    slow = partial(URNNCell, learned_initial_state=True)
    reason = FSRNNCell(3, 4, LSTMCell, slow).fused_unsupported_reason()
    assert reason == "slow: learned_initial_state has no fused path within another cell"


@pytest.mark.slow
def test_hundreds_of_random_sizes_and_options() -> None:
    check_against_float64(range(FEW, FEW + MANY))


@every_slow
def test_edges_of_the_blocks_and_vectors(slow: str) -> None:
    for batch, hidden in ((1, 2), (7, 17), (8, 3), (9, 16)):
        check_equal(Case(batch, slow=slow, steps=3, batch=batch, hidden=hidden, slow_size=19 - hidden, training=True))


def large_case(slow: str) -> Case:
    """Return a case whose weights exceed 512 KiB: all rows of a thread go through a step together."""
    case = Case(3, fast="lstm", slow=slow, steps=3, batch=17, hidden=100, slow_size=90, noisy=True, ragged=True)
    for parameter in case.cell.parameters():
        parameter.data *= 0.2
    return case


@pytest.mark.parametrize(("dtype", "large"), [(torch.float32, False), (torch.float64, True)], ids=["small", "large"])
@every_slow
def test_any_number_of_threads_gives_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, slow: str, large: bool, dtype: torch.dtype
) -> None:
    sizes = {"steps": 20, "batch": 37, "hidden": 21, "num_fast": 3}
    case = large_case(slow) if large else Case(4, fast="lstm", slow=slow, ragged=True, **sizes)
    cell = case.cell.to(dtype)
    # what the kernels themselves make: torch's products after them depend on the number of threads
    made: list[Tensor] = []
    run_kernel = fast_slow_cpu.backward

    def backward(a: Any, results: list[Any], saved: list[Any], *others: Any) -> dict[str, Any]:
        found = run_kernel(a, results, saved, *others)
        leaves = [*saved[: len(a.units)], *found["states"], *found["weights"][3::4]]
        made.extend(leaf.clone() for leaf in leaves if leaf is not None)
        return found

    monkeypatch.setattr(fast_slow_cpu, "backward", backward)
    found = []
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)  # torch itself has one
        made.clear()
        torch.manual_seed(7)
        state = tree_map(lambda leaf: leaf.to(dtype), case.state)
        outputs, (final,) = Recurrent(lambda _: cell, 1, backend="fused")(case.inputs.to(dtype), (state,), case.lengths)
        outputs.backward(case.cotangents[0].to(dtype))
        found.append([outputs.detach(), *(leaf.detach() for leaf in tree_leaves(final)), *made])
    for other in found[1:]:
        assert len(other) == len(found[0]) > 8
        assert all(torch.equal(one, two) for one, two in zip(found[0], other, strict=True))


@every_slow
def test_weights_beyond_the_cache(slow: str) -> None:
    check_equal(large_case(slow))


@pytest.mark.parametrize("size", ["whole", "lengths", "large"])
@every_slow
def test_uninitialized_memory_is_never_read(monkeypatch: pytest.MonkeyPatch, slow: str, size: str) -> None:
    options = {"normalized": True, "training": False, "resets": 0.2, "ragged": size == "lengths"}
    case = Case(5, slow=slow, steps=7, batch=19, num_fast=3, **options)
    if size == "large":
        case = large_case(slow)
        case.training = False
    clean = case.results("fused", torch.float64)
    called = poison(monkeypatch)
    again = case.results("fused", torch.float64)
    assert set(called) == {"empty", "empty_like", "new_empty"}
    for name, tensor in clean.items():
        assert torch.equal(again[name], tensor), name


@every_slow
def test_steps_beyond_the_lengths_change_nothing(slow: str) -> None:
    case = Case(6, fast="lstm", slow=slow, steps=6, batch=11, ragged=True, noisy=True, training=True, normalized=True)
    first = case.results("fused", torch.float64)
    padding = torch.arange(6)[:, None] >= case.lengths
    assert padding.any()
    case.inputs[padding] = 1e3
    case.cotangents[0][padding] = 1e3
    second = case.results("fused", torch.float64)
    for name, tensor in first.items():
        assert error(second[name], tensor) < 1e-13, name
    assert (first["outputs"][padding] == 0).all()
    assert (first["gradient of inputs"][padding] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_zeros_stay_finite_under_layer_normalization(dtype: torch.dtype) -> None:
    for slow in ("lstm", "rum", "goru"):
        cell = small(slow, dtype)
        with torch.no_grad():
            for name, parameter in cell.named_parameters():
                if "weight_ih" in name or "weight_hh" in name or "bias_" in name or name.endswith("slow.bias"):
                    parameter.zero_()
        model = Recurrent(lambda _, cell=cell: cell, 3, backend="fused")
        inputs = torch.zeros(6, 4, 3, dtype=dtype, requires_grad=True)
        outputs, _ = model(inputs)
        outputs.sum().backward()
        assert outputs.isfinite().all()
        assert all(p.grad.isfinite().all() for p in (inputs, *cell.parameters()))


def test_nan_stays_in_its_row() -> None:
    for slow in SLOWS:
        cell = small(slow)
        inputs = torch.randn(5, 9, 3)
        inputs[2, 1, 0] = torch.nan
        models = [Recurrent(lambda _, cell=cell: cell, 3, backend=backend) for backend in ("reference", "fused")]
        with torch.no_grad():
            reference, fused = (model(inputs)[0] for model in models)
        assert fused[:, [0, *range(2, 9)]].isfinite().all()
        assert fused[2:, 1].isnan().all()
        assert torch.equal(fused.isnan(), reference.isnan())


def small(slow: str, dtype: torch.dtype = torch.float32, num_fast: int = 3, **options: Any) -> FSRNNCell:
    pick = random.Random(2)
    return FSRNNCell(
        3,
        5,
        inner("lstm", pick, True, False),
        inner(slow, pick, True, False),
        slow_size=4,
        num_fast=num_fast,
        **options,
    ).to(dtype)


def test_nothing_leaks() -> None:
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("no /proc to read the size of this process from")
    pick = random.Random(2)
    cell = FSRNNCell(8, 16, inner("lstm", pick, True, False), inner("rum", pick, True, False), dropout=0.1)
    model = Recurrent(lambda _: cell, 8, backend="fused")
    inputs = torch.randn(10, 256, 8)

    def call(times: int) -> None:
        for _ in range(times):
            outputs, _ = model(inputs)
            outputs.sum().backward()
            model.zero_grad()
            with torch.no_grad():
                model(inputs)

    def resident() -> int:
        gc.collect()
        return int(statm.read_text(encoding="utf-8").split()[1]) * 4096

    call(5)
    before = resident()
    call(20)
    # the outputs of one call take at least 160 KiB
    assert resident() - before < 2e6


# ---------------------------------------------------------------- autograd


@every_slow
def test_a_second_backward_over_the_same_graph_gives_the_same(slow: str) -> None:
    model = Recurrent(lambda _: small(slow, dropout=0.2), 3, backend="fused")
    inputs = torch.randn(6, 9, 3, requires_grad=True)
    other = torch.randn(6, 9, 3)
    outputs, (final,) = model(inputs)
    values = [outputs, *tree_leaves(final)]
    cotangents = [torch.randn_like(value) for value in values]
    leaves = [inputs, *model.parameters()]
    first = torch.autograd.grad(values, leaves, cotangents, retain_graph=True, materialize_grads=True)
    for _ in range(2):
        model(other)[0].sum().backward()  # writes over whatever memory the first backward gave back
        again = torch.autograd.grad(values, leaves, cotangents, retain_graph=True, materialize_grads=True)
        assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))


@every_slow
def test_two_graphs_at_once_do_not_share_memory(slow: str) -> None:
    model = Recurrent(lambda _: small(slow), 3, backend="fused")
    batches = [torch.randn(6, 4, 3, requires_grad=True) for _ in range(3)]
    alone = [torch.autograd.grad(model(batch)[0].sin().sum(), batch)[0] for batch in batches]
    together = [model(batch)[0].sin().sum() for batch in batches]
    for batch, total, expected in zip(batches, together, alone, strict=True):
        assert torch.equal(torch.autograd.grad(total, batch)[0], expected)


@every_slow
def test_each_value_may_be_differentiated_alone(slow: str) -> None:
    cell = small(slow, torch.float64)
    inputs = torch.randn(4, 3, 3, dtype=torch.float64)
    for index in range(1 + len(tree_leaves(cell.init_state(1)))):
        found = []
        for backend in ("reference", "fused"):
            x = inputs.clone().requires_grad_()
            outputs, (final,) = Recurrent(lambda _: cell, 3, backend=backend)(x)
            total = (outputs, *tree_leaves(final))[index].sum()  # its gradient is one number that lies in memory once
            found.append(torch.autograd.grad(total, [x, *cell.parameters()], materialize_grads=True))
        for one, two in zip(*found, strict=True):
            torch.testing.assert_close(two, one, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("normalized", [False, True])
def test_second_derivatives(normalized: bool) -> None:
    for seed, (fast, slow) in enumerate((("lstm", "rum"), ("rum", "eurnn"), ("eurnn", "lstm"), ("goru", "goru"))):
        sizes = {"steps": 3, "batch": 2, "hidden": 4, "slow_size": 3, "num_fast": 3}
        case = Case(seed, fast=fast, slow=slow, **sizes, noisy=False, ragged=True, normalized=normalized, resets=0.2)
        found = []
        for backend in ("reference", "fused"):
            inputs = case.inputs.clone().requires_grad_()
            outputs, _ = Recurrent(lambda _, cell=case.cell: cell, 1, backend=backend)(
                inputs, (case.state,), case.lengths, case.starts
            )
            leaves = [inputs, *case.cell.parameters()]
            first = torch.autograd.grad(
                outputs.sin().sum(), leaves, create_graph=True, materialize_grads=True, allow_unused=True
            )
            total = sum(gradient.sin().sum() for gradient in first)
            found.append([*first, *torch.autograd.grad(total, leaves, materialize_grads=True, allow_unused=True)])
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)


@every_slow
def test_without_a_graph_the_values_are_the_same(slow: str) -> None:
    model = Recurrent(lambda _: small(slow), 3, backend="fused")
    inputs = torch.randn(6, 9, 3)
    outputs, (final,) = model(inputs)
    assert outputs.requires_grad
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            others, (last,) = model(inputs)
            again, _ = model(inputs, (last,))
        assert not others.requires_grad
        assert again.isfinite().all()
        for one, two in zip((outputs, *tree_leaves(final)), (others, *tree_leaves(last)), strict=True):
            assert torch.equal(one, two)
        model(inputs)[0].sum().backward()  # a graph can be made afterwards


def test_frozen_parameters_and_inputs_get_no_gradient() -> None:
    cell = small("rum", torch.float64)
    model = Recurrent(lambda _: cell, 3, backend="fused")
    inputs = torch.randn(4, 3, 3, dtype=torch.float64)
    model(inputs)[0].sum().backward()
    expected = cell.slow.weight_hh.grad.clone()
    model.zero_grad()
    for parameter in cell.parameters():
        parameter.requires_grad_(parameter is cell.slow.weight_hh)
    model(inputs)[0].sum().backward()
    torch.testing.assert_close(cell.slow.weight_hh.grad, expected, rtol=1e-12, atol=1e-12)
    assert all(parameter.grad is None for parameter in cell.parameters() if parameter is not cell.slow.weight_hh)


@for_each("inside", [False, True])
@every_slow
def test_autocast_leaves_the_state_in_the_type_of_the_parameters(slow: str, inside: bool) -> None:
    cell = small(slow)
    model = Recurrent(lambda _: cell, 3, backend="fused")
    inputs = torch.randn(6, 4, 3).bfloat16()
    found = []
    for half in (True, False):
        x = inputs.clone().requires_grad_() if half else inputs.float().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            _, carried = model(x.detach())
            outputs, (final,) = model(x, carried)
        assert outputs.dtype == torch.float32
        assert all(leaf.dtype == torch.float32 for leaf in tree_leaves(final))
        with torch.autocast("cpu", torch.bfloat16, enabled=half and inside):
            gradients = torch.autograd.grad(outputs.sum(), [x, *cell.parameters()], materialize_grads=True)
        found.append([outputs, *gradients])
    assert found[0][1].dtype == torch.bfloat16
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other.to(one.dtype))


# ---------------------------------------------------------------- what is handed in


@every_slow
def test_tensors_may_have_any_memory_layout(slow: str) -> None:
    cell = small(slow, torch.float64)
    model = Recurrent(lambda _: cell, 3, backend="fused")
    inputs = torch.randn(6, 9, 3, dtype=torch.float64)
    state = tree_map(torch.randn_like, cell.init_state(9))

    def run(scatter: bool) -> list[Tensor]:
        def place(tensor: Tensor) -> Tensor:
            placed = tensor.mT.contiguous().mT if scatter else tensor.clone()
            assert placed.is_contiguous() is not scatter
            return placed.requires_grad_()

        x, start = place(inputs), tree_map(place, state)
        outputs, (final,) = model(x, (start,))
        values = [outputs, *tree_leaves(final)]
        cotangents = [place(value.detach().cos()).detach() for value in values]
        leaves = [x, *tree_leaves(start), *cell.parameters()]
        return [*values, *torch.autograd.grad(values, leaves, cotangents, materialize_grads=True)]

    for one, other in zip(run(False), run(True), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_a_state_that_does_not_fit_never_reaches_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would read and write beyond its end."""
    cell = small("lstm")
    model = Recurrent(lambda _: cell, 3, backend="fused")
    reached = []
    monkeypatch.setattr(fast_slow_cpu, "forward", reached.append)
    for change in (
        lambda leaf: leaf[:1],
        lambda leaf: leaf[:, :2],
        lambda leaf: torch.cat((leaf, leaf)),
        Tensor.double,
    ):
        with pytest.raises((ValueError, TypeError)):
            model(torch.randn(6, 4, 3), (tree_map(change, cell.init_state(4)),))
    assert reached == []


def test_the_angles_of_a_slow_rum_are_recorded() -> None:
    cell = small("rum", torch.float64)
    inputs = torch.randn(6, 4, 3, dtype=torch.float64)
    found = []
    for backend in ("reference", "fused"):
        with cell.slow.record_cosines() as cosines, torch.no_grad():
            Recurrent(lambda _: cell, 3, backend=backend)(inputs)
        found.append(torch.stack(cosines))
    assert found[0].shape == (6, 4)
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------- the library


def test_without_a_compiler_the_reference_runs_and_logs_the_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def load(source: Path) -> ctypes.CDLL:
        raise KernelUnavailableError(f"no compiler for {source.name}")

    monkeypatch.setattr(library, "load", load)
    look_again(monkeypatch)
    with caplog.at_level(logging.INFO, "gyral"):
        model = Recurrent(lambda _: small("rum"), 3)
    assert model.backend == "reference"
    assert "no compiler for gated.cpp" in caplog.records[0].getMessage()
    assert model(torch.randn(4, 2, 3))[0].isfinite().all()
    with pytest.raises(OptionError, match=r"^backend=fused: fast: no compiler for gated\.cpp; allowed here: .*$"):
        Recurrent(lambda _: small("rum"), 3, backend="fused")


def test_a_cell_without_kernels_is_named() -> None:
    lstm = partial(LSTMCell, layer_norm=True)
    refused = {
        "slow: RUM with λ = 1 has no fused path within another cell; λ = 0 has one": (
            lstm,
            partial(RUMCell, lambd=1.0),
        ),
        "slow: recurrent_dropout has no fused path": (lstm, partial(RUMCell, recurrent_dropout=0.1)),
        "fast: GRUCell has no fused path within another cell": (GRUCell, lstm),
    }
    for reason, (fast, slow) in refused.items():
        cell = FSRNNCell(3, 5, fast, slow)
        assert cell.fused_unsupported_reason() == reason
        assert Recurrent(lambda _, cell=cell: cell, 3).backend == "reference"
    assert small("lstm").fused_unsupported_reason() is None
    assert (
        small("lstm", torch.bfloat16).fused_unsupported_reason()
        == "fast: there are no kernels for torch.bfloat16 on cpu"
    )
    assert fast_slow.unsupported_reason(torch.empty(3, device="meta")) == "there are no kernels for meta"
