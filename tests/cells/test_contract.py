"""The contract of `gyral.cells.base`, for every model in conf/model with a cell. A new file there is tested at once.

A case is what follows `model=` on a command line: a model and options of its cell. Cases are the models, those of
`TABLE` and, in `make test-all`, each option changed alone. Other values of an option follow from its value. A new cell
needs no edit here unless they cannot be derived or have an effect only with other options; the failure then says so.
"""

import copy
import functools
import inspect
import itertools
import json
import pickle
import pkgutil
from pathlib import Path
from typing import Any

import hydra
import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor
from torch.autograd import gradcheck
from torch.func import functional_call
from torch.utils._pytree import tree_flatten_with_path, tree_leaves, tree_map

import gyral.cells
from gyral.cells.base import RecurrentCell, State
from gyral.config.groups import choices
from gyral.core.errors import OptionError
from gyral.nn.recurrent import Recurrent, reorder
from tests.helpers.found import at_least
from tests.helpers.running import compose_choices
from tests.helpers.sampling import leaves_out_slow

TABLE = """
dnc read_heads=3 controller.zoneout=0.2 controller.layer_norm=true | eurnn is_complex=false capacity=3
eurnn capacity=fft is_complex=false zoneout=0.2 | external cell=torch.nn.LSTMCell options={"bias":false} zoneout=0.2
external cell=torch.nn.RNNCell | fast_weights inner_steps=3 decay=0.5 activation=tanh
fs_eurnn slow.capacity=fft slow.is_complex=false | fs_goru slow.capacity=fft slow.layer_norm=false
fs_lstm slow.bias=false slow_size=3 num_fast=3 dropout=0.2 fast.zoneout=0.1 fast.zoneout_cell=0.3
fs_rum slow.layer_norm=false num_fast=3 | fs_rum slow.lambd=1.0 slow.eta=null | full_urnn learned_initial_state=true
goru layer_norm=true | goru capacity=fft | gru layer_norm=true | gru zoneout=0.25 bias=false
lantm group=scaling_rotation | lantm group=hyperbolic | lantm read_first=true interpolate_steps=false
lantm weighting=softmax forget=1 | lantm weighting=softmax group=rotation | lru state_size=null
lstm zoneout=0.25 bias=false | lstm proj_size=2 | lstm layer_norm=true zoneout=0.2 zoneout_cell=0.4 bias=false
lstm proj_size=2 peepholes=true layer_norm=true zoneout=0.2 zoneout_cell=0.4 | mlstm_large hidden_size=10
mage edge_size=null edge_types=2
mage_gru edge_size=null edge_attention=true | mage_gru carry=linked | ntm initial_memory=learned
ntm initial_memory=random | ntm initial_memory=learned_constant | ntm write_heads=2 max_shift=2
on_lstm layer_norm=true | on_lstm hidden_size=11 | on_lstm chunk_size=1 zoneout=0.2 layer_norm=true
rnn nonlinearity=relu | rnn layer_norm=true
rum layer_norm=true | rum zoneout=0.25 | rum lambd=-0.3 | rum lambd=1.0 eta=1.0 | rum lambd=1.0 layer_norm=true
rum lambd=1.0 layer_norm=true update_gate=false activation=tanh | rum lambd=0.5 eta=0.3 layer_norm=true zoneout=0.2
rum update_gate=false eta=1.0 activation=softsign | s5 state_size=null | urnn learned_initial_state=true
weinet layer_norm=false
"""
INPUT_SIZE, BATCH, STEPS = 3, 4, 4
SMALL = {"hidden_size": 5, "chunk_size": 2, "slots": 3, "width": 2, "read_heads": 1, "kernel_size": 3, "heads": 2}
SMALL |= {"capacity": 3, "edge_size": 1, "state_size": 6}
SEQUENCE = "gyral.models.sequence.SequenceModel"  # other models, with any of these cells, have their own tests
CELLS = {name: one["cell"] for name, one in compose_choices("model").items() if one.get("_target_") == SEQUENCE}
CELLS = {name: cell | {key: SMALL[key] for key in cell.keys() & SMALL} for name, cell in CELLS.items()}
FILES = choices("cell")
MODELS = [name for name in CELLS if name in FILES]  # the others are variants of these
CASES = [*CELLS, *TABLE.strip().replace("\n", " | ").split(" | ")]
STARTS = torch.tensor([[0, 0, 0, 1], [1, 0, 1, 1], [0, 0, 0, 0], [0, 1, 0, 0]]).bool().T
LENGTHS = torch.tensor([2, STEPS, 1, 3])
assert_same = functools.partial(torch.testing.assert_close, rtol=1e-12, atol=1e-12)
assert_equal = functools.partial(torch.testing.assert_close, rtol=0.0, atol=0.0)


