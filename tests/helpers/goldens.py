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
from gyral.cells.exprnn import DTRIVCell, ExpRNNCell
from gyral.cells.gated_delta_net import GatedDeltaNetCell
from gyral.cells.gla import GLACell
from gyral.cells.hgrn2 import HGRN2Cell
from gyral.cells.kda import GatedDeltaNet2Cell, KDACell
from gyral.cells.linear_attention import run_scan
from gyral.cells.lru import LRUCell
from gyral.cells.mamba import MambaCell
from gyral.cells.mamba2 import Mamba2Cell
from gyral.cells.mamba3 import Mamba3Cell
from gyral.cells.min_gru import MinGRUCell
from gyral.cells.min_lstm import MinLSTMCell
from gyral.cells.mlstm import Heads, MLSTMCell, MLSTMLargeCell, operands
from gyral.cells.pd_ssm import PDSSMCell
from gyral.cells.rg_lru import RGLRUCell
from gyral.cells.rotation_scan import RotationScanCell
from gyral.cells.rwkv7 import RWKV7Cell
from gyral.cells.s4d import S4DCell
from gyral.cells.s5 import S5Cell
from gyral.cells.slice import SLiCECell
from gyral.cells.slstm import SLSTMCell
from gyral.nn.recurrent import Recurrent
from gyral.ops import operator
from gyral.ops.delta import delta_scan
from gyral.ops.m2rnn import m2rnn
from gyral.ops.normalized_heads import divide
from gyral.ops.stabilized_gates import stabilized_gates

