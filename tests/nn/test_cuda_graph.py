"""The loop as a CUDA graph, with a stand-in for the capture that overwrites its memory as a graph does."""

import copy
import functools
import gc
import pickle
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from gyral.cells.goru import GORUCell
from gyral.cells.lstm import LSTMCell
from gyral.cells.rum import RUMCell
from gyral.cells.urnn import URNNCell
from gyral.core.errors import OptionError
from gyral.nn.cuda_graph import GraphedLoops
from gyral.nn.recurrent import Recurrent
from gyral.ops.scan import scan

T, B, X, N = 5, 3, 4, 6


class Capture:
    """Stands in for `torch.cuda.make_graphed_callables`: fixed inputs, outputs and gradients, all overwritten."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, function: Callable[..., Any], samples: tuple[Tensor, ...], allow_unused_input: bool) -> Any:
        assert not gc.isenabled()  # the end of an earlier graph would break the capture
        self.count += 1
        assert gc.collect.call_count == self.count, "garbage is collected before each capture"
        fixed = [sample.clone().detach().requires_grad_(sample.requires_grad) for sample in samples]
        wanted = [tensor for tensor in fixed if tensor.requires_grad]
        outputs = [output.detach().clone() for output in function(*fixed)]
        gradients = [torch.zeros_like(tensor) for tensor in wanted]
        recorded: list[tuple[Tensor, ...]] = []

        class Graph(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *given: Tensor) -> tuple[Tensor, ...]:
                assert [tensor.shape for tensor in given] == [tensor.shape for tensor in fixed]
                for tensor, value in zip(fixed, given, strict=True):
                    tensor.data.copy_(value)
                with torch.enable_grad():
                    recorded[:] = [function(*fixed)]
                for output, value in zip(outputs, recorded[0], strict=True):
                    output.copy_(value)
                return tuple(output.detach() for output in outputs)

            @staticmethod
            def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
                found = torch.autograd.grad(recorded[0], wanted, cotangents, materialize_grads=True)
                for gradient, value in zip(gradients, found, strict=True):
                    gradient.copy_(value)
                own = iter(gradients)
                return tuple(next(own).detach() if tensor.requires_grad else None for tensor in fixed)

        return Graph.apply


@pytest.fixture(autouse=True)
def no_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count the collections of garbage, which would take long in a process with thousands of tests."""
    monkeypatch.setattr(gc, "collect", Mock())


@pytest.fixture
def capture(monkeypatch: pytest.MonkeyPatch) -> Capture:
    stand_in = Capture()
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", stand_in)
    return stand_in


CELLS = {
    "lstm": functools.partial(LSTMCell, X, N),
    "goru": functools.partial(GORUCell, X, N, recurrent_dropout=0.3),
    "rum": functools.partial(RUMCell, X, N, update_gate=False),
    "rum with memory": functools.partial(RUMCell, X, N, lambd=1.0, zoneout=0.3),
}


