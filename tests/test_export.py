"""The command `gyral export`: what it prints, and its errors; `tests/models/test_deployment.py` runs the files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gyral import export
from gyral.core import extras
from gyral.models import deployment
from tests.helpers.running import SMALL_COPY, invoke, train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = ("model=lstm", "trainer.max_steps=2", "trainer.val_check_interval=2")
    return train(tmp_path_factory.mktemp("export") / "run", *SMALL_COPY, *words)


@pytest.mark.parametrize(("suffix", "writer"), [(".onnx", "write_onnx"), (".pt2", "write_package")])
def test_a_run_is_exported_and_its_inputs_and_outputs_are_printed(
    run: Path, suffix: str, writer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(deployed: deployment.Deployed, path: Path) -> None:
        assert {cell.requested_backend for cell in deployed.module.modules() if hasattr(cell, "requested_backend")} == {
            "reference"
        }
        deployed.module(*deployed.examples())
        path.write_bytes(b"1234")

    monkeypatch.setattr(deployment, writer, write)
    outcome = invoke(f"run={run}", f"{tmp_path}/model{suffix}", "step=true", entry="export")
    assert outcome.status == 0, outcome.err
    first, *values = outcome.out.splitlines()
    assert first == f"{tmp_path}/model{suffix}: 4 bytes, of {run} (step 2)"
    assert values == [
        "  input inputs int64 rows",
        "  input state_0_hidden float32 rows 8",
        "  input state_0_cell float32 rows 8",
        "  output outputs float32 rows 9",
        "  output next_state_0_hidden float32 rows 8",
        "  output next_state_0_cell float32 rows 8",
    ]


def test_several_tokens_at_a_step_are_refused(tmp_path: Path) -> None:
    tokens = np.arange(120).reshape(20, 2, 3) % 5
    np.savez(tmp_path / "mine.npz", inputs=tokens, targets=np.arange(20) % 2)
    words = ("task=sequences", f"task.data={tmp_path}/mine.npz", "model=gru", "trainer.max_steps=1", "threads=1")
    run = train(tmp_path / "run", *words)
    error = invoke(f"run={run}", f"{tmp_path}/model.onnx", "step=true", entry="export").error
    assert error == f"run={run}: a step of its inputs has several tokens; only steps of one can be exported"


def test_bad_input_is_one_line(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def error(*words: str) -> str:
        return invoke(*words, entry="export").error

    own = f"run={run}"
    assert error("model.onnx") == "run=<nothing>: must be a run directory"
    assert error(own) == "save=<nothing>: must be a file, such as model.onnx"
    assert error(own, "model.pth") == "save=model.pth: must end in one of .onnx, .pt2"
    assert (
        error(own, f"{tmp_path}/none/model.onnx")
        == f"save={tmp_path}/none/model.onnx: {tmp_path}/none is not a directory"
    )
    assert error(own, "model.pt2", "step=2").startswith("step=2: must be")
    assert error(own, "model.pt2", "starts=true").startswith("starts=true: needs step=true")
    assert error(own, "model.pt2", "steps=true").startswith("steps: no such option; did you mean step?")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert error(f"run={empty}", "model.pt2").startswith(f"run={empty}: ")
    (run / "checkpoints" / "last.ckpt").rename(tmp_path / "last.ckpt")
    try:
        assert "has no checkpoint" in error(own, "model.pt2", "checkpoint=last")
    finally:
        (tmp_path / "last.ckpt").rename(run / "checkpoints" / "last.ckpt")

    def refuse(*_: Any) -> None:
        raise deployment.ExportError("ONNX does not support this model: it is complex")

    monkeypatch.setattr(deployment, "write_onnx", refuse)
    assert error(own, f"{tmp_path}/model.onnx") == f"{own}: ONNX does not support this model: it is complex"
    monkeypatch.setattr(
        export, "import_extra", lambda package, *further: extras.import_extra(f"no_{package}", *further)
    )
    message = f"save={tmp_path}/model.onnx: needs the package no_onnxscript: pip install 'gyral[onnx]'"
    assert error(own, f"{tmp_path}/model.onnx") == message
