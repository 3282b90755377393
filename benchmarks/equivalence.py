"""Comparison of every case with the float64 reference of its cell, before any speed is reported.

The comparison covers outputs, final state, and the gradients of inputs, initial state and parameters, for random
cotangents and a reachable initial state. The error of a tensor is ‖result − truth‖ / ‖truth‖, where truth is the
reference in float64 with the same weights; unlike the largest error of an entry, it varies little between draws. The
limit is twice the error of the float32 reference, or a floor if that is larger.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_structure, tree_unflatten

from gyral.nn.recurrent import Recurrent

ERROR_FLOOR = 1e-6  # smaller errors are rounding errors, however small that of the reference is
UNIT_ROUNDOFF = 2.0**-24  # of float32
UNUSABLE_ERROR = 1e-2  # a float32 reference with a larger error is no basis for a comparison
UNUSABLE = "the reference in float32"


def disagreements(
    reference: Callable[[], Recurrent],
    candidates: dict[str, Callable[[], nn.Module]],
    input_shape: Sequence[int],
    seed: int = 1,
    largest: dict[str, float] | None = None,
) -> Iterator[str]:
    """Yield one line for every candidate whose float32 results have a larger error than allowed.

    Args:
        reference: Builds a float32 `Recurrent` of one cell on the reference backend.
        candidates: By name, functions that build float32 modules with the same weights: other backends, or layers of
            torch.nn.
        input_shape: T, B and X of the random inputs.
        seed: Seed of the inputs, the state and the cotangents.
        largest: If given, the largest error of each candidate's tensors is stored in it.
    """
    random = partial(torch.randn, generator=torch.Generator().manual_seed(seed))
    module, inputs = reference().double(), random(*input_shape)
    with torch.no_grad():  # the state after other inputs is reachable, and differs from the initial one
        results = run(module, random(*input_shape).double(), tree_leaves(module.init_state(input_shape[1])))
    state = [leaf.float() for leaf in results[1:]]
    cotangents = [random(result.shape) for result in results]
    parameters = [name for name, _ in module.named_parameters()]
    leaves = [f"state leaf {index}" for index in range(len(state))]
    names = ["outputs", *(f"final {leaf}" for leaf in leaves), "gradient of inputs"]
    names += [f"gradient of {name}" for name in [*(f"initial {leaf}" for leaf in leaves), *parameters]]

    truth = evaluate(module, inputs, state, cotangents)
    own_errors = relative_errors(evaluate(reference(), inputs, state, cotangents), truth)
    if not max(own_errors) <= UNUSABLE_ERROR:
        yield f"{UNUSABLE}: relative error {max(own_errors):.1e}, is too large for a comparison"
        return
    # the gradient of a parameter sums T·B terms; the error of a sequential sum grows as √(T·B), as it does for the bias
    # gradients of oneDNN's LSTM
    sum_floor = max(ERROR_FLOOR, UNIT_ROUNDOFF * math.sqrt(input_shape[0] * input_shape[1]))
    floors = [ERROR_FLOOR] * (len(names) - len(parameters)) + [sum_floor] * len(parameters)
    limits = [max(2 * error, floor) for error, floor in zip(own_errors, floors, strict=True)]
    for candidate, make in candidates.items():
        errors = relative_errors(evaluate(make(), inputs, state, cotangents), truth)
        if largest is not None:
            largest[candidate] = max(errors)
        for name, error, limit in zip(names, errors, limits, strict=True):
            if not error <= limit:  # also true for NaN
                yield f"{candidate}: relative error of {name} is {error:.1e}, the limit {limit:.1e}"
                break


def run(module: nn.Module, inputs: Tensor, state: list[Tensor]) -> list[Tensor]:
    """Run over inputs (T, B, X) from state leaves (B, …); return outputs (T, B, N) and the final leaves (B, …)."""
    if isinstance(module, Recurrent):
        outputs, final = module(inputs, tree_unflatten(state, tree_structure(module.init_state(1))))
        return [outputs, *tree_leaves(final)]
    layered = tuple(leaf.unsqueeze(0) for leaf in state)
    outputs, final = module(inputs, layered if len(layered) > 1 else layered[0])
    return [outputs, *(leaf.squeeze(0) for leaf in tree_leaves(final))]


def evaluate(module: nn.Module, inputs: Tensor, state: list[Tensor], cotangents: list[Tensor]) -> list[Tensor]:
    """Return outputs, final state and the gradients of inputs, initial state and parameters, in the module's dtype."""
    dtype = next(module.parameters()).dtype
    sources = [tensor.to(dtype, copy=True).requires_grad_() for tensor in (inputs, *state)]
    results = run(module, sources[0], sources[1:])
    cotangents = [tensor.to(dtype) for tensor in cotangents]
    sources += module.parameters()
    gradients = torch.autograd.grad(results, sources, cotangents, allow_unused=True, materialize_grads=True)
    return [*(result.detach() for result in results), *gradients]


def relative_errors(results: list[Tensor], truth: list[Tensor]) -> list[float]:
    """Return ‖result − truth‖ / ‖truth‖ of each tensor."""
    tiny = torch.finfo(torch.float64).tiny
    pairs = zip(results, truth, strict=True)
    return [float((result - true).norm() / true.norm().clamp(min=tiny)) for result, true in pairs]
