"""Operators and layers are called with unusual and wrong arguments: no call ends the process.

Each call returns, or raises an error of one line. Arguments that are only stored in another way give the same results.
"""

import contextlib
import itertools
import resource
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from docs.uses import LAYERS
from gyral.nn.layers import Layer
from gyral.ops.operator import KernelUnavailableError, Operator
from tests.faults import forks, odd_tensors
from tests.faults.odd_tensors import REFUSED, changed, leaves
from tests.helpers.attacks import Attack
from tests.helpers.kernels import skip_unless_ready
from tests.ops.test_contract import CONTRACTS

CALLS = 100  # of an attack
LIMIT = 60  # seconds of a fork
MEMORY = 2 * 2**30  # bytes of a fork beyond those that it has
X = 6


def arguments(random: Random) -> tuple[Operator, list[Any]]:
    """Return an operator, and correct arguments for it."""
    contract = random.choice(CONTRACTS)
    case = contract.case(
        contract.tiny, random.choice(contract.kinds), random.random() < 0.5, random.random() < 0.5, random.randrange(9)
    )
    caught: list[Any] = []
    run = Operator._run_kernels
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Operator, "_run_kernels", lambda self, given: caught.append((self, given)) or run(self, given))
        case.values(leaves=case.leaves(random.choice((torch.float32, torch.float64))))
    operator, given = caught[0]
    return operator, list(given)


def by_dispatcher(operator: Operator, *given: Any) -> Any:
    return operator.forward_operator(*given)[: operator.results]


WAYS: tuple[Callable[..., Any], ...] = (Operator.run, Operator.__call__, by_dispatcher)


def call(operator: Operator, way: Callable[..., Any], given: list[Any], random: Random) -> str:
    """Call an operator with an unusual argument, and differentiate its results; return the outcome."""
    given = tree_map_only(Tensor, lambda each: each.detach(), given)
    if random.random() < 0.5:
        for tensor in leaves(given):
            tensor.requires_grad_(random.random() < 0.8)
    place = random.randrange(len(given))
    if operator.Arguments._fields[place].endswith("dtype"):
        way = Operator.run  # the dispatcher of torch takes any integer for a dtype, and ends the process
    odd, plain = changed(given[place], random)
    changed_arguments = [*given[:place], odd, *given[place + 1 :]]
    name = f"{operator.__name__}.{operator.Arguments._fields[place]}"
    print(f"{way.__name__} {name}: {describe(odd)}", flush=True)
    try:
        found = way(operator, *changed_arguments)
        differentiate(found, changed_arguments, random)
    except (*REFUSED, KernelUnavailableError) as error:
        refused = str(error)
    else:
        refused = None
    if refused is not None:
        assert refused, name
        return "refused"
    if plain is not None:
        expected = way(operator, *given[:place], plain, *given[place + 1 :])
        defined = slice(0, operator.results - operator.constant)
        found, expected = ([each] if isinstance(each, Tensor) else list(each)[defined] for each in (found, expected))
        for one, other in zip(leaves(found), leaves(expected), strict=True):
            assert torch.equal(one.nan_to_num(), other.nan_to_num()), name
    return "used"


def describe(value: Any) -> str:
    """Return the type of an argument, with the shape of a tensor that has one; torch cannot print every tensor."""
    try:
        shown = value.shape if isinstance(value, Tensor) else value if isinstance(value, int | float | str) else ""
    except RuntimeError:
        shown = ""
    return f"{type(value).__name__} {shown}"


def differentiate(found: Any, given: Any, random: Random) -> None:
    """Take the gradients with unusual cotangents, where there are any."""
    values = [value for value in leaves(found) if value.requires_grad]
    inputs = [tensor for tensor in leaves(given) if tensor.requires_grad]
    if not values or not inputs:
        return
    cotangents = []
    for value in values:
        odd, _ = changed(torch.ones_like(value).detach(), random) if random.random() < 0.3 else (None, None)
        cotangents.append(odd if isinstance(odd, Tensor) and odd.shape == value.shape else torch.ones_like(value))
    torch.autograd.grad(values, inputs, cotangents, allow_unused=True, create_graph=random.random() < 0.2)


