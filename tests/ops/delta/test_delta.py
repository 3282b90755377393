"""The delta rule in chunks, in plain torch and by the kernel on the CPU, against one step after the other."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from gyral.ops.delta import KERNELS, delta_scan, delta_step, naive
from tests.helpers.kernels import skip_without
from tests.helpers.loops import for_each
from tests.helpers.memory import poison
from tests.helpers.scans import assert_close, masks, results

compiled = skip_without(KERNELS.prepare, torch.device("cpu"))

MASKS = pytest.mark.parametrize("ragged", [False, True]), pytest.mark.parametrize("resets", [False, True])
DECAYS = pytest.mark.parametrize("decays", ["none", "scalar", "vector"])
EACH_MASK = ((True, True), (True, False), (False, True), (False, False))  # of sizes, one after the other
ERASES = pytest.mark.parametrize("erases", [False, True, "rates"])
# T, B, n, G, H, K, V: one step, one number, whole chunks of 16 micro-steps and some more, several micro-steps, heads
# that share keys, sizes around those of a vector, and a chunk of 64
SIZES = (
    (1, 1, 1, 1, 1, 1, 1),
    (7, 3, 1, 1, 2, 3, 5),
    (32, 2, 1, 2, 2, 16, 16),
    (35, 2, 3, 1, 2, 9, 17),
    (19, 1, 5, 2, 4, 4, 3),
    (33, 1, 2, 1, 3, 33, 40),
    (70, 1, 1, 2, 2, 65, 64),
)
Tensors = dict[str, Tensor]


def drawn(sizes: tuple[int, ...], decays: str, erases: bool | str) -> Tensors:
    """Return the arguments of the scan by their names: unit keys, and vectors or rates of erasing up to 2."""
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
    return found


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


def plain(**given: Any) -> tuple[Tensor, Tensor]:
    return naive.delta_scan(**{"decay": None, "erase": None, "write": None, "unit": False, **given})


def found_by(run: Any, given: Tensors, options: dict[str, Any], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Return outputs, final memory and all gradients, in float64."""

    def by_name(*tensors: Tensor, **masks: Any) -> tuple[Tensor, Tensor]:
        return run(**dict(zip(given, tensors, strict=True)), **masks)

    return results(by_name, list(given.values()), {"unit": "write" in given, **options}, dtype)


def check_against_single_steps(sizes: tuple[int, ...], decays: str, erases: bool | str, *masked: bool) -> None:
    given, options = drawn(sizes, decays, erases), masks(*sizes[:2], *masked)
    truth = found_by(step_by_step, given, options)
    assert_close(found_by(plain, given, options), truth, 1e-12)
    assert_close(found_by(delta_scan, given, options), truth, 1e-12)
    assert_close(found_by(delta_scan, given, options, torch.float32), truth, 1e-5)


@DECAYS
@ERASES
def test_values_and_gradients_are_those_of_single_steps(decays: str, erases: bool | str) -> None:
    # a third of the sizes, but those of several micro-steps and groups each time; the next test has all
    first = ("none", "scalar", "vector").index(decays) + ["rates", False, True].index(erases)
    for index in {3, *range(first % 3, len(SIZES), 3)}:
        check_against_single_steps(SIZES[index], decays, erases, *EACH_MASK[(index + first) % 4])


@pytest.mark.slow
@MASKS[0]
@MASKS[1]
@DECAYS
@ERASES
def test_all_masks_of_all_sizes(decays: str, erases: bool | str, ragged: bool, resets: bool) -> None:
    for sizes in SIZES:
        check_against_single_steps(sizes, decays, erases, ragged, resets)


