"""Compiles all Triton kernels for GPUs that need not be there, and reads from their machine code what they cost.

Usage: python -m tests.helpers.ahead_of_time sample|all|record

  sample   compile two kernels, and print their names and the sizes of their code
  all      compile every case for every card, and print what the record would have
  record   do so, and write benchmarks/records/sm90.json

A new family of kernels gets an entry in FAMILIES.
"""

import hashlib
import importlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "benchmarks" / "records" / "sm90.json"
CARDS = {90: 227, 80: 163, 120: 99}  # compute capability, and KiB of shared memory that a program may have
HOPPER = 90
SPILLS = 64  # bytes of the stack of a thread, which is in global memory, that a kernel may have
STEPS = 2
STATE_SPACES = ("lru", "zoh", "bilinear")
TF32 = re.compile(r"inputPrecision = tf32 : tensor<[0-9x]+xf32>")  # a product of float32 in TF32
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\d+ )?([A-Z0-9_.]+)(.*)")


class Case(NamedTuple):
    """Arguments that make a family launch its kernels.

    Attributes:
        batch: Rows. The rows of one program depend on it.
        size: Hidden size.
        has_memory: Whether there is a memory, which RUM has with λ = 1.
        with_options: Whether all options of the cell are used, with products of bfloat16.
        cards: Compute capabilities for which it is compiled.
    """

    batch: int
    size: int
    has_memory: bool
    with_options: bool
    cards: tuple[int, ...] = (HOPPER,)

    @property
    def kernels(self) -> int:
        """How many they are, forward and backward: those of each step for large hidden sizes."""
        return 5 if self.has_memory and self.size > 128 else 2

    def __str__(self) -> str:
        return f"batch={self.batch} size={self.size} memory={self.has_memory} options={self.with_options}"


class ScanCase(NamedTuple):
    """Arguments that make the operators of diagonal scans launch their kernels.

    Attributes:
        kind: See `gyral.ops.diagonal.triton.coefficients.Config`, after "complex" for complex numbers; or that of a
            state space, see `gyral.ops.diagonal.layer.discretize`.
        size: The number of channels of a row.
        masked: Whether there are lengths and resets.
        cards: Compute capabilities for which it is compiled.
        kernels: How many they are, forward and backward.
    """

    kind: str
    size: int
    masked: bool
    cards: tuple[int, ...] = (HOPPER,)

    @property
    def kernels(self) -> int:
        return 4 if self.kind in STATE_SPACES else 2

    def __str__(self) -> str:
        return f"kind={self.kind.replace(' ', '-')} size={self.size} masked={self.masked}"


class ConvolutionCase(NamedTuple):
    """Arguments that make the operator of the short convolution launch its kernels.

    Attributes:
        parts: Channels of the parts.
        kernel: Size of the window.
        with_options: Whether there are a bias, lengths and resets.
        cards: Compute capabilities for which it is compiled.
        kernels: How many they are, forward and backward.
    """

    parts: tuple[int, ...]
    kernel: int
    with_options: bool
    cards: tuple[int, ...] = (HOPPER,)
    kernels: int = 2

    def __str__(self) -> str:
        return f"parts={'+'.join(map(str, self.parts))} kernel={self.kernel} options={self.with_options}"


class GatesCase(NamedTuple):
    """Arguments that make the operator of mLSTM's gates launch its kernels: H, and whether there are masks."""

    heads: int
    masked: bool
    cards: tuple[int, ...] = (HOPPER,)
    kernels: int = 2

    def __str__(self) -> str:
        return f"heads={self.heads} masked={self.masked}"


class DeltaCase(NamedTuple):
    """Arguments that make the delta rule launch its kernels.

    Attributes:
        decay: "none", "scalar" or "vector".
        erase: "none", "rates" or "vectors".
        size: K and V.
        masked: Whether there are lengths and resets.
        cards: Compute capabilities for which it is compiled.
        micro: Micro-steps of a step.
        kernels: How many they are, forward and backward; of the first one, which both launch, that of backward counts.
    """

    decay: str
    erase: str
    size: int
    masked: bool = False
    cards: tuple[int, ...] = (HOPPER,)
    micro: int = 1
    kernels: int = 6

    def __str__(self) -> str:
        return f"decay={self.decay} erase={self.erase} size={self.size} masked={self.masked} micro={self.micro}"


class StatesCase(NamedTuple):
    """Arguments that make the state spaces of Mamba or S4D launch their kernels.

    Attributes:
        kind: "mamba" or "s4d".
        size: The number of channels.
        states: The number of states of a channel.
        masked: Whether there are lengths and resets.
        cards: Compute capabilities for which it is compiled.
    """

    kind: str
    size: int
    states: int
    masked: bool
    cards: tuple[int, ...] = (HOPPER,)

    @property
    def kernels(self) -> int:
        """How many they are, forward and backward."""
        return 3 if self.kind == "mamba" else 4

    def __str__(self) -> str:
        return f"kind={self.kind} size={self.size} states={self.states} masked={self.masked}"


class Family(NamedTuple):
    """Kernels that a module launches.

    Attributes:
        folder: Of their source files, in src/gyral/ops. Those of src/gyral/ops/triton belong to every family.
        cases: What is compiled.
        launch: Launches the kernels of a case, forward and backward.
    """

    folder: str
    cases: tuple[Any, ...]
    launch: Callable[[Any], None]


