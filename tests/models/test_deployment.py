"""Programs of models for other runtimes: a step with its state computes what whole sequences do."""

import re
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gyral
from gyral.models import deployment
from gyral.models.attention import Attention, LastStep, RotationalAttention
from gyral.models.preprocessing import Preprocessing
from gyral.models.sequence import SequenceModel
from tests.docs.test_docs import blocks_of
from tests.helpers.running import ROOT

X, N, Y, T, B = 3, 4, 5, 6, 3


def make(cell: Any = gyral.LSTMCell, tokens: bool = False, **options: Any) -> SequenceModel:
    size = {"vocabulary_size": 7} if tokens else {"vocabulary_size": None, "input_size": X}
    return SequenceModel(partial(cell, hidden_size=N), output_size=Y, **size, **options).eval()


def drawn(model: SequenceModel, steps: int = T) -> Tensor:
    return torch.randint(7, (B, steps)) if model.input_size is None else torch.randn(B, steps, X)


def first_state(deployed: deployment.Deployed) -> list[Tensor]:
    """Return the initial state of B rows."""
    return [value.initial.expand(B, *value.initial.shape) for value in deployed.inputs if value.initial is not None]


@pytest.mark.parametrize(
    "model",
    [
        make(num_layers=2, tokens=True, embedding_size=2),
        make(partial(gyral.RUMCell, lambd=1.0)),  # its initial memory is not zero
        make(partial(gyral.NTMCell, slots=4, width=2), readout=LastStep),
    ],
    ids=["LSTM", "RUM", "NTM"],
)
def test_steps_with_their_state_are_the_whole_sequence_and_begin_anew_at_a_start(model: SequenceModel) -> None:
    inputs, deployed = drawn(model), deployment.deploy(model, step=True)
    further = [torch.ones(B, dtype=torch.bool)] if "write" in {value.name for value in deployed.inputs} else []
    state, found = first_state(deployed), []
    for step in inputs.unbind(1):
        outputs, *state = deployed.module(step, *further, *state)
        found.append(outputs)
    whole, _ = model(inputs)
    torch.testing.assert_close(found[T - 1], whole if model.readout is not None else whole[:, -1])
    with_starts = deployment.deploy(model, step=True, starts=True)
    anew, *_ = with_starts.module(inputs[:, 0], torch.ones(B, dtype=torch.bool), *further, *state)
    torch.testing.assert_close(anew, found[0])
    assert [value.name for value in deployed.outputs[1:]] == [f"next_{v.name}" for v in deployed.inputs[-len(state) :]]
    assert [tuple(leaf.shape[1:]) for leaf in state] == [value.sizes[1:] for value in deployed.outputs[1:]]
    assert (B, *deployed.outputs[0].sizes[1:]) == tuple(outputs.shape)


def test_whole_sequences_pass_the_preprocessing_and_end_at_their_lengths() -> None:
    mean, deviation = np.full(X, 2.0), np.full(X, 3.0)
    preprocessing = Preprocessing(mean, deviation, standardize=True, masked=0)
    model = make(bidirectional=True)
    deployed = deployment.deploy(model, preprocessing)
    inputs, lengths = drawn(model), torch.tensor([6, 2, 4])
    torch.testing.assert_close(deployed.module(inputs, lengths), model((inputs - 2) / 3, lengths=lengths)[0])
    assert [*deployed.describe()] == [
        "input inputs float32 rows steps 3",
        "input lengths int64 rows",
        "output outputs float32 rows steps 5",
    ]


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (make(bidirectional=True), r"a bidirectional model cannot run step by step; without step=true, .*"),
        (make(readout=Attention), r"Attention reads all steps of a sequence at once; without step=true, .*"),
        (nn.Linear(2, 3), r"its model, Linear, cannot be exported; only those of sequences can"),
    ],
    ids=["bidirectional", "attention", "other"],
)
def test_what_cannot_run_step_by_step_is_refused(model: nn.Module, reason: str) -> None:
    with pytest.raises(deployment.ExportError) as raised:
        deployment.deploy(model, step=True)
    assert re.fullmatch(reason, str(raised.value))


@pytest.mark.parametrize("readout", [LastStep, Attention, RotationalAttention])
def test_a_program_with_a_prediction_for_a_sequence_has_any_number_of_rows_and_steps(readout: Any) -> None:
    model = make(tokens=True, readout=readout)
    program = deployment.trace(deployment.deploy(model)).module()
    inputs, lengths = torch.randint(7, (2 * B, 2 * T)), torch.arange(T, T + 2 * B)
    torch.testing.assert_close(program(inputs, lengths), model(inputs, lengths=lengths)[0])


