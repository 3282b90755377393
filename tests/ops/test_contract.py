"""What every operator of `gyral.ops` keeps, whatever it computes, proven for each family of tests/ops.

A message names the property by the name of the test, the family in brackets, and the drawing of the arguments.
"""

import contextlib
import functools
import gc
import importlib.util
import itertools
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from gyral.core.errors import InputError
from gyral.ops.operator import Operator
from tests.helpers.found import at_least
from tests.helpers.kernels import compile_for, operators, skip_unless_ready
from tests.helpers.memory import made_by, poison, watched_during
from tests.helpers.operators import check_registration
from tests.ops.contract import (
    EVERY_MASK,
    Case,
    Contract,
    Named,
    assert_close,
    derivatives,
    naming,
    threads,
)

FILES = sorted(path for path in Path(__file__).parent.glob("*/test_*.py") if path.stem == f"test_{path.parent.name}")
CONTRACTS = [importlib.import_module(f"tests.ops.{path.parent.name}.{path.stem}").CONTRACT for path in FILES]

every_contract = pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.name)


@pytest.fixture(autouse=True)
def compiled(request: pytest.FixtureRequest) -> None:
    """Skip a family whose kernels cannot be compiled here."""
    if "contract" in request.fixturenames:
        skip_unless_ready(request.getfixturevalue("contract").operator)


def every_kind(check: Callable[[Case], None], sizes: str = "small") -> Any:
    """Return a test of a family that checks each of its kinds with sequences of several lengths, and resets."""

    @every_contract
    def test(contract: Contract) -> None:
        for kind in contract.kinds:
            with naming(case := contract.case(getattr(contract, sizes), kind)):
                check(case)

    test.__name__, test.__doc__ = check.__name__, check.__doc__
    return test


every_tiny_kind = functools.partial(every_kind, sizes="tiny")


def test_every_operator_has_a_contract() -> None:
    found = operators("cpu")  # the others are compared in Triton's interpreter
    assert sorted(at_least(19, found)) == [contract.name for contract in CONTRACTS]
    modules = [
        kernels for operator in found.values() for kernels in operator.kernels.values() if isinstance(kernels, str)
    ]
    assert all(importlib.util.find_spec(name) for name in modules)


# ---------------------------------------------------------------- values and gradients


@every_contract
def test_kernels_equal_the_naive_function_and_the_truth(contract: Contract) -> None:
    drawings = [
        (sizes, kind)
        for index, kind in enumerate(contract.kinds)
        for sizes in contract.sizes[index % contract.stride :: contract.stride]
    ]
    drawings += [*contract.large, *contract.others]
    contract.check(zip(drawings, itertools.cycle(EVERY_MASK), strict=False))
    if contract.random is not None:
        contract.check_random(range(contract.few))


@pytest.mark.slow
@every_contract
def test_kernels_equal_the_naive_function_for_all_sizes_masks_and_random_options(contract: Contract) -> None:
    drawings = [*itertools.product(contract.sizes, contract.kinds), *contract.large, *contract.others]
    contract.check(itertools.product(drawings, EVERY_MASK))
    if contract.random is not None:
        contract.check_random(range(contract.few, contract.few + contract.many))


@every_contract
def test_second_derivatives_equal_those_of_the_naive_function(contract: Contract) -> None:
    for kind in contract.kinds:
        with naming(case := contract.case(contract.tiny, kind)):
            found = []
            for run in (contract.run, contract.plain):
                leaves = case.leaves()
                flat = list(leaves.values())
                first = derivatives(case.values(run, leaves), flat, create_graph=True)
                second = derivatives(first, flat, allow_unused=True)
                found.append({f"gradient {index}": each for index, each in enumerate((*first, *second))})
            assert_close(found[0], found[1], 100 * contract.exact)


@every_contract
def test_first_and_second_derivatives_equal_finite_differences(contract: Contract) -> None:
    for kind in filter(contract.is_smooth, contract.kinds[:: contract.apart] if contract.apart else ()):
        contract.case(contract.tiny, kind).check_differences()


