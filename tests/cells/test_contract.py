"""The contract of `gyral.cells.base`, for every model in conf/model with a cell. A new file there is tested at once.

Each cell runs with the options of its YAML, as the variants of it in conf/model and the documentation (`VARIANTS`), in
the combinations of `COMBINATIONS`, and again with every option changed. `make test` leaves out most of the last; `ALSO`
names those that it runs. It compares fused paths, gradients and starts in all combinations, checks the other properties
of sequences in the variants, and what hardly depends on the options with those of the YAML alone.

The other values of an option are derived: flags are flipped, numbers changed, texts are the choices that the cell's
`check_choice` allows. A new cell needs no edit here unless it has an option whose other values cannot be derived, or
that has an effect only together with others; the failure then says what to add to `COMBINATIONS`.
"""

import copy
import functools
import importlib
import inspect
import io
import itertools
import pickle
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin

import hydra
import pytest
import torch
from hydra.errors import InstantiationException
from omegaconf import OmegaConf
from torch import Tensor
from torch.autograd import gradcheck
from torch.func import functional_call
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

import gyral.cells
from gyral.cells.base import RecurrentCell, State
from gyral.config.groups import choices, load_choice
from gyral.core.errors import ChoiceError
from gyral.nn.recurrent import Recurrent
from tests.helpers.running import compose_choices

INPUT_SIZE, HIDDEN_SIZE, BATCH, STEPS = 3, 5, 4, 6

# Sizes other than the hidden size, at which HIDDEN_SIZE leaves something to see.
SMALL = {"chunk_size": 2, "slots": 3, "width": 2, "read_heads": 1, "kernel_size": 3, "heads": 2}

# Sizes that a task determines where the YAML has null.
SMALL_IF_NULL = {"capacity": 4, "edge_size": 1}

# Sizes that are independent of the hidden size where the YAML has a number.
SMALL_IF_GIVEN = {"state_size": 4}

# Options that change no formula, only what is trained or the initial values, and need no runs of their own.
OF_NO_FORMULA = ("initialization", "recurrent_scale")

# Options that act on training alone, with tests of their own.
OF_TRAINING = ("base_steps", "clip")

# Options that interact, and values that cannot be derived, by model.
COMBINATIONS: dict[str, list[dict[str, Any]]] = {
    "eurnn": [{"capacity": "fft", "is_complex": False, "zoneout": 0.2}],
    "external": [
        {"cell": "torch.nn.LSTMCell", "options": {"bias": False}, "zoneout": 0.2},
        {"cell": "torch.nn.RNNCell"},
    ],
    "dnc": [{"read_heads": 3, "controller.zoneout": 0.2}],
    "fast_weights": [{"inner_steps": 3, "decay": 0.5, "activation": "tanh"}],
    "fs_eurnn": [{"slow.capacity": "fft"}],
    "fs_goru": [{"slow.capacity": "fft"}],
    "fs_lstm": [{"slow_size": 3, "num_fast": 3, "dropout": 0.2, "fast.zoneout": 0.1, "fast.zoneout_cell": 0.3}],
    "fs_rum": [{"slow.lambd": 1.0, "slow.eta": None}],
    "goru": [{"capacity": "fft"}],
    "lantm": [{"capacity": 4, "forget": 1}, {"weighting": "softmax", "group": "rotation"}],
    "lstm": [
        {"layer_norm": True, "zoneout": 0.2, "zoneout_cell": 0.4, "bias": False},
        {"proj_size": 2, "peepholes": True, "layer_norm": True, "zoneout": 0.2, "zoneout_cell": 0.4},
    ],
    "dag_rnn": [{"edge_size": None}],
    "mage": [{"edge_size": None}],
    "mage_gru": [{"edge_size": None}, {"carry": "linked"}, {"edge_attention": True}],
    "on_lstm": [{"chunk_size": 1, "layer_norm": True}, {"zoneout": 0.2, "layer_norm": True}],
    "rum": [
        {"lambd": 1.0},
        {"lambd": -0.3},
        {"lambd": 1.0, "eta": 1.0},
        {"lambd": 1.0, "layer_norm": True, "update_gate": False, "activation": "tanh"},
        {"lambd": 0.5, "eta": 0.3, "layer_norm": True, "zoneout": 0.2},
        {"update_gate": False, "eta": 1.0, "activation": "softsign"},
    ],
}