def launch_rum(case: Case) -> None:
    """Launch RUM's kernels, forward and backward."""
    import torch

    from gyral.ops.rum.triton import launch

    launch._processors = lambda device: 132  # type: ignore[assignment, misc]
    steps, batch, size, some = STEPS, case.batch, case.size, case.with_options
    a = SimpleNamespace(
        x=torch.zeros(steps, batch, 2),
        w_ih=torch.zeros(3 * size, 2),
        w_hh=torch.zeros(2 * size, size),
        b=torch.zeros(3 * size),
        h0=torch.zeros(batch, size),
        memory=torch.zeros(batch, size, size) if case.has_memory else None,
        norms=torch.zeros(3, 2, size) if some else None,
        keep=torch.ones(steps, batch, size) if some else torch.tensor(0.5),
        lengths=torch.ones(batch, dtype=torch.int64) if some else None,
        starts=torch.zeros(steps, batch, dtype=torch.bool) if some else None,
        eta=1.0 if some else None,
        activation="tanh" if some else "relu",
        epsilon=1e-5,
        product_dtype=torch.bfloat16 if some else None,
    )
    results, saved = launch.forward(a)
    launch.backward(a, results, saved, [torch.zeros(steps, batch, size), None, None, None], {"x": True})


def launch_scan(case: ScanCase) -> None:
    """Launch the kernels of diagonal scans and of the layers around them, forward and backward."""
    import torch

    from gyral.ops import diagonal, min_gated

    batch, size, kind, some, zeros = 2, case.size, case.kind, case.masked, torch.zeros
    masks = {
        "lengths": torch.ones(batch, dtype=torch.int64) if some else None,
        "starts": zeros(STEPS, batch, dtype=torch.bool) if some else None,
    }
    operands: dict[str, Any] = {"h0": zeros(batch, size)}
    if kind in ("min_gru", "min_lstm"):
        operator = min_gated.min_gated
        operands["projected"] = zeros(STEPS, batch, (2 if kind == "min_gru" else 3) * size)
    elif kind == "rg_lru":
        operator = min_gated.rg_lru
        operands |= {"inputs": zeros(STEPS, batch, size), "weight": zeros(2, 1, size, size)}
        operands |= {"bias": zeros(2, size), "decay": zeros(size), "fresh": zeros(batch, dtype=torch.int64)}
    elif kind == "blend":
        operator = min_gated.blend
        operands |= {"inputs": zeros(STEPS, batch, size), "gate": zeros(STEPS, batch, size), "activation": "tanh"}
    elif kind in STATE_SPACES:
        operator = diagonal.state_space
        operands = {"inputs": zeros(STEPS, batch, size), "h0": zeros(batch, 2 * size), "skip": zeros(size)}
        operands |= {"drive": zeros(2, size, size), "readout": zeros(2, size, size), "kind": kind}
        operands |= {name: zeros(size) for name in ("rate", "frequency", "scale")}
    else:
        operator, is_complex = diagonal.diagonal_scan, kind.startswith("complex")
        width = 2 * size if is_complex else size
        operands = {"h0": zeros(batch, width), "values": zeros(STEPS, batch, width), "is_complex": is_complex}
        operands["decay"] = zeros(width) if kind.endswith("constant") else zeros(STEPS, batch, width)
    a = operator.Arguments(**operands, **masks)
    kernels = importlib.import_module(operator.kernels["cuda"])
    results, saved = kernels.forward(a)
    kernels.backward(a, results, saved, [torch.zeros_like(each) for each in results], {})


def launch_convolution(case: ConvolutionCase) -> None:
    """Launch the kernels of the short convolution, forward and backward."""
    import torch

    from gyral.ops.short_convolution import OPERATOR
    from gyral.ops.short_convolution.triton import launch

    batch, channels, zeros, some = 2, sum(case.parts), torch.zeros, case.with_options
    a = OPERATOR.Arguments(
        values=zeros(STEPS, batch, channels),
        weight=zeros(channels, case.kernel),
        bias=zeros(channels) if some else None,
        history=zeros(batch, case.kernel - 1, channels),
        lengths=torch.ones(batch, dtype=torch.int64) if some else None,
        starts=zeros(STEPS, batch, dtype=torch.bool) if some else None,
        first=case.parts[0],
        second=case.parts[1],
    )
    results, saved = launch.forward(a)
    launch.backward(a, results, saved, [torch.zeros_like(each) for each in results], {})


def launch_gates(case: GatesCase) -> None:
    """Launch the kernels of mLSTM's gates, forward and backward."""
    import torch

    from gyral.ops.stabilized_gates import stabilized_gates
    from gyral.ops.stabilized_gates.triton import launch

    batch, zeros = 2, torch.zeros
    lengths = torch.ones(batch, dtype=torch.int64) if case.masked else None
    starts = zeros(STEPS, batch, dtype=torch.bool) if case.masked else None
    a = stabilized_gates.Arguments(zeros(STEPS, batch, 2 * case.heads), zeros(batch, case.heads), lengths, starts)
    results, saved = launch.forward(a)
    launch.backward(a, results, saved, [torch.zeros_like(each) for each in results], {})


