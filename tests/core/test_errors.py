"""Errors of libraries in one line: what matters may be in any of their lines."""

from collections.abc import Callable
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import OmegaConf
from pydantic import TypeAdapter
from sqlalchemy import create_engine, text

from gyral.config.errors import describe
from gyral.core.errors import LONGEST_REASON, one_line


def train_sentencepiece() -> None:
    import sentencepiece

    trainer = sentencepiece.SentencePieceTrainer
    trainer.train(sentence_iterator=iter(["a b c"]), model_writer=BytesIO(), vocab_size=5000, minloglevel=2)


def load_weights() -> None:
    torch.nn.Linear(2, 3).load_state_dict({"weight": torch.zeros(4, 5), "gain": torch.zeros(1)})


FAULTS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "yaml": (lambda: yaml.safe_load("a: 1\nb: [1,\n"), ["while parsing a flow node", "line 3, column 1"]),
    "omegaconf": (lambda: OmegaConf.structured({"a": "${b}"}).a, ["Interpolation key 'b' not found"]),
    "hydra": (
        lambda: instantiate({"_target_": "gyral.nothing.Nothing"}),
        ["target 'gyral.nothing.Nothing'"],
    ),
    "pydantic": (lambda: TypeAdapter(int).validate_python("x"), ["Input should be a valid integer", "input_value='x'"]),
    "pandas": (lambda: pd.read_csv(StringIO("a,b\n1,2\n1,2,3\n")), ["Expected 2 fields in line 3, saw 3"]),
    "pyarrow": (lambda: pq.read_table(pa.BufferReader(b"x" * 20)), ["Parquet magic bytes not found in footer"]),
    "sentencepiece": (train_sentencepiece, ["Vocabulary size too high (5000)"]),
    "torch": (load_weights, ['Missing key(s) in state_dict: "bias"', 'Unexpected key(s) in state_dict: "gain"']),
    "sqlalchemy": (lambda: create_engine("sqlite://").connect().execute(text("SELECT x")), ["no such column: x"]),
}


@pytest.mark.parametrize("library", FAULTS)
def test_the_line_has_what_matters(library: str) -> None:
    fault, said = FAULTS[library]
    with pytest.raises(Exception) as raised:  # noqa: PT011
        fault()
    for line in (one_line(raised.value), describe(raised.value)):
        assert "\n" not in line
        assert "full_key" not in line
        assert "errors.pydantic.dev" not in line
        assert "sqlalche.me" not in line
        assert len(line) < LONGEST_REASON + 100
        for part in said:
            assert part in line


def test_the_reason_of_a_target_that_cannot_be_imported_equals_that_of_python() -> None:
    with pytest.raises(InstantiationException) as raised:
        instantiate({"_target_": "gyral.nothing.Nothing"})
    line = describe(raised.value)
    assert line.startswith("Error locating target 'gyral.nothing.Nothing': ")
    assert "No module named 'gyral.nothing'" in line


def test_a_message_that_is_too_long_keeps_its_begin_and_its_end() -> None:
    line = one_line(ValueError("\n".join(["begin", *["x" * 50] * 100, "end"])))
    assert line.startswith("begin x")
    assert line.endswith("x end")
    assert len(line) <= LONGEST_REASON + 3


def test_a_message_without_text_is_the_class() -> None:
    assert one_line(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert one_line(ValueError(" \n")) == "ValueError"


def test_a_stack_of_torch_is_left_out() -> None:
    message = (
        "CUDA error: out of bounds\nCUDA kernel errors might be asynchronous\n"
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
        "Compile with `TORCH_USE_CUDA_DSA` to enable assertions.\n\n"
        "Exception raised from f at x.cpp:3 (most recent call first):\nframe #0: c10::Error\n"
    )
    assert one_line(RuntimeError(message)) == "CUDA error: out of bounds"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("${nothing}", "seed: Interpolation key 'nothing' not found"),
        ("${nothing:3}", "seed: Unsupported interpolation type nothing"),
        ("${oc.env:NOTHING_OF_THIS_NAME}", "Environment variable 'NOTHING_OF_THIS_NAME' not found"),
        ("${oc.decode:'{'}", "GrammarParseError raised while resolving interpolation: mismatched input"),
        ("${seed}", "seed: Recursive interpolation detected"),
    ],
)
def test_an_interpolation_without_value_is_no_unknown_option(value: str, said: str) -> None:
    config = OmegaConf.create({"seed": value})
    with pytest.raises(Exception) as raised:  # noqa: PT011
        OmegaConf.to_container(config, resolve=True)
    line = describe(raised.value)
    assert said in line
    assert line.startswith("seed: ")
    assert "no such option" not in line


def test_an_error_in_an_own_file_does_not_blame_the_options_of_hydra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.helpers.running import invoke

    monkeypatch.chdir(tmp_path)
    Path("conf/experiment").mkdir(parents=True)
    Path("conf/experiment/own.yaml").write_text("# @package _global_\nseed: 1\nseed: 2\n", encoding="utf-8")
    error = invoke("experiment=own", "hydra.run.dir=run").error
    assert error == "conf/experiment/own.yaml:3: found duplicate key seed (while constructing a mapping from line 2)"
