"""Tokens in, logits out: shapes, inputs, sizes, and what each option of the YAML does."""

import functools
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from gyral.cells.eurnn import EURNNCell
from gyral.cells.gru import GRUCell
from gyral.cells.lstm import LSTMCell
from gyral.cells.rnn import RNNCell
from gyral.cells.rum import RUMCell
from gyral.core.errors import OptionError
from gyral.models.sequence import SequenceModel
from tests.helpers.loops import for_each

V, N, OUT, BATCH, STEPS = 11, 6, 5, 4, 8
gru = functools.partial(GRUCell, hidden_size=N)


def count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@for_each("bidirectional", [False, True])
@for_each("num_layers", [1, 2])
@for_each("embedding_size", [None, 3])
@for_each("cell", [gru, functools.partial(RUMCell, hidden_size=N, lambd=1.0)])
def test_shapes(cell: Any, embedding_size: int | None, num_layers: int, bidirectional: bool) -> None:
    model = SequenceModel(
        cell, V, OUT, embedding_size=embedding_size, num_layers=num_layers, bidirectional=bidirectional
    )
    tokens = torch.randint(V, (BATCH, STEPS))
    logits, state = model(tokens)
    cells = num_layers * (2 if bidirectional else 1)
    assert logits.shape == (BATCH, STEPS, OUT)
    assert len(state) == cells
    assert all(leaf.shape[0] == BATCH for one in state for leaf in one)
    assert model.state_size() == cells * sum(leaf[0].numel() for leaf in state[0])
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_one_hot_is_a_column_of_the_input_weights() -> None:
    model = SequenceModel(gru, V, OUT).double()
    tokens = torch.randint(V, (BATCH, STEPS))
    assert model.embedding is None
    inputs = F.one_hot(tokens, V).double().transpose(0, 1)
    outputs, _ = model.recurrent(inputs)
    expected = model.head(outputs).transpose(0, 1)
    torch.testing.assert_close(model(tokens)[0], expected, rtol=0, atol=1e-14)
    assert model(tokens)[0].dtype == torch.float64


def test_real_inputs_enter_the_recurrent_stack_as_they_are() -> None:
    model = SequenceModel(gru, None, OUT, input_size=3, num_layers=2).double()
    inputs = torch.randn(BATCH, STEPS, 3)  # in single precision, as data is
    lengths = torch.tensor([2, STEPS, 5, 1])
    outputs, _ = model.recurrent(inputs.double().transpose(0, 1), lengths=lengths)
    torch.testing.assert_close(model(inputs, lengths=lengths)[0], model.head(outputs).transpose(0, 1), rtol=0, atol=0)
    one_hot = SequenceModel(gru, V, OUT).double()
    real = SequenceModel(gru, None, OUT, input_size=V).double()
    real.load_state_dict(one_hot.state_dict())
    tokens = torch.randint(V, (BATCH, STEPS))
    torch.testing.assert_close(real(F.one_hot(tokens, V))[0], one_hot(tokens)[0], rtol=0, atol=1e-14)


def test_a_model_reads_either_tokens_or_real_vectors() -> None:
    with pytest.raises(OptionError, match=r"^vocabulary_size=11: must be null: the inputs are real vectors"):
        SequenceModel(gru, V, OUT, input_size=3)
    with pytest.raises(OptionError, match=r"^vocabulary_size=None: must be an integer ≥ 1$"):
        SequenceModel(gru, None, OUT)


def test_an_embedding_that_is_the_identity_is_one_hot() -> None:
    one_hot = SequenceModel(gru, V, OUT).double()
    embedded = SequenceModel(gru, V, OUT, embedding_size=V).double()
    with torch.no_grad():
        embedded.load_state_dict({**one_hot.state_dict(), "embedding.weight": torch.eye(V)})
        tokens = torch.randint(V, (BATCH, STEPS))
        torch.testing.assert_close(embedded(tokens)[0], one_hot(tokens)[0], rtol=0, atol=1e-14)
        one, other = tokens.clone(), tokens.clone()
        one[:, 0], other[:, 0] = 1, 2
        assert (embedded(one)[0] - embedded(other)[0]).abs().amax(dim=(1, 2)).gt(1e-6).all()


