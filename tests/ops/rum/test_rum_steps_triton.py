"""RUM's Triton kernels for large hidden sizes, whose steps the host runs: at small sizes, and what they cost."""

from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

import numpy as np
from triton.runtime import interpreter

from gyral.ops.rum import triton as triton_kernels
from gyral.ops.rum.triton import launch, loop
from tests.helpers.triton import ON_GPU
from tests.ops.contract import Named
from tests.ops.rum.test_rum_triton import CHOICES, by_kernel, by_reference, check, kernels, make

__all__ = ["kernels"]  # a fixture
EVERY = loop.EVERY
PROCESSORS = 3  # of a GPU, for which a memory of a batch of three has two programs


@pytest.fixture(autouse=True)
def steps_for_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have these kernels run all hidden sizes, with several programs for a memory of eleven rows, and loops in them."""
    monkeypatch.setattr(launch, "WHOLE", 0)
    monkeypatch.setattr(launch, "_processors", lambda device: PROCESSORS)
    monkeypatch.setattr(loop, "TILE", (64, 64))
    monkeypatch.setattr(loop, "SUMS", 1)
    monkeypatch.setattr(loop, "EVERY", 2)


CASES: dict[str, Named] = {
    f"choice={index} lambd={lambd}": {"batch": 3, "steps": 3, "lambd": lambd, **choice}
    for lambd in (0.0, 1.0)
    for index, choice in enumerate(CHOICES)
}


@pytest.mark.named("choice=2 lambd=0.0", "choice=7 lambd=0.0", "choice=7 lambd=1.0")
@pytest.mark.parametrize("given", CASES)
def test_steps_equal_the_loop(given: str) -> None:
    check(make(**CASES[given]), is_generic=True)


@pytest.mark.slow
@pytest.mark.parametrize("lambd", [0.0, 1.0])
@pytest.mark.parametrize("size", [2, 3, 16, 29])
def test_sizes(size: int, lambd: float) -> None:
    check(make(size, 2, 5, lambd=lambd, ragged=True, resets=True), is_generic=True)


def test_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "CHECKPOINT_EVERY", 2)
    check(make(5, 2, 5, lambd=1.0, ragged=True, resets=True), is_generic=True)
    # they are in use: without them no gradient comes before the last of them
    forward = launch.forward

    def forgetful(arguments: Any) -> Any:
        results, saved = forward(arguments)
        assert saved[-1].shape == (2, 1, 5, 8)
        assert not saved[-1].isnan().any()
        saved[-1].fill_(float("nan"))
        return results, saved

    monkeypatch.setattr(triton_kernels, "forward", forgetful)
    gradients = by_kernel(make(5, 1, 5, lambd=1.0))["gradient of x"]
    assert gradients[:3].isnan().any()
    assert gradients[4:].isfinite().all()


@pytest.mark.named("1.0-dtype0")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("lambd", [0.0, 1.0])
def test_half_precision(dtype: torch.dtype, lambd: float) -> None:
    """Parts and weights of half precision, where factors and sums of recurrent products are rounded to it."""
    case = make(9, 1, 3, lambd=lambd, activation="tanh")
    for given, name in ((case.tensors, "x"), (case.options, "w_hh")):
        given[name] = given[name].to(dtype).double()
    truth, bound = by_reference(case), torch.finfo(dtype).eps / 2
    for name, tensor in by_kernel(case, dtype).items():
        error = (tensor - truth[name]).norm() / truth[name].norm()
        assert error <= 8 * bound, f"{name}: {error:.1e}"


@pytest.mark.slow
@pytest.mark.parametrize("choice", range(len(CHOICES)))
def test_long_runs(choice: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "EVERY", 16)
    check(make(9, 3, 40, lambd=1.0, **CHOICES[choice]), is_generic=True)


def count_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list with the number of bytes that kernels will load from memories and their gradients, or store there.

    The interpreter counts them.
    """
    builder, found, areas = interpreter.InterpreterBuilder, [0], []
    load, store, pad = builder.create_masked_load, builder.create_masked_store, loop.padded

    def padded(*given: Any) -> torch.Tensor:
        memory = pad(*given)
        areas.append((memory.data_ptr(), memory.data_ptr() + memory.nbytes))
        return memory

    def add(pointers: Any, mask: Any) -> None:
        addresses, valid = np.broadcast_arrays(pointers.data, mask.data)
        addresses = addresses[valid.astype(bool)]  # masks may be integers
        size = pointers.get_element_ty().primitive_bitwidth // 8
        found[0] += size * sum(int(((first <= addresses) & (addresses < end)).sum()) for first, end in areas)

    def counted_load(self: Any, pointers: Any, mask: Any, *others: Any) -> Any:
        add(pointers, mask)
        return load(self, pointers, mask, *others)

    def counted_store(self: Any, pointers: Any, value: Any, mask: Any, *others: Any) -> Any:
        add(pointers, mask)
        return store(self, pointers, value, mask, *others)

    monkeypatch.setattr(loop, "padded", padded)
    monkeypatch.setattr(builder, "create_masked_load", counted_load)
    monkeypatch.setattr(builder, "create_masked_store", counted_store)
    return found


@pytest.mark.skipif(ON_GPU, reason="the interpreter counts")
def test_bytes_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step reads R forward, and R and its gradient backward; that at the end of a run also changes them."""
    size, every = 12, 4
    monkeypatch.setattr(loop, "EVERY", every)
    found = count_bytes(monkeypatch)
    by_kernel(make(size, 1, every, lambd=1.0))
    assert found[0] / every == size**2 * (4 + 8 + (8 + 8) / every)
    assert 4 + 8 + (8 + 8) / EVERY <= 13.5


@pytest.mark.parametrize("is_forward", [True, False])
@pytest.mark.parametrize(("batch", "size"), [(1, 130), (64, 768), (128, 250), (500, 1000)])
def test_programs_have_all_rows_and_fill_a_gpu(
    batch: int, size: int, is_forward: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    processors = 132
    programs = loop.programs_of(batch, size, processors, is_forward)
    assert (programs.number - 1) * programs.share < size <= programs.number * programs.share
    assert programs.share % programs.tile == 0
    assert programs.number * batch >= 2 * processors or programs.number > loop.MOST_PROGRAMS / 2
