"""The contract of `gyral.cells.base`, for every model in conf/model with a cell. A new file there is tested at once.

A case is what follows `model=` on a command line: a model and options of its cell. Cases are the models as they are,
the variants in conf/model and in `TABLE`, and in `make test-all` each option changed alone. Its other values follow
from its value and type. A new cell needs no edit here unless other values of an option cannot be derived, or it has an
effect only together with others; the failure then says what to add to `TABLE`.
"""

import copy
import functools
import importlib
import inspect
import io
import itertools
import json
import pickle
import pkgutil
from collections.abc import Collection
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import hydra
import pytest
import torch
from hydra.errors import InstantiationException
from omegaconf import OmegaConf
from torch import Tensor
from torch.autograd import gradcheck
from torch.func import functional_call
from torch.utils._pytree import tree_leaves, tree_map

import gyral.cells
from gyral.cells.base import RecurrentCell, State
from gyral.config.groups import choices, load_choice
from gyral.nn.recurrent import Recurrent
from tests.helpers.found import at_least
from tests.helpers.running import compose_choices
from tests.helpers.sampling import leaves_out_slow

INPUT_SIZE, HIDDEN_SIZE, BATCH, STEPS = 3, 5, 4, 6
SMALL = {"chunk_size": 2, "slots": 3, "width": 2, "read_heads": 1, "kernel_size": 3, "heads": 2}  # for HIDDEN_SIZE
# Documented variants and, with a +, options that interact or whose values cannot be derived: those are only compared.
TABLE = """
dag_rnn +edge_size=null | +edge_types=2
dnc +read_heads=2 | +read_heads=3 controller.zoneout=0.2 | +controller.layer_norm=true
eurnn is_complex=false | +capacity=3 | +capacity=fft is_complex=false zoneout=0.2
external +cell=torch.nn.LSTMCell options={"bias":false} zoneout=0.2 | +cell=torch.nn.RNNCell
fast_weights inner_steps=2 | +inner_steps=3 decay=0.5 activation=tanh
fs_eurnn +slow.capacity=fft | +slow.is_complex=false
fs_goru +slow.capacity=fft | +slow.layer_norm=false
fs_lstm +slow.bias=false | +slow_size=3 num_fast=3 dropout=0.2 fast.zoneout=0.1 fast.zoneout_cell=0.3
fs_rum slow.layer_norm=false | +num_fast=3 | +slow.lambd=1.0 slow.eta=null
full_urnn learned_initial_state=true
goru layer_norm=true | +capacity=fft
gru layer_norm=true | zoneout=0.25 | +bias=false
lantm weighting=softmax | group=scaling_rotation | group=hyperbolic | read_first=true interpolate_steps=false
lantm +capacity=4 forget=1 | +forget=4 | +weighting=softmax group=rotation
light_conv +heads=3
lstm zoneout=0.25 | recurrent_dropout=0.25 | proj_size=2 | +bias=false
lstm +layer_norm=true zoneout=0.2 zoneout_cell=0.4 bias=false
lstm +proj_size=2 peepholes=true layer_norm=true zoneout=0.2 zoneout_cell=0.4
mage +edge_size=null | +edge_types=2
mage_gru +edge_size=null | +carry=linked | +edge_attention=true
ntm initial_memory=learned | initial_memory=learned_constant | initial_memory=random | write_heads=2 | +max_shift=2
on_lstm layer_norm=true | +chunk_size=1 layer_norm=true | +zoneout=0.2 layer_norm=true
rnn nonlinearity=relu | layer_norm=true
rum layer_norm=true | lambd=1.0 layer_norm=true | zoneout=0.25 | recurrent_dropout=0.25 | +lambd=-0.3
rum +lambd=1.0 eta=1.0 | +lambd=1.0 layer_norm=true update_gate=false activation=tanh
rum +lambd=0.5 eta=0.3 layer_norm=true zoneout=0.2 | +update_gate=false eta=1.0 activation=softsign
urnn learned_initial_state=true
weinet layer_norm=false
"""
SEQUENCE = "gyral.models.sequence.SequenceModel"  # other models, with any of these cells, have their own tests
SECTIONS = {name: one["cell"] for name, one in compose_choices("model").items() if one.get("_target_") == SEQUENCE}
PARENTS = {
    one: parent for one in SECTIONS for parent in load_choice("model", one).get("defaults", []) if parent in SECTIONS
}
MODELS = at_least(45, [model for model in SECTIONS if model not in PARENTS])
FIRST_OF_CLASS = {SECTIONS[model]["_target_"]: model for model in reversed(MODELS)}.values()
assert_same = functools.partial(torch.testing.assert_close, rtol=1e-12, atol=1e-12)
assert_equal = functools.partial(torch.testing.assert_close, rtol=0.0, atol=0.0)