class WindowCase(NamedTuple):
    """Arguments that make the operator of light and dynamic convolutions launch its kernels.

    Attributes:
        kind: "constant", "softmax" or "scores": what the weights are.
        size: The number of channels.
        heads, kernel: H and K.
        with_options: Whether there are a history, factors of the weights of each step, lengths and resets.
        cards: Compute capabilities for which it is compiled.
        kernels: How many they are, forward and backward.
    """

    kind: str
    size: int
    heads: int
    kernel: int
    with_options: bool
    cards: tuple[int, ...] = (HOPPER,)
    kernels: int = 3

    def __str__(self) -> str:
        window = f"heads={self.heads} kernel={self.kernel} options={self.with_options}"
        return f"kind={self.kind} size={self.size} {window}"


def launch_windows(case: WindowCase) -> None:
    """Launch the kernels of light and dynamic convolutions, forward and backward."""
    import torch

    from gyral.ops.convolution import convolution
    from gyral.ops.convolution.triton import launch

    batch, size, zeros, some, is_constant = 2, case.size, torch.zeros, case.with_options, case.kind == "constant"
    weights = zeros(*(() if is_constant else (STEPS, batch)), case.heads, case.kernel)
    a = convolution.Arguments(
        values=zeros(STEPS, batch, size),
        weights=weights,
        history=zeros(batch, case.kernel - 1, size) if some else None,
        mask=weights if some and not is_constant else None,
        lengths=torch.ones(batch, dtype=torch.int64) if some else None,
        starts=zeros(STEPS, batch, dtype=torch.bool) if some else None,
        softmax=case.kind == "softmax",
    )
    results, saved = launch.forward(a)
    launch.backward(a, results, saved, [torch.zeros_like(results[0])], {})


class BlockCase(NamedTuple):
    """Arguments that make the scan of block-diagonal matrices launch its kernels: N, b, and whether there are masks."""

    size: int
    block: int
    masked: bool
    cards: tuple[int, ...] = (HOPPER,)
    kernels: int = 2

    def __str__(self) -> str:
        return f"size={self.size} block={self.block} masked={self.masked}"


def launch_blocks(case: BlockCase) -> None:
    """Launch the kernels of the scan of block-diagonal matrices, forward and backward."""
    import torch

    from gyral.ops.block_scan import block_scan
    from gyral.ops.block_scan.triton import launch

    batch, size, zeros = 2, case.size, torch.zeros
    counts = torch.ones(batch, dtype=torch.int64)
    masks = (counts, zeros(STEPS, batch, dtype=torch.bool)) if case.masked else (None, None)
    values = zeros(STEPS if case.masked else 1, batch, size)
    a = block_scan.Arguments(zeros(STEPS, batch, size, case.block), values, zeros(batch, size), counts, *masks)
    results, saved = launch.forward(a)
    launch.backward(a, results, saved, [torch.zeros_like(each) for each in results], {})


class PermutationCase(NamedTuple):
    """Arguments that make the scan of permutations launch its kernels: N, K, and whether there are masks."""

    size: int
    matrices: int
    masked: bool
    cards: tuple[int, ...] = (HOPPER,)
    kernels: int = 4

    def __str__(self) -> str:
        return f"size={self.size} matrices={self.matrices} masked={self.masked}"


def launch_permutations(case: PermutationCase) -> None:
    """Launch the kernels of the scan of permutations, forward and backward."""
    import torch

    from gyral.ops.permutation_scan import permutation_scan
    from gyral.ops.permutation_scan.triton import launch

    batch, size, count, zeros = 2, case.size, case.matrices, torch.zeros
    sequence = zeros(STEPS, batch, 2 * size)
    a = permutation_scan.Arguments(
        selection=zeros(STEPS, batch, count),
        dictionary=zeros(count, size, size),
        decay=sequence,
        values=sequence,
        h0=zeros(batch, 2 * size),
        lengths=torch.ones(batch, dtype=torch.int64) if case.masked else None,
        starts=zeros(STEPS, batch, dtype=torch.bool) if case.masked else None,
    )
    results, saved = launch.forward(a)
    launch.backward(a, results, saved, [torch.zeros_like(each) for each in results], {})


class HeadsCase(NamedTuple):
    """Arguments that make the operator of mLSTM's outputs launch its kernels: V."""

    size: int
    cards: tuple[int, ...] = (HOPPER,)
    kernels: int = 2

    def __str__(self) -> str:
        return f"size={self.size}"


def launch_heads(case: HeadsCase) -> None:
    """Launch the kernels of mLSTM's outputs, forward and backward."""
    import torch

    from gyral.ops.normalized_heads import normalized_heads
    from gyral.ops.normalized_heads.triton import launch

    a = normalized_heads.Arguments(torch.zeros(STEPS, 2, 3, case.size + 1), torch.zeros(STEPS, 2, 3), 1e-5)
    results, saved = launch.forward(a)
    launch.backward(a, results, saved, [torch.zeros_like(results[0])], {})


class PolarCase(NamedTuple):
    """Arguments that make the operator of polar numbers launch its kernels: P."""

    size: int
    cards: tuple[int, ...] = (HOPPER,)
    kernels: int = 2

    def __str__(self) -> str:
        return f"size={self.size}"


def launch_polar(case: PolarCase) -> None:
    """Launch the kernels of polar numbers, forward and backward."""
    import torch

    from gyral.ops.polar import polar
    from gyral.ops.polar.triton import launch

    a = polar.Arguments(torch.zeros(STEPS, 2, case.size), torch.zeros(STEPS, 2, case.size))
    results, saved = launch.forward(a)
    launch.backward(a, results, saved, [torch.zeros_like(results[0])], {})


