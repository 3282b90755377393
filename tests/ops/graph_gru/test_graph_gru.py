"""The kernels of `gyral.ops.graph_gru` on the CPU against the equations in numpy and the loop in plain torch."""

import functools
import platform
import random
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gyral.ops import graph_gru
from gyral.ops.graph_gru import cpu, naive
from tests.helpers.kernels import compile_for, skip_without
from tests.helpers.loops import for_each
from tests.helpers.memory import poison

compiled = skip_without(cpu.prepare, torch.device("cpu"))

FEW, MANY = 10, 500  # random cases of the property test in `make test` and in `make test-all`
NAMES = ("inputs", "weight_ih", "weight_hh", "bias", "memory")


class Case:
    """Random sizes and options, with weights, inputs, edges, masks, memory and cotangents drawn in float64."""

    def __init__(self, seed: int, **fixed: Any) -> None:
        pick = random.Random(seed)
        drawn = {
            "steps": pick.choice([1, 2, 3, 5, 9, 20]),
            "batch": pick.choice([1, 2, 7, 8, 9, 17]),
            "inputs": pick.choice([1, 2, 7]),
            "first": pick.choice([1, 3, 4, 8, 16, 33]),
            "edge_size": pick.choice([1, 2, 4, 7, 16, 17, None]),
            "edge_types": pick.choice([1, 1, 2, 3]),
            "slots": pick.choice([1, 1, 2, 3]),
            "share": pick.choice([0.0, 0.1, 0.5, 1.0]),
            "edges": pick.random() < 0.85,
            "capacity": pick.choice([1, 2, 5, 20]),
            "final": pick.choice([None, None, 1, 3, 24]),
            "carry": pick.choice(["previous", "linked"]),
            "ragged": pick.random() < 0.4,
            "resets": pick.choice([0.0, 0.0, 0.1, 0.5]),
            "bias": pick.random() < 0.8,
            "wild": pick.random() < 0.2,
        }
        assert fixed.keys() <= drawn.keys()
        drawn |= fixed
        if drawn["edge_size"] is None:
            drawn["carry"] = "previous"
        self.options = drawn
        steps, batch, types, size = drawn["steps"], drawn["batch"], drawn["edge_types"], drawn["edge_size"]
        generator = torch.Generator().manual_seed(seed)
        draw = functools.partial(torch.randn, generator=generator, dtype=torch.float64)
        share = functools.partial(torch.rand, generator=generator)
        self.lengths = torch.randint(1, steps + 1, (batch,), generator=generator) if drawn["ragged"] else None
        self.starts = share(steps, batch) < drawn["resets"] if drawn["resets"] else None
        units = drawn["first"] + (0 if size is None else types * size)
        gathered = units * (types + 1) if size is None else units
        shape = steps, batch, types, drawn["slots"]
        self.earlier = None
        if drawn["edges"]:
            reach = torch.arange(steps).view(-1, 1, 1, 1) + drawn["capacity"] + 2  # some reach too far
            present = share(shape) < drawn["share"]
            self.earlier = (1 + share(shape) * reach).long() * present
            if drawn["wild"]:
                extreme = torch.tensor([-1, -5, 2**40, 2**63 - 1, -(2**63)])
                picked = extreme[torch.randint(5, shape, generator=generator)]
                self.earlier = torch.where(share(shape) < 0.3, picked, self.earlier)
        self.tensors = {
            "inputs": draw(steps, batch, drawn["inputs"]),
            "weight_ih": 0.5 * draw(3 * units, drawn["inputs"]),
            "weight_hh": draw(3 * units, gathered) / units**0.5,
            "bias": 0.3 * draw(3 * units) if drawn["bias"] else None,
            "memory": draw(batch, drawn["capacity"], units),
        }
        self.cotangents = [draw(steps, batch, units), draw(batch, drawn["final"] or drawn["capacity"], units)]
        self.keywords = {
            "edge_types": types,
            "edge_size": size,
            "carry": drawn["carry"],
            "capacity": drawn["final"],
            "lengths": self.lengths,
            "starts": self.starts,
        }

    def __str__(self) -> str:
        return str(self.options)

    def leaves(self, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
        found = {name: tensor for name, tensor in self.tensors.items() if tensor is not None}
        return {name: tensor.detach().to(dtype, copy=True).requires_grad_() for name, tensor in found.items()}

    def run(self, is_fused: bool, leaves: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return outputs and the new memory."""
        given = [leaves.get(name) for name in NAMES]
        operator = graph_gru.OPERATOR if is_fused else naive.graph_gru
        with mock.patch.object(graph_gru, "OPERATOR", operator):
            return graph_gru.graph_gru(*given, self.earlier, **self.keywords)

    def results(self, is_fused: bool = True, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
        """Return outputs, the new memory and every gradient, in float64."""
        leaves = self.leaves(dtype)
        values = self.run(is_fused, leaves)
        cotangents = [cotangent.to(dtype) for cotangent in self.cotangents]
        gradients = torch.autograd.grad(values, list(leaves.values()), cotangents)
        found = {f"gradient of {name}": gradient for name, gradient in zip(leaves, gradients, strict=True)}
        found |= {"outputs": values[0], "memory": values[1]}
        return {name: tensor.detach().double() for name, tensor in found.items()}


def run_numpy(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """Return outputs and the new memory: the equations, one unit and one edge at a time."""
    x, weight_ih, weight_hh, memory = (case.tensors[name].numpy() for name in ("inputs", *NAMES[1:3], "memory"))
    steps, batch, _ = x.shape
    capacity, units = memory.shape[1:]
    types, size, first = case.options["edge_types"], case.options["edge_size"], case.options["first"]
    bias = np.zeros(3 * units) if case.tensors["bias"] is None else case.tensors["bias"].numpy()
    kept = case.options["final"] or capacity
    outputs, final = np.zeros((steps, batch, units)), np.zeros((batch, kept, units))

    def sigma(value: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-value))

    for row in range(batch):
        past = list(memory[row])
        for time in range(steps if case.lengths is None else int(case.lengths[row])):
            if case.starts is not None and case.starts[time, row]:
                past = [np.zeros(units) for _ in past]
            slices = [past[-1] if size is None else past[-1][:first]]
            for kind in range(types):
                total = np.zeros(units)
                for distance in [] if case.earlier is None else case.earlier[time, row, kind].tolist():
                    if 0 < distance <= len(past):
                        total += past[-distance]
                begin = first + kind * (size or 0)
                slices.append(total if size is None else total[begin : begin + size])
            linked = np.concatenate(slices)
            p, q = weight_ih @ x[time, row] + bias, weight_hh @ linked
            r, z = sigma(p[:units] + q[:units]), sigma(p[units : 2 * units] + q[units : 2 * units])
            n = np.tanh(p[2 * units :] + r * q[2 * units :])
            carried = linked if case.options["carry"] == "linked" else past[-1]
            outputs[time, row] = (1 - z) * n + z * carried
            past.append(outputs[time, row])
        past = past[-kept:]
        final[row, kept - len(past) :] = past
    return outputs, final


def error(result: Tensor, truth: Tensor) -> float:
    """Return ‖result − truth‖ / ‖truth‖; a truth below 1e-3 counts as that, since some gradients are zero by nature."""
    return (result - truth).norm().item() / max(truth.norm().item(), 1e-3)


def check_equal(case: Case) -> None:
    """Compare kernels and loop in float64: values, and the gradients of all leaves."""
    truth, fused = case.results(False), case.results()
    assert fused.keys() == truth.keys()
    for name, tensor in truth.items():
        assert error(fused[name], tensor) < 1e-10, f"{name} of {case}"


# ---------------------------------------------------------------- values and gradients


def test_random_sizes_and_options() -> None:
    for seed in range(FEW):
        check_equal(Case(seed))


@pytest.mark.slow
def test_hundreds_of_random_sizes_and_options() -> None:
    for seed in range(FEW, FEW + MANY):
        check_equal(Case(seed))


def test_the_loop_has_the_equations() -> None:
    for seed in range(FEW):
        case = Case(seed)
        values, truth = case.run(False, case.leaves()), run_numpy(case)
        for value, true in zip(values, truth, strict=True):
            np.testing.assert_allclose(value.detach().numpy(), true, rtol=0, atol=1e-12, err_msg=str(case))


@pytest.mark.slow
def test_float32_is_as_exact_as_the_loop() -> None:
    ratios: dict[str, list[float]] = {}
    for seed in range(MANY // 2):
        case = Case(seed)
        truth, fused, plain = (
            case.results(False),
            *(case.results(is_fused, torch.float32) for is_fused in (True, False)),
        )
        for name, tensor in truth.items():
            own, allowed = (max(error(results[name], tensor), 1e-7) for results in (fused, plain))
            ratios.setdefault(name, []).append(own / allowed)
    for name, values in ratios.items():
        assert torch.tensor(values).log().mean().exp() <= 2, name


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the processors are those of x86-64")
@pytest.mark.parametrize("processor", ["x86-64", "x86-64-v3"])
def test_other_processors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, processor: str) -> None:
    """Vectors of 16 and 32 bytes, in the place of those of this machine."""
    compile_for(monkeypatch, tmp_path, f"-march={processor}")
    for seed in range(100):
        check_equal(Case(seed))
    assert len(list(tmp_path.glob("graph_gru-*.so"))) == 1


def test_without_edges_it_is_a_gru() -> None:
    torch.manual_seed(0)
    layer = nn.GRU(5, 12).double()
    with torch.no_grad():
        layer.bias_hh_l0.zero_()
    inputs, hidden = torch.randn(9, 4, 5, dtype=torch.float64), torch.randn(4, 12, dtype=torch.float64)
    expected, _ = layer(inputs, hidden.unsqueeze(0))
    weights = [tensor.detach() for tensor in (layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0)]
    weights[1] = torch.cat((weights[1], torch.full_like(weights[1], 3.0)), dim=1)  # meets only zeros
    for edges in (None, torch.zeros(9, 4, 1, 2, dtype=torch.int32)):
        outputs, _ = graph_gru.graph_gru(inputs, *weights, hidden.unsqueeze(1), edges, edge_types=1, edge_size=None)
        torch.testing.assert_close(outputs, expected, rtol=1e-12, atol=1e-12)


def test_the_order_of_edges_within_a_step_changes_nothing() -> None:
    case = Case(3, steps=9, batch=5, edges=True, slots=4, share=0.6, wild=False)
    expected = case.results()
    order = torch.randperm(4, generator=torch.Generator().manual_seed(0))
    assert case.earlier is not None
    case.earlier = case.earlier[..., order]
    for name, tensor in case.results().items():
        assert error(tensor, expected[name]) < 1e-13, name


def test_a_sequence_in_two_pieces_equals_the_whole() -> None:
    for seed, carry, size in ((0, "previous", 4), (1, "linked", 4), (2, "previous", None)):
        case = Case(
            seed,
            steps=9,
            batch=9,
            edges=True,
            carry=carry,
            edge_size=size,
            capacity=20,
            final=None,
            resets=0.2,
            ragged=False,
        )
        assert case.earlier is not None
        case.earlier = case.earlier.clamp(0, 20)  # a longer edge depends on what else is in the memory
        leaves = case.leaves()
        whole, final = case.run(True, leaves)
        memory, pieces = leaves["memory"], []
        for piece in (slice(0, 4), slice(4, 9)):
            assert case.starts is not None
            keywords = case.keywords | {"starts": case.starts[piece]}
            given = [leaves["inputs"][piece], *(leaves.get(name) for name in NAMES[1:4]), memory]
            outputs, memory = graph_gru.graph_gru(*given, case.earlier[piece], **keywords)
            pieces.append(outputs)
        torch.testing.assert_close(torch.cat(pieces), whole, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(memory, final, rtol=1e-12, atol=1e-12)


def test_steps_beyond_the_lengths_change_nothing() -> None:
    case = Case(6, steps=6, batch=11, ragged=True, edges=True, share=0.5)
    first = case.results()
    padding = torch.arange(6)[:, None] >= case.lengths
    assert padding.any()
    assert case.earlier is not None
    case.tensors["inputs"][padding] = 1e3
    case.earlier[padding] = 2
    case.cotangents[0][padding] = 1e3
    second = case.results()
    for name, tensor in first.items():
        assert error(second[name], tensor) < 1e-13, name
    assert (first["outputs"][padding] == 0).all()
    assert (first["gradient of inputs"][padding] == 0).all()


def test_an_empty_batch() -> None:
    results = Case(2, batch=0, steps=3, ragged=True, resets=0.5, edges=True).results()
    assert all(tensor.sum() == 0 for tensor in results.values())


def test_nan_stays_in_its_row() -> None:
    case = Case(7, steps=6, batch=9, edges=True, share=0.5, resets=0.0, ragged=False)
    case.tensors["inputs"][2, 1, 0] = torch.nan
    outputs = [case.run(is_fused, case.leaves())[0] for is_fused in (False, True)]
    assert outputs[1][:, [0, *range(2, 9)]].isfinite().all()
    assert outputs[1][2:, 1].isnan().all()
    assert torch.equal(*(one.isnan() for one in outputs))


# ---------------------------------------------------------------- memory and threads

LARGE: dict[str, Any] = {"first": 150, "edge_size": None, "edge_types": 2}  # weights beyond 512 KiB: all rows together
every_size = for_each("sizes", [{"edge_size": 4}, {"edge_size": None}, LARGE])


@every_size
def test_uninitialized_memory_is_never_read(monkeypatch: pytest.MonkeyPatch, sizes: dict[str, Any]) -> None:
    given: Any = {"steps": 7, "batch": 19, "ragged": True, "resets": 0.2, "edges": True, "share": 0.1, "slots": 2}
    for carry in ("previous", "linked"):
        case = Case(5, **given, carry=carry, **sizes)
        clean = case.results()
        with monkeypatch.context() as patch:
            called = poison(patch)
            again = case.results()
        assert set(called) == {"empty", "new_empty"}
        for name, tensor in clean.items():
            assert torch.equal(again[name], tensor), name


@every_size
def test_any_number_of_threads_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch, sizes: dict[str, Any]) -> None:
    case = Case(8, steps=7, batch=37, ragged=True, resets=0.2, edges=True, share=0.1, **sizes)
    found = []
    for threads in (1, 2, 3, 1):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)  # torch itself has one
        found.append(case.results())
    for other in found[1:]:
        for name, tensor in found[0].items():
            assert torch.equal(other[name], tensor), name
    truth = case.results(False)
    for name, tensor in truth.items():
        assert error(found[0][name], tensor) < 1e-10, name


def test_memory_is_linear_in_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    allocate = cpu.allocate

    def counted(a: Any) -> tuple[list[Any], list[Any]]:
        results, saved = allocate(a)
        sizes.append(sum(tensor.numel() for tensor in (*results, *saved)))
        return results, saved

    monkeypatch.setattr(cpu, "allocate", counted)
    for steps in (100, 200, 400):
        case = Case(0, steps=steps, batch=2, edges=True, first=3, edge_size=2, capacity=5)
        case.run(True, case.leaves())
    assert sizes[2] - sizes[1] == 2 * (sizes[1] - sizes[0])
    assert sizes[2] <= 4 * sizes[0]


# ---------------------------------------------------------------- autograd


def derivatives(values: Any, leaves: list[Tensor], **options: Any) -> tuple[Tensor, ...]:
    total = sum(value.sin().sum() for value in values)
    return torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True, **options)


def check_second_derivatives(seed: int, **options: Any) -> None:
    case = Case(seed, **{"steps": 5, "batch": 2, "inputs": 2, "first": 2, "capacity": 3, "wild": False} | options)
    found = []
    for is_fused in (True, False):
        leaves = case.leaves()
        values, flat = case.run(is_fused, leaves), list(leaves.values())
        alone = derivatives(values, flat, retain_graph=True)
        first = derivatives(values, flat, create_graph=True)
        found.append([*values, *alone, *first, *derivatives(first, flat)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@for_each("given", [("previous", 2), ("linked", 2), ("previous", None)])
def test_second_derivatives_equal_the_loop(given: tuple[str, int | None]) -> None:
    carry, size = given
    check_second_derivatives(1, carry=carry, edge_size=size, edges=True, share=0.5, resets=0.2, ragged=True)


@pytest.mark.slow
def test_second_derivatives_for_many_options() -> None:
    for seed in range(60):
        check_second_derivatives(seed)


@pytest.mark.slow
@pytest.mark.parametrize(("carry", "size"), [("previous", 2), ("linked", 2), ("previous", None)])
def test_gradients_equal_finite_differences(carry: str, size: int | None) -> None:
    sizes = {"steps": 4, "batch": 2, "inputs": 2, "first": 2, "edge_types": 2, "capacity": 2, "slots": 2}
    given: Any = {"edges": True, "share": 0.6, "ragged": True, "resets": 0.2, "wild": False}
    case = Case(1, carry=carry, edge_size=size, **sizes, **given)
    leaves = case.leaves()

    def function(*flat: Tensor) -> tuple[Tensor, Tensor]:
        return case.run(True, dict(zip(leaves, flat, strict=True)))

    assert torch.autograd.gradcheck(function, list(leaves.values()))


def test_a_second_backward_over_the_same_graph_gives_the_same() -> None:
    case, other = Case(4, steps=6, batch=9, edges=True), Case(9, steps=6, batch=9, edges=True)
    leaves = case.leaves()
    values, flat = case.run(True, leaves), list(leaves.values())
    first = torch.autograd.grad(values, flat, case.cotangents, retain_graph=True)
    for _ in range(2):
        other.results()  # writes over whatever memory the first backward gave back
        again = torch.autograd.grad(values, flat, case.cotangents, retain_graph=True)
        assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))


def test_each_value_may_be_differentiated_alone() -> None:
    case = Case(4, steps=6, batch=3, edges=True, capacity=2)
    for index in (0, 1):
        found = []
        for is_fused in (False, True):
            leaves = case.leaves()
            total = case.run(is_fused, leaves)[index].sum()  # its gradient is one number that lies in memory once
            found.append(torch.autograd.grad(total, list(leaves.values())))
        for one, two in zip(*found, strict=True):
            torch.testing.assert_close(two, one, rtol=1e-9, atol=1e-9)


def test_without_a_graph_the_values_are_the_same() -> None:
    case = Case(4, steps=6, batch=9, edges=True)
    found = case.run(True, case.leaves())
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            others = case.run(True, case.leaves())
        assert not others[0].requires_grad
        assert all(torch.equal(one, two) for one, two in zip(found, others, strict=True))
    case.results()  # a graph can be made afterwards


def test_frozen_leaves_get_no_gradient() -> None:
    case = Case(4, steps=6, batch=3, edges=True, bias=True)
    expected = case.results()
    leaves = {name: leaf.requires_grad_(name == "weight_hh") for name, leaf in case.leaves().items()}
    torch.autograd.backward(case.run(True, leaves), case.cotangents)
    assert error(leaves["weight_hh"].grad, expected["gradient of weight_hh"]) < 1e-13
    assert all(leaf.grad is None for name, leaf in leaves.items() if name != "weight_hh")


def test_autocast_leaves_the_memory_in_the_type_of_the_parameters() -> None:
    case = Case(4, steps=6, batch=3, edges=True)
    leaves = {name: leaf.detach() for name, leaf in case.leaves(torch.float32).items()}
    leaves["inputs"] = leaves["inputs"].bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        values = case.run(True, leaves)
    leaves["inputs"] = leaves["inputs"].float()
    for one, other in zip(values, case.run(True, leaves), strict=True):
        assert torch.equal(one, other)
    leaves["inputs"] = leaves["inputs"].double()
    with pytest.raises(TypeError, match=r"must have the dtype of the parameters, torch\.float32"):
        case.run(True, leaves)


def test_tensors_may_have_any_memory_layout() -> None:
    case = Case(7, steps=5, batch=3, edges=True, ragged=True, resets=0.2, bias=True)
    expected = case.results()

    def place(tensor: Tensor) -> Tensor:
        return tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor.repeat_interleave(2)[::2]

    assert case.earlier is not None
    case.tensors = {name: place(tensor) for name, tensor in case.tensors.items() if tensor is not None}
    case.earlier = place(case.earlier).int() if case.earlier.abs().max() < 2**31 else place(case.earlier)
    case.cotangents = [place(tensor) for tensor in case.cotangents]
    case.keywords |= {name: place(case.keywords[name]) for name in ("lengths", "starts")}
    for name, tensor in case.results().items():
        assert error(tensor, expected[name]) < 1e-13, name


# ---------------------------------------------------------------- what is refused


def test_edges_of_another_shape_are_refused() -> None:
    case = Case(0, steps=3, batch=2, edge_types=2, edges=True, edge_size=2)
    assert case.earlier is not None
    case.earlier = case.earlier[:, :, :1]
    with pytest.raises(ValueError, match=r"earlier must be \(3, 2, 2\) × D, not \(3, 2, 1, "):
        case.run(True, case.leaves())


def test_all_units_cannot_be_carried_for_several_types() -> None:
    case = Case(0, edge_size=None)
    case.keywords["carry"] = "linked"
    with pytest.raises(ValueError, match=r'carry="linked" needs an edge_size'):
        case.run(True, case.leaves())


def test_a_cell_without_kernels_gives_the_reason() -> None:
    assert graph_gru.unsupported_reason(torch.zeros(1)) is None
    assert graph_gru.unsupported_reason(torch.zeros(1).half()) == "there are no kernels for torch.float16 on cpu"
