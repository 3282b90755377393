"""RUM's Triton kernels against the readable loop over `RUMCell.step`: on a GPU, else under Triton's interpreter."""

from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

import numpy as np
import triton
from torch import Tensor
from triton.runtime import interpreter

import gyral.cells.masks
from gyral.cells.rum import AssociativeState, RUMCell
from gyral.nn.recurrent import Recurrent
from gyral.ops import rotation, rum
from gyral.ops.operator import KernelUnavailableError
from gyral.ops.rum.triton import launch

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
# tests/conftest.py asks for the interpreter, which must happen before triton is imported
assert ON_GPU or isinstance(launch.forward_without_memory, interpreter.InterpretedFunction)

EPSILON = torch.finfo(torch.float32).eps
NEARBY = 8  # examples whose float32 loops show how large its error may be


@pytest.fixture(autouse=True)
def mended_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults of the interpreter: loop bounds under numpy ≥ 2.4; products of bfloat16, held as bits; slow calls.

    For every function that a kernel calls, it goes through all of Triton's language again. It describes the types in
    every tuple, too, which only the compiler reads.
    """
    if ON_GPU:
        return
    patch_tensor, create_dot = interpreter._patch_lang_tensor, interpreter.InterpreterBuilder.create_dot
    core = triton.language.core
    patch, language = interpreter._patch_lang, {"tl": triton.language, "core": core}

    def with_index(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    def widen(factor: Any) -> Any:
        if factor.data.dtype != np.uint16:
            return factor
        bits = factor.data.astype(np.uint32) << 16
        return interpreter.TensorHandle(bits.view(np.float32), triton.language.float32)

    def dot(self: Any, a: Any, b: Any, *others: Any) -> Any:
        return create_dot(self, widen(a), widen(b), *others)

    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        return self.rewrite()(*arguments, **options)

    monkeypatch.setattr(interpreter.InterpretedFunction, "__call__", call)
    monkeypatch.setattr(interpreter, "_patch_lang", lambda kernel: patch(SimpleNamespace(__globals__=language)))
    monkeypatch.setattr(interpreter, "_patch_lang_tensor", with_index)
    monkeypatch.setattr(core, "_type_for_tuple_values", lambda values, fields=None: core.tuple_type([], fields))
    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", dot)


@pytest.fixture(autouse=True)
def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make uninitialized memory NaN, so that nothing comes of reading it."""

    def poisoned(make: Any) -> Any:
        def made(*arguments: Any, **options: Any) -> Tensor:
            tensor = make(*arguments, **options)
            return tensor.fill_(float("nan")) if tensor.is_floating_point() else tensor

        return made

    for owner, name in ((torch, "empty"), (torch, "empty_like"), (Tensor, "new_empty")):
        monkeypatch.setattr(owner, name, poisoned(getattr(owner, name)))


class Case(NamedTuple):
    """A size and the options of the cell; `keep` is "none", "mask" or "probability"."""

    size: int = 11
    batch: int = 3
    steps: int = 4
    lambd: float = 0.0
    activation: str = "relu"
    update_gate: bool = True
    eta: float | None = None
    layer_norm: bool = False
    keep: str = "none"
    ragged: bool = False
    resets: bool = False
    epsilon: float = 1e-5

    def __str__(self) -> str:
        return " ".join(
            f"{name}={value}" for name, value in self._asdict().items() if value != self._field_defaults[name]
        )


class Example(NamedTuple):
    """Numbers for a case, float64 with float32 values; cotangents of outputs, hidden state and memory."""

    parts: Tensor
    weight: Tensor
    hidden: Tensor
    memory: Tensor
    norms: Tensor
    mask: Tensor
    lengths: Tensor
    starts: Tensor
    cotangents: tuple[Tensor, Tensor, Tensor]


def example(case: Case) -> Example:
    size, batch, steps, parts_count = case.size, case.batch, case.steps, 3 if case.update_gate else 2

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape).double()

    a, b = draw(batch, size), draw(batch, size)
    norms = draw(3, 2, size)
    norms[:, 0] = 1 + 0.3 * norms[:, 0]
    lengths = torch.randint(1, steps + 1, (batch,))
    lengths[0] = 1
    lengths[-1] = steps
    return Example(
        parts=draw(steps, batch, parts_count, size),
        weight=(draw((parts_count - 1) * size, size) / size**0.5).float().double(),
        hidden=0.5 * draw(batch, size),
        memory=rotation.matrix(a, b).float().double(),
        norms=norms.float().double(),
        mask=(torch.rand(steps, batch, size) < 0.4).double(),
        lengths=lengths,
        starts=torch.rand(steps, batch) < 0.4,
        cotangents=(draw(steps, batch, size), draw(batch, size), draw(batch, size, size)),
    )


