"""uRNN, full-capacity uRNN, EURNN and GORU against their formulas with dense matrices, and what keeps them unitary."""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gyral.cells.base import HiddenState, RecurrentCell
from gyral.cells.eurnn import EURNNCell
from gyral.cells.full_urnn import FullURNNCell
from gyral.cells.goru import GORUCell
from gyral.cells.unitary import EUNN, UnitaryCell, apply_eunn
from gyral.cells.urnn import URNNCell
from gyral.core.errors import OptionError
from gyral.figures.landscape import phases_of
from gyral.nn.recurrent import Recurrent
from gyral.ops import unitary
from tests.helpers.loops import for_each
from tests.ops.test_unitary import (
    dense_dft,
    dense_exponential,
    dense_permutation,
    dense_phase,
    dense_reflection,
    dense_rotations,
    fft_pairs,
    tunable_pairs,
)

X, N, BATCH, STEPS = 4, 7, 3, 5


class Kind(NamedTuple):
    """A cell with options."""

    cell: type[RecurrentCell]
    options: dict[str, Any]

    def __str__(self) -> str:
        return " ".join([self.cell.__name__, *(f"{name}={value}" for name, value in self.options.items())])

    def make(self, input_size: int = X, hidden_size: int = N, **options: Any) -> Any:
        return self.cell(input_size, hidden_size, **self.options, **options)

    @property
    def is_complex(self) -> bool:
        return self.cell is not GORUCell and self.options.get("is_complex", True)


KINDS = [
    Kind(URNNCell, {}),
    Kind(FullURNNCell, {}),
    *(
        Kind(EURNNCell, {"capacity": capacity, "is_complex": is_complex})
        for capacity in (1, 2, 7, "fft")
        for is_complex in (True, False)
    ),
    *(Kind(GORUCell, {"capacity": capacity}) for capacity in (2, 7, "fft")),
]
COMPLEX = [kind for kind in KINDS if kind.is_complex]
EUNNS = [kind for kind in KINDS if "capacity" in kind.options]
FAMILIES = [Kind(URNNCell, {}), Kind(FullURNNCell, {}), Kind(EURNNCell, {}), Kind(GORUCell, {})]

every_kind = pytest.mark.parametrize("kind", KINDS, ids=str)
every_family = for_each("kind", FAMILIES)


def numbers(parameter: Tensor) -> np.ndarray:
    return parameter.detach().numpy()


def randomized(cell: Any) -> Any:
    """Return the cell in float64 with every parameter moved, that none is zero or one."""
    cell.double()
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
    return cell


def run(cell: RecurrentCell, inputs: Tensor, hidden: Tensor, backend: str = "reference") -> Tensor:
    model = Recurrent(lambda _: cell, cell.input_size, backend=backend).train(cell.training)
    return model(inputs, (HiddenState(hidden),))[0]


# ---------------------------------------------------------------- formulas, with W dense


def pairs_of(eunn: EUNN, capacity: int | str, size: int) -> list[list[tuple[int, int]]]:
    pairs = fft_pairs(size) if capacity == "fft" else tunable_pairs(size, int(capacity))
    assert eunn.theta.shape == (sum(map(len, pairs)),)
    return pairs


def dense_eunn(eunn: EUNN, capacity: int | str, size: int) -> np.ndarray:
    pairs = pairs_of(eunn, capacity, size)
    if eunn.omega is None:
        return dense_rotations(size, pairs, numbers(eunn.theta), None).real
    return dense_phase(numbers(eunn.omega)) @ dense_rotations(size, pairs, numbers(eunn.theta), numbers(eunn.phi))


def dense_matrix(cell: Any, kind: Kind) -> np.ndarray:
    """Return the cell's unitary matrix, which acts on columns."""
    if isinstance(cell, URNNCell):
        first, second, third = (dense_phase(angles) for angles in numbers(cell.angles))
        reflect_1, reflect_2 = (dense_reflection(real + 1j * imaginary) for real, imaginary in numbers(cell.axes))
        dft = dense_dft(cell.hidden_size)
        permutation = dense_permutation(cell.permutation.numpy())
        return third @ reflect_2 @ dft.conj().T @ second @ permutation @ reflect_1 @ dft @ first
    if isinstance(cell, FullURNNCell):
        return dense_exponential(numbers(cell.generator))
    return dense_eunn(cell.eunn, kind.options.get("capacity", 2), cell.hidden_size)


