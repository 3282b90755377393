"""RUM against the authors' code (golden tensors), against Algorithm 1 written out, and option by option."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import gyral
from gyral.cells.base import HiddenState
from gyral.cells.rum import AssociativeState, RUMCell
from gyral.core.errors import OptionError
from gyral.nn.recurrent import Recurrent
from gyral.ops import rotation
from tests.helpers.loops import for_each

X, N, BATCH, STEPS = 4, 6, 3, 7


def run(cell: RUMCell, inputs: Tensor, state: Any = None) -> tuple[Tensor, Any]:
    """Run the reference loop over (T, B, X)."""
    model = Recurrent(lambda _: cell, cell.input_size, backend="reference").train(cell.training)
    outputs, (final,) = model(inputs, None if state is None else (state,))
    return outputs, final


# ---------------------------------------------------------------- the authors' implementation

GOLDEN = [f"rum_lambda{lambd}_eta{eta}.npz" for lambd in (0, 1) for eta in ("none", "1.0")]
ROWS = {"weight_ih": "W_x_{}", "weight_hh": "W_h_{}", "bias": "b_{}"}


@pytest.mark.parametrize("backend", ["reference", "fused"])
@pytest.mark.parametrize("name", GOLDEN)
def test_agrees_with_the_public_implementation(golden: Path, name: str, backend: str) -> None:
    with np.load(golden / name) as file:
        given = {key: torch.from_numpy(np.asarray(file[key])) for key in file.files}

    def stacked(pattern: str, prefix: str = "") -> Tensor:
        parts = [given.get(prefix + pattern.format(part)) for part in ("target", "gate", "embed")]
        return torch.cat([part.T if part.dim() == 2 else part for part in parts if part is not None])

    eta = given["eta"].item()
    size = given["h0"].shape[1]
    cell = RUMCell(given["x"].shape[2], size, lambd=given["lam"].item(), eta=None if math.isnan(eta) else eta).double()
    if backend == "fused" and cell.fused_unsupported_reason():
        pytest.skip(cell.fused_unsupported_reason())
    cell.load_state_dict({parameter: stacked(pattern) for parameter, pattern in ROWS.items()})
    model = Recurrent(lambda _: cell, cell.input_size, batch_first=True, backend=backend)

    x, h0 = given["x"].requires_grad_(), given["h0"].requires_grad_()
    outputs, _ = model(x, (cell.init_state(len(x))._replace(hidden=h0),))
    # relative to the largest entry: an entry's own size means nothing where terms cancel
    torch.testing.assert_close(outputs, given["outputs"], rtol=0, atol=1e-9 * given["outputs"].abs().max().item())

    (outputs * given["cotangent"]).sum().backward()
    gradients = {"grad_x": x.grad, "grad_h0": h0.grad}
    expected = {key: given[key] for key in gradients}
    for parameter, pattern in ROWS.items():
        gradients[parameter] = getattr(cell, parameter).grad
        expected[parameter] = stacked(pattern, "grad_")
    for key, gradient in gradients.items():
        scale = expected[key].abs().max().item()
        torch.testing.assert_close(gradient, expected[key], rtol=0, atol=1e-7 * scale, msg=lambda m, k=key: f"{k}: {m}")


# ---------------------------------------------------------------- Algorithm 1, row by row, with matrices


def dense_rotation(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Textbook rotation from a to b: projection out of the plane plus the 2-D rotation in it."""
    first = a / np.linalg.norm(a)
    second = b - (first @ b) * first
    second = second / np.linalg.norm(second)
    cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
    sine = math.sqrt(1 - cosine**2)
    basis = np.stack([first, second], axis=1)
    turn = np.array([[cosine, -sine], [sine, cosine]])
    return np.eye(len(a)) - basis @ basis.T + basis @ turn @ basis.T


def matrix_power(matrix: np.ndarray, exponent: float) -> np.ndarray:
    values, vectors = np.linalg.eig(matrix)
    return (vectors @ np.diag(values**exponent) @ np.linalg.inv(vectors)).real


def layer_norm(vector: np.ndarray, norm: torch.nn.Module) -> np.ndarray:
    if isinstance(norm, torch.nn.Identity):
        return vector
    scaled = (vector - vector.mean()) / np.sqrt(vector.var() + norm.eps)
    return scaled * norm.weight.detach().numpy() + norm.bias.detach().numpy()


