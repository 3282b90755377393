"""Golden tensors of recurrences: one file, checked in every form that its cell has."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from gyral.cells.base import RecurrentCell, State
from gyral.cells.delta_net import DeltaNetCell
from gyral.cells.delta_product import DeltaProductCell
from gyral.cells.gated_delta_net import GatedDeltaNetCell
from gyral.cells.kda import GatedDeltaNet2Cell, KDACell
from gyral.cells.lru import LRUCell
from gyral.cells.mamba import MambaCell
from gyral.cells.min_gru import MinGRUCell
from gyral.cells.min_lstm import MinLSTMCell
from gyral.cells.rg_lru import RGLRUCell
from gyral.cells.s4d import S4DCell
from gyral.cells.s5 import S5Cell
from gyral.nn.recurrent import Recurrent
from gyral.ops import operator

OPTIONAL = ("comba", "griffin_recurrent_block", "para_gru", "slice_dense", "slice_dplr")
Tensors = dict[str, Tensor]


class UnsupportedGoldenError(Exception):
    """There is no cell for a file of golden tensors."""


class Built(NamedTuple):
    """A cell, its parameters as functions of those in the file, and what the published layer has after the cell.

    Attributes:
        cell: The cell.
        parameters: By name.
        after: Function of the cell's outputs (T, B, …).
        state: The state before the first step, from its initial state and that in the file; None: the initial state.
    """

    cell: RecurrentCell
    parameters: Tensors
    after: Callable[[Tensor], Tensor] = lambda outputs: outputs
    state: State = None


# ---------------------------------------------------------------- one function for each family; sizes are the arrays'


def build_delta(file: Tensors, name: str) -> Built:
    """The layers of `gyral.cells.delta_rule`: one matrix has the rows of all projections."""
    given = {key.removeprefix("param."): tensor for key, tensor in file.items() if key.startswith("param.")}
    per_channel = "f_proj.0.weight" in given
    rows = ("q_proj", "k_proj", "v_proj", "g_proj", "g_proj.0", "b_proj", "w_proj", "a_proj", "f_proj.0")
    parameters = {"weight_ih": torch.cat([given[f"{row}.weight"] for row in rows if f"{row}.weight" in given])}
    inputs = parameters["weight_ih"].shape[1]
    if kernel := "q_conv1d.weight" in given:
        kernels = [given[f"{row}_conv1d.weight"] for row in "qkv"]
        parameters["weight_conv"] = torch.cat(kernels).squeeze(1)
        kernel = kernels[0].shape[2]
    parameters["weight_norm"] = given["o_norm.weight"]
    value, width = len(given["o_norm.weight"]), len(given["q_proj.weight"])
    micro = len(given["k_proj.weight"]) // width
    heads = len(given["v_proj.weight"]) // micro // value
    if "A_log" in given:
        parameters |= {"A_log": given["A_log"], "bias_dt": given["dt_bias"]}
    if per_channel:
        parameters |= {"weight_dt": given["f_proj.1.weight"], "weight_gate": given["g_proj.1.weight"]}
        parameters["bias_gate"] = given["g_proj.1.bias"]
    options: dict[str, Any] = {"heads": heads, "kernel_size": kernel or None}
    options["negative_eigenvalues"] = any(part in name for part in ("negative", "product", "no_conv"))
    if "delta_net" not in name or name.startswith("gated"):
        options["expand"] = value * heads // width
    if per_channel:
        options |= {"rank": len(given["f_proj.0.weight"]), "decay_bound": 5.0 if "lower_bound" in name else None}
        cell: RecurrentCell = (GatedDeltaNet2Cell if "w_proj.weight" in given else KDACell)(inputs, width, **options)
    elif micro > 1:
        options |= {"micro_steps": micro, "decay": "A_log" in given, "gate": "g_proj.weight" in given}
        cell = DeltaProductCell(inputs, width, **options)
    else:
        options["gate"] = "g_proj.weight" in given
        cell = (GatedDeltaNetCell if "A_log" in given else DeltaNetCell)(inputs, width, **options)
    return Built(cell, parameters, lambda outputs: F.linear(outputs, given["o_proj.weight"]))


def build_mamba(file: Tensors, name: str) -> Built:
    names = {"weight_ih": "in_proj.weight", "bias_conv": "conv1d.bias", "weight_x": "x_proj.weight"}
    names |= {"weight_dt": "dt_proj.weight", "bias_dt": "dt_proj.bias", "A_log": "A_log", "D": "D"}
    parameters = {own: file[f"param.{theirs}"] for own, theirs in names.items()}
    parameters["weight_conv"] = file["param.conv1d.weight"].squeeze(1)
    (size, states), kernel = parameters["A_log"].shape, parameters["weight_conv"].shape[1]
    rank, inputs = parameters["weight_dt"].shape[1], parameters["weight_ih"].shape[1]
    cell = MambaCell(inputs, size, state_size=states, kernel_size=kernel, dt_rank=rank)
    return Built(cell, parameters, lambda outputs: F.linear(outputs, file["param.out_proj.weight"]))


def build_min_gru(file: Tensors, name: str) -> Built:
    weight = file["param.to_hidden_and_gate.weight"]
    return Built(MinGRUCell(weight.shape[1], weight.shape[0] // 2), {"weight_ih": weight})


def build_min_lstm(file: Tensors, name: str) -> Built:
    weight = file["param.to_hidden_and_f_i_gate.weight"]
    return Built(MinLSTMCell(weight.shape[1], weight.shape[0] // 3), {"weight_ih": weight})


def build_lru(file: Tensors, name: str) -> Built:
    parameters = {key: file[f"param.{key}"] for key in ("nu_log", "theta_log", "gamma_log", "D")}
    for key in ("B", "C"):
        parameters[key] = torch.stack((file[f"param.{key}_re"], file[f"param.{key}_im"]))
    states, width = parameters["B"].shape[1:]
    return Built(LRUCell(width, width, state_size=states), parameters)


def build_rg_lru(file: Tensors, name: str) -> Built:
    gates = ("a_gate", "input_gate")
    weight = torch.stack([file[f"param.{gate}.w"] for gate in gates])
    bias = torch.stack([file[f"param.{gate}.b"].flatten() for gate in gates])
    width = bias.shape[1]
    cell = RGLRUCell(width, width, heads=weight.shape[1])
    state = None
    if "initial_state" in file:
        state = cell.State(file["initial_state"], torch.zeros(len(file["initial_state"]), dtype=torch.int64))
    return Built(cell, {"weight": weight, "bias": bias, "decay": file["param.a_param"]}, state=state)


def build_s5(file: Tensors, name: str) -> Built:
    parameters = {key: file[f"param.{key}"] for key in ("Lambda_re", "Lambda_im", "D")}
    parameters |= {key: file[f"param.{key}"].movedim(2, 0) for key in ("B", "C")}
    parameters["log_step"] = file["param.log_step"].squeeze(1)
    states, width = parameters["B"].shape[1:]
    options = {"discretization": "bilinear", "clip_eigs": True} if name.startswith("s5_bilinear") else {}
    return Built(S5Cell(width, width, state_size=states, **options), parameters)


def build_s4d(file: Tensors, name: str) -> Built:
    parameters = {key: file[f"param.kernel.{key}"] for key in ("log_A_real", "A_imag", "log_dt")}
    parameters |= {"C": file["param.kernel.C"].movedim(2, 0), "D": file["param.D"]}
    width, states = parameters["A_imag"].shape
    weight, bias = file["param.output_linear.0.weight"].squeeze(2), file["param.output_linear.0.bias"]

    def after(outputs: Tensor) -> Tensor:
        return F.glu(F.linear(F.gelu(outputs), weight, bias), dim=-1)

    return Built(S4DCell(width, width, state_size=states), parameters, after)


FAMILIES: dict[str, Callable[[Tensors, str], Built]] = {
    "delta_net": build_delta,
    "delta_product": build_delta,
    "gated_delta_net": build_delta,
    "gated_delta_product": build_delta,
    "gdn2": build_delta,
    "kda": build_delta,
    "lru": build_lru,
    "mamba1": build_mamba,
    "min_gru": build_min_gru,
    "min_lstm": build_min_lstm,
    "rg_lru": build_rg_lru,
    "s4d": build_s4d,
    "s5": build_s5,
}


# ---------------------------------------------------------------- the check


def check(path: Path) -> float:
    """Return the worst relative error of outputs and gradients of the cell that a file's name stands for.

    The cell runs in float64 in every form that it has: the loop over its steps, and its fused path with kernels and in
    plain torch. An error is relative to the largest entry of the expected tensor. The name of the file is that of a
    family, or begins with it: rg_lru_reset.npz.

    Raises:
        UnsupportedGoldenError: There is no cell for this name.
    """
    path = Path(path)
    with np.load(path) as arrays:
        file = {key: torch.from_numpy(np.array(arrays[key])) for key in arrays.files}
    build = find(path.stem)
    expected = {"outputs": file["outputs"]}
    expected |= {key: tensor for key, tensor in file.items() if key.startswith("grad.")}
    worst = 0.0
    for form in ("reference", "kernel", "parallel"):
        found = run(file, build, path.stem, form, [key.removeprefix("grad.") for key in expected if key != "outputs"])
        for key in expected if found else ():
            error = (found[key] - expected[key]).abs().max() / expected[key].abs().max().clamp(min=1e-300)
            worst = max(worst, float(error.nan_to_num(torch.inf)))
    return worst


def find(name: str) -> Callable[[Tensors, str], Built]:
    """Return the function that builds the cell of a file.

    Raises:
        UnsupportedGoldenError: There is none.
    """
    if name in OPTIONAL:
        raise UnsupportedGoldenError(f"{name} is optional: the library has no such cell")
    family = max((family for family in FAMILIES if f"{name}_".startswith(f"{family}_")), key=len, default=None)
    if family is None:
        raise UnsupportedGoldenError(f"{name} is not among {', '.join(sorted(FAMILIES))}, nor begins with one of them")
    return FAMILIES[family]


def run(
    file: Tensors, build: Callable[[Tensors, str], Built], name: str, form: str, wanted: list[str]
) -> Tensors | None:
    """Return outputs and gradients of a form by their keys in the file, or None if the cell does not have the form."""
    keys = {key: key if key in file else f"param.{key}" for key in wanted}
    leaves = {key: file[key].clone().requires_grad_() for key in keys.values()}
    built = build(file | leaves, name)
    cell = built.cell.double()
    with no_kernels() if form == "parallel" else mock.patch.dict({}):
        if form != "reference" and cell.fused_unsupported_reason(starts="starts" in file) is not None:
            return None
        model = Recurrent(lambda _: cell, cell.input_size, backend="reference" if form == "reference" else "fused")
        assert built.parameters.keys() == dict(cell.named_parameters()).keys(), "a parameter is missing"
        parameters = {f"cells.0.{key}": tensor for key, tensor in built.parameters.items()}
        state = None if built.state is None else (built.state,)
        arguments = leaves.get("inputs", file["inputs"]), state, None, file.get("starts")
        outputs = built.after(functional_call(model, parameters, arguments)[0])
        gradients = torch.autograd.grad(outputs, list(leaves.values()), file["cotangent"], materialize_grads=True)
    found = {f"grad.{key}": gradient for key, gradient in zip(keys, gradients, strict=True)}
    return {"outputs": outputs.detach(), **found}


@contextmanager
def no_kernels() -> Iterator[None]:
    """Within this context no operator has kernels."""
    with mock.patch.object(operator, "load_or_reason", return_value="kernels are switched off"):
        yield
