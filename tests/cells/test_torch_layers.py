"""LSTM, GRU and RNN are torch.nn's: same weights, same outputs, final states and gradients."""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from gyral.cells.gru import GRUCell
from gyral.cells.lstm import LSTMCell
from gyral.cells.rnn import RNNCell
from gyral.cells.torch_layer import TorchLayerCell
from gyral.core.errors import OptionError
from gyral.nn.recurrent import Recurrent
from gyral.ops.scan import Shared
from tests.helpers.loops import for_each

X, N, BATCH, STEPS = 5, 7, 4, 9
TOLERANCE = 1e-6


class Twin(NamedTuple):
    """A cell, torch's layer and torch's one-step module of the same formula."""

    cell: type[TorchLayerCell]
    layer: Callable[..., nn.RNNBase]
    single: Callable[..., nn.RNNCellBase]
    options: dict[str, Any]

    def __str__(self) -> str:
        return " ".join([self.cell.__name__, *(f"{name}={value}" for name, value in self.options.items())])


TWINS = [
    Twin(cell, layer, single, {**extra, "bias": bias})
    for cell, layer, single, extra in (
        (LSTMCell, nn.LSTM, nn.LSTMCell, {}),
        (GRUCell, nn.GRU, nn.GRUCell, {}),
        (RNNCell, nn.RNN, nn.RNNCell, {"nonlinearity": "tanh"}),
        (RNNCell, nn.RNN, nn.RNNCell, {"nonlinearity": "relu"}),
    )
    for bias in (True, False)
]
every_twin = for_each("twin", TWINS)


def random_state(cell: TorchLayerCell) -> Any:
    state = cell.init_state(BATCH)
    return type(state)(*(0.5 * torch.randn_like(leaf) for leaf in state))


def for_torch(state: Any) -> Any:
    """Return a state as torch's layers take it: (1, B, N), a pair only for two leaves."""
    leaves = tuple(leaf.unsqueeze(0) for leaf in state)
    return leaves if len(leaves) > 1 else leaves[0]


def close(actual: Tensor, expected: Tensor, what: str = "") -> None:
    scale = max(1.0, expected.abs().max().item())
    torch.testing.assert_close(actual, expected, rtol=0, atol=TOLERANCE * scale, msg=lambda m: f"{what}: {m}")


@for_each("backend", ["reference", "fused"])
@for_each("with_state", [True, False])
@every_twin
def test_sequences_agree_with_torch(twin: Twin, with_state: bool, backend: str) -> None:
    layer = twin.layer(X, N, **twin.options)
    model = Recurrent(lambda size: twin.cell(size, N, **twin.options), X, backend=backend)
    cell = model.cells[0]
    cell.layer.load_state_dict(layer.state_dict())
    inputs = torch.randn(STEPS, BATCH, X)
    state = random_state(cell) if with_state else cell.init_state(BATCH)

    own_inputs, own_leaves = inputs.clone().requires_grad_(), [leaf.clone().requires_grad_() for leaf in state]
    outputs, (final,) = model(own_inputs, (type(state)(*own_leaves),) if with_state else None)
    torch_inputs, torch_leaves = inputs.clone().requires_grad_(), [leaf.clone().requires_grad_() for leaf in state]
    expected, last = layer(torch_inputs, for_torch(torch_leaves) if with_state else None)
    last = tuple(leaf.squeeze(0) for leaf in (last if isinstance(last, tuple) else (last,)))

    close(outputs, expected, "outputs")
    for name, leaf, other in zip(final._fields, final, last, strict=True):
        close(leaf, other, name)

    cotangents = [torch.randn_like(outputs), *(torch.randn_like(leaf) for leaf in last)]
    torch.autograd.backward([outputs, *final], cotangents)
    torch.autograd.backward([expected, *last], cotangents)
    close(own_inputs.grad, torch_inputs.grad, "gradient of the inputs")
    if with_state:
        for leaf, other in zip(own_leaves, torch_leaves, strict=True):
            close(leaf.grad, other.grad, "gradient of the initial state")
    own, others = dict(cell.layer.named_parameters()), dict(layer.named_parameters())
    assert own.keys() == others.keys()
    for name, parameter in own.items():
        close(parameter.grad, others[name].grad, f"gradient of {name}")


