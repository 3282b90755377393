"""All cells on a GPU. Without one the tests are skipped; GYRAL_TEST_DEVICE=cpu runs them on the CPU.

`make gpu` runs them with torch, Triton and pytest alone; it also compares whole sequences. GYRAL_TEST_MODELS=RUM,GRU
selects cells.
"""

import copy
import os
import pickle
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

import gyral
from benchmarks import gpu_rows
from benchmarks.equivalence import compare
from benchmarks.gpu_rows import Case
from gyral.core.errors import OptionError, UserError
from gyral.nn.recurrent import Recurrent

DEVICE = torch.device(os.environ.get("GYRAL_TEST_DEVICE", "cuda"))
if DEVICE.type == "cuda" and not torch.cuda.is_available():
    pytest.skip("there is no GPU; GYRAL_TEST_DEVICE=cpu runs these tests on the CPU", allow_module_level=True)

T, B, X, N = 21, 5, 3, 12
BACKENDS = ("fused", "graph")
NAMED = tuple(filter(None, os.environ.get("GYRAL_TEST_MODELS", "").split(",")))
MODELS = NAMED or tuple(gpu_rows.models())


@pytest.fixture(autouse=True)
def exact_products() -> Iterator[None]:
    """Use no TF32, which is cuDNN's default."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def build(model: str, backend: str) -> Recurrent:
    """Return the module on the device of the tests; skip the test if the backend does not support the cell there."""
    try:
        return gpu_rows.build_cell(Case(model, "float32", B, T, X, N), DEVICE, backend)
    except OptionError as error:
        pytest.skip(str(error))


def gradients(module: Recurrent, inputs: Tensor) -> list[Tensor]:
    """Return outputs, final state and the gradients of the parameters, on the CPU."""
    outputs, final = module(inputs)
    results = [outputs, *tree_leaves(final)]
    total = torch.stack([result.double().sin().sum() for result in results]).sum()
    found = torch.autograd.grad(total, list(module.parameters()), materialize_grads=True, allow_unused=True)
    return [tensor.detach().cpu() for tensor in (*results, *found)]


def assert_close(found: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    for one, other in zip(found, expected, strict=True):
        error, size = (one.double() - other.double()).norm(), other.double().norm()
        assert error <= tolerance * max(size, 1.0), f"error {error:.1e} of {size:.1e}"


def of(*models: str) -> list[str]:
    """Return these models, without those that are not selected."""
    return [model for model in models if model in MODELS]


@pytest.mark.parametrize("kind", ["ragged", "resets"])
@pytest.mark.parametrize("model", MODELS)
def test_agrees_with_the_float64_reference(model: str, kind: str) -> None:
    if model == "DNC" and kind == "resets":
        pytest.skip("after a reset all slots of the memory are equal, and rounding decides which one is written first")
    make, precision = partial(build, model), gpu_rows.precision_of(Case(model, "float32", B, T, X, N))
    candidates = {"auto": partial(make, "auto")}
    lines, _ = compare(partial(make, "reference"), candidates, (T, B, X), kind, precision=precision, factor=4)
    assert not lines


@pytest.mark.parametrize("model", MODELS)
def test_float64_equals_the_cpu(model: str) -> None:
    inputs = torch.randn(T, B, X, dtype=torch.float64)
    # the loop: kernels for the CPU would be compiled first
    expected = gradients(build(model, "reference").double().cpu(), inputs)
    assert_close(gradients(build(model, "auto").double(), inputs.to(DEVICE)), expected, 1e-9)


@pytest.mark.filterwarnings("ignore:RNN module weights are not part of single")  # torch flattens none of bfloat16
@pytest.mark.parametrize(
    ("autocast", "dtype"), [(True, torch.bfloat16), (False, torch.float16)], ids=["autocast bfloat16", "float16"]
)
@pytest.mark.parametrize("model", MODELS)
def test_trains_and_evaluates_in_half_precision(model: str, autocast: bool, dtype: torch.dtype) -> None:
    module = build(model, "auto")
    inputs = torch.randn(T, B, X, device=DEVICE)
    if not autocast:
        module, inputs = module.to(dtype), inputs.to(dtype)
    for _ in range(2):  # a graph is captured at the first call, and runs again at the second
        try:
            with torch.autocast(DEVICE.type, dtype, enabled=autocast):
                outputs, _ = module(inputs)
        except UserError as error:
            pytest.skip(str(error))
        module.zero_grad()
        outputs.float().square().mean().backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in module.parameters())
    with torch.no_grad(), torch.autocast(DEVICE.type, dtype, enabled=autocast):
        assert module.eval()(inputs)[0].isfinite().all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("model", of("RUM", "LSTM", "GORU"))
def test_modes_may_alternate(model: str, backend: str) -> None:
    module, reference = build(model, backend), build(model, "reference")
    inputs = torch.randn(T, B, X, device=DEVICE)
    for _ in range(2):
        with torch.inference_mode():
            assert_close([module(inputs)[0].cpu()], [reference(inputs)[0].cpu()], 1e-5)
        with torch.no_grad():
            assert_close([module(inputs)[0].cpu()], [reference(inputs)[0].cpu()], 1e-5)
        with torch.no_grad(), torch.autocast(DEVICE.type, torch.bfloat16):
            assert_close([module(inputs)[0].cpu()], [reference(inputs)[0].cpu()], 0.05)
        assert_close(gradients(module, inputs), gradients(reference, inputs), 1e-4)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("model", of("ONLSTM", "URNN", "RUM:lambd=1"))
def test_a_copy_and_a_module_that_was_moved_compute_the_same(model: str, backend: str) -> None:
    module = build(model, backend)
    inputs = torch.randn(T, B, X, device=DEVICE)
    expected = gradients(module, inputs)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), module.cpu().to(DEVICE)):
        kept = [torch.full((1 << 16,), torch.nan, device=DEVICE) for _ in range(8)]  # where freed buffers were
        assert_close(gradients(other, inputs), expected, 1e-5)
        del kept


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("model", of("RUM", "RUM:lambd=1", "LSTM", "FastWeights"))
def test_another_stream_and_training_steps(model: str, backend: str) -> None:
    def losses(backend: str) -> list[Any]:
        module = build(model, backend)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        generator = torch.Generator().manual_seed(1)
        found = []
        for _ in range(4):
            optimizer.zero_grad()
            inputs = torch.randn(T, B, X, generator=generator).to(DEVICE)
            loss = module(inputs)[0].square().mean()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    expected = losses("reference")
    assert losses(backend) == pytest.approx(expected, rel=1e-4)
    if DEVICE.type == "cuda":
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            assert losses(backend) == pytest.approx(expected, rel=1e-4)
        torch.cuda.current_stream().wait_stream(stream)


def test_a_cell_that_no_graph_can_record_runs_as_a_loop() -> None:
    torch.manual_seed(0)
    module = Recurrent(partial(gyral.RUMCell, hidden_size=N, lambd=0.5), X).to(DEVICE)
    inputs = torch.randn(T, B, X)
    expected = gradients(copy.deepcopy(module).cpu(), inputs)
    assert_close(gradients(module, inputs.to(DEVICE)), expected, 1e-4)
    assert module.backend == ("fused" if DEVICE.type == "cpu" else "reference")  # its kernels are those of a CPU