@for_each("chunk", [1, 32, 64])
def test_results_do_not_depend_on_the_size_of_a_chunk(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr("gyral.ops.delta.VECTOR_CHUNK", chunk)
    monkeypatch.setattr("gyral.ops.delta.SCALAR_CHUNKS", ())
    monkeypatch.setattr("gyral.ops.delta.LARGEST_CHUNK", chunk)
    for decays in ("scalar", "vector"):
        given, options = drawn((70, 2, 2, 1, 2, 5, 18), decays, True), masks(70, 2, True, True)
        assert_close(found_by(delta_scan, given, options), found_by(plain, given, options), 1e-12)


@DECAYS
@for_each("erases", [True, "rates"])
@for_each("masked", EACH_MASK[:2])
def test_no_uninitialized_memory_is_read(
    monkeypatch: pytest.MonkeyPatch, decays: str, erases: bool | str, masked: tuple[bool, bool]
) -> None:
    given, options = drawn((35, 4, 2, 1, 2, 5, 3), decays, erases), masks(35, 4, *masked)
    expected = found_by(delta_scan, given, options)
    assert poison(monkeypatch) == []
    assert_close(found_by(delta_scan, given, options), expected, 0.0)


@DECAYS
def test_no_step_reads_later_ones(decays: str) -> None:
    given = drawn((40, 1, 2, 1, 2, 5, 3), decays, True)
    outputs, _ = delta_scan(**given)
    for tensor in given.values():
        if len(tensor) == 40:
            tensor[23:] *= 0.5
    changed, _ = delta_scan(**given)
    torch.testing.assert_close(changed[:23], outputs[:23], rtol=0, atol=0)
    assert not torch.equal(changed[23:], outputs[23:])


@DECAYS
def test_results_do_not_depend_on_the_number_of_threads(decays: str) -> None:
    given, options = drawn((20, 3, 1, 2, 4, 5, 3), decays, True), masks(20, 3, True, True)
    found, threads = [], torch.get_num_threads()
    try:
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            found.append(found_by(delta_scan, given, options, torch.float32))
    finally:
        torch.set_num_threads(threads)
    assert_close(found[0], found[1], 0.0)
    assert_close(found[0], found[2], 0.0)


@for_each("erases", [False, True])
def test_gradients_of_strong_decays_do_not_cancel(erases: bool) -> None:
    """They are as small as the decays, so that differences of sums in float32 would have no digit of them."""
    for sizes in SIZES[2:4]:
        given = drawn(sizes, "vector", erases)
        given["decay"] = given["decay"].clamp(max=0) / 10 - 12
        found, exact = found_by(delta_scan, given, {}, torch.float32), found_by(step_by_step, given, {})
        of_decay = 2 + [*given].index("decay")
        error = (found[of_decay] - exact[of_decay]).abs().max() / exact[of_decay].abs().max()
        assert error < 2e-5, error


def test_any_memory_layout_and_an_empty_batch() -> None:
    given = drawn((5, 4, 2, 2, 4, 3, 2), "vector", True)
    strided = {name: tensor.mT.contiguous().mT for name, tensor in given.items()}
    assert not strided["q"].is_contiguous()
    torch.testing.assert_close(delta_scan(**strided), delta_scan(**given), rtol=0, atol=0)
    empty = {name: tensor[:0] if name == "s0" else tensor[:, :0] for name, tensor in given.items()}
    outputs, final = delta_scan(**empty)
    assert outputs.shape == (5, 0, 4, 2)
    assert final.shape == (0, 4, 3, 2)


def test_a_second_backward_pass_over_the_same_graph() -> None:
    given = {name: tensor.requires_grad_() for name, tensor in drawn((20, 2, 1, 1, 1, 3, 2), "scalar", True).items()}
    outputs, _ = delta_scan(**given)
    first, second = (torch.autograd.grad(outputs.sum(), given.values(), retain_graph=True) for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)


@pytest.mark.parametrize(("decays", "erases"), [("scalar", "rates"), ("vector", True)])
def test_second_derivatives_and_compiled_code(decays: str, erases: bool | str) -> None:
    given = {name: tensor.requires_grad_() for name, tensor in drawn((3, 2, 2, 1, 2, 2, 1), decays, erases).items()}
    options = {**masks(3, 2, True, True), "unit": erases == "rates"}

    def run(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        return delta_scan(**dict(zip(given, tensors, strict=True)), **options)

    tensors = tuple(given.values())
    assert torch.autograd.gradcheck(run, tensors, fast_mode=True)
    assert torch.autograd.gradgradcheck(run, tensors, fast_mode=True)
    torch.testing.assert_close(torch.compile(run, fullgraph=True, backend="aot_eager")(*tensors), run(*tensors))