@every_twin
def test_steps_agree_with_torch(twin: Twin) -> None:
    cell = twin.cell(X, N, **twin.options)
    single = twin.single(X, N, **twin.options)
    single.load_state_dict({name.removesuffix("_l0"): tensor for name, tensor in cell.layer.state_dict().items()})
    state = random_state(cell)
    hidden = tuple(state) if len(state) > 1 else state[0]
    with torch.no_grad():
        for inputs in torch.randn(STEPS, BATCH, X):
            output, state = cell(inputs, state)
            hidden = single(inputs, hidden)
            leaves = hidden if isinstance(hidden, tuple) else (hidden,)
            close(output, leaves[0])
            for leaf, other in zip(state, leaves, strict=True):
                close(leaf, other)
        inputs = torch.randn(BATCH, X)
        from_zero = single(inputs)
        close(cell(inputs)[0], from_zero[0] if isinstance(from_zero, tuple) else from_zero)


@every_twin
def test_initialization_is_torchs(twin: Twin) -> None:
    torch.manual_seed(4)
    cell = twin.cell(X, N, **twin.options)
    torch.manual_seed(4)
    layer = twin.layer(X, N, **twin.options)
    for name, tensor in layer.state_dict().items():
        assert torch.equal(cell.layer.state_dict()[name], tensor)
    assert all(parameter.abs().max() <= N**-0.5 for parameter in cell.parameters())


@for_each("cell", [LSTMCell, GRUCell, RNNCell])
@for_each(
    "given",
    [("input_size", 0), ("input_size", 2.0), ("hidden_size", 0), ("hidden_size", "7"), ("bias", 1), ("bias", "no")],
)
def test_bad_options_are_refused_in_one_line(cell: type[TorchLayerCell], given: tuple[str, Any]) -> None:
    name, value = given
    with pytest.raises(OptionError) as caught:
        cell(**{"input_size": X, "hidden_size": N, name: value})
    assert str(caught.value).startswith(f"{name}={value}: ")
    assert "\n" not in str(caught.value)


def test_unknown_nonlinearity_is_refused() -> None:
    with pytest.raises(OptionError, match=r"^nonlinearity=sine: must be one of tanh, relu$"):
        RNNCell(X, N, nonlinearity="sine")


# ---------------------------------------------------------------- options that torch's layers do not have