class RotationCase(NamedTuple):
    """Arguments that make the operator of the rotation scan launch its kernels: H, d, the angle, and masks."""

    heads: int
    width: int
    double_angle: bool
    masked: bool
    cards: tuple[int, ...] = (HOPPER,)
    kernels: int = 6

    def __str__(self) -> str:
        return f"heads={self.heads} width={self.width} double={self.double_angle} masked={self.masked}"


class LSTMCase(NamedTuple):
    """Arguments that make the operator of sLSTM launch its kernels: H, d, and whether there are masks."""

    heads: int
    width: int
    masked: bool
    cards: tuple[int, ...] = (HOPPER,)
    kernels: int = 2

    def __str__(self) -> str:
        return f"heads={self.heads} width={self.width} masked={self.masked}"


def launch_slstm(case: LSTMCase) -> None:
    """Launch the kernels of sLSTM, forward and backward."""
    import torch

    from gyral.ops.slstm import slstm
    from gyral.ops.slstm.triton import launch

    batch, heads, width, zeros = 2, case.heads, case.width, torch.zeros
    state = (zeros(batch, heads * width) for _ in range(4))
    lengths = torch.ones(batch, dtype=torch.int64) if case.masked else None
    starts = zeros(STEPS, batch, dtype=torch.bool) if case.masked else None
    projected, weight = zeros(STEPS, batch, 4 * heads * width), zeros(heads, 4, width, width)
    a = slstm.Arguments(projected, weight, *state, lengths, starts)
    results, saved = launch.forward(a)
    launch.backward(a, results, saved, [torch.zeros_like(each) for each in results], {})


class MatrixCase(NamedTuple):
    """Arguments that make the operator of M²RNN launch its kernels: H, K, V, and whether all options are used."""

    heads: int
    key: int
    value: int
    masked: bool
    cards: tuple[int, ...] = (HOPPER,)
    kernels: int = 2

    def __str__(self) -> str:
        return f"heads={self.heads} key={self.key} value={self.value} masked={self.masked}"


def launch_m2rnn(case: MatrixCase) -> None:
    """Launch the kernels of M²RNN, forward and backward."""
    import torch

    from gyral.ops.m2rnn import m2rnn
    from gyral.ops.m2rnn.triton import launch

    batch, heads, key, value, zeros = 2, case.heads, case.key, case.value, torch.zeros
    vectors = *(zeros(STEPS, batch, 1, key) for _ in range(2)), zeros(STEPS, batch, heads, value)
    lengths = torch.ones(batch, dtype=torch.int64) if case.masked else None
    starts = zeros(STEPS, batch, dtype=torch.bool) if case.masked else None
    others = zeros(STEPS, batch, heads), zeros(heads, value, value), zeros(batch, heads, key, value)
    a = m2rnn.Arguments(*vectors, *others, 1.0 if case.masked else None, lengths, starts)
    results, saved = launch.forward(a)
    launch.backward(a, results, saved, [torch.zeros_like(each) for each in results], {})


class GatedCase(NamedTuple):
    """Arguments that make the operator of gated recurrences launch its kernels.

    Attributes:
        kind: See `gyral.ops.gated.gated`.
        size: The number of units.
        with_options: Whether there are zoneout, dropout, lengths and resets to a learned state.
        cards: Compute capabilities for which it is compiled.
        kernels: How many they are, forward and backward.
    """

    kind: str
    size: int
    with_options: bool
    cards: tuple[int, ...] = (HOPPER,)
    kernels: int = 2

    def __str__(self) -> str:
        return f"kind={self.kind} size={self.size} options={self.with_options}"