@pytest.mark.slow
@every_contract
def test_derivatives_of_every_kind_equal_finite_differences(contract: Contract) -> None:
    for kind, masks in itertools.product(filter(contract.is_smooth, contract.kinds), EVERY_MASK):
        contract.case(contract.tiny, kind, *masks).check_differences()


@every_contract
def test_an_empty_batch(contract: Contract) -> None:
    for kind, masks in zip(contract.kinds, itertools.cycle(EVERY_MASK), strict=False):
        with naming(case := contract.case((2, 0, *contract.small[2:]), kind, *masks)):
            expected = case.results(contract.plain)
            assert_close(case.results(), expected, 0.0)
            assert all(tensor.sum() == 0 for tensor in expected.values())


# ---------------------------------------------------------------- memory and threads


def large_and_small(contract: Contract) -> Iterator[Case]:
    for kind, masks in zip(contract.kinds, itertools.cycle(((True, True), (False, False))), strict=False):
        yield contract.case(contract.small, kind, *masks)
    for drawing in contract.large:
        yield contract.case(*drawing)


@every_contract
def test_any_number_of_threads_gives_the_same_bits(contract: Contract) -> None:
    for case in large_and_small(contract):
        with naming(case):
            found = []
            for count in (1, 3):
                with threads(count):
                    found.append(case.results(dtype=torch.float32))
            assert_close(found[1], found[0], 0.0)


@every_contract
def test_uninitialized_memory_is_never_read(contract: Contract) -> None:
    for case in large_and_small(contract):
        with naming(case):
            clean = case.results()
            with pytest.MonkeyPatch.context() as patch:
                called = poison(patch)
                again = case.results()
            assert called
            assert_close(again, clean, 0.0)


@every_kind
def test_tensors_may_have_any_memory_layout(case: Case) -> None:
    """Transposed tensors, every second number of a tensor, and, for sequences, one step for all."""

    def transpose(tensor: Tensor) -> Tensor:
        order = tuple(range(tensor.dim())[::-1])
        return tensor.permute(order).contiguous().permute(order)

    def skip(tensor: Tensor) -> Tensor:
        return torch.stack((tensor, torch.zeros_like(tensor)), -1)[..., 0] if tensor.dim() else tensor

    expected = case.results()
    before = case.tensors, case.options, case.cotangents
    for place in (transpose, skip):
        case.tensors, case.options, case.cotangents = tree_map_only(Tensor, place, before)
        matrices = [tensor for tensor in case.tensors.values() if tensor.numel() and tensor.squeeze().dim() > 1]
        assert not any(tensor.is_contiguous() for tensor in matrices)
        assert_close(case.results(), expected, 1e-12)
    case.tensors, case.options, case.cotangents = before
    for name in case.sequences(case.tensors):
        case.tensors[name] = case.tensors[name][:1].expand_as(case.tensors[name])
    found = case.results()
    case.tensors = {name: tensor.contiguous() for name, tensor in case.tensors.items()}
    assert_close(found, case.results(), 1e-12)


@every_tiny_kind
def test_all_memory_is_freed_without_the_garbage_collector(case: Case) -> None:
    gc.disable()
    try:
        for use in ("no gradients", "never backward", "backward", "create graph"):
            use_once(case, use)  # what torch imports at the first use leaves cycles
            watched = watched_during(functools.partial(use_once, case, use))
            assert watched
            assert all(reference() is None for reference in watched), use
    finally:
        gc.enable()


def use_once(case: Case, use: str) -> None:
    leaves = case.leaves()
    with torch.set_grad_enabled(use != "no gradients"):
        values = case.values(leaves=leaves)
    if use == "backward":
        derivatives(values, list(leaves.values()))
    if use == "create graph":
        sum(each.sum() for each in derivatives(values, list(leaves.values()), create_graph=True)).backward()


