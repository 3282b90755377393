"""`gyral.ops.slstm`; test_contract.py has what every operator keeps."""

import torch

from gyral.ops.slstm import lowest_scale, naive, slstm
from tests.helpers.loops import for_each
from tests.ops.contract import Contract, Named


def drawn(steps: int, batch: int, heads: int, width: int) -> tuple[Named, Named]:
    """Return projected inputs, R, and y, c, n and m before the first step."""
    size = heads * width
    projected = 2 * torch.randn(steps, batch, 4 * size, dtype=torch.float64)
    tensors = {"projected": projected, "weight_hh": torch.randn(heads, 4, width, width).double() / width**0.5}
    tensors |= {name: torch.randn(batch, size, dtype=torch.float64) for name in STATES}
    tensors["normalizer"] = tensors["normalizer"].abs() + 1
    return tensors, {}


STATES = ["hidden", "cell", "normalizer", "scale"]
CONTRACT = Contract(
    run=slstm,
    draw=drawn,
    sizes=[(1, 1, 1, 1), (7, 5, 2, 3), (5, 9, 1, 16), (4, 17, 3, 17), (2, 3, 2, 66), (5, 9, 3, 1)],  # T, B, H, d
    small=(9, 19, 2, 3),
    tiny=(3, 2, 1, 2),
    states=STATES,
    single=5e-5,
    loops=True,
)


def test_the_first_step_forgets_the_initial_state() -> None:
    """With m_0 = −10³⁰ the forget gate of the first step is exactly 0, and of a reset too: y_1 = σ(o) tanh(z)."""
    projected, weight, *_ = drawn(3, 2, 1, 4)[0].values()
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
    case = CONTRACT.case((6, 2, 2, 3), {}, False, False)
    case.tensors["projected"][..., :6] += 200
    assert all(value.isfinite().all() for value in case.results(dtype=torch.float32).values())
