"""`gyral.ops.delta` against one step after the other; test_contract.py has what every operator keeps."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.delta import delta_scan, delta_step
from tests.helpers.kernels import skip_without
from tests.helpers.loops import for_each
from tests.ops.contract import Case, Contract, Named, each

compiled = skip_without(delta_scan)


def drawn(
    *sizes: int,
    decays: str = "none",
    erases: bool | str = False,
) -> tuple[Named, Named]:
    """Return the arguments of the scan: unit keys, and vectors or rates of erasing up to 2."""
    steps, batch, micro, groups, heads, key, value = sizes

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64)

    k = F.normalize(normal(steps, batch, micro, groups, key), dim=-1)
    found = {
        "q": normal(steps, batch, groups, key),
        "k": k,
        "v": normal(steps, batch, micro, heads, value),
        "s0": normal(batch, heads, key, value),
    }
    if decays != "none":
        found["decay"] = -normal(steps, batch, heads, *([key] if decays == "vector" else [])).exp()
    if erases == "rates":  # of keys of any length, which the operator divides by their norms
        found["q"], found["k"] = 3 * found["q"], k * normal(steps, batch, micro, groups, 1)
        found["erase"] = 2 * torch.rand(steps, batch, micro, groups, dtype=torch.float64)
        found["write"] = normal(steps, batch, micro, heads)
    elif erases:
        found["erase"] = 2 * torch.rand(steps, batch, micro, groups, 1, dtype=torch.float64) * k
    return found, {"unit": erases == "rates"}


def step_by_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s0: Tensor,
    *,
    decay: Tensor | None = None,
    erase: Tensor | None = None,
    write: Tensor | None = None,
    unit: bool = False,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    memory, outputs = s0, []
    for time in range(len(q)):
        before = memory if starts is None else memory.masked_fill(starts[time, :, None, None, None], 0.0)
        of_step = [None if tensor is None else tensor[time] for tensor in (decay, erase, write)]
        output, after = delta_step(q[time], k[time], v[time], before, *of_step, unit)
        if lengths is not None:
            has_ended = (time >= lengths)[:, None, None, None]
            output, after = output.masked_fill(has_ended[..., 0], 0.0), torch.where(has_ended, memory, after)
        outputs.append(output)
        memory = after
    return torch.stack(outputs), memory


CONTRACT = Contract(
    run=delta_scan,
    draw=drawn,
    kinds=each(decays=["none", "scalar", "vector"], erases=["rates", False, True]),
    # T, B, n, G, H, K, V: one step, one number, whole chunks of 16 micro-steps and some more, several micro-steps,
    # heads that share keys, sizes around those of a vector, and a chunk of 64
    sizes=[
        *((1, 1, 1, 1, 1, 1, 1), (7, 3, 1, 1, 2, 3, 5), (32, 2, 1, 2, 2, 16, 16), (35, 2, 3, 1, 2, 9, 17)),
        *((19, 1, 5, 2, 4, 4, 3), (33, 1, 2, 1, 3, 33, 40), (70, 1, 1, 2, 2, 65, 64)),
    ],
    small=(20, 19, 2, 1, 2, 5, 3),
    tiny=(3, 2, 2, 1, 2, 2, 1),
    states=["s0"],
    truth=step_by_step,
    stride=4,
    apart=4,
)


def case_of(sizes: tuple[int, ...], decays: str, erases: bool | str, *masked: bool) -> Case:
    """Return a case, without masks unless they are given."""
    return CONTRACT.case(sizes, {"decays": decays, "erases": erases}, *(masked or (False, False)))


@for_each("chunk", [1, 32, 64])
def test_results_do_not_depend_on_the_size_of_a_chunk(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr("gyral.ops.delta.VECTOR_CHUNK", chunk)
    monkeypatch.setattr("gyral.ops.delta.SCALAR_CHUNKS", ())
    monkeypatch.setattr("gyral.ops.delta.LARGEST_CHUNK", chunk)
    for decays in ("scalar", "vector"):
        case_of((70, 2, 2, 1, 2, 5, 18), decays, True, True, True).check()


@for_each("erases", [False, True])
def test_gradients_of_strong_decays_do_not_cancel(erases: bool) -> None:
    """They are as small as the decays, so that differences of sums in float32 would have no digit of them."""
    for sizes in CONTRACT.sizes[2:4]:
        case = case_of(sizes, "vector", erases)
        case.tensors["decay"] = case.tensors["decay"].clamp(max=0) / 10 - 12
        found, exact = case.results(dtype=torch.float32), case.results(step_by_step)
        error = (found["gradient of decay"] - exact["gradient of decay"]).abs().max()
        assert error / exact["gradient of decay"].abs().max() < 2e-5, error
