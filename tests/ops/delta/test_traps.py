"""Where float32 or a chunk form of the delta rule goes wrong, if it is not written with care."""

import math
from typing import Any

import pytest
import torch

from gyral.ops.delta import delta_scan
from tests.helpers.kernels import skip_unless_ready
from tests.ops.contract import Case, assert_close
from tests.ops.delta.test_delta import CONTRACT, case_of, step_by_step

KINDS = pytest.mark.parametrize("decays", ["scalar", "vector"])


@pytest.fixture(params=["kernel", "plain"])
def form(request: pytest.FixtureRequest) -> Any:
    """Return the operator with its kernel, or the chunk form in plain torch."""
    if request.param == "plain":
        return CONTRACT.plain
    skip_unless_ready(delta_scan)
    return delta_scan


def assert_float32_is_close(case: Case, form: Any, tolerance: float = 1e-5) -> None:
    truth, found = case.results(step_by_step), case.results(form, torch.float32)
    assert all(tensor.isfinite().all() for tensor in found.values())
    assert_close(found, truth, tolerance)


@KINDS
def test_a_decay_of_0_999_under_bfloat16_autocast(decays: str) -> None:
    """bfloat16 rounds 0.999 to 1, and a memory of 500 steps would never forget."""
    case = case_of((500, 1, 1, 1, 1, 4, 3), decays, False)
    case.tensors["decay"].fill_(math.log(0.999))
    with torch.autocast("cpu", torch.bfloat16):
        found = case.results(dtype=torch.float32)
    truth = case.results(step_by_step)
    assert_close(found, truth, 1e-5)
    case.tensors["decay"] = case.tensors["decay"].exp().to(torch.bfloat16).double().log()
    final, rounded = truth["result 1"], case.results(CONTRACT.plain)["result 1"]
    assert (rounded - final).abs().max() > 0.1 * final.abs().max()


@KINDS
@pytest.mark.parametrize("rate", [7.0, 90.0, 1000.0])
def test_decays_that_sum_beyond_the_largest_exponent_within_a_chunk(decays: str, rate: float, form: Any) -> None:
    """The exponential of 89 overflows in float32, and the product of infinity and zero is no number."""
    case = case_of((64, 2, 1, 1, 2, 4, 3), decays, True)
    case.tensors["decay"][::3] = -rate
    # sums of log decays, which plain torch subtracts from one another, have lost digits
    assert_float32_is_close(case, form, 1e-5 if form is delta_scan else 2e-6 * max(rate, 5))


@KINDS
def test_a_decay_to_zero_forgets(decays: str, form: Any) -> None:
    """A log decay of −∞ is that of a gate which is exactly 0."""
    case = case_of((9, 2, 1, 1, 2, 4, 3), decays, True)
    case.tensors["decay"][3:5, 0] = -math.inf
    case.tensors["decay"][7, ..., -1:] = -math.inf
    assert_float32_is_close(case, form)


@KINDS
def test_channels_that_decay_and_channels_that_do_not(decays: str, form: Any) -> None:
    case = case_of((64, 2, 1, 1, 2, 4, 3), decays, True)
    case.tensors["decay"][..., ::2] = -30.0
    case.tensors["decay"][..., 1::2] = -1e-4
    assert_float32_is_close(case, form)


@KINDS
def test_the_first_step_of_a_segment_reads_nothing_before_it(decays: str, form: Any) -> None:
    case = case_of((40, 1, 2, 1, 2, 4, 3), decays, True)
    case.tensors["decay"][21] = -1e4
    starts = torch.zeros(40, 1, dtype=torch.bool)
    starts[21] = True
    case.options["starts"] = starts
    outputs, final = case.values(form)
    later = {name: torch.zeros_like(tensor) if name == "s0" else tensor[21:] for name, tensor in case.tensors.items()}
    case.options["starts"] = None
    alone = case.values(form, later)
    torch.testing.assert_close(outputs[21:], alone[0], rtol=0, atol=1e-12)
    torch.testing.assert_close(final, alone[1], rtol=0, atol=1e-12)
    case.options["starts"] = starts
    of_decay = case.results(form)["gradient of decay"]
    torch.testing.assert_close(of_decay[21], torch.zeros_like(of_decay[21]), rtol=0, atol=1e-12)


@KINDS
@pytest.mark.parametrize("erases", [True, False])
def test_a_gradient_that_is_not_finite_reaches_no_later_step(decays: str, erases: bool) -> None:
    """Zero times infinity is NaN: the kernel multiplies only what a mask leaves."""
    skip_unless_ready(delta_scan)
    given = case_of((40, 1, 2, 1, 2, 5, 3), decays, erases).leaves()
    outputs, _ = delta_scan(**given)
    for time in (0, 5, 18, 38):
        cotangent = torch.zeros_like(outputs)
        cotangent[time] = torch.inf
        gradients = torch.autograd.grad(outputs, given.values(), cotangent, retain_graph=True)
        for name, gradient in zip(given, gradients, strict=True):
            if name != "s0":
                assert not gradient[: time + 1].isfinite().all()
                assert not gradient[time + 1 :].any(), f"of {name} behind step {time}"


def test_an_erasing_key_that_reads_the_memory_before_its_decay(form: Any) -> None:
    """RWKV-7: S ← e^γ S + β αᵀS + k vᵀ, as two micro-steps, the first of which undoes the decay for α alone."""
    case = case_of((40, 2, 2, 2, 2, 4, 3), "vector", True)
    case.tensors["decay"] = case.tensors["decay"].clamp(min=-0.606)
    alpha = case.tensors["k"][:, :, 0]
    beta = -alpha * torch.rand(40, 2, 2, 1, dtype=torch.float64)
    case.tensors["k"][:, :, 0] = beta
    case.tensors["erase"][:, :, 0] = -alpha * (-case.tensors["decay"]).exp()
    case.tensors["erase"][:, :, 1] = 0
    case.tensors["v"][:, :, 0] = 0
    memory, outputs = case.tensors["s0"], []
    for time in range(40):
        read = torch.einsum("bhk,bhkv->bhv", alpha[time], memory)
        memory = case.tensors["decay"][time].exp().unsqueeze(-1) * memory + beta[time].unsqueeze(-1) * read.unsqueeze(
            -2
        )
        memory = memory + case.tensors["k"][time, :, 1].unsqueeze(-1) * case.tensors["v"][time, :, 1].unsqueeze(-2)
        outputs.append(torch.einsum("bhk,bhkv->bhv", case.tensors["q"][time], memory))
    torch.testing.assert_close(case.values(form), [torch.stack(outputs), memory], rtol=0, atol=1e-12)
    assert_float32_is_close(case, form)


def test_a_long_product_of_reflections(form: Any) -> None:
    """r = 2k: the memory is reflected in each step, and neither shrinks nor grows."""
    case = case_of((4000, 1, 2, 1, 1, 8, 8), "none", True)
    case.tensors["erase"] = 2 * case.tensors["k"]
    case.tensors["v"] = torch.zeros_like(case.tensors["v"])
    case.tensors["s0"] = torch.eye(8, dtype=torch.float64).expand(1, 1, 8, 8).clone()
    final = case.results(form, torch.float32)["result 1"][0, 0]
    torch.testing.assert_close(final.T @ final, torch.eye(8, dtype=torch.float64), rtol=0, atol=5e-5)
    truth = case.values(CONTRACT.plain)[1][0, 0]
    torch.testing.assert_close(final, truth, rtol=0, atol=5e-5)