def by_reference(case: Case, given: Example, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    """Run the cell's loop; with the identity for its input weights the inputs are the kernel's parts."""
    size, width = case.size, given.parts.shape[2] * case.size
    cell = partial(
        RUMCell,
        hidden_size=size,
        lambd=case.lambd,
        eta=case.eta,
        activation=case.activation,
        update_gate=case.update_gate,
        layer_norm=case.layer_norm,
        layer_norm_eps=case.epsilon,
        zoneout=0.0 if case.keep == "none" else 0.3,
        initialization="one_block",
    )
    # orthogonal initial weights are slow to draw, and replaced at once
    monkeypatch.setattr(RUMCell, "reset_parameters", lambda self: None)
    model = Recurrent(cell, width, backend="reference").to(dtype).train(case.keep == "mask")
    cell = model.cells[0]
    norms = [cell.norm_target, cell.norm_gate, cell.norm_candidate]
    norms = [norm for norm in norms if isinstance(norm, torch.nn.LayerNorm)]
    with torch.no_grad():
        cell.weight_ih.copy_(torch.eye(width))
        cell.weight_hh.copy_(given.weight)
        cell.bias.zero_()
        for norm, values in zip(norms, used_norms(case, given.norms), strict=True):
            norm.weight.copy_(values[0])
            norm.bias.copy_(values[1])
    monkeypatch.setattr(gyral.cells.masks, "bernoulli_mask", lambda like, probability: given.mask.to(dtype))

    inputs = given.parts.flatten(2).to(dtype).requires_grad_()
    hidden, memory = given.hidden.to(dtype).requires_grad_(), given.memory.to(dtype).requires_grad_()
    state = type(cell.init_state(1))(*([hidden] if case.lambd == 0 else [hidden, memory]))
    with cell.record_cosines() as cosines:
        starts = given.starts if case.resets else None
        outputs, (final,) = model(inputs, (state,), given.lengths if case.ragged else None, starts)
    values = [outputs, *final]
    wanted = [inputs, cell.bias, *state, *(parameter for norm in norms for parameter in norm.parameters())]
    cotangents = [given.cotangents[index].to(dtype) for index in range(len(values))]
    gradients = torch.autograd.grad(values, wanted, cotangents, materialize_grads=True)
    results = {"outputs": outputs, "hidden": final.hidden, "cosines": torch.stack(cosines)}
    results |= {"d parts": gradients[0], "d bias": gradients[1], "d hidden": gradients[2]}
    if isinstance(final, AssociativeState):
        results |= {"memory": final.memory, "d memory": gradients[3]}
    if norms:
        results["d norms"] = torch.stack(gradients[-2 * len(norms) :])
    return compared(case, given, results)


def by_kernel(case: Case, given: Example, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Run the kernels, `dtype` being that of the factors of products; the inputs are the parts, as in the loop."""
    batch, size, width = case.batch, case.size, given.parts.shape[2] * case.size
    a = rum.OPERATOR.Arguments(
        x=given.parts.flatten(2).float().to(DEVICE),
        w_ih=torch.eye(width, device=DEVICE),
        w_hh=given.weight.float().to(DEVICE),
        b=torch.zeros(width, device=DEVICE),
        h0=given.hidden.float().to(DEVICE),
        memory=given.memory.float().to(DEVICE) if case.lambd == 1 else None,
        norms=given.norms.float().to(DEVICE) if case.layer_norm else None,
        keep={"none": None, "mask": given.mask.float().to(DEVICE), "probability": torch.tensor(0.3)}[case.keep],
        lengths=given.lengths.to(DEVICE) if case.ragged else None,
        starts=given.starts.to(DEVICE) if case.resets else None,
        activation=case.activation,
        eta=case.eta,
        epsilon=case.epsilon,
        product_dtype=None if dtype == torch.float32 else dtype,
    )
    tensors = [value for value in a if isinstance(value, Tensor)]
    before = [tensor.clone() for tensor in tensors]
    found, saved = launch.forward(a)
    values = [tensor if tensor is None else tensor.clone() for tensor in found]
    cotangents: list[Tensor | None] = [cotangent.float().to(DEVICE) for cotangent in given.cotangents]
    if case.lambd == 0:
        cotangents[2] = None
    gradients = launch.backward(a, found, saved, [*cotangents, None], {"x": True})
    # only what forward has saved may be overwritten
    assert all(torch.equal(*pair) for pair in zip(before, tensors, strict=True))
    assert all(torch.equal(*pair) for pair in zip(values[:2], found[:2], strict=True))
    results = {"outputs": values[0], "hidden": values[1], "cosines": values[3]}
    results |= {"d parts": saved[0], "d bias": gradients["b"], "d hidden": gradients["h0"]}
    assert gradients["w_hh"].shape == a.w_hh.shape
    assert gradients["x"].shape == (case.steps, batch, width)
    if case.lambd == 1:
        results |= {"memory": values[2], "d memory": gradients["memory"]}
    if case.layer_norm:
        results["d norms"] = used_norms(case, gradients["norms"])
        assert case.update_gate or not gradients["norms"][1].any()
    return compared(
        case, given, {name: tensor.view(-1, size) if name == "d bias" else tensor for name, tensor in results.items()}
    )


def used_norms(case: Case, norms: Tensor) -> Tensor:
    if not case.layer_norm:
        return norms[:0]
    return norms if case.update_gate else norms[[0, 2]]


def compared(case: Case, given: Example, results: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the results in float64 on the CPU, each in one shape, without what is undefined."""
    results = {name: tensor.detach().double().cpu() for name, tensor in results.items()}
    if case.ragged:
        beyond = torch.arange(case.steps)[:, None] >= given.lengths
        results["cosines"] = results["cosines"].masked_fill(beyond, 0.0)
        assert not results["outputs"][beyond].any()
        assert not results["d parts"][beyond].any()
    return {name: tensor.reshape(-1) for name, tensor in results.items()}


def perturbed(given: Example) -> Example:
    """Return the example with a relative change of one float32 rounding, up or down, in every random number."""

    def change(tensor: Tensor) -> Tensor:
        changed = tensor * (1 + EPSILON * (torch.randint(0, 2, tensor.shape) - 0.5) * 4)
        return changed.float().double()

    return given._replace(parts=change(given.parts), weight=change(given.weight), hidden=change(given.hidden))


def check(
    case: Case,
    given: Example,
    monkeypatch: pytest.MonkeyPatch,
    dtype: torch.dtype = torch.float32,
    is_generic: bool = False,
) -> dict[str, Tensor]:
    """Compare the kernel with the loop in float64; return the results of the kernel.

    The error of each tensor must be at most twice the larger of these:

    * the error of the float32 loop. For generic inputs (`is_generic`), it is the largest of several nearby examples,
      because the error on one of them depends on how one processor rounds. Inputs that are exactly parallel or zero are
      not generic: a nearby example would be another problem;
    * one rounding of the tensor, or of the terms that it is a sum of.

    The factor is four for gradients through the associative memory: the kernel rebuilds R_{t−1} from a rounded R_t,
    whereas the loop has stored it. It is four on a GPU, too, whose exponential and division are not rounded correctly.
    """
    truth = by_reference(case, given, torch.float64, monkeypatch)
    plain = by_reference(case, given, torch.float32, monkeypatch)
    kernel = by_kernel(case, given, dtype)
    loops = [(plain, truth)]
    for _ in range(NEARBY * is_generic):
        nearby = perturbed(given)
        loops.append(tuple(by_reference(case, nearby, each, monkeypatch) for each in (torch.float32, torch.float64)))
    assert kernel.keys() == truth.keys()
    summed = {"d bias": truth["d parts"], "cosines": torch.ones_like(truth["cosines"])}
    for name, exact in truth.items():
        factor = 4 if ON_GPU or (case.lambd == 1 and name.startswith("d ")) else 2
        rounding = EPSILON * summed.get(name, exact).norm().item()
        error = (kernel[name] - exact).norm().item()
        usual = max((found[name] - wanted[name]).norm().item() for found, wanted in loops)
        allowed = factor * max(usual, rounding)
        assert error <= allowed, f"{name}: error {error:.1e}, loop's {usual:.1e}, rounding {rounding:.1e}"
    return kernel


SIZES = [
    Case(2, 1, 1),
    Case(2, 31, 3),
    Case(31, 31, 2),
    Case(63, 1, 3),
    Case(100, 17, 2),
    Case(500, 1, 2),
    Case(2, 1, 1, lambd=1.0),
    Case(3, 5, 1, lambd=1.0),
    Case(31, 2, 2, lambd=1.0),
    Case(100, 1, 4, lambd=1.0),
    pytest.param(Case(500, 1, 2, lambd=1.0), marks=pytest.mark.slow),  # more tiles than 100 has
]
CHOICES: list[dict[str, Any]] = [
    {"activation": "tanh", "eta": 0.7},
    {"activation": "sigmoid", "keep": "mask"},
    {"activation": "softsign", "update_gate": False},
    {"layer_norm": True},
    {"layer_norm": True, "update_gate": False, "eta": 1.5, "keep": "probability"},
    {"layer_norm": True, "activation": "tanh", "eta": 1.0, "keep": "mask", "ragged": True},
    {"ragged": True},
    {"layer_norm": True, "epsilon": 0.1, "resets": True, "ragged": True, "keep": "mask"},
]
CHOSEN = [Case(steps=3, **choice) for choice in CHOICES]
CHOSEN += [Case(batch=3 if choice.get("ragged") else 2, steps=3, lambd=1.0, **choice) for choice in CHOICES]


@pytest.mark.named(
    "size=63 batch=1 steps=3",
    "size=2 batch=1 steps=1 lambd=1.0",
    "size=31 batch=2 steps=2 lambd=1.0",
    "steps=3 activation=softsign update_gate=False",
    "steps=3 layer_norm=True",
    "batch=2 steps=3 lambd=1.0 update_gate=False eta=1.5 layer_norm=True keep=probability",
)
@pytest.mark.parametrize("case", SIZES + CHOSEN, ids=str)
def test_kernels_equal_the_loop(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    check(case, example(case), monkeypatch, is_generic=True)


@pytest.mark.parametrize("precision", ["resident", "streamed"])
def test_weights_on_chip_and_streamed(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    size = 1000 if precision == "resident" else 0
    monkeypatch.setattr(launch, "RESIDENT_SIZE", dict.fromkeys(launch.RESIDENT_SIZE, size))
    monkeypatch.setattr(launch, "TILE", 512)  # so that the rows of a program run in blocks where they are streamed
    for case in (
        Case(33, 17, 2, ragged=True, resets=True),
        Case(20, 2, 2, update_gate=False) if precision == "resident" else Case(40, 2, 2, layer_norm=True, eta=1.0),
    ):
        check(case, example(case), monkeypatch, is_generic=True)


@pytest.mark.skipif(not ON_GPU, reason="the interpreter has one thread")
@pytest.mark.parametrize("lambd", [0.0, 1.0])
@pytest.mark.parametrize("size", [3, 12, 31, 50, 64])
def test_threads_that_hold_the_same_element_do_not_race(
    size: int, lambd: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(size, 64, 40, lambd=lambd)
    given = example(case)
    expected = by_kernel(case, given)
    for _ in range(3):
        found = by_kernel(case, given)
        assert all(torch.equal(found[name], expected[name]) for name in expected if name not in ("d bias",))
    settings = launch._settings
    monkeypatch.setattr(launch, "_settings", lambda *given: settings(*given) | {"num_warps": 1})
    alone = by_kernel(case, given)  # a single warp runs in step
    for name in ("outputs", "hidden"):
        assert (expected[name] - alone[name]).norm() <= 1e-4 * alone[name].norm(), name


# the kernels for both λ call the same function; those for λ = 1 run one program per sequence, slowly when interpreted
SAMPLED = {0.0: [0.0, 1e-4, 2.2, torch.pi - 1e-5, torch.pi], 1.0: [2.2, torch.pi]}
ANGLES = [0.0, 1e-4, 2.0, 2.2, 3.0, torch.pi - 1e-3, torch.pi - 1e-5, torch.pi]


@pytest.mark.parametrize(
    ("angle", "lambd"),
    [
        pytest.param(angle, lambd, marks=[] if angle in sampled else pytest.mark.slow)
        for lambd, sampled in SAMPLED.items()
        for angle in ANGLES
    ],
)
def test_angles(angle: float, lambd: float, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(7, 16 if lambd == 0 else 3, 1, lambd=lambd, activation="tanh")
    given = example(case)
    given.weight.zero_()
    target, _, embedded = given.parts.unbind(2)
    source = rotation.direction(embedded)
    other = torch.randn(target.shape).double()
    other = rotation.direction(other - rotation.dot(other, source.unit) * source.unit).unit
    turned = torch.cos(torch.tensor(angle)) * source.unit + torch.sin(torch.tensor(angle)) * other
    # at 0 and π the very same direction, in any precision
    exact = {0.0: 2.0, torch.pi: -2.0}
    target.copy_(exact[angle] * embedded if angle in exact else (1.7 * turned).float().double())
    check(case, given, monkeypatch, is_generic=angle not in exact)


@pytest.mark.named("0.0-*", "*-0.0")
@pytest.mark.parametrize("lambd", [0.0, 1.0])
@pytest.mark.parametrize("scale", [0.0, 1e-30])
def test_zero_vectors(scale: float, lambd: float, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(12, 4, 2, lambd=lambd, eta=1.0)
    given = example(case)
    given.weight[: case.size].zero_()
    given.parts[:, 0, 0] *= scale  # no target
    given.parts[:, 1, 2] *= scale  # no embedded input
    given.parts[:, 2, 0] *= scale  # neither
    given.parts[:, 2, 2] *= scale
    given.hidden[3] = 0.0
    kernel = check(case, given, monkeypatch)
    assert torch.equal(kernel["cosines"].view(2, 4)[:, :3], torch.ones(2, 3).double())
    assert not kernel["d parts"].view(2, 4, 3, 12)[:, :3, 0].any()


def test_nothing_at_all() -> None:
    case = Case(5, 1, 2, eta=1.0)
    zeros = Example(*(torch.zeros_like(tensor) for tensor in example(case)[:-1]), cotangents=example(case).cotangents)
    for lambd in (0.0, 1.0):
        results = by_kernel(case._replace(lambd=lambd), zeros)
        assert not results["outputs"].any()
        assert not results["d parts"].any()
        assert all(tensor.isfinite().all() for tensor in results.values())


def test_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "CHECKPOINT_EVERY", 2)
    monkeypatch.setattr(launch, "TILE", 32)  # several tiles, here of 4 rows
    case = Case(5, 2, 5, lambd=1.0, ragged=True, resets=True)
    check(case, example(case), monkeypatch, is_generic=True)
    # they are in use: without them no gradient comes before the last of them
    forward = launch.forward

    def forgetful(arguments: Any) -> Any:
        results, saved = forward(arguments)
        assert saved[-1].shape == (2, 1, case.size, case.size)
        assert not saved[-1].isnan().any()
        saved[-1].fill_(float("nan"))
        return results, saved

    monkeypatch.setattr(launch, "forward", forgetful)
    case = case._replace(batch=1, ragged=False, resets=False)
    gradients = by_kernel(case, example(case))["d parts"].view(case.steps, -1)
    assert gradients[:3].isnan().any()
    assert gradients[4:].isfinite().all()


@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11)])
def test_half_precision(dtype: torch.dtype, bound: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts and weights of half precision, where only the recurrent products' factors are rounded to it."""
    others = [Case(150, 1, 2, activation="tanh"), Case(9, 1, 2, lambd=1.0)]
    for case in (Case(20, 3, 3, activation="tanh"), *(others if dtype == torch.bfloat16 else [])):
        given = example(case)
        given = given._replace(parts=given.parts.to(dtype).double(), weight=given.weight.to(dtype).double())
        if case.lambd == 1:  # a matrix times a vector, in float32 throughout
            check(case, given, monkeypatch, dtype)
            continue
        truth = by_reference(case, given, torch.float64, monkeypatch)
        for name, tensor in by_kernel(case, given, dtype).items():
            error = (tensor - truth[name]).norm() / truth[name].norm()
            # 2 or 3 steps, each of which rounds the state and, backward, the gradient
            assert error <= 4 * bound, f"{case}: {name}: {error:.1e}"


def test_a_probe_reports_whether_the_kernels_run(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device(DEVICE)
    launch._probe.cache_clear()
    launch.prepare(device)

    def fail(*_: Any) -> None:
        raise RuntimeError("out of resources\nand more")

    launch._probe.cache_clear()
    monkeypatch.setattr(launch, "backward", fail)
    with pytest.raises(KernelUnavailableError, match=f"do not run on {DEVICE}: RuntimeError: out of resources$"):
        launch.prepare(device)
    launch._probe.cache_clear()
