"""The kernel of `gyral.ops.slstm` on the CPU against its steps in plain torch."""

import torch
from torch import Tensor

from gyral.ops.slstm import KERNELS, lowest_scale, naive, slstm
from tests.helpers.kernels import skip_without
from tests.helpers.loops import for_each
from tests.helpers.scans import assert_close, masks

compiled = skip_without(KERNELS.prepare, torch.device("cpu"))

SIZES = ((1, 1, 1, 1), (7, 5, 2, 3), (5, 9, 1, 16), (4, 17, 3, 17), (2, 3, 2, 66))  # T, B, H, d


def drawn(steps: int, batch: int, heads: int, width: int) -> list[Tensor]:
    """Return projected inputs, R, and y, c, n and m before the first step."""
    size = heads * width
    state = [torch.randn(batch, size, dtype=torch.float64) for _ in range(4)]
    state[2] = state[2].abs() + 1
    projected = 2 * torch.randn(steps, batch, 4 * size, dtype=torch.float64)
    return [projected, torch.randn(heads, 4, width, width, dtype=torch.float64) / width**0.5, *state]


def results(run, tensors: list[Tensor], options: dict[str, Tensor | None], dtype: torch.dtype) -> list[Tensor]:
    """Return outputs, the final state and all gradients, in float64."""
    leaves = [tensor.detach().to(dtype, copy=True).requires_grad_() for tensor in tensors]
    values = run(*leaves, **options)
    generator = torch.Generator().manual_seed(5)
    cotangents = [torch.randn(value.shape, generator=generator, dtype=torch.float64).to(dtype) for value in values]
    gradients = torch.autograd.grad(values, leaves, cotangents)
    return [value.detach().double() for value in (*values, *gradients)]


@for_each("resets", [False, True])
@for_each("ragged", [False, True])
def test_values_and_gradients_are_those_of_the_plain_steps(ragged: bool, resets: bool) -> None:
    for sizes in SIZES:
        tensors, options = drawn(*sizes), masks(*sizes[:2], ragged, resets)
        truth = results(naive.slstm, tensors, options, torch.float64)
        assert_close(results(slstm, tensors, options, torch.float64), truth, 1e-12)
        assert_close(results(slstm, tensors, options, torch.float32), truth, 5e-5)


def test_the_first_step_forgets_the_initial_state() -> None:
    """With m_0 = −10³⁰ the forget gate of the first step is exactly 0, and of a reset too: y_1 = σ(o) tanh(z)."""
    projected, weight, *_ = drawn(3, 2, 1, 4)
    state = naive.start(torch.zeros(2, 4, dtype=torch.float64))
    starts = torch.tensor([[False, False], [True, False], [False, True]])
    outputs, *_ = slstm(projected, 0 * weight, *state, starts=starts)
    values, gates = projected[..., 8:12], projected[..., 12:]
    fresh = torch.sigmoid(gates) * torch.tanh(values)
    for time, row in ((0, 0), (0, 1), (1, 0), (2, 1)):
        torch.testing.assert_close(outputs[time, row], fresh[time, row])
    assert not torch.allclose(outputs[1, 1], fresh[1, 1])


@for_each("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_m_before_the_first_step_is_finite_in_every_dtype(dtype: torch.dtype) -> None:
    assert torch.tensor(lowest_scale(dtype), dtype=dtype).isfinite()


def test_exponential_gates_do_not_overflow_in_float32() -> None:
    """exp(200) is infinite in float32; the common factor exp(m) of c and n is not computed."""
    tensors = [tensor.float() for tensor in drawn(6, 2, 2, 3)]
    tensors[0][..., :6] += 200
    found = results(slstm, tensors, {"lengths": None, "starts": None}, torch.float32)
    assert all(value.isfinite().all() for value in found)