@functools.cache
def options(model: str) -> dict[str, Any]:
    leaves: Any = tree_flatten_with_path(CELLS[model])[0]
    named = {".".join(key.key for key in path): value for path, value in leaves}
    return {name: value for name, value in named.items() if not name.rpartition(".")[2].startswith("_")}


OPTIONS = {  # and the model that tests them; those of a cell within another only once per class and place
    (CELLS[model][place]["_target_"] if place else model, name): (model, name)
    for model in reversed(MODELS)
    for name in options(model)
    for place in [name.rpartition(".")[0]]
    if name not in ("hidden_size", "base_steps", "clip")  # the last two act on training alone, see their tests
}.values()


@functools.cache
@torch.random.fork_rng([])
def built(case: str) -> RecurrentCell:
    torch.default_generator.manual_seed(0)
    model, *overrides = case.split()
    config = OmegaConf.merge(CELLS[model], OmegaConf.from_dotlist(overrides)) if overrides else CELLS[model]
    return hydra.utils.instantiate(config)(INPUT_SIZE).double().eval()


def text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def changed_case(model: str, name: str, value: str, *context: str) -> str:
    """Return the case with an option changed, and with the flag that its name begins with, as of layer_norm_eps."""
    flags = [f"{flag}=true" for flag, old in options(model).items() if old is False and name.startswith(f"{flag}_")]
    return " ".join([model, *context, *flags, *([f"{name}={value}"] if value != text(options(model)[name]) else [])])


@functools.cache
def other_values(model: str, name: str) -> list[str]:
    """Return other values of an option: a flag flipped, a number changed, and what the checks of the cell allow."""
    value, hints, found = options(model)[name], type(built(model)).__init__.__annotations__, []
    candidates: list[Any] = ["no_such_choice"] if isinstance(value, str) else [True, 4, 0.7]
    if isinstance(value, bool):
        candidates = [not value]
    elif isinstance(value, int | float):
        number = value + (1 if isinstance(value, int) else -0.25 if value >= 0.5 else 0.25)
        candidates = [number, None] if "None" in str(hints.get(name, "")) else [number]
    for other in map(text, candidates):
        try:
            built(changed_case(model, name, other))
            found.append(other)
        except OptionError as error:
            found += [choice for choice in getattr(error, "choices", ()) if choice != value]
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        of_no_formula = ("_size", "initialization", "slots", "width", "_scale", "_target", "_embedding")
        changed = (
            [] if leaves_out_slow(metafunc.config) else [one for one in OPTIONS if not one[1].endswith(of_no_formula)]
        )
        others = dict.fromkeys(changed_case(*one, value) for one in changed for value in other_values(*one))
        slow = [pytest.param(case, marks=pytest.mark.slow) for case in others if case not in CASES]
        metafunc.parametrize("case", [*CASES, *slow])


def run_by(cell: RecurrentCell, backend: str = "auto") -> Recurrent:
    return Recurrent(lambda _: cell, INPUT_SIZE, backend=backend).eval()


def random_inputs(steps: int = STEPS, batch: int = BATCH) -> Tensor:
    return torch.randn(steps, batch, INPUT_SIZE, dtype=torch.float64)


@torch.no_grad()
def random_state(cell: RecurrentCell, batch: int = BATCH) -> State:
    """Return a state such as a sequence reaches: a memory that must be a rotation is one."""
    return run_by(cell, "reference")(random_inputs(3, batch))[1][0]


