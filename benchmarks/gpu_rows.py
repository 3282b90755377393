"""The models of the GPU benchmark, and how one of them is built, compared with its reference, and counted."""

import contextlib
import gc
import inspect
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd import DeviceType

import gyral
from benchmarks import fla, measure
from benchmarks.equivalence import FLOAT32, Precision, compare
from gyral.cells.base import RecurrentCell
from gyral.core.compat import has_bfloat16_instructions
from gyral.nn.choice import FUSED_GRAPH
from gyral.nn.recurrent import AFTER, Recurrent
from gyral.ops import delta
from gyral.ops.operator import KernelUnavailableError

INPUT = 36  # size of the inputs
SIZES = (128, 53, 50), (8, 1024, 128), (128, 150, 250)  # batch, time steps, hidden size
# with the cells whose equations they compute
LAYERS = {"torch.nn.GRU": (nn.GRU, "GRU"), "torch.nn.LSTM": (nn.LSTM, "LSTM"), "torch.nn.RNN": (nn.RNN, "RNN")}
# options of the cells that are measured in addition to the defaults, or instead of them if they have no defaults
VARIANTS: dict[str, tuple[dict[str, Any], ...]] = {
    "FSRNN": (
        {"fast": partial(gyral.LSTMCell, layer_norm=True), "slow": partial(gyral.LSTMCell, layer_norm=True)},
        {"fast": partial(gyral.LSTMCell, layer_norm=True), "slow": gyral.RUMCell},
    ),
    "LSTM": ({"layer_norm": True},),
    "MAGE": ({"cell": gyral.RNNCell},),
    "RUM": ({"lambd": 1},),
}
# the errors of sums in half precision grow faster than those in float32: a wrong path is off by the order of 1
PRECISIONS = {
    "float32": FLOAT32._replace(floor=4e-6),  # cuBLAS sums in its own order: 2.4e-6 for RotationScan with N = 250
    "bfloat16": Precision("bfloat16", torch.bfloat16, 2.0**-9, 3e-2, 0.3, 5),
    "float16": Precision("float16", torch.float16, 2.0**-12, 5e-3, 0.3, 5),
}
# cuDNN approximates tanh and σ: its float32 layers have errors of up to 5e-6
CUDNN_FLOOR = 2e-5
# of the comparison: the rows of a batch are independent; sequences end within a second chunk of linear recurrences
CHECK_BATCH, CHECK_STEPS = 8, 40
# RUM's kernel for λ = 1 rebuilds the memory of earlier steps from rounded ones, instead of storing it
FACTOR = 4
LAUNCH = re.compile(r"(cuda|cu)(LaunchKernel|LaunchCooperativeKernel|GraphLaunch|MemcpyAsync|MemsetAsync)")


class Case(NamedTuple):
    """A row: a model on the backend that `auto` chooses, at a precision and a size.

    Attributes:
        fla: Whether the kernels of flash-linear-attention run, if there are any for the model.
    """

    model: str
    precision: str
    batch: int
    steps: int
    input: int
    hidden: int
    fla: bool = False


@cache
def models() -> dict[str, partial[RecurrentCell]]:
    """Return all cells of `gyral` by name, with options after colons: `RUM:lambd=1`. RUM is first."""
    found = {}
    for name in sorted(gyral.__all__, key=lambda name: (name != "RUMCell", name)):
        if not name.endswith("Cell") or name in ("RecurrentCell", "ExternalCell"):
            continue
        cell, short = getattr(gyral, name), name.removesuffix("Cell")
        for options in (*([{}] if has_defaults(cell) else []), *VARIANTS.get(short, ())):
            words = (f"{key}={describe(value)}" for key, value in options.items())
            found[":".join((short, *words))] = partial(cell, **options)
    return found


def has_defaults(cell: type[RecurrentCell]) -> bool:
    """Return whether the sizes are all that a cell needs."""
    required = [p.name for p in inspect.signature(cell).parameters.values() if p.default is p.empty]
    return required == ["input_size", "hidden_size"]


def describe(value: Any) -> str:
    """Return a short name for the value of an option."""
    factory = value.func if isinstance(value, partial) else value
    return factory.__name__.removesuffix("Cell") if isinstance(factory, type) else str(value).lower()


def build(case: Case, device: torch.device) -> nn.Module:
    """Return the float32 module; a layer of torch has the weights of the corresponding cell."""
    if case.model not in LAYERS:
        return build_cell(case, device)
    layer, _ = LAYERS[case.model]
    module = layer(case.input, case.hidden).to(device)
    with torch.no_grad():
        for parameter, value in zip(module.parameters(), build_reference(case, device).parameters(), strict=True):
            parameter.copy_(value)
    return module


def build_cell(case: Case, device: torch.device, backend: str = "auto") -> Recurrent:
    """Return the float32 module of a cell; all backends of a model have equal weights."""
    torch.manual_seed(0)
    cell = models()[case.model](hidden_size=case.hidden, input_size=case.input).to(device)
    return Recurrent(lambda input_size: cell, case.input, backend=backend)


def build_reference(case: Case, device: torch.device) -> Recurrent:
    """Return the module whose results a case must reproduce."""
    model = LAYERS[case.model][1] if case.model in LAYERS else case.model
    return build_cell(case._replace(model=model), device, "reference")


def precision_of(case: Case) -> Precision:
    """Return the arithmetic of a case, with the largest error that cuDNN may have where it runs."""
    found = PRECISIONS[case.precision]
    runs_cudnn = case.model in LAYERS or case.model in [cell for _, cell in LAYERS.values()]
    return found._replace(floor=max(found.floor, CUDNN_FLOOR)) if runs_cudnn else found


