"""NTM: steps written again slot by slot in numpy from the paper's equations, invariants, masks, what is refused."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gyral.cells.feedforward import Feedforward
from gyral.cells.inputs import MaskedInputs
from gyral.cells.ntm import NTMCell
from gyral.core.errors import OptionError
from gyral.nn.recurrent import Recurrent
from tests.helpers.loops import for_each

X, N, SLOTS, WIDTH, BATCH, STEPS = 3, 5, 6, 2, 2, 7


def sigmoid(values: Any) -> Any:
    return 1 / (1 + np.exp(-values))


def softplus(value: float) -> float:
    return math.log(1 + math.exp(value))


def softmax(values: Any) -> np.ndarray:
    powers = np.exp(np.asarray(values))
    return powers / powers.sum()


def address(cell: NTMCell, emitted: np.ndarray, before: np.ndarray, memory: np.ndarray) -> np.ndarray:
    """Return the new weighting of one head, equations 5 to 9."""
    slots, width, largest = len(memory), memory.shape[1], cell.memory.max_shift
    key, (strength, gate), (*shifts, power) = emitted[:width], emitted[width : width + 2], emitted[width + 2 :]
    cosines = [key @ slot / math.sqrt((key @ key + 1e-6) * (slot @ slot + 1e-6)) for slot in memory]
    content = softmax(softplus(strength) * np.array(cosines))
    gated = sigmoid(gate) * content + (1 - sigmoid(gate)) * before
    shift = dict(zip(range(-largest, largest + 1), softmax(shifts), strict=True))
    moved = np.zeros(slots)
    for i in range(slots):
        for j in range(slots):
            for distance, share in shift.items():
                if (i - j - distance) % slots == 0:
                    moved[i] += gated[j] * share
    raised = (moved + 1e-12) ** (1 + softplus(power))
    return raised / raised.sum()


def written_out(cell: NTMCell, inputs: np.ndarray, allowed: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
    """Return outputs, weightings and memories of one row (T, X), with a feedforward controller."""
    own = {name: parameter.detach().numpy() for name, parameter in cell.named_parameters()}
    reads, writes, width = cell.heads, cell.memory.write_heads, cell.width
    size = width + 3 + 2 * cell.memory.max_shift + 1
    read_vector = np.tanh(own["initial_reading"])
    weights = [softmax(logits) for logits in own["initial_weights"]]
    memory = cell.init_state(1).memory[0].detach().numpy().copy()
    outputs, weightings, memories = [], [], []
    for time, x in enumerate(inputs):
        hidden = np.tanh(
            own["controller.linear.weight"] @ np.concatenate([x, read_vector]) + own["controller.linear.bias"]
        )
        emitted = own["interface.weight"] @ hidden + own["interface.bias"]
        new = [
            address(cell, emitted[head * size : (head + 1) * size], weights[head], memory)
            for head in range(reads + writes)
        ]
        if allowed is None or allowed[time]:
            vectors = emitted[(reads + writes) * size :].reshape(writes, 2, width)
            erased = memory.copy()
            for head in range(writes):
                for slot in range(len(memory)):
                    erased[slot] *= 1 - new[reads + head][slot] * sigmoid(vectors[head, 0])
            memory = erased
            for head in range(writes):
                for slot in range(len(memory)):
                    memory[slot] = memory[slot] + new[reads + head][slot] * vectors[head, 1]
        else:
            new[reads:] = weights[reads:]
        weights = new
        read_vector = np.concatenate([weights[head] @ memory for head in range(reads)])
        outputs.append(np.concatenate([hidden, read_vector]))
        weightings.append(np.stack(weights))
        memories.append(memory)
    return np.stack(outputs), np.stack(weightings), np.stack(memories)


def randomized(**options: Any) -> NTMCell:
    """Return a cell with a feedforward controller, in float64, whose heads do something at each step."""
    torch.manual_seed(0)
    cell = NTMCell(X, N, **{"controller": Feedforward, "slots": SLOTS, "width": WIDTH, **options}).double()
    with torch.no_grad():
        cell.interface.weight.mul_(4)
    return cell


def recorded(cell: NTMCell, inputs: Tensor, write: Tensor | None = None) -> tuple[Tensor, list[NTMCell.State]]:
    """Return the outputs (T, B, …) and the state after each step."""
    with torch.no_grad(), cell.record_steps() as steps:
        outputs, _ = Recurrent(lambda _: cell, X)(MaskedInputs(inputs, write))
    return outputs, [step.state for step in steps]


@for_each(
    "options",
    [
        {},
        {"read_heads": 2, "write_heads": 3, "max_shift": 2},
        {"max_shift": 0, "initial_memory": "random"},
        {"initial_memory": "learned", "write_heads": 2},
    ],
)
@for_each("masked", [False, True])
def test_steps_are_the_papers_equations(options: dict[str, Any], masked: bool) -> None:
    cell = randomized(**options)
    inputs = torch.randn(STEPS, BATCH, X).double()
    write = torch.rand(STEPS, BATCH) < 0.5 if masked else None
    outputs, states = recorded(cell, inputs, write)
    for row in range(BATCH):
        allowed = None if write is None else write[:, row].numpy()
        expected = written_out(cell, inputs[:, row].numpy(), allowed)
        weights = [torch.cat([state.read_weights, state.write_weights], dim=1)[row] for state in states]
        actual = outputs[:, row], torch.stack(weights), torch.stack([state.memory[row] for state in states])
        for one, other in zip(actual, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@for_each("scale", [1.0, 100.0])
def test_weightings_are_distributions(scale: float) -> None:
    cell = randomized(read_heads=2)
    with torch.no_grad():
        cell.interface.weight.mul_(scale)
    _, states = recorded(cell, torch.randn(50, BATCH, X).double())
    weights = torch.stack([torch.cat([state.read_weights, state.write_weights], dim=1) for state in states])
    assert weights.min() >= 0
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


def test_sharpening_of_equal_weights_is_finite_in_float32() -> None:
    cell = randomized(slots=128).float()
    with torch.no_grad():
        cell.interface.bias.fill_(30.0)  # γ = 31: 128^−31 is zero in float32
        cell.initial_weights.zero_()
    outputs, _ = Recurrent(lambda _: cell, X)(torch.randn(STEPS, BATCH, X))
    gradients = torch.autograd.grad(outputs.square().sum(), list(cell.parameters()))
    assert all(tensor.isfinite().all() for tensor in (outputs, *gradients))


def test_a_mask_keeps_memory_and_write_heads() -> None:
    cell = randomized()
    inputs = torch.randn(STEPS, BATCH, X).double()
    never = torch.zeros(STEPS, BATCH, dtype=torch.bool)
    _, states = recorded(cell, inputs, never)
    start = cell.init_state(BATCH)
    for state in states:
        assert torch.equal(state.memory, start.memory)
        assert torch.equal(state.write_weights, start.write_weights)
        assert not torch.equal(state.read_weights, start.read_weights)
    for one, other in zip(recorded(cell, inputs, ~never)[1], recorded(cell, inputs)[1], strict=True):
        assert torch.equal(one.memory, other.memory)


def test_gates_and_weightings_equal_the_steps() -> None:
    cell = randomized(read_heads=2)
    inputs = torch.randn(STEPS, BATCH, X).double()
    outputs, states = recorded(cell, inputs)
    gates = cell.gates(outputs)
    assert list(gates) == ["read 1", "read 2", "write"]
    assert all(gate.shape == (STEPS, BATCH) and gate.min() >= 0 and gate.max() <= 1 for gate in gates.values())
    emitted = cell.interface(outputs[..., :N])
    size = WIDTH + 6
    torch.testing.assert_close(gates["write"], emitted[..., 2 * size + WIDTH + 1].sigmoid())
    weights = cell.weightings(outputs[-1], states[-1])
    assert torch.equal(weights["read 2"], states[-1].read_weights[:, 1])
    assert torch.equal(weights["write"], states[-1].write_weights[:, 0])


def test_defaults_are_the_papers() -> None:
    cell = NTMCell(9, 100, controller=Feedforward)
    state = cell.init_state(BATCH)
    assert state.memory.shape == (BATCH, 128, 20)
    assert (state.memory == 1e-6).all()
    assert cell.output_size == 120
    interface = 101 * (2 * 26 + 40)
    assert sum(p.numel() for p in cell.parameters()) == 100 * (9 + 20 + 1) + interface + 20 + 2 * 128
    assert type(NTMCell(9, 100).controller).__name__ == "LSTMCell"


def test_a_random_memory_is_saved_and_not_trained() -> None:
    cell, other = (NTMCell(X, N, slots=SLOTS, initial_memory="random") for _ in range(2))
    assert "initial_values" in cell.state_dict()
    assert "initial_values" not in dict(cell.named_parameters())
    assert not torch.equal(cell.init_state(1).memory, other.init_state(1).memory)
    other.load_state_dict(cell.state_dict())
    assert torch.equal(cell.init_state(1).memory, other.init_state(1).memory)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # read by the compiler itself
def test_compiled_step_equals_the_reference() -> None:
    cell = randomized(read_heads=2)
    inputs, lengths = torch.randn(STEPS, BATCH, X).double(), torch.tensor([STEPS, 3])
    write = torch.rand(STEPS, BATCH) < 0.5
    results = []
    for backend in ("reference", "compile"):
        outputs, (final,) = Recurrent(lambda _: cell, X, backend=backend)(MaskedInputs(inputs, write), None, lengths)
        gradients = torch.autograd.grad(outputs.square().sum() + final.memory.sum(), list(cell.parameters()))
        results.append((outputs, final.memory, *gradients))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


BAD_OPTIONS: list[tuple[str, Any]] = [
    ("input_size", 0),
    ("hidden_size", 0),
    ("slots", 0),
    ("slots", 12.0),
    ("width", 0),
    ("read_heads", 0),
    ("write_heads", 0),
    ("max_shift", -1),
    ("initial_memory", "zeros"),
]


@for_each("given", BAD_OPTIONS)
def test_bad_options_are_refused_in_one_line(given: tuple[str, Any]) -> None:
    name, value = given
    with pytest.raises(OptionError) as caught:
        NTMCell(**{"input_size": X, "hidden_size": N, name: value})
    assert str(caught.value).startswith(f"{name}={value}: must be ")
    assert "\n" not in str(caught.value)


def test_a_controller_has_no_size_and_no_unknown_activation() -> None:
    with pytest.raises(OptionError, match=r"^controller\.hidden_size=7: "):
        NTMCell(X, N, controller=partial(Feedforward, hidden_size=7))
    with pytest.raises(OptionError, match=r"^activation=gelu: .*must be one of relu, tanh$"):
        Feedforward(X, N, activation="gelu")
