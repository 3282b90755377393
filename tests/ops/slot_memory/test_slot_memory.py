"""The kernels of `gyral.ops.slot_memory` on the CPU against the loop over `NTMCell.step` and `DNCCell.step`."""

import copy
import functools
import itertools
import platform
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map, tree_unflatten

from gyral.cells.dnc import DNCCell
from gyral.cells.feedforward import Feedforward
from gyral.cells.gru import GRUCell
from gyral.cells.inputs import MaskedInputs
from gyral.cells.lstm import LSTMCell
from gyral.cells.ntm import NTMCell
from gyral.nn.recurrent import Recurrent
from gyral.ops import slot_memory
from gyral.ops.slot_memory import cpu, naive
from tests.helpers.kernels import compile_for, skip_without
from tests.helpers.loops import for_each
from tests.helpers.memory import poison

compiled = skip_without(cpu.prepare, torch.device("cpu"))

FEW, MANY = 8, 500  # random cases of the property test in `make test` and in `make test-all`
CONTROLLERS = {
    "lstm": LSTMCell,
    "without bias": functools.partial(LSTMCell, bias=False),
    "tanh": Feedforward,
    "relu": functools.partial(Feedforward, activation="relu"),
}

CELLS = (NTMCell, DNCCell)
every_cell = for_each("cell_class", CELLS)


class BegunDNC(DNCCell):
    """A DNC whose initial state is made of parameters.

    From zeros, slots that were never written have the same usage, so that rounding errors decide which one comes first.
    """

    def __init__(self, *sizes: int, **options: Any) -> None:
        super().__init__(*sizes, **options)
        leaves, self.structure = torch.utils._pytree.tree_flatten(super().init_state(1))
        self.initial = nn.ParameterList(torch.rand_like(leaf) / (2 * leaf.shape[-1]) for leaf in leaves)

    def init_state(self, batch_size: int) -> Any:
        leaves = (leaf.expand(batch_size, *leaf.shape[1:]) for leaf in self.initial)
        return tree_unflatten(leaves, self.structure)


