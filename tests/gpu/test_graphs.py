"""Fused paths and loops as CUDA graphs on a GPU: the same values as without a graph.

`tests/nn/test_cuda_graph.py` has the same tests without a GPU.
"""

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

import gyral
from benchmarks import gpu_rows
from gyral.cells.dynamic_conv import DynamicConvCell
from gyral.nn.choice import Choice
from gyral.nn.cuda_graph import GraphedLoops
from gyral.nn.recurrent import AFTER, Recurrent
from tests.gpu.test_gpu import B, N, T, X, assert_close

if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

DEVICE = torch.device("cuda")
MODELS = gpu_rows.models()
RECORDED = [name for name, make in MODELS.items() if getattr(make.func, "fused_operator", None) is not None]


def build(model: str, hidden: int = N, inputs: int = X, recorded: bool = True, **options: Any) -> Recurrent:
    torch.manual_seed(0)
    module = Recurrent(lambda size: MODELS[model](input_size=size, hidden_size=hidden), inputs, **options).to(DEVICE)
    return module if recorded else without_graph(module)


def without_graph(module: Recurrent) -> Recurrent:
    module.choice = lambda cell, starts=False: Choice("fused")  # type: ignore[method-assign]
    return module


def results(module: Recurrent, seed: int, kind: str = "whole", dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Return outputs, final state, and gradients of inputs and parameters."""
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(T, B, X, generator=generator).to(DEVICE, dtype).requires_grad_()
    lengths = torch.randint(1, T + 1, (B,), generator=generator) if "ragged" in kind else None
    starts = (torch.rand(T, B, generator=generator) < 0.3).to(DEVICE) if "resets" in kind else None
    outputs, final = module(inputs, lengths=lengths, starts=starts)
    found = [outputs, *tree_leaves(final)]
    total = torch.stack([leaf.double().sin().sum() for leaf in found if leaf.requires_grad]).sum()
    wanted = [inputs, *module.parameters()]
    return [*found, *torch.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True)]


@pytest.mark.parametrize("model", RECORDED)
def test_the_fused_path_as_a_graph_equals_it(model: str) -> None:
    module = build(model).double()
    if module.choice(module.cells[0]).reason is None:
        pytest.skip("it has kernels")
    plain = without_graph(copy.deepcopy(module))
    kinds = ("whole", "ragged", "resets", "ragged resets")
    for kind in kinds:
        for seed in range(2):
            assert_close(results(module, seed, kind), results(plain, seed, kind), 1e-11)
    assert module._graphs.count == len(kinds)


@pytest.mark.parametrize("model", [*RECORDED, "RUM", "RUM:lambd=1"])
def test_kernels_as_a_graph_equal_kernels(model: str) -> None:
    module = build(model)
    if module.choice(module.cells[0]).reason is not None:
        pytest.skip("it has no kernels")
    plain = without_graph(copy.deepcopy(module))
    for kind in ("whole", "ragged resets"):
        for seed in range(AFTER + 3):
            found = results(module, seed, kind, torch.float32)
            if seed in (0, AFTER - 1, AFTER + 2):
                assert_close(found, results(plain, seed, kind, torch.float32), 1e-6)
        assert module._graphs.count == (1 if kind == "whole" else 2)


@pytest.mark.parametrize("model", ["LRU", "SLSTM", "GORU", "RUM:lambd=1"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_and_evaluation(model: str, dtype: torch.dtype) -> None:
    module, plain = build(model), build(model, backend="reference")
    inputs = torch.randn(T, B, X, device=DEVICE)
    for _ in range(2):
        found: list[list[Tensor]] = []
        for each in (module, plain):
            with torch.autocast("cuda", dtype):
                outputs = each(inputs)[0]
            gradients = torch.autograd.grad(outputs.float().sin().sum(), list(each.parameters()), allow_unused=True)
            with torch.no_grad(), torch.autocast("cuda", dtype):
                evaluated = each(inputs)[0]
            found.append([outputs, evaluated, *[each for each in gradients if each is not None]])
        assert_close(found[0], found[1], 0.1)


# the parameters have been used on the first stream, also without a graph
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream does not match")
def test_runs_that_overlap_and_other_streams() -> None:
    module = build("DeltaNet", num_layers=2, bidirectional=True).double()
    plain = without_graph(copy.deepcopy(module))
    inputs = torch.randn(3, T, B, X, device=DEVICE, dtype=torch.float64)

    def run(module: Recurrent) -> list[Tensor]:
        wanted = list(module.parameters())
        losses = [module(one)[0].sin().sum() for one in inputs]  # each overwrites what the others keep
        found = [grad for loss in losses for grad in torch.autograd.grad(loss, wanted, retain_graph=True)]
        found += torch.autograd.grad(losses[0], wanted)
        for one in inputs:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                found += torch.autograd.grad(module(one)[0].sin().sum(), wanted)
            torch.cuda.current_stream().wait_stream(stream)
        return found

    assert_close(run(module), run(plain), 1e-11)
    assert module._graphs.count == 4


def test_random_numbers_equal_those_of_the_plain_path() -> None:
    def run(recorded: bool) -> list[Tensor]:
        torch.manual_seed(0)
        module = Recurrent(partial(DynamicConvCell, hidden_size=N, weight_dropout=0.5), X).to(DEVICE)
        if not recorded:
            without_graph(module)
        inputs = torch.randn(2, T, B, X, device=DEVICE)
        both = [module(one)[0] for one in inputs]
        wanted = list(module.parameters())
        found = [gradient for each in both for gradient in torch.autograd.grad(each.sin().sum(), wanted)]
        return [*both, *found, torch.rand(3, device=DEVICE)]

    assert_close(run(True), run(False), 1e-5)


def test_second_derivatives() -> None:
    def run(recorded: bool) -> list[Tensor]:
        module = build("LRU", recorded=recorded).double()
        torch.manual_seed(0)
        inputs = torch.randn(T, B, X, dtype=torch.float64, device=DEVICE, requires_grad=True)
        (gradient,) = torch.autograd.grad(module(inputs)[0].sin().sum(), inputs, create_graph=True)
        return [gradient, *torch.autograd.grad(gradient.square().sum(), [inputs, *module.parameters()])]

    assert_close(run(True), run(False), 1e-11)


def test_training_with_gradients_that_are_added_up() -> None:
    def run(recorded: bool) -> list[float]:
        module = build("DeltaNet", recorded=recorded)
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.01, fused=True)
        generator = torch.Generator().manual_seed(1)
        losses = []
        for _ in range(4):
            for _ in range(2):
                loss = module(torch.randn(T, B, X, generator=generator).to(DEVICE))[0].square().mean()
                loss.backward()
                losses.append(loss.item())
            torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        return losses

    assert run(True) == pytest.approx(run(False), rel=1e-3)


def test_many_shapes_and_what_is_recorded_again() -> None:
    module = build("MinGRU").double()
    plain = without_graph(copy.deepcopy(module))
    for steps in (3, 4, 5, 6, 7, 8, 3, 8):
        inputs = torch.randn(steps, B, X, device=DEVICE, dtype=torch.float64)
        assert_close([module(inputs)[0]], [plain(inputs)[0]], 1e-12)
    assert module._graphs.count == GraphedLoops.LIMIT
    module, plain = module.cpu().to(DEVICE), plain.cpu().to(DEVICE)  # other memory
    assert_close(results(module, 0), results(plain, 0), 1e-11)


def test_a_graph_of_the_caller_records_the_plain_path() -> None:
    module = build("LRU")
    inputs = torch.randn(T, B, X, device=DEVICE)
    with torch.no_grad():
        expected = module(inputs)[0].clone()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = module(inputs)[0]
        graph.replay()
    assert_close([outputs], [expected], 1e-6)


def test_names_of_the_backends() -> None:
    rows = {row.layer: row for row in gyral.backends("cuda")}
    assert {row.backend for row in rows.values()} <= {"fused", "fused (graph)", "graph", "–"}
    assert rows["SLSTM"] == ("SLSTM", "fused", "")
    in_double = {row.layer: row for row in gyral.backends("cuda", torch.float64)}
    assert in_double["SLSTM"] == ("SLSTM", "fused (graph)", "there are no kernels for torch.float64 on cuda")