# Variants that the documentation of a cell names and that have no YAML of their own, by model.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "eurnn": [{"is_complex": False}],
    "fast_weights": [{"inner_steps": 2}],
    "fs_rum": [{"slow.layer_norm": False}],
    "full_urnn": [{"learned_initial_state": True}],
    "goru": [{"layer_norm": True}],
    "gru": [{"layer_norm": True}, {"zoneout": 0.25}],
    "lantm": [
        {"weighting": "softmax"},
        {"group": "scaling_rotation"},
        {"group": "hyperbolic"},
        {"read_first": True, "interpolate_steps": False},
    ],
    "lstm": [{"zoneout": 0.25}, {"recurrent_dropout": 0.25}, {"proj_size": 2}],
    "ntm": [
        {"initial_memory": "learned"},
        {"initial_memory": "learned_constant"},
        {"initial_memory": "random"},
        {"write_heads": 2},
    ],
    "on_lstm": [{"layer_norm": True}],
    "rnn": [{"nonlinearity": "relu"}, {"layer_norm": True}],
    "rum": [
        {"layer_norm": True},
        {"lambd": 1.0, "layer_norm": True},
        {"zoneout": 0.25},
        {"recurrent_dropout": 0.25},
    ],
    "urnn": [{"learned_initial_state": True}],
    "weinet": [{"layer_norm": False}],
}

# Further cases of `make test`: one option changed.
ALSO = (
    "dag_rnn edge_types=2",
    "dnc controller.layer_norm=True",
    "dnc read_heads=2",
    "eurnn capacity=3",
    "fs_eurnn slow.is_complex=False",
    "fs_goru slow.layer_norm=False",
    "fs_lstm slow.bias=False",
    "fs_rum num_fast=3",
    "gru bias=False",
    "lantm forget=4",
    "light_conv heads=3",
    "lstm bias=False",
    "mage edge_types=2",
    "ntm max_shift=2",
)


class Case(NamedTuple):
    """A model's YAML with some of its cell's options overridden."""

    model: str
    overrides: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        return " ".join([self.model, *(f"{name}={value}" for name, value in self.overrides)])


def model_config(model: str) -> dict[str, Any]:
    return compose_choices("model")[model]


def parent_of(model: str) -> str | None:
    """Return the model that a variant starts from, rum for `defaults: [rum, _self_]`, None if a model is no variant."""
    named = load_choice("model", model).get("defaults", [])
    return next((name for name in named if name in compose_choices("model")), None)


SEQUENCE_MODEL = "gyral.models.sequence.SequenceModel"  # other models, with any of these cells, have their own tests
WITH_CELL = [model for model in compose_choices("model") if model_config(model).get("_target_") == SEQUENCE_MODEL]
MODELS = [model for model in WITH_CELL if parent_of(model) is None]
YAML_VARIANTS = [model for model in WITH_CELL if parent_of(model) is not None]


def options(section: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value) of every option of a cell section; a cell may hold others."""
    for name, value in section.items():
        if isinstance(value, dict):
            yield from options(value, f"{prefix}{name}.")
        elif not name.startswith("_"):
            yield prefix + name, value


def alternatives(model: str, name: str, value: Any) -> list[Any]:
    """Return other values of a model's option: the derived ones, and those in `COMBINATIONS`."""
    derived = derived_alternatives(model, name, value)
    named = [table[name] for table in COMBINATIONS.get(model, ()) if name in table]
    return [*derived, *(v for i, v in enumerate(named) if v not in [value, *derived, *named[:i]])]


def derived_alternatives(model: str, name: str, value: Any) -> list[Any]:
    """Return other values of a model's option that follow from its value and its type hint."""
    kinds = get_args(hint_of(model, name))
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        step = 1 if isinstance(value, int) else -0.25 if value >= 0.5 else 0.25  # probabilities stay below 1
        if name == "hidden_size":
            step = 2  # some cells round it up to heads of equal size
        return [value + step, *([None] if NoneType in kinds and name not in SMALL_IF_NULL else [])]
    if value is None:
        of_kind = {bool: [True, False], int: [HIDDEN_SIZE - 1], float: [0.7, 1.5]}
        if set(kinds) & set(of_kind):
            return next(of_kind[kind] for kind in of_kind if kind in kinds)
    return [other for other in choices_of(model, name) if other != value]


def hint_of(model: str, name: str) -> Any:
    """Return the type hint of a model's option."""
    place, _, own = name.rpartition(".")
    section = OmegaConf.select(OmegaConf.create(model_config(model)["cell"]), place) if place else None
    target = (section or model_config(model)["cell"])["_target_"]
    return inspect.signature(hydra.utils.get_class(target), eval_str=True).parameters[own].annotation


def choices_of(model: str, name: str) -> list[str]:
    """Return the texts that an option may be: those of its type hint, or of the error of a wrong one; [] if any."""
    for hint in (hint_of(model, name), *get_args(hint_of(model, name))):
        if get_origin(hint) is Literal:
            return list(get_args(hint))
    try:
        make_cell(Case(model, ((name, "no such choice"),)))
    except ChoiceError as error:
        return list(error.choices)
    except (ValueError, InstantiationException) as error:
        return list(error.__cause__.choices) if isinstance(error.__cause__, ChoiceError) else []
    return []