def modrelu(z: np.ndarray, bias: np.ndarray) -> np.ndarray:
    return np.maximum(np.abs(z) + bias, 0) * z / np.abs(z)


def sigmoid(z: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-z))


def unitary_step(cell: UnitaryCell, matrix: np.ndarray, x: np.ndarray, old: np.ndarray, entering: np.ndarray) -> Any:
    """h_t = modReLU(W h_{t−1} + V x_t; b) of one row; `entering` is h_{t−1} after dropout."""
    size, kernel, bias = cell.hidden_size, numbers(cell.weight_ih), numbers(cell.bias)
    if not cell.is_complex:
        return modrelu(matrix @ entering + kernel @ x, bias)
    new = matrix @ (entering[:size] + 1j * entering[size:]) + (kernel[:size] + 1j * kernel[size:]) @ x
    new = modrelu(new, bias)
    return np.concatenate([new.real, new.imag])


def goru_step(cell: GORUCell, matrix: np.ndarray, x: np.ndarray, old: np.ndarray, entering: np.ndarray) -> np.ndarray:
    size = cell.hidden_size
    u_reset, u_update, u_candidate = np.split(numbers(cell.weight_ih), 3)
    w_reset, w_update = np.split(numbers(cell.weight_hh), 2)
    b_reset, b_update, b_candidate = np.split(numbers(cell.bias), 3)
    before = [w_reset @ entering + u_reset @ x + b_reset, w_update @ entering + u_update @ x + b_update]
    if not isinstance(cell.norm_gates, nn.Identity):
        gains, biases = numbers(cell.norm_gates.weight), numbers(cell.norm_gates.bias)
        before = [
            (gate - gate.mean()) / np.sqrt(gate.var() + 1e-5) * gain + bias
            for gate, gain, bias in zip(before, gains, biases, strict=True)
        ]
    reset, update = (sigmoid(gate) for gate in before)
    candidate = modrelu(reset * (matrix @ entering) + u_candidate @ x, b_candidate)
    assert candidate.shape == (size,)
    return update * old + (1 - update) * candidate


def written_out(kind: Kind, cell: Any, inputs: Tensor, hidden: Tensor, mask: Tensor | None = None) -> np.ndarray:
    """Run the formulas row by row; `mask` (B, ·) multiplies the hidden vector where it enters the recurrent weights."""
    matrix = dense_matrix(cell, kind)
    step: Callable[..., np.ndarray] = goru_step if kind.cell is GORUCell else unitary_step
    outputs = np.zeros((*inputs.shape[:2], hidden.shape[1]))
    for row in range(inputs.shape[1]):
        h = hidden[row].numpy()
        for time in range(len(inputs)):
            entering = h if mask is None else h * mask[row].numpy()
            h = (1 - cell.zoneout) * step(cell, matrix, inputs[time, row].numpy(), h, entering) + cell.zoneout * h
            outputs[time, row] = h
    return outputs


def random_run(cell: RecurrentCell) -> tuple[Tensor, Tensor]:
    """Return inputs (T, B, X) and a hidden vector."""
    width = cell.init_state(1).hidden.shape[1]
    return torch.randn(STEPS, BATCH, X, dtype=torch.float64), torch.randn(BATCH, width, dtype=torch.float64)


@every_kind
def test_equals_the_formula(kind: Kind) -> None:
    for zoneout in (0.0, 0.3):
        cell = randomized(kind.make(zoneout=zoneout)).eval()
        inputs, hidden = random_run(cell)
        expected = written_out(kind, cell, inputs, hidden)
        with torch.no_grad():
            np.testing.assert_allclose(run(cell, inputs, hidden), expected, rtol=0, atol=1e-12)
            if cell.fused_unsupported_reason() is None:
                np.testing.assert_allclose(run(cell, inputs, hidden, "fused"), expected, rtol=0, atol=1e-12)


def test_goru_with_layer_norm_equals_the_formula() -> None:
    kind = Kind(GORUCell, {"capacity": "fft", "layer_norm": True})
    cell = randomized(kind.make()).eval()
    inputs, hidden = random_run(cell)
    for backend in ("reference", "fused"):
        with torch.no_grad():
            outputs = run(cell, inputs, hidden, backend)
        np.testing.assert_allclose(outputs, written_out(kind, cell, inputs, hidden), rtol=0, atol=1e-12)