def options(section: dict[str, Any], hidden_size: int = HIDDEN_SIZE, prefix: str = "") -> dict[str, Any]:
    """Return the options of a cell by their dotted names, at small sizes; a cell may hold others."""
    found = {}
    for name, value in section.items():
        if isinstance(value, dict):
            found |= options(value, hidden_size, f"{prefix}{name}.")
        elif not name.startswith("_"):
            sizes = SMALL | ({"capacity": 4, "edge_size": 1} if value is None else {"state_size": 4})
            found[prefix + name] = hidden_size if name == "hidden_size" else sizes.get(prefix + name, value)
    return found


def text(value: Any) -> str:
    """Return an option's value as a command line has it."""
    return value if isinstance(value, str) else json.dumps(value)


def other_values(model: str, name: str) -> list[Any]:
    """Return other values of an option: flags flipped, numbers changed, or the texts that its check allows."""
    value, (place, _, own) = options(SECTIONS[model])[name], name.rpartition(".")
    section = SECTIONS[model][place] if place else SECTIONS[model]
    hint = inspect.signature(hydra.utils.get_class(section["_target_"]), eval_str=True).parameters[own].annotation
    kinds = get_args(hint)
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        step = 1 if isinstance(value, int) else -0.25 if value >= 0.5 else 0.25  # probabilities stay below 1
        step = 2 if name == "hidden_size" else step  # some cells round it up to heads of equal size
        return [value + step, *([None] if NoneType in kinds and name not in ("capacity", "edge_size") else [])]
    if value is None and {bool, int, float} & {*kinds}:
        return [True, False] if bool in kinds else [HIDDEN_SIZE - 1] if int in kinds else [0.7, 1.5]
    allowed = next((get_args(kind) for kind in (hint, *kinds) if get_origin(kind) is Literal), ())
    try:
        make_cell(f"{model} {name}=no_such_choice")
    except (ValueError, InstantiationException) as error:
        allowed = allowed or getattr(error, "choices", getattr(error.__cause__, "choices", ()))
    return [other for other in allowed if other != value]


OPTIONS = {  # and the model that tests them; those of a cell within another only once per class and place
    (SECTIONS[model][place]["_target_"] if place else model, name): (model, name)
    for model in reversed(MODELS)
    for name in options(SECTIONS[model])
    for place in [name.rpartition(".")[0]]
    if name not in ("base_steps", "clip")  # they act on training alone, and have tests of their own
}.values()


def variant_case(model: str) -> str:
    """Return a model that starts from another one as a case of that one."""
    own, others = options(SECTIONS[model]), options(SECTIONS[PARENTS[model]])
    return " ".join([PARENTS[model], *(f"{name}={text(own[name])}" for name in own if own[name] != others[name])])


def changed_case(model: str, name: str, value: Any, *context: str) -> str:
    """Return the case with an option changed, and with the flag that its name begins with, as of layer_norm_eps."""
    values = options(SECTIONS[model])
    flags = [f"{other}=true" for other in values if values[other] is False and name.startswith(f"{other}_")]
    own = [f"{name}={text(value)}"] if text(value) != text(values[name]) else []
    return " ".join([model, *context, *flags, *own])