def overrides_for(model: str, name: str, value: Any) -> tuple[tuple[str, Any], ...]:
    """Return the overrides that set an option and the flag that its name begins with: layer_norm for layer_norm_eps."""
    flags = [other for other, default in cell_options(model) if name.startswith(f"{other}_") and default is False]
    return (*((flag, True) for flag in flags), (name, value))


@functools.cache
def cell_options(model: str) -> list[tuple[str, Any]]:
    """Return the options of a model's cell at the sizes of these tests."""
    return [(name, small(name, value)) for name, value in options(model_config(model)["cell"])]


def small(name: str, value: Any, hidden_size: int = HIDDEN_SIZE) -> Any:
    """Return the value of an option at the sizes of these tests."""
    sizes = SMALL | (SMALL_IF_NULL if value is None else SMALL_IF_GIVEN)
    return hidden_size if name.endswith("hidden_size") else sizes.get(name, value)


def every_option() -> Iterator[tuple[str, str, Any]]:
    """Yield (model, dotted name, value) of every option; one of a cell within another only once per class and place."""
    seen = set()
    for model in MODELS:
        section = model_config(model)["cell"]
        for name, value in cell_options(model):
            place = name.rpartition(".")[0]
            key = (section[place]["_target_"], name) if place else (model, name)
            if key not in seen:
                seen.add(key)
                yield model, name, value


FACTORIES: dict[tuple[str, int], functools.partial] = {}


def cell_factory(case: Case, hidden_size: int = HIDDEN_SIZE) -> functools.partial:
    """Instantiate the cell section of the YAML at a small size, once: the argument that Hydra passes to the model."""
    key = str(case), hidden_size
    if key not in FACTORIES:
        FACTORIES[key] = instantiate_cell(case, hidden_size)
    return FACTORIES[key]


def instantiate_cell(case: Case, hidden_size: int) -> functools.partial:
    config = OmegaConf.create(model_config(case.model)["cell"])
    for name, value in options(model_config(case.model)["cell"]):
        if small(name, value, hidden_size) != value:
            OmegaConf.update(config, name, small(name, value, hidden_size))
    for name, value in case.overrides:
        OmegaConf.update(config, name, value)
    return hydra.utils.instantiate(config)


def make_cell(case: Case, dtype: torch.dtype = torch.float64) -> RecurrentCell:
    return cell_factory(case)(INPUT_SIZE).to(dtype).eval()


def make_model(case: Case, backend: str = "reference", dtype: torch.dtype = torch.float64) -> Recurrent:
    return Recurrent(cell_factory(case), INPUT_SIZE, backend=backend).to(dtype).eval()


def backends(case: Case) -> list[str]:
    """Return the backends that the case has in float64, where comparisons can be tight."""
    return ["reference"] if make_cell(case).fused_unsupported_reason() else ["reference", "fused"]


def variant_case(model: str) -> Case:
    """Return a model that starts from another one as a case of that one."""
    parent = parent_of(model)
    assert parent is not None
    others = model_config(parent)["cell"]
    changed = [(name, value) for name, value in options(model_config(model)["cell"]) if value != others[name]]
    return Case(parent, tuple(changed))


def written_cases(tables: dict[str, list[dict[str, Any]]]) -> list[Case]:
    return [Case(model, tuple(table.items())) for model in tables for table in tables[model]]


OPTIONS = [option for option in every_option() if option[1] not in OF_TRAINING]
DEFAULTS = [Case(model, ()) for model in MODELS]
CHANGED = [
    Case(model, overrides_for(model, name, other))
    for model, name, value in OPTIONS
    if not name.endswith(("_size", "slots", "width"))
    and not name.rpartition(".")[2].startswith(("trainable_", *OF_NO_FORMULA))
    for other in derived_alternatives(model, name, value)
]
DOCUMENTED = [*map(variant_case, YAML_VARIANTS), *written_cases(VARIANTS)]
NAMED = list({str(case): case for case in [*DOCUMENTED, *written_cases(COMBINATIONS)]}.values())
FURTHER = [case for case in CHANGED if case not in NAMED]
FIRST_OF_CLASS = {model_config(case.model)["cell"]["_target_"]: case for case in reversed(DEFAULTS)}.values()


def cases(*in_make_test: Case) -> pytest.MarkDecorator:
    """Parametrize a test with all cases, of which `make test` runs the given ones."""
    marked = [
        pytest.param(case, marks=() if case in in_make_test else pytest.mark.slow)
        for case in (*DEFAULTS, *NAMED, *FURTHER)
    ]
    return pytest.mark.parametrize("case", marked, ids=str)


every_case = cases(*DEFAULTS, *NAMED, *(case for case in FURTHER if str(case) in ALSO))
every_variant = cases(*DEFAULTS, *DOCUMENTED)
every_model = cases(*DEFAULTS)  # for what hardly depends on the options