@for_each("size", [1, 2, 5, 8, 13])
@every_family
def test_equals_the_formula_at_odd_and_even_sizes(kind: Kind, size: int) -> None:
    for capacity in (1, size, "fft") if kind.cell in (EURNNCell, GORUCell) else (None,):
        options = {} if capacity is None else {"capacity": capacity}
        sized = Kind(kind.cell, options)
        cell = randomized(sized.make(hidden_size=size)).eval()
        inputs, hidden = random_run(cell)
        with torch.no_grad():
            outputs = run(cell, inputs, hidden)
        np.testing.assert_allclose(outputs, written_out(sized, cell, inputs, hidden), rtol=0, atol=1e-12)


@every_kind
def test_matrix_is_the_operator(kind: Kind) -> None:
    cell = randomized(kind.make())
    if isinstance(cell, UnitaryCell):
        matrix = cell.matrix().detach()
        np.testing.assert_allclose(matrix, dense_matrix(cell, kind), rtol=0, atol=1e-13)
        vectors = torch.randn(BATCH, N, dtype=matrix.dtype)
        applied = cell.apply_operator(cell.operator(), vectors).detach()
    else:
        matrix = torch.from_numpy(dense_matrix(cell, kind))
        vectors = torch.randn(BATCH, N, dtype=matrix.dtype)
        applied = apply_eunn(cell.eunn(), vectors).detach()
    torch.testing.assert_close(applied, vectors @ matrix.T, rtol=0, atol=1e-13)
    torch.testing.assert_close(matrix.mH @ matrix, torch.eye(N, dtype=matrix.dtype), rtol=0, atol=1e-13)


@for_each("kind", EUNNS)
def test_a_unit_without_partner_passes_through(kind: Kind) -> None:
    size = 9
    cell = Kind(kind.cell, kind.options | {"capacity": 1}).make(hidden_size=size).double()
    single = torch.zeros(size, dtype=torch.complex128 if kind.is_complex else torch.float64)
    single[-1] = 1.0
    rotated = apply_eunn(cell.eunn(), single).detach()
    last = rotated[-1].clone()
    rotated[-1] = 0.0
    assert rotated.count_nonzero() == 0
    assert last == (torch.polar(torch.ones(1).double(), cell.eunn.omega.detach()[-1:]) if kind.is_complex else 1.0)


