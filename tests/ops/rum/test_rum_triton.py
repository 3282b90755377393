"""RUM's Triton kernels against the loop in plain torch: on a GPU, else under Triton's interpreter."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need triton")

from torch import Tensor
from torch.utils._pytree import tree_map_only
from triton.runtime import interpreter

from gyral.ops import rotation, rum
from gyral.ops.rum import triton as triton_kernels
from gyral.ops.rum.triton import launch
from tests.helpers.triton import DEVICE, ON_GPU, kernels_of
from tests.ops.contract import Case, Named, assert_close
from tests.ops.rum.test_rum import CONTRACT

# tests/conftest.py asks for the interpreter, which must happen before triton is imported
assert ON_GPU or isinstance(launch.forward_one_row, interpreter.InterpretedFunction)

EPSILON = torch.finfo(torch.float32).eps
COSINES = "result 1"
NEARBY = 8  # examples whose float32 loops show how large its error may be


@pytest.fixture(autouse=True)
def kernels() -> Iterator[None]:
    """Have the operator run these kernels, on the CPU, too, with uninitialized memory of NaN: nothing may read it."""
    with kernels_of(rum.OPERATOR):
        yield


def make(
    size: int = 11, batch: int = 3, steps: int = 4, ragged: bool = False, resets: bool = False, **kind: Any
) -> Case:
    """Return the arguments of a size and a kind, with float32 values in float64.

    The inputs are the parts: the input weights are the identity. They and the recurrent weights have no gradient here,
    since products of torch compute it.
    """
    width = (3 if kind.get("update_gate", True) else 2) * size
    case = CONTRACT.case((steps, batch, width, size), {"keep": "none", **kind}, ragged, resets)
    if ragged:
        case.options["lengths"][[0, -1]] = torch.tensor([1, steps])
    case.tensors["h0"] *= 0.5
    case.tensors["b"].zero_()
    case.tensors = {name: tensor.float().double() for name, tensor in case.tensors.items()}
    weight = case.tensors.pop("w_hh").float().double()
    del case.tensors["w_ih"]
    case.options |= {"w_ih": torch.eye(width, dtype=torch.float64), "w_hh": weight}
    return case


def parts_of(case: Case) -> Tensor:
    """Return a view of the inputs, (T, B, G, N): target, update gate and embedded input."""
    return case.tensors["x"].unflatten(2, (-1, case.sizes[3]))


def run(**given: Any) -> Any:
    """Run the kernels on their device, and return the results on the CPU."""
    on_device = {
        name: value.to(DEVICE) if isinstance(value, Tensor) and value.dim() > 0 else value
        for name, value in given.items()
    }
    return tree_map_only(Tensor, Tensor.cpu, CONTRACT.run(**on_device))


def by_kernel(case: Case, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Run the kernels, `dtype` being that of the factors of products."""
    before = {name: tensor.clone() for name, tensor in case.tensors.items()}
    with torch.autocast(DEVICE, dtype, enabled=dtype != torch.float32):
        found = case.results(run, torch.float32)
    assert_close(case.tensors, before, 0.0)
    if case.options["lengths"] is not None:
        assert not found["result 0"][case.beyond].any()
        assert not found["gradient of x"][case.beyond].any()
    return found


