"""Thirty-two uses of `torch.nn.GRU`, each with every layer: values and gradients are those of a plain call.

docs/uses.py names the uses, the layers and what they refuse, for these tests and for the table of the documentation.
"""

import copy
import io
import itertools
import pickle
import re
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parametrize
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from torch.optim.swa_utils import AveragedModel
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.checkpoint import checkpoint

from docs.uses import FIXED_SIZE_IN_ONNX, LAYERS, LIMITS, USES, table
from gyral.core.errors import OptionError, UserError
from gyral.nn import layers
from tests.helpers.running import ROOT

T, B, X, N = 3, 3, 3, 4
F64 = torch.float64
# `make test` runs uses that depend on the class of all layers with a few of them, uses of operators with one layer of
# each family of kernels, and some uses with layers whose states and inputs have all forms. test_layers.py proves some
# of every layer, and tests/cells/test_contract.py of every cell.
FEW = ("RUM(lambd=1)", "LSTM", "EURNN", "DNC")
KINDS = (*FEW, "LightConv", "Mamba3", "FSRNN")
FAMILIES = (
    *("RUM", "GRU", "URNN", "FastWeights", "MinGRU", "LRU", "Mamba", "GatedDeltaNet", "RotationScan", "PDSSM"),
    *("SLiCE", "SLSTM", "M2RNN", "LANTM", "MAGEGRU", "NTM", *KINDS),
)
SAMPLES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("packed", "state_dict", "deepcopy", "pickle", "ddp", "checkpointing", "hooks", "frozen"), FEW),
    **dict.fromkeys(("inference", "parametrized", "average", "meta", "replicas", "fx", "script"), FEW),
    **dict.fromkeys(("unbatched", "states", "in_place", "batched", "empty", "strided", "vmap"), KINDS),
    **dict.fromkeys(("functional", "forward_mode", "not_finite", "dtype", "autocast"), FAMILIES),
    "rows": tuple(LAYERS),
    "compile": ("RUM(lambd=1)",),
    "export": ("RUM(lambd=1)",),
    "onnx": (),
    "trace": ("LSTM",),
}
OPERATORS = {
    "FastWeights": "fast_weights",
    "WeiNet": "fast_weights",
    "NTM": "slot_memory",
    "DNC": "slot_memory",
    "LANTM": "lie_access",
    "FSRNN": "fast_slow",
    "MAGEGRU": "graph_gru",
}

Make = Callable[..., Any]


class Result(NamedTuple):
    """Outputs, final state and gradients of a weighted sum of both."""

    outputs: Tensor
    state: Any
    gradients: list[Tensor | None]


def weighted_sum(tensors: Any) -> Tensor:
    """Return a sum of all entries with different weights."""
    return sum((leaf.cos() * leaf.exp()).sum() for leaf in map(torch.Tensor.double, tree_leaves(tensors)))


def differentiated(outputs: Tensor, state: Any, of: list[Tensor]) -> Result:
    gradients = torch.autograd.grad(weighted_sum((outputs, state)), of, allow_unused=True, retain_graph=True)
    return Result(outputs, state, list(gradients))


def run(layer: Any, inputs: Tensor, *arguments: Any, call: Callable[..., Any] | None = None, **options: Any) -> Result:
    """Call a layer, or `call` in its place, and differentiate with respect to inputs and parameters."""
    inputs = inputs.detach().requires_grad_()
    outputs, state = (layer if call is None else call)(inputs, *arguments, **options)
    return differentiated(outputs, state, [inputs, *layer.parameters()])


def assert_same(one: Result, other: Result, **tolerance: float) -> None:
    """Assert that outputs, states and gradients are close; without tolerances, to 1e-10."""
    tolerance = tolerance or {"rtol": 1e-10, "atol": 1e-10}
    torch.testing.assert_close(one.outputs, other.outputs, **tolerance)
    assert isinstance(one.state, type(other.state))
    torch.testing.assert_close(tree_leaves(one.state), tree_leaves(other.state), **tolerance)
    assert any(gradient is not None and gradient.abs().max() > 0 for gradient in one.gradients)
    for mine, theirs in zip(one.gradients, other.gradients, strict=True):
        if mine is None or theirs is None:  # of a parameter that is not used
            assert all(gradient is None or not gradient.any() for gradient in (mine, theirs))
        else:
            torch.testing.assert_close(mine, theirs, **tolerance)


def sequence(*shape: int, **options: Any) -> Tensor:
    return torch.randn(*(shape or (T, B, X)), dtype=options.pop("dtype", F64), **options)


def row_of(state: Any, row: int) -> Any:
    return tree_map(lambda leaf: leaf[:, row : row + 1], state)


# ---------------------------------------------------------------- the uses


