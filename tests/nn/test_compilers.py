"""Layers through torch.compile, torch.export and ONNX, with lengths, starts and any number of steps.

tests/nn/test_uses.py has each compiler with every layer, in its plainest form.
"""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

import gyral

T, B, X, N = 4, 3, 3, 4
LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "RUM": ("RUM", {}),
    "RUM(lambd=1)": ("RUM", {"lambd": 1.0}),
    "GORU": ("GORU", {}),
    "LSTM": ("LSTM", {}),
    "GRU": ("GRU", {}),
    "ONLSTM": ("ONLSTM", {"chunk_size": 2}),
    "FastWeights": ("FastWeights", {}),
    "WeiNet": ("WeiNet", {}),
    "NTM": ("NTM", {"slots": 5, "width": 3}),
    "DNC": ("DNC", {"slots": 5, "width": 3}),
}
pytestmark = pytest.mark.slow
every_layer = pytest.mark.parametrize("label", LAYERS)


def make(label: str, **options: Any) -> Any:
    name, own = LAYERS[label]
    return getattr(gyral, name)(
        X, N, **{"num_layers": 2, "bidirectional": True, "dtype": torch.float64, **own, **options}
    )


def arguments() -> dict[str, Tensor]:
    starts = torch.tensor([[0, 1, 0], [0, 0, 0], [1, 1, 0], [0, 0, 1]]).bool()
    return {"lengths": torch.tensor([3, T, 1]), "starts": starts}


def results(call: Any, layer: Any, inputs: Tensor, **given: Tensor) -> list[Tensor]:
    inputs = inputs.clone().requires_grad_()
    outputs, state = call(inputs, **given)
    values = [outputs, *tree_leaves(state)]
    total = sum((value.sin() * value).sum() for value in values)
    return [*values, *torch.autograd.grad(total, [inputs, *layer.parameters()])]


@every_layer
def test_compile_in_one_graph(label: str) -> None:
    torch.compiler.reset()
    layer = make(label)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for steps in (T, T):  # the second call runs what the first one compiled
        inputs = torch.randn(steps, B, X, dtype=torch.float64)
        expected = results(layer, layer, inputs, **arguments())
        for one, other in zip(results(compiled, layer, inputs, **arguments()), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


def test_compiled_weight_drop_draws_the_same() -> None:
    torch.compiler.reset()
    layer = make("RUM", weight_drop=0.5, bidirectional=False)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    inputs = torch.randn(T, B, X, dtype=torch.float64)
    outputs = []
    for call in (layer, compiled):
        torch.manual_seed(3)
        outputs.append(call(inputs)[0])
    torch.testing.assert_close(*outputs, rtol=1e-10, atol=1e-10)


@every_layer
def test_export(label: str) -> None:
    layer = make(label)
    inputs = torch.randn(T, B, X, dtype=torch.float64)
    program = torch.export.export(layer, (inputs,), arguments()).module()
    inputs = torch.randn(T, B, X, dtype=torch.float64)
    for one, other in zip(
        tree_leaves(program(inputs, **arguments())), tree_leaves(layer(inputs, **arguments())), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.filterwarnings("ignore:# The axis name:UserWarning")  # inputs and starts have the same number of steps
@pytest.mark.parametrize("ragged", [False, True], ids=["whole", "lengths"])
@pytest.mark.parametrize("label", ["RUM", "RUM(lambd=1)", "GRU", "LSTM"])
def test_onnx_with_any_number_of_steps(label: str, ragged: bool) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    torch.compiler.reset()  # it would keep the sizes of an earlier export
    layer = make(label, dtype=torch.float32, num_layers=1).eval()
    steps = torch.export.Dim("T")
    given = arguments() if ragged else {}
    shapes: dict[str, Any] = {"inputs": {0: steps}}
    if ragged:
        shapes |= {"lengths": None, "starts": {0: steps}}
    program = torch.onnx.export(
        layer, (torch.randn(T, B, X),), kwargs=given, dynamic_shapes=shapes, dynamo=True, verbose=False
    )
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    for length in (T, 2 * T + 1, 2):
        inputs = torch.randn(length, B, X)
        given = {"lengths": torch.tensor([2, length, 1]), "starts": torch.rand(length, B) < 0.3} if ragged else {}
        feeds = dict(zip([i.name for i in session.get_inputs()], [inputs, *given.values()], strict=True))
        found = session.run(None, {name: tensor.numpy() for name, tensor in feeds.items()})
        for one, other in zip(found, tree_leaves(layer(inputs, **given)), strict=True):
            np.testing.assert_allclose(one, other.detach().numpy(), rtol=0, atol=1e-5)


def test_onnx_refuses_a_power_of_the_memory() -> None:
    pytest.importorskip("onnxscript")
    layer = gyral.RUM(X, N, lambd=0.5).eval()
    message = r"RUM with λ = 0.5 cannot be exported to ONNX; λ = 0 and λ = 1 can"
    with pytest.raises(torch.onnx.OnnxExporterError, match=message):
        torch.onnx.export(layer, (torch.randn(T, B, X),), dynamo=True, verbose=False)