def differs(one: Tensor, other: Tensor) -> bool:
    return one.shape != other.shape or not torch.allclose(one, other, rtol=0.0, atol=1e-6)


def floats(*values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if leaf.is_floating_point()]


def gradients(module: torch.nn.Module, values: Any, *leaves: Any) -> list[Tensor]:
    """Return the gradients of leaves and parameters under cotangents that are random, but the same at every call."""
    generator = torch.Generator().manual_seed(0)
    values, wanted = floats(values), [*floats(leaves), *module.parameters()]
    cotangents = [torch.randn(one.shape, generator=generator, dtype=torch.float64).to(one.dtype) for one in values]
    return list(torch.autograd.grad(values, wanted, cotangents, materialize_grads=True))


def test_the_lists_of_cases_are_not_empty() -> None:
    at_least(45, MODELS)
    at_least(52, CELLS)
    at_least(90, CASES)
    at_least(270, OPTIONS)


def test_every_cell_is_the_target_of_some_yaml() -> None:
    found = set()
    for module in pkgutil.iter_modules(gyral.cells.__path__, "gyral.cells."):
        for name, member in vars(pkgutil.resolve_name(module.name)).items():
            is_cell = inspect.isclass(member) and issubclass(member, RecurrentCell) and not inspect.isabstract(member)
            if is_cell and member.__module__ == module.name and name.endswith("Cell"):
                found.add(f"{module.name}.{name}")
    assert set(at_least(45, found)) <= {CELLS[model]["_target_"] for model in MODELS}


def test_variants_are_not_models_under_another_name() -> None:
    for one, other in itertools.combinations(CELLS, 2):
        assert CELLS[one] != CELLS[other], f"{one} and {other} are the same"


def test_the_files_of_models_and_cells_name_every_option_with_its_default() -> None:
    in_fast_slow = {"layer_norm": True, "eta": 1.0}  # values that differ from the default in fast-slow networks
    sections: list[tuple[str, dict[str, Any], set[str], dict[str, Any]]] = [
        (name, one["cell"], {"input_size"}, {}) for name, one in compose_choices("model").items() if name in CELLS
    ]
    for cell in at_least(45, FILES):
        section = compose_choices("cell")[cell]
        inner = [value for value in section.values() if isinstance(value, dict) and "_target_" in value]
        assert all(one["_partial_"] is True for one in (section, *inner)), cell
        sections.append((cell, section, {"input_size", "hidden_size"}, {}))
        sections += [(cell, one, {"input_size", "hidden_size"}, in_fast_slow) for one in inner]
    for file, section, without, other in sections:
        parameters = inspect.signature(hydra.utils.get_class(section["_target_"])).parameters
        named = {name for name in section if not name.startswith("_")}
        assert named == set(parameters) - without, file
        for name in named if file in FILES else ():
            default = parameters[name].default
            if default is inspect.Parameter.empty or (default is None and isinstance(section[name], dict)):
                continue  # required, or the YAML writes out a cell that is the default
            assert section[name] in (default, other.get(name, default)), f"{file}: YAML and class disagree in {name}"