def packed(make: Make) -> None:
    layer = make(num_layers=2, bidirectional=True)
    inputs, lengths = sequence().requires_grad_(), torch.tensor([2, T, 1])
    result, state = layer(pack_padded_sequence(inputs, lengths, enforce_sorted=False))
    assert isinstance(result, PackedSequence)
    outputs, same_lengths = pad_packed_sequence(result)
    assert torch.equal(lengths, same_lengths)
    of = [inputs, *layer.parameters()]
    together = differentiated(outputs, state, of)

    alone = [layer(inputs[:length, row : row + 1]) for row, length in enumerate(lengths.tolist())]
    padded = nn.utils.rnn.pad_sequence([outputs[:, 0] for outputs, _ in alone])
    final = tree_map(lambda *leaves: torch.cat(leaves, dim=1), *(state for _, state in alone))
    assert_same(together, differentiated(padded, final, of))


def unbatched(make: Make) -> None:
    layer = make(bidirectional=True)
    inputs = sequence(T, X).requires_grad_()
    of = [inputs, *layer.parameters()]
    single = differentiated(*layer(inputs), of)
    outputs, state = layer(inputs.unsqueeze(1))
    assert_same(single, differentiated(outputs.squeeze(1), tree_map(lambda leaf: leaf.squeeze(1), state), of))
    assert_same(differentiated(*layer(inputs, single.state), of), differentiated(*_squeezed(layer, inputs, state), of))


def _squeezed(layer: Any, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
    outputs, final = layer(inputs.unsqueeze(1), state)
    return outputs.squeeze(1), tree_map(lambda leaf: leaf.squeeze(1), final)


def states(make: Make) -> None:
    layer = make(num_layers=2)
    inputs = sequence().requires_grad_()
    of = [inputs, *layer.parameters()]
    first, middle = layer(inputs[:1])
    second, final = layer(inputs[1:], middle)
    assert_same(differentiated(torch.cat((first, second)), final, of), differentiated(*layer(inputs), of))

    detached = tree_map(Tensor.detach, middle)
    ended = differentiated(*layer(inputs[1:], detached), of)
    torch.testing.assert_close(ended.outputs, second)
    torch.testing.assert_close(tree_leaves(ended.state), tree_leaves(final))
    assert ended.gradients[0] is not None
    assert not ended.gradients[0][0].any(), "the gradient does not reach the first window"
    window = differentiated(*layer(inputs, None), of).gradients[0]
    assert window is not None
    assert window[0].any(), "without detaching it does"


def rows(make: Make) -> None:
    layer = make(bidirectional=True)
    first, second = sequence().requires_grad_(), sequence()
    of = [first, *layer.parameters()]
    _, state = layer(first)
    ongoing, anew, ended = layer(second, state), layer(second), torch.tensor([True, False, True])
    expected = tree_map(lambda old, new: torch.where(ended.view(1, B, *[1] * (new.dim() - 2)), new, old), ongoing, anew)
    reset = differentiated(*layer(second, layer.reset_state(state, ended)), of)
    assert_same(reset, differentiated(*expected, of))
    assert reset.gradients[0] is not None
    assert reset.gradients[0].any(dim=2).any(dim=0).tolist() == [False, True, False]

    selected = [2, 0, 0]
    expected = tree_map(lambda leaf: leaf[:, selected], ongoing)
    result = layer(second[:, selected], layer.select_state(state, selected))
    assert_same(differentiated(*result, of), differentiated(*expected, of))


def state_dict(make: Make) -> None:
    layer, other = make(bidirectional=True), make(bidirectional=True)
    inputs = sequence()
    other.load_state_dict(pickle.loads(pickle.dumps(layer.state_dict())), strict=True)
    assert_same(run(layer, inputs), run(other, inputs), rtol=0, atol=0)


def made_with_weight_drop(make: Make) -> Any:
    """Return a layer in evaluation, with `weight_drop` where the cell has recurrent weights."""
    names = [name.rpartition(".")[2] for name, _ in make().named_parameters()]
    return make(num_layers=2, weight_drop=0.5 * any(name.startswith("weight_hh") for name in names)).eval()


def deepcopy(make: Make) -> None:
    layer = made_with_weight_drop(make)
    inputs = sequence()
    before = run(layer, inputs)
    other = copy.deepcopy(layer)
    assert_same(run(other, inputs), before, rtol=0, atol=0)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.1)
    assert_same(run(layer, inputs), before, rtol=0, atol=0)
    assert not torch.equal(other(inputs)[0], before.outputs)


def pickled(make: Make) -> None:
    layer = made_with_weight_drop(make)
    inputs = sequence()
    before = run(layer, inputs)
    torch.save(layer, stream := io.BytesIO())
    stream.seek(0)
    for again in (pickle.loads(pickle.dumps(layer)), torch.load(stream, weights_only=False)):
        assert_same(run(again, inputs), before, rtol=0, atol=0)
        outputs = []
        for each in (layer, again):
            torch.manual_seed(1)
            outputs.append(each.train()(inputs)[0])
        assert torch.equal(*outputs), "the same entries are dropped"
        layer.eval()