class Case:
    """Random sizes and options, with weights, inputs, masks, state and cotangents drawn in float64."""

    def __init__(self, seed: int, **fixed: Any) -> None:
        pick = random.Random(seed)
        drawn = {
            "cell_class": pick.choice([NTMCell, DNCCell]),
            "steps": pick.choice([1, 2, 3, 5, 9, 20]),
            "batch": pick.choice([1, 2, 7, 8, 9, 17]),
            "inputs": pick.choice([1, 2, 7]),
            "hidden": pick.choice([1, 3, 4, 8, 15, 17, 33]),
            "controller": pick.choice(list(CONTROLLERS)),
            "slots": pick.choice([1, 2, 3, 5, 8, 16, 17, 40]),
            "width": pick.choice([1, 2, 3, 4, 5, 8, 20]),
            "read_heads": pick.choice([1, 1, 2, 4]),
            "write_heads": pick.choice([1, 1, 2, 3]),
            "max_shift": pick.choice([0, 1, 1, 2, 5]),
            "initial_memory": pick.choice(["constant", "random", "learned"]),
            "ragged": pick.random() < 0.4,
            "masked": pick.random() < 0.5,
            "resets": pick.choice([0.0, 0.0, 0.1, 0.5]),
        }
        assert fixed.keys() <= drawn.keys()
        self.options = drawn = drawn | fixed
        steps, batch = drawn["steps"], drawn["batch"]
        generator = torch.Generator().manual_seed(seed)
        self.draw = functools.partial(torch.randn, generator=generator, dtype=torch.float64)
        share = functools.partial(torch.rand, generator=generator)
        self.lengths = torch.randint(1, steps + 1, (batch,), generator=generator) if drawn["ragged"] else None
        self.starts = share(steps, batch) < drawn["resets"] if drawn["resets"] else None
        self.write = share(steps, batch) < 0.6 if drawn["masked"] else None
        torch.manual_seed(seed)
        names = ["slots", "width", "read_heads"]
        if drawn["cell_class"] is NTMCell:
            names += ["write_heads", "max_shift", "initial_memory"]
        made = NTMCell if drawn["cell_class"] is NTMCell else BegunDNC
        options = {name: drawn[name] for name in names}
        controller = CONTROLLERS[drawn["controller"]]
        self.cell = made(drawn["inputs"], drawn["hidden"], controller=controller, **options).double()
        with torch.no_grad():
            self.cell.interface.weight.mul_(3)
        self.inputs = self.draw(steps, batch, drawn["inputs"])
        state = tree_map(Tensor.detach, self.cell.init_state(batch))
        self.state = tree_map(lambda leaf: leaf + torch.rand_like(leaf) / (2 * leaf.shape[-1]), state)
        width = self.cell.output_size
        self.cotangents = [
            self.draw(shape) for shape in [(steps, batch, width), *(leaf.shape for leaf in tree_leaves(state))]
        ]

    def __str__(self) -> str:
        return str(self.options)

    def results(self, backend: str, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
        """Return outputs, final state and every gradient, in float64."""
        cell = copy.deepcopy(self.cell).to(dtype)
        inputs = self.inputs.to(dtype, copy=True).requires_grad_()
        state = tree_map(lambda leaf: leaf.to(dtype, copy=True).requires_grad_(), self.state)
        model = Recurrent(lambda _: cell, 1, backend=backend)
        outputs, (final,) = model(MaskedInputs(inputs, self.write), (state,), self.lengths, self.starts)
        values = [outputs, *tree_leaves(final)]
        leaves = {"inputs": inputs, **dict(cell.named_parameters())}
        leaves |= {f"initial state {index}": leaf for index, leaf in enumerate(tree_leaves(state))}
        cotangents = [cotangent.to(dtype) for cotangent in self.cotangents]
        gradients = torch.autograd.grad(
            values, list(leaves.values()), cotangents, allow_unused=True, materialize_grads=True
        )
        found = {f"gradient of {name}": gradient for name, gradient in zip(leaves, gradients, strict=True)}
        found |= {"outputs": outputs, **{f"final {i}": leaf for i, leaf in enumerate(tree_leaves(final))}}
        return {name: tensor.detach().double() for name, tensor in found.items()}


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


def small(cell_class: type[NTMCell | DNCCell], dtype: torch.dtype = torch.float64, **options: Any) -> Any:
    torch.manual_seed(0)
    return cell_class(3, 5, **{"slots": 6, "width": 4, "read_heads": 2, **options}).to(dtype)


def gradients_of(model: Recurrent, inputs: Tensor, **masks: Any) -> list[Tensor]:
    outputs, (final,) = model(inputs, **masks)
    values = [outputs, *tree_leaves(final)]
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


EDGES = ((1, 1, 1), (1, 15, 1), (8, 16, 16), (9, 17, 4), (17, 33, 5))  # batch, slots, width


@every_cell
def test_edges_of_the_blocks_and_vectors(cell_class: type) -> None:
    for index, ((batch, slots, width), controller) in enumerate(itertools.product(EDGES, CONTROLLERS)):
        if index % 2 == index // 4 % 2:  # each size with two of the controllers
            sizes = {"batch": batch, "slots": slots, "width": width, "steps": 3}
            check_equal(Case(batch, cell_class=cell_class, controller=controller, **sizes))


@pytest.mark.slow
@pytest.mark.parametrize("cell_class", CELLS)
@pytest.mark.parametrize("controller", CONTROLLERS)
def test_all_edges_of_the_blocks_and_vectors(cell_class: type, controller: str) -> None:
    for batch, slots, width in EDGES:
        sizes = {"batch": batch, "slots": slots, "width": width, "steps": 4}
        check_equal(Case(batch, cell_class=cell_class, controller=controller, **sizes))


@every_cell
def test_sizes_of_the_papers(cell_class: type) -> None:
    sizes = {"slots": 128, "width": 20} if cell_class is NTMCell else {"slots": 16, "width": 16, "read_heads": 4}
    check_equal(Case(3, cell_class=cell_class, hidden=100, batch=3, steps=20, **sizes))


@every_cell
def test_the_states_before_the_first_step_of_the_cells(cell_class: type) -> None:
    """Slots of equal usage may change places, which neither outputs nor the gradients of parameters see."""
    inputs, starts = torch.randn(30, 3, 3, dtype=torch.float64), torch.zeros(30, 3, dtype=torch.bool)
    starts[11, 1] = True
    found = []
    for backend in ("reference", "fused"):
        model = Recurrent(lambda _: small(cell_class), 1, backend=backend)
        outputs, _ = model(inputs, starts=starts)
        found.append([outputs, *torch.autograd.grad(outputs.sin().sum(), list(model.parameters()))])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@every_cell
def test_an_empty_batch(cell_class: type) -> None:
    for name, tensor in check_equal(Case(2, cell_class=cell_class, batch=0, ragged=True, resets=0.5)).items():
        assert tensor.sum() == 0, name


@every_cell
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_extreme_values_stay_finite(cell_class: type, dtype: torch.dtype) -> None:
    """Gates, strengths and powers at both ends, empty and overflowing memories."""
    cell = small(cell_class, dtype, slots=40)
    model = Recurrent(lambda _: cell, 1, backend="fused")
    for value in (0.0, -300.0, 30.0, 300.0):
        with torch.no_grad():
            cell.interface.weight.zero_()
            cell.interface.bias.fill_(value)
        found = gradients_of(model, torch.ones(20, 3, 3, dtype=dtype, requires_grad=True))
        assert all(tensor.isfinite().all() for tensor in found), value


@every_cell
def test_nan_stays_in_its_row(cell_class: type) -> None:
    inputs = torch.randn(5, 9, 3)
    inputs[2, 1, 0] = torch.nan
    cell = small(cell_class, torch.float32)
    with torch.no_grad():
        found = [Recurrent(lambda _: cell, 1, backend=backend)(inputs)[0] for backend in ("reference", "fused")]
    assert found[1][:, [0, *range(2, 9)]].isfinite().all()
    assert found[1][2:, 1].isnan().all()
    assert torch.equal(*(one.isnan() for one in found))


@every_cell
def test_steps_beyond_the_lengths_change_nothing(cell_class: type) -> None:
    case = Case(6, cell_class=cell_class, steps=6, batch=11, ragged=True, masked=False)
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


@every_cell
def test_a_sequence_in_two_pieces_equals_the_whole(cell_class: type) -> None:
    case = Case(4, cell_class=cell_class, steps=9, ragged=False, resets=0.0, masked=True)
    model = Recurrent(lambda _: case.cell, 1, backend="fused")
    whole, (final,) = model(MaskedInputs(case.inputs, case.write), (case.state,))
    first, middle = model(MaskedInputs(case.inputs[:4], case.write[:4]), (case.state,))
    second, (last,) = model(MaskedInputs(case.inputs[4:], case.write[4:]), middle)
    for one, other in zip(tree_leaves((whole, final)), tree_leaves((torch.cat((first, second)), last)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------- memory and threads


@every_cell
@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_uninitialized_memory_is_never_read(monkeypatch: pytest.MonkeyPatch, cell_class: type, large: bool) -> None:
    sizes = {"hidden": 150, "width": 20, "controller": "lstm"} if large else {}  # beyond 512 KiB: all rows go together
    case = Case(5, cell_class=cell_class, steps=7, batch=19, ragged=True, resets=0.2, masked=True, **sizes)
    clean = case.results("fused")
    called = poison(monkeypatch)
    again = case.results("fused")
    assert set(called) == {"empty", "empty_like", "new_empty"}
    for name, tensor in clean.items():
        assert torch.equal(again[name], tensor), name


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@every_cell
def test_any_number_of_threads_gives_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, cell_class: type, large: bool
) -> None:
    check_any_number_of_threads(monkeypatch, cell_class, large)


def check_any_number_of_threads(monkeypatch: pytest.MonkeyPatch, cell_class: type, large: bool) -> None:
    sizes = {"hidden": 150, "width": 20, "controller": "lstm"} if large else {}
    case = Case(8, cell_class=cell_class, steps=7, batch=37, ragged=True, resets=0.2, masked=True, **sizes)
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
@pytest.mark.parametrize("cell_class", CELLS)
def test_the_bits_are_the_same_with_the_tuning_of_other_processors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cell_class: type, processor: str
) -> None:
    compile_for(monkeypatch, tmp_path, "-march=x86-64-v3", f"-mtune={processor}")
    check_any_number_of_threads(monkeypatch, cell_class, large=True)


@every_cell
def test_without_a_graph_the_states_of_two_steps_are_kept(monkeypatch: pytest.MonkeyPatch, cell_class: type) -> None:
    model = Recurrent(lambda _: small(cell_class, slots=40), 1, backend="fused")
    sizes: list[int] = []
    allocate = cpu.allocate

    def counted(a: Any) -> tuple[list[Any], list[Any]]:
        results, saved = allocate(a)
        sizes.append(sum(tensor.numel() for tensor in saved))
        return results, saved

    monkeypatch.setattr(cpu, "allocate", counted)
    inputs = torch.randn(50, 2, 3, dtype=torch.float64)
    outputs = model(inputs)[0]
    with torch.no_grad():
        assert torch.equal(model(inputs)[0], outputs)
        torch.testing.assert_close(model(inputs[:1])[0], outputs[:1], rtol=1e-12, atol=1e-12)
    assert sizes[1] < sizes[0] / 3


# ---------------------------------------------------------------- autograd


def arguments_of(seed: int, **options: Any) -> tuple[list[Any], list[Any]]:
    """Return the arguments of the operator for a case: those with a gradient, and the others."""
    sizes = {"steps": 4, "batch": 2, "inputs": 2, "hidden": 3, "width": 2, "slots": 3}
    case = Case(seed, **{**sizes, **options})
    cell, controller, w_hh = case.cell, "lstm", None
    if isinstance(cell.controller, Feedforward):
        controller, w_ih, b = cell.controller.activation, *cell.controller.linear.parameters()
    else:
        w_ih, b, w_hh = cell.controller.summed_kernel_weights()
    w_x, w = w_ih.split([cell.input_size, cell.heads * cell.width], dim=1)
    state = naive.flatten((*case.state.controller, *case.state[1:]), controller)
    tensors = [
        case.inputs,
        w_x,
        b,
        w if w_hh is None else torch.cat((w_hh, w), dim=1),
        cell.interface.weight,
        cell.interface.bias,
        state,
        None if case.starts is None else state[0] * 0.9,
    ]
    name = "ntm" if isinstance(cell, NTMCell) else "dnc"
    fixed = [case.write, case.lengths, case.starts, name, list(cell.memory), controller, True]
    return [None if tensor is None else tensor.detach().clone() for tensor in tensors], fixed


def derivatives(values: list[Tensor], leaves: list[Tensor], **options: Any) -> tuple[Tensor, ...]:
    total = sum(value.sin().sum() for value in values)
    return torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True, **options)