@pytest.mark.parametrize("model", MODELS)
def test_every_option_has_an_effect(model: str) -> None:
    @functools.cache
    def behavior(case: str, base: str, is_recording: bool) -> list[Tensor]:
        """Return outputs and states in training, and gradients, with the weights of another case wherever they fit.

        Otherwise different random draws would pass for an effect. Weights are moved, because some options act on
        weights that are not initial values, such as bounds of them.
        """
        cell = copy.deepcopy(built(case))
        torch.default_generator.manual_seed(3)
        weights = cell.state_dict()
        for key, one in built(base).state_dict().items():
            moved = one + torch.randn_like(one) if one.is_floating_point() else one
            if key in weights and weights[key].shape == one.shape:
                weights[key].copy_(moved)
        with torch.set_grad_enabled(is_recording):
            values = run_by(cell, "reference").train()(random_inputs())
        return gradients(cell, values) if is_recording else tree_leaves(values)

    def are_alike(one: str, other: str, base: str) -> bool:
        some, others = ([*built(case).state_dict().values()] for case in (one, other))
        if [tensor.shape for tensor in some] == [tensor.shape for tensor in others] and any(map(differs, some, others)):
            return False  # with other parameters, initial values may be drawn in another order
        for is_recording in (False, True):
            some, others = (behavior(case, base, is_recording) for case in (one, other))
            if len(some) != len(others) or any(map(differs, some, others)):
                return False
        return True

    faults = []
    contexts = [case.split()[1:] for case in CASES if case.split()[0] == model]
    for name in [name for owner, name in OPTIONS if owner == model]:
        written = [one.partition("=")[2] for context in contexts for one in context if one.startswith(f"{name}=")]
        value, *others = dict.fromkeys([text(options(model)[name]), *other_values(model, name), *written])
        pairs = list(itertools.combinations([value, *others], 2))
        for context in contexts:
            fixed = [one for one in context if not one.startswith(f"{name}=")]
            cases = {one: changed_case(model, name, one, *fixed) for one in (value, *others)}
            pairs = [(a, b) for a, b in pairs if are_alike(cases[a], cases[b], cases[value])]
        faults += [
            f"{a} and {b} of {name} have the same effect. Add them to TABLE with what they need" for a, b in pairs
        ]
        if not others:
            faults.append(f"no value of {name} but {value} is known. Use check_choice, or add one to TABLE")
    assert not faults, "\n".join([f"conf/model/{model}.yaml:", *faults])


@pytest.mark.parametrize("model", MODELS)
def test_a_model_and_its_cell_keep_the_contract(model: str, tmp_path: Path) -> None:
    whole = hydra.utils.instantiate(compose_choices("model")[model], vocabulary_size=7, output_size=4)
    assert whole(torch.randint(7, (2, 3)))[0].shape == (2, 3, 4)
    cell = copy.deepcopy(built(model))
    assert built(f"{model} hidden_size=8").output_size > cell.output_size
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
            for backend in ("reference", "auto"):
                run_by(cell, backend)(inputs, (state,))
    assert_equal((inputs, state), given)
    assert [leaf._version for leaf in tree_leaves((inputs, state))] == versions

    # A network that loads the weights computes the same. Copies and pickles do, too, and have weights of their own.
    network, loaded = (run_by(copy.deepcopy(built(model)), "reference") for _ in range(2))
    loaded.reset_parameters()
    torch.save(network.state_dict(), tmp_path / "weights")
    loaded.load_state_dict(torch.load(tmp_path / "weights", weights_only=True))
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


@torch.no_grad()
def test_sequences(case: str) -> None:
    """The loop is the step repeated, in pieces as in one, and no row and no step reads what it must not."""
    cell = copy.deepcopy(built(case))
    inputs, start = random_inputs(), random_state(cell)
    expected, state = [], start
    for time in range(STEPS):
        output, state = cell(inputs[time], state)
        expected.append(output)
    model = run_by(cell)
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
        others, (last,) = model(inputs[:, picked], (reorder(start, torch.tensor(picked)),))
        assert_same((others, last), (outputs[:, picked], reorder(final, torch.tensor(picked))))

    changed = inputs[:, :1].repeat(1, STEPS + 1, 1)  # row t + 1 has another input at time t
    changed[range(STEPS), range(1, STEPS + 1)] = torch.randn(STEPS, INPUT_SIZE, dtype=torch.float64)
    outputs, _ = model(changed, (reorder(start, torch.zeros(STEPS + 1, dtype=torch.long)),))
    for time in range(STEPS):
        assert_same(outputs[:time, time + 1], outputs[:time, 0])
        assert differs(outputs[time:, time + 1], outputs[time:, 0]), f"the input at {time} does nothing"
        later = outputs[time + 1 :]
        assert time == STEPS - 1 or differs(later[:, time + 1], later[:, 0]), f"{time} is forgotten"