def test_state_and_lengths_are_passed_on() -> None:
    model = SequenceModel(gru, V, OUT, embedding_size=3, num_layers=2).double().eval()
    tokens = torch.randint(V, (BATCH, STEPS))
    with torch.no_grad():
        whole, final = model(tokens)
        head, carried = model(tokens[:, :3])
        tail, last = model(tokens[:, 3:], carried)
        torch.testing.assert_close(torch.cat([head, tail], dim=1), whole, rtol=0, atol=1e-13)
        torch.testing.assert_close(last, final, rtol=0, atol=1e-13)

        lengths = torch.tensor([2, STEPS, 5, 1])
        ragged, ends = model(tokens, lengths=lengths)
        for row, length in enumerate(lengths.tolist()):
            alone, end = model(tokens[row : row + 1, :length])
            torch.testing.assert_close(ragged[row : row + 1, :length], alone, rtol=0, atol=1e-13)
            torch.testing.assert_close(ends[1].hidden[row : row + 1], end[1].hidden, rtol=0, atol=1e-13)
            # padding has no recurrent output: the head's bias is left
            assert torch.equal(ragged[row, length:], model.head.bias.expand(STEPS - length, OUT))


@for_each(
    "given",
    [
        (GRUCell, N),
        (RNNCell, N),
        (LSTMCell, 2 * N),
        (RUMCell, N),
        (functools.partial(RUMCell, lambd=1.0), N + N * N),
    ],
)
def test_state_size(given: tuple[Any, int]) -> None:
    cell, values = given
    factory = functools.partial(cell, hidden_size=N)
    assert SequenceModel(factory, V, OUT).state_size() == values
    assert SequenceModel(factory, V, OUT, num_layers=3, bidirectional=True).state_size() == 6 * values


def layer_parameters(gates: int, inputs: int) -> int:
    return gates * (inputs * N + N * N + 2 * N)


def rum_parameters(inputs: int, gates: int = 2, norms: int = 0) -> int:
    return (gates + 1) * (inputs * N + N) + gates * N * N + norms * 2 * N


@for_each("embedding_size", [None, 3])
@for_each(
    "given",
    [
        (GRUCell, functools.partial(layer_parameters, 3)),
        (LSTMCell, functools.partial(layer_parameters, 4)),
        (RNNCell, functools.partial(layer_parameters, 1)),
        (RUMCell, rum_parameters),
        (functools.partial(RUMCell, lambd=1.0), rum_parameters),
        (functools.partial(RUMCell, layer_norm=True), functools.partial(rum_parameters, norms=3)),
        (functools.partial(RUMCell, update_gate=False), functools.partial(rum_parameters, gates=1)),
        (
            functools.partial(RUMCell, update_gate=False, layer_norm=True),
            functools.partial(rum_parameters, gates=1, norms=2),
        ),
    ],
)
def test_parameter_count(given: tuple[Any, Any], embedding_size: int | None) -> None:
    cell, expected = given
    factory = functools.partial(cell, hidden_size=N)
    width = embedding_size or V
    around = (V * embedding_size if embedding_size else 0) + N * OUT + OUT
    assert count(SequenceModel(factory, V, OUT, embedding_size=embedding_size)) == expected(width) + around
    stacked = SequenceModel(factory, V, OUT, embedding_size=embedding_size, num_layers=2, bidirectional=True)
    assert count(stacked) == 2 * expected(width) + 2 * expected(2 * N) + around + N * OUT


@for_each(
    "given", [(RUMCell, 1000, 2.4), (RUMCell, 2000, 8.9), (functools.partial(RUMCell, update_gate=False), 1400, 2.4)]
)
def test_parameter_counts_of_the_paper_on_character_ptb(given: tuple[Any, int, float]) -> None:
    cell, hidden_size, millions = given
    with torch.device("meta"):  # counts need no values, and orthogonal ones of this size take seconds
        model = SequenceModel(functools.partial(cell, hidden_size=hidden_size), 50, 50, embedding_size=128)
    assert round(count(model) / 1e6, 1) == millions


def test_every_option_has_an_effect() -> None:
    tokens = torch.randint(V, (BATCH, STEPS))

    def run(**options: Any) -> tuple[torch.Tensor, SequenceModel]:
        torch.manual_seed(1)
        model = SequenceModel(gru, V, OUT, **options).train()
        torch.manual_seed(2)
        return model(tokens)[0].detach(), model

    for base, changed in (
        ({}, {"embedding_size": 3}),
        ({}, {"num_layers": 2}),
        ({}, {"bidirectional": True}),
        ({"num_layers": 2}, {"num_layers": 2, "dropout": 0.5}),
        ({"num_layers": 2, "dropout": 0.5}, {"num_layers": 2, "dropout": 0.5, "locked_dropout": True}),
        ({}, {"embedding_dropout": 0.5}),
        ({}, {"input_dropout": 0.5}),
        ({}, {"output_dropout": 0.5}),
        ({}, {"weight_drop": 0.5}),
        ({}, {"initialization": "orthogonal"}),
        ({}, {"initialization": "uniform"}),
        ({}, {"layer_sizes": [N + 1]}),
    ):
        assert (run(**base)[0] - run(**changed)[0]).abs().max() > 1e-4, changed
    assert run(backend="reference")[1].recurrent.backend == "reference"
    assert run(backend="fused")[1].recurrent.backend == "fused"
    torch.testing.assert_close(run(backend="reference")[0], run(backend="fused")[0], rtol=0, atol=1e-6)


