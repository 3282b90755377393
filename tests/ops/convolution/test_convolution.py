"""The convolutions of `gyral.ops.convolution` against the sum in numpy: kernels, and the twin in plain torch."""

import random
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gyral.ops import convolution
from gyral.ops.convolution import naive
from tests.helpers.loops import for_each

CASES = range(24)


class Case:
    """Random sizes and options, with values, weights, history, masks and a cotangent drawn in float64."""

    def __init__(self, seed: int, **fixed: Any) -> None:
        pick = random.Random(seed)
        drawn = {
            "steps": pick.choice([1, 2, 5, 20, 130, 140]),  # a kernel's tile has 128
            "batch": pick.choice([1, 2, 9]),
            "channels": pick.choice([5, 8, 16, 20, 33]),
            "heads": pick.choice([1, 2, 5]),
            "kernel": pick.choice([2, 3, 7, 8, 9, 31]),
            "dynamic": pick.random() < 0.5,
            "centered": pick.random() < 0.3,
            "ragged": pick.random() < 0.4,
            "resets": pick.random() < 0.4,
            "masked": pick.random() < 0.5,
            "softmax": pick.random() < 0.7,
        } | fixed
        self.options = drawn
        steps, batch, channels = drawn["steps"], drawn["batch"], drawn["channels"]
        heads, kernel = drawn["heads"], drawn["kernel"]
        generator = torch.Generator().manual_seed(seed)

        def draw(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator, dtype=torch.float64)

        back = kernel // 2 if drawn["centered"] else kernel - 1
        shape = (steps, batch, heads, kernel) if drawn["dynamic"] else (heads, kernel)
        self.tensors: dict[str, Tensor] = {"values": draw(steps, batch, channels), "weights": draw(*shape)}
        if not drawn["centered"]:
            self.tensors["history"] = draw(batch, kernel - 1, channels)
        mask = (draw(*shape) > 0).double() if drawn["dynamic"] and drawn["masked"] else None
        lengths = torch.randint(1, steps + 1, (batch,), generator=generator) if drawn["ragged"] else None
        starts = draw(steps, batch) > 1 if drawn["resets"] else None
        self.keywords: dict[str, Any] = {"back": back, "mask": mask, "lengths": lengths, "starts": starts}
        self.keywords["softmax"] = drawn["softmax"]
        self.cotangent = draw(steps, batch, channels)

    def results(self, is_fused: bool, dtype: torch.dtype = torch.float64) -> list[Tensor]:
        """Return the outputs and every gradient, in float64."""
        leaves = [tensor.to(dtype).requires_grad_() for tensor in self.tensors.values()]
        values, weights, *rest = leaves
        history = rest[0] if rest else None
        mask = self.keywords["mask"]
        options = {**self.keywords, "mask": None if mask is None else mask.to(dtype)}
        outputs = (convolution if is_fused else naive).convolution(values, weights, history, **options)
        gradients = torch.autograd.grad(outputs, leaves, self.cotangent.to(dtype))
        return [tensor.detach().double() for tensor in (outputs, *gradients)]


def run_numpy(case: Case) -> np.ndarray:
    """Return the outputs: one product at a time."""
    values, weights = case.tensors["values"].numpy(), case.tensors["weights"]
    history, (back, mask, lengths, starts, softmax) = case.tensors.get("history"), case.keywords.values()
    steps, batch, channels = values.shape
    heads, kernel = weights.shape[-2:]
    own = weights.softmax(-1).numpy() if weights.dim() == 4 and softmax else weights.numpy()
    outputs = np.zeros_like(values)
    for row in range(batch):
        begin, end = -(kernel - 1), steps if lengths is None else int(lengths[row])
        for time in range(end):
            if starts is not None and starts[time, row]:
                begin = time
            for channel in range(channels):
                head = channel * heads // channels
                for place in range(kernel):
                    source = time - back + place
                    if not begin <= source < end or (source < 0 and history is None):
                        continue
                    weight = own[head, place] if own.ndim == 2 else own[time, row, head, place]
                    if mask is not None:
                        weight = weight * mask[time, row, head, place].item()
                    value = values[source, row, channel] if source >= 0 else history[row, source, channel].item()
                    outputs[time, row, channel] += weight * value
    return outputs


def assert_close(actual: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance * max(1.0, other.abs().max().item()))


