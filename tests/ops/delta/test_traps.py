"""Where float32 or a chunk form of the delta rule goes wrong, if it is not written with care."""

import math
from typing import Any

import pytest
import torch

from gyral.ops.delta import KERNELS, delta_scan
from tests.helpers.kernels import prepare_or_skip
from tests.helpers.scans import assert_close
from tests.ops.delta.test_delta import Tensors, drawn, found_by, plain, step_by_step

NO_MASKS = {"lengths": None, "starts": None}

KINDS = pytest.mark.parametrize("decays", ["scalar", "vector"])


@pytest.fixture(params=["kernel", "plain"])
def form(request: pytest.FixtureRequest) -> Any:
    """Return the operator with its kernel, or the chunk form in plain torch."""
    if request.param == "plain":
        return plain
    prepare_or_skip(KERNELS.prepare, torch.device("cpu"))
    return delta_scan


def assert_float32_is_close(given: Tensors, form: Any, tolerance: float = 1e-5) -> None:
    truth = found_by(step_by_step, given, NO_MASKS)
    found = found_by(form, given, NO_MASKS, torch.float32)
    assert all(tensor.isfinite().all() for tensor in found)
    assert_close(found, truth, tolerance)


@KINDS
def test_a_decay_of_0_999_under_bfloat16_autocast(decays: str) -> None:
    """bfloat16 rounds 0.999 to 1, and a memory of 500 steps would never forget."""
    given = drawn((500, 1, 1, 1, 1, 4, 3), decays, False)
    given["decay"] = torch.full_like(given["decay"], math.log(0.999))
    with torch.autocast("cpu", torch.bfloat16):
        found = found_by(delta_scan, given, NO_MASKS, torch.float32)
    truth = found_by(step_by_step, given, NO_MASKS)
    assert_close(found, truth, 1e-5)
    rounded = {**given, "decay": given["decay"].exp().to(torch.bfloat16).double().log()}
    assert (found_by(plain, rounded, NO_MASKS)[1] - truth[1]).abs().max() > 0.1 * truth[1].abs().max()


@KINDS
@pytest.mark.parametrize("rate", [7.0, 90.0, 1000.0])
def test_decays_that_sum_beyond_the_largest_exponent_within_a_chunk(decays: str, rate: float, form: Any) -> None:
    """The exponential of 89 overflows in float32, and the product of infinity and zero is no number."""
    given = drawn((64, 2, 1, 1, 2, 4, 3), decays, True)
    given["decay"][::3] = -rate
    # sums of log decays, which plain torch subtracts from one another, have lost digits
    assert_float32_is_close(given, form, 1e-5 if form is delta_scan else 2e-6 * max(rate, 5))


@KINDS
def test_channels_that_decay_and_channels_that_do_not(decays: str, form: Any) -> None:
    given = drawn((64, 2, 1, 1, 2, 4, 3), decays, True)
    given["decay"][..., ::2] = -30.0
    given["decay"][..., 1::2] = -1e-4
    assert_float32_is_close(given, form)


@KINDS
def test_the_first_step_of_a_segment_reads_nothing_before_it(decays: str, form: Any) -> None:
    given = drawn((40, 1, 2, 1, 2, 4, 3), decays, True)
    given["decay"][21] = -1e4
    starts = torch.zeros(40, 1, dtype=torch.bool)
    starts[21] = True
    found = found_by(form, given, {"lengths": None, "starts": starts})
    later = {name: torch.zeros_like(tensor) if name == "s0" else tensor[21:] for name, tensor in given.items()}
    alone = found_by(form, later, NO_MASKS)
    torch.testing.assert_close(found[0][21:], alone[0], rtol=0, atol=1e-12)
    torch.testing.assert_close(found[1], alone[1], rtol=0, atol=1e-12)
    of_decay = found[2 + list(given).index("decay")]
    torch.testing.assert_close(of_decay[21], torch.zeros_like(of_decay[21]), rtol=0, atol=1e-12)


@KINDS
@pytest.mark.parametrize("erases", [True, False])
def test_a_gradient_that_is_not_finite_reaches_no_later_step(decays: str, erases: bool) -> None:
    """Zero times infinity is NaN: the kernel multiplies only what a mask leaves."""
    prepare_or_skip(KERNELS.prepare, torch.device("cpu"))
    given = {name: tensor.requires_grad_() for name, tensor in drawn((40, 1, 2, 1, 2, 5, 3), decays, erases).items()}
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
    given = drawn((40, 2, 2, 2, 2, 4, 3), "vector", True)
    given["decay"] = given["decay"].clamp(min=-0.606)
    alpha = given["k"][:, :, 0]
    beta = -alpha * torch.rand(40, 2, 2, 1, dtype=torch.float64)
    given["k"][:, :, 0] = beta
    given["erase"][:, :, 0] = -alpha * (-given["decay"]).exp()
    given["erase"][:, :, 1] = 0
    given["v"][:, :, 0] = 0
    memory, outputs = given["s0"], []
    for time in range(40):
        read = torch.einsum("bhk,bhkv->bhv", alpha[time], memory)
        memory = given["decay"][time].exp().unsqueeze(-1) * memory + beta[time].unsqueeze(-1) * read.unsqueeze(-2)
        memory = memory + given["k"][time, :, 1].unsqueeze(-1) * given["v"][time, :, 1].unsqueeze(-2)
        outputs.append(torch.einsum("bhk,bhkv->bhv", given["q"][time], memory))
    found = found_by(form, given, NO_MASKS)
    torch.testing.assert_close(found[0], torch.stack(outputs), rtol=0, atol=1e-12)
    torch.testing.assert_close(found[1], memory, rtol=0, atol=1e-12)
    assert_float32_is_close(given, form)


def test_a_long_product_of_reflections(form: Any) -> None:
    """r = 2k: the memory is reflected in each step, and neither shrinks nor grows."""
    given = drawn((4000, 1, 2, 1, 1, 8, 8), "none", True)
    given["erase"] = 2 * given["k"]
    given["v"] = torch.zeros_like(given["v"])
    given["s0"] = torch.eye(8, dtype=torch.float64).expand(1, 1, 8, 8).clone()
    final = found_by(form, given, NO_MASKS, torch.float32)[1][0, 0]
    torch.testing.assert_close(final.T @ final, torch.eye(8, dtype=torch.float64), rtol=0, atol=5e-5)
    truth = found_by(plain, given, NO_MASKS)
    torch.testing.assert_close(final, truth[1][0, 0], rtol=0, atol=5e-5)
