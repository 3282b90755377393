"""CUDA graphs without a GPU: the operations that a function calls are recorded, and run again on the same memory.

As a CUDA graph does, a replay decides nothing anew, reads and writes where the recording did, and overwrites its last
results. The backward pass overwrites what its forward pass has kept, here with NaN. A recording fails at operations
that make the host wait for values, which a GPU refuses to record.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gyral.cells.graph import GraphCell
from gyral.nn import choice, cuda_graph, recurrent
from gyral.ops import compiler
from tests.helpers.found import at_least
from tests.helpers.kernels import operators

# operations whose results have a shape, or are a number, that depends on values: the host waits for them
WAITING = {
    *("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "bincount"),
    *("is_nonzero", "equal", "histc", "_linalg_check_errors", "linalg_eig", "_linalg_eigh", "_linalg_eigvals"),
}


class HostWaitError(AssertionError):
    """An operation of a recording would make the host wait for values of a GPU."""


def refuse_waiting(function: Any, given: Sequence[Any]) -> None:
    """Raise `HostWaitError` at an operation that makes the host wait."""
    name = function._schema.name.partition("::")[2]
    masks = [t for t in tree_leaves(given) if isinstance(t, Tensor) and t.dtype in (torch.bool, torch.uint8)]
    by_mask = name in ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index") and any(
        mask is not given[0] for mask in masks
    )
    varying = name == "repeat_interleave" and function._overloadname in ("Tensor", "self_Tensor")
    copied = name == "lift_fresh" and given[0].dim() > 0  # `torch.tensor` of a list, which is copied to the GPU
    if name in WAITING or by_mask or varying or copied:
        raise HostWaitError(f"{function} waits for values")


class Recorder(TorchDispatchMode):
    """Records the operations that run within this context."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(self, function: Any, types: Any, given: Any = (), options: Any = None) -> Any:
        refuse_waiting(function, given)
        result = function(*given, **(options or {}))
        self.calls.append((function, given, options or {}, result))
        return result

    def replay(self) -> None:
        """Run all operations again; write their results where the first ones are."""
        with torch.no_grad():
            for function, given, options, result in self.calls:
                aliases = [each.alias_info for each in function._schema.returns]
                if any(alias is not None and not alias.is_write for alias in aliases):
                    continue  # a view
                again = function(*given, **options)
                if not any(alias is not None for alias in aliases):
                    for old, new in zip(tree_leaves(result), tree_leaves(again), strict=True):
                        if isinstance(old, Tensor):
                            old.detach().copy_(new)

    def poison(self) -> None:
        """Overwrite the results with NaN, as later operations do with memory that is free."""
        with torch.no_grad():
            for function, _, _, result in self.calls:
                if all(each.alias_info is None for each in function._schema.returns):
                    for old in tree_leaves(result):
                        if isinstance(old, Tensor) and old.is_floating_point():
                            old.detach().fill_(torch.nan)


class Recordings:
    """Stands in for what `gyral.nn.cuda_graph` needs a GPU for.

    Attributes:
        count: The number of functions that were recorded, with or without a backward pass.
        replays: The number of runs of a forward or a backward pass.
    """

    def __init__(self) -> None:
        self.count = self.replays = 0
        self.is_recording = False

    def new_pool(self) -> list[Recorder]:
        self.count += 1
        return []

    def record(self, function: Callable[[], Any], pool: list[Recorder]) -> tuple[Callable[[], None], Any]:
        assert not gc.isenabled()  # the end of an earlier graph would break the recording
        self.is_recording, recorder = True, Recorder()
        try:
            with recorder:
                result = function()
        finally:
            self.is_recording = False
        pool.append(recorder)

        def replay() -> None:
            self.replays += 1
            recorder.replay()
            if recorder is not pool[0]:  # a backward pass
                pool[0].poison()

        return replay, result


@pytest.fixture
def recordings(monkeypatch: pytest.MonkeyPatch) -> Recordings:
    """Let `gyral.nn.cuda_graph` record on the CPU."""
    stand_in = Recordings()
    monkeypatch.setattr(gc, "collect", Mock())  # it would take long in a process with thousands of tests
    monkeypatch.setattr(torch.cuda, "synchronize", Mock())
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(compiler, "_is_capturing", lambda: stand_in.is_recording)
    monkeypatch.setattr(cuda_graph, "new_pool", stand_in.new_pool)
    monkeypatch.setattr(cuda_graph, "record", stand_in.record)
    monkeypatch.setattr(cuda_graph, "side_stream", lambda _: nullcontext())
    monkeypatch.setattr(cuda_graph, "current_stream", lambda _: "the only stream")
    monkeypatch.setattr(cuda_graph, "generator_of", lambda _: torch.default_generator)
    return stand_in


@contextmanager
def pretended_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Within this context, the CPU has CUDA graphs and no kernels, as a GPU has for most operators."""
    with monkeypatch.context() as patched:
        patched.setattr(choice, "is_on_gpu", lambda _: True)
        patched.setattr(recurrent, "is_on_gpu", lambda _: True)
        for each in at_least(18, operators().values()):
            patched.setattr(each, "kernels", {})
        patched.setattr(GraphCell, "fused_unsupported_reason", lambda self, *, starts=False: "only for the CPU")
        yield
