"""Sequences as CUDA graphs, recorded on the CPU: see `tests.helpers.recorded_graphs`."""

import copy
import gc
import logging
import math
import pickle
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import gyral
from benchmarks import gpu_rows
from gyral.cells.dynamic_conv import DynamicConvCell
from gyral.cells.goru import GORUCell
from gyral.cells.lru import LRUCell
from gyral.cells.lstm import LSTMCell
from gyral.cells.rum import RUMCell
from gyral.cells.slstm import SLSTMCell
from gyral.cells.torch_layer import TorchLayer
from gyral.cells.urnn import URNNCell
from gyral.core.errors import OptionError
from gyral.nn import choice, cuda_graph, recurrent
from gyral.nn.choice import Choice
from gyral.nn.cuda_graph import GraphedLoops
from gyral.nn.recurrent import Recurrent, run_fused, run_loop
from gyral.ops.native import library
from gyral.ops.scan import scan
from tests.helpers.found import at_least
from tests.helpers.recorded_graphs import HostWaitError, Recorder, Recordings, pretended_gpu, recordings

__all__ = ["recordings"]  # a fixture

T, B, X, N = 5, 3, 4, 6
MODELS = gpu_rows.models()
RECORDED = [name for name, make in MODELS.items() if getattr(make.func, "fused_operator", None) is not None]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, recordings: Recordings) -> Iterator[Recordings]:
    """The recordings, on a CPU without kernels that is taken for a GPU."""
    with pretended_gpu(monkeypatch):
        yield recordings


def build(model: str, backend: str = "auto", **options: Any) -> Recurrent:
    torch.manual_seed(0)
    return Recurrent(lambda size: MODELS[model](input_size=size, hidden_size=8), X, backend=backend, **options)


def run_plainly(module: Recurrent) -> None:
    """Run the fused path of a module without a graph."""
    module.choice = lambda cell, starts=False: Choice("fused")  # type: ignore[method-assign]


