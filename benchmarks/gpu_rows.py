"""One row of the GPU benchmark: a cell on a backend, first compared with its reference, then measured beside cuDNN."""

import gc
import inspect
from collections.abc import Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import nn

import gyral
from benchmarks import measure
from benchmarks.equivalence import FLOAT32, Precision, compare
from gyral.cells.base import RecurrentCell
from gyral.core.errors import OptionError
from gyral.nn.recurrent import Recurrent

# measured beside each row, in the same rounds; with the cells whose equations they compute
LAYERS = {"torch.nn.GRU": (nn.GRU, "GRU"), "torch.nn.LSTM": (nn.LSTM, "LSTM"), "torch.nn.RNN": (nn.RNN, "RNN")}
BASELINES = ("torch.nn.GRU", "torch.nn.LSTM")
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
    "float32": FLOAT32,
    "bfloat16": Precision("bfloat16", torch.bfloat16, 2.0**-9, 3e-2, 0.3, 5),
    "float16": Precision("float16", torch.float16, 2.0**-12, 5e-3, 0.3, 5),
}
# cuDNN approximates tanh and σ: its float32 layers have errors of up to 5e-6
CUDNN_FLOOR = 2e-5
CHECK_BATCH = 16  # rows of the comparison: the rows of a batch are independent
# RUM's kernel for λ = 1 rebuilds the memory of earlier steps from rounded ones, instead of storing it
FACTOR = 4
SECONDS = 1.0  # a row that would take longer runs fewer rounds


class Case(NamedTuple):
    """A row: a model on a backend, "torch" for a layer of torch.nn, at a precision and a size."""

    model: str
    backend: str
    precision: str
    batch: int
    steps: int
    input: int
    hidden: int


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
    """Return the float32 module; all backends of a model, and the corresponding layer of torch, have equal weights."""
    if case.model not in LAYERS:
        return build_cell(case, device)
    layer, _ = LAYERS[case.model]
    module = layer(case.input, case.hidden).to(device)
    with torch.no_grad():
        for parameter, value in zip(module.parameters(), build_cell(reference(case), device).parameters(), strict=True):
            parameter.copy_(value)
    return module


def build_cell(case: Case, device: torch.device) -> Recurrent:
    """Return the float32 module of a cell."""
    torch.manual_seed(0)
    cell = models()[case.model](hidden_size=case.hidden, input_size=case.input).to(device)
    return Recurrent(lambda input_size: cell, case.input, backend=case.backend)


def reference(case: Case) -> Case:
    """Return the case whose results a case must reproduce."""
    return case._replace(model=LAYERS[case.model][1] if case.model in LAYERS else case.model, backend="reference")


def precision_of(case: Case) -> Precision:
    """Return the arithmetic of a case, with the largest error that cuDNN may have where it runs."""
    cells = [cell for _, cell in LAYERS.values()]
    runs_cudnn = case.model in LAYERS or (case.model in cells and case.backend == "fused")
    found = PRECISIONS[case.precision]
    return found._replace(floor=max(found.floor, CUDNN_FLOOR)) if runs_cudnn else found


def row(case: Case, device_name: str, repeat: int) -> dict[str, Any]:
    """Compare and measure a case; return its results, or the reason why the backend does not support the cell.

    Raises:
        ArithmeticError: The results disagree with the float64 reference.
    """
    device, precision = torch.device(device_name), precision_of(case)
    # float32 is float32 on all paths: by default cuDNN rounds the factors of its products to 10 bits (TF32)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    try:
        build(case, device)
    except OptionError as error:
        return {**case._asdict(), "unsupported": error.reason}
    shape = case.steps, min(case.batch, CHECK_BATCH), case.input
    candidates = {case.backend: partial(build, case, device)}
    make = partial(build_cell, reference(case), device)
    lines, largest = compare(make, candidates, shape, precision=precision, factor=FACTOR)
    if lines:
        raise ArithmeticError(lines[0])
    return {**case._asdict(), "error": largest[case.backend], **measured(case, device, precision, repeat)}


def measured(case: Case, device: torch.device, precision: Precision, repeat: int) -> dict[str, Any]:
    """Return medians in ms of the case and of the baselines in the same rounds, their ratios, and the peak memory."""
    shape = case.steps, case.batch, case.input
    loads = []
    peak, before = None, 0
    if device.type == "cuda":
        gc.collect()  # earlier modules
        before = torch.cuda.memory_allocated(device)
    for other in (case, *baselines(case)):
        load = measure.Layer(partial(build, other, device), shape, precision=precision)
        for _ in range(2):  # the first steps compile kernels or capture a graph
            load.forward()
            load.train()
        if other is case and device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            load.train()
            peak = (torch.cuda.max_memory_allocated(device) - before) / 2**20
        loads.append(load)
    (own, *others), rounds = measure.times(loads, repeat, SECONDS)
    found: dict[str, Any] = {"rounds": rounds, "forward_ms": own[0], "train_ms": own[1], "peak_memory_mib": peak}
    for name, (forward, train) in zip(BASELINES, others, strict=True):
        short = name.rpartition(".")[-1].lower()
        found |= {f"{short}_forward_ms": forward, f"{short}_train_ms": train}
        found |= {f"forward_to_{short}": own[0] / forward, f"train_to_{short}": own[1] / train}
    return found


def baselines(case: Case) -> Iterator[Case]:
    """Yield the cases of cuDNN's layers with the precision and size of a case."""
    for name in BASELINES:
        yield case._replace(model=name, backend="torch")