def norm(values: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    centered = values - values.mean(-1, keepdim=True)
    return centered / (centered.square().mean(-1, keepdim=True) + 1e-5).sqrt() * gain + bias


def lstm_step(cell: Any, x: Tensor, state: Any) -> tuple[Tensor, Tensor]:
    """Return h and c of the normalized LSTM."""
    weights = dict(cell.layer.named_parameters())
    z = x @ weights["weight_ih_l0"].T + state.hidden @ weights["weight_hh_l0"].T
    if cell.layer.bias:
        z = z + weights["bias_ih_l0"] + weights["bias_hh_l0"]
    parts = (z[:, gate * N : (gate + 1) * N] for gate in range(4))
    i, f, g, o = (
        norm(part, *pair) for part, pair in zip(parts, zip(*cell.norm_gates.parameters(), strict=True), strict=True)
    )
    c = 1 / (1 + (-f).exp()) * state.cell + 1 / (1 + (-i).exp()) * g.tanh()
    return 1 / (1 + (-o).exp()) * norm(c, cell.norm_cell.weight[0], cell.norm_cell.bias[0]).tanh(), c


def gru_step(cell: Any, x: Tensor, state: Any) -> tuple[Tensor, ...]:
    weights = dict(cell.layer.named_parameters())
    own, recurrent = x @ weights["weight_ih_l0"].T, state.hidden @ weights["weight_hh_l0"].T
    if cell.layer.bias:
        own, recurrent = own + weights["bias_ih_l0"], recurrent + weights["bias_hh_l0"]
    gains, biases = cell.norm_gates.weight, cell.norm_gates.bias
    r, z = (
        1 / (1 + (-norm((own + recurrent)[:, gate * N : (gate + 1) * N], gains[gate], biases[gate])).exp())
        for gate in range(2)
    )
    candidate = own[:, 2 * N :] + r * recurrent[:, 2 * N :]
    n = norm(candidate, cell.norm_candidate.weight[0], cell.norm_candidate.bias[0]).tanh()
    return ((1 - z) * n + z * state.hidden,)


def rnn_step(cell: Any, x: Tensor, state: Any) -> tuple[Tensor, ...]:
    weights = dict(cell.layer.named_parameters())
    z = x @ weights["weight_ih_l0"].T + state.hidden @ weights["weight_hh_l0"].T
    if cell.layer.bias:
        z = z + weights["bias_ih_l0"] + weights["bias_hh_l0"]
    z = norm(z, cell.norm.weight[0], cell.norm.bias[0])
    return (z.tanh() if cell.nonlinearity == "tanh" else z.clamp(min=0),)


STEPS_OF = {LSTMCell: lstm_step, GRUCell: gru_step, RNNCell: rnn_step}


@every_twin
def test_layer_norm_is_applied_where_the_docstrings_say(twin: Twin) -> None:
    cell = twin.cell(X, N, layer_norm=True, **twin.options).double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.normal_()
        state = type(cell.init_state(BATCH))(*(torch.randn(BATCH, N).double() for _ in cell.init_state(BATCH)))
        for x in torch.randn(3, BATCH, X, dtype=torch.float64):
            expected = STEPS_OF[twin.cell](cell, x, state)
            output, state = cell(x, state)
            assert torch.equal(output, state.hidden)
            for leaf, other in zip(state, expected, strict=True):
                torch.testing.assert_close(leaf, other, rtol=1e-12, atol=1e-12)


@every_twin
def test_layer_norm_starts_as_gain_one_and_bias_zero_and_adds_no_other_parameters(twin: Twin) -> None:
    normalized = dict(twin.cell(X, N, layer_norm=True, **twin.options).named_parameters())
    plain = dict(twin.cell(X, N, **twin.options).named_parameters())
    norms = {name: parameter for name, parameter in normalized.items() if name not in plain}
    assert (
        sum(parameter.numel() for parameter in norms.values()) == {LSTMCell: 10, GRUCell: 6, RNNCell: 2}[twin.cell] * N
    )
    for name, parameter in norms.items():
        assert (parameter == float(name.endswith("weight"))).all(), name


def kept(new: Tensor, old: Tensor) -> Tensor:
    """Return which units kept their value, up to rounding."""
    return torch.isclose(new, old, rtol=0, atol=1e-12)


@for_each("given", [(0.3, 0.0), (0.0, 0.6), (0.3, 0.6)])
def test_zoneout_of_the_lstm_keeps_units_of_h_and_c(given: tuple[float, float]) -> None:
    zoneout, zoneout_cell = given
    rows, size = 100, 50
    cell = LSTMCell(X, size, zoneout=zoneout, zoneout_cell=zoneout_cell).double()
    plain = LSTMCell(X, size).double()
    plain.load_state_dict(cell.state_dict())
    x, state = torch.randn(rows, X).double(), cell.State(*torch.randn(2, rows, size).double())
    with torch.no_grad():
        _, wanted = plain(x, state)
        _, new = cell(x, state)
        masks = []
        for leaf, old, fresh, probability in zip(new, state, wanted, (zoneout, zoneout_cell), strict=True):
            mask = kept(leaf, old)
            masks.append(mask)
            deviation = (probability * (1 - probability) / mask.numel()) ** 0.5
            assert abs(mask.double().mean().item() - probability) <= 4 * deviation
            if leaf is new.cell or zoneout_cell == 0:
                torch.testing.assert_close(leaf[~mask], fresh[~mask], rtol=0, atol=1e-12)
        if min(zoneout, zoneout_cell) > 0:  # masks of their own
            both = (masks[0] & masks[1]).double().mean().item()
            assert abs(both - zoneout * zoneout_cell) < 4 * (0.18 * 0.82 / masks[0].numel()) ** 0.5
        _, new = cell.eval()(x, state)
        for leaf, old, fresh, probability in zip(new, state, wanted, (zoneout, zoneout_cell), strict=True):
            if leaf is new.cell or zoneout_cell == 0:
                torch.testing.assert_close(leaf, probability * old + (1 - probability) * fresh, rtol=0, atol=1e-12)


@for_each("layer_norm", [False, True])
@for_each("training", [True, False])
def test_the_hidden_vector_of_the_lstm_uses_the_new_cell_state(training: bool, layer_norm: bool) -> None:
    """Krueger et al. (ICLR 2017), section 3: h takes o ⊙ tanh(f ⊙ c + i ⊙ g), which the zoneout of c does not touch."""
    cell = LSTMCell(X, N, zoneout_cell=0.6, layer_norm=layer_norm).double().train(training)
    plain = LSTMCell(X, N, layer_norm=layer_norm).double()
    plain.load_state_dict(cell.state_dict())
    x, state = torch.randn(BATCH, X).double(), cell.State(*torch.randn(2, BATCH, N).double())
    with torch.no_grad():
        torch.testing.assert_close(cell(x, state)[0], plain(x, state)[0], rtol=1e-12, atol=1e-12)


def test_zoneout_masks_differ_from_step_to_step() -> None:
    cell = LSTMCell(X, N, zoneout=0.5, zoneout_cell=0.5)
    masks, zoneout_cell = cell.sequence_constants(STEPS, 20)
    for mask in (masks.zoneout, zoneout_cell):
        assert mask.shape == (STEPS, 20, N)
        assert len(set(map(tuple, mask.flatten(1).tolist()))) == STEPS
    assert not torch.equal(masks.zoneout, zoneout_cell)
    assert cell.eval().sequence_constants(STEPS, 20).zoneout_cell is None


@for_each("layer_norm", [False, True])
@for_each("bias", [False, True])
@for_each("width", [3, 7, 12])
def test_orthogonal_initialization(width: int, bias: bool, layer_norm: bool) -> None:
    has_place = bias or layer_norm
    with contextlib.nullcontext() if has_place else pytest.warns(UserWarning, match="has no forget bias"):
        cell = LSTMCell(width, N, bias=bias, layer_norm=layer_norm, initialization="orthogonal")
    seen = []
    for weight, columns in ((cell.layer.weight_ih_l0, width), (cell.layer.weight_hh_l0, N)):
        for kernel in weight.detach().split(N):
            product = kernel.T @ kernel if columns <= N else kernel @ kernel.T
            torch.testing.assert_close(product, torch.eye(len(product)), rtol=0, atol=1e-5)
            seen.append(kernel)
    assert not any(one.shape == two.shape and torch.equal(one, two) for i, one in enumerate(seen) for two in seen[:i])
    forget = torch.zeros(4, N).index_fill_(0, torch.tensor(1), 1.0)
    if bias:
        biases = (cell.layer.bias_ih_l0 + cell.layer.bias_hh_l0).detach().view(4, N)
        # a bias before the normalization would be taken away again
        assert torch.equal(biases, torch.zeros(4, N) if layer_norm else forget)
    if layer_norm:
        assert torch.equal(cell.norm_gates.bias.detach(), forget)
        assert (cell.norm_gates.weight == 1).all()
        assert (cell.norm_cell.bias == 0).all()


@for_each("cell", [LSTMCell, GRUCell, RNNCell])
def test_recurrent_dropout_drops_the_same_units_at_all_steps(cell: type[TorchLayerCell]) -> None:
    rows, size, probability = 30, 40, 0.4
    model = Recurrent(lambda width: cell(width, size, recurrent_dropout=probability).double(), X, backend="reference")
    made = model.cells[0]
    entered: list[Tensor] = []
    project_hidden = made.project_hidden

    def watch(hidden: Tensor, masks: Any) -> Tensor:
        entered.append((hidden, made.apply_recurrent_dropout(hidden, masks)))
        return project_hidden(hidden, masks)

    made.project_hidden = watch
    start = type(made.init_state(rows))(*(torch.randn(rows, size).double() for _ in made.init_state(rows)))
    model(torch.randn(STEPS, rows, X).double(), (start,))
    masks = [dropped / hidden for hidden, dropped in entered]
    assert len(masks) == STEPS
    for mask in masks:
        torch.testing.assert_close(mask, masks[0])
    is_kept = masks[0] > 0.5
    torch.testing.assert_close(masks[0], is_kept.double() / (1 - probability))
    assert abs(is_kept.double().mean() - 0.6) < 4 * (0.24 / is_kept.numel()) ** 0.5
    assert len(set(map(tuple, is_kept.tolist()))) == rows, "rows have masks of their own"
    entered.clear()
    model(torch.randn(1, rows, X).double(), (start,))
    assert not torch.equal(entered[0][1] / entered[0][0] > 0.5, is_kept), "another sequence has another mask"
    entered.clear()
    model.eval()(torch.randn(1, rows, X).double(), (start,))
    assert torch.equal(*entered[0])


@for_each("cell", [LSTMCell, GRUCell])
def test_recurrent_dropout_acts_on_the_recurrent_weights_alone(cell: type[TorchLayerCell]) -> None:
    """With all units dropped, weights see zeros, but what carries the state on, (1 − z) or c, sees it whole."""
    made = cell(X, N, recurrent_dropout=0.5).double()
    state = type(made.init_state(BATCH))(*(torch.randn(BATCH, N).double() for _ in made.init_state(BATCH)))
    constants = made.sequence_constants(BATCH)
    masks = constants if cell is GRUCell else constants.masks
    none = masks._replace(recurrent_dropout=Shared(torch.zeros(BATCH, N).double()))
    x = torch.randn(BATCH, X).double()
    with torch.no_grad():
        dropped, _ = made.step(made.project(x), state, none if cell is GRUCell else constants._replace(masks=none))
        made.layer.weight_hh_l0.zero_()
        expected, _ = made.eval()(x, state)
    torch.testing.assert_close(dropped, expected, rtol=1e-12, atol=1e-12)


@for_each("cell", [GRUCell, RNNCell])
@for_each("options", [{"layer_norm": True}, {"layer_norm": True, "zoneout": 0.1}])
def test_options_without_kernels_are_named(cell: type[TorchLayerCell], options: dict[str, Any]) -> None:
    assert cell(X, N).fused_unsupported_reason() is None
    layer = f"torch.nn.{cell.__name__.removesuffix('Cell')}"
    reason = f"{layer} has no {', '.join(options)}, and the kernels have no layer_norm"
    assert cell(X, N, **options).fused_unsupported_reason() == reason
    assert Recurrent(lambda width: cell(width, N, **options), X).backend == "reference"
    with pytest.raises(OptionError, match=rf"^backend=fused: {layer} has no .*; allowed here: "):
        Recurrent(lambda width: cell(width, N, **options), X, backend="fused")


@for_each("cell", [LSTMCell, GRUCell, RNNCell])
@for_each(
    "given",
    [("layer_norm", 1), ("zoneout", 1.0), ("zoneout", -0.1), ("recurrent_dropout", 1.0), ("recurrent_dropout", "0.1")],
)
def test_bad_values_of_these_options_are_refused_in_one_line(
    cell: type[TorchLayerCell], given: tuple[str, Any]
) -> None:
    name, value = given
    with pytest.raises(OptionError) as caught:
        cell(X, N, **{name: value})
    assert str(caught.value).startswith(f"{name}={value}: ")
    assert "\n" not in str(caught.value)


@for_each("given", [("zoneout_cell", 1.0), ("initialization", "xavier")])
def test_bad_values_of_the_lstms_options_are_refused_in_one_line(given: tuple[str, Any]) -> None:
    name, value = given
    with pytest.raises(OptionError, match=rf"^{name}={value}: must be [^\n]*$"):
        LSTMCell(X, N, **{name: value})


LACKING = [
    (LSTMCell, "layer_norm"),
    (LSTMCell, "zoneout_cell"),
    *((cell, option) for cell in (LSTMCell, GRUCell, RNNCell) for option in ("zoneout", "recurrent_dropout")),
]


@for_each("given", LACKING)
def test_kernels_run_where_torchs_layer_lacks_an_option(
    monkeypatch: pytest.MonkeyPatch, given: tuple[type[TorchLayerCell], str]
) -> None:
    cell, option = given
    options = {option: True if option == "layer_norm" else 0.1}
    said, layer = "there are no kernels for meta", f"torch.nn.{cell.__name__.removesuffix('Cell')}"
    assert cell(X, N).to("meta").fused_unsupported_reason() is None
    assert cell(X, N, **options).to("meta").fused_unsupported_reason() == f"{layer} has no {option}, and {said}"
    monkeypatch.setattr("gyral.ops.gated.unsupported_reason", lambda tensor: said)
    assert Recurrent(lambda width: cell(width, N, **options), X).backend == "reference"
    with pytest.raises(OptionError, match=rf"^backend=fused: {layer} has no {option}, and .*; allowed here: "):
        Recurrent(lambda width: cell(width, N, **options), X, backend="fused")
    monkeypatch.setattr("gyral.ops.gated.unsupported_reason", lambda tensor: None)
    assert Recurrent(lambda width: cell(width, N, **options), X).backend == "fused"


@for_each("lengths", [None, torch.tensor([3, 9, 1, 9])])
@every_twin
def test_torchs_layer_runs_where_there_are_no_kernels(
    monkeypatch: pytest.MonkeyPatch, twin: Twin, lengths: Tensor | None
) -> None:
    cell = twin.cell(X, N, **twin.options).double()
    inputs = torch.randn(STEPS, BATCH, X).double()
    found = []
    for reason in (None, "there are no kernels"):
        monkeypatch.setattr("gyral.ops.gated.unsupported_reason", lambda tensor, reason=reason: reason)
        model = Recurrent(lambda _: cell, X, backend="fused")
        state = tree_map(torch.ones_like, cell.init_state(BATCH))
        outputs, (final,) = model(inputs, (state,), lengths)
        values = [outputs, *final]
        found.append(
            [*values, *torch.autograd.grad(sum(value.sin().sum() for value in values), list(cell.parameters()))]
        )
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