# `make test` runs sequences of several lengths with all, and whole ones with a cell of each kind of kernel.
WHOLE = (
    *("rum", "lstm", "fs_rum", "fast_weights", "dnc", "lantm", "mage_gru", "light_conv", "gated_delta_net", "mamba"),
    *("lru", "min_gru", "pd_ssm", "slice", "rotation_scan", "slstm", "m2rnn"),
)
without_repetitions = pytest.mark.named("*-lengths", *(f"{model}-whole" for model in WHOLE))


def random_inputs(steps: int = STEPS, batch: int = BATCH, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(steps, batch, INPUT_SIZE, dtype=dtype)


def leaves_of(state: Any) -> list[Tensor]:
    return tree_flatten(state)[0]


def rows(state: State, picked: Any) -> State:
    return tree_map(lambda leaf: leaf[picked], state)


@torch.no_grad()
def random_state(cell: RecurrentCell, batch: int = BATCH) -> State:
    """Return a state such as a sequence reaches: a memory that must be a rotation is one."""
    state = cell.init_state(batch)
    dtype = next(cell.parameters()).dtype
    for inputs in random_inputs(4, batch, dtype):
        _, state = cell(inputs, state)
    return state


def assert_same(actual: Any, expected: Any, tolerance: float = 1e-12) -> None:
    actual, expected = leaves_of(actual), leaves_of(expected)
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


def differs(one: Tensor, other: Tensor) -> bool:
    return one.shape != other.shape or (one - other).abs().max().item() > 1e-6


# ---------------------------------------------------------------- configuration


def concrete_cells() -> set[str]:
    """Return the import paths of all classes in gyral.cells that are whole cells."""
    paths = set()
    for module in pkgutil.iter_modules(gyral.cells.__path__, "gyral.cells."):
        for name, member in vars(importlib.import_module(module.name)).items():
            is_cell = inspect.isclass(member) and issubclass(member, RecurrentCell) and not inspect.isabstract(member)
            if is_cell and member.__module__ == module.name and name.endswith("Cell"):
                paths.add(f"{module.name}.{name}")
    return paths


def test_the_named_cases_exist_and_none_is_there_twice() -> None:
    assert set(ALSO) <= {str(case) for case in FURTHER}
    assert set(WHOLE) <= {*MODELS}
    names = [str(case) for case in (*DEFAULTS, *NAMED, *FURTHER)]
    assert len(set(names)) == len(names)


def test_every_cell_is_the_target_of_some_yaml() -> None:
    targets = {model_config(model)["cell"]["_target_"] for model in MODELS}
    assert concrete_cells(), "no cells found: the test is blind"
    assert concrete_cells() - targets == set(), "cells without a YAML in conf/model"


@pytest.mark.parametrize("model", MODELS)
def test_every_yaml_instantiates(model: str) -> None:
    config = OmegaConf.create(model_config(model))
    sizes = {"vocabulary_size": 7, "output_size": 4}
    whole = hydra.utils.instantiate(config, **sizes)
    logits, _ = whole(torch.randint(7, (2, 3)))
    assert logits.shape == (2, 3, 4)
    factory = hydra.utils.instantiate(config.cell)
    assert isinstance(factory(INPUT_SIZE), RecurrentCell)


@pytest.mark.parametrize("model", YAML_VARIANTS)
def test_a_variant_changes_options_of_its_parent_that_are_tested_there(model: str) -> None:
    parent = parent_of(model)
    assert parent is not None
    own, others = model_config(model), model_config(parent)
    assert own["cell"].keys() == others["cell"].keys()
    changed = variant_case(model).overrides
    assert changed, "the variant is the parent under another name"
    assert own | {"cell": others["cell"] | dict(changed)} == own
    assert all(alternatives(parent, name, others["cell"][name]) for name, _ in changed)
    assert isinstance(hydra.utils.instantiate(own["cell"])(INPUT_SIZE), RecurrentCell)


@pytest.mark.parametrize("model", MODELS)
def test_the_yaml_names_every_option_with_its_default(model: str) -> None:
    assert_names_every_option(model_config(model)["cell"], {"input_size"})


@pytest.mark.parametrize("cell", choices("cell"))
def test_a_file_of_a_cell_names_every_option_but_the_hidden_size(cell: str) -> None:
    section = compose_choices("cell")[cell]
    assert section["_partial_"] is True
    assert_names_every_option(section, {"input_size", "hidden_size"})
    for inner in (value for value in section.values() if isinstance(value, dict) and "_target_" in value):
        assert inner["_partial_"] is True
        assert_names_every_option(inner, {"input_size", "hidden_size"}, IN_FAST_SLOW)


IN_FAST_SLOW = {"layer_norm": True, "eta": 1.0}  # values that differ from the default in fast-slow networks


def assert_names_every_option(section: dict[str, Any], without: set[str], other: dict[str, Any] | None = None) -> None:
    signature = inspect.signature(hydra.utils.get_class(section["_target_"]))
    named = {name for name in section if not name.startswith("_")}
    assert named == set(signature.parameters) - without
    for name in named:
        default = signature.parameters[name].default
        allowed = default is inspect.Parameter.empty or section[name] in (default, (other or {}).get(name, default))
        if default is None and isinstance(section[name], dict):  # the YAML writes out a cell that is the default
            continue
        assert allowed, f"{name}: YAML and class disagree"


def observe(cell: RecurrentCell, kind: str) -> list[Tensor]:
    """Return what an option may show in, on fixed inputs."""
    torch.default_generator.manual_seed(3)
    inputs = random_inputs()
    model = Recurrent(lambda _: cell, INPUT_SIZE, backend="reference").train(kind == "training")
    outputs, state = model(inputs)
    if kind == "gradient":
        parameters = list(cell.parameters())
        return list(torch.autograd.grad(outputs, parameters, torch.randn_like(outputs), materialize_grads=True))
    return [outputs, *leaves_of(state)]


def shows(model: str, *overrides: tuple[tuple[str, Any], ...]) -> bool:
    """Return whether two cells differ: in outputs, states or gradients with equal weights, or in initial values.

    Initial values are compared if both cells have the same parameters: others may be drawn in another order.
    """
    cells = []
    for one in overrides:
        torch.default_generator.manual_seed(0)
        cells.append(make_cell(Case(model, one)))
    initial = [{key: tensor.clone() for key, tensor in cell.state_dict().items()} for cell in cells]
    shapes = [{key: tensor.shape for key, tensor in weights.items()} for weights in initial]
    if shapes[0] == shapes[1] and any(differs(initial[0][key], initial[1][key]) for key in shapes[0]):
        return True
    # the first cell's weights wherever they fit, lest different random draws pass for an effect of the option
    fitting = {key: tensor for key, tensor in initial[0].items() if shapes[1].get(key) == tensor.shape}
    moved = {key: tensor + torch.randn_like(tensor) for key, tensor in fitting.items() if tensor.is_floating_point()}
    for weights in (fitting, moved):  # some options act on weights that are not initial values, such as bounds of them
        for cell, own in zip(cells, initial, strict=True):
            cell.load_state_dict(own | weights)
        for kind in ("outputs", "training", "gradient"):
            one, other = (observe(cell, kind) for cell in cells)
            if len(one) != len(other) or any(differs(a, b) for a, b in zip(one, other, strict=True)):
                return True
    return False


@pytest.mark.parametrize(("model", "name", "value"), OPTIONS, ids=[f"{model} {name}" for model, name, _ in OPTIONS])
def test_every_option_has_an_effect(model: str, name: str, value: Any) -> None:
    others = alternatives(model, name, value)
    where = f"COMBINATIONS['{model}'] in {Path(__file__).name}"
    assert others, (
        f"conf/model/{model}.yaml: no other value of {name}={value!r} is known. Check texts with check_choice of "
        f"gyral.core.checks, or add another value to {where}."
    )
    among = [table for table in COMBINATIONS.get(model, ()) if name in table]
    contexts = [(), *(tuple((key, given) for key, given in table.items() if key != name) for table in among)]
    for one, other in itertools.combinations([value, *others], 2):
        assert any(
            shows(model, *((*context, *overrides_for(model, name, candidate)) for candidate in (one, other)))
            for context in contexts
        ), (
            f"conf/model/{model}.yaml: {name}={one} and {name}={other} are the same in outputs, states, gradients and "
            f"initial values. If the option needs another one, add both to {where}."
        )


# ---------------------------------------------------------------- states and single steps


@every_model
def test_state_is_a_named_tuple_with_batch_first(case: Case) -> None:
    cell = make_cell(case)
    for batch in (1, BATCH):
        state = cell.init_state(batch)
        assert isinstance(state, tuple)
        assert hasattr(state, "_fields")
        output, new = cell(random_inputs(1, batch)[0], state)
        assert output.shape == (batch, cell.output_size)
        assert type(new) is type(state)
        for before, after in zip(leaves_of(state), leaves_of(new), strict=True):
            assert isinstance(before, Tensor)
            assert before.shape[0] == batch
            assert (after.shape, after.dtype) == (before.shape, before.dtype)


@every_model
def test_forward_is_project_and_step(case: Case) -> None:
    cell = make_cell(case)
    inputs, state = random_inputs(1)[0], random_state(cell)
    with torch.no_grad():
        assert_same(cell(inputs, state), cell.step(cell.project(inputs), state, cell.sequence_constants(BATCH)), 0.0)
        assert_same(cell(inputs), cell(inputs, cell.init_state(BATCH)), 0.0)


@every_model
def test_project_treats_all_steps_alike(case: Case) -> None:
    cell = make_cell(case)
    inputs = random_inputs()
    whole = leaves_of(cell.project(inputs))
    for time in range(STEPS):
        alone = leaves_of(cell.project(inputs[time]))
        assert_same([None if leaf is None else leaf[time] for leaf in whole], alone)


@every_variant
def test_the_loop_is_the_step_repeated(case: Case) -> None:
    cell = make_cell(case)
    inputs = random_inputs()
    state = first = random_state(cell)
    expected = []
    for time in range(STEPS):
        output, state = cell(inputs[time], state)
        expected.append(output)
    for backend in backends(case):
        model = Recurrent(lambda _: cell, INPUT_SIZE, backend=backend).eval()
        outputs, (final,) = model(inputs, (first,))
        assert outputs.shape == (STEPS, BATCH, cell.output_size) == (*outputs.shape[:2], model.output_size)
        assert_same((outputs, *final), (torch.stack(expected), *state))


@every_model
def test_given_state_and_inputs_are_not_modified(case: Case) -> None:
    for backend in backends(case):
        model = make_model(case, backend)
        inputs, state = random_inputs(), random_state(model.cells[0])
        before = tree_map(torch.clone, (inputs, state))
        versions = [leaf._version for leaf in leaves_of((inputs, state))]
        model(inputs, (state,))
        with torch.no_grad():
            model(inputs, (state,))
            model.cells[0](inputs[0], state)
        assert_same((inputs, state), before, 0.0)
        assert [leaf._version for leaf in leaves_of((inputs, state))] == versions


@every_model
def test_state_dict_round_trip(case: Case) -> None:
    torch.default_generator.manual_seed(1)
    first = make_model(case)
    torch.default_generator.manual_seed(2)
    second = make_model(case)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second.load_state_dict(torch.load(file, weights_only=True))
    inputs = random_inputs()
    with torch.no_grad():
        assert_same(second(inputs), first(inputs), 0.0)


@every_model
def test_copies_and_pickles(case: Case) -> None:
    model = make_model(case)
    cell = model.cells[0]
    state = random_state(cell)
    inputs = random_inputs()
    with torch.no_grad():
        expected = model(inputs, (state,))
        for duplicate in (copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))):
            twin, twin_state = duplicate(model), duplicate(state)
            assert type(twin_state) is type(state)
            assert_same(twin(inputs, (twin_state,)), expected, 0.0)
            assert_same(duplicate(cell)(inputs[0], state), cell(inputs[0], state), 0.0)
            # a twin has weights of its own
            for parameter in twin.parameters():
                parameter.add_(torch.rand_like(parameter))
            assert_same(model(inputs, (state,)), expected, 0.0)
            assert differs(twin(inputs, (state,))[0], expected[0])