def call_layer(layer: Layer, random: Random) -> str:
    """Call a layer, or the same with an unusual parameter, on unusual inputs, state or masks; return the outcome."""
    given: dict[str, Any] = {
        "inputs": torch.randn(3, 2, X, requires_grad=random.random() < 0.5),
        "state": layer.init_state(2),
        "lengths": torch.tensor([3, 1]),
        "starts": torch.rand(3, 2) < 0.3,
    }
    for name in ("lengths", "starts"):
        if random.random() < 0.7:
            given[name] = None
    owner, name = layer, random.choice([*given, "parameter"])
    if name == "parameter":
        parameters = [(part, key) for part in layer.modules() for key in part._parameters]
        owner, name = random.choice(parameters)
        old = owner._parameters[name]
        odd, _ = (None, None) if old is None else changed(old.detach(), random)
        if isinstance(odd, Tensor):
            with contextlib.suppress(RuntimeError, ValueError):  # torch refuses it
                owner._parameters[name] = nn.Parameter(odd, requires_grad=odd.is_floating_point())
    else:
        old = given[name]
        leaf = list(old) if isinstance(old, tuple) else old
        odd, _ = changed(torch.ones(2) if leaf is None else leaf, random)
        given[name] = tuple(odd) if isinstance(old, tuple) and isinstance(odd, list) else odd
    print(f"{layer} {layer.requested_backend} {name}: {describe(odd)}", flush=True)
    refused = None
    try:
        outputs, _ = layer(**given)
        if outputs.requires_grad:
            outputs.sum().backward()
    except (*REFUSED, KernelUnavailableError) as error:
        refused = str(error)
    finally:
        if name not in given:
            owner._parameters[name] = old
    assert refused is None or refused, name
    return "used" if refused is None else "refused"


def limit_memory() -> None:
    used = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))


@pytest.mark.attacks(sampled=2, whole=100)
@pytest.mark.filterwarnings("ignore")
def test_operators_are_called_with_unusual_arguments(attack: Attack, tmp_path: Path) -> None:
    drawn = []
    for _ in range(10):
        operator, given = arguments(attack.random)
        skip_unless_ready(operator)
        drawn.append((operator, given))

    def calls() -> None:
        limit_memory()
        for operator, given in itertools.islice(itertools.cycle(drawn), CALLS):
            print(call(operator, attack.random.choice(WAYS), given, attack.random), flush=True)

    ended = forks.fork(calls, tmp_path, LIMIT)
    assert ended.status == 0, (ended.status, ended.out.splitlines()[-1], ended.err[-2000:])
    for outcome in ("used", "refused"):
        attack.record(outcome, ended.out.splitlines().count(outcome))


@pytest.mark.attacks(sampled=1, whole=30)
@pytest.mark.filterwarnings("ignore")
def test_layers_are_called_with_unusual_arguments(
    attack: Attack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # functions of torch read what is not there, and the readable loop takes 2**40 steps
    left_out = (odd_tensors.without_memory, odd_tensors.of_many_steps)
    monkeypatch.setattr(odd_tensors, "OTHER", tuple(make for make in odd_tensors.OTHER if make not in left_out))
    labels = attack.random.sample(list(LAYERS), 10)

    def calls() -> None:
        limit_memory()
        made = [LAYERS[label].make(X, 8, backend=backend) for label in labels for backend in ("auto", "reference")]
        for layer in itertools.islice(itertools.cycle(made), CALLS):
            print(call_layer(layer, attack.random), flush=True)

    ended = forks.fork(calls, tmp_path, LIMIT)
    assert ended.status == 0, (ended.status, ended.out.splitlines()[-1], ended.err[-2000:])
    for outcome in ("used", "refused"):
        attack.record(outcome, ended.out.splitlines().count(outcome))