@every_contract
def test_memory_is_linear_in_the_steps(contract: Contract) -> None:
    for kind in contract.kinds:
        sizes = []
        for steps in (128, 256, 512):
            with naming(case := contract.case((steps, 2, *contract.tiny[2:]), kind)):
                sizes.append(made_by(lambda case=case: case.values(leaves=case.leaves())))
        assert 0 < sizes[2] - sizes[1] <= 2.1 * (sizes[1] - sizes[0]), kind


@pytest.mark.named("gated", "fast_slow", "rum")
@every_contract
def test_nothing_leaks(contract: Contract) -> None:
    check_leaks(contract, contract.kinds[-1])


@pytest.mark.slow
@every_contract
def test_no_kind_leaks(contract: Contract) -> None:
    for kind in contract.kinds:
        check_leaks(contract, kind)


def check_leaks(contract: Contract, kind: Named) -> None:
    statm = Path("/proc/self/statm")
    if not statm.exists():
        pytest.skip("no /proc to read the size of this process from")

    def resident() -> int:
        gc.collect()
        return int(statm.read_text(encoding="utf-8").split()[1]) * 4096

    case = contract.case((10, 256, *contract.small[2:]), kind)
    for _ in range(5):
        case.results()
    before = resident()
    for _ in range(20):
        case.results()
    assert resident() - before < 4e6, str(case)  # the outputs of a call take some 100 KiB


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the processors are those of x86-64")
@pytest.mark.parametrize(
    "flags",
    [("-march=x86-64",), ("-march=x86-64-v3", "-mtune=haswell"), ("-march=x86-64-v3", "-mtune=znver3")],
    ids="".join,
)
@every_contract
def test_other_processors(
    contract: Contract, flags: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Vectors of 16 and 32 bytes in the place of those of this machine, and other orders of instructions."""
    compile_for(monkeypatch, tmp_path, *flags)
    test_any_number_of_threads_gives_the_same_bits(contract)
    for kind, masks in itertools.product(contract.kinds, EVERY_MASK):
        with naming(case := contract.case(contract.small, kind, *masks)):
            case.check()
    assert list(tmp_path.glob("*.so"))


# ---------------------------------------------------------------- autograd


@every_kind
def test_a_second_backward_pass_over_the_same_graph(case: Case) -> None:
    leaves = case.leaves()
    values, flat = case.values(leaves=leaves), list(leaves.values())
    given = [tensor.clone() for tensor in (*flat, *values)]
    cotangents = case.cotangents_of(values)
    first = derivatives(values, flat, cotangents, retain_graph=True)
    for _ in range(2):
        other = Case(case.contract, case.sizes, case.kind, True, True, seed=1)
        other.results()  # writes over whatever memory the first pass gave back
        again = derivatives(values, flat, cotangents, retain_graph=True)
        assert_close(dict(zip(leaves, again, strict=True)), dict(zip(leaves, first, strict=True)), 0.0)
    for before, after in zip(given, (*flat, *values), strict=True):
        assert torch.equal(before.nan_to_num(), after.nan_to_num()), "arguments or results were overwritten"


@every_tiny_kind
def test_each_result_may_be_differentiated_alone(case: Case) -> None:
    found = []
    for run in (case.contract.plain, case.contract.run):
        leaves = list((given := case.leaves()).values())
        gradients: list[Tensor] = []
        for value in case.values(run, given):
            if value.requires_grad:  # the gradient of a sum is one number that lies in memory once
                gradients += torch.autograd.grad(value.sum(), leaves, retain_graph=True, materialize_grads=True)
        found.append({f"gradient {index}": gradient for index, gradient in enumerate(gradients)})
    assert_close(found[1], found[0], 100 * case.contract.exact)


@every_kind
def test_each_gradient_may_be_the_only_one(case: Case) -> None:
    expected = case.results()
    for name in case.tensors:
        leaves = {other: tensor.requires_grad_(other == name) for other, tensor in case.leaves().items()}
        values = case.values(leaves=leaves)
        (gradient,) = derivatives(values, [leaves[name]], case.cotangents)
        assert_close({name: gradient}, {name: expected[f"gradient of {name}"]}, 1e-12)


@every_tiny_kind
def test_a_mask_with_a_gradient_gets_it_or_is_refused(case: Case) -> None:
    """And so any argument that most often has none: a gradient that is silently missing would be taken for zero."""
    for name, value in case.options.items():
        if not isinstance(value, Tensor) or not value.is_floating_point() or value.dim() == 0:
            continue
        value.requires_grad_()
        (expected,) = derivatives(case.values(case.contract.plain), [value])
        with contextlib.suppress(InputError):
            (found,) = derivatives(case.values(), [value])
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9, msg=name)
        value.requires_grad_(False)


@every_kind
def test_without_a_graph_the_values_are_the_same(case: Case) -> None:
    values = case.values(leaves=case.leaves())
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            others = case.values()
        assert not any(value.requires_grad for value in others)
        assert all(map(torch.equal, others, values))
    case.results()  # a graph can be made afterwards


@every_kind
def test_autocast_leaves_the_dtype_of_the_parameters(case: Case) -> None:
    narrow = [name for name in case.contract.inputs if name in case.tensors]
    for name in narrow:
        case.tensors[name] = case.tensors[name].bfloat16()
    found = []
    for half, inside in ((True, True), (True, False), (False, False)):
        leaves = case.leaves(torch.float32)
        if half:
            leaves |= {name: case.tensors[name].clone().requires_grad_() for name in narrow}
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            values = case.values(leaves=leaves)
        assert all(value.dtype in (torch.float32, torch.int64) for value in values)
        with torch.autocast("cpu", torch.bfloat16, enabled=inside):
            gradients = derivatives(values, list(leaves.values()), case.cotangents_of(values))
        assert [each.dtype for each in gradients] == [leaf.dtype for leaf in leaves.values()]
        found.append((*values, *gradients))
    for others in found[:2]:
        for one, other in zip(others, found[2], strict=True):
            torch.testing.assert_close(one, other.to(one.dtype))


SLOWLY_COMPILED = ("fast_slow", "fast_weights", "gated", "graph_gru", "lie_access", "rum", "slot_memory")


@pytest.mark.named(*({contract.name for contract in CONTRACTS} - {*SLOWLY_COMPILED}))
@every_contract
def test_compiled_code(contract: Contract) -> None:
    contract.case(contract.tiny, contract.kinds[0]).check_compiled()


@pytest.mark.slow
@every_kind
def test_compiled_code_of_every_kind(case: Case) -> None:
    case.check_compiled()


@pytest.mark.slow
@every_kind
def test_the_operators_are_registered_correctly(case: Case) -> None:
    caught: list[Any] = []
    run = Operator._run_kernels
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Operator, "_run_kernels", lambda self, given: caught.append(given) or run(self, given))
        case.values(leaves=case.leaves())
    with pytest.MonkeyPatch.context() as patch:
        poison(patch, 0.0)  # not all that is saved is defined, such as padding
        check_registration(case.contract.operator.forward_operator, tuple(caught[0]))


# ---------------------------------------------------------------- lengths, resets, and numbers that are not finite


@every_kind
def test_nothing_beyond_the_lengths_matters(case: Case) -> None:
    beyond = case.beyond
    expected = case.results()
    assert beyond.any()
    for value in (1e3, torch.nan):
        for given in (case.tensors, case.options):
            for name in case.sequences(given):
                given[name] = given[name].clone()
                given[name][beyond] = value if given[name].is_floating_point() else 1
        for cotangent in filter(case.is_of_steps, case.cotangents):
            cotangent[beyond] = 1e3
        if value == 1e3:
            found = case.results()
            assert_close(found, expected, 1e-12)
            for name, tensor in found.items():
                if case.is_of_steps(tensor):
                    assert (tensor[beyond] == 0).all(), name
    values = {f"result {index}": tensor.double() for index, tensor in enumerate(case.values())}
    assert_close(values, {name: expected[name] for name in values}, 1e-12)


@every_kind
def test_a_reset_forgets(case: Case) -> None:
    """Whatever the state before it, in values and in gradients, even if it is not a number."""
    case.options["lengths"] = None
    starts = case.options["starts"] = torch.zeros(case.steps, case.batch, dtype=torch.bool)
    starts[0, :5] = True
    for name, gradient in case.results().items():
        if name.removeprefix("gradient of ") in case.contract.states:
            assert not gradient[:5].any(), name
            assert gradient[5:].any(), name
    starts[3, 7] = True
    expected = case.values()
    for name, tensor in case.tensors.items():
        case.tensors[name] = changed = tensor.clone()
        if name in case.contract.states:
            changed[7] = torch.nan
        elif case.is_of_steps(tensor):
            changed[:3, 7] = torch.nan
    for one, other in zip(case.values(), expected, strict=True):
        if case.is_of_steps(one):
            one, other = one[3:], other[3:]
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@every_kind
def test_a_nan_stays_in_its_row_and_comes_from_no_later_step(case: Case) -> None:
    """A NaN is seen in the results, and where the naive function has one, if it is a loop."""
    contract = case.contract
    steps, rows = torch.arange(case.steps).unsqueeze(1), torch.arange(case.batch)
    case.options["lengths"], case.options["starts"] = None, (steps == 3) & (rows == 1)
    expected = case.values()
    clean = case.tensors
    for name, tensor in ((name, tensor) for name, tensor in clean.items() if tensor.numel()):
        changed, is_state, is_sequence = tensor.clone(), name in contract.states, case.is_of_steps(tensor)
        place = changed[3:5, 1] if is_sequence else changed[1] if is_state else changed
        place.fill_(torch.nan)
        case.tensors = {**clean, name: changed}
        found = case.values()
        assert name in contract.unseen or any(value.isnan().any() for value in found), name
        may_differ = torch.ones(case.steps, case.batch, dtype=torch.bool)
        if is_sequence or is_state:
            may_differ = (rows == 1) & (steps >= (3 if is_sequence else 0))
        for one, other in zip(found, expected, strict=True):
            others = ~may_differ if case.is_of_steps(one) else ~may_differ.any(0)
            torch.testing.assert_close(one[others], other[others], rtol=1e-12, atol=1e-12, msg=name)
        if contract.loops and is_sequence:
            for one, other in zip(found, case.values(contract.plain), strict=True):
                assert not case.is_of_steps(one) or torch.equal(one.isnan(), other.isnan()), name


@every_kind
def test_a_sequence_in_two_pieces_equals_the_whole(case: Case) -> None:
    case.options["lengths"] = None
    whole = case.values()
    given = case.tensors | case.options
    names = [name for name in case.contract.states if name in given]
    pieces, states, count = [], {}, sum(map(case.is_of_steps, whole))  # the outputs come first
    if count == len(whole):
        return  # convolutions return no state
    for piece in (slice(0, 5), slice(5, None)):
        cut = given | {name: given[name][piece] for name in case.sequences(given)} | states
        values = [value for value in tree_leaves(case.contract.run(**cut)) if value is not None]
        pieces.append(values[:count])
        states = dict(zip(names, values[count:], strict=True))
    found = [*map(torch.cat, zip(*pieces, strict=True)), *states.values()]
    torch.testing.assert_close(found, whole, rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------- what is refused


@every_contract
def test_what_has_no_kernels_is_named_and_several_dtypes_are_refused(contract: Contract) -> None:
    for device, dtype, name in (("meta", torch.float32, "meta"), ("cpu", torch.bfloat16, "torch.bfloat16 on cpu")):
        assert contract.operator.unsupported_on(torch.device(device), dtype) == f"there are no kernels for {name}"
    case = contract.case(contract.tiny, contract.kinds[0])
    name = next(iter(case.tensors))
    if len(case.tensors) == 1:  # which has one dtype
        return
    case.tensors = {**case.tensors, name: case.tensors[name].float()}
    with pytest.raises(TypeError, match="dtype"):
        contract.run(**case.tensors, **case.options)