@for_each("tied", [False, True])
def test_orthogonal_initialization_of_embedding_and_head(tied: bool) -> None:
    width = 12
    model = SequenceModel(
        functools.partial(GRUCell, hidden_size=width),
        V,
        V,
        embedding_size=width,
        tied=tied,
        initialization="orthogonal",
    )
    for layer in (model.embedding, model.head):
        torch.testing.assert_close(layer.weight @ layer.weight.T, torch.eye(V), rtol=0, atol=1e-5)
    assert (model.embedding.weight is model.head.weight) == tied
    one_hot = SequenceModel(gru, V, OUT, initialization="orthogonal").head.weight  # no embedding
    product = one_hot @ one_hot.T if OUT <= N else one_hot.T @ one_hot
    torch.testing.assert_close(product, torch.eye(min(OUT, N)), rtol=0, atol=1e-5)


BAD_ARGUMENTS: list[tuple[str, Any]] = [
    ("initialization", "xavier"),
    ("embedding_size", 0),
    ("embedding_size", "64"),
    ("embedding_size", 1.5),
    ("num_layers", 0),
    ("bidirectional", "yes"),
    ("dropout", 1.0),
    ("pooling", "max"),
    ("embedding_dropout", -0.1),
    ("input_dropout", 1.0),
    ("output_dropout", "half"),
    ("weight_drop", 1.0),
    ("locked_dropout", 1),
    ("tied", "yes"),
    ("tied", True),  # one-hot inputs have no weights to share
    ("backend", "tpu"),
    ("vocabulary_size", 0),
    ("vocabulary_size", 2.0),
    ("output_size", 0),
    ("output_size", -1),
    ("output_size", "5"),
]


@for_each("given", BAD_ARGUMENTS)
def test_bad_arguments_are_refused_in_one_line(given: tuple[str, Any]) -> None:
    name, value = given
    arguments = {"cell": gru, "vocabulary_size": V, "output_size": OUT, name: value}
    with pytest.raises(OptionError) as caught:
        SequenceModel(**arguments)
    assert str(caught.value).startswith(f"{name}={value}: ")
    assert "\n" not in str(caught.value)


def test_tied_weights_are_one_parameter_that_both_ends_train() -> None:
    model = SequenceModel(gru, V, V, embedding_size=N, tied=True).double()
    assert model.head.weight is model.embedding.weight
    assert count(SequenceModel(gru, V, V, embedding_size=N)) - count(model) == V * N
    tokens = torch.zeros(1, 1, dtype=torch.long)
    model(tokens)[0][0, 0, 1].backward()
    rows = model.embedding.weight.grad.abs().sum(dim=1).nonzero().flatten().tolist()
    assert rows == [0, 1], "the token that was read and the one that was predicted"


@for_each("sizes", [{"embedding_size": N + 1}, {"embedding_size": N, "output_size": V + 1}])
def test_weights_are_tied_only_where_the_sizes_allow(sizes: dict[str, int]) -> None:
    with pytest.raises(OptionError, match=r"tied=True: the embedding is \(11, \d\) and the head \(1[12], 6\)"):
        SequenceModel(gru, V, **{"output_size": V, **sizes}, tied=True)


@for_each("embedding_size", [None, 7])
def test_embedding_dropout_drops_all_occurrences_of_a_token(embedding_size: int | None) -> None:
    model = SequenceModel(gru, V, OUT, embedding_size=embedding_size, embedding_dropout=0.5)
    seen = []
    model.recurrent.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    tokens = torch.arange(V).repeat(2).view(2, V)
    model(tokens)
    model.eval()(tokens)
    dropped, whole = seen
    share = (dropped / whole).nan_to_num(nan=-1).amax(dim=-1)  # (V, 2): 0 dropped, 2 kept
    assert set(share.flatten().tolist()) == {0.0, 2.0}
    assert torch.equal(share[:, 0], share[:, 1])


