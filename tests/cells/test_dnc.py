"""DNC: steps written again slot by slot in numpy from the paper's equations, invariants, masks, what is refused."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gyral.cells.dnc import DNCCell
from gyral.cells.feedforward import Feedforward
from gyral.cells.inputs import MaskedInputs
from gyral.core.errors import OptionError
from gyral.nn.recurrent import Recurrent
from gyral.ops.addressing import allocation_weighting
from tests.helpers.loops import for_each

X, N, SLOTS, WIDTH, HEADS, BATCH, STEPS = 3, 5, 6, 2, 2, 2, 9


def sigmoid(values: Any) -> Any:
    return 1 / (1 + np.exp(-values))


def oneplus(value: float) -> float:
    return 1 + math.log(1 + math.exp(value))


def softmax(values: Any) -> np.ndarray:
    powers = np.exp(np.asarray(values))
    return powers / powers.sum()


def similar(memory: np.ndarray, key: np.ndarray, strength: float) -> np.ndarray:
    cosines = [key @ slot / math.sqrt((key @ key + 1e-6) * (slot @ slot + 1e-6)) for slot in memory]
    return softmax(oneplus(strength) * np.array(cosines))


def allocate(usage: np.ndarray) -> np.ndarray:
    """Return the allocation weighting, a slot at a time from the least used one."""
    raised = [1e-6 + (1 - 1e-6) * used for used in usage]
    found, product = np.zeros(len(usage)), 1.0
    for slot in sorted(range(len(usage)), key=lambda slot: raised[slot]):
        found[slot] = (1 - raised[slot]) * product
        product *= raised[slot]
    return found


def written_out(cell: DNCCell, inputs: np.ndarray, allowed: np.ndarray | None) -> list[dict[str, np.ndarray]]:
    """Return the outputs and states of one row (T, X) by name, with a feedforward controller."""
    own = {name: parameter.detach().numpy() for name, parameter in cell.named_parameters()}
    slots, width, heads = cell.slots, cell.width, cell.heads
    read_vector, memory, links = np.zeros(heads * width), np.zeros((slots, width)), np.zeros((slots, slots))
    usage, precedence, write = np.zeros(slots), np.zeros(slots), np.zeros(slots)
    reads = np.zeros((heads, slots))
    found = []
    for time, x in enumerate(inputs):
        hidden = np.tanh(
            own["controller.linear.weight"] @ np.concatenate([x, read_vector]) + own["controller.linear.bias"]
        )
        rest = own["interface.weight"] @ hidden + own["interface.bias"]
        taken = []
        for size in (heads * width, heads, width, 1, width, width, heads, 1, 1, 3 * heads):
            taken.append(rest[:size])
            rest = rest[size:]
        assert len(rest) == 0
        read_keys, read_strengths, key, (strength,), erase, vector, free, (allocating,), (writing,), modes = taken

        retention = np.ones(slots)
        for head in range(heads):
            retention *= 1 - sigmoid(free[head]) * reads[head]
        usage = (usage + write - usage * write) * retention
        allocation = sigmoid(allocating)
        content = similar(memory, key, strength)
        write = sigmoid(writing) * (allocation * allocate(usage) + (1 - allocation) * content)
        if allowed is not None and not allowed[time]:
            write = np.zeros(slots)
        memory = memory * (1 - np.outer(write, sigmoid(erase))) + np.outer(write, vector)
        before, links = links, np.zeros((slots, slots))
        for i in range(slots):
            for j in range(slots):
                if i != j:
                    links[i, j] = (1 - write[i] - write[j]) * before[i, j] + write[i] * precedence[j]
        precedence = (1 - write.sum()) * precedence + write
        for head in range(heads):
            backward, by_content, forward = softmax(modes[3 * head : 3 * head + 3])
            content = similar(memory, read_keys[head * width : (head + 1) * width], read_strengths[head])
            reads[head] = backward * links.T @ reads[head] + by_content * content + forward * links @ reads[head]
        read_vector = np.concatenate([memory.T @ weights for weights in reads])
        state = {"read_vector": read_vector, "read_weights": reads.copy(), "write_weights": write, "usage": usage}
        state |= {"precedence": precedence, "links": links, "memory": memory}
        found.append({"output": np.concatenate([hidden, read_vector]), **state})
    return found


def randomized(scale: float = 4.0, **options: Any) -> DNCCell:
    """Return a cell with a feedforward controller, in float64, whose heads do something at each step."""
    torch.manual_seed(0)
    sizes = {"slots": SLOTS, "width": WIDTH, "read_heads": HEADS}
    cell = DNCCell(X, N, **{"controller": Feedforward, **sizes, **options}).double()
    with torch.no_grad():
        cell.interface.weight.mul_(scale)
    return cell


def recorded(cell: DNCCell, inputs: Tensor, write: Tensor | None = None) -> tuple[Tensor, list[DNCCell.State]]:
    """Return the outputs (T, B, …) and the state after each step."""
    with torch.no_grad(), cell.record_steps() as steps:
        outputs, _ = Recurrent(lambda _: cell, X)(MaskedInputs(inputs, write))
    return outputs, [step.state for step in steps]


@for_each("heads", [1, 3])
@for_each("masked", [False, True])
def test_steps_are_the_papers_equations(heads: int, masked: bool) -> None:
    cell = randomized(read_heads=heads)
    inputs = torch.randn(STEPS, BATCH, X).double()
    write = torch.rand(STEPS, BATCH) < 0.5 if masked else None
    outputs, states = recorded(cell, inputs, write)
    for row in range(BATCH):
        expected = written_out(cell, inputs[:, row].numpy(), None if write is None else write[:, row].numpy())
        for output, state, right in zip(outputs[:, row], states, expected, strict=True):
            np.testing.assert_allclose(output, right.pop("output"), rtol=1e-11, atol=1e-12)
            for name, value in right.items():
                np.testing.assert_allclose(getattr(state, name)[row], value, rtol=1e-11, atol=1e-12, err_msg=name)


@for_each("scale", [1.0, 20.0, 500.0])
def test_invariants(scale: float) -> None:
    cell = randomized(scale)
    _, states = recorded(cell, 2 * torch.randn(60, BATCH, X).double())
    slack = 1 + 1e-9
    for state in states:
        weights = torch.cat([state.read_weights, state.write_weights.unsqueeze(1)], dim=1)
        for share in (weights, state.usage, state.precedence, state.links):
            assert share.min() >= -1e-12
            assert share.max() <= slack
        for total in (weights.sum(-1), state.precedence.sum(-1), state.links.sum(-1), state.links.sum(-2)):
            assert total.max() <= slack
        assert not state.links.diagonal(dim1=1, dim2=2).any()


def test_the_least_used_slot_is_allocated_first() -> None:
    usage = torch.tensor(
        [[0.9, 0.2, 0.5, 0.0], [0.3, 0.3, 0.3, 0.3], [1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]]
    ).double()
    found = allocation_weighting(usage)
    np.testing.assert_allclose(found, [allocate(row) for row in usage.numpy()], atol=1e-15)
    assert found[0].argsort(descending=True).tolist() == [3, 1, 2, 0]
    assert found[0, 3] == pytest.approx(1, abs=1e-5)
    assert found[1].argsort(descending=True).tolist() == [0, 1, 2, 3]  # equal: in order
    assert not found[2].any()  # full: nothing to allocate
    assert found.sum(-1).max() <= 1


def test_free_slots_are_written_in_turn_and_linked_in_that_order() -> None:
    cell = randomized()
    with torch.no_grad():
        cell.interface.weight.zero_()
        bias = cell.memory.split(cell.interface.bias.fill_(0))
        bias.free.fill_(-50)
        bias.allocation_gate.fill_(50)
        bias.write_gate.fill_(50)
    _, states = recorded(cell, torch.zeros(SLOTS, 1, X).double())
    order = [state.write_weights.argmax().item() for state in states]
    assert sorted(order) == list(range(SLOTS))
    expected = np.zeros((SLOTS, SLOTS))
    expected[order[1:], order[:-1]] = 1
    np.testing.assert_allclose(states[-1].links[0], expected, atol=1e-4)
    np.testing.assert_allclose(states[-1].precedence[0], np.eye(SLOTS)[order[-1]], atol=1e-4)


def test_a_mask_keeps_memory_links_and_precedence() -> None:
    cell = randomized()
    inputs = torch.randn(STEPS, BATCH, X).double()
    write = torch.arange(STEPS).unsqueeze(1).expand(-1, BATCH) < 4
    _, states = recorded(cell, inputs, write)
    for state in states[4:]:
        for name in ("memory", "links", "precedence"):
            assert torch.equal(getattr(state, name), getattr(states[3], name))
        assert not state.write_weights.any()
    for state in recorded(cell, inputs, torch.zeros_like(write))[1]:
        assert not any(leaf.any() for leaf in (state.memory, state.links, state.precedence, state.usage))
    for one, other in zip(recorded(cell, inputs, torch.ones_like(write))[1], recorded(cell, inputs)[1], strict=True):
        assert torch.equal(one.memory, other.memory)


def test_gates_and_weightings_equal_the_steps() -> None:
    cell = randomized()
    outputs, states = recorded(cell, torch.randn(STEPS, BATCH, X).double())
    gates = cell.gates(outputs)
    assert all(gate.shape == (STEPS, BATCH) and gate.min() >= 0 and gate.max() <= 1 for gate in gates.values())
    assert list(gates)[:3] == ["write", "allocation", "free 1"]
    modes = sum(gates[f"read 2 {mode}"] for mode in ("backward", "content", "forward"))
    torch.testing.assert_close(modes, torch.ones_like(modes))
    assert (torch.stack([state.write_weights.sum(-1) for state in states]) <= gates["write"] + 1e-12).all()
    weights = cell.weightings(outputs[-1], states[-1])
    assert torch.equal(weights["read 2"], states[-1].read_weights[:, 1])
    assert torch.equal(weights["write"], states[-1].write_weights)


def test_gradients_are_finite_at_the_beginning_and_parameters_are_counted() -> None:
    cell = DNCCell(6, 64)  # the repeat copy task of google-deepmind/dnc
    outputs, _ = Recurrent(lambda _: cell, 6)(torch.zeros(3, BATCH, 6))
    gradients = torch.autograd.grad(outputs.square().sum(), list(cell.parameters()), materialize_grads=True)
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert cell.output_size == 64 + 4 * 16
    rows = 4 * 16 + 3 * 16 + 5 * 4 + 3
    assert cell.interface.weight.shape == (rows, 64)
    assert sum(p.numel() for p in cell.parameters()) == 4 * 64 * (6 + 64 + 64) + 8 * 64 + rows * 65


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # read by the compiler itself
def test_compiled_step_equals_the_reference() -> None:
    cell = randomized()
    inputs, lengths = torch.randn(STEPS, BATCH, X).double(), torch.tensor([STEPS, 3])
    write = torch.rand(STEPS, BATCH) < 0.5
    results = []
    for backend in ("reference", "compile"):
        outputs, (final,) = Recurrent(lambda _: cell, X, backend=backend)(MaskedInputs(inputs, write), None, lengths)
        gradients = torch.autograd.grad(outputs.square().sum() + final.memory.sum(), list(cell.parameters()))
        results.append((outputs, final.memory, *gradients))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@for_each(
    "given", [("input_size", 0), ("hidden_size", 0), ("slots", 0), ("width", 0), ("width", 2.5), ("read_heads", 0)]
)
def test_bad_options_are_refused_in_one_line(given: tuple[str, Any]) -> None:
    name, value = given
    with pytest.raises(OptionError) as caught:
        DNCCell(**{"input_size": X, "hidden_size": N, name: value})
    assert str(caught.value).startswith(f"{name}={value}: must be ")
    assert "\n" not in str(caught.value)


def test_the_equations_of_the_code_have_other_strengths_a_clipped_state_and_no_gradient_through_the_usage() -> None:
    paper, code = randomized(), randomized(equations="code")
    inputs = torch.randn(STEPS, BATCH, X).double()
    strengths = [*range(HEADS * WIDTH, HEADS * WIDTH + HEADS), HEADS * WIDTH + HEADS + WIDTH]  # rows of the interface
    with torch.no_grad():
        for cell, bias in ((paper, 1.0), (code, math.log(math.expm1(oneplus(1.0))))):
            cell.interface.weight[strengths] = 0
            cell.interface.bias[strengths] = bias
    outputs = [recorded(cell, inputs)[0] for cell in (paper, code)]
    torch.testing.assert_close(*outputs)  # strengths are the same number by either function

    gradients = []
    for cell in (paper, code):
        state = cell.init_state(BATCH)
        state = state._replace(write_weights=torch.full_like(state.write_weights, 0.3).requires_grad_())
        usage = cell.memory.usage(type(cell.memory.shapes)(*state[2:]), torch.full((BATCH, HEADS, 1), 0.5).double())
        gradients.append(usage.requires_grad)
    assert gradients == [True, False]

    cell = DNCCell(X, N, controller=Feedforward, equations="code").double()
    cell.controller.activation = "relu"
    outputs, _ = recorded(cell, 1e4 * inputs)
    assert outputs[..., :N].abs().max() <= 20
    assert cell.fused_unsupported_reason() == "equations=code has no fused path within DNCCell"