LINES = [line.partition(" ") for line in TABLE.strip().splitlines()]
WRITTEN = [f"{model} {overrides}" for model, _, cases in LINES for overrides in cases.split(" | ")]
NAMED = [case.replace(" +", " ") for case in WRITTEN]
VARIANTS = list(dict.fromkeys([*MODELS, *map(variant_case, PARENTS), *(case for case in WRITTEN if " +" not in case)]))
CASES = list(dict.fromkeys([*VARIANTS, *NAMED]))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give tests their cases or variants, and in `make test-all` every option changed that changes a formula."""
    others = [] if leaves_out_slow(metafunc.config) else [*CASES]
    for model, name in OPTIONS if others else []:
        of_no_formula = ("initialization", "recurrent_scale", "trainable_", "slots", "width")
        if not (name.endswith("_size") or name.rpartition(".")[2].startswith(of_no_formula)):
            others += [changed_case(model, name, other) for other in other_values(model, name)]
    for argument, given in (("case", CASES), ("variant", VARIANTS)):
        if argument in metafunc.fixturenames:
            slow = [
                pytest.param(other, marks=pytest.mark.slow) for other in dict.fromkeys(others) if other not in given
            ]
            metafunc.parametrize(argument, [*given, *slow])


@functools.cache
def cell_factory(case: str, hidden_size: int = HIDDEN_SIZE) -> functools.partial:
    """Instantiate the cell section of the YAML at small sizes: the argument that Hydra passes to the model."""
    model, *overrides = case.split()
    config = OmegaConf.create(SECTIONS[model])
    for name, value in options(SECTIONS[model], hidden_size).items():
        OmegaConf.update(config, name, value)
    config.merge_with_dotlist(overrides)
    return hydra.utils.instantiate(config)


def make_cell(case: str, hidden_size: int = HIDDEN_SIZE) -> RecurrentCell:
    return cell_factory(case, hidden_size)(INPUT_SIZE).double().eval()


def run_by(cell: RecurrentCell, backend: str) -> Recurrent:
    return Recurrent(lambda _: cell, INPUT_SIZE, backend=backend).eval()


def backends(cell: RecurrentCell, starts: bool = False) -> list[str]:
    """Return the backends that the cell has; what is proven of the last is proven of all, which are compared."""
    return ["reference"] if cell.fused_unsupported_reason(starts=starts) else ["reference", "fused"]


def random_inputs(steps: int = STEPS, batch: int = BATCH) -> Tensor:
    return torch.randn(steps, batch, INPUT_SIZE, dtype=torch.float64)


@torch.no_grad()
def random_state(cell: RecurrentCell, batch: int = BATCH) -> State:
    """Return a state such as a sequence reaches: a memory that must be a rotation is one."""
    state = cell.init_state(batch)
    for inputs in random_inputs(4, batch):
        _, state = cell(inputs, state)
    return state


def rows(state: State, picked: Any) -> State:
    return tree_map(lambda leaf: leaf[picked], state)


def are_alike(some: Collection[Tensor], others: Collection[Tensor]) -> bool:
    return len(some) == len(others) and not any(map(differs, some, others))


def differs(one: Tensor, other: Tensor) -> bool:
    return one.shape != other.shape or (one - other).abs().max().item() > 1e-6


def with_gradient(leaf: Tensor) -> Tensor:
    return leaf.requires_grad_(leaf.is_floating_point())


def floats(*values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if leaf.is_floating_point()]


def gradients(module: torch.nn.Module, values: Any, *leaves: Any) -> list[Tensor]:
    """Return the gradients of leaves and parameters under cotangents that are random, but the same at every call."""
    generator = torch.Generator().manual_seed(0)
    values, wanted = floats(values), [*floats(leaves), *module.parameters()]
    cotangents = [torch.randn(one.shape, generator=generator, dtype=torch.float64).to(one.dtype) for one in values]
    return list(torch.autograd.grad(values, wanted, cotangents, materialize_grads=True))


# ---------------------------------------------------------------- configuration


def test_the_lists_of_cases_are_not_empty() -> None:
    at_least(45, FIRST_OF_CLASS)
    at_least(7, PARENTS)
    at_least(300, OPTIONS)
    at_least(80, VARIANTS)
    at_least(115, CASES)


def test_every_cell_is_the_target_of_some_yaml() -> None:
    found = set()
    for module in pkgutil.iter_modules(gyral.cells.__path__, "gyral.cells."):
        for name, member in vars(importlib.import_module(module.name)).items():
            is_cell = inspect.isclass(member) and issubclass(member, RecurrentCell) and not inspect.isabstract(member)
            if is_cell and member.__module__ == module.name and name.endswith("Cell"):
                found.add(f"{module.name}.{name}")
    assert set(at_least(45, found)) <= {SECTIONS[model]["_target_"] for model in MODELS}


def test_variants_change_options_of_their_parents_that_are_tested_there() -> None:
    for model, parent in PARENTS.items():
        own, others = SECTIONS[model], SECTIONS[parent]
        assert own.keys() == others.keys()
        changed = [name for name, value in options(own).items() if value != options(others)[name]]
        assert changed, f"{model} is {parent} under another name"
        assert all(other_values(parent, name) for name in changed)
        assert isinstance(hydra.utils.instantiate(own)(INPUT_SIZE), RecurrentCell)


IN_FAST_SLOW = {"layer_norm": True, "eta": 1.0}  # values that differ from the default in fast-slow networks


def test_the_files_of_models_and_cells_name_every_option_with_its_default() -> None:
    sections: list[tuple[str, dict[str, Any], set[str], dict[str, Any]]] = []
    sections += [(model, SECTIONS[model], {"input_size"}, {}) for model in MODELS]
    for cell in at_least(45, choices("cell")):
        section = compose_choices("cell")[cell]
        inner = [value for value in section.values() if isinstance(value, dict) and "_target_" in value]
        assert all(one["_partial_"] is True for one in (section, *inner)), cell
        sections.append((cell, section, {"input_size", "hidden_size"}, {}))
        sections += [(cell, one, {"input_size", "hidden_size"}, IN_FAST_SLOW) for one in inner]
    for file, section, without, other in sections:
        parameters = inspect.signature(hydra.utils.get_class(section["_target_"])).parameters
        named = {name for name in section if not name.startswith("_")}
        assert named == set(parameters) - without, file
        for name in named:
            default = parameters[name].default
            if default is inspect.Parameter.empty or (default is None and isinstance(section[name], dict)):
                continue  # required, or the YAML writes out a cell that is the default
            assert section[name] in (default, other.get(name, default)), f"{file}: YAML and class disagree in {name}"


@functools.lru_cache(100)
def drawn(case: str) -> tuple[RecurrentCell, dict[str, Tensor]]:
    """Return a cell and its initial values, drawn with the same seed."""
    torch.default_generator.manual_seed(0)
    cell = make_cell(case)
    return cell, {name: tensor.clone() for name, tensor in cell.state_dict().items()}


@functools.lru_cache(100)
def shown(case: str, base: str, is_moved: bool, kind: str) -> list[Tensor]:
    """Return outputs and states, or gradients, with the weights of another case wherever they fit.

    Otherwise different random draws would pass for an effect of an option. Weights may be moved, because some options
    act on weights that are not initial values, such as bounds of them.
    """
    (cell, own), weights = drawn(case), drawn(base)[1]
    torch.default_generator.manual_seed(3)
    if is_moved:
        weights = {key: one + torch.randn_like(one) if one.is_floating_point() else one for key, one in weights.items()}
    fitting = {key: one for key, one in weights.items() if key in own and own[key].shape == one.shape}
    cell.load_state_dict(own | fitting)
    outputs, state = run_by(cell, "reference").train(kind == "training")(random_inputs())
    return gradients(cell, outputs) if kind == "gradients" else tree_leaves((outputs, state))


@pytest.mark.parametrize("model", MODELS)
def test_every_option_has_an_effect(model: str) -> None:
    faults = []
    for name in [name for owner, name in OPTIONS if owner == model]:
        value, others = text(options(SECTIONS[model])[name]), [text(other) for other in other_values(model, name)]
        contexts: list[list[str]] = [[]]
        for overrides in [case.split()[1:] for case in NAMED if case.startswith(f"{model} ") and f" {name}=" in case]:
            others += [one.partition("=")[2] for one in overrides if one.startswith(f"{name}=")]
            contexts.append([one for one in overrides if not one.startswith(f"{name}=")])
        if not others:
            faults.append(
                f"no other value of {name}={value} is known. Check texts with check_choice of gyral.core.checks, or "
                "add another value to TABLE"
            )
        pairs = list(itertools.combinations(dict.fromkeys([value, *others]), 2))
        for context in contexts:
            cases = {one: changed_case(model, name, one, *context) for one in (value, *others)}
            initial = {one: drawn(cases[one])[1] for one in dict.fromkeys(itertools.chain(*pairs))}
            shapes = {one: {key: tensor.shape for key, tensor in initial[one].items()} for one in initial}
            # initial values of other parameters may be drawn in another order
            pairs = [
                (a, b)
                for a, b in pairs
                if shapes[a] != shapes[b] or are_alike([*initial[a].values()], [*initial[b].values()])
            ]
            for look in itertools.product((False, True), ("outputs", "training", "gradients")):
                seen = {one: shown(cases[one], cases[value], *look) for one in dict.fromkeys(itertools.chain(*pairs))}
                pairs = [(a, b) for a, b in pairs if are_alike(seen[a], seen[b])]
        faults += [
            f"{name}={one} and {name}={other} are the same in outputs, states, gradients and initial values. If the "
            "option needs another one, add both to TABLE"
            for one, other in pairs
        ]
    assert not faults, "\n".join([f"conf/model/{model}.yaml:", *faults])


# ---------------------------------------------------------------- one cell


@pytest.mark.parametrize("model", MODELS)
def test_a_model_and_its_cell_keep_the_contract(model: str) -> None:
    whole = hydra.utils.instantiate(compose_choices("model")[model], vocabulary_size=7, output_size=4)
    assert whole(torch.randint(7, (2, 3)))[0].shape == (2, 3, 4)
    cell = make_cell(model)
    inputs, state = random_inputs(), random_state(cell)
    with torch.no_grad():
        # The state is a NamedTuple with batch first in every leaf.
        for batch in (1, BATCH):
            start = cell.init_state(batch)
            output, new = cell(inputs[0, :batch], start)
            assert isinstance(start, tuple)
            assert hasattr(start, "_fields")
            assert type(new) is type(start)
            assert output.shape == (batch, cell.output_size)
            for before, after in zip(tree_leaves(start), tree_leaves(new), strict=True):
                assert isinstance(before, Tensor)
                assert before.shape[0] == batch
                assert (after.shape, after.dtype) == (before.shape, before.dtype)

        # A call is `project` and `step`, and `project` treats all steps alike.
        expected = cell.step(cell.project(inputs[0]), state, cell.sequence_constants(BATCH))
        assert_equal(cell(inputs[0], state), expected)
        assert_equal(cell(inputs[0]), cell(inputs[0], cell.init_state(BATCH)))
        projected = tree_leaves(cell.project(inputs))
        for time in range(STEPS):
            alone = tree_leaves(cell.project(inputs[time]))
            assert_same([None if leaf is None else leaf[time] for leaf in projected], alone)

    # Nothing modifies the given inputs and state.
    given = tree_map(torch.clone, (inputs, state))
    versions = [leaf._version for leaf in tree_leaves((inputs, state))]
    for is_recording in (True, False):
        with torch.set_grad_enabled(is_recording):
            cell(inputs[0], state)
            for backend in backends(cell):
                run_by(cell, backend)(inputs, (state,))
    assert_equal((inputs, state), given)
    assert [leaf._version for leaf in tree_leaves((inputs, state))] == versions

    # A network that loads the weights computes the same. Copies and pickles do, too, and have weights of their own.
    network, loaded = (
        Recurrent(cell_factory(model), INPUT_SIZE, backend="reference").double().eval() for _ in range(2)
    )
    file = io.BytesIO()
    torch.save(network.state_dict(), file)
    file.seek(0)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    with torch.no_grad():
        expected = network(inputs, (state,))
        assert_equal(loaded(inputs, (state,)), expected)
        for duplicate in (copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))):
            twin, twin_state = duplicate((network, state))
            assert type(twin_state) is type(state)
            assert_equal(twin(inputs, (twin_state,)), expected)
            for parameter in twin.parameters():
                parameter.add_(torch.rand_like(parameter))
            assert differs(twin(inputs, (state,))[0], expected[0])
        assert_equal(network(inputs, (state,)), expected)


# ---------------------------------------------------------------- sequences


@torch.no_grad()
def test_sequences(variant: str) -> None:
    """The loop is the step repeated, in pieces as in one, and no row and no step reads what it must not."""
    cell = make_cell(variant)
    inputs, start = random_inputs(), random_state(cell)
    expected, state = [], start
    for time in range(STEPS):
        output, state = cell(inputs[time], state)
        expected.append(output)
    model = run_by(cell, backends(cell)[-1])
    outputs, (final,) = model(inputs, (start,))
    assert outputs.shape == (STEPS, BATCH, cell.output_size) == (*outputs.shape[:2], model.output_size)
    assert_same((outputs, final), (torch.stack(expected), state))

    pieces, carried = [], (start,)
    for piece in inputs.split([1, STEPS // 2, STEPS - 1 - STEPS // 2]):
        output, carried = model(piece, carried)
        pieces.append(output)
    assert_same((torch.cat(pieces), carried), (outputs, (final,)))

    assert differs(outputs[:, 0], outputs[:, 1])
    for picked in ([1], [2, 0, 3]):  # at other places and in batches of other sizes
        others, (last,) = model(inputs[:, picked], (rows(start, picked),))
        assert_same((others, last), (outputs[:, picked], rows(final, picked)))

    changed = inputs[:, :1].repeat(1, STEPS + 1, 1)  # row t + 1 has another input at time t
    changed[range(STEPS), range(1, STEPS + 1)] = torch.randn(STEPS, INPUT_SIZE, dtype=torch.float64)
    outputs, _ = model(changed, (rows(start, [0] * (STEPS + 1)),))
    for time in range(STEPS):
        assert_same(outputs[:time, time + 1], outputs[:time, 0])
        assert differs(outputs[time:, time + 1], outputs[time:, 0]), f"the input at {time} does nothing"
        later = outputs[time + 1 :]
        assert time == STEPS - 1 or differs(later[:, time + 1], later[:, 0]), f"{time} is forgotten"


def test_corner_inputs_stay_finite(variant: str) -> None:
    corners = [torch.randn(1, 1, INPUT_SIZE)]
    kinds = [
        1e4 * torch.randn(STEPS, INPUT_SIZE),
        1e-30 * torch.randn(STEPS, INPUT_SIZE),
        torch.ones(STEPS, INPUT_SIZE),
    ]
    # without biases, the normalized LSTMs normalize zeros: each step multiplies gradients by 1/√ε
    kinds += [] if "fast.bias=false" in variant else [torch.zeros(STEPS, INPUT_SIZE)]
    corners.append(torch.stack(kinds, dim=1))
    for backend in backends(make_cell(variant)):
        model = run_by(make_cell(variant).float(), backend)
        for inputs in corners:
            state = tree_map(with_gradient, model.init_state(inputs.shape[1]))
            values = model(inputs.requires_grad_(), state)
            tensors = (*floats(values), *gradients(model, values, inputs, state))
            assert all(tensor.isfinite().all() for tensor in tensors), f"on {backend}"


STARTS = torch.tensor([[0, 0, 0, 1, 0, 0], [1, 0, 1, 1, 0, 1], [0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]]).bool().T
LENGTHS = torch.tensor([2, STEPS, 1, 4])


def test_a_sequence_with_starts_equals_its_segments(case: str) -> None:
    cell = make_cell(case)
    model = run_by(cell, backends(cell, starts=True)[-1])
    inputs = random_inputs().requires_grad_()
    state = tree_map(with_gradient, random_state(cell))
    actual = model(inputs, (state,), LENGTHS, STARTS)
    outputs, ends = [], []
    for row, length in enumerate(LENGTHS.tolist()):
        own = slice(row, row + 1)
        begins = [0, *(time for time in range(1, length) if STARTS[time, row])]
        carried: Any = None if STARTS[0, row] else (rows(state, own),)
        pieces = []
        for begin, end in zip(begins, [*begins[1:], length], strict=True):
            piece, last = model(inputs[begin:end, own], carried)
            pieces.append(piece)
            carried = None
        outputs.append(torch.cat([*pieces, piece.new_zeros(STEPS - length, 1, piece.shape[2])]))
        ends.append(tree_leaves(last))
    expected = [torch.cat(outputs, dim=1), *(torch.cat(leaves) for leaves in zip(*ends, strict=True))]
    assert_same(tree_leaves(actual), expected)
    slopes = [gradients(model, values, inputs, state) for values in (actual, expected)]
    torch.testing.assert_close(*slopes, rtol=1e-10, atol=1e-10)


# ---------------------------------------------------------------- gradients


def test_gradients_of_inputs_state_and_parameters(variant: str) -> None:
    check_gradients(variant, fast_mode=True)  # along a random direction


@pytest.mark.slow
@pytest.mark.parametrize("model", FIRST_OF_CLASS)
def test_each_element_of_the_gradients(model: str) -> None:
    check_gradients(model, fast_mode=False)


def check_gradients(case: str, fast_mode: bool) -> None:
    """Compare with finite differences, at smaller sizes: the work grows with the fourth power of the size."""
    cell = make_cell(case, hidden_size=3)
    if cell.estimates_gradient:
        pytest.skip("its gradient is an estimate, see the tests of the cell")
    with torch.no_grad():  # initial weights may be tiny, and a normalization of three similar numbers is rough
        for parameter in cell.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    # parts of the weights of RUM′ have no gradient, see test_rum.py
    checked = {name: p for name, p in cell.named_parameters() if not ("trainable_" in case and "weight" in name)}
    state = random_state(cell, 2)
    leaves = [random_inputs(2, 2), *floats(state), *checked.values()]
    network = run_by(cell, "reference")

    def run(vector: Tensor) -> Tensor:
        pieces = vector.split([leaf.numel() for leaf in leaves])
        inputs, *others = [piece.view_as(leaf) for piece, leaf in zip(pieces, leaves, strict=True)]
        given = iter(others)
        own_state = tree_map(lambda leaf: next(given) if leaf.is_floating_point() else leaf, state)
        parameters = {f"cells.0.{name}": next(given) for name in checked}
        return torch.cat(
            [one.flatten() for one in floats(functional_call(network, parameters, (inputs, (own_state,))))]
        )

    vector = torch.cat([leaf.detach().flatten() for leaf in leaves]).requires_grad_()
    assert gradcheck(run, (vector,), eps=1e-6, atol=1e-7, rtol=1e-5, fast_mode=fast_mode)


def test_fused_equals_reference(case: str) -> None:
    """Compare values and gradients: 1e-10 in float64, in float32 by the errors against float64.

    A float32 error may be twice the error of the float32 reference or, if that is larger, twice the change that float32
    rounding of the inputs alone causes in float64, which does not depend on the rounding of one processor, or twice the
    rounding of the largest gradient: chunks of a linear recurrence add terms that cancel where its memory is erased.
    """
    if (reason := make_cell(case).fused_unsupported_reason()) is not None:
        pytest.skip(f"no fused path: {reason}")
    logarithms = []  # of the errors relative to those allowed
    for seed in range(24):  # one draw's error is mostly luck at these sizes: the fewer, the less is allowed
        torch.default_generator.manual_seed(seed)
        cell = make_cell(case)
        inputs, state = data = random_inputs(), random_state(cell)
        truth, fused = (results(cell, backend, *data) for backend in ("reference", "fused"))
        torch.testing.assert_close(fused, truth, rtol=1e-10, atol=1e-10)
        if seed == 0:
            ragged = (LENGTHS, STARTS if cell.fused_unsupported_reason(starts=True) is None else None)
            both = (results(cell, backend, *data, *ragged) for backend in ("reference", "fused"))
            torch.testing.assert_close(*both, rtol=1e-10, atol=1e-10)

        eps = torch.finfo(torch.float32).eps
        rounded = inputs * (1 + eps * (torch.randint(0, 2, inputs.shape) - 0.5))
        by_rounding = relative_errors(results(cell, "reference", rounded, state), truth)
        rough = cell.float()
        allowed = torch.maximum(by_rounding, relative_errors(results(rough, "reference", *data), truth))
        # outputs and final state; then the gradients of as many inputs and states, and of the parameters
        values = (len(truth) - len(list(cell.parameters()))) // 2
        norms = torch.stack([tensor.norm() for tensor in truth[values:]])
        allowed[values:] = torch.maximum(allowed[values:], eps * norms.max() / norms.clamp(min=1e-30))
        logarithms.append((relative_errors(results(rough, "fused", *data), truth) / allowed).log())
        typical = torch.stack(logarithms).mean(0).exp()
        if typical.max() <= 2 - 1 / (seed + 1):
            return
    raise AssertionError(f"errors relative to those allowed: {typical.tolist()}")


def results(cell: RecurrentCell, backend: str, inputs: Tensor, state: State, *ragged: Any) -> list[Tensor]:
    """Return outputs, final state and the gradients of everything, in float64."""
    dtype = next(cell.parameters()).dtype
    inputs = inputs.detach().to(dtype).requires_grad_()
    state = tree_map(lambda leaf: with_gradient(leaf.to(dtype) if leaf.is_floating_point() else leaf), state)
    values = floats(Recurrent(lambda _: cell, INPUT_SIZE, backend=backend).eval()(inputs, (state,), *ragged))
    return [tensor.detach().double() for tensor in (*values, *gradients(cell, values, inputs, state))]


def relative_errors(values: list[Tensor], truth: list[Tensor]) -> Tensor:
    """Return ‖value − truth‖ / ‖truth‖ of each, at least the rounding of one number."""
    norms = [(one - other).norm() / other.norm().clamp(min=1e-30) for one, other in zip(values, truth, strict=True)]
    return torch.stack(norms).clamp(min=torch.finfo(torch.float32).eps)