def test_corner_inputs_stay_finite(case: str) -> None:
    corners = [torch.randn(1, 1, INPUT_SIZE)]
    kinds = [
        1e4 * torch.randn(STEPS, INPUT_SIZE),
        1e-30 * torch.randn(STEPS, INPUT_SIZE),
        torch.ones(STEPS, INPUT_SIZE),
    ]
    # without biases, the normalized LSTMs normalize zeros: each step multiplies gradients by 1/√ε
    kinds += [] if "fast.bias=false" in case else [torch.zeros(STEPS, INPUT_SIZE)]
    corners.append(torch.stack(kinds, dim=1))
    for backend in ("reference", "auto"):
        model = run_by(copy.deepcopy(built(case)).float(), backend)
        for inputs in corners:
            state = model.init_state(inputs.shape[1])
            for leaf in floats(inputs, state):
                leaf.requires_grad_()
            values = model(inputs, state)
            tensors = (*floats(values), *gradients(model, values, inputs, state))
            assert all(tensor.isfinite().all() for tensor in tensors), f"on {backend}"


@pytest.mark.parametrize("model", MODELS)
def test_corner_parameters_stay_finite(model: str) -> None:
    """Training leaves initial values: no weights are zero, and exponentials of biases are out of bounds."""
    for backend, bias in itertools.product(("reference", "auto"), (-100.0, 100.0)):
        module = run_by(copy.deepcopy(built(model)).float(), backend)
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                is_bias = "bias" in name.rpartition(".")[2]
                parameter += bias if is_bias else 0.5 * torch.randn_like(parameter)
        inputs, state = 30 * torch.randn(STEPS, BATCH, INPUT_SIZE), module.init_state(BATCH)
        for leaf in floats(inputs, state):
            leaf.requires_grad_()
        values = module(inputs, state)
        tensors = (*floats(values), *gradients(module, values, inputs, state))
        assert all(tensor.isfinite().all() for tensor in tensors), f"on {backend} with biases of {bias}"