# ---------------------------------------------------------------- parameters


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@for_each("given", [(4, 7), (3, 8), (1, 1), (2, 16), (10, 100)])
def test_parameter_counts(given: tuple[int, int]) -> None:
    x, n = given
    assert count(URNNCell(x, n)) == 2 * n * x + n + 7 * n
    assert count(FullURNNCell(x, n)) == 2 * n * x + n + n * n
    assert FullURNNCell(x, n).generator.numel() == n * n
    for capacity in {1, min(2, n), n, "fft"}:
        if capacity == "fft":
            strides = [2**k for k in range(math.ceil(math.log2(n)))]
            pairs = sum((i // s) % 2 == 0 and i + s < n for s in strides for i in range(n))
        else:
            odd, even = (capacity + 1) // 2, capacity // 2
            pairs = odd * (n // 2) + even * ((n - 1) // 2)
        assert count(EURNNCell(x, n, capacity=capacity)) == 2 * n * x + n + 2 * pairs + n
        assert count(EURNNCell(x, n, capacity=capacity, is_complex=False)) == n * x + n + pairs
        assert count(GORUCell(x, n, capacity=capacity)) == 3 * n * x + 2 * n * n + 3 * n + pairs
        assert count(GORUCell(x, n, capacity=capacity, layer_norm=True)) == 3 * n * x + 2 * n * n + 7 * n + pairs


def test_full_capacity_has_the_dimension_of_the_group() -> None:
    n = 10  # U(N) has N² dimensions, SO(N) N (N − 1) / 2
    assert count(EUNN(n, n, is_complex=True)) == n * n
    assert count(EUNN(n, n, is_complex=False)) == n * (n - 1) // 2


def assert_uniform(values: Tensor, bound: float) -> None:
    """Range, mean, variance and quarters of a uniform distribution in ±bound."""
    values = values.detach().flatten().double() / bound
    total = len(values)
    assert values.abs().max() <= 1
    assert abs(values.mean()) <= 4 / math.sqrt(3 * total)
    assert abs(values.square().mean() - 1 / 3) <= 4 * math.sqrt(4 / 45 / total)
    quarters = torch.histc(values, 4, -1, 1) / total
    assert (quarters - 0.25).abs().max() <= 4 * math.sqrt(3 / 16 / total)


def test_angles_start_uniform_in_pi() -> None:
    size = 600
    assert_uniform(URNNCell(X, size).angles, math.pi)
    for options in ({"capacity": 2}, {"capacity": "fft"}, {"is_complex": False}):
        cell = EURNNCell(X, size, **options)
        assert len(phases_of(cell)) == (1 if "is_complex" in options else 3)
        for angles in phases_of(cell):
            assert_uniform(angles, math.pi)
    assert_uniform(GORUCell(X, size).eunn.theta, math.pi)
    # of the full matrix the eigenvalues' angles
    eigenvalues = torch.linalg.eigvals(FullURNNCell(X, 100).matrix().detach().to(torch.complex128))
    torch.testing.assert_close(eigenvalues.abs(), torch.ones(100).double(), rtol=0, atol=1e-5)
    assert_uniform(eigenvalues.angle(), math.pi)


def test_the_full_matrix_starts_with_eigenvectors_that_prefer_no_unit() -> None:
    _, vectors = torch.linalg.eig(FullURNNCell(X, 100).matrix().detach().to(torch.complex128))
    fourth = vectors.abs().pow(4).mean().item() * 100**2  # 2 for complex Gaussian entries, 100 for unit vectors
    assert 1.8 < fourth < 2.2


@for_each("kind", [kind for kind in FAMILIES if kind.cell is not GORUCell])
def test_input_kernel_is_xavier_uniform_and_bias_zero(kind: Kind) -> None:
    cell = kind.make(input_size=60, hidden_size=90)
    assert_uniform(cell.weight_ih, math.sqrt(6 / (60 + 180)))
    assert cell.bias.count_nonzero() == 0
    real = EURNNCell(60, 90, is_complex=False)
    assert_uniform(real.weight_ih, math.sqrt(6 / (60 + 90)))


def test_urnn_draws_its_axes_and_permutation() -> None:
    cell = URNNCell(X, 500)
    assert_uniform(cell.axes, 1.0)
    assert cell.permutation.sort().values.tolist() == list(range(500))
    assert not torch.equal(cell.permutation, URNNCell(X, 500).permutation)
    assert "permutation" in cell.state_dict()


def test_goru_initialization() -> None:
    cell = GORUCell(40, 60)
    assert_uniform(cell.weight_ih, 0.01)
    assert_uniform(cell.weight_hh, 0.01)
    assert cell.bias.tolist() == [2.0] * 60 + [0.0] * 60 + [2.0] * 60


# ---------------------------------------------------------------- the matrix in the kernels


@for_each("given", [(1, 16), (2, 32), (2, 100), (3, 64), ("fft", 512)])
def test_few_layers_of_an_eurnn_stay_layers(given: tuple[int | str, int]) -> None:
    capacity, size = given
    cell = EURNNCell(X, size, capacity=capacity).double()
    weight, partner = cell.recurrent_weight()
    assert partner is not None
    vectors = torch.randn(3, size, dtype=torch.complex128)
    own, other = torch.complex(*weight.chunk(2, dim=-1))
    product = unitary.rotate(vectors, unitary.Rotations(own, other, partner))
    torch.testing.assert_close(product, vectors @ cell.matrix().T)


@for_each("given", [(2, 31), (3, 32), (64, 64), ("fft", 1), ("fft", 64)])
def test_many_layers_of_an_eurnn_become_a_matrix(given: tuple[int | str, int]) -> None:
    capacity, size = given
    weight, partner = EURNNCell(X, size, capacity=capacity).recurrent_weight()
    assert partner is None
    assert weight.shape == (2 * size, 2 * size)


# ---------------------------------------------------------------- the phases


@every_kind
def test_phases_are_parameters_that_turn_the_outputs(kind: Kind) -> None:
    cell = kind.make().double()
    inputs, hidden = random_run(cell)
    parameters = {id(parameter) for parameter in cell.parameters()}
    assert phases_of(cell)
    for index, angles in enumerate(phases_of(cell)):
        assert id(angles) in parameters
        before = run(cell, inputs, hidden).detach()
        with torch.no_grad():
            angles[...] += 0.5
        assert (run(cell, inputs, hidden) - before).abs().max() > 1e-3, f"phases()[{index}] does nothing"
        with torch.no_grad():
            phases_of(cell)[index].sub_(0.5)
        torch.testing.assert_close(run(cell, inputs, hidden).detach(), before, rtol=0, atol=1e-12)


@for_each("kind", [kind for kind in KINDS if kind.cell is not FullURNNCell])
def test_phases_are_angles(kind: Kind) -> None:
    cell = kind.make().double()
    inputs, hidden = random_run(cell)
    before = run(cell, inputs, hidden).detach()
    with torch.no_grad():
        for angles in phases_of(cell):
            angles += 2 * math.pi
    torch.testing.assert_close(run(cell, inputs, hidden).detach(), before, rtol=0, atol=1e-12)


# ---------------------------------------------------------------- masks


@for_each("kind", COMPLEX)
def test_masks_treat_complex_units_as_one(kind: Kind) -> None:
    cell = kind.make(zoneout=0.4, recurrent_dropout=0.3).train()
    masks = cell.sequence_constants(6, BATCH).masks
    assert masks.zoneout.shape == (6, BATCH, 2 * N)
    assert masks.recurrent_dropout.value.shape == (BATCH, 2 * N)
    for mask in (masks.zoneout, masks.recurrent_dropout.value):
        real, imaginary = mask.chunk(2, dim=-1)
        assert torch.equal(real, imaginary)
        assert real.unique().numel() == 2


@every_kind
def test_zoneout_keeps_whole_units(kind: Kind) -> None:
    rows, probability = 400, 0.3
    plain, cell = (kind.make(zoneout=p).double().train() for p in (0.0, probability))
    cell.load_state_dict(plain.state_dict())
    inputs = torch.randn(rows, X, dtype=torch.float64)
    state = HiddenState(torch.randn(rows, cell.output_size, dtype=torch.float64))
    with torch.no_grad():
        new, zoned = plain(inputs, state)[0], cell(inputs, state)[0]
    # a GORU gate may hold an old value, too, but not to the last bit in a whole row
    kept = (zoned - state.hidden).abs() <= 1e-14
    torch.testing.assert_close(zoned, torch.where(kept, state.hidden, new), rtol=0, atol=1e-14)
    units = kept.unflatten(-1, (-1, N))
    assert torch.equal(units.all(1), units.any(1))
    deviation = math.sqrt(probability * (1 - probability) / (rows * N))
    assert abs(units.all(1).double().mean().item() - probability) <= 4 * deviation


@every_kind
def test_zoneout_of_the_fused_path_is_the_references(kind: Kind) -> None:
    cell = randomized(kind.make(zoneout=0.4)).train()
    if cell.fused_unsupported_reason():
        pytest.skip(cell.fused_unsupported_reason())
    inputs, hidden = random_run(cell)
    results = []
    for backend in ("reference", "fused"):
        torch.manual_seed(5)
        outputs = run(cell, inputs, hidden.requires_grad_(), backend)
        cotangent = torch.linspace(-1, 1, outputs.numel(), dtype=torch.float64).view_as(outputs)
        results.append((outputs, *torch.autograd.grad(outputs, (hidden, *cell.parameters()), cotangent)))
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=1e-11)


@every_kind
def test_recurrent_dropout_has_one_mask_for_all_steps(kind: Kind) -> None:
    probability = 0.4
    cell = randomized(kind.make(recurrent_dropout=probability)).train()
    inputs, hidden = random_run(cell)
    torch.manual_seed(3)
    mask = cell.sequence_constants(STEPS, BATCH).masks.recurrent_dropout.value
    assert mask.shape == hidden.shape
    assert sorted(mask.unique().tolist()) == [0.0, pytest.approx(1 / (1 - probability))]
    torch.manual_seed(3)
    with torch.no_grad():
        outputs = run(cell, inputs, hidden)
    np.testing.assert_allclose(outputs, written_out(kind, cell, inputs, hidden, mask), rtol=0, atol=1e-12)
    # none at test
    assert cell.eval().sequence_constants(STEPS, BATCH).masks.recurrent_dropout is None


# ---------------------------------------------------------------- unitary, whatever the optimizer does

OPTIMIZERS: dict[str, Callable[[Iterator[Tensor]], torch.optim.Optimizer]] = {
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=1e-2, alpha=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-2),
}


def operator_of(cell: Any) -> tuple[list[nn.Parameter], Callable[[Tensor], Tensor]]:
    """Return the parameters of the cell's unitary matrix alone, and its product with vectors."""
    if isinstance(cell, GORUCell):
        return list(cell.eunn.parameters()), lambda vectors: apply_eunn(cell.eunn(), vectors)
    parameters = [p for name, p in cell.named_parameters() if name not in ("weight_ih", "bias")]
    return parameters, lambda vectors: cell.apply_operator(cell.operator(), vectors)


def train_operator(cell: Any, optimizer_name: str, steps: int) -> float:
    """Take steps towards images that change at every step; return ‖W*W − I‖₂ of the float32 matrix."""
    size = cell.hidden_size
    parameters, apply = operator_of(cell)
    before = [parameter.detach().clone() for parameter in parameters]
    optimizer = OPTIMIZERS[optimizer_name](iter(parameters))
    dtype = torch.complex64 if getattr(cell, "is_complex", False) else torch.float32
    for _ in range(steps):
        vectors, images = torch.randn(2, 4, size, dtype=dtype)
        optimizer.zero_grad()
        (apply(vectors) - images).abs().square().sum().backward()
        optimizer.step()
    moved = [(parameter - old).abs().max() for parameter, old in zip(parameters, before, strict=True)]
    assert min(moved) > 0.05, "otherwise nothing is proven"
    with torch.no_grad():
        matrix = unitary.rows(apply, size, torch.zeros(1, dtype=dtype)).to(torch.complex128)
    return torch.linalg.matrix_norm(matrix.mH @ matrix - torch.eye(size), ord=2).item()


TRAINED = [
    Kind(URNNCell, {}),
    Kind(FullURNNCell, {}),
    Kind(EURNNCell, {"capacity": 2}),
    Kind(EURNNCell, {"capacity": "fft", "is_complex": False}),
    Kind(GORUCell, {"capacity": 2}),
]


@pytest.mark.named("*-100-rmsprop")
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("steps", [100, 500])
@pytest.mark.parametrize("kind", TRAINED, ids=str)
def test_the_matrix_stays_unitary_through_hundreds_of_steps(kind: Kind, steps: int, optimizer: str) -> None:
    assert train_operator(kind.make(hidden_size=16), optimizer, steps) <= 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "size"),
    [
        (Kind(URNNCell, {}), 100),
        (Kind(FullURNNCell, {}), 32),  # at 100 a step takes 15 ms
        (Kind(EURNNCell, {"capacity": 2}), 100),
        (Kind(EURNNCell, {"capacity": "fft"}), 100),
        (Kind(GORUCell, {"capacity": "fft"}), 100),
    ],
    ids=str,
)
def test_the_matrix_stays_unitary_through_10000_steps(kind: Kind, size: int) -> None:
    assert train_operator(kind.make(hidden_size=size), "rmsprop", 10_000) <= 1e-5


