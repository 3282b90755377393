"""What a family declares so that test_contract.py proves what every operator of `gyral.ops` keeps.

    CONTRACT = Contract(run=cumulative_sum, draw=draw, sizes=[(1, 1, 1), (7, 5, 3)], small=(9, 19, 5), tiny=(3, 2, 2),
                        states=["h0"], truth=in_numpy)

The module tests/ops/<family>/test_<family>.py has it; a new family takes part without a change elsewhere.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from gyral.ops.operator import Operator
from tests.helpers.kernels import operators

Named = dict[str, Any]
Run = Callable[..., Any]
Sizes = tuple[int, ...]
Drawing = tuple[Sizes, Named]  # the arguments of `Contract.draw`

FLAG = (False, True)
EVERY_MASK = tuple(itertools.product((True, False), repeat=2))  # ragged, resets


@dataclass(frozen=True, eq=False, kw_only=True)
class Contract:
    """The operator of a family, its arguments, and what it is compared with.

    Attributes:
        run: The public function; it is called by the names of its arguments. The kernels of the operator are compared
            with its naive function, in values and gradients.
        draw: Returns the arguments with a gradient and those without one but `lengths` and `starts`, by name, in
            float64, from sizes, of which the first two are those of steps and batch, and the options of a kind. None
            stands for an argument that is left out.
        kinds: The options of `draw` with which other code runs. Every property holds for each of them.
        sizes: Around the sizes of vectors, blocks and chunks. Values and gradients are compared for each of them.
        small: At least three blocks of rows, and steps of several chunks. No other size is that of steps or batch.
        tiny: A few numbers, for second derivatives.
        large: Drawings with weights beyond the cache of a processor, for which kernels have other code.
        others: Further drawings whose values and gradients are compared.
        random: Returns a drawing for each random generator.
        few, many: Numbers of random drawings that `make test` and `make test-all` compare.
        stride: `make test` compares each kind with every `stride`-th of the sizes.
        apart: `make test` takes finite differences for every `apart`-th kind, with 0 for none.
        states: Names of the arguments (B, …) before the first step, in the order of the results that are not outputs.
        unseen: Names of the arguments that only select, so that their NaN is not seen in the results.
        inputs: Names of the arguments that may have another dtype under autocast.
        truth: Returns the results for `sizes` and `others`, one step at a time, by other means than the operator.
        exact, single: Tolerances in float64 and float32. For random drawings that in float32 is the error of the naive
            function.
        typical: How many times as large the error in float32 typically may be for random drawings.
        worst: The same for one random drawing, in terms of the largest error of the naive function.
        is_smooth: Whether finite differences are those of the gradients, for the options of a kind.
        loops: Whether the naive function goes through the steps one by one, so that NaN spreads as in the kernels.
    """

    run: Run
    draw: Callable[..., tuple[Named, Named]]
    kinds: Sequence[Named] = ({},)
    sizes: Sequence[Sizes] = ()
    small: Sizes
    tiny: Sizes
    large: Sequence[Drawing] = ()
    others: Sequence[Drawing] = ()
    random: Callable[[Random], Drawing] | None = None
    few: int = 8
    many: int = 500
    stride: int = 1
    apart: int = 1
    states: Sequence[str] = ()
    unseen: Sequence[str] = ()
    inputs: Sequence[str] = ()
    truth: Run | None = None
    exact: float = 1e-12
    single: float = 1e-5
    typical: float = 2.0
    worst: float = 50.0
    is_smooth: Callable[[Named], bool] = field(default=lambda kind: True)
    loops: bool = False

    @property
    def name(self) -> str:
        return self.run.__module__.split(".")[2]

    @property
    def operator(self) -> Operator:
        return operators()[self.name]

    def case(self, sizes: Sizes, kind: Named, ragged: bool = True, resets: bool = True, seed: int = 0) -> "Case":
        return Case(self, sizes, kind, ragged, resets, seed)

    def check(self, drawings: Iterable[tuple[Drawing, tuple[bool, bool]]]) -> None:
        """Compare kernels, naive function and truth, in float32 with the tolerance `single`."""
        for drawing, masked in drawings:
            with naming(case := self.case(*drawing, *masked)):
                expected = case.check()
                assert_close(case.results(dtype=torch.float32), expected, self.single)

    def check_random(self, seeds: range) -> None:
        """Compare random drawings in float64 case by case, and in float32 by the typical error.

        The geometric mean of the ratios of the errors of kernels and naive function is bounded, for each tensor that is
        not 0 in at least 12 cases. In one case an error may be many times the largest of the naive function: where
        digits are lost, which tensor loses them depends on the processor.
        """
        assert self.random is not None
        ratios: dict[str, list[float]] = {}
        smallest = torch.finfo(torch.float32).eps / 2
        for seed in seeds:
            pick = Random(seed)
            drawing = self.random(pick)
            with naming(case := self.case(*drawing, pick.random() < 0.4, pick.random() < 0.5, seed)):
                truth = case.check()
                found, plain = (
                    {name: max(error(tensor, truth[name]), smallest) for name, tensor in results.items()}
                    for results in (case.results(run, torch.float32) for run in (self.run, self.plain))
                )
                largest = max(plain.values(), default=0.0)
                for name in truth:
                    assert found[name] <= self.worst * largest, (
                        f"{name} in float32: error {found[name]:.1e}, {largest:.1e}"
                    )
                    if truth[name].any():  # else errors are a few roundings of other tensors, or none
                        ratios.setdefault(name, []).append(found[name] / plain[name])
        often = {name: values for name, values in ratios.items() if len(values) >= 12}
        assert often or len(seeds) < 12
        for name, values in often.items():
            mean = torch.tensor(values).log().mean().exp().item()
            assert mean <= self.typical, (
                f"{name} in float32: typically {mean:.2f} times the error of the naive function"
            )

    def plain(self, **given: Any) -> Any:
        """Call `run` with the naive function in place of the kernels."""

        def naive(operator: Operator, arguments: Sequence[Any]) -> list[Any]:
            found = operator.naive(*arguments)
            return [found] if isinstance(found, Tensor) else list(found)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Operator, "_run_kernels", naive)
            return self.run(**given)


class Case:
    """The arguments of an operator for a drawing, which a test may change."""

    def __init__(self, contract: Contract, sizes: Sizes, kind: Named, ragged: bool, resets: bool, seed: int) -> None:
        self.contract, self.sizes, self.kind = contract, sizes, kind
        self.steps, self.batch, *_ = sizes
        self.text = f"{contract.name} {sizes} {kind} ragged={ragged} resets={resets} seed={seed}"
        torch.default_generator.manual_seed(seed)
        tensors, options = contract.draw(*sizes, **kind)
        self.tensors: dict[str, Tensor] = {name: value for name, value in tensors.items() if value is not None}
        lengths = torch.randint(1, self.steps + 1, (self.batch,)) if ragged else None
        starts = torch.rand(self.steps, self.batch) < 0.3 if resets else None
        self.options: Named = {**options, "lengths": lengths, "starts": starts}
        self.cotangents: list[Tensor] = []

    def __str__(self) -> str:
        return self.text

    @property
    def beyond(self) -> Tensor:
        """Where a row has ended, (T, B)."""
        return torch.arange(self.steps).unsqueeze(1) >= self.options["lengths"]

    def leaves(self, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
        """Return the tensors with a gradient; those of float64 as they are, in their memory layout."""
        return {name: tensor.detach().to(dtype).requires_grad_() for name, tensor in self.tensors.items()}

    def values(self, run: Run | None = None, leaves: dict[str, Tensor] | None = None) -> list[Tensor]:
        """Return the results, without those that are None."""
        leaves = self.tensors if leaves is None else leaves
        dtype = max((leaf.dtype for leaf in leaves.values()), key=lambda each: each.itemsize)
        options = {name: cast(value, dtype) for name, value in self.options.items()}
        found = tree_leaves((run or self.contract.run)(**leaves, **options))
        return [value for value in found if value is not None]

    def cotangents_of(self, values: Sequence[Tensor]) -> list[Tensor]:
        if not self.cotangents:
            generator = torch.Generator().manual_seed(5)
            for value in values:
                self.cotangents.append(torch.randn(value.shape, generator=generator, dtype=torch.float64))
        return [cotangent.to(value.dtype) for cotangent, value in zip(self.cotangents, values, strict=True)]

    def results(self, run: Run | None = None, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
        """Return the results and all gradients, in float64."""
        leaves = self.leaves(dtype)
        values = self.values(run, leaves)
        gradients = derivatives(values, list(leaves.values()), self.cotangents_of(values))
        found = {f"result {index}": value for index, value in enumerate(values)}
        found |= {f"gradient of {name}": gradient for name, gradient in zip(leaves, gradients, strict=True)}
        return {name: tensor.detach().double() for name, tensor in found.items()}

    def sequences(self, given: Named) -> list[str]:
        """Return the names of the arguments (T, B, …) among those given."""
        return [name for name, value in given.items() if isinstance(value, Tensor) and self.is_of_steps(value)]

    def is_of_steps(self, value: Tensor) -> bool:
        return value.shape[:2] == (self.steps, self.batch)

    def check(self) -> dict[str, Tensor]:
        """Compare values with the truth, values and gradients with those of the naive function; return these."""
        contract, before = self.contract, {name: tensor.clone() for name, tensor in self.tensors.items()}
        expected = self.results(contract.plain)
        if contract.truth is not None and self.sizes in (*contract.sizes, *(sizes for sizes, _ in contract.others)):
            values = [torch.as_tensor(value) for value in tree_leaves(contract.truth(**self.tensors, **self.options))]
            truth = {f"result {index}": value.detach() for index, value in enumerate(values)}
            assert_close({name: expected[name] for name in truth}, truth, contract.exact)
        assert_close(self.results(), expected, contract.exact)
        assert_close(self.tensors, before, 0.0)  # nothing has overwritten them
        return expected

    def check_differences(self) -> None:
        """Compare first and second derivatives with finite differences."""
        leaves = self.leaves()

        def run(*given: Tensor) -> list[Tensor]:
            values = self.values(leaves=dict(zip(leaves, given, strict=True)))
            return [value for value in values if value.requires_grad]

        with naming(self):
            assert torch.autograd.gradcheck(run, list(leaves.values()), fast_mode=True)
            assert torch.autograd.gradgradcheck(run, list(leaves.values()), fast_mode=True, atol=1e-4)

    def check_compiled(self) -> None:
        """Compare values and gradients of compiled code with those of eager mode."""
        torch._dynamo.reset()
        names = list(self.tensors)

        def run(*given: Tensor) -> Any:
            return self.contract.run(**dict(zip(names, given, strict=True)), **self.options)

        compiled = torch.compile(run, fullgraph=True, backend="aot_eager")

        def by_name(**given: Any) -> Any:
            return compiled(*(given[name] for name in names))

        with naming(self):
            assert_close(self.results(by_name), self.results(), 1e-12)


def cast(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value


def derivatives(values: Sequence[Tensor], leaves: Sequence[Tensor], cotangents: Any = None, **options: Any) -> Any:
    """Return the gradients of the leaves; of values without a cotangent, it is their cosine."""
    cotangents = [value.detach().cos() for value in values] if cotangents is None else cotangents
    pairs = [(value, by) for value, by in zip(values, cotangents, strict=True) if value.requires_grad]
    return torch.autograd.grad(
        [value for value, _ in pairs], leaves, [by for _, by in pairs], materialize_grads=True, **options
    )


def assert_close(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    """Assert that tensors are close, relative to the largest entry of each, or that they are equal."""
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        if torch.equal(found[name], tensor):
            continue
        allowed = tolerance * max(1.0, float(tensor.detach().abs().max())) if tensor.numel() else 0.0
        is_close = found[name].shape == tensor.shape and bool(((found[name] - tensor).abs() <= allowed).all())
        if not is_close:  # torch's own comparison takes long
            options: Named = {"rtol": 0, "atol": allowed, "equal_nan": tolerance == 0}
            torch.testing.assert_close(found[name], tensor, **options, msg=lambda text, name=name: f"{name}: {text}")


def error(result: Tensor, truth: Tensor) -> float:
    """Return ‖result − truth‖ / ‖truth‖; a truth below 1e-3 counts as that, since some gradients are zero by nature."""
    return (result - truth).norm().item() / max(truth.norm().item(), 1e-3)


@contextmanager
def naming(case: Any) -> Iterator[None]:
    """Add a case to the message of an error."""
    try:
        yield
    except Exception as failure:
        failure.add_note(f"with {case}")
        raise


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Have kernels run on some threads; torch itself has one, whose sums depend on their number."""
    asked: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: asked.append(count) or count)
        yield
    assert asked


def choices(*sizes: Sequence[int], **options: Sequence[Any]) -> Callable[[Random], Drawing]:
    """Return `Contract.random` that picks each size and each option from a list."""

    def drawing(pick: Random) -> Drawing:
        kind = {name: pick.choice(values) for name, values in options.items()}
        return tuple(map(pick.choice, sizes)), kind

    return drawing


def each(**options: Sequence[Any]) -> list[Named]:
    """Return every combination of options."""
    return [dict(zip(options, values, strict=True)) for values in itertools.product(*options.values())]