def dtype(make: Make) -> None:
    layer, wide = make(dtype=torch.float32), make()
    wide.load_state_dict(layer.state_dict())
    inputs = sequence()
    expected = run(wide, inputs)
    assert_same(run(layer.to(F64), inputs), expected, rtol=0, atol=0)
    narrow = run(layer.to(torch.bfloat16), inputs.bfloat16())
    assert narrow.outputs.dtype == torch.bfloat16
    assert floating_dtypes(narrow.state) <= {torch.bfloat16, torch.float32}
    assert_agrees(narrow, expected)


def autocast(make: Make) -> None:
    layer = make(dtype=torch.float32)
    inputs = sequence(dtype=torch.float32)
    expected = run(layer, inputs)
    with torch.autocast("cpu", torch.bfloat16):
        result = run(layer, inputs)
    assert floating_dtypes(result.state) == {torch.float32}
    assert_agrees(result, expected)


def floating_dtypes(tensors: Any) -> set[torch.dtype]:
    """Return the dtypes of all leaves but integers, such as the number of vectors in a memory."""
    return {leaf.dtype for leaf in tree_leaves(tensors) if leaf.is_floating_point()}


def assert_agrees(one: Result, other: Result) -> None:
    """Assert that two results agree to the precision of bfloat16, the gradients relative to the largest one."""

    def close(mine: Tensor, theirs: Tensor, scale: float) -> None:
        assert mine.isfinite().all()
        assert (mine.double() - theirs.double()).abs().max() <= 0.05 * max(scale, 1e-3)

    leaves = zip(tree_leaves((one.outputs, one.state)), tree_leaves((other.outputs, other.state)), strict=True)
    for mine, theirs in leaves:
        close(mine, theirs, theirs.abs().max().item())
    pairs = [pair for pair in zip(one.gradients, other.gradients, strict=True) if None not in pair]
    largest = max(theirs.abs().max().item() for _, theirs in pairs)
    for mine, theirs in pairs:
        close(mine, theirs, largest)


def compiled(make: Make, backend: str = "aot_eager") -> None:
    layer = make()
    inputs = sequence()
    torch.compiler.reset()
    assert_same(run(layer, inputs, call=torch.compile(layer, fullgraph=True, backend=backend)), run(layer, inputs))


def export(make: Make) -> None:
    layer = make()
    program = torch.export.export(layer, (sequence(),)).module()
    inputs = sequence()
    for mine, theirs in zip(tree_leaves(program(inputs)), tree_leaves(layer(inputs)), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)
    expected = run(layer, inputs).gradients[0]
    inputs.requires_grad_()
    gradient = torch.autograd.grad(weighted_sum(program(inputs)), inputs)[0]
    torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-10)