# ---------------------------------------------------------------- refusals


@for_each("value", [0, -1, N + 1, 1000, 2.0, True, None, "full", "FFT", "2", ""])
@for_each("cell", [EURNNCell, GORUCell])
def test_capacities_out_of_range_are_refused_in_one_line(cell: type[RecurrentCell], value: Any) -> None:
    with pytest.raises(OptionError) as caught:
        cell(X, N, capacity=value)
    message = str(caught.value)
    assert message.startswith(f"capacity={value}: ")
    assert f"from 1 to {N}" in message
    assert "\n" not in message


BAD_OPTIONS: list[tuple[type[RecurrentCell], str, Any]] = [
    *(
        (kind.cell, name, value)
        for kind in FAMILIES
        for name, values in {
            "input_size": (0, "4", 2.0),
            "hidden_size": (0, -1, 8.0, True),
            "zoneout": (1.0, -0.1, "0.1"),
            "recurrent_dropout": (1.0, -0.1, math.nan),
        }.items()
        for value in values
    ),
    (EURNNCell, "is_complex", "yes"),
    (EURNNCell, "is_complex", 1),
    (GORUCell, "layer_norm", None),
]


@for_each("given", BAD_OPTIONS)
def test_bad_options_are_refused_in_one_line(given: tuple[type[RecurrentCell], str, Any]) -> None:
    cell, name, value = given
    arguments = {"input_size": X, "hidden_size": N, name: value}
    with pytest.raises(OptionError) as caught:
        cell(**arguments)
    message = str(caught.value)
    assert message.startswith(f"{name}={value}: ")
    assert "\n" not in message