class TwoRows(LastStep):
    def forward(self, outputs: Tensor, inputs: Tensor, lengths: Tensor | None = None) -> Tensor:
        return super().forward(outputs, inputs, lengths) * len(outputs[0].tolist())


def test_a_program_with_a_fixed_number_of_rows_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    deployed = deployment.deploy(make(tokens=True, readout=TwoRows))
    with pytest.raises(deployment.ExportError, match=r"^ONNX does not support this model: .*rows"):
        deployment.write_onnx(deployed, tmp_path / "model.onnx")
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cell", "step", "replaced"),
    [
        (gyral.LSTMCell, False, set()),
        (gyral.LSTMCell, True, set()),
        (gyral.RUMCell, True, {"Reciprocal"}),
        (gyral.MambaCell, True, {"Greater", "Where"}),
    ],
    ids=["sequences", "LSTM", "RUM", "Mamba"],
)
def test_onnxruntime_agrees_for_any_number_of_rows_and_steps(
    cell: Any, step: bool, replaced: set[str], tmp_path: Path
) -> None:
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    model = make(cell, tokens=True, num_layers=2)
    deployed = deployment.deploy(model, step=step)
    deployment.write_onnx(deployed, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    assert not replaced & {node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node}
    inputs = drawn(model)
    expected = model(inputs)[0].detach()
    assert [each.name for each in session.get_inputs()] == [value.name for value in deployed.inputs]
    assert [each.name for each in session.get_outputs()] == [value.name for value in deployed.outputs]
    if not step:
        found = torch.from_numpy(session.run(None, {"inputs": inputs.numpy()})[0])
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
        return
    names = [value.name for value in deployed.inputs[1:]]
    state: list[Any] = [leaf.numpy() for leaf in first_state(deployed)]
    for time, tokens in enumerate(inputs.unbind(1)):
        given = {"inputs": tokens.numpy(), **dict(zip(names, state, strict=True))}
        found, *state = session.run(None, given)
        torch.testing.assert_close(torch.from_numpy(found), expected[:, time], rtol=0, atol=1e-5)


def test_metadata_have_one_number_of_equal_ones_and_else_all_of_an_initial_state() -> None:
    def numbers(cell: Any) -> dict[str, str]:
        values = deployment.deploy(make(cell), step=True).inputs
        return {value.name: value.initial_numbers() for value in values if value.initial is not None}

    assert numbers(gyral.LSTMCell) == {"state_0_hidden": "0.0", "state_0_cell": "0.0"}
    memory = numbers(partial(gyral.RUMCell, lambd=1.0))["state_0_memory"]
    assert memory == " ".join(map(str, torch.eye(N).flatten().tolist()))


@pytest.mark.slow
def test_what_onnx_lacks_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(deployment.ExportError, match=r"^ONNX does not support this model: it has complex numbers$"):
        deployment.write_onnx(deployment.deploy(make(gyral.EURNNCell), step=True), tmp_path / "model.onnx")
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
@pytest.mark.parametrize("cell", [partial(gyral.RUMCell, lambd=1.0), gyral.LSTMCell], ids=["RUM", "LSTM"])
def test_the_program_of_the_page_streams_a_package_in_cpp(cell: Any, tmp_path: Path) -> None:
    compiler = shutil.which("g++") or pytest.skip("there is no C++ compiler")
    (program,) = (block for block in blocks_of(ROOT / "docs" / "how-to" / "deploy.md") if block.file == "stream.cpp")
    (tmp_path / "stream.cpp").write_text(program.text)
    library = Path(torch.__path__[0])
    command = [compiler, "-std=c++20", f"-I{library}/include", f"-I{library}/include/torch/csrc/api/include"]
    command += ["stream.cpp", f"-L{library}/lib", "-ltorch", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{library}/lib"]
    subprocess.run([*command, "-o", "stream"], cwd=tmp_path, check=True)

    model = make(cell)
    deployment.write_package(deployment.deploy(model, step=True), tmp_path / "model.pt2")
    inputs = drawn(model)[:1]
    lines = "".join(" ".join(map(repr, step)) + "\n" for step in inputs[0].tolist())
    done = subprocess.run(
        ["./stream", "model.pt2"], cwd=tmp_path, input=lines, capture_output=True, text=True, check=True
    )
    found = torch.tensor([[float(number) for number in line.split()] for line in done.stdout.splitlines()])
    torch.testing.assert_close(found, model(inputs)[0][0].detach(), rtol=0, atol=1e-5)