# ---------------------------------------------------------------- sequences


@every_variant
def test_two_pieces_equal_one_whole(case: Case) -> None:
    for backend in backends(case):
        model = make_model(case, backend)
        inputs = random_inputs()
        with torch.no_grad():
            for start in (None, (random_state(model.cells[0]),)):
                outputs, final = model(inputs, start)
                for cut in (1, STEPS // 2, STEPS - 1):
                    head, carried = model(inputs[:cut], start)
                    tail, last = model(inputs[cut:], carried)
                    assert_same((torch.cat([head, tail]), last), (outputs, final))


@every_variant
def test_no_output_depends_on_a_later_input(case: Case) -> None:
    for backend in backends(case):
        model = make_model(case, backend)
        inputs = random_inputs()
        with torch.no_grad():
            outputs, _ = model(inputs)
            for time in range(STEPS):
                changed = inputs.clone()
                changed[time] = torch.randn_like(changed[time])
                others, _ = model(changed)
                assert_same(others[:time], outputs[:time])
                assert differs(others[time:], outputs[time:]), f"the input at {time} does nothing"
                assert time == STEPS - 1 or differs(others[time + 1 :], outputs[time + 1 :]), f"{time} is forgotten"


@every_variant
def test_rows_of_a_batch_do_not_interact(case: Case) -> None:
    for backend in backends(case):
        model = make_model(case, backend)
        inputs, state = random_inputs(), random_state(model.cells[0])
        with torch.no_grad():
            outputs, (final,) = model(inputs, (state,))
            assert differs(outputs[:, 0], outputs[:, 1])
            for row in range(BATCH):
                own = slice(row, row + 1)
                alone, (last,) = model(inputs[:, own], (rows(state, own),))
                assert_same((alone, last), (outputs[:, own], rows(final, own)))
            order = torch.tensor([2, 0, 3, 1])
            permuted, (last,) = model(inputs[:, order], (rows(state, order),))
            assert_same((permuted, last), (outputs[:, order], rows(final, order)))


@every_case
def test_gradients_of_inputs_state_and_parameters(case: Case) -> None:
    check_gradients(case, fast_mode=True)  # along random directions


@pytest.mark.slow
@pytest.mark.parametrize("case", FIRST_OF_CLASS, ids=str)
def test_each_element_of_the_gradients(case: Case) -> None:
    check_gradients(case, fast_mode=False)


def check_gradients(case: Case, fast_mode: bool) -> None:
    if make_cell(case).estimates_gradient:
        pytest.skip("its gradient is an estimate, see the tests of the cell")
    # smaller than elsewhere: the work grows with the fourth power of the size
    model = Recurrent(cell_factory(case, hidden_size=3), INPUT_SIZE, backend="reference").double().eval()
    with (
        torch.no_grad()
    ):  # initial weights may be tiny, and a normalization of three numbers that hardly differ is rough
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    # parts of the weights of RUM′ have no gradient, see test_rum.py
    frozen = any(name.startswith("trainable_") for name, _ in case.overrides)
    checked = {n: p for n, p in model.named_parameters() if not (frozen and "weight" in n)}
    inputs = random_inputs(2, 2)
    state, structure = tree_flatten(random_state(model.cells[0], 2))
    is_float = [leaf.is_floating_point() for leaf in state]

    def run(inputs: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        own_state = tree_unflatten(others[: len(state)], structure)
        parameters = dict(zip(checked, others[len(state) :], strict=True))
        outputs, (final,) = functional_call(model, parameters, (inputs, (own_state,)))
        return outputs, *(leaf for leaf in leaves_of(final) if leaf.is_floating_point())

    leaves = [leaf.clone().requires_grad_(wanted) for leaf, wanted in zip(state, is_float, strict=True)]
    parameters = [parameter.detach().clone().requires_grad_() for parameter in checked.values()]
    leaves = (inputs.requires_grad_(), *leaves, *parameters)
    assert gradcheck(run, leaves, eps=1e-6, atol=1e-7, rtol=1e-5, fast_mode=fast_mode)


STARTS = torch.tensor([[0, 0, 0, 1, 0, 0], [1, 0, 1, 1, 0, 1], [0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0]]).bool().T


@without_repetitions
@pytest.mark.parametrize("ragged", [False, True], ids=["whole", "lengths"])
@every_case
def test_a_sequence_with_starts_equals_its_segments(case: Case, ragged: bool) -> None:
    model = make_model(case)
    inputs = random_inputs().requires_grad_()
    state = tree_map(lambda leaf: leaf.requires_grad_(leaf.is_floating_point()), random_state(model.cells[0]))
    lengths = torch.tensor([STEPS, 4, 3, 1]) if ragged else torch.full((BATCH,), STEPS)
    outputs, final = model(inputs, (state,), lengths if ragged else None, STARTS)
    expected, ended = [], []
    for row, length in enumerate(lengths.tolist()):
        own = slice(row, row + 1)
        begins = [0, *(time for time in range(1, length) if STARTS[time, row])]
        carried: Any = None if STARTS[0, row] else (rows(state, own),)
        pieces = []
        for begin, end in zip(begins, [*begins[1:], length], strict=True):
            piece, carried = model(inputs[begin:end, own], carried)
            pieces.append(piece)
            last, carried = carried, None
        expected.append(torch.cat([*pieces, outputs.new_zeros(STEPS - length, 1, outputs.shape[2])]))
        ended.append(leaves_of(last))
    together = [torch.cat(expected, dim=1), *(torch.cat(leaves) for leaves in zip(*ended, strict=True))]
    actual = [outputs, *leaves_of(final)]
    assert_same(actual, together)
    wanted = [inputs, *(leaf for leaf in leaves_of(state) if leaf.requires_grad), *model.parameters()]
    cotangents = [torch.randn_like(leaf) if leaf.is_floating_point() else None for leaf in actual]
    gradients = [
        torch.autograd.grad(
            [value for value, cotangent in zip(values, cotangents, strict=True) if cotangent is not None],
            wanted,
            [cotangent for cotangent in cotangents if cotangent is not None],
            materialize_grads=True,
        )
        for values in (actual, together)
    ]
    assert_same(*gradients, tolerance=1e-10)


def corner_inputs() -> dict[str, Tensor]:
    return {
        "zeros": torch.zeros(STEPS, BATCH, INPUT_SIZE),
        "huge": 1e4 * torch.randn(STEPS, BATCH, INPUT_SIZE),
        "tiny": 1e-30 * torch.randn(STEPS, BATCH, INPUT_SIZE),
        "constant": torch.ones(STEPS, BATCH, INPUT_SIZE),
        "one step": torch.randn(1, BATCH, INPUT_SIZE),
        "one row": torch.randn(STEPS, 1, INPUT_SIZE),
        "one of each": torch.randn(1, 1, INPUT_SIZE),
    }


@every_variant
def test_corner_inputs_stay_finite(case: Case) -> None:
    for backend in backends(case):
        model = make_model(case, backend, torch.float32)
        for corner, inputs in corner_inputs().items():
            if corner == "zeros" and ("fast.bias", False) in case.overrides:
                continue  # without biases, the normalized LSTMs normalize zeros: each step multiplies gradients by 1/√ε
            state, structure = tree_flatten(model.init_state(inputs.shape[1]))
            leaves = [leaf.requires_grad_(leaf.is_floating_point()) for leaf in state]
            outputs, final = model(inputs.requires_grad_(), tree_unflatten(leaves, structure))
            values = [leaf for leaf in (outputs, *leaves_of(final)) if leaf.is_floating_point()]
            wanted = [inputs, *(leaf for leaf in leaves if leaf.requires_grad), *model.parameters()]
            cotangents = [torch.randn_like(value) for value in values]
            gradients = torch.autograd.grad(values, wanted, cotangents, materialize_grads=True)
            assert all(tensor.isfinite().all() for tensor in (*values, *gradients)), f"{corner} on {backend}"


# ---------------------------------------------------------------- fused paths


def results(model: Recurrent, inputs: Tensor, state: State, lengths: Tensor | None, seed: int) -> list[Tensor]:
    """Return outputs, final state and the gradient of everything under random cotangents, drawn in float64."""
    dtype = next(model.parameters()).dtype
    inputs = inputs.to(dtype).requires_grad_()
    state = tree_map(lambda leaf: leaf.to(dtype).requires_grad_() if leaf.is_floating_point() else leaf, state)
    outputs, (final,) = model(inputs, (state,), lengths)
    values = [outputs, *(leaf for leaf in leaves_of(final) if leaf.is_floating_point())]
    generator = torch.Generator().manual_seed(seed)
    cotangents = [torch.randn(v.shape, generator=generator, dtype=torch.float64).to(dtype) for v in values]
    wanted = [inputs, *(leaf for leaf in leaves_of(state) if leaf.requires_grad), *model.parameters()]
    gradients = torch.autograd.grad(values, wanted, cotangents, materialize_grads=True)
    return [tensor.detach().double() for tensor in (*values, *gradients)]


@without_repetitions
@pytest.mark.parametrize("ragged", [False, True], ids=["whole", "lengths"])
@every_case
def test_fused_equals_reference(case: Case, ragged: bool) -> None:
    if "fused" not in backends(case):
        pytest.skip(f"no fused path: {make_cell(case).fused_unsupported_reason()}")
    compare_fused(case, torch.tensor([2, STEPS, 1, 4]) if ragged else None)


DRAWS = 3, 24  # one draw's error is mostly luck at these sizes: if a few do not suffice, more are drawn


def compare_fused(case: Case, lengths: Tensor | None) -> None:
    """Compare the fused path with the reference: 1e-10 in float64, in float32 by the errors against float64.

    A float32 error may be twice the error of the float32 reference or, if that is larger, twice the change that float32
    rounding of the inputs alone causes in float64, which does not depend on the rounding of one processor, or twice the
    rounding of the largest gradient: chunks of a linear recurrence add terms that cancel where its memory is erased.
    """
    models = {
        (backend, dtype): make_model(case, backend, dtype)
        for backend in ("fused", "reference")
        for dtype in (torch.float64, torch.float32)
    }
    exact = models["reference", torch.float64]

    def ratios(seed: int, with_rounding: bool) -> Tensor:
        torch.default_generator.manual_seed(seed)
        reference = make_model(case, "reference")
        data = random_inputs(), random_state(reference.cells[0]), lengths, seed
        for model in models.values():
            model.load_state_dict(reference.state_dict())
        truth = results(exact, *data)
        assert_same(results(models["fused", torch.float64], *data), truth, 1e-10)
        fused = relative_errors(results(models["fused", torch.float32], *data), truth)
        allowed = relative_errors(results(models["reference", torch.float32], *data), truth)
        if with_rounding:
            signs = torch.randint(0, 2, data[0].shape) - 0.5
            rounded = data[0] * (1 + torch.finfo(torch.float32).eps * signs)
            allowed = torch.maximum(allowed, relative_errors(results(exact, rounded, *data[1:]), truth))
            # outputs and final state; then the gradients of as many inputs and states, and of the parameters
            values = (len(truth) - len(list(exact.parameters()))) // 2
            norms = torch.stack([tensor.norm() for tensor in truth[values:]])
            floors = torch.finfo(torch.float32).eps * norms.max() / norms.clamp(min=1e-30)
            allowed[values:] = torch.maximum(allowed[values:], floors)
        return (fused / allowed).log()

    for draws, with_rounding in zip(DRAWS, (False, True), strict=True):
        typical = torch.stack([ratios(seed, with_rounding) for seed in range(draws)]).mean(0).exp()
        if (typical <= 2).all():
            return
    raise AssertionError(f"{case}: errors relative to those allowed {typical.tolist()}")


def relative_errors(values: list[Tensor], truth: list[Tensor]) -> Tensor:
    """Return ‖value − truth‖ / ‖truth‖ of each, at least the rounding of one number."""
    errors = [
        (value - exact).norm() / exact.norm().clamp(min=1e-30) for value, exact in zip(values, truth, strict=True)
    ]
    return torch.stack(errors).clamp(min=torch.finfo(torch.float32).eps)
