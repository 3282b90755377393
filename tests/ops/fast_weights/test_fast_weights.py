"""The kernels of `gyral.ops.fast_weights` against its recurrences in plain torch."""

import functools
import gc
import random
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from gyral.ops import fast_weights
from gyral.ops.fast_weights import KINDS, OPERATOR, cpu, naive
from tests.helpers.kernels import skip_without
from tests.helpers.loops import for_each
from tests.helpers.memory import poison
from tests.ops.float32 import check_float32

compiled = skip_without(cpu.prepare, torch.device("cpu"))

FEW, MANY = 8, 400
TENSORS = ("x", "w_ih", "b", "w_hh", "norm", "h0", "a0")
STARTS, DECAY = 3, 5  # of `Case.fixed`

every_kind = for_each("kind", KINDS)


class Case:
    """Random sizes, options and tensors of a kind, in float64."""

    def __init__(self, kind: str, seed: int, **fixed: Any) -> None:
        pick = random.Random(f"{kind} {seed}")
        generator = torch.Generator().manual_seed(seed)
        draw = functools.partial(torch.randn, generator=generator, dtype=torch.float64)
        drawn = {
            "steps": pick.choice([1, 2, 3, 5, 9, 40]),
            "batch": pick.choice([0, 1, 2, 7, 8, 9, 17]),
            "size": pick.choice([1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 65]),
            "inner_steps": pick.choice([1, 2, 3]),
            "chunk": pick.choice([1, 2, 3, 5, 64]),
            "keep": pick.choice(["none", "mask", "mean"]),
            "drop": pick.random() < 0.3,
            "ragged": pick.random() < 0.4,
            "resets": pick.choice([None, None, 0.0, 0.1, 0.4, 1.0]),
            "norm": kind != "weinet" or pick.random() < 0.6,
            "starts_empty": pick.random() < 0.4,
        }
        self.drawn = drawn | fixed
        steps, batch, size, inner_steps, self.chunk, keep, drop, ragged, resets, norm, starts_empty = (
            self.drawn.values()
        )

        def mask(*shape: int) -> Tensor:
            return (torch.rand(shape, generator=generator) < 0.3).double()

        parts, products = (7 * size, 4 * size) if kind == "weinet" else (size, size)
        self.kind = kind
        mean = torch.tensor(0.2, dtype=torch.float64)
        self.fixed = [
            {"none": None, "mask": mask(steps, batch, size), "mean": mean}[keep],
            mask(batch, size) * 1.5 if drop else None,
            torch.randint(1, steps + 1, (batch,), generator=generator) if ragged else None,
            None if resets is None else torch.rand(steps, batch, generator=generator) < resets,
            pick.choice([1e-5, 0.1]),
            pick.choice([0.95, 1.0, 0.3, 0.0]),
            pick.choice([0.5, 0.05, 0.0]),
            0 if kind == "weinet" else inner_steps,
            True,
        ]
        memory = 0.3 * draw(batch, size, size)
        self.tensors = [
            draw(steps, batch, 3),
            draw(parts, 3),
            draw(parts),
            draw(products, size) / size**0.5,
            draw(2, size) if norm else None,
            draw(batch, size),
            torch.zeros_like(memory) if starts_empty else memory,
        ]
        self.needs_memory = not starts_empty
        self.cotangents = [draw(steps, batch, size), draw(batch, size), draw(batch, size, size)]

    def __str__(self) -> str:
        return f"{self.drawn} {self.fixed}"

    def results(self, function: Callable[..., Any], dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
        """Return the results and all gradients of the operator or its twin, in float64."""
        given = [of(dtype, tensor) for tensor in self.tensors]
        leaves = {}
        for index, name in enumerate(TENSORS):
            if given[index] is not None and (name != "a0" or self.needs_memory):
                leaves[name] = given[index] = given[index].clone().requires_grad_()
        values = function(self.kind, *given, *(of(dtype, value) for value in self.fixed))
        cotangents = [cotangent.to(dtype) for cotangent in self.cotangents]
        gradients = torch.autograd.grad(values, list(leaves.values()), cotangents, materialize_grads=True)
        named = dict(zip(("outputs", "h", "a"), values, strict=True))
        named |= {f"gradient of {name}": gradient for name, gradient in zip(leaves, gradients, strict=True)}
        return {name: tensor.detach().double() for name, tensor in named.items()}

    def call(self, function: Callable[..., Any], tensors: list[Any]) -> Any:
        """Return the results of the operator or its twin, with other tensors."""
        return function(self.kind, *tensors, *self.fixed)


def of(dtype: torch.dtype, value: Any) -> Any:
    return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value


def error(result: Tensor, truth: Tensor) -> float:
    """Return ‖result − truth‖ / ‖truth‖; a truth below 0.1 counts as that, since some gradients are zero by nature."""
    return (result - truth).norm().item() / max(truth.norm().item(), 0.1)


@pytest.fixture
def set_chunk(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Give a function that sets the number of steps per chunk."""

    def set_size(chunk: int) -> None:
        monkeypatch.setattr(cpu, "chunk_size", lambda kind, steps, size: min(steps, chunk))

    return set_size


def check(case: Case) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Compare values and gradients in float64; return those of the kernels and those of the twin."""
    truth, found = case.results(naive.fast_weights), case.results(OPERATOR)
    assert found.keys() == truth.keys()
    for name, tensor in truth.items():
        assert error(found[name], tensor) < 1e-10, f"{name} of {case}"
    return found, truth


def check_against_naive(cases: Iterable[Case], set_chunk: Callable[[int], None]) -> None:
    """Compare float64 case by case, and float32 by its typical error."""

    def compared() -> Iterator[tuple[Any, ...]]:
        for case in cases:
            set_chunk(case.chunk)
            _, truth = check(case)
            yield case, truth, *(case.results(function, torch.float32) for function in (OPERATOR, naive.fast_weights))

    check_float32(compared(), error, {"outputs", "h", "a", "gradient of x", "gradient of w_hh"}, typical=1.5)


def test_random_sizes_and_options(set_chunk: Callable[[int], None]) -> None:
    check_against_naive((Case(kind, seed) for kind in KINDS for seed in range(FEW)), set_chunk)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_hundreds_of_random_sizes_and_options(kind: str, set_chunk: Callable[[int], None]) -> None:
    check_against_naive((Case(kind, seed) for seed in range(FEW, FEW + MANY)), set_chunk)


@every_kind
def test_every_remainder_of_the_vectors(kind: str, set_chunk: Callable[[int], None]) -> None:
    set_chunk(2)
    for size in (*range(1, 19), 31, 33, 65):
        check(Case(kind, size, steps=3, batch=2, size=size, inner_steps=1))


@every_kind
def test_the_chunks_of_a_long_sequence(kind: str) -> None:
    for seed in range(2):
        check(Case(kind, seed, steps=100, batch=3, size=6, ragged=seed == 1, resets=0.02))


@every_kind
def test_a_reset_at_the_first_step_ignores_the_state(kind: str) -> None:
    case = Case(kind, 1, steps=4, batch=9, size=5, ragged=False, resets=0.0, starts_empty=False)
    case.fixed[DECAY] = 0.9
    case.fixed[STARTS][0, :5] = True
    found, _ = check(case)
    for name in ("gradient of h0", "gradient of a0"):
        assert not found[name][:5].any()
        assert found[name][5:].any()


@for_each("dtype", [torch.float32, torch.float64])
@every_kind
def test_any_number_of_threads_gives_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, kind: str, dtype: torch.dtype
) -> None:
    case = Case(kind, 5, steps=40, batch=37, size=21, ragged=True, resets=0.1)
    projected = torch.randn(40, 37, len(case.tensors[2]), dtype=dtype)  # a product of torch depends on the threads
    monkeypatch.setattr(cpu, "project", lambda x, weight, bias, out: out.copy_(projected))
    found = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        try:
            found.append(case.results(OPERATOR, dtype))
        finally:
            torch.set_num_threads(1)
    for other in found[1:]:
        for name in ("outputs", "h", "a", "gradient of h0"):  # the others are products of torch
            assert torch.equal(found[0][name], other[name]), name


@every_kind
def test_uninitialized_memory_is_never_read(
    monkeypatch: pytest.MonkeyPatch, kind: str, set_chunk: Callable[[int], None]
) -> None:
    set_chunk(3)
    case = Case(kind, 11, steps=7, batch=19, size=13, ragged=True, resets=0.2)
    clean = case.results(OPERATOR)
    called = poison(monkeypatch)
    for name, tensor in case.results(OPERATOR).items():
        assert torch.equal(tensor, clean[name]), name
    assert set(called) == {"empty", "empty_like", "new_empty"}


@every_kind
def test_tensors_may_have_any_memory_layout(kind: str) -> None:
    case = Case(kind, 2, steps=5, batch=9, size=7, keep="mask", drop=True, ragged=True, resets=0.2)
    expected = case.results(OPERATOR)

    def strided(tensor: Any) -> Any:
        if not isinstance(tensor, Tensor):
            return tensor
        wide = tensor.new_zeros(*tensor.shape, 2)
        wide[..., 1] = tensor
        return wide[..., 1]

    case.fixed = list(map(strided, case.fixed))
    case.tensors = list(map(strided, case.tensors))
    found = case.results(OPERATOR)
    for name, tensor in expected.items():
        assert error(found[name], tensor) < 1e-12, name
    x, *others = case.tensors
    expanded = x[:1, :1].expand_as(x)
    values = [case.call(function, [expanded, *others])[0] for function in (OPERATOR, naive.fast_weights)]
    torch.testing.assert_close(*values, rtol=1e-10, atol=1e-10)


# ---------------------------------------------------------------- autograd


@every_kind
def test_second_derivatives(kind: str) -> None:
    activation = "tanh" if kind == "relu" else kind  # ReLU has kinks
    case = Case(activation, 3, steps=3, batch=2, size=3, norm=True, keep="mean", resets=0.2)
    leaves = [tensor.clone().requires_grad_() for tensor in case.tensors]
    assert torch.autograd.gradgradcheck(
        lambda *given: tuple(case.call(OPERATOR, given)), leaves, fast_mode=True, atol=1e-4
    )


@every_kind
def test_several_backward_passes_over_one_graph(kind: str) -> None:
    case = Case(kind, 4, steps=5, batch=3, size=6, norm=True, starts_empty=False)
    leaves = [tensor.clone().requires_grad_() for tensor in case.tensors]
    values = case.call(OPERATOR, leaves)
    first, second = (torch.autograd.grad(values, leaves, case.cotangents, retain_graph=True) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    for index, gradient in enumerate(first):
        (alone,) = torch.autograd.grad(values, leaves[index], case.cotangents, retain_graph=True)
        torch.testing.assert_close(alone, gradient, rtol=1e-12, atol=1e-12)


@every_kind
def test_gradients_of_some_of_the_results(kind: str) -> None:
    case = Case(kind, 6, steps=7, batch=3, size=6, norm=True, ragged=False, starts_empty=False)
    for picked in range(3):
        found = []
        for function in (OPERATOR, naive.fast_weights):
            leaves = [tensor.clone().requires_grad_() for tensor in case.tensors]
            value, cotangent = case.call(function, leaves)[picked], case.cotangents[picked]
            found.append(torch.autograd.grad(value, leaves, cotangent, materialize_grads=True))
        torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


@every_kind
def test_few_matrices_are_saved(kind: str) -> None:
    case = Case(kind, 7, steps=64, batch=2, size=32, ragged=False)
    _, (_, _, memories) = cpu.allocate(OPERATOR.Arguments(case.kind, *case.tensors, *case.fixed))
    assert len(memories) in (2, 4)  # for 64 steps


@pytest.mark.parametrize("use", ["no gradients", "never backward", "backward", "create graph"])
def test_all_is_freed_without_the_garbage_collector(monkeypatch: pytest.MonkeyPatch, use: str) -> None:
    case = Case("tanh", 8, steps=4, batch=2, size=5, norm=True)
    watched = []

    def watch(a: Any) -> Any:
        results, saved = forward(a)
        watched.extend(map(weakref.ref, saved))
        return results, saved

    forward = cpu.forward
    monkeypatch.setattr(cpu, "forward", watch)
    gc.collect()
    gc.disable()
    try:
        leaves = [tensor.clone().requires_grad_() for tensor in case.tensors]
        with torch.set_grad_enabled(use != "no gradients"):
            outputs = case.call(OPERATOR, leaves)[0]
        if use == "backward":
            outputs.sum().backward()
        if use == "create graph":
            torch.autograd.grad(outputs.sum(), leaves[0], create_graph=True)[0].sum().backward()
        del outputs
        assert watched
        assert all(reference() is None for reference in watched)
    finally:
        gc.enable()


def test_kinds_without_kernels_are_refused() -> None:
    assert fast_weights.unsupported_reason(torch.empty(3, device="meta")) == "there are no kernels for meta"
    reason = fast_weights.unsupported_reason(torch.empty(3, dtype=torch.bfloat16))
    assert reason == "there are no kernels for torch.bfloat16 on cpu"
