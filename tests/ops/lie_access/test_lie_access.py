"""The kernels of `gyral.ops.lie_access` on the CPU against the loop over `LANTMCell.step`."""

import copy
import functools
import platform
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from gyral.cells.gru import GRUCell
from gyral.cells.inputs import MaskedInputs
from gyral.cells.lantm import LANTMCell
from gyral.cells.lstm import LSTMCell
from gyral.core.errors import OptionError
from gyral.nn.recurrent import Recurrent
from gyral.ops import lie_access
from gyral.ops.lie_access import cpu, naive
from tests.helpers.kernels import compile_for, skip_without
from tests.helpers.loops import for_each
from tests.helpers.memory import poison

compiled = skip_without(cpu.prepare, torch.device("cpu"))

FEW, MANY = 8, 500  # random cases of the property test in `make test` and in `make test-all`
GROUPS = ("translation", "rotation", "scaling_rotation")
WEIGHTINGS = ("inv_norm", "softmax")

every_group = pytest.mark.parametrize("group", GROUPS)
every_weighting = pytest.mark.parametrize("weighting", WEIGHTINGS)


class Case:
    """Random sizes and options, with weights, inputs, masks, state and cotangents drawn in float64."""

    def __init__(self, seed: int, **fixed: Any) -> None:
        pick = random.Random(seed)
        drawn = {
            "steps": pick.choice([1, 2, 3, 5, 9, 20]),
            "batch": pick.choice([1, 2, 7, 8, 9, 17]),
            "inputs": pick.choice([1, 2, 7]),
            "hidden": pick.choice([1, 3, 4, 8, 15, 17, 33]),
            "width": pick.choice([1, 2, 3, 4, 5, 8, 20]),
            "capacity": pick.choice([1, 2, 5, 17, 40]),
            "ragged": pick.random() < 0.4,
            "masked": pick.random() < 0.6,
            "resets": pick.choice([0.0, 0.0, 0.1, 0.5]),
            "begun": pick.random() < 0.5,
            "forget": pick.random(),
            "group": pick.choice(GROUPS),
            "weighting": pick.choice(WEIGHTINGS),
            "normalize_steps": pick.random() < 0.5,
            "bias": pick.random() < 0.8,
            "interpolate_steps": pick.random() < 0.7,
            "read_first": pick.random() < 0.4,
        }
        assert fixed.keys() <= drawn.keys()
        self.options = drawn = drawn | fixed
        steps, batch, capacity = drawn["steps"], drawn["batch"], drawn["capacity"]
        generator = torch.Generator().manual_seed(seed)
        self.draw = functools.partial(torch.randn, generator=generator, dtype=torch.float64)
        share = functools.partial(torch.rand, generator=generator)
        self.lengths = torch.randint(1, steps + 1, (batch,), generator=generator) if drawn["ragged"] else None
        self.starts = share(steps, batch) < drawn["resets"] if drawn["resets"] else None
        self.write = share(steps, batch) < 0.6 if drawn["masked"] else None
        torch.manual_seed(seed)
        self.cell = LANTMCell(
            drawn["inputs"],
            drawn["hidden"],
            controller=functools.partial(LSTMCell, bias=drawn["bias"]),
            width=drawn["width"],
            group=drawn["group"],
            weighting=drawn["weighting"],
            normalize_steps=drawn["normalize_steps"],
            interpolate_steps=drawn["interpolate_steps"],
            read_first=drawn["read_first"],
            write_gate_bias=0.0,
            capacity=capacity,
            forget=max(1, round(drawn["forget"] * capacity)),
        ).double()
        for parameter in self.cell.parameters():
            parameter.data += 0.3 * self.draw(parameter.shape)
        self.inputs = self.draw(steps, batch, drawn["inputs"])
        state = tree_map(Tensor.detach, self.cell.init_state(batch))
        state = tree_map(lambda leaf: self.draw(leaf.shape) if leaf.is_floating_point() else leaf, state)
        count = torch.randint(0, capacity + 1, (batch,), generator=generator) if drawn["begun"] else state.count
        state = state._replace(strengths=state.strengths.sigmoid(), count=count)
        self.state = state._replace(**filled_part(state))
        shapes = [(steps, batch, drawn["hidden"]), *(leaf.shape for leaf in tree_leaves(state)[:-1])]
        self.cotangents = [self.draw(shape) for shape in shapes]

    def __str__(self) -> str:
        return str(self.options)

    def results(self, backend: str, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
        """Return outputs, final state and every gradient, in float64. Slots that hold no vector count as zero."""
        cell = copy.deepcopy(self.cell).to(dtype)
        inputs = self.inputs.to(dtype, copy=True).requires_grad_()
        state = tree_map(lambda leaf: leaf.to(dtype, copy=True).requires_grad_(), self.state[:-1])
        state = cell.State(*state, self.state.count)
        model = Recurrent(lambda _: cell, 1, backend=backend)
        outputs, (final,) = model(MaskedInputs(inputs, self.write), (state,), self.lengths, self.starts)
        values = [outputs, *tree_leaves(final)[:-1]]
        weights = cell.State(*[torch.tensor(0.0)] * 6, *self.cotangents[-3:], final.count)
        cotangents = [*self.cotangents[:-3], *filled_part(weights).values()]
        leaves = {"inputs": inputs, **dict(cell.named_parameters())}
        leaves |= {f"initial {index}": leaf for index, leaf in enumerate(tree_leaves(state)[:-4])}
        leaves |= {name: getattr(state, name) for name in ("keys", "vectors", "strengths")}
        weighted = [cotangent.to(dtype) for cotangent in cotangents]
        gradients = torch.autograd.grad(
            values, list(leaves.values()), weighted, allow_unused=True, materialize_grads=True
        )
        found = {f"gradient of {name}": gradient for name, gradient in zip(leaves, gradients, strict=True)}
        memory = state._replace(**{name: found.pop(f"gradient of {name}") for name in ("keys", "vectors", "strengths")})
        found |= {f"gradient of {name}": gradient for name, gradient in filled_part(memory).items()}
        found |= {"outputs": outputs, **{f"final {i}": leaf for i, leaf in enumerate(tree_leaves(final))}}
        return {name: tensor.detach().double() for name, tensor in found.items()}


def filled_part(state: Any) -> dict[str, Tensor]:
    """Return the memory of a state with zeros in the slots that hold no vector."""
    filled = torch.arange(state.keys.shape[1]) < state.count.unsqueeze(1)
    return {
        "keys": state.keys * filled.unsqueeze(2),
        "vectors": state.vectors * filled.unsqueeze(2),
        "strengths": state.strengths * filled,
    }


def error(result: Tensor, truth: Tensor) -> float:
    """Return ‖result − truth‖ / ‖truth‖; a truth below 1e-3 counts as that, since some gradients are zero by nature."""
    return (result - truth).norm().item() / max(truth.norm().item(), 1e-3)


def check_equal(case: Case) -> dict[str, Tensor]:
    """Compare the fused path with the loop in float64; return what the loop gives."""
    truth, fused = case.results("reference"), case.results("fused")
    assert fused.keys() == truth.keys()
    for name, tensor in truth.items():
        assert error(fused[name], tensor) < 1e-10, f"{name} of {case}"
    return truth


def small(dtype: torch.dtype = torch.float64, **options: Any) -> LANTMCell:
    torch.manual_seed(0)
    return LANTMCell(3, 5, **{"width": 4, "capacity": 4, "forget": 2, "write_gate_bias": 0.0, **options}).to(dtype)


def gradients_of(model: Recurrent, inputs: Tensor, **masks: Any) -> list[Tensor]:
    outputs, (final,) = model(inputs, **masks)
    values = [outputs, *tree_leaves(final)[:-1]]
    leaves = [inputs, *model.parameters()]
    cotangents = [value.detach().cos() for value in values]
    return [*values, *torch.autograd.grad(values, leaves, cotangents, materialize_grads=True, allow_unused=True)]


# ---------------------------------------------------------------- values and gradients


def test_random_sizes_and_options() -> None:
    for seed in range(FEW):
        check_equal(Case(seed))


@pytest.mark.slow
def test_hundreds_of_random_sizes_and_options() -> None:
    for seed in range(FEW, FEW + MANY):
        check_equal(Case(seed))


@pytest.mark.slow
def test_float32_is_as_exact_as_the_loop() -> None:
    ratios: dict[str, list[float]] = {}
    for seed in range(MANY // 2):
        case = Case(seed)
        truth, fused, plain = (
            case.results("reference"),
            *(case.results(b, torch.float32) for b in ("fused", "reference")),
        )
        for name, tensor in truth.items():
            own, allowed = (max(error(results[name], tensor), 1e-7) for results in (fused, plain))
            ratios.setdefault(name, []).append(own / allowed)
    for name, values in ratios.items():
        assert torch.tensor(values).log().mean().exp() <= 2, name


@every_group
@every_weighting
def test_edges_of_the_blocks_and_vectors(group: str, weighting: str) -> None:
    for batch, capacity, width in ((1, 15, 1), (8, 16, 16), (9, 17, 4), (17, 33, 5)):
        case = Case(batch, group=group, weighting=weighting, batch=batch, capacity=capacity, width=width, steps=4)
        check_equal(case)


def test_an_empty_batch() -> None:
    for name, tensor in check_equal(Case(2, batch=0, ragged=True, resets=0.5)).items():
        assert tensor.sum() == 0, name


@for_each("dtype", [torch.float32, torch.float64])
def test_extreme_values_stay_finite(dtype: torch.dtype) -> None:
    """Strengths of zero, steps of zero, keys far away or exactly on each other, and both ends of the temperature."""
    for weighting in WEIGHTINGS:
        cell = small(dtype, weighting=weighting)
        model = Recurrent(lambda _, cell=cell: cell, 1, backend="fused")
        for value in (0.0, -300.0, 300.0):
            with torch.no_grad():
                cell.head_weight.zero_()
                cell.head_bias.fill_(value)
            found = gradients_of(model, torch.ones(6, 3, 3, dtype=dtype, requires_grad=True))
            assert all(tensor.isfinite().all() for tensor in found), (weighting, value)


def test_nan_stays_in_its_row() -> None:
    inputs = torch.randn(5, 9, 3)
    inputs[2, 1, 0] = torch.nan
    cell = small(torch.float32)
    with torch.no_grad():
        found = [Recurrent(lambda _: cell, 1, backend=backend)(inputs)[0] for backend in ("reference", "fused")]
    assert found[1][:, [0, *range(2, 9)]].isfinite().all()
    assert found[1][2:, 1].isnan().all()
    assert torch.equal(*(one.isnan() for one in found))


def test_steps_beyond_the_lengths_change_nothing() -> None:
    case = Case(6, steps=6, batch=11, ragged=True, masked=False)
    first = case.results("fused")
    padding = torch.arange(6)[:, None] >= case.lengths
    assert padding.any()
    case.inputs[padding] = 1e3
    case.cotangents[0][padding] = 1e3
    second = case.results("fused")
    for name, tensor in first.items():
        assert error(second[name], tensor) < 1e-13, name
    assert (first["outputs"][padding] == 0).all()
    assert (first["gradient of inputs"][padding] == 0).all()


def test_a_sequence_in_two_pieces_equals_the_whole() -> None:
    case = Case(4, steps=9, ragged=False, resets=0.0, begun=True, capacity=5)
    model = Recurrent(lambda _: case.cell, 1, backend="fused")
    whole, (final,) = model(MaskedInputs(case.inputs, case.write), (case.state,))
    write = [None, None] if case.write is None else [case.write[:4], case.write[4:]]
    first, middle = model(MaskedInputs(case.inputs[:4], write[0]), (case.state,))
    second, (last,) = model(MaskedInputs(case.inputs[4:], write[1]), middle)
    for one, other in zip(tree_leaves((whole, final)), tree_leaves((torch.cat((first, second)), last)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------- memory and threads


@for_each("large", [False, True])
def test_uninitialized_memory_is_never_read(monkeypatch: pytest.MonkeyPatch, large: bool) -> None:
    sizes = {"hidden": 150, "width": 20} if large else {}  # weights beyond 512 KiB: all rows of a thread go together
    case = Case(5, steps=7, batch=19, ragged=True, resets=0.2, masked=True, begun=True, **sizes)
    clean = case.results("fused")
    called = poison(monkeypatch)
    again = case.results("fused")
    assert set(called) == {"empty", "empty_like", "new_empty"}
    for name, tensor in clean.items():
        assert torch.equal(again[name], tensor), name


@for_each("large", [False, True])
def test_any_number_of_threads_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch, large: bool) -> None:
    sizes = {"hidden": 150, "width": 20} if large else {}
    case = Case(8, steps=7, batch=37, ragged=True, resets=0.2, masked=True, begun=True, weighting="softmax", **sizes)
    truth = case.results("reference") if large else None
    found = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)  # torch itself has one
        found.append(case.results("fused"))
    for other in found[1:]:
        for name, tensor in found[0].items():
            assert torch.equal(other[name], tensor), name
    for name, tensor in (truth or {}).items():
        assert error(found[0][name], tensor) < 1e-10, name


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the processors are those of x86-64")
@pytest.mark.parametrize("processor", ["haswell", "znver3"])
def test_the_bits_are_the_same_with_the_tuning_of_other_processors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, processor: str
) -> None:
    compile_for(monkeypatch, tmp_path, "-march=x86-64-v3", f"-mtune={processor}")
    test_any_number_of_threads_gives_the_same_bits(monkeypatch=monkeypatch)


def test_memory_is_linear_in_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = small(capacity=600, forget=0)
    sizes: list[int] = []
    allocate = cpu.allocate

    def counted(a: Any) -> tuple[list[Any], list[Any]]:
        results, saved = allocate(a)
        sizes.append(sum(tensor.numel() for tensor in (*results, *saved)))
        return results, saved

    monkeypatch.setattr(cpu, "allocate", counted)
    model = Recurrent(lambda _: cell, 1, backend="fused")
    for steps in (100, 200, 400):
        model(torch.randn(steps, 2, 3, dtype=torch.float64))
    assert sizes[2] - sizes[1] == 2 * (sizes[1] - sizes[0])
    assert sizes[2] < 4 * sizes[0]


# ---------------------------------------------------------------- autograd


def arguments_of(seed: int, **options: Any) -> tuple[list[Any], list[Any]]:
    """Return the arguments of the operator for a case: those with a gradient, and the others."""
    case = Case(seed, **{"steps": 5, "batch": 2, "inputs": 2, "hidden": 3, "width": 2, "capacity": 3, **options})
    cell, state = case.cell, case.state
    w_ih, b, w_hh = cell.controller.summed_kernel_weights()
    flat_state = lie_access.MemoryState(*state.controller, *state[1:]).flatten()
    tensors = [
        case.inputs,
        w_ih[:, : cell.input_size],
        b,
        torch.cat((w_hh, w_ih[:, cell.input_size :]), dim=1),
        *cell._kernel_heads(),
        flat_state,
        *state[6:9],
        None if case.starts is None else flat_state[0].cos(),
    ]
    fixed = [state.count, case.write, case.lengths, case.starts]
    fixed += [cell.group_name, cell.group.normalizes, cell.weighting == "softmax", cell.forget, cell.read_first]
    return [None if tensor is None else tensor.detach().clone() for tensor in tensors], fixed


def derivatives(values: list[Tensor], leaves: list[Tensor], **options: Any) -> tuple[Tensor, ...]:
    total = sum(value.sin().sum() for value in values)
    return torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True, **options)