def by_reference(case: Case, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    return case.results(CONTRACT.plain, dtype)


def perturbed(case: Case) -> Case:
    """Return the case with a relative change of one float32 rounding, up or down, in every random number."""

    def change(tensor: Tensor) -> Tensor:
        changed = tensor * (1 + EPSILON * (torch.randint(0, 2, tensor.shape) - 0.5) * 4)
        return changed.float().double()

    nearby = copy.copy(case)
    nearby.tensors = case.tensors | {name: change(case.tensors[name]) for name in ("x", "h0")}
    nearby.options = case.options | {"w_hh": change(case.options["w_hh"])}
    return nearby


def check(case: Case, dtype: torch.dtype = torch.float32, is_generic: bool = False) -> dict[str, Tensor]:
    """Compare the kernel with the loop in float64; return the results of the kernel.

    The error of each tensor must be at most twice the larger of these:

    * the error of the float32 loop. For generic inputs (`is_generic`), it is the largest of several nearby examples,
      because the error on one of them depends on how one processor rounds. Inputs that are exactly parallel or zero are
      not generic: a nearby example would be another problem;
    * one rounding of the tensor, or of the terms that it is a sum of.

    The factor is four for gradients through the associative memory: the kernel rebuilds R_{t−1} from a rounded R_t,
    whereas the loop has stored it. It is four on a GPU, too, whose exponential and division are not rounded correctly.
    """
    truth, kernel = by_reference(case), by_kernel(case, dtype)
    loops = [(by_reference(case, torch.float32), truth)]
    for _ in range(NEARBY * is_generic):
        nearby = perturbed(case)
        loops.append((by_reference(nearby, torch.float32), by_reference(nearby)))
    summed = {"gradient of b": truth["gradient of x"], COSINES: torch.ones_like(truth[COSINES])}
    for name, exact in truth.items():
        factor = 4 if ON_GPU or ("memory" in case.tensors and name.startswith("gradient")) else 2
        rounding = EPSILON * summed.get(name, exact).norm().item()
        error = (kernel[name] - exact).norm().item()
        usual = max((found[name] - wanted[name]).norm().item() for found, wanted in loops)
        message = f"{name}: error {error:.1e}, loop's {usual:.1e}, rounding {rounding:.1e}: {case}"
        if name == "gradient of x" and dtype != torch.float32:  # a product with the input weights in half precision
            rounding = torch.finfo(dtype).eps * exact.norm().item()
        assert error <= factor * max(usual, rounding), message
    return kernel


SIZES: dict[str, Named] = {
    f"size={size} batch={batch} steps={steps} lambd={lambd}": {
        "size": size,
        "batch": batch,
        "steps": steps,
        "lambd": lambd,
    }
    for lambd, sizes in (
        (0.0, ((2, 1, 1), (2, 31, 3), (31, 31, 2), (63, 1, 3), (100, 17, 2), (260, 1, 1))),
        (1.0, ((2, 1, 1), (3, 5, 1), (31, 2, 2), (100, 1, 2), (130, 1, 1))),  # also a memory that is not on chip
    )
    for size, batch, steps in sizes
}
CHOICES: list[Named] = [
    {"activation": "tanh", "eta": 0.7},
    {"activation": "sigmoid", "keep": "mask"},
    {"activation": "softsign", "update_gate": False},
    {"layer_norm": True},
    {"layer_norm": True, "update_gate": False, "eta": 1.5, "keep": "mean"},
    {"layer_norm": True, "activation": "tanh", "eta": 1.0, "keep": "mask", "ragged": True},
    {"ragged": True},
    {"layer_norm": True, "epsilon": 0.1, "resets": True, "ragged": True, "keep": "mask"},
]
CHOSEN = {
    f"choice={index} lambd={lambd}": {
        "batch": 3 if choice.get("ragged") else 2,
        "steps": 3,
        "lambd": lambd,
        **choice,
    }
    for lambd in (0.0, 1.0)
    for index, choice in enumerate(CHOICES)
}


@pytest.mark.named(
    "size=63 batch=1 steps=3 lambd=0.0",
    "size=2 batch=1 steps=1 lambd=1.0",
    "size=31 batch=2 steps=2 lambd=1.0",
    "choice=2 lambd=0.0",
    "choice=3 lambd=0.0",
    "choice=4 lambd=1.0",
)
@pytest.mark.parametrize("given", SIZES | CHOSEN)
def test_kernels_equal_the_loop(given: str) -> None:
    check(make(**(SIZES | CHOSEN)[given]), is_generic=True)


def test_small_sizes_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "ON_CHIP", 0)
    monkeypatch.setattr(launch, "TILE", 1024)  # so that the rows of a program run in several blocks
    check(make(33, 17, 2, ragged=True, resets=True), is_generic=True)
    check(make(20, 2, 2, layer_norm=True, eta=1.0, update_gate=False), is_generic=True)