OPTIONAL = ("comba", "griffin_recurrent_block", "para_gru", "rwkv7_value_residual", "slice_dense", "slice_dplr")
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
    options: dict[str, Any] = {"heads": heads, "key_size": width // heads, "kernel_size": kernel or None}
    options["negative_eigenvalues"] = any(part in name for part in ("negative", "product", "no_conv"))
    width = heads * value
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


def stack(file: Tensors, *names: str) -> Tensor:
    """Return the rows of several matrices of a file."""
    return torch.cat([file[f"param.{name}.weight"] for name in names])


def build_gla(file: Tensors, name: str) -> Built:
    parameters = {
        "weight_ih": stack(file, "q_proj", "k_proj", "v_proj", "g_proj", "gk_proj.0"),
        "weight_decay": file["param.gk_proj.1.weight"],
        "bias_decay": file["param.gk_proj.1.bias"],
        "weight_norm": file["param.g_norm_swish_gate.weight"],
    }
    (keys, inputs), width = file["param.q_proj.weight"].shape, len(file["param.v_proj.weight"])
    heads, rank = width // len(parameters["weight_norm"]), parameters["weight_decay"].shape[1]
    cell = GLACell(inputs, width, heads=heads, key_size=keys // heads, gate_rank=rank)
    return Built(cell, parameters, lambda outputs: F.linear(outputs, file["param.o_proj.weight"]))


def build_hgrn2(file: Tensors, name: str) -> Built:
    parameters = {"weight_ih": stack(file, "q_proj", "f_proj", "i_proj"), "weight_norm": file["param.g_norm.weight"]}
    width, inputs = file["param.i_proj.weight"].shape
    cell = HGRN2Cell(inputs, width, heads=width // 4)  # the size of the heads in the files, which no array shows
    cell.lower_bound = file["lower_bound"]  # a number for each channel
    return Built(cell, parameters, lambda outputs: F.linear(outputs, file["param.o_proj.weight"]))


def build_mamba2(file: Tensors, name: str) -> Built:
    names = {
        "weight_ih": "in_proj.weight",
        "bias_conv": "conv1d.bias",
        "bias_dt": "dt_bias",
        "A_log": "A_log",
        "D": "D",
    }
    names |= {"weight_norm": "norm.weight"} if "param.norm.weight" in file else {}
    parameters = {own: file[f"param.{theirs}"] for own, theirs in names.items() if f"param.{theirs}" in file}
    parameters["weight_conv"] = file["param.conv1d.weight"].squeeze(1)
    heads, width = len(parameters["D"]), file["param.out_proj.weight"].shape[1]
    groups = 2 if "groups" in name else 1
    cell = Mamba2Cell(
        parameters["weight_ih"].shape[1],
        width,
        heads=heads,
        state_size=(len(parameters["bias_conv"]) - width) // (2 * groups),
        groups=groups,
        kernel_size=parameters["weight_conv"].shape[1],
        norm="weight_norm" in parameters,
    )
    return Built(cell, parameters, lambda outputs: F.linear(outputs, file["param.out_proj.weight"]))


def build_mamba3(file: Tensors, name: str) -> Built:
    names = {"weight_ih": "in_proj.weight", "bias_dt": "dt_bias", "offset_b": "B_bias", "offset_c": "C_bias", "D": "D"}
    names |= {"weight_b": "B_norm.weight", "weight_c": "C_norm.weight", "weight_norm": "norm.weight"}
    names |= {key: key for key in ("mimo_x", "mimo_z", "mimo_o")}
    parameters = {own: file[f"param.{theirs}"] for own, theirs in names.items() if f"param.{theirs}" in file}
    heads, rank, states = parameters["offset_b"].shape
    rows, inputs = parameters["weight_ih"].shape
    width = file["param.out_proj.weight"].shape[1]
    groups = 2 if "norm" in name else 1
    pairs = rows - 2 * width - 2 * groups * rank * states - 3 * heads
    options = {"groups": groups, "rank": rank, "rope_fraction": 2 * pairs / states, "norm": "weight_norm" in parameters}
    cell = Mamba3Cell(inputs, width, heads=heads, state_size=states, **options)
    return Built(cell, parameters, lambda outputs: F.linear(outputs, file["param.out_proj.weight"]))


def build_mlstm(file: Tensors, name: str) -> Built:
    gates = ("igate", "fgate")
    parameters = {
        "weight_ih": file["param.proj_up.weight"],
        "weight_conv": file["param.conv1d.conv.weight"].squeeze(1),
        "bias_conv": file["param.conv1d.conv.bias"],
        "weight_qkv": torch.stack([file[f"param.{key}_proj.weight"] for key in "qkv"]),
        "weight_gates": stack(file, *(f"mlstm_cell.{gate}" for gate in gates)),
        "bias_gates": torch.cat([file[f"param.mlstm_cell.{gate}.bias"] for gate in gates]),
        "skip": file["param.learnable_skip"],
        "weight_norm": 1 + file["param.mlstm_cell.outnorm.weight"],
    }
    width, kernel = parameters["weight_conv"].shape
    cell = MLSTMCell(
        parameters["weight_ih"].shape[1],
        width,
        heads=len(parameters["bias_gates"]) // 2,
        kernel_size=kernel,
        block=parameters["weight_qkv"].shape[-1],
    )
    return Built(cell, parameters, lambda outputs: F.linear(outputs, file["param.proj_down.weight"]))


def build_mlstm_large(file: Tensors, name: str) -> Built:
    gates = ("igate_preact", "fgate_preact")
    parameters = {
        "weight_ih": stack(file, "q", "k", "v", "ogate_preact"),
        "weight_gates": stack(file, *gates),
        "bias_gates": torch.cat([file[f"param.{gate}.bias"] for gate in gates]),
        "weight_norm": file["param.multihead_norm.weight"],
    }
    (width, inputs), heads = file["param.v.weight"].shape, len(parameters["bias_gates"]) // 2
    cell = MLSTMLargeCell(inputs, width, heads=heads, key_size=len(file["param.q.weight"]) // heads).double()
    state = cell.init_state(file["inputs"].shape[1])
    state = state._replace(stabilizer=torch.zeros_like(state.stabilizer))  # the authors' chunks start from m = 0
    return Built(cell, parameters, lambda outputs: F.linear(outputs, file["param.out_proj.weight"]), state)


def build_rwkv7(file: Tensors, name: str) -> Built:
    names = {f"weight_{key}": f"{key}_proj.weight" for key in "rkv"}
    for key in "wag":
        names |= {f"weight_{key}{own}": f"{key}_lora.lora.{place}.weight" for own, place in ((1, 0), (2, 2))}
    names |= {f"bias_{key}": f"{key}_lora.lora.2.bias" for key in "wa"}
    names |= {key: key for key in ("k_k", "k_a", "r_k")}
    names |= {"weight_norm": "g_norm.weight", "bias_norm": "g_norm.bias"}
    parameters = {own: file[f"param.{theirs}"] for own, theirs in names.items()}
    parameters["mix"] = torch.cat([file[f"param.x_{key}"].flatten(0, 1) for key in "rwkvag"])
    width, inputs = parameters["weight_r"].shape
    cell = RWKV7Cell(
        inputs,
        width,
        heads=len(parameters["r_k"]),
        decay_rank=len(parameters["weight_w1"]),
        rate_rank=len(parameters["weight_a1"]),
        gate_rank=len(parameters["weight_g1"]),
    )
    return Built(cell, parameters, lambda outputs: F.linear(outputs, file["param.o_proj.weight"]))


def build_rotation_scan(file: Tensors, name: str) -> Built:
    is_double = name.startswith("own_parallel_rum_double_angle")
    options = {"angle": "double", "eta": 1.0} if is_double else {"angle": "single"}
    parameters = {key: file[f"param.{key}"] for key in ("weight_ih", "bias")}
    memory, hidden = file["initial.memory"], file["initial.hidden"]
    cell = RotationScanCell(parameters["weight_ih"].shape[1], hidden.shape[1], heads=memory.shape[1], **options)
    return Built(cell, parameters, state=cell.State(memory, hidden))


def build_pd_ssm(file: Tensors, name: str) -> Built:
    names = {"weight_magnitude": "W1_mag", "weight_phase": "W1_pha", "bias_magnitude": "b1_mag", "bias_phase": "b1_pha"}
    names |= {"selector": "P_selector", "dictionary": "P_dict", "D": "D"}
    parameters = {own: file[f"param.{theirs}"] for own, theirs in names.items()}
    for key in ("B", "C"):
        parameters[key] = torch.stack((file[f"param.{key}_re"], file[f"param.{key}_im"]))
    states, width = parameters["B"].shape[1:]
    cell = PDSSMCell(width, width, state_size=states, dictionary_size=len(parameters["selector"]))
    return Built(cell, parameters)


def build_slice(file: Tensors, name: str) -> Built:
    rows, initial = file["param.vf_A"], file["param.init_layer.weight"]
    parameters = {"weight_ih": rows[1:].T, "bias": rows[0], "weight_initial": initial}
    parameters["bias_initial"] = file["param.init_layer.bias"]
    width, inputs = initial.shape
    return Built(SLiCECell(inputs, width, block_size=rows.shape[1] // width, dt=0.2), parameters)


def build_orthogonal(file: Tensors, name: str) -> Built:
    names = {"generator": "recurrent_kernel.A", "weight_ih": "input_kernel.weight", "bias": "nonlinearity.b"}
    parameters = {own: file[f"param.{theirs}"] for own, theirs in names.items()}
    cell = (DTRIVCell if name.startswith("dtriv") else ExpRNNCell)(*parameters["weight_ih"].T.shape).double()
    cell.base.copy_(file["base"])
    return Built(cell, parameters)


def build_slstm(file: Tensors, name: str) -> Built:
    """The authors' layer gives the weights `fgate` to the input gate and `igate` to the forget gate."""
    gates = torch.stack([file[f"param.{gate}gate.weight"] for gate in "fizo"], dim=1)
    heads, _, width, _ = gates.shape
    convolution = file["param.conv1d.conv.weight"].squeeze(1)
    parameters = {"weight_conv": convolution, "bias_conv": file["param.conv1d.conv.bias"], "weight_gates": gates}
    parameters["weight_hh"] = file["param.slstm_cell._recurrent_kernel_"].view(heads, 4, width, width)
    parameters["bias"] = file["param.slstm_cell._bias_"].view(4, -1)
    parameters["weight_norm"] = file["param.group_norm.weight"]
    cell = SLSTMCell(heads * width, heads * width, heads=heads, kernel_size=convolution.shape[1])
    return Built(cell, parameters)


FAMILIES: dict[str, Callable[[Tensors, str], Built]] = {
    "gla": build_gla,
    "hgrn2": build_hgrn2,
    "delta_net": build_delta,
    "delta_product": build_delta,
    "dtriv": build_orthogonal,
    "exprnn": build_orthogonal,
    "gated_delta_net": build_delta,
    "gated_delta_product": build_delta,
    "gdn2": build_delta,
    "kda": build_delta,
    "lru": build_lru,
    "mamba1": build_mamba,
    "mamba2": build_mamba2,
    "mamba3": build_mamba3,
    "min_gru": build_min_gru,
    "min_lstm": build_min_lstm,
    "mlstm": build_mlstm,
    "mlstm_large": build_mlstm_large,
    "pd_ssm": build_pd_ssm,
    "own_parallel_rum": build_rotation_scan,
    "rg_lru": build_rg_lru,
    "rwkv7": build_rwkv7,
    "s4d": build_s4d,
    "s5": build_s5,
    "slice_block_diagonal": build_slice,
    "slstm": build_slstm,
}


# ---------------------------------------------------------------- operators: in.*, batch first, to out.*


def delta_rule(file: Tensors) -> Tensors:
    """Run op_delta, op_gated_delta, op_gated_delta_product, op_kda and op_gla."""
    q, k, v = (file[key].transpose(0, 1) for key in "qkv")
    micro = len(k) // len(q)
    k, v = (tensor.unflatten(0, (len(q), micro)).transpose(1, 2) for tensor in (k, v))
    erase = None
    if "beta" in file:
        rate = file["beta"].transpose(0, 1).unflatten(0, (len(q), micro)).transpose(1, 2).unsqueeze(-1)
        erase, v = rate * k, rate * v
    decay = next((file[key].transpose(0, 1) for key in ("g", "gk") if key in file), None)
    scale = q.shape[-1] ** -0.5 if micro == 1 else 1.0  # the authors' product has none
    outputs, state = delta_scan(q * scale, k, v, file["initial_state"], decay=decay, erase=erase)
    return {"o": outputs.transpose(0, 1), "state": state}


def diagonal_plus_low_rank(file: Tensors) -> Tensors:
    q, k, v, gate, read, written = (file[key].transpose(0, 1) for key in ("q", "k", "v", "gk", "alpha", "beta"))
    zeros = torch.zeros_like
    erase = torch.stack((-read * torch.exp(-gate), zeros(read)), 2)  # it reads the memory before the decay
    keys, values = torch.stack((written, k), 2), torch.stack((zeros(v), v), 2)
    scaled = q * q.shape[-1] ** -0.5
    outputs, state = delta_scan(scaled, keys, values, file["initial_state"], decay=gate, erase=erase)
    return {"o": outputs.transpose(0, 1), "state": state}


def state_space(file: Tensors) -> Tensors:
    x, decay, b, c = (file[key].transpose(0, 1) for key in "XABC")
    outputs, state = delta_scan(c, b.unsqueeze(2), x.unsqueeze(2), file["initial_state"].mT, decay=decay)
    return {"y": outputs.transpose(0, 1), "state": state.mT}


def stabilized(file: Tensors) -> Tensors:
    gates = torch.cat([file[key].transpose(0, 1) for key in "if"], dim=-1)
    q, k, v = (file[key].transpose(0, 1) for key in "qkv")
    heads = Heads(q, k, torch.cat((v, torch.ones_like(v[..., :1])), dim=-1), gates)
    scale = heads.k.shape[-1] ** -0.5
    decay, write, least, _ = stabilized_gates(gates, file["m"].flatten(1), scale=scale)
    outputs, memory = run_scan(operands(heads, decay, write), torch.cat((file["C"], file["n"]), dim=-1), None, None)
    values = divide(outputs, least).transpose(0, 1)
    return {"h": values, "C": memory[..., :-1], "n": memory[..., -1:]}


def run_m2rnn(given: Tensors) -> Tensors:
    q, k, v, forget = (given[name].transpose(0, 1) for name in "qkvf")
    outputs, state = m2rnn(q, k, v, forget, given["W"], given["initial_state"])
    return {"y": outputs.transpose(0, 1), "state": state}


OPERATORS: dict[str, Callable[[Tensors], Tensors]] = {
    "op_delta": delta_rule,
    "op_dplr": diagonal_plus_low_rank,
    "op_gated_delta": delta_rule,
    "op_gated_delta_product": delta_rule,
    "op_gla": delta_rule,
    "op_kda": delta_rule,
    "op_m2rnn": run_m2rnn,
    "op_mlstm": stabilized,
    "op_ssd": state_space,
}


# ---------------------------------------------------------------- the check


def load(path: Path) -> Tensors:
    with np.load(path) as arrays:
        return {key: torch.from_numpy(np.array(arrays[key])) for key in arrays.files}


def relative_error(found: Tensor, expected: Tensor) -> float:
    """Return the largest error relative to the largest entry of the expected tensor."""
    error = (found.detach() - expected).abs().max() / expected.abs().max().clamp(min=1e-300)
    return float(error.nan_to_num(torch.inf))


def check(path: Path) -> float:
    """Return the worst relative error of outputs and gradients of the cell that a file's name stands for.

    The cell runs in float64 in every form that it has: the loop over its steps, and its fused path with kernels and in
    plain torch. An error is relative to the largest entry of the expected tensor. The name of the file is that of a
    family, or begins with it: rg_lru_reset.npz.

    Raises:
        UnsupportedGoldenError: There is no cell for this name.
    """
    path = Path(path)
    file = load(path)
    if path.stem.startswith("op_"):
        return check_operator(file, path.stem)
    build = find(path.stem)
    expected = {"outputs": file["outputs"]}
    expected |= {key: tensor for key, tensor in file.items() if key.startswith(("grad.", "final."))}
    worst = 0.0
    for form in ("reference", "kernel", "parallel"):
        wanted = [key.removeprefix("grad.") for key in expected if key.startswith("grad.")]
        found = run(file, build, path.stem, form, wanted)
        for key in expected if found else ():
            worst = max(worst, relative_error(found[key], expected[key]))
    return worst


def check_operator(file: Tensors, name: str) -> float:
    """Return the worst relative error of an operator, with kernels and without, on a file with keys `in.*`.

    Raises:
        UnsupportedGoldenError: There is no operator for this name.
    """
    family = max((family for family in OPERATORS if f"{name}_".startswith(f"{family}_")), key=len, default=None)
    if family is None:
        raise UnsupportedGoldenError(f"{name} is not among {', '.join(sorted(OPERATORS))}, nor begins with one of them")
    parts = {
        part: {key.partition(".")[2]: tensor for key, tensor in file.items() if key.startswith(f"{part}.")}
        for part in ("in", "out", "cotangent", "grad")
    }
    worst = 0.0
    for form in ("kernel", "parallel"):
        leaves = {key: tensor.clone().requires_grad_(key in parts["grad"]) for key, tensor in parts["in"].items()}
        with no_kernels() if form == "parallel" else mock.patch.dict({}):
            outputs = OPERATORS[family](leaves)
            wanted = [leaves[key] for key in parts["grad"]]
            cotangents = [parts["cotangent"][key] for key in parts["out"]]
            gradients = torch.autograd.grad([outputs[key] for key in parts["out"]], wanted, cotangents)
        worst = max(worst, *(relative_error(outputs[key].detach(), parts["out"][key]) for key in parts["out"]))
        worst = max(worst, *map(relative_error, gradients, parts["grad"].values()))
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
    """Return outputs, final states and gradients by their keys in the file, or None if the cell has no such form."""
    keys = {key: next(prefix + key for prefix in ("", "param.", "initial.") if prefix + key in file) for key in wanted}
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
        outputs, (state,) = functional_call(model, parameters, arguments)
        values = {"outputs": built.after(outputs)}
        values |= {key: getattr(state, key.removeprefix("final.")) for key in file if key.startswith("final.")}
        cotangents = [file[key.replace("final.", "cotangent.").replace("outputs", "cotangent")] for key in values]
        gradients = torch.autograd.grad(
            list(values.values()), list(leaves.values()), cotangents, materialize_grads=True
        )
    found = {f"grad.{key}": gradient for key, gradient in zip(keys, gradients, strict=True)}
    return {key: value.detach() for key, value in values.items()} | found


@contextmanager
def no_kernels() -> Iterator[None]:
    """Within this context no operator has kernels."""
    with mock.patch.object(operator, "load_or_reason", return_value="kernels are switched off"):
        yield