def onnx(make: Make, any_size: bool = False) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    torch.compiler.reset()  # it would keep the sizes of an earlier export
    layer = make(dtype=torch.float32).eval()
    example = sequence(dtype=torch.float32)
    shapes = ({0: "steps", 1: "rows"},) if any_size else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of the code that it traces
        program = torch.onnx.export(layer, (example,), dynamic_shapes=shapes, dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    inputs = sequence(T + 2 * any_size, B + any_size, X, dtype=torch.float32)
    results = session.run(None, {session.get_inputs()[0].name: inputs.numpy()})
    for mine, theirs in zip(results, tree_leaves(layer(inputs)), strict=True):
        np.testing.assert_allclose(mine, theirs.detach().numpy(), rtol=0, atol=1e-5)


def functional(make: Make) -> None:
    layer = make()
    inputs = sequence()
    names = dict(layer.named_parameters())

    def loss(parameters: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return weighted_sum(torch.func.functional_call(layer, parameters, (inputs,)))

    of_parameters, of_inputs = torch.func.grad(loss, argnums=(0, 1))(names, inputs)
    expected = run(layer, inputs)
    gradients = [of_inputs, *(of_parameters[name] for name in names)]
    assert_same(Result(expected.outputs, expected.state, gradients), expected)


def ddp(make: Make) -> None:
    layer = make(bidirectional=True)
    inputs = sequence()
    expected = run(layer, inputs)
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    outputs, state = DistributedDataParallel(layer)(inputs)
    weighted_sum((outputs, state)).backward()
    gradients = [expected.gradients[0], *(parameter.grad for parameter in layer.parameters())]
    assert_same(Result(outputs, state, gradients), expected)


def checkpointing(make: Make) -> None:
    layer = make(num_layers=2, dropout=0.5)
    inputs = sequence()
    torch.manual_seed(1)
    expected = run(layer, inputs)
    torch.manual_seed(1)
    saved = run(layer, inputs, call=lambda *arguments: checkpoint(layer, *arguments, use_reentrant=False))
    assert_same(saved, expected)
    torch.manual_seed(2)
    assert not torch.equal(layer(inputs)[0], expected.outputs), "dropout is active"


def in_place(make: Make) -> None:
    layer = make(num_layers=2, bidirectional=True)
    inputs = sequence()

    def overwrite(tensors: Any, copies: bool) -> Any:
        def change(leaf: Tensor) -> Tensor:
            leaf = leaf.clone() if copies else leaf
            return leaf.mul_(2).masked_fill_(leaf > 1, 0.5).relu_() if leaf.requires_grad else leaf

        return tree_map(change, tensors)

    expected = run(layer, inputs, call=lambda *given: overwrite(layer(*given), copies=True))
    assert_same(run(layer, inputs, call=lambda *given: overwrite(layer(*given), copies=False)), expected)


def forward_mode(make: Make) -> None:
    layer = make()
    inputs, direction = sequence(), sequence()
    with forward_ad.dual_level():
        total = weighted_sum(layer(forward_ad.make_dual(inputs, direction)))
        derivative = forward_ad.unpack_dual(total).tangent
    gradient = run(layer, inputs).gradients[0]
    assert gradient is not None
    torch.testing.assert_close(derivative, (gradient * direction).sum(), rtol=1e-8, atol=1e-8)


def batched(make: Make) -> None:
    layer = make()
    inputs = sequence().requires_grad_()
    outputs, _ = layer(inputs)
    of = [inputs, *layer.parameters()]
    weights = torch.randn(2, *outputs.shape, dtype=F64)
    options: dict[str, Any] = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
    together = torch.autograd.grad(outputs, of, weights, is_grads_batched=True, **options)
    alone = [torch.autograd.grad(outputs, of, weight, **options) for weight in weights]
    for mine, *theirs in zip(together, *alone, strict=True):
        torch.testing.assert_close(mine, torch.stack(theirs), rtol=1e-8, atol=1e-8)
    every = torch.autograd.functional.jacobian(lambda given: layer(given)[0][-1, 0], inputs, vectorize=True)
    torch.testing.assert_close(every[0], torch.autograd.grad(outputs[-1, 0, 0], inputs)[0], rtol=1e-8, atol=1e-8)


def not_finite(make: Make) -> None:
    layer = make()
    inputs, starts = sequence(), torch.zeros(T, B, dtype=torch.bool)
    starts[0] = True
    expected = run(layer, inputs)
    for value in (torch.nan, torch.inf):

        def spoil(leaf: Tensor, value: float = value) -> Tensor:
            return torch.full_like(leaf, value).requires_grad_() if leaf.is_floating_point() else leaf

        state = tree_map(spoil, tree_map(Tensor.detach, expected.state))
        given = inputs.clone().requires_grad_()
        outputs, final = layer(given, state, starts=starts)
        assert_same(differentiated(outputs, final, [given, *layer.parameters()]), expected)
        for leaf in (each for each in tree_leaves(state) if each.requires_grad):
            [gradient] = torch.autograd.grad(outputs.sum(), leaf, retain_graph=True, materialize_grads=True)
            assert not gradient.any()
        # what a sequence itself has spoiled before its next part
        later = torch.zeros_like(starts)
        later[1] = True
        with torch.no_grad():
            spoiled = torch.cat((torch.full_like(inputs[:1], value), inputs[:-1]))
            outputs, final = layer(spoiled, starts=later)
            alone, wanted = layer(inputs[:-1])
        torch.testing.assert_close(outputs[1:], alone)
        for mine, theirs in zip(tree_leaves(final), tree_leaves(wanted), strict=True):
            if mine.is_floating_point():
                torch.testing.assert_close(mine, theirs)


def hooks(make: Make) -> None:
    layer = make(num_layers=2)
    inputs = sequence()
    expected = run(layer, inputs)
    seen: dict[str, Any] = {}
    handles = [
        layer.register_forward_pre_hook(lambda module, given: seen.update(inputs=given[0])),
        layer.register_forward_hook(lambda module, given, result: seen.update(result=result)),
        layer.register_full_backward_hook(lambda module, of_inputs, of_outputs: seen.update(backward=of_outputs[0])),
        *(part.register_forward_hook(lambda *_: None) for part in layer.modules()),  # as profilers do
        *(cell.register_full_backward_hook(lambda *_: None) for cell in layer.cells),
    ]
    result = run(layer, inputs)
    assert_same(result, expected)
    torch.testing.assert_close(seen["inputs"], inputs)
    torch.testing.assert_close(seen["result"][0], expected.outputs)
    of_outputs = torch.autograd.grad(weighted_sum(leaf := expected.outputs.detach().requires_grad_()), leaf)[0]
    torch.testing.assert_close(seen["backward"], of_outputs)
    for handle in handles:
        handle.remove()
    handle = layer.register_forward_hook(lambda module, given, result: (0 * result[0], result[1]))
    assert not run(layer, inputs).outputs.any(), "a hook may replace the outputs"
    handle.remove()
    assert_same(run(layer, inputs), expected, rtol=0, atol=0)


def empty(make: Make) -> None:
    layer = make(num_layers=2, bidirectional=True)
    _, state = layer(sequence())
    state = tree_map(lambda leaf: leaf.detach().requires_grad_(leaf.is_floating_point()), state)
    floating = [leaf for leaf in tree_leaves(state) if leaf.requires_grad]
    inputs = sequence().masked_fill(torch.arange(B).unsqueeze(1) == 0, torch.nan).requires_grad_()  # row 0 is not read
    of = [inputs, *layer.parameters(), *floating]
    outputs, final = layer(inputs, state, lengths=[0, 2, T])
    assert not outputs[:, 0].any()
    together = differentiated(outputs, final, of)
    rest = tree_map(lambda leaf: leaf[:, 1:], state)
    alone, others = layer(inputs[:, 1:], rest, lengths=[2, T])
    expected = F.pad(alone, (0, 0, 1, 0)), tree_map(lambda one, two: torch.cat((one[:, :1], two), dim=1), state, others)
    assert_same(together, differentiated(*expected, of))

    for steps in (layer(sequence(0, B, X), state), layer(sequence(), state, lengths=[0] * B)):
        assert steps[0].shape[1:] == (B, layer.output_size)
        torch.testing.assert_close(tree_leaves(steps[1]), tree_leaves(state), rtol=0, atol=0)
        total = steps[0].sum() + sum(leaf.sum() for leaf in tree_leaves(steps[1]))
        gradients = torch.autograd.grad(total, [*layer.parameters(), *floating], allow_unused=True)
        count = len(gradients) - len(floating)
        assert all(gradient is None or not gradient.any() for gradient in gradients[:count])
        assert all(gradient is not None and bool((gradient == 1).all()) for gradient in gradients[count:])
    assert layer(sequence(0, X))[0].shape == (0, layer.output_size)


def strided(make: Make) -> None:
    layer = make()
    views = [
        sequence(B, T, X).transpose(0, 1),
        sequence(X, B, T).permute(2, 1, 0),
        sequence(T, B, 2 * X)[..., ::2],
        sequence(T, 1, X).expand(T, B, X),
        sequence(1, 1, 1).expand(T, B, X),
    ]
    for view in views:
        assert_same(
            differentiated(*layer(view), [*layer.parameters()]),
            differentiated(*layer(view.clone()), [*layer.parameters()]),
        )
    _, state = layer(sequence())
    expanded = tree_map(lambda leaf: leaf[:, :1].expand(-1, B, *leaf.shape[2:]), state)
    inputs = sequence()
    assert_same(run(layer, inputs, expanded), run(layer, inputs, tree_map(torch.clone, expanded)))


def frozen(make: Make) -> None:
    layer, inputs = make(), sequence()
    expected = run(layer, inputs).gradients[1:]
    parameters = list(layer.parameters())
    for first in (0, 1):
        for index, parameter in enumerate(parameters):
            parameter.requires_grad_(index % 2 != first)
            parameter.grad = None
        weighted_sum(layer(inputs.clone().requires_grad_())).backward()
        for index, (parameter, wanted) in enumerate(zip(parameters, expected, strict=True)):
            if index % 2 == first or wanted is None:
                assert parameter.grad is None or not parameter.grad.any()
            else:
                torch.testing.assert_close(parameter.grad, wanted, rtol=1e-10, atol=1e-10)


def inference(make: Make) -> None:
    layer, inputs = make(num_layers=2, bidirectional=True), sequence()
    expected = run(layer, inputs)
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            outputs, state = layer(inputs)
        assert not outputs.requires_grad
        torch.testing.assert_close(outputs, expected.outputs)
        torch.testing.assert_close(tree_leaves(state), tree_leaves(expected.state))
    assert_same(run(layer, inputs), expected)


class Scaled(nn.Module):
    """A parametrization."""

    def forward(self, weight: Tensor) -> Tensor:
        return 1.25 * weight


def parametrized(make: Make) -> None:
    layer, scaled, inputs = make(num_layers=2), make(num_layers=2), sequence()
    scaled.load_state_dict(layer.state_dict())
    with torch.no_grad():
        for parameter in scaled.parameters():
            parameter.mul_(1.25)
    for module in list(layer.modules()):
        for name in [name for name, _ in module.named_parameters(recurse=False)]:
            parametrize.register_parametrization(module, name, Scaled())
    names = [name.replace("parametrizations.", "").removesuffix(".original") for name, _ in layer.named_parameters()]
    assert set(names) == set(dict(scaled.named_parameters()))
    expected, found = run(scaled, inputs), run(layer, inputs)
    wanted = dict(zip([name for name, _ in scaled.named_parameters()], expected.gradients[1:], strict=True))
    gradients = [None if wanted[name] is None else 1.25 * wanted[name] for name in names]
    assert_same(found, expected._replace(gradients=[expected.gradients[0], *gradients]))


def average(make: Make) -> None:
    layer, inputs = make(num_layers=2), sequence()
    averaged = AveragedModel(layer.share_memory())
    averaged.update_parameters(layer)
    assert all(parameter.is_shared() for parameter in layer.parameters())
    assert_same(run(averaged, inputs), run(layer, inputs), rtol=0, atol=0)


def meta(make: Make) -> None:
    layer, inputs = make(num_layers=2), sequence()
    empty = make(num_layers=2, device="meta")
    assert {parameter.device.type for parameter in empty.parameters()} == {"meta"}
    again = make(num_layers=2, device="meta")
    again.load_state_dict(layer.state_dict(), assign=True)
    assert_same(run(again, inputs), run(layer, inputs), rtol=0, atol=0)
    empty = empty.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in empty.parameters():
            parameter.fill_(torch.nan)
    empty.reset_parameters()
    assert all(parameter.isfinite().all() for parameter in empty.parameters())
    assert empty(inputs)[0].isfinite().all()


def vmap(make: Make) -> None:
    members, inputs = [make(), make()], sequence()
    parameters, buffers = torch.func.stack_module_state(members)

    def call(parameters: Any, buffers: Any) -> Tensor:
        return torch.func.functional_call(members[0], (parameters, buffers), (inputs,))[0]

    ensemble = torch.func.vmap(call)(parameters, buffers)
    torch.testing.assert_close(ensemble, torch.stack([member(inputs)[0] for member in members]), rtol=1e-8, atol=1e-8)

    layer = members[0]
    names = dict(layer.named_parameters())

    def loss(parameters: Any, row: Tensor) -> Tensor:
        return weighted_sum(torch.func.functional_call(layer, parameters, (row.unsqueeze(1),))[0])

    per_sample = torch.func.vmap(torch.func.grad(loss), (None, 1))(names, inputs)
    total = torch.autograd.grad(
        weighted_sum(layer(inputs)[0]), list(names.values()), materialize_grads=True, allow_unused=True
    )
    for name, wanted in zip(names, total, strict=True):
        torch.testing.assert_close(per_sample[name].sum(0), wanted, rtol=1e-7, atol=1e-7)


def replica(module: Any) -> Any:
    """Return a module as `torch.nn.parallel.replicate` makes it on another device: parameters are plain attributes."""
    copied = module._replicate_for_data_parallel()
    copied._former_parameters = {}
    for name, parameter in module._parameters.items():
        if parameter is None:
            copied._parameters[name] = None
        else:
            setattr(copied, name, parameter.view_as(parameter))
            copied._former_parameters[name] = getattr(copied, name)
    for name, part in module._modules.items():
        copied._modules[name] = None if part is None else replica(part)
    return copied


def replicas(make: Make) -> None:
    layer, inputs = make(num_layers=2, bidirectional=True), sequence()
    copied = replica(layer)
    assert not list(copied.parameters())
    assert_same(run(layer, inputs, call=copied), run(layer, inputs))


class InModel(nn.Module):
    """A layer in a model of a user."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.embed = nn.Linear(X, X, dtype=F64)
        self.layer = layer
        self.head = nn.Linear(layer.output_size, 2, dtype=F64)

    def forward(self, inputs: Tensor) -> Any:
        outputs, state = self.layer(self.embed(inputs))
        return self.head(outputs), state


def fx(make: Make) -> None:
    model, inputs = InModel(make(bidirectional=True)), sequence()
    graph = torch.fx.symbolic_trace(model)
    assert "self.layer(" in graph.code
    assert_same(run(graph, inputs), run(model, inputs), rtol=0, atol=0)
    with pytest.raises(
        UserError, match=r"^\w+: torch\.fx records a layer as one call; trace a module that contains it$"
    ):
        torch.fx.symbolic_trace(model.layer)


def trace(make: Make) -> None:
    model, inputs = InModel(make(bidirectional=True)).eval(), sequence()
    expected = run(model, inputs)
    for gradients in (True, False):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is deprecated, and warns of each size that it records
            with torch.set_grad_enabled(gradients):
                traced = torch.jit.trace(model, (sequence(),))  # which compares the graphs of two calls
            found = run(model, inputs, call=traced)
        # a size of a tensor is a tensor there, and a function of it a number of float32
        torch.testing.assert_close(found.outputs, expected.outputs, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(tree_leaves(found.state), tree_leaves(expected.state), rtol=1e-6, atol=1e-6)
        assert_same(found._replace(state=expected.state), expected, rtol=1e-5, atol=1e-5)


def script(make: Make) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        torch.jit.script(InModel(make()))


PROOFS: dict[str, Callable[[Make], None]] = {
    "packed": packed,
    "unbatched": unbatched,
    "states": states,
    "rows": rows,
    "state_dict": state_dict,
    "deepcopy": deepcopy,
    "pickle": pickled,
    "dtype": dtype,
    "autocast": autocast,
    "compile": compiled,
    "export": export,
    "onnx": onnx,
    "functional": functional,
    "ddp": ddp,
    "checkpointing": checkpointing,
    "in_place": in_place,
    "forward_mode": forward_mode,
    "batched": batched,
    "not_finite": not_finite,
    "hooks": hooks,
    "empty": empty,
    "strided": strided,
    "frozen": frozen,
    "inference": inference,
    "parametrized": parametrized,
    "average": average,
    "meta": meta,
    "vmap": vmap,
    "replicas": replicas,
    "fx": fx,
    "trace": trace,
    "script": script,
}


def maker(label: str, **always: Any) -> Make:
    def make(**options: Any) -> Any:
        return LAYERS[label].make(X, N, **{"dtype": F64, **always, **options})

    return make


def cases() -> list[Any]:
    return [
        pytest.param(use, label, marks=[] if label in SAMPLES.get(use, LAYERS) else pytest.mark.slow)
        for use, label in itertools.product(USES, LAYERS)
    ]


def one_line_messages(error: BaseException | None) -> Iterator[str]:
    """Yield the message of an error, and those of its causes, that are one line."""
    while error is not None:
        if "\n" not in str(error):
            yield str(error)
        error = error.__cause__


@pytest.mark.parametrize("label", LAYERS)
def test_memory_is_where_callers_expect_it(label: str) -> None:
    layer, inputs = maker(label)(), sequence(8, B, X)
    outputs, _ = layer(inputs)
    with torch.device("meta"):  # the default device is that of new tensors of the caller
        torch.testing.assert_close(layer(inputs, lengths=[8] * B)[0], outputs)

    # without gradients: a state keeps no larger tensor, and does not follow changes of the outputs
    with torch.no_grad():
        state = layer(inputs)[1]
        assert all(leaf.untyped_storage().nbytes() <= leaf.nbytes for leaf in tree_leaves(state))
        before = tree_map(torch.Tensor.clone, state := layer(inputs[:1], state)[1])
        alone, state = layer(inputs[1:2], state)
        expected = layer(inputs[1:2], before)[1]
        alone.fill_(7.0)
        torch.testing.assert_close(tree_leaves(state), tree_leaves(expected), rtol=0, atol=0)

    # Gradient checkpointing frees the tensors of `save_for_backward`. Nodes must not keep others as attributes.
    found, nodes = set(), [outputs.grad_fn]
    while nodes:
        if (node := nodes.pop()) is not None and node not in found:
            found.add(node)
            assert not any(isinstance(kept, Tensor) for kept in tree_leaves([*getattr(node, "__dict__", {}).values()]))
            nodes += [following for following, _ in node.next_functions]

    # weights that another network computes
    for name, parameter in [*layer._parameters.items()]:
        if parameter is not None:
            delattr(layer, name)
            setattr(layer, name, parameter.detach().requires_grad_())
    torch.testing.assert_close(layer(inputs)[0], outputs)


@pytest.fixture(scope="module", autouse=True)
def _no_process_group_afterwards() -> Iterator[None]:
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


@pytest.mark.parametrize(("use", "label"), cases())
def test_use(use: str, label: str) -> None:
    limit = LIMITS.get((use, label))
    prove = PROOFS[use]
    if use == "onnx":
        prove = partial(onnx, any_size=label not in FIXED_SIZE_IN_ONNX)
    if limit is None:
        prove(maker(label))
        return
    with pytest.raises(Exception) as raised:  # noqa: PT011  torch's own errors differ by the use
        prove(maker(label))
    assert any(re.search(limit.error, message) for message in one_line_messages(raised.value)), raised.value


def test_compilers_get_the_loop_of_a_layer_without_an_operator() -> None:
    with pytest.raises(OptionError, match=r"^backend=fused: torch.compile .*; allowed here: auto, reference, .*$"):
        torch.export.export(maker("MAGE", backend="fused")(), (sequence(),))


@pytest.mark.named("LANTM-*", "MAGEGRU-*")
@pytest.mark.parametrize(("label", "family"), OPERATORS.items())
def test_exported_programs_keep_the_kernels_for_any_size(label: str, family: str) -> None:
    layer, any_size = maker(label)(), {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}
    program = torch.export.export(layer, (sequence(),), dynamic_shapes=(any_size,))
    assert f"torch.ops.gyral.{family}.default(" in program.graph_module.code
    inputs = sequence(T + 2, B + 1, X)
    for mine, theirs in zip(tree_leaves(program.module()(inputs)), tree_leaves(layer(inputs)), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)


def test_every_entry_of_the_table_has_a_test() -> None:
    assert len(USES) == 32
    assert list(PROOFS) == list(USES)
    assert {layer.name for layer in LAYERS.values()} == set(layers.__all__) - {"Layer"}
    assert {use for use, _ in LIMITS} <= set(USES)
    assert {label for _, label in LIMITS} <= set(LAYERS)
    assert {label for labels in SAMPLES.values() for label in labels} <= set(LAYERS)
    rows = [line for line in table().splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(USES)
    assert all(limit.reason in table() for limit in LIMITS.values())
    page = (ROOT / "docs" / "how-to" / "layers.md").read_text(encoding="utf-8")
    assert table() in page
    assert all(f"| `{label}` | kernels | a fixed number" in page for label in FIXED_SIZE_IN_ONNX)


def test_a_model_that_packs_its_sequences_cannot_be_exported() -> None:
    class Packs(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = maker("RUM")()

        def forward(self, inputs: Tensor, lengths: Tensor) -> Any:
            return self.layer(pack_padded_sequence(inputs, lengths, enforce_sorted=False))

    said = r"^RUM: torch cannot export packed sequences; call the layer on padded inputs with lengths=$"
    with pytest.raises(UserError, match=said):
        torch.export.export(Packs(), (sequence(), torch.tensor([2, T, 1])))


# ---------------------------------------------------------------- two processes


def _half_a_batch(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=2)
    gradients = {}
    for label in LAYERS:
        torch.manual_seed(0)
        layer = maker(label)()
        model = DistributedDataParallel(layer)
        inputs = sequence(T, 4, X)[:, 2 * rank : 2 * rank + 2]
        weighted_sum(model(inputs)).backward()
        gradients[label] = [parameter.grad for parameter in layer.parameters()]
    torch.save(gradients, folder / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
def test_two_processes_have_the_gradient_of_the_whole_batch(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(_half_a_batch, (tmp_path,), nprocs=2)
    found = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    for label in LAYERS:
        torch.manual_seed(0)
        layer = maker(label)()
        expected = run(layer, sequence(T, 4, X)).gradients[1:]
        for gradients in found:
            for mine, theirs in zip(gradients[label], expected, strict=True):
                torch.testing.assert_close(2 * mine, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("ragged", [False, True], ids=["whole", "lengths"])
@pytest.mark.parametrize("label", ["RUM", "RUM(lambd=1)", "GRU", "LSTM", "RNN", "FastWeights", "WeiNet"])
def test_onnx_of_a_model_with_any_number_of_steps_and_rows(label: str, ragged: bool) -> None:
    """Batch first: the exporter once failed on RUM, whose gradients would need the symbolic number of rows."""
    onnxruntime = pytest.importorskip("onnxruntime")
    torch.compiler.reset()
    layer = maker(label)(dtype=torch.float32, batch_first=True)
    model = Tagger(layer).eval()
    example: tuple[Tensor, ...] = (torch.randint(7, (B, T)), torch.tensor([1, 2, T]))
    shapes: tuple[Any, ...] = ({0: "rows", 1: "steps"}, {0: "rows"})
    count = 1 + ragged
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of the code that it traces
        program = torch.onnx.export(model, example[:count], dynamic_shapes=shapes[:count], dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    for rows, steps in ((4, 5), (1, 2), (2, 1)):
        given = (torch.randint(7, (rows, steps)), torch.randint(steps + 1, (rows,)))[:count]
        feeds = {entry.name: tensor.numpy() for entry, tensor in zip(session.get_inputs(), given, strict=True)}
        [scores] = session.run(None, feeds)
        np.testing.assert_allclose(scores, model(*given).detach().numpy(), rtol=0, atol=1e-5)


class Tagger(nn.Module):
    """A model of a user."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.embed, self.layer, self.head = nn.Embedding(7, X), layer, nn.Linear(layer.output_size, 2)

    def forward(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        scores: Tensor = self.head(self.layer(self.embed(tokens), lengths=lengths)[0])
        return scores


@pytest.mark.parametrize("label", ["RUM", "LSTM"])
def test_the_older_exporter_of_onnx_unrolls_the_loop(label: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    layer = maker(label)(dtype=torch.float32).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated, and warns of each size that it records
        torch.onnx.export(layer, (sequence(dtype=torch.float32),), stream := io.BytesIO(), dynamo=False)
    session = onnxruntime.InferenceSession(stream.getvalue())
    inputs = sequence(dtype=torch.float32)
    results = session.run(None, {session.get_inputs()[0].name: inputs.numpy()})
    for mine, theirs in zip(results, tree_leaves(layer(inputs)), strict=True):
        np.testing.assert_allclose(mine, theirs.detach().numpy(), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_a_real_eurnn_has_an_onnx_form() -> None:
    onnx(maker("EURNN", is_complex=False))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # inductor's own
@pytest.mark.parametrize("label", ["RUM", "RUM(lambd=1)", "GORU", "LSTM", "GRU", "ONLSTM"])
def test_inductor_gives_the_same(label: str) -> None:
    compiled(maker(label), backend="inductor")