def test_a_sequence_with_starts_equals_its_segments(case: str) -> None:
    cell = copy.deepcopy(built(case))
    model = run_by(cell)
    inputs, state = random_inputs(), random_state(cell)
    for leaf in floats(inputs, state):
        leaf.requires_grad_()
    actual = model(inputs, (state,), LENGTHS, STARTS)
    outputs, ends = [], []
    for row, length in enumerate(LENGTHS.tolist()):
        begins = [0, *(time for time in range(1, length) if STARTS[time, row])]
        carried: Any = None if STARTS[0, row] else (reorder(state, torch.tensor([row])),)
        pieces = []
        for begin, end in zip(begins, [*begins[1:], length], strict=True):
            piece, last = model(inputs[begin:end, [row]], carried)
            pieces.append(piece)
            carried = None
        outputs.append(torch.cat([*pieces, piece.new_zeros(STEPS - length, 1, piece.shape[2])]))
        ends.append(tree_leaves(last))
    expected = [torch.cat(outputs, dim=1), *(torch.cat(leaves) for leaves in zip(*ends, strict=True))]
    assert_same(tree_leaves(actual), expected)
    slopes = [gradients(model, values, inputs, state) for values in (actual, expected)]
    torch.testing.assert_close(*slopes, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("fast_mode", [True])
def test_gradients_of_inputs_state_and_parameters(case: str, fast_mode: bool) -> None:
    """Compare with finite differences: in a random direction of all inputs and states and in one of all parameters.

    Or, if not `fast_mode`, of each element: the sizes are smaller, because its work grows with their fourth power.
    """
    cell = copy.deepcopy(built(f"{case} hidden_size=4"))
    if cell.estimates_gradient:
        pytest.skip("its gradient is an estimate, see the tests of the cell")
    with torch.no_grad():  # initial weights may be tiny, and a normalization of three similar numbers is rough
        for parameter in cell.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    # parts of the weights of RUM′ have no gradient, see test_rum.py
    checked = {name: p for name, p in cell.named_parameters() if not (case == "rum_prime" and "weight" in name)}
    state = random_state(cell, 2)
    network = run_by(cell, "reference")
    groups = ([random_inputs(2, 2), *floats(state)], [*checked.values()])

    def run(*vectors: Tensor) -> Tensor:
        sizes = [[leaf.numel() for leaf in group] for group in groups]
        pieces = (piece for vector, size in zip(vectors, sizes, strict=True) for piece in vector.split(size))
        given = (piece.view_as(leaf) for piece, leaf in zip(pieces, itertools.chain(*groups), strict=True))
        inputs = next(given)
        own_state = tree_map(lambda leaf: next(given) if leaf.is_floating_point() else leaf, state)
        parameters = {f"cells.0.{name}": next(given) for name in checked}
        values = floats(functional_call(network, parameters, (inputs, (own_state,))))
        return torch.cat([one.flatten() for one in values])

    vectors = tuple(torch.cat([leaf.detach().flatten() for leaf in group]).requires_grad_() for group in groups)
    tolerances = {"atol": 1e-9, "rtol": 1e-7} if fast_mode else {"atol": 1e-7, "rtol": 1e-5}  # of a sum, of an element
    assert gradcheck(run, vectors, eps=1e-6, fast_mode=fast_mode, **tolerances)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_each_element_of_the_gradients(model: str) -> None:
    test_gradients_of_inputs_state_and_parameters(model, fast_mode=False)


def test_fused_equals_reference(case: str) -> None:
    """Compare values and gradients: 1e-10 in float64, in float32 by the errors against float64.

    A float32 error may be twice the error of the float32 reference or, if that is larger, twice the change that float32
    rounding of the inputs alone causes in float64, which does not depend on the rounding of one processor, or twice the
    rounding of the largest gradient: chunks of a linear recurrence add terms that cancel where its memory is erased.
    """
    if (reason := built(case).fused_unsupported_reason()) is not None:
        pytest.skip(f"no fused path: {reason}")
    starts = None if built(case).fused_unsupported_reason(starts=True) else STARTS.repeat(1, 4)
    eps = torch.finfo(torch.float32).eps

    def results(backend: str, inputs: Tensor, *ragged: Any) -> list[Tensor]:
        """Return outputs, final state and the gradients of everything, in float64."""
        dtype = next(cell.parameters()).dtype
        given = tree_map(lambda leaf: leaf.to(dtype, copy=True) if leaf.is_floating_point() else leaf, (inputs, state))
        for leaf in floats(given):
            leaf.requires_grad_()
        values = floats(run_by(cell, backend)(given[0], given[1:], *ragged))
        return [tensor.detach().double() for tensor in (*values, *gradients(cell, values, given))]

    def errors(values: list[Tensor]) -> Tensor:
        """Return ‖value − truth‖ / ‖truth‖ of each, at least the rounding of one number."""
        norms = [(one - other).norm() / other.norm().clamp(min=1e-30) for one, other in zip(values, truth, strict=True)]
        return torch.stack(norms).clamp(min=eps)

    for ragged in ((), (LENGTHS.repeat(4), starts)):
        logarithms = []  # of the errors relative to those allowed, at first without the rounding of the inputs
        for seed in range(24):  # one draw's error is mostly luck at these sizes: the fewer, the less is allowed
            torch.default_generator.manual_seed(seed)
            cell = copy.deepcopy(built(case))
            cell.reset_parameters()  # type: ignore[operator]
            inputs, state = random_inputs(batch=4 * BATCH), random_state(cell, 4 * BATCH)  # more rows are less luck
            truth = results("reference", inputs, *ragged)
            torch.testing.assert_close(results("fused", inputs, *ragged), truth, rtol=1e-10, atol=1e-10)

            rounded = inputs * (1 + eps * (torch.randint(0, 2, inputs.shape) - 0.5))
            by_rounding = errors(results("reference", rounded, *ragged) if seed else truth)
            cell.float()
            allowed = torch.maximum(by_rounding, errors(results("reference", inputs, *ragged)))
            # outputs and final state; then the gradients of as many inputs and states, and of the parameters
            values = (len(truth) - len(list(cell.parameters()))) // 2
            norms = torch.stack([tensor.norm() for tensor in truth[values:]])
            allowed[values:] = torch.maximum(allowed[values:], eps * norms.max() / norms.clamp(min=1e-30))
            logarithms.append((errors(results("fused", inputs, *ragged)) / allowed).log())
            typical = torch.stack(logarithms[1:] or logarithms).mean(0).exp()
            if typical.max() <= 2 - 1 / (seed + 2):
                break
        else:
            raise AssertionError(f"errors relative to those allowed: {typical.tolist()}")