def results(module: Recurrent, seed: int, kind: str = "whole") -> list[Tensor]:
    """Return outputs, final state, and gradients of inputs and parameters."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(T, B, X, generator=generator, dtype=torch.float64, requires_grad=True)
    lengths = torch.randint(1, T + 1, (B,), generator=generator) if kind == "ragged" else None
    starts = torch.rand(T, B, generator=generator) < 0.3 if kind == "resets" else None
    outputs, final = module(inputs, lengths=lengths, starts=starts)
    found = [outputs, *tree_leaves(final)]
    floats = [leaf for leaf in found if leaf.requires_grad]
    total = torch.stack([leaf.sin().sum() for leaf in floats]).sum()
    wanted = [inputs, *module.parameters()]
    return [*found, *torch.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True)]


def assert_equal(found: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


# ---------------------------------------------------------------- which backend a GPU has


@pytest.mark.parametrize("model", MODELS)
def test_no_cell_runs_as_a_python_loop_on_a_gpu(gpu: Recordings, model: str) -> None:
    module = build(model)
    cell = module.cells[0]
    is_loop_of_cudnn = module.backend == "fused" and isinstance(getattr(cell, "layer", None), TorchLayer)
    assert is_loop_of_cudnn or module.choice(cell).name in ("graph", "fused (graph)")


def test_cells_without_kernels_on_a_gpu_are_recorded(gpu: Recordings) -> None:
    assert {"SLSTM", "M2RNN", "DeltaNet", "LRU", "S4D", "Mamba", "LightConv", "RotationScan"} <= set(RECORDED)
    for model in at_least(24, RECORDED):
        module = build(model, "fused")
        assert module.backend == "fused"
        assert module.choice(module.cells[0]) == ("fused", "there are no kernels for cpu", math.inf)


def test_names_of_the_backend(gpu: Recordings, caplog: pytest.LogCaptureFixture) -> None:
    rows = {row.layer: row for row in gyral.backends()}
    assert rows["DeltaNet"] == ("DeltaNet", "fused (graph)", "there are no kernels for cpu")
    assert rows["GRU"] == ("GRU", "fused", "")
    assert rows["GORU"] == ("GORU", "graph", "there are no kernels for cpu")
    with caplog.at_level(logging.INFO):
        assert build("SLSTM").backend == "fused"
    message = "SLSTMCell runs on the fused (graph) backend (requested: auto; there are no kernels for cpu)"
    assert message in caplog.messages


# ---------------------------------------------------------------- the fused path as a graph


@pytest.mark.parametrize("model", RECORDED)
def test_the_fused_path_as_a_graph_equals_it(gpu: Recordings, model: str) -> None:
    module, plain = build(model).double(), build(model, "fused").double()
    run_plainly(plain)
    for kind in ("whole", "ragged", "resets"):
        for seed in range(2):
            assert_equal(results(module, seed, kind), results(plain, seed, kind))
    assert gpu.count == 3
    assert gpu.replays == 12


@pytest.mark.skipif(library.compiler() is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("model", ["RUM", "LRU", "DeltaNet", "LSTM:layer_norm=true", "ONLSTM", "GORU", "ExpRNN"])
def test_kernels_are_recorded_for_short_sequences_that_recur(
    recordings: Recordings, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    for module in (choice, recurrent):
        monkeypatch.setattr(module, "is_on_gpu", lambda _: True)  # kernels of a CPU stand for those of a GPU
    monkeypatch.setattr(choice, "SHORT", T * B * 8)
    monkeypatch.setattr(recurrent, "AFTER", 3)
    module, plain = build(model).double(), build(model).double()
    run_plainly(plain)
    for index in range(5):
        assert_equal(results(module, index), results(plain, index))
        assert recordings.count == (index >= 2)
    with torch.no_grad():
        for _ in range(4):
            module(torch.randn(T + 1, B, X, dtype=torch.float64))  # too long
        for steps in (1, 2, 3, 4, 1, 2, 3, 4):
            module(torch.randn(steps, 1, X, dtype=torch.float64))
    assert recordings.count == 1
    lstm = build("LSTM")
    for _ in range(4):
        lstm(torch.randn(1, 1, X))
    assert lstm._graphs.count == 0


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning")
def test_weights_that_the_layer_holds_are_read_in_their_place(gpu: Recordings) -> None:
    module: Any = gyral.LSTM(X, 8, 2, bidirectional=True, backend="graph", dtype=torch.float64)
    plain: Any = gyral.LSTM(X, 8, 2, bidirectional=True, backend="reference", dtype=torch.float64)
    plain.load_state_dict(module.state_dict())
    for seed in range(2):
        assert_equal(results(module, seed), results(plain, seed))
        with torch.no_grad():
            for each in (module, plain):
                each.weight_hh_l1.mul_(0.5)
    assert (gpu.count, gpu.replays) == (4, 16)
    for each in (module, plain):
        torch.nn.utils.weight_norm(each, "weight_hh_l1")  # in new memory at each call
    assert_equal(results(module, 2), results(plain, 2))
    assert (gpu.count, gpu.replays) == (4, 16)


@pytest.mark.parametrize("model", ["LRU", "Mamba", "SLSTM"])
def test_layers_directions_and_training(gpu: Recordings, model: str) -> None:
    found = []
    for recorded in (True, False):
        module = build(model, num_layers=2, bidirectional=True, batch_first=True)
        if not recorded:
            run_plainly(module)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        generator = torch.Generator().manual_seed(1)
        losses = []
        for _ in range(3):
            for _ in range(2):  # gradients are added up
                loss = module(torch.randn(B, T, X, generator=generator))[0].square().mean()
                loss.backward()
                losses.append(loss.item())
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            losses.append(module.eval()(torch.randn(B, T, X, generator=generator))[0].square().mean().item())
        found.append(losses)
    assert found[0] == pytest.approx(found[1], rel=1e-5)
    assert gpu.count == 8


def test_random_numbers_equal_those_of_the_plain_path(gpu: Recordings) -> None:
    def run(recorded: bool, retain: bool) -> list[Tensor]:
        torch.manual_seed(0)
        module = Recurrent(lambda size: DynamicConvCell(size, N, weight_dropout=0.5), X)
        if not recorded:
            run_plainly(module)
        inputs = torch.randn(2, T, B, X)
        module(inputs[0])
        both = [module(one)[0] for one in inputs]  # the second overwrites what the first backward pass reads
        wanted = list(module.parameters())
        found = [grad for each in both for grad in torch.autograd.grad(each.sin().sum(), wanted, retain_graph=retain)]
        if retain:
            found += torch.autograd.grad(both[0].sin().sum(), wanted)
        return [*both, *found, torch.rand(3)]

    for retain in (False, True):
        assert_equal(run(True, retain), run(False, retain))


def test_second_derivatives_and_batches_of_gradients(gpu: Recordings) -> None:
    def run(recorded: bool) -> list[Tensor]:
        module = build("LRU").double()
        if not recorded:
            run_plainly(module)
        torch.manual_seed(0)
        inputs = torch.randn(T, B, X, dtype=torch.float64, requires_grad=True)
        outputs = module(inputs)[0]
        (gradient,) = torch.autograd.grad(outputs.sin().sum(), inputs, create_graph=True)
        second = torch.autograd.grad(gradient.square().sum(), [inputs, *module.parameters()])
        rows = torch.eye(3, outputs.numel(), dtype=torch.float64).view(3, *outputs.shape)
        batched = torch.autograd.grad(module(inputs)[0], inputs, rows, is_grads_batched=True)
        return [gradient, *second, *batched]

    assert_equal(run(True), run(False))


def test_what_records_the_call_gets_the_plain_path(gpu: Recordings) -> None:
    module = build("LRU")
    inputs = torch.randn(T, B, X)
    module(inputs)
    before = gpu.replays
    with Recorder() as recorder:
        module(inputs)
    assert len(recorder.calls) > 20
    gpu.is_recording = True
    module(inputs)
    gpu.is_recording = False
    torch.func.grad(lambda values: module(values)[0].sum())(inputs)
    assert (gpu.count, gpu.replays) == (1, before)


def test_weight_drop_runs_without_a_graph(gpu: Recordings) -> None:
    module = Recurrent(lambda size: SLSTMCell(size, N), X, weight_drop=0.5)
    module(torch.randn(T, B, X))
    assert (module.backend, gpu.count) == ("fused", 0)


def test_shapes_without_enough_memory_run_without_a_graph(
    gpu: Recordings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(function: Any, pool: Any) -> Any:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(cuda_graph, "record", fail)
    module, plain = build("LRU").double(), build("LRU", "fused").double()
    run_plainly(plain)
    with caplog.at_level(logging.INFO):
        for seed in range(2):
            assert_equal(results(module, seed), results(plain, seed))
    assert gpu.count == 1
    (message,) = (message for message in caplog.messages if "memory" in message)
    assert message.startswith("LRUCell runs without a CUDA graph for tensors of shapes (5, 3, 4), (3, 16): ")


class HastyCell(LRUCell):
    """A cell that looks at values."""

    def project_inputs(self, inputs: Tensor) -> Tensor:
        if bool(inputs.isfinite().all()):
            return super().project_inputs(inputs)
        raise ValueError


def test_operations_that_wait_for_values_are_found(gpu: Recordings) -> None:
    module = Recurrent(lambda size: HastyCell(size, N), X)
    with pytest.raises(HostWaitError, match="_local_scalar_dense"):
        module(torch.randn(T, B, X))
    values, mask = torch.randn(3, 2), torch.tensor([True, False, True])
    for wait in (
        lambda: values[mask],
        lambda: values.masked_select(mask.unsqueeze(1)),
        lambda: mask.nonzero(),
        lambda: values.index_put((mask,), torch.zeros(())),
        lambda: torch.tensor([1.0, 2.0]),
        lambda: torch.linalg.eigh(values.T @ values),
        lambda: values.repeat_interleave(torch.arange(3), 0),
        lambda: values.unique(),
        lambda: values.sum().item(),
    ):
        with pytest.raises(HostWaitError), Recorder():
            wait()
    with Recorder():
        values[torch.arange(2)]
        values.masked_fill(mask.unsqueeze(1), 0.0)


class Devices(TorchDispatchMode):
    """Fails at operations on tensors of the CPU, which a GPU would have to wait for; numbers are no such tensors."""

    def __torch_dispatch__(self, function: Any, types: Any, given: Any = (), options: Any = None) -> Any:
        result = function(*given, **(options or {}))
        for each in tree_leaves((given, options, result)):
            assert not isinstance(each, Tensor) or each.dim() == 0 or each.device.type == "meta", function
        return result


@pytest.mark.parametrize("model", RECORDED)
def test_a_recording_reads_no_tensor_of_the_cpu(gpu: Recordings, model: str) -> None:
    cell: Any = build(model).cells[0].to("meta")
    inputs, lengths = torch.empty(T, B, X, device="meta"), torch.empty(B, dtype=torch.int64, device="meta")
    starts, state = torch.empty(T, B, dtype=torch.bool, device="meta"), cell.init_state(B)
    for given in ((None, None), (lengths, starts)):
        with Devices():
            outputs, _ = run_fused(cell, inputs, state, *given)
            outputs.sum().backward()


# ---------------------------------------------------------------- the loop as a graph

CELLS: dict[str, Callable[[], Any]] = {
    "lstm": partial(LSTMCell, X, N),
    "goru": partial(GORUCell, X, N, recurrent_dropout=0.3),
    "rum": partial(RUMCell, X, N, update_gate=False),
    "rum with memory": partial(RUMCell, X, N, lambd=1.0, zoneout=0.3),
}


def run(
    how: Any, cell: Any, inputs: Tensor, state: Any, lengths: Tensor | None = None, starts: Tensor | None = None
) -> tuple[Tensor, Any]:
    torch.manual_seed(3)  # of the zoneout masks
    sequence = cell.project(inputs), cell.sequence_constants(*inputs.shape[:2])
    initial = None if starts is None else cell.init_state(inputs.shape[1])
    if isinstance(how, GraphedLoops):
        return how.run(run_loop, cell, sequence, state, lengths, starts, initial)
    return scan(cell.scan_step, sequence, state, lengths, starts, initial)


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("name", CELLS)
def test_equals_the_loop_call_after_call(recordings: Recordings, name: str, ragged: bool) -> None:
    cell = CELLS[name]().double()
    graphs = GraphedLoops()
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
        assert_equal(*found)
    assert recordings.count == 1


def test_gradients_accumulate(recordings: Recordings) -> None:
    cell, twin = (LSTMCell(X, N) for _ in range(2))
    twin.load_state_dict(cell.state_dict())
    graphs = GraphedLoops()
    for inputs in torch.randn(3, T, B, X):
        run(graphs, cell, inputs, cell.init_state(B))[0].sum().backward()
        run(scan, twin, inputs, twin.init_state(B))[0].sum().backward()
    for one, other in zip(cell.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_two_forwards_before_the_backwards(recordings: Recordings) -> None:
    cell = LSTMCell(X, N).double()
    graphs = GraphedLoops()
    inputs = [torch.randn(T, B, X, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    found = []
    for how in (graphs, scan):
        outputs = [run(how, cell, one, cell.init_state(B))[0] for one in inputs]
        found.append(
            [torch.autograd.grad(output.sin().sum(), one)[0] for output, one in zip(outputs, inputs, strict=True)]
        )
    assert_equal(*found)
    assert recordings.count == 1
    assert recordings.replays == 6  # each backward pass runs forward again: the other run has overwritten its values


def test_only_the_final_state_has_a_gradient_and_then_only_the_outputs(recordings: Recordings) -> None:
    cell = LSTMCell(X, N).double()
    graphs = GraphedLoops()
    inputs, weights = torch.randn(T, B, X, dtype=torch.float64), list(cell.parameters())
    for read in (lambda pair: pair[1].hidden, lambda pair: pair[0], lambda pair: pair[1].cell):
        found = [
            list(torch.autograd.grad(read(run(how, cell, inputs, cell.init_state(B))).sin().sum(), weights))
            for how in (graphs, scan)
        ]
        assert_equal(*found)


def test_a_weight_that_changes_before_the_backward_pass_is_noticed(recordings: Recordings) -> None:
    cell: Any = LSTMCell(X, N)
    outputs, _ = run(GraphedLoops(), cell, torch.randn(T, B, X), cell.init_state(B))
    with torch.no_grad():
        cell.layer.weight_hh_l0.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        outputs.sum().backward()


def test_a_graph_for_each_of_the_first_shapes_and_the_loop_beyond(recordings: Recordings) -> None:
    cell = LSTMCell(X, N)
    graphs = GraphedLoops()
    with torch.no_grad():
        for _ in range(2):
            for steps in range(1, GraphedLoops.LIMIT + 3):
                inputs = torch.randn(steps, B, X)
                outputs, _ = run(graphs, cell, inputs, cell.init_state(B))
                torch.testing.assert_close(outputs, run(scan, cell, inputs, cell.init_state(B))[0])
    assert recordings.count == GraphedLoops.LIMIT


def test_a_graph_that_is_not_in_use_makes_room(recordings: Recordings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GraphedLoops, "PATIENCE", 10)
    cell = LSTMCell(X, N)
    graphs = GraphedLoops()
    counts = []
    with torch.no_grad():
        for _ in range(12):
            for steps in range(1, GraphedLoops.LIMIT):
                run(graphs, cell, torch.randn(steps, B, X), cell.init_state(B))
            counts.append(recordings.count)
            run(graphs, cell, torch.randn(10 + len(counts), B, X), cell.init_state(B))
    # the graph of the first odd shape was not used again, and is replaced after more than 10 runs
    assert counts[0] == GraphedLoops.LIMIT - 1
    assert counts[-1] == GraphedLoops.LIMIT + 3
    own = next(iter(graphs._cells.values()))
    assert len(own.graphs) == GraphedLoops.LIMIT
    assert len(own.last_runs) <= 2 * GraphedLoops.LIMIT + 10


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))])
def test_a_copy_records_separate_graphs(recordings: Recordings, duplicate: Callable[[Any], Any]) -> None:
    cell = LSTMCell(X, N)
    graphs = GraphedLoops()
    inputs = torch.randn(T, B, X)
    with torch.no_grad():
        run(graphs, cell, inputs, cell.init_state(B))
        run(duplicate(graphs), cell, inputs, cell.init_state(B))
    assert recordings.count == 2


def test_a_layer_and_its_graphs_end_together(gpu: Recordings) -> None:
    module = build("LRU")
    module(torch.randn(T, B, X))[0].sum().backward()
    kept = weakref.ref(next(iter(module._graphs._cells.values())).graphs.popitem()[1])
    del module
    for _ in range(2):
        _collect()
    assert kept() is None


def _collect(collect: Callable[[], int] = gc.collect) -> None:
    collect()


def test_needs_a_gpu() -> None:
    if torch.cuda.is_available():
        model = Recurrent(lambda size: LSTMCell(size, N), X, backend="graph")
        with pytest.raises(OptionError, match=r"^backend=graph: the model is not on a GPU; allowed here: auto"):
            model(torch.randn(T, B, X))
    else:
        with pytest.raises(OptionError, match=r"^backend=graph: there is no GPU; allowed here: auto"):
            Recurrent(lambda size: LSTMCell(size, N), X, backend="graph")


def test_each_mode_of_torch_has_a_separate_graph(recordings: Recordings) -> None:
    cell = LSTMCell(X, N)
    graphs = GraphedLoops()
    inputs = torch.randn(T, B, X)
    expected = run(scan, cell, inputs, cell.init_state(B))[0]
    contexts = (torch.no_grad, torch.inference_mode, torch.enable_grad)
    for _ in range(2):  # a graph of inference mode could not be written to outside of it
        for context in contexts:
            with context():
                torch.testing.assert_close(run(graphs, cell, inputs, cell.init_state(B))[0], expected)
    assert recordings.count == len(contexts)


def test_a_graph_is_recorded_without_the_cache_of_autocast(
    recordings: Recordings, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []

    def record(function: Callable[[], Any], pool: Any) -> Any:
        found = recordings.record(function, pool)
        return found

    class Watched(LSTMCell):
        def step(self, *given: Any) -> Any:
            modes.append((torch.is_autocast_enabled("cuda"), torch.is_autocast_cache_enabled()))
            return super().step(*given)

    monkeypatch.setattr(cuda_graph, "record", record)
    cell = Watched(X, N)
    graphs = GraphedLoops()
    inputs = torch.randn(T, B, X)
    with torch.no_grad():
        run(graphs, cell, inputs, cell.init_state(B))
        assert set(modes) == {(False, False)}
        modes.clear()
        with torch.autocast("cuda", torch.float16):
            run(graphs, cell, inputs, cell.init_state(B))
            assert torch.is_autocast_cache_enabled()
    assert set(modes) == {(True, False)}
    assert recordings.count == 2


@pytest.mark.parametrize("change", ["buffer", "parameter", "flag", "option"])
def test_what_changes_needs_another_graph(recordings: Recordings, change: str) -> None:
    cell = URNNCell(X, N).eval()
    graphs = GraphedLoops()
    inputs = torch.randn(T, B, X)
    for _ in range(2):
        run(graphs, cell, inputs, cell.init_state(B))
    assert recordings.count == 1
    if change == "buffer":
        cell.permutation = cell.permutation.clone()
    elif change == "parameter":
        cell.bias.data = cell.bias.data + 1
    elif change == "option":
        cell.zoneout = 0.5
    else:
        cell.bias.requires_grad_(False)
    for _ in range(2):
        found = run(graphs, cell, inputs, cell.init_state(B))[0]
        torch.testing.assert_close(found, run(scan, cell, inputs, cell.init_state(B))[0])
    assert recordings.count == 2


def test_a_step_that_no_graph_can_record_is_refused() -> None:
    with pytest.raises(OptionError, match=r"^backend=graph: λ = 0.5 needs eigenvectors"):
        Recurrent(lambda size: RUMCell(size, N, lambd=0.5), X, backend="graph")


def test_replicas_have_no_graph(gpu: Recordings) -> None:
    module = build("GORU")
    assert module.backend == "graph"
    for cell in module.cells:  # as torch.nn.DataParallel makes replicas
        for part in cell.modules():
            vars(part)["_former_parameters"] = dict(part._parameters)
            for name, parameter in part._parameters.items():
                vars(part)[name] = parameter
            part._parameters.clear()
        cell.train()
    module(torch.randn(T, B, X))
    assert (module.backend, gpu.count) == ("reference", 0)