def check_against_the_twin(seed: int, **options: Any) -> None:
    """Compare values, gradients and second derivatives of the kernels with those of the twin."""
    given, fixed = arguments_of(seed, **options)
    found = []
    for function in (slot_memory.OPERATOR, naive.slot_memory):
        tensors = [None if tensor is None else tensor.clone().requires_grad_() for tensor in given]
        values, leaves = function(*tensors, *fixed), [tensor for tensor in tensors if tensor is not None]
        alone = derivatives(values, leaves, retain_graph=True)
        first = derivatives(values, leaves, create_graph=True)
        found.append([*values, *alone, *first, *derivatives(list(first), leaves)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@every_cell
def test_the_kernels_equal_the_twin_and_have_its_second_derivatives(cell_class: type) -> None:
    check_against_the_twin(1, cell_class=cell_class, controller="lstm")
    masks = {"ragged": True, "resets": 0.3, "masked": True}
    for controller in CONTROLLERS:
        check_against_the_twin(2, cell_class=cell_class, controller=controller, steps=3, **masks)


@pytest.mark.slow
def test_the_kernels_equal_the_twin_for_many_options() -> None:
    for seed in range(60):
        check_against_the_twin(seed)


@pytest.mark.slow
@pytest.mark.parametrize("cell_class", CELLS)
@pytest.mark.parametrize("controller", CONTROLLERS)
def test_gradients_equal_finite_differences(cell_class: type, controller: str) -> None:
    masks = {"ragged": True, "resets": 0.3, "masked": True}
    given, fixed = arguments_of(3, cell_class=cell_class, controller=controller, **masks)

    def function(*leaves: Tensor) -> tuple[Tensor, ...]:
        rest = iter(leaves)
        tensors = [None if tensor is None else next(rest) for tensor in given]
        return tuple(slot_memory.OPERATOR(*tensors, *fixed))

    leaves = [tensor.requires_grad_() for tensor in given if tensor is not None]
    assert torch.autograd.gradcheck(function, leaves)


@every_cell
def test_a_second_backward_over_the_same_graph_gives_the_same(cell_class: type) -> None:
    model = Recurrent(lambda _: small(cell_class), 1, backend="fused")
    inputs, other = (torch.randn(6, 9, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    outputs, (final,) = model(inputs)
    values, leaves = [outputs, final.read_vector, final.memory], [inputs, *model.parameters()]
    cotangents = [torch.randn_like(value) for value in values]
    first = torch.autograd.grad(values, leaves, cotangents, retain_graph=True, materialize_grads=True)
    for _ in range(2):
        model(other)[0].sum().backward()  # writes over whatever memory the first backward gave back
        again = torch.autograd.grad(values, leaves, cotangents, retain_graph=True, materialize_grads=True)
        assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))


@every_cell
def test_each_value_may_be_differentiated_alone(cell_class: type) -> None:
    cell = small(NTMCell if cell_class is NTMCell else BegunDNC)
    inputs = torch.randn(6, 3, 3, dtype=torch.float64)
    for index in range(1 + len(tree_leaves(cell.init_state(1)))):
        found = []
        for backend in ("reference", "fused"):
            x = inputs.clone().requires_grad_()
            outputs, (final,) = Recurrent(lambda _: cell, 1, backend=backend)(x)
            total = (outputs, *tree_leaves(final))[index].sum()  # its gradient is one number that lies in memory once
            found.append(torch.autograd.grad(total, [x, *cell.parameters()], materialize_grads=True, allow_unused=True))
        for one, two in zip(*found, strict=True):
            torch.testing.assert_close(two, one, rtol=1e-9, atol=1e-9)


@every_cell
def test_without_a_graph_the_values_are_the_same(cell_class: type) -> None:
    model = Recurrent(lambda _: small(cell_class), 1, backend="fused")
    inputs = torch.randn(6, 9, 3, dtype=torch.float64)
    found = tree_leaves(model(inputs))
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            others = tree_leaves(model(inputs))
        assert not others[0].requires_grad
        assert all(torch.equal(one, two) for one, two in zip(found, others, strict=True))
    gradients_of(model, inputs.requires_grad_())  # a graph can be made afterwards


@every_cell
def test_frozen_parameters_get_no_gradient(cell_class: type) -> None:
    cell = small(cell_class)
    model = Recurrent(lambda _: cell, 1, backend="fused")
    inputs = torch.randn(4, 3, 3, dtype=torch.float64)
    model(inputs)[0].sum().backward()
    expected = cell.interface.weight.grad.clone()
    model.zero_grad()
    for parameter in cell.parameters():
        parameter.requires_grad_(parameter is cell.interface.weight)
    model(inputs)[0].sum().backward()
    torch.testing.assert_close(cell.interface.weight.grad, expected, rtol=1e-12, atol=1e-12)
    assert all(parameter.grad is None for parameter in cell.parameters() if parameter is not cell.interface.weight)


@every_cell
def test_autocast_leaves_the_state_in_the_type_of_the_parameters(cell_class: type) -> None:
    model = Recurrent(lambda _: small(cell_class, torch.float32), 1, backend="fused")
    inputs = torch.randn(6, 4, 3).bfloat16()
    found = []
    for half in (True, False):
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            found.append(gradients_of(model, (inputs if half else inputs.float()).clone().requires_grad_()))
    assert all(tensor.dtype == torch.float32 for tensor in found[0][:6])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other.to(one.dtype))


@every_cell
def test_tensors_may_have_any_memory_layout(cell_class: type) -> None:
    case = Case(7, cell_class=cell_class, steps=5, batch=3, ragged=True, masked=True, resets=0.2)
    expected = case.results("fused")

    def place(tensor: Tensor) -> Tensor:
        return tensor.mT.contiguous().mT if tensor.dim() > 1 else tensor.repeat_interleave(2)[::2]

    case.inputs, case.state, case.cotangents = tree_map(place, (case.inputs, case.state, case.cotangents))
    case.lengths, case.starts, case.write = map(place, (case.lengths, case.starts, case.write))
    for name, tensor in case.results("fused").items():
        assert error(tensor, expected[name]) < 1e-13, name


# ---------------------------------------------------------------- what is refused


@every_cell
def test_a_cell_without_a_fused_path_gives_the_reason(cell_class: type) -> None:
    name = cell_class.__name__
    reasons = {
        f"controller: only LSTMCell and Feedforward have a fused path within {name}, not GRUCell": GRUCell,
        f"controller: layer_norm has no fused path within {name}": functools.partial(LSTMCell, layer_norm=True),
        f"controller: zoneout has no fused path within {name}": functools.partial(LSTMCell, zoneout=0.1),
    }
    for reason, controller in reasons.items():
        cell = small(cell_class, controller=controller)
        assert cell.fused_unsupported_reason() == reason
        assert Recurrent(lambda _, cell=cell: cell, 1).backend == "reference"
    in_half = small(cell_class, torch.bfloat16)
    assert in_half.fused_unsupported_reason() == "there are no kernels for torch.bfloat16 on cpu"
    assert small(cell_class).fused_unsupported_reason(starts=True) is None