NUMPY_ACTIVATIONS = {
    "relu": lambda z: np.maximum(z, 0),
    "tanh": np.tanh,
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
    "softsign": lambda z: z / (1 + np.abs(z)),
}


def algorithm_1(cell: RUMCell, inputs: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Run one sequence (T, X) as the paper writes it: hidden vectors (T, N), cos θ (T,) and the last memory (N, N)."""
    size = cell.hidden_size
    weight_x, weight_h, bias = (p.detach().numpy() for p in (cell.weight_ih, cell.weight_hh, cell.bias))
    memory = np.eye(size)
    hidden, cosines = [], []
    for x in inputs:
        target = layer_norm(weight_h[:size] @ h + weight_x[:size] @ x + bias[:size], cell.norm_target)
        embedded = weight_x[-size:] @ x + bias[-size:]
        memory = matrix_power(memory, cell.lambd) @ dense_rotation(embedded, target)
        candidate = layer_norm(embedded + memory @ h, cell.norm_candidate)
        candidate = NUMPY_ACTIVATIONS[cell.activation](candidate)
        if cell.update_gate:
            rows = slice(size, 2 * size)
            gate = layer_norm(weight_h[rows] @ h + weight_x[rows] @ x + bias[rows], cell.norm_gate)
            update = 1 / (1 + np.exp(-gate))
            candidate = update * h + (1 - update) * candidate
        if cell.eta is not None:
            candidate = cell.eta * candidate / np.linalg.norm(candidate)
        h = cell.zoneout * h + (1 - cell.zoneout) * candidate
        hidden.append(h)
        cosines.append(embedded @ target / np.linalg.norm(embedded) / np.linalg.norm(target))
    return np.stack(hidden), np.stack(cosines), memory


OPTION_SETS = [
    {},
    {"lambd": 1.0},
    {"lambd": 0.5},
    {"lambd": -0.4, "activation": "tanh"},
    {"eta": 1.0},
    {"eta": 0.3, "lambd": 1.0, "activation": "softsign"},
    {"activation": "sigmoid", "update_gate": False},
    {"layer_norm": True},
    {"layer_norm": True, "update_gate": False, "lambd": 1.0, "eta": 2.0},
    {"layer_norm": True, "zoneout": 0.3, "activation": "tanh"},
]


@for_each("options", OPTION_SETS)
def test_equals_algorithm_1(options: dict[str, Any]) -> None:
    cell = RUMCell(X, N, **options).double().eval()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    hidden = torch.randn(BATCH, N, dtype=torch.float64)
    with torch.no_grad(), cell.record_cosines() as cosines:
        outputs, final = run(cell, inputs, cell.init_state(BATCH)._replace(hidden=hidden))
    assert len(cosines) == STEPS
    assert all(cosine.shape == (BATCH,) for cosine in cosines)
    recorded = torch.stack(cosines)
    for row in range(BATCH):
        h, cosine, memory = algorithm_1(cell, inputs[:, row].numpy(), hidden[row].numpy())
        np.testing.assert_allclose(outputs[:, row], h, rtol=0, atol=1e-10)
        np.testing.assert_allclose(recorded[:, row], cosine, rtol=0, atol=1e-12)
        if cell.lambd != 0:
            np.testing.assert_allclose(final.memory[row], memory, rtol=0, atol=1e-10)


# ---------------------------------------------------------------- parameters


@for_each("gate", [True, False])
def test_parameter_shapes(gate: bool) -> None:
    rows = 2 if gate else 1
    cell = RUMCell(X, N, update_gate=gate)
    assert {name: tuple(p.shape) for name, p in cell.named_parameters()} == {
        "weight_ih": ((rows + 1) * N, X),
        "weight_hh": (rows * N, N),
        "bias": ((rows + 1) * N,),
    }
    normalized = RUMCell(X, N, update_gate=gate, layer_norm=True)
    norms = ("norm_target", "norm_gate", "norm_candidate") if gate else ("norm_target", "norm_candidate")
    added = {name for name, _ in normalized.named_parameters()} - {name for name, _ in cell.named_parameters()}
    assert added == {f"{norm}.{part}" for norm in norms for part in ("weight", "bias")}


@for_each("gate", [True, False])
@for_each("initialization", ["one_block", "two_block"])
@for_each("given", [(5, 8), (9, 7), (1, 2), (12, 3)])
def test_initialization(initialization: str, given: tuple[int, int], gate: bool) -> None:
    inputs, size = given
    cell = RUMCell(inputs, size, initialization=initialization, update_gate=gate)
    half = size // 2
    blocks = [slice(0, size)] if initialization == "one_block" else [slice(0, half), slice(half, size)]
    kernels = []
    for index in range(2 if gate else 1):
        rows = slice(index * size, (index + 1) * size)
        kernel = torch.cat([cell.weight_ih[rows], cell.weight_hh[rows]], dim=1).T.detach()  # (X + N, N) as in the paper
        kernels.append(kernel)
        for columns in blocks:
            block = kernel[:, columns]
            torch.testing.assert_close(block.T @ block, torch.eye(block.shape[1]), rtol=0, atol=1e-5)
    if initialization == "two_block" and size > 3:
        # the blocks are drawn apart, so that the whole kernel is not orthogonal
        assert (kernels[0].T @ kernels[0] - torch.eye(size)).abs().max() > 1e-2
    if gate:
        assert (kernels[0] - kernels[1]).abs().max() > 1e-2, "target and gate share a draw"

    embedding = cell.weight_ih[-size:].detach()
    if initialization == "one_block":
        bound = math.sqrt(6 / (inputs + size))
        assert embedding.abs().max() <= bound
        if embedding.numel() > 30:
            assert embedding.abs().max() > 0.8 * bound
    else:
        gram = embedding @ embedding.T if size <= inputs else embedding.T @ embedding
        torch.testing.assert_close(gram, torch.eye(min(inputs, size)), rtol=0, atol=1e-5)
    assert cell.bias[:-size].eq(1).all()
    assert cell.bias[-size:].eq(0).all()


@for_each("lambd", [0.0, 1.0])
@for_each("target", [True, False])
@for_each("embedding", [True, False])
def test_frozen_kernels_stay(target: bool, embedding: bool, lambd: float) -> None:
    cell = RUMCell(X, N, lambd=lambd, trainable_target=target, trainable_embedding=embedding)
    before = {name: parameter.detach().clone() for name, parameter in cell.named_parameters()}
    optimizer = torch.optim.RMSprop(cell.parameters(), lr=1e-3, alpha=0.9)
    # what is frozen: rows of each parameter; biases stay trainable
    frozen_input = torch.zeros(3 * N, dtype=torch.bool)
    frozen_input[:N], frozen_input[-N:] = not target, not embedding
    frozen_recurrent = torch.zeros(2 * N, dtype=torch.bool)
    frozen_recurrent[:N] = not target
    frozen = {"weight_ih": frozen_input, "weight_hh": frozen_recurrent, "bias": torch.zeros(3 * N, dtype=torch.bool)}
    for _ in range(3):
        optimizer.zero_grad()
        outputs, _ = run(cell, torch.randn(STEPS, BATCH, X))
        (outputs * torch.randn_like(outputs)).sum().backward()
        for name, rows in frozen.items():
            gradient = getattr(cell, name).grad
            assert gradient[rows].count_nonzero() == 0, name
            assert gradient[~rows].flatten(1).abs().sum(1).gt(0).any() if gradient.dim() > 1 else gradient.any(), name
        optimizer.step()
    for name, rows in frozen.items():
        parameter = getattr(cell, name).detach()
        assert torch.equal(parameter[rows], before[name][rows]), name
        if (~rows).any():
            assert not torch.equal(parameter[~rows], before[name][~rows]), name


def test_freezing_changes_no_output_and_no_other_gradient() -> None:
    free = RUMCell(X, N).double()
    frozen = RUMCell(X, N, trainable_target=False, trainable_embedding=False).double()
    frozen.load_state_dict(free.state_dict())
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64, requires_grad=True)
    cotangent = torch.randn(STEPS, BATCH, N, dtype=torch.float64)
    gradients = []
    for cell in (free, frozen):
        outputs, _ = run(cell, inputs)
        gradients.append(torch.autograd.grad(outputs, (inputs, cell.bias, cell.weight_hh, cell.weight_ih), cotangent))
    torch.testing.assert_close(gradients[0][:2], gradients[1][:2], rtol=0, atol=1e-12)
    torch.testing.assert_close(gradients[0][2][N:], gradients[1][2][N:], rtol=0, atol=1e-12)
    torch.testing.assert_close(gradients[0][3][N:-N], gradients[1][3][N:-N], rtol=0, atol=1e-12)


# ---------------------------------------------------------------- options


@for_each("lambd", [0.0, 1.0])
@for_each("eta", [0.3, 1.0, 7.0])
def test_time_normalization_sets_the_norm(eta: float, lambd: float) -> None:
    cell = RUMCell(X, N, eta=eta, lambd=lambd, activation="tanh").double()
    outputs, final = run(cell, torch.randn(50, BATCH, X, dtype=torch.float64))
    norms = outputs.norm(dim=-1)
    torch.testing.assert_close(norms, torch.full_like(norms, eta), rtol=1e-14, atol=0)
    assert torch.equal(final.hidden, outputs[-1])


def test_time_normalization_of_a_zero_vector_is_zero() -> None:
    cell = RUMCell(X, N, eta=1.0)
    with torch.no_grad():
        cell.weight_ih[-N:] = 0.0
    outputs, _ = run(cell, torch.randn(3, BATCH, X))
    assert outputs.count_nonzero() == 0
    gradients = torch.autograd.grad(outputs.sum(), list(cell.parameters()))
    assert all(gradient.isfinite().all() for gradient in gradients)


@for_each("dtype", [torch.float32, torch.float64])
@for_each("backend", ["reference", "fused"])
@for_each("lambd", [0.0, 1.0])
def test_time_normalization_of_a_small_vector_has_a_bounded_gradient(
    lambd: float, backend: str, dtype: torch.dtype
) -> None:
    """As `tf.nn.l2_normalize` with ε = 10⁻¹² of the authors' code: h / √max(‖h‖², ε)."""
    eta = 2.0
    model = Recurrent(lambda size: RUMCell(size, N, eta=eta, lambd=lambd, update_gate=False, activation="tanh"), X)
    model = model.to(dtype)
    model.requested_backend = backend
    cell = model.cells[0]
    weights = torch.randn(N, dtype=dtype)
    for size in (3e-3, 1e-5, 1e-7, 1e-9, 1e-15):
        with torch.no_grad():
            cell.weight_ih.zero_()
            cell.bias[-N:] = size * F.normalize(torch.linspace(-1, 2, N, dtype=dtype), dim=0)
        outputs, _ = model(torch.zeros(1, 1, X, dtype=dtype))
        (gradient,) = torch.autograd.grad(outputs[0, 0] @ weights, cell.bias)
        given = cell.bias[-N:].detach().double().requires_grad_()
        hidden = given.tanh()
        wanted = eta * hidden * hidden.square().sum().clamp(min=1e-12).rsqrt()
        (expected,) = torch.autograd.grad(wanted @ weights.double(), given)
        torch.testing.assert_close(outputs[0, 0].double(), wanted, rtol=1e-5, atol=0)
        torch.testing.assert_close(gradient[-N:].double(), expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())
        assert gradient.abs().max() <= 1e6 * eta * weights.abs().max()


def test_zoneout_keeps_units_in_training_and_mixes_at_test() -> None:
    probability, rows, size = 0.3, 2000, 10
    plain = RUMCell(X, size, activation="tanh").double()
    cell = RUMCell(X, size, activation="tanh", zoneout=probability).double()
    cell.load_state_dict(plain.state_dict())
    inputs = torch.randn(rows, X, dtype=torch.float64)
    state = HiddenState(torch.randn(rows, size, dtype=torch.float64))
    with torch.no_grad():
        new = plain(inputs, state)[0]
        trained = cell.train()(inputs, state)[0]
        again = cell(inputs, state)[0]
        tested = cell.eval()(inputs, state)[0]
    kept = (trained - state.hidden).abs() <= 1e-14
    torch.testing.assert_close(trained, torch.where(kept, state.hidden, new), rtol=0, atol=1e-14)
    deviation = math.sqrt(probability * (1 - probability) / kept.numel())
    assert abs(kept.double().mean().item() - probability) <= 4 * deviation
    assert not torch.equal(trained, again)
    expectation = probability * state.hidden + (1 - probability) * new
    torch.testing.assert_close(tested, expectation, rtol=0, atol=1e-14)


def test_zoneout_draws_a_new_mask_at_every_step() -> None:
    cell = RUMCell(X, N, zoneout=0.5).train()
    keep = cell.sequence_constants(40, BATCH).zoneout
    assert keep.shape == (40, BATCH, N)
    assert all(not torch.equal(keep[time], keep[time + 1]) for time in range(39))


def test_gate_held_shut_is_no_gate() -> None:
    gated = RUMCell(X, N).double()
    ungated = RUMCell(X, N, update_gate=False).double()
    with torch.no_grad():
        gated.bias[N : 2 * N] = -1e6
        ungated.weight_ih.copy_(torch.cat([gated.weight_ih[:N], gated.weight_ih[-N:]]))
        ungated.weight_hh.copy_(gated.weight_hh[:N])
        ungated.bias.copy_(torch.cat([gated.bias[:N], gated.bias[-N:]]))
        inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
        torch.testing.assert_close(run(gated, inputs)[0], run(ungated, inputs)[0], rtol=0, atol=1e-13)


@for_each("lambd", [0.0, 1.0])
def test_record_cosines(lambd: float) -> None:
    cell = RUMCell(X, N, lambd=lambd).double()
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    with cell.record_cosines() as cosines:
        outputs, _ = run(cell, inputs)
    before = torch.cat([torch.zeros(1, BATCH, N, dtype=torch.float64), outputs[:-1]]).detach()
    target = inputs @ cell.weight_ih[:N].T + before @ cell.weight_hh[:N].T + cell.bias[:N]
    embedded = inputs @ cell.weight_ih[-N:].T + cell.bias[-N:]
    assert len(cosines) == STEPS
    assert all(cosine.shape == (BATCH,) and not cosine.requires_grad for cosine in cosines)
    torch.testing.assert_close(torch.stack(cosines), F.cosine_similarity(embedded, target, dim=-1).detach())
    assert torch.stack(cosines).abs().max() < 1
    assert torch.stack(cosines).std() > 1e-2

    run(cell, inputs)
    assert len(cosines) == STEPS, "recording went on after the context"
    with cell.record_cosines() as second:
        run(cell, inputs[:2])
    assert (len(cosines), len(second)) == (STEPS, 2)


def test_record_cosines_ends_on_an_error_and_gives_one_for_zero_vectors() -> None:
    cell = RUMCell(X, N)
    recorded = []

    def fail_while_recording() -> None:
        with cell.record_cosines() as cosines:
            recorded.append(cosines)
            cell(torch.zeros(BATCH, X))  # W̃ 0 + 0: the embedded input is zero
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail_while_recording()
    cell(torch.zeros(BATCH, X))
    ((cosine,),) = recorded
    assert cosine.eq(1).all()


# ---------------------------------------------------------------- associative memory


def test_memory_stays_a_rotation() -> None:
    size = 50
    cell = RUMCell(X, size, lambd=1.0)
    with torch.no_grad():
        _, final = run(cell, torch.randn(500, 4, X))
    assert isinstance(final, AssociativeState)
    assert final.memory.dtype == torch.float32
    drift = (final.memory.mT @ final.memory - torch.eye(size)).abs().max().item()
    assert drift <= 1e-4
    assert (torch.linalg.det(final.memory.double()) - 1).abs().max() <= 1e-3
    # and has gone somewhere
    assert (final.memory - torch.eye(size)).abs().max() > 0.1


def test_memory_is_the_product_of_the_steps_rotations() -> None:
    cell = RUMCell(X, N, lambd=1.0).double()
    inputs = torch.randn(STEPS, BATCH, X, dtype=torch.float64)
    with torch.no_grad():
        outputs, final = run(cell, inputs)
        before = torch.cat([torch.zeros(1, BATCH, N, dtype=torch.float64), outputs[:-1]])
        target = inputs @ cell.weight_ih[:N].T + before @ cell.weight_hh[:N].T + cell.bias[:N]
        embedded = inputs @ cell.weight_ih[-N:].T + cell.bias[-N:]
        product = torch.eye(N, dtype=torch.float64).expand(BATCH, N, N)
        for time in range(STEPS):
            product = product @ rotation.matrix(embedded[time], target[time])
        torch.testing.assert_close(final.memory, product, rtol=0, atol=1e-13)
        # reversible: R_{t−1} = R_t Rotation(τ_t, ε̃_t)
        for time in reversed(range(STEPS)):
            product = product @ rotation.matrix(target[time], embedded[time])
        torch.testing.assert_close(product, torch.eye(N, dtype=torch.float64).expand_as(product), rtol=0, atol=1e-12)


@for_each("lambd", [1.0, 0.5])
def test_memory_is_part_of_the_state(lambd: float) -> None:
    cell = RUMCell(X, N, lambd=lambd).double()
    inputs = torch.randn(10, BATCH, X, dtype=torch.float64)
    with torch.no_grad():
        whole, final = run(cell, inputs)
        first, middle = run(cell, inputs[:5])
        second, last = run(cell, inputs[5:], middle)
        torch.testing.assert_close(torch.cat([first, second]), whole, rtol=0, atol=1e-13)
        torch.testing.assert_close(last, final, rtol=0, atol=1e-13)
        forgotten = cell.init_state(BATCH)._replace(hidden=middle.hidden)
        assert (run(cell, inputs[5:], forgotten)[0] - second).abs().max() > 1e-3


@for_each("given", [(0, HiddenState), (0.0, HiddenState), (1, AssociativeState)])
def test_state_type_follows_lambda(given: tuple[float, type]) -> None:
    lambd, kind = given
    state = RUMCell(X, N, lambd=lambd).init_state(BATCH)
    assert type(state) is kind
    if kind is AssociativeState:
        assert torch.equal(state.memory, torch.eye(N).expand(BATCH, N, N))
        state.memory[0].zero_()  # rows own their memory
        assert torch.equal(state.memory[1], torch.eye(N))


# ---------------------------------------------------------------- refusals

BAD_OPTIONS: list[tuple[str, Any]] = [
    ("hidden_size", 1),
    ("hidden_size", 0),
    ("hidden_size", 8.0),
    ("hidden_size", "8"),
    ("hidden_size", True),
    ("input_size", 0),
    ("input_size", "4"),
    ("lambd", math.nan),
    ("lambd", math.inf),
    ("lambd", "1"),
    ("lambd", None),
    ("lambd", True),
    ("eta", 0),
    ("eta", 0.0),
    ("eta", -1),
    ("eta", math.inf),
    ("eta", math.nan),
    ("eta", "1.0"),
    ("activation", "swish"),
    ("activation", None),
    ("zoneout", 1.0),
    ("zoneout", -0.1),
    ("zoneout", math.nan),
    ("zoneout", "0.1"),
    ("initialization", "three_block"),
    ("update_gate", "yes"),
    ("update_gate", 1),
    ("trainable_target", None),
    ("trainable_embedding", 0),
    ("layer_norm", "true"),
]


@for_each("given", BAD_OPTIONS)
def test_bad_options_are_refused_in_one_line(given: tuple[str, Any]) -> None:
    name, value = given
    arguments = {"input_size": X, "hidden_size": N, name: value}
    with pytest.raises(OptionError) as caught:
        RUMCell(**arguments)
    message = str(caught.value)
    assert message.startswith(f"{name}={value}: ")
    assert "\n" not in message


def test_unknown_options_are_refused() -> None:
    with pytest.raises(TypeError, match="epsilon"):
        RUMCell(X, N, epsilon=1e-5)


@pytest.mark.parametrize("lambd", [0.0, 1.0])
def test_vectors_whose_squares_overflow_count_as_zero_on_both_backends(lambd: float) -> None:
    """The rotation is then the identity. Their products are infinite, and infinity times zero is no number."""
    layers = [gyral.RUM(3, 8, lambd=lambd, backend=backend) for backend in ("reference", "fused")]
    layers[1].load_state_dict(layers[0].state_dict())
    inputs = 1e20 * torch.randn(12, 4, 3)
    found = []
    for layer in layers:
        given = inputs.clone().requires_grad_()
        outputs, _ = layer(given)
        found.append((outputs, torch.autograd.grad(outputs.sum(), given)[0]))
    assert all(tensor.isfinite().all() for tensor in found[1])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * float(other.detach().abs().max()))


def test_no_graph_records_as_many_memories_as_there_are_starts() -> None:
    for lambd in (0.0, 1.0):
        cell = RUMCell(3, 4, lambd=lambd)
        assert cell.is_fused_recordable(starts=False)
        assert cell.is_fused_recordable(starts=True) == (lambd == 0)