@for_each("seed", range(8))
def test_the_sum_in_numpy(seed: int) -> None:
    case = Case(seed, steps=6, batch=2, channels=5, kernel=[2, 3, 5, 9][seed % 4], dynamic=seed % 2 == 0)
    expected = torch.from_numpy(run_numpy(case))
    for is_fused in (True, False):
        torch.testing.assert_close(case.results(is_fused)[0], expected)


@pytest.mark.parametrize("seed", CASES)
def test_kernels_equal_the_reference_in_torch(seed: int) -> None:
    case = Case(seed)
    if not convolution.convolution.has_kernel(case.tensors["values"]):
        pytest.skip("the kernels cannot be compiled here")
    expected = case.results(is_fused=False)
    assert_close(case.results(is_fused=True), expected, 1e-12)
    assert_close(case.results(is_fused=True, dtype=torch.float32), expected, 1e-4)


def run_case(case: Case, *given: Tensor) -> Tensor:
    return convolution.convolution(*given, **case.keywords)


def test_gradients_of_the_kernels_agree_with_finite_differences_twice() -> None:
    for dynamic, softmax in ((False, True), (True, True), (True, False)):
        sizes = {"steps": 4, "batch": 2, "channels": 4, "heads": 2, "kernel": 3}
        case = Case(1, **sizes, dynamic=dynamic, softmax=softmax, centered=False)
        leaves = [tensor.requires_grad_() for tensor in case.tensors.values()]
        run = partial(run_case, case)
        assert torch.autograd.gradcheck(run, leaves, fast_mode=True)
        assert torch.autograd.gradgradcheck(run, leaves, fast_mode=True)


@for_each("dynamic", [False, True])
def test_results_depend_on_no_number_of_threads(dynamic: bool) -> None:
    case = Case(2, steps=40, batch=20, channels=33, heads=5, kernel=9, dynamic=dynamic)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(case.results(is_fused=True, dtype=torch.float32))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@for_each("dynamic", [False, True])
@for_each("kernel", [3, 9])
def test_values_outside_the_window_are_never_read(dynamic: bool, kernel: int) -> None:
    case = Case(
        3, steps=12, batch=3, channels=20, heads=2, kernel=kernel, dynamic=dynamic, centered=False, resets=False
    )
    case.keywords["lengths"] = case.keywords["mask"] = None
    values, weights, history = case.tensors.values()
    expected = convolution.convolution(values, weights, history, **case.keywords)
    poisoned = values.clone()
    poisoned[7:] = torch.nan
    outputs = convolution.convolution(poisoned, weights, history, **case.keywords)
    torch.testing.assert_close(outputs[:7], expected[:7], rtol=0, atol=0)
    lengths = torch.tensor([7, 3, 7])
    poisoned[3:, 1] = torch.nan
    poisoned.requires_grad_()
    outputs = convolution.convolution(poisoned, weights, history, lengths=lengths)
    assert outputs.isfinite().all()
    assert torch.autograd.grad(outputs.sum(), poisoned)[0].isfinite().all()
    assert outputs[7:].eq(0).all()


@for_each("steps", [1, 3, 10])
@for_each("ragged", [False, True])
@for_each("resets", [False, True])
def test_the_window_holds_the_last_values(steps: int, ragged: bool, resets: bool) -> None:
    case = Case(4, steps=steps, batch=5, channels=2, heads=1, kernel=5, ragged=ragged, resets=resets, centered=False)
    values, history = case.tensors["values"], case.tensors["history"]
    found = convolution.window(values, history, case.keywords["lengths"], case.keywords["starts"])
    for row in range(5):
        kept = list(history[row])
        for time in range(steps if case.keywords["lengths"] is None else int(case.keywords["lengths"][row])):
            if case.keywords["starts"] is not None and case.keywords["starts"][time, row]:
                kept = [torch.zeros(2).double() for _ in kept]
            kept = [*kept[1:], values[time, row]]
        torch.testing.assert_close(found[row], torch.stack(kept))


def test_memory_for_the_backward_pass_is_linear_in_the_number_of_steps() -> None:
    def saved(steps: int) -> int:
        sizes: list[int] = []
        values = torch.randn(steps, 2, 8, requires_grad=True)
        scores = torch.randn(steps, 2, 2, 5, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor: sizes.append(tensor.numel()) or tensor, lambda tensor: tensor
        ):
            convolution.convolution(values, scores)
        return sum(sizes)

    assert saved(400) == 2 * saved(200)