def check_against_the_twin(seed: int, **options: Any) -> None:
    """Compare values, gradients and second derivatives of the kernels with those of the twin."""
    given, fixed = arguments_of(seed, **options)
    found = []
    for function in (lie_access.OPERATOR, naive.lie_access):
        tensors = [None if tensor is None else tensor.clone().requires_grad_() for tensor in given]
        *values, count = function(*tensors, *fixed)
        leaves = [tensor for tensor in tensors if tensor is not None]
        alone = derivatives(values, leaves, retain_graph=True)
        first = derivatives(values, leaves, create_graph=True)
        found.append([*values, count, *alone, *first, *derivatives(list(first), leaves)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@every_group
@every_weighting
def test_the_kernels_equal_the_reference_and_have_its_second_derivatives(group: str, weighting: str) -> None:
    check_against_the_twin(1, group=group, weighting=weighting)


@pytest.mark.slow
def test_the_kernels_equal_the_reference_for_many_options() -> None:
    for seed in range(60):
        check_against_the_twin(seed)


@pytest.mark.slow
@every_group
@every_weighting
def test_gradients_equal_finite_differences(group: str, weighting: str) -> None:
    given, fixed = arguments_of(1, group=group, weighting=weighting, ragged=True, resets=0.3, masked=True)

    def function(*leaves: Tensor) -> tuple[Tensor, ...]:
        rest = iter(leaves)
        tensors = [None if tensor is None else next(rest) for tensor in given]
        return tuple(lie_access.OPERATOR(*tensors, *fixed)[:-1])

    leaves = [tensor.requires_grad_() for tensor in given if tensor is not None]
    assert torch.autograd.gradcheck(function, leaves)


def test_a_second_backward_over_the_same_graph_gives_the_same() -> None:
    model = Recurrent(lambda _: small(), 1, backend="fused")
    inputs, other = (torch.randn(6, 9, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    outputs, (final,) = model(inputs)
    values, leaves = [outputs, final.read_vector, final.keys], [inputs, *model.parameters()]
    cotangents = [torch.randn_like(value) for value in values]
    first = torch.autograd.grad(values, leaves, cotangents, retain_graph=True, materialize_grads=True)
    for _ in range(2):
        model(other)[0].sum().backward()  # writes over whatever memory the first backward gave back
        again = torch.autograd.grad(values, leaves, cotangents, retain_graph=True, materialize_grads=True)
        assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))


def test_each_value_may_be_differentiated_alone() -> None:
    cell = small(weighting="softmax")
    inputs = torch.randn(6, 3, 3, dtype=torch.float64)
    for index in range(len(tree_leaves(cell.init_state(1)))):  # outputs, and the state but the count
        found = []
        for backend in ("reference", "fused"):
            x = inputs.clone().requires_grad_()
            outputs, (final,) = Recurrent(lambda _: cell, 1, backend=backend)(x)
            total = (outputs, *tree_leaves(final))[index].sum()  # its gradient is one number that lies in memory once
            found.append(torch.autograd.grad(total, [x, *cell.parameters()], materialize_grads=True, allow_unused=True))
        for one, two in zip(*found, strict=True):
            torch.testing.assert_close(two, one, rtol=1e-9, atol=1e-9)


def test_without_a_graph_the_values_are_the_same() -> None:
    model = Recurrent(lambda _: small(), 1, backend="fused")
    inputs = torch.randn(6, 9, 3, dtype=torch.float64)
    found = tree_leaves(model(inputs))
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            others = tree_leaves(model(inputs))
        assert not others[0].requires_grad
        assert all(torch.equal(one, two) for one, two in zip(found, others, strict=True))
    gradients_of(model, inputs.requires_grad_())  # a graph can be made afterwards


def test_frozen_parameters_get_no_gradient() -> None:
    cell = small()
    model = Recurrent(lambda _: cell, 1, backend="fused")
    inputs = torch.randn(4, 3, 3, dtype=torch.float64)
    model(inputs)[0].sum().backward()
    expected = cell.head_weight.grad.clone()
    model.zero_grad()
    for parameter in cell.parameters():
        parameter.requires_grad_(parameter is cell.head_weight)
    model(inputs)[0].sum().backward()
    torch.testing.assert_close(cell.head_weight.grad, expected, rtol=1e-12, atol=1e-12)
    assert all(parameter.grad is None for parameter in cell.parameters() if parameter is not cell.head_weight)


def test_autocast_leaves_the_state_in_the_type_of_the_parameters() -> None:
    model = Recurrent(lambda _: small(torch.float32), 1, backend="fused")
    inputs = torch.randn(6, 4, 3).bfloat16()
    found = []
    for half in (True, False):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            found.append(gradients_of(model, (inputs if half else inputs.float()).clone().requires_grad_()))
    assert all(tensor.dtype == torch.float32 for tensor in found[0][:10])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other.to(one.dtype))


def test_tensors_may_have_any_memory_layout() -> None:
    case = Case(7, steps=5, batch=3, capacity=4, ragged=True, masked=True, resets=0.2, begun=True)
    expected = case.results("fused")

    def place(tensor: Tensor) -> Tensor:
        return tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor.repeat_interleave(2)[::2]

    case.inputs, case.state, case.cotangents = tree_map(place, (case.inputs, case.state, case.cotangents))
    case.lengths, case.starts, case.write = map(place, (case.lengths, case.starts, case.write))
    for name, tensor in case.results("fused").items():
        assert error(tensor, expected[name]) < 1e-13, name


# ---------------------------------------------------------------- what is refused


@for_each("backend", ["reference", "fused"])
def test_a_write_to_a_full_memory_that_forgets_nothing_is_an_error(backend: str) -> None:
    model = Recurrent(lambda _: small(capacity=4, forget=0), 1, backend=backend)
    inputs = torch.randn(6, 2, 3, dtype=torch.float64)
    write = torch.arange(6).unsqueeze(1) < torch.tensor([4, 3])
    model(MaskedInputs(inputs, write))
    starts = torch.zeros(6, 2, dtype=torch.bool)
    starts[3] = True
    model(inputs, starts=starts)
    with pytest.raises(OptionError, match=r"^capacity=4: is less than the vectors that are written; set a larger one"):
        model(inputs)


def test_a_count_beyond_the_capacity_does_not_read_beyond_the_memory() -> None:
    cell = small()
    state = cell.init_state(2)
    model, inputs = Recurrent(lambda _: cell, 1, backend="fused"), torch.randn(3, 2, 3, dtype=torch.float64)
    outputs, _ = model(inputs, (state._replace(count=torch.tensor([10**12, -(10**12)])),))
    torch.testing.assert_close(outputs, model(inputs, (state._replace(count=torch.tensor([4, 0])),))[0])


def test_a_cell_without_a_fused_path_gives_the_reason() -> None:
    reasons = {
        "controller: only an LSTMCell has a fused path within LANTMCell, not GRUCell": {"controller": GRUCell},
        "controller: layer_norm has no fused path within LANTMCell": {
            "controller": functools.partial(LSTMCell, layer_norm=True)
        },
        "controller: zoneout has no fused path within LANTMCell": {
            "controller": functools.partial(LSTMCell, zoneout=0.1)
        },
        "there are no kernels for group=hyperbolic": {"group": "hyperbolic"},
    }
    for reason, options in reasons.items():
        assert small(**options).fused_unsupported_reason() == reason
    assert small(torch.bfloat16).fused_unsupported_reason() == "there are no kernels for torch.bfloat16 on cpu"
    assert small().fused_unsupported_reason(starts=True) is None
