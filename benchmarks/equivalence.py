"""Comparison of every case with the float64 reference of its cell, before any speed is reported.

The comparison covers outputs, final state, and the gradients of inputs, initial state and parameters, for random
cotangents and a reachable initial state. The error of a tensor is ‖result − truth‖ / ‖truth‖, where truth is the
reference in float64 with the same weights; unlike the largest error of an entry, it varies little between draws. The
limit is twice the error of the reference in the precision of the measurement, or a floor if that is larger.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_structure, tree_unflatten

from benchmarks.sequences import WHOLE, Sequences, call, draw
from gyral.nn.recurrent import Recurrent

DRAWS = 3  # random draws of which one must agree
UNUSABLE = "the reference"  # begins the line about a reference whose error is too large for a comparison


class Precision(NamedTuple):
    """The arithmetic of a measurement.

    Attributes:
        name: float32 or bfloat16, …
        autocast: The dtype of autocast, or None without it. Parameters, inputs and states are float32.
        roundoff: Unit roundoff of the products.
        floor: Smaller errors are rounding errors, however small that of the reference is.
        unusable: A reference with a larger error cannot be the basis of a comparison.
        fewest_steps: Steps of the shortest comparison, where the rounding errors of longer sequences are too large.
    """

    name: str
    autocast: torch.dtype | None
    roundoff: float
    floor: float
    unusable: float
    fewest_steps: int

    def context(self, device: torch.device) -> AbstractContextManager[object]:
        """Return the context in which to run forward."""
        return nullcontext() if self.autocast is None else torch.autocast(device.type, self.autocast)


FLOAT32 = Precision("float32", None, 2.0**-24, 1e-6, 1e-2, 20)


def disagreements(
    reference: Callable[[], Recurrent],
    candidates: Mapping[str, Callable[[], nn.Module]],
    input_shape: Sequence[int],
    seed: int = 1,
    largest: dict[str, float] | None = None,
    *,
    sequences: Sequences = WHOLE,
    precision: Precision = FLOAT32,
    factor: float = 2,
) -> Iterator[str]:
    """Yield one line for every candidate whose results have a larger error than allowed.

    Args:
        reference: Builds a float32 `Recurrent` of one cell on the reference backend.
        candidates: By name, functions that build float32 modules with the same weights, on the device of the reference:
            other backends, or layers of torch.nn.
        input_shape: T, B and X of the random inputs.
        seed: Seed of the inputs, the state and the cotangents.
        largest: If given, the largest error of each candidate's tensors is stored in it.
        sequences: Lengths and resets.
        precision: Arithmetic of the candidates, and of the reference with which their errors are compared.
        factor: Allowed ratio of their errors.
    """
    random = partial(torch.randn, generator=torch.Generator().manual_seed(seed))
    module, inputs = reference().double(), random(*input_shape)
    device = next(module.parameters()).device
    sequences = sequences.to(device)
    with torch.no_grad():  # the state after other inputs is reachable, and differs from the initial one
        other = random(*input_shape).double().to(device)
        results = run(module, other, tree_leaves(module.init_state(input_shape[1])))
    state = [leaf.float() if leaf.is_floating_point() else leaf for leaf in results[1:]]
    cotangents = [random(result.shape) for result in results]
    parameters = [name for name, _ in module.named_parameters()]
    leaves = [f"state leaf {index}" for index in range(len(state))]
    names = ["outputs", *(f"final {leaf}" for leaf in leaves), "gradient of inputs"]
    names += [f"gradient of {name}" for name in [*(f"initial {leaf}" for leaf in leaves), *parameters]]

    given = inputs, state, cotangents, sequences
    truth = evaluate(module, *given, FLOAT32)
    own_errors = relative_errors(evaluate(reference(), *given, precision), truth)
    if not max(own_errors) <= precision.unusable:
        yield f"{UNUSABLE} in {precision.name}: relative error {max(own_errors):.1e}, is too large for a comparison"
        return
    # the gradient of a parameter sums T·B terms; the error of a sequential sum grows as √(T·B), as it does for the bias
    # gradients of oneDNN's LSTM
    sum_floor = max(precision.floor, precision.roundoff * math.sqrt(input_shape[0] * input_shape[1]))
    floors = [precision.floor] * (len(names) - len(parameters)) + [sum_floor] * len(parameters)
    limits = [max(factor * error, floor) for error, floor in zip(own_errors, floors, strict=True)]
    for candidate, make in candidates.items():
        errors = relative_errors(evaluate(make(), *given, precision), truth)
        if largest is not None:
            largest[candidate] = max(errors)
        for name, error, limit in zip(names, errors, limits, strict=True):
            if not error <= limit:  # also true for NaN
                yield f"{candidate}: relative error of {name} is {error:.1e}, the limit {limit:.1e}"
                break


def compare(
    reference: Callable[[], Recurrent],
    candidates: Mapping[str, Callable[[], nn.Module]],
    input_shape: Sequence[int],
    kind: str = "whole",
    *,
    precision: Precision = FLOAT32,
    factor: float = 2,
) -> tuple[list[str], dict[str, float]]:
    """Return the lines of `disagreements`, none if one random draw agrees, and the largest error of each candidate.

    Args:
        reference, candidates, input_shape, precision, factor: See `disagreements`.
        kind: See `benchmarks.sequences`.
    """
    steps, rows, width = input_shape
    while True:
        lines: list[str] = []
        largest: dict[str, float] = {}
        # a ReLU that rounding switches on or off makes the error of one draw large on any path; a wrong path fails for
        # all draws
        for seed in range(1, DRAWS + 1):
            arguments = reference, candidates, (steps, rows, width), seed, largest
            options: dict[str, Any] = {"sequences": draw(kind, steps, rows), "precision": precision, "factor": factor}
            lines = list(disagreements(*arguments, **options))
            if not lines:
                return lines, largest
        # a cell may be chaotic at its initial weights: rounding errors grow with every step, so compare fewer steps
        if steps // 2 < precision.fewest_steps or not any(UNUSABLE in line for line in lines):
            return lines, largest
        steps //= 2


def run(module: nn.Module, inputs: Tensor, state: list[Tensor], sequences: Sequences = WHOLE) -> list[Tensor]:
    """Run over inputs (T, B, X) from state leaves (B, …); return outputs (T, B, N) and the final leaves (B, …)."""
    if isinstance(module, Recurrent):
        outputs, final = call(module, inputs, tree_unflatten(state, tree_structure(module.init_state(1))), sequences)
        return [outputs, *tree_leaves(final)]
    layered = tuple(leaf.unsqueeze(0) for leaf in state)
    outputs, final = call(module, inputs, layered if len(layered) > 1 else layered[0], sequences)
    return [outputs, *(leaf.squeeze(0) for leaf in tree_leaves(final))]


def evaluate(
    module: nn.Module,
    inputs: Tensor,
    state: list[Tensor],
    cotangents: list[Tensor],
    sequences: Sequences,
    precision: Precision,
) -> list[Tensor]:
    """Return outputs, final state and the gradients of inputs, initial state and parameters.

    A state with integers, such as the number of vectors in a memory, has slots without meaning: its gradients count as
    zero.
    """
    parameter = next(module.parameters())
    device, dtype = parameter.device, parameter.dtype
    inputs = inputs.to(device, dtype, copy=True).requires_grad_()
    leaves = [leaf.to(device, dtype if leaf.is_floating_point() else None, copy=True) for leaf in state]
    has_gradient = all(leaf.is_floating_point() for leaf in state)
    sources = [inputs, *(leaf.requires_grad_() for leaf in leaves if has_gradient), *module.parameters()]
    with precision.context(device):
        results = run(module, inputs, leaves, sequences)
    pairs = zip(results, cotangents, strict=True)
    weighted = {result: given.to(result) for result, given in pairs if result.requires_grad}
    first, *others = torch.autograd.grad(
        list(weighted), sources, list(weighted.values()), allow_unused=True, materialize_grads=True
    )
    if not has_gradient:
        others = [*map(torch.zeros_like, leaves), *others]
    return [*(result.detach() for result in results), first, *others]


def relative_errors(results: list[Tensor], truth: list[Tensor]) -> list[float]:
    """Return ‖result − truth‖ / ‖truth‖ of each tensor."""
    tiny = torch.finfo(torch.float64).tiny
    pairs = ((result.double(), true.double()) for result, true in zip(results, truth, strict=True))
    return [float((result - true).norm() / true.norm().clamp(min=tiny)) for result, true in pairs]