@for_each("backend", ["reference", "fused"])
@for_each("cell", [GRUCell, LSTMCell, RNNCell, RUMCell])
def test_weight_drop_draws_recurrent_weights_once_a_sequence(cell: Any, backend: str) -> None:
    options = {"weight_drop": 0.4, "backend": backend}
    model = SequenceModel(functools.partial(cell, hidden_size=N), V, OUT, **options).double()
    module, name = next(
        (module, name)
        for module in model.recurrent.modules()
        for name in ("weight_hh", "weight_hh_l0")
        if hasattr(module, name)
    )
    original = dict(module.named_parameters())[f"parametrizations.{name}.original"]
    tokens = torch.randint(V, (BATCH, STEPS))

    torch.manual_seed(5)
    logits, _ = model(tokens)
    logits.square().sum().backward()
    kept = original.grad != 0
    assert 0.3 < kept.double().mean() < 0.9, "what is dropped gets no gradient"

    # the same weights without dropping: one draw served all steps
    plain = SequenceModel(functools.partial(cell, hidden_size=N), V, OUT, backend=backend).double()
    state = {
        key.replace("parametrizations.", "").replace(".original", ""): value
        for key, value in model.state_dict().items()
    }
    key = next(key for key in state if key.endswith(name))
    state[key] = torch.where(kept, original / 0.6, 0.0)
    plain.load_state_dict(state)
    torch.testing.assert_close(plain(tokens)[0], logits, rtol=0, atol=1e-10)

    torch.manual_seed(6)
    assert not torch.equal(model(tokens)[0], logits)
    state[key] = original
    plain.load_state_dict(state)
    torch.testing.assert_close(model.eval()(tokens)[0], plain.eval()(tokens)[0], rtol=0, atol=1e-12)


def test_weight_drop_is_refused_where_there_is_nothing_to_drop() -> None:
    with pytest.raises(OptionError, match=r"^weight_drop=0.5: EURNNCell has no weights weight_hh; must be 0$"):
        SequenceModel(functools.partial(EURNNCell, hidden_size=N), V, OUT, weight_drop=0.5)
    with pytest.raises(OptionError, match=r"^backend=graph: does not support weight_drop; "):
        SequenceModel(gru, V, OUT, weight_drop=0.5, backend="graph")


def test_layers_may_have_different_sizes() -> None:
    model = SequenceModel(gru, V, V, embedding_size=4, layer_sizes=[7, 5, 4], tied=True, initialization="uniform")
    assert [(cell.input_size, cell.hidden_size) for cell in model.recurrent.cells] == [(4, 7), (7, 5), (5, 4)]
    assert model.head is not None
    assert model.head.weight is model.embedding.weight
    assert 0.08 < model.head.weight.abs().max() <= 0.1
    assert not model.head.bias.any()
    logits, state = model(torch.randint(V, (BATCH, STEPS)))
    assert logits.shape == (BATCH, STEPS, V)
    assert [leaf.shape[1] for one in state for leaf in one] == [7, 5, 4]
    both = SequenceModel(gru, V, V, layer_sizes=[3, 2], bidirectional=True)
    assert [(cell.input_size, cell.hidden_size) for cell in both.recurrent.cells] == [(V, 3), (V, 3), (6, 2), (6, 2)]


@for_each(
    "given",
    [
        ({"layer_sizes": [4, 0]}, "layer_sizes=0: must be an integer ≥ 1"),
        ({"layer_sizes": []}, "layer_sizes=[]: must have a size for each layer, such as [1150, 1150, 400]"),
        ({"layer_sizes": [4, 4], "num_layers": 3}, "num_layers=3: must be 2, the number of layer_sizes, or 1"),
    ],
)
def test_layer_sizes_are_checked(given: tuple[Any, str]) -> None:
    options, message = given
    with pytest.raises(OptionError) as raised:
        SequenceModel(gru, V, V, **options)
    assert str(raised.value) == message


def test_a_model_makes_no_copies_for_callers_that_overwrite_results(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(results: Any) -> Any:
        raise AssertionError("the outputs are copied")

    monkeypatch.setattr("gyral.nn.arguments.copied", refuse)
    model = SequenceModel(functools.partial(GRUCell, hidden_size=4), vocabulary_size=5, output_size=5)
    outputs, _ = model(torch.randint(5, (2, 3)))
    outputs.mul_(2).sum().backward()


def test_dropout_between_layers_of_which_there_is_one_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    for options, is_told in (({}, True), ({"num_layers": 2}, False), ({"block": "prenorm"}, False)):
        caplog.clear()
        SequenceModel(functools.partial(GRUCell, hidden_size=4), 5, 5, dropout=0.5, **options)
        assert ("model.dropout=0.5 has no effect" in caplog.text) == is_told