@pytest.mark.skipif(not ON_GPU, reason="the interpreter has one thread")
@pytest.mark.parametrize("lambd", [0.0, 1.0])
@pytest.mark.parametrize("size", [3, 12, 31, 50, 64, 140])
def test_threads_that_hold_the_same_element_do_not_race(
    size: int, lambd: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = make(size, 64, 40, lambd=lambd)
    expected = by_kernel(case)
    for _ in range(3):
        found = by_kernel(case)
        assert all(torch.equal(found[name], expected[name]) for name in expected if name != "gradient of b")
    settings = launch._settings

    def one_warp(*given: Any) -> Any:
        rows, fixed = settings(*given)
        return rows, fixed | {"num_warps": 1}

    monkeypatch.setattr(launch, "_settings", one_warp)
    alone = by_kernel(case)  # a single warp runs in step
    for name in ("result 0", "result 2"):
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
def test_angles(angle: float, lambd: float) -> None:
    case = make(7, 16 if lambd == 0 else 3, 1, lambd=lambd, activation="tanh")
    case.options["w_hh"].zero_()
    target, _, embedded = parts_of(case).unbind(2)
    source = rotation.direction(embedded)
    other = torch.randn(target.shape).double()
    other = rotation.direction(other - rotation.dot(other, source.unit) * source.unit).unit
    turned = torch.cos(torch.tensor(angle)) * source.unit + torch.sin(torch.tensor(angle)) * other
    # at 0 and π the very same direction, in any precision
    exact = {0.0: 2.0, torch.pi: -2.0}
    target.copy_(exact[angle] * embedded if angle in exact else (1.7 * turned).float().double())
    check(case, is_generic=angle not in exact)


@pytest.mark.named("0.0-*", "*-0.0")
@pytest.mark.parametrize("lambd", [0.0, 1.0])
@pytest.mark.parametrize("scale", [0.0, 1e-30])
def test_zero_vectors(scale: float, lambd: float) -> None:
    case = make(12, 4, 2, lambd=lambd, eta=1.0)
    case.options["w_hh"][:12].zero_()
    parts = parts_of(case)
    parts[:, 0, 0] *= scale  # no target
    parts[:, 1, 2] *= scale  # no embedded input
    parts[:, 2, 0] *= scale  # neither
    parts[:, 2, 2] *= scale
    case.tensors["h0"][3] = 0.0
    kernel = check(case)
    assert torch.equal(kernel[COSINES][:, :3], torch.ones(2, 3).double())
    assert not kernel["gradient of x"].view(2, 4, 3, 12)[:, :3, 0].any()


def test_nothing_at_all() -> None:
    for lambd in (0.0, 1.0):
        case = make(5, 1, 2, lambd=lambd, eta=1.0)
        for tensor in (*case.tensors.values(), case.options["w_hh"]):
            tensor.zero_()
        results = by_kernel(case)
        assert not results["result 0"].any()
        assert not results["gradient of x"].any()
        assert all(tensor.isfinite().all() for tensor in results.values())


@pytest.mark.parametrize("on_chip", [True, False])
def test_checkpoints(on_chip: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "CHECKPOINT_EVERY", 2)
    if not on_chip:
        monkeypatch.setattr(launch, "ON_CHIP", 0)
        monkeypatch.setattr(launch, "TILE", 64)  # several tiles, here of 4 rows
    launch._settings.cache_clear()  # they have both numbers
    check(make(5, 2, 5 if on_chip else 4, lambd=1.0, ragged=True, resets=True), is_generic=True)
    # they are in use: without them no gradient comes before the last of them
    forward = launch.forward

    def forgetful(arguments: Any) -> Any:
        results, saved = forward(arguments)
        assert saved[-1].shape == (2, 1, 5, 5)
        assert not saved[-1].isnan().any()
        saved[-1].fill_(float("nan"))
        return results, saved

    monkeypatch.setattr(triton_kernels, "forward", forgetful)
    gradients = by_kernel(make(5, 1, 5, lambd=1.0))["gradient of x"]
    launch._settings.cache_clear()
    assert gradients[:3].isnan().any()
    assert gradients[4:].isfinite().all()


@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11)])
def test_half_precision(dtype: torch.dtype, bound: float) -> None:
    """Parts and weights of half precision, where only the recurrent products' factors are rounded to it."""
    others = [make(150, 1, 2, activation="tanh"), make(9, 1, 2, lambd=1.0)]
    for case in (make(20, 1, 3, activation="tanh"), *(others if dtype == torch.bfloat16 else [])):
        for given, name in ((case.tensors, "x"), (case.options, "w_hh")):
            given[name] = given[name].to(dtype).double()
        if "memory" in case.tensors:  # a matrix times a vector, in float32 throughout
            check(case, dtype)
            continue
        truth = by_reference(case)
        for name, tensor in by_kernel(case, dtype).items():
            error = (tensor - truth[name]).norm() / truth[name].norm()
            # 2 or 3 steps, each of which rounds the state and, backward, the gradient
            assert error <= 4 * bound, f"{case}: {name}: {error:.1e}"