def exact_products() -> None:
    """Have products of float32 be float32 on all paths: by default cuDNN rounds their factors to 10 bits (TF32)."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


@contextlib.contextmanager
def conditions(case: Case, device: torch.device) -> Iterator[None]:
    """Set the options of torch on which the results and times of a case depend.

    Products of float32 are exact. The kernels of flash-linear-attention run in the cases alone that measure them.
    oneDNN, whose LSTM refuses bfloat16 on processors without AVX-512, does not run on these.

    Raises:
        KernelUnavailableError: The kernels of flash-linear-attention cannot run.
    """
    kernels, uses_onednn = delta.delta_scan.kernels, torch.backends.mkldnn.enabled
    exact_products()
    try:
        if case.fla:
            delta.delta_scan.kernels = {**kernels, "cuda": fla.__name__}
            if reason := delta.delta_scan.unsupported_on(device, torch.float32):
                raise KernelUnavailableError(reason)
        if case.precision == "bfloat16" and device.type == "cpu" and not has_bfloat16_instructions():
            torch.backends.mkldnn.enabled = False  # type: ignore[assignment]
        yield
    finally:
        delta.delta_scan.kernels, torch.backends.mkldnn.enabled = kernels, uses_onednn


def check(case: Case, device_name: str, whole: bool) -> dict[str, Any]:
    """Compare a case with the float64 reference on short sequences, and return how it runs.

    Args:
        case: The case.
        device_name: "cuda" or "cpu".
        whole: Whether to run and count a training step of the size of the case, too. This compiles its kernels.

    Returns:
        The largest relative `error`, the `path` that runs, the `kernels` in Triton that were compiled, and what
        `profiled` returns.

    Raises:
        ArithmeticError: The results disagree with the float64 reference.
        KernelUnavailableError: The kernels of flash-linear-attention cannot run.
    """
    device = torch.device(device_name)
    with conditions(case, device):
        return _check(case, device, whole)


def _check(case: Case, device: torch.device, whole: bool) -> dict[str, Any]:
    before = {id(kernel) for kernel in compiled(device)}
    shape = min(case.steps, CHECK_STEPS), min(case.batch, CHECK_BATCH), case.input
    make = partial(build_reference, case, device)
    candidates = {case.model: partial(build, case, device)}
    lines, largest = compare(make, candidates, shape, precision=precision_of(case), factor=FACTOR)
    if lines:
        raise ArithmeticError(lines[0])
    load = measure.Layer(
        partial(build, case, device), (case.steps if whole else shape[0], case.batch, case.input), precision_of(case)
    )
    warm_up(load)
    found = {"error": largest[case.model], "path": "fla" if case.fla else path_of(load.module)}
    if whole and device.type == "cuda":
        try:
            found |= profiled(load.train)
        except RuntimeError as error:  # the times do not depend on it
            found["profiler"] = str(error)
    found["compiled"] = [describe_kernel(kernel) for kernel in compiled(device) if id(kernel) not in before]
    return found


def path_of(module: nn.Module) -> str:
    """Return the backend on which a module has run, and whether as a CUDA graph."""
    if not isinstance(module, Recurrent):
        return "torch"
    cell = module.cells[0]
    assert isinstance(cell, RecurrentCell)
    found = module.choice(cell)
    return FUSED_GRAPH if found.backend == "fused" and module._graphs.count > 0 else found.name


def warm_up(load: measure.Layer) -> None:
    """Run forward and training steps until kernels are compiled and graphs recorded."""
    runs, module = 1, load.module
    if isinstance(module, Recurrent):
        found = module.choice(module.cells[0])
        runs += AFTER if found.recorded > 0 and found.reason is None else 0
    for run in (load.forward, load.train):
        for _ in range(runs):
            run()


def profiled(step: Callable[[], None]) -> dict[str, Any]:
    """Run a training step under torch's profiler; return its launches, its kernels, their time, and the longest ones.

    A graph is one launch of many kernels.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*Profiler clears events")  # at the end of a cycle: there is only one
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            step()
    times: Counter[str] = Counter()
    launches = kernels = 0
    for event in profile.profiler.kineto_results.events():
        if event.device_type() == DeviceType.CUDA:
            kernels += 1
            times[event.name()] += event.duration_ns() / 1e6
        else:
            launches += bool(LAUNCH.match(event.name()))
    longest = [[name[:80], round(milliseconds, 4)] for name, milliseconds in times.most_common(3)]
    return {"launches": launches, "kernels": kernels, "kernels_ms": sum(times.values()), "longest": longest}


def compiled(device: torch.device) -> list[Any]:
    """Return the kernels of Triton that this process has loaded, none on a CPU."""
    triton = sys.modules.get("triton") if device.type == "cuda" else None
    kind = getattr(getattr(triton, "compiler", None), "CompiledKernel", None)
    return [] if kind is None else [item for item in gc.get_objects() if type(item) is kind]


def describe_kernel(kernel: Any) -> dict[str, Any]:
    """Return the registers of a thread, the bytes that it spills, and the shared memory of a program, of a kernel."""
    metadata = kernel.metadata
    figures = {"registers": (kernel, "n_regs"), "spills": (kernel, "n_spills"), "shared": (metadata, "shared")}
    return {"kernel": metadata.name, **{key: getattr(*place, None) for key, place in figures.items()}}