def launch_gated(case: GatedCase) -> None:
    """Launch the kernels of gated recurrences, forward and backward."""
    import torch

    from gyral.ops.gated import EXTRA, GATES, NEEDS_EXTRA, OPERATOR
    from gyral.ops.gated.triton import launch

    batch, size, some, zeros = 2, case.size, case.with_options, torch.zeros
    chunk = 10 if case.kind == "on_lstm" else 1
    width = GATES.get(case.kind, 4) * size + (2 * -(-size // chunk) if case.kind == "on_lstm" else 0)
    hidden = 2 * size if case.kind == "complex_modrelu" else size
    mask, has_cell_state = zeros(STEPS, batch, hidden) if some else None, "lstm" in case.kind
    a = OPERATOR.Arguments(
        *(case.kind, zeros(STEPS, batch, 2), zeros(width, 2), zeros(width), zeros(width, hidden)),
        extra=zeros(EXTRA[case.kind] * size) if case.kind in NEEDS_EXTRA else None,
        h0=zeros(batch, hidden),
        c0=zeros(batch, size) if has_cell_state else None,
        fresh=zeros(hidden) if some else None,
        keep=mask,
        keep_cell_state=mask if has_cell_state else None,
        drop=zeros(batch, hidden) if some else None,
        lengths=torch.ones(batch, dtype=torch.int64) if some else None,
        starts=zeros(STEPS, batch, dtype=torch.bool) if some else None,
        **{"partner": None, "units": size, "chunk": chunk, "epsilon": 1e-5},
        b_hh=zeros(width) if case.kind in ("gru", "lstm") else None,
    )
    results, saved = launch.forward(a)
    gradients = [None if each is None else torch.zeros_like(each) for each in results]
    launch.backward(a, results, saved, gradients, {"x": True, "w_hh": True})


def launch_rotations(case: RotationCase) -> None:
    """Launch the kernels of the rotation scan, forward and backward."""
    import torch

    from gyral.ops.rotation_scan import rotation_scan
    from gyral.ops.rotation_scan.triton import launch

    batch, size, zeros = 2, case.heads * case.width - 2, torch.zeros
    memory = zeros(batch, case.heads, case.width, case.width)
    lengths = torch.ones(batch, dtype=torch.int64) if case.masked else None
    starts = zeros(STEPS, batch, dtype=torch.bool) if case.masked else None
    given = zeros(STEPS, batch, 4 * size), memory, zeros(batch, size), lengths, starts, case.double_angle
    a = rotation_scan.Arguments(*given, activation="tanh")
    results, saved = launch.forward(a)
    launch.backward(a, results, saved, [torch.zeros_like(each) for each in results], {})


def launch_delta(case: DeltaCase) -> None:
    """Launch the kernels of the delta rule, forward and backward."""
    import torch

    from gyral.ops.delta import delta_scan
    from gyral.ops.delta.triton import launch

    steps, batch, heads, size, zeros = STEPS, 2, 2, case.size, torch.zeros
    keys = zeros(steps, batch, case.micro, heads, size)
    options: dict[str, Any] = {"unit": case.erase == "rates"}
    if case.decay != "none":
        options["decay"] = zeros(steps, batch, heads, *([size] if case.decay == "vector" else []))
    if case.erase != "none":
        options["erase"] = keys if case.erase == "vectors" else zeros(steps, batch, case.micro, heads)
    if case.erase == "rates":
        options["write"] = zeros(steps, batch, case.micro, heads)
    if case.masked:
        options["lengths"] = zeros(batch, dtype=torch.int64)
        options["starts"] = zeros(steps, batch, dtype=torch.bool)
    a = delta_scan.Arguments(keys[:, :, 0], keys, keys, zeros(batch, heads, size, size), **options)
    results, saved = launch.forward(a)
    launch.backward(a, results, saved, results, {})


def launch_states(case: StatesCase) -> None:
    """Launch the kernels of the state spaces of Mamba or S4D, forward and backward."""
    import torch

    from gyral.ops import channel_scan, selective_scan

    batch, size, states, zeros = 2, case.size, case.states, torch.zeros
    sequence, of_states = (STEPS, batch, size), (size, states)
    if case.kind == "mamba":
        operator, vectors = selective_scan.selective_state_space, ("bias", "skip")
        operands = {name: zeros(sequence) for name in ("u", "gate", "step")} | {"rate": zeros(of_states)}
        operands |= {"matrices": zeros(STEPS, batch, 2 * states), "h0": zeros(batch, *of_states)}
    else:
        operator, vectors = channel_scan.channel_state_space, ("scale", "skip")
        operands = {name: zeros(of_states) for name in ("rate", "frequency")} | {"inputs": zeros(sequence)}
        operands |= {"readout": zeros(2, *of_states), "h0": zeros(batch, 2 * size * states)}
    a = operator.Arguments(
        **operands,
        **{name: zeros(size) for name in vectors},
        lengths=torch.ones(batch, dtype=torch.int64) if case.masked else None,
        starts=zeros(STEPS, batch, dtype=torch.bool) if case.masked else None,
    )
    kernels = importlib.import_module(operator.kernels["cuda"])
    results, saved = kernels.forward(a)
    kernels.backward(a, results, saved, [torch.zeros_like(each) for each in results], {})


class FastSlowCase(NamedTuple):
    """Arguments that make a network of two fast LSTMs with layer normalization and a slow cell launch its kernels.

    Attributes:
        slow: The kind of the slow cell, "lstm" or "rum".
        size: H, the hidden size of the fast cells.
        slow_size: That of the slow cell.
        cards: Compute capabilities for which it is compiled.
    """

    slow: str
    size: int
    slow_size: int
    cards: tuple[int, ...] = (HOPPER,)

    @property
    def kernels(self) -> int:
        """How many they are, forward and backward; of several launches of one, the last one counts."""
        return 4 if self.slow == "rum" else 2

    def __str__(self) -> str:
        return f"slow={self.slow} size={self.size} slow_size={self.slow_size}"


def launch_fast_slow(case: FastSlowCase) -> None:
    """Launch the kernels of a fast-slow network, forward and backward."""
    import torch

    from gyral.ops.fast_slow import OPERATOR
    from gyral.ops.fast_slow import triton as launch

    batch, size, slow, zeros, is_rum = 2, case.size, case.slow_size, torch.zeros, case.slow == "rum"
    parts, products = (3 * slow, 2 * slow) if is_rum else (4 * slow, 4 * slow)
    weights: list[Any] = []
    for rows, width, recurrent, extra in (
        (4 * size, 3, (4 * size, size), zeros(10 * size)),
        (parts, size, (products, slow), None),
        (4 * size, slow, (4 * size, size), zeros(10 * size)),
    ):
        weights += [zeros(rows, width), zeros(rows), zeros(recurrent), extra]
    keep, slow_keep, drop = zeros(1, batch, size), zeros(1, batch, slow), zeros(batch, size)
    masks = [None, keep, keep, drop, zeros(1, batch, size), slow_keep, None, None]
    masks += [zeros(1, batch, slow), keep, keep, drop]
    state, slow_state = zeros(batch, size), zeros(batch, slow)
    a = OPERATOR.Arguments(
        *(zeros(1, batch, 3), weights, [state, state, slow_state, None if is_rum else slow_state], masks),
        *(torch.ones(batch, dtype=torch.int64), zeros(1, batch, dtype=torch.bool)),
        *(f"normalized_lstm {case.slow} normalized_lstm", [size, slow, size], [1] * 3, "relu relu relu"),
        *([0.0] * 3, [1e-5] * 3),
    )
    results, saved = launch.forward(a)
    gradients = [None if each is None else torch.zeros_like(each) for each in results]
    launch.backward(a, results, saved, gradients, {"x": True})


class FastWeightsCase(NamedTuple):
    """Arguments that make the operator of fast weights and WeiNet launch its kernels.

    Attributes:
        kind: See `gyral.ops.fast_weights.KINDS`.
        size: N.
        with_options: Whether there are zoneout, dropout, lengths and resets.
        inner_steps: S of fast weights.
        cards: Compute capabilities for which it is compiled.
        kernels: How many they are, forward and backward.
    """

    kind: str
    size: int
    with_options: bool
    inner_steps: int = 1
    cards: tuple[int, ...] = (HOPPER,)
    kernels: int = 2

    def __str__(self) -> str:
        return f"kind={self.kind} size={self.size} inner={self.inner_steps} options={self.with_options}"


def launch_fast_weights(case: FastWeightsCase) -> None:
    """Launch the kernels of fast weights or WeiNet, forward and backward."""
    import torch

    from gyral.ops.fast_weights import OPERATOR
    from gyral.ops.fast_weights.triton import launch

    batch, size, zeros, some = 2, case.size, torch.zeros, case.with_options
    is_weinet = case.kind == "weinet"
    parts, products = (7 * size, 4 * size) if is_weinet else (size, size)
    weights = zeros(parts, 3), zeros(parts), zeros(products, size), zeros(2, size)
    a = OPERATOR.Arguments(
        *(case.kind, zeros(STEPS, batch, 3), *weights, zeros(batch, size), zeros(batch, size, size)),
        keep=zeros(STEPS, batch, size) if some else None,
        drop=zeros(batch, size) if some else None,
        lengths=torch.ones(batch, dtype=torch.int64) if some else None,
        starts=zeros(STEPS, batch, dtype=torch.bool) if some else None,
        epsilon=1e-5,
        decay=0.9,
        rate=0.5,
        inner_steps=0 if is_weinet else case.inner_steps,
        has_gradient=True,
    )
    results, saved = launch.forward(a)
    launch.backward(a, results, saved, [torch.zeros_like(each) for each in results], {"x": True})


SAMPLE = Case(3, 16, True, True)
FAMILIES = {
    "rum": Family(
        "rum/triton",
        (
            *(Case(2, 50, memory, False, (*CARDS,)) for memory in (False, True)),
            *(Case(2, size, memory, False) for size in (128, 250, 768) for memory in (False, True)),
            *(Case(2, size, memory, True) for size in (50, 128, 250, 768) for memory in (False, True)),
            Case(800, 50, False, False),
        ),
        launch_rum,
    ),
    "delta": Family(
        "delta/triton",
        (
            DeltaCase("scalar", "rates", 32, True, (*CARDS,)),
            DeltaCase("vector", "vectors", 50, True, (*CARDS,)),
            DeltaCase("scalar", "none", 128),
            DeltaCase("vector", "vectors", 128),
            DeltaCase("vector", "vectors", 64, micro=2),
        ),
        launch_delta,
    ),
    "diagonal": Family(
        "diagonal/triton",
        (
            *(ScanCase(kind, 50, True, (*CARDS,)) for kind in ("complex decay", "min_lstm", "rg_lru")),
            *(ScanCase(f"{kind}constant", 50, False) for kind in ("", "complex ")),
            *(ScanCase(kind, 128, False) for kind in ("complex constant", "min_gru", "min_lstm", "rg_lru", "blend")),
            *(ScanCase(kind, 768, True) for kind in ("decay", "complex constant", "rg_lru")),
            ScanCase("zoh", 50, True, (*CARDS,)),
            *(ScanCase("lru", size, size == 768) for size in (128, 768)),
            ScanCase("bilinear", 128, False),
        ),
        launch_scan,
    ),
    "fast_slow": Family(
        "fast_slow",  # without kernels of its own: the sources of these are those of gated and rum
        (FastSlowCase("lstm", 50, 50, (*CARDS,)), FastSlowCase("lstm", 700, 400), FastSlowCase("rum", 700, 1000)),
        launch_fast_slow,
    ),
    "fast_weights": Family(
        "fast_weights/triton",
        (
            *(FastWeightsCase(kind, 50, True, cards=(*CARDS,)) for kind in ("relu", "weinet")),
            *(FastWeightsCase(kind, size, False) for kind in ("relu", "weinet") for size in (50, 128)),
            *(FastWeightsCase(kind, 128, True) for kind in ("tanh", "weinet")),
            *(FastWeightsCase(kind, 250, True) for kind in ("relu", "weinet")),
            FastWeightsCase("relu", 50, False, inner_steps=3),
        ),
        launch_fast_weights,
    ),
    "selective_scan": Family(
        "selective_scan/triton",
        (
            StatesCase("mamba", 50, 16, True, (*CARDS,)),
            StatesCase("mamba", 128, 16, False),
        ),
        launch_states,
    ),
    "channel_scan": Family(
        "channel_scan/triton",
        (
            StatesCase("s4d", 50, 32, True, (*CARDS,)),
            StatesCase("s4d", 128, 32, False),
        ),
        launch_states,
    ),
    "gated": Family(
        "gated/triton",
        (
            GatedCase("lstm", 50, True, (*CARDS,)),
            GatedCase("goru", 50, False, (*CARDS,)),
            *(
                GatedCase(kind, 50, True)
                for kind in ("gru", "rnn_tanh", "complex_modrelu", "normalized_lstm", "on_lstm")
            ),
            *(GatedCase(kind, 128, True) for kind in ("gru", "lstm", "goru", "complex_modrelu")),
            *(GatedCase(kind, 128, True) for kind in ("normalized_lstm", "normalized_goru")),
            *(GatedCase(kind, 128, False) for kind in ("gru", "lstm", "modrelu", "normalized_lstm")),
        ),
        launch_gated,
    ),
    "gated_steps": Family(  # of sizes whose steps are launched one by one
        "gated/triton",
        (
            GatedCase("lstm", 250, True, (*CARDS,)),
            *(GatedCase(kind, 250, True) for kind in ("normalized_lstm", "on_lstm")),
            *(GatedCase(kind, 250, False) for kind in ("lstm", "gru", "goru")),
            *(GatedCase(kind, 768, True) for kind in ("normalized_lstm", "on_lstm", "complex_modrelu")),
            GatedCase("normalized_goru", 768, True),
        ),
        launch_gated,
    ),
    "short_convolution": Family(
        "short_convolution/triton",
        (
            ConvolutionCase((50, 50, 50), 4, True, (*CARDS,)),
            ConvolutionCase((128, 128, 128), 4, False),
            ConvolutionCase((50, 0), 4, True),
            ConvolutionCase((64, 0), 8, True),
        ),
        launch_convolution,
    ),
    "normalized_heads": Family(
        "normalized_heads/triton", (HeadsCase(13, (*CARDS,)), HeadsCase(128), HeadsCase(1000)), launch_heads
    ),
    "rotation_scan": Family(
        "rotation_scan/triton",
        (
            RotationCase(4, 13, True, False, (*CARDS,)),
            RotationCase(4, 32, True, True),
            RotationCase(4, 32, False, False),
            RotationCase(2, 64, True, False),
        ),
        launch_rotations,
    ),
    "slstm": Family(
        "slstm/triton",
        (
            LSTMCase(1, 50, True, (*CARDS,)),
            LSTMCase(4, 13, True),
            LSTMCase(4, 32, False),
            *(LSTMCase(1, 128, masked) for masked in (False, True)),
            LSTMCase(2, 250, True, (*CARDS,)),
        ),
        launch_slstm,
    ),
    "block_scan": Family(
        "block_scan/triton",
        (
            BlockCase(50, 4, True, (*CARDS,)),
            *(BlockCase(128, block, False) for block in (4, 8, 16, 32, 64, 128)),
            BlockCase(250, 4, True),
        ),
        launch_blocks,
    ),
    "polar": Family("polar/triton", (PolarCase(32, (*CARDS,)), PolarCase(5)), launch_polar),
    "permutation_scan": Family(
        "permutation_scan/triton",
        (
            PermutationCase(32, 8, True, (*CARDS,)),
            *(PermutationCase(size, 8, False) for size in (32, 64, 128)),
            PermutationCase(5, 3, True),
            PermutationCase(60, 32, True),
            PermutationCase(65, 63, False),
        ),
        launch_permutations,
    ),
    "convolution": Family(
        "convolution/triton",
        (
            *(WindowCase(kind, 50, 4, 31, True, (*CARDS,)) for kind in ("constant", "softmax")),
            *(WindowCase(kind, 128, 4, 31, False) for kind in ("constant", "softmax", "scores")),
            *(WindowCase(kind, 250, 4, 31, True) for kind in ("constant", "softmax")),
            WindowCase("softmax", 768, 1, 7, True),
            WindowCase("constant", 128, 128, 3, True),
        ),
        launch_windows,
    ),
    "m2rnn": Family(
        "m2rnn/triton",
        (
            MatrixCase(4, 52, 13, True, (*CARDS,)),
            MatrixCase(4, 64, 16, False),
            *(MatrixCase(4, 128, 32, masked) for masked in (False, True)),
            MatrixCase(4, 252, 63, True, (*CARDS,)),
        ),
        launch_m2rnn,
    ),
    "stabilized_gates": Family(
        "stabilized_gates/triton", (GatesCase(4, True, (*CARDS,)), GatesCase(8, False)), launch_gates
    ),
}


def digest(family: Family) -> str:
    """Return the digest of the source files of a family that define functions of Triton."""
    folders = (ROOT / "src" / "gyral" / "ops" / folder for folder in (family.folder, "triton"))
    files = [file for folder in folders for file in sorted(folder.glob("*.py"))]
    texts = [text for file in files if "@triton.jit" in (text := file.read_text(encoding="utf-8"))]
    return hashlib.sha256("".join(texts).encode()).hexdigest()


def compiled(family: Family, cases: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """Compile the kernels of cases; yield the name of each, with its case and its card, and the kernel."""
    import torch
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    torch.cuda.device_of = lambda tensor: torch.no_grad()  # type: ignore[assignment, misc]
    run = JITFunction.run
    found: list[Any] = []

    def compile_only(self: Any, *given: Any, **options: Any) -> None:
        found.append((self.__name__, run(self, *given, **(options | {"warmup": True}))))

    JITFunction.run = compile_only
    try:
        for card in CARDS:
            target = GPUTarget("cuda", card, 32)
            # one device for each card: a kernel is cached by device
            driver.set_active(
                SimpleNamespace(
                    get_current_device=lambda card=card: card,
                    get_current_stream=lambda device: 0,
                    get_current_target=lambda target=target: target,
                )
            )
            for case in cases:
                if card in case.cards:
                    found.clear()
                    family.launch(case)
                    for name, kernel in found:
                        # the compiler turns some sums of products into products of TF32, with three digits
                        assert not TF32.search(kernel.asm["ttir"]), f"{name} {case}"
                        yield f"{name} sm_{card} {case}", kernel
    finally:
        JITFunction.run = run


def costs(kernel: Any) -> dict[str, int]:
    """Return what a kernel costs.

    Returns:
        `registers` and bytes of `stack` of a thread; bytes of `shared` memory of a program and its `warps`; and of the
        longest loop, which is that over time, the `instructions`, `barriers`, `loads` from global memory, those of them
        with `loads_of_16_bytes`, and products of matrices, `products`.
    """
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        usage, code = (
            subprocess.run([tool.path, option, file.name], capture_output=True, text=True, check=True).stdout
            for tool, option in ((knobs.nvidia.cuobjdump, "-res-usage"), (knobs.nvidia.nvdisasm, "-c"))
        )
    registers, stack = re.search(r"REG:(\d+) STACK:(\d+)", usage).groups()  # type: ignore[union-attr]
    loop = longest_loop(code)

    def count(pattern: str) -> int:
        return sum(re.match(pattern, instruction) is not None for instruction in loop)

    return {
        "registers": int(registers),
        "stack": int(stack),
        "shared": kernel.metadata.shared,
        "warps": kernel.metadata.num_warps,
        "instructions": len(loop),
        "barriers": count("BAR"),
        "loads": count("LDG"),
        "loads_of_16_bytes": count(r"LDG\.E\.128"),
        "products": count("HMMA|HGMMA"),
    }


def longest_loop(code: str) -> list[str]:
    """Return the instructions from the target of a branch that goes back, to this branch.

    Of the longest such parts, it is the one that begins first: code that a loop jumps to, and back from, may be behind
    the program.
    """
    labels: dict[str, int] = {}
    instructions: list[str] = []
    loops = [(0, 0)]
    for line in code.splitlines():
        if label := re.match(r"^\.(L_x_\d+):", line):
            labels[label[1]] = len(instructions)
        elif match := INSTRUCTION.match(line):
            instructions.append(match[1])
            target = re.search(r"L_x_\d+", match[2])
            if match[1].startswith("BRA") and target and target[0] in labels:
                loops.append((labels[target[0]], len(instructions)))
    longest = max(end - start for start, end in loops)
    first, last = min(loop for loop in loops if 2 * (loop[1] - loop[0]) >= longest)
    return instructions[first:last]


def everything() -> dict[str, Any]:
    """Compile every case for every card; return what the record has, without known spills."""
    families = {}
    for name, family in FAMILIES.items():
        kernels = {key: costs(kernel) for key, kernel in compiled(family, family.cases)}
        families[name] = {"digest": digest(family), "kernels": kernels}
    return families


def recorded() -> dict[str, Any]:
    """Return the record: `families` with the digest of the sources and the costs of the kernels, and `known_spills`."""
    found: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return found


def faults(name: str, cost: dict[str, int], known: dict[str, int]) -> Iterator[str]:
    """Yield what is wrong with the costs of a kernel: it spills, or has more shared memory than the card."""
    allowed = max(SPILLS, known.get(name, 0))
    if cost["stack"] > allowed:
        yield f"{name} spills {cost['stack']} bytes a thread, must be at most {allowed}"
    limit = CARDS[int(re.search(r"sm_(\d+)", name)[1])]  # type: ignore[index]
    if cost["shared"] > 1024 * limit:
        yield f"{name} has {cost['shared']} bytes of shared memory, must be at most {limit} KiB"


def record() -> None:
    """Write the record. Spills that are known may only become less; a new one is a fault until someone enters it."""
    before = recorded()["known_spills"] if RECORD.exists() else None
    families = everything()
    stacks = {name: cost["stack"] for family in families.values() for name, cost in family["kernels"].items()}
    if before is None:
        before = {name: stack for name, stack in stacks.items() if stack > SPILLS}
    known = {name: min(stacks[name], stack) for name, stack in before.items() if stacks.get(name, 0) > SPILLS}
    found = {"families": families, "known_spills": known}
    RECORD.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def main(what: str) -> None:
    if what == "sample":
        for name, kernel in compiled(FAMILIES["rum"], (SAMPLE,)):
            print(f"{name}: {len(kernel.asm['cubin'])}")
    elif what == "all":
        print(json.dumps(everything()))
    else:
        record()


if __name__ == "__main__":
    main(sys.argv[1])