def run(
    how: Any, cell: Any, inputs: Tensor, state: Any, lengths: Tensor | None = None, starts: Tensor | None = None
) -> tuple[Tensor, Any]:
    torch.manual_seed(3)  # of the zoneout masks
    sequence = cell.project(inputs), cell.sequence_constants(*inputs.shape[:2])
    initial = None if starts is None else cell.init_state(inputs.shape[1])
    if isinstance(how, GraphedLoops):
        return how.run(cell, sequence, state, lengths, starts, initial)
    return scan(cell.scan_step, sequence, state, lengths, starts, initial)


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("name", CELLS)
def test_equals_the_loop_call_after_call(capture: Capture, name: str, ragged: bool) -> None:
    cell = CELLS[name]().double()
    graphs = GraphedLoops(scan)
    lengths = torch.tensor([2, T, 1]) if ragged else None
    kept = []
    for _ in range(3):
        starts = torch.rand(T, B) < 0.3 if ragged else None
        inputs = torch.randn(T, B, X, dtype=torch.float64, requires_grad=True)
        start = [leaf.requires_grad_() for leaf in cell.init_state(B)]
        start[0].data.normal_()
        found = []
        for how in (graphs, scan):
            outputs, final = run(how, cell, inputs, type(cell.init_state(1))(*start), lengths, starts)
            leaves = [inputs, *start, *cell.parameters()]
            total = sum((value * value).sum() for value in (outputs, *final))
            found.append([outputs, *final, *torch.autograd.grad(total, leaves)])
        kept.append(found)
    for found in kept:  # also after later runs have overwritten the graph's memory
        for one, other in zip(*found, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    assert capture.count == 1


def test_gradients_accumulate(capture: Capture) -> None:
    cell, twin = (LSTMCell(X, N) for _ in range(2))
    twin.load_state_dict(cell.state_dict())
    graphs = GraphedLoops(scan)
    for inputs in torch.randn(3, T, B, X):
        run(graphs, cell, inputs, cell.init_state(B))[0].sum().backward()
        run(scan, twin, inputs, twin.init_state(B))[0].sum().backward()
    for one, other in zip(cell.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_two_forwards_before_the_backwards(capture: Capture) -> None:
    cell = LSTMCell(X, N)
    graphs = GraphedLoops(scan)
    inputs = [torch.randn(T, B, X, requires_grad=True) for _ in range(2)]
    for how in (graphs, scan):
        outputs = [run(how, cell, one, cell.init_state(B))[0] for one in inputs]
        gradients = [
            torch.autograd.grad(output.sin().sum(), one)[0] for output, one in zip(outputs, inputs, strict=True)
        ]
        if how is graphs:
            found = gradients
    for one, other in zip(found, gradients, strict=True):
        torch.testing.assert_close(one, other)
    run(graphs, cell, inputs[0], cell.init_state(B))
    assert capture.count == 1


def test_a_graph_for_each_of_the_first_shapes_and_the_loop_beyond(capture: Capture) -> None:
    cell = LSTMCell(X, N)
    graphs = GraphedLoops(scan)
    with torch.no_grad():
        for _ in range(2):
            for steps in range(1, GraphedLoops.LIMIT + 3):
                inputs = torch.randn(steps, B, X)
                outputs, _ = run(graphs, cell, inputs, cell.init_state(B))
                torch.testing.assert_close(outputs, run(scan, cell, inputs, cell.init_state(B))[0])
    assert capture.count == GraphedLoops.LIMIT


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))])
def test_a_copy_captures_separate_graphs(capture: Capture, duplicate: Callable[[Any], Any]) -> None:
    cell = LSTMCell(X, N)
    graphs = GraphedLoops(scan)
    inputs = torch.randn(T, B, X)
    with torch.no_grad():
        run(graphs, cell, inputs, cell.init_state(B))
        run(duplicate(graphs), cell, inputs, cell.init_state(B))
    assert capture.count == 2


def test_needs_a_gpu() -> None:
    if torch.cuda.is_available():
        model = Recurrent(lambda size: LSTMCell(size, N), X, backend="graph")
        with pytest.raises(OptionError, match=r"^backend=graph: the model is not on a GPU; allowed here: auto"):
            model(torch.randn(T, B, X))
    else:
        with pytest.raises(OptionError, match=r"^backend=graph: there is no GPU; allowed here: auto"):
            Recurrent(lambda size: LSTMCell(size, N), X, backend="graph")


def test_each_mode_of_torch_has_a_separate_graph(capture: Capture) -> None:
    cell = LSTMCell(X, N)
    graphs = GraphedLoops(scan)
    inputs = torch.randn(T, B, X)
    expected = run(scan, cell, inputs, cell.init_state(B))[0]
    contexts = (torch.no_grad, torch.inference_mode, torch.enable_grad)
    for _ in range(2):  # a graph of inference mode could not be written to outside of it
        for context in contexts:
            with context():
                torch.testing.assert_close(run(graphs, cell, inputs, cell.init_state(B))[0], expected)
    assert capture.count == len(contexts)


def test_a_graph_is_captured_without_the_cache_of_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    modes = []

    def capture(function: Callable[..., Any], samples: tuple[Tensor, ...], allow_unused_input: bool) -> Any:
        modes.append((torch.is_autocast_enabled("cuda"), torch.is_autocast_cache_enabled()))
        return function

    monkeypatch.setattr(torch.cuda, "make_graphed_callables", capture)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # else autocast warns and does nothing
    cell = LSTMCell(X, N)
    graphs = GraphedLoops(scan)
    inputs = torch.randn(T, B, X)
    with torch.no_grad():
        run(graphs, cell, inputs, cell.init_state(B))
        with torch.autocast("cuda", torch.float16):
            run(graphs, cell, inputs, cell.init_state(B))
            assert torch.is_autocast_cache_enabled()
    assert modes == [(False, False), (True, False)]


def test_buffers_that_moved_need_another_graph(capture: Capture) -> None:
    cell = URNNCell(X, N)
    graphs = GraphedLoops(scan)
    inputs = torch.randn(T, B, X)
    with torch.no_grad():
        for _ in range(2):
            run(graphs, cell, inputs, cell.init_state(B))
        assert capture.count == 1
        cell.permutation = cell.permutation.clone()
        run(graphs, cell, inputs, cell.init_state(B))
    assert capture.count == 2


def test_a_step_that_no_graph_can_record_is_refused() -> None:
    with pytest.raises(OptionError, match=r"^backend=graph: λ = 0.5 needs eigenvectors"):
        Recurrent(lambda size: RUMCell(size, N, lambd=0.5), X, backend="graph")
