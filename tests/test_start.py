"""Commands answer a wrong option, a missing file and --help before they import PyTorch, which takes seconds."""

import json
import os
import sys
from pathlib import Path

from gyral.config.plain import plain_values
from gyral.runs.saved_files import write_config
from tests.helpers.running import compose_config, spawn

# one new process, which composes once, and a fork of it for each command
SCRIPT = """
import json, os, sys
from hydra import compose, initialize_config_dir
from gyral import __main__, evaluate, export, generate, predict, report, sweep, train
from gyral.config.groups import CONFIG_PATH
from tests.helpers.composing import each_once

sharing = each_once()
sharing.__enter__()
with initialize_config_dir(CONFIG_PATH, version_base="1.3"):
    compose("train", return_hydra_config=True)
for words in json.loads(sys.argv[1]):
    sys.stdout.flush()
    if child := os.fork():
        os.waitpid(child, 0)
        continue
    sys.argv = ["gyral", *words]
    try:
        __main__.main()
    except SystemExit as end:
        found = {"torch", "pytorch_lightning", "matplotlib", "pandas"} & set(sys.modules)
        os.write(2, f"{words[0]} {end.code} {sorted(found)}\\n".encode())
    else:
        os.write(2, f"{words[0]} 0 {sorted({'torch'} & set(sys.modules))}\\n".encode())
    os._exit(0)
"""
REFUSED = {
    ("train", "nosuch=1"): "nosuch: no such option",
    ("train", "model.cell.nosuch=1"): "model.cell.nosuch: no such option",
    ("train", "task=nosuch"): "task=nosuch: must be one of",
    ("train", "task.delay=x"): "task.delay=x: must be a valid integer",
    ("train", "task.eval_batch_size=x"): "task.eval_batch_size=x: must be null or a valid integer",
    ("train", "model.cell.lambd=x"): "model.cell.lambd=x: must be a valid number",
    ("train", "model.cell.layer_norm=x"): "model.cell.layer_norm=x: must be a valid boolean",
    ("train", "task.delay=0"): "task.delay=0: must be an integer ≥ 1",
    ("train", "optimizer.lr=x"): "optimizer.lr=x: must be a valid number",
    ("train", "trainer.max_steps=x"): "trainer.max_steps=x: must be an integer from 1 to",
    ("train", "+trainer.min_steps=x"): "trainer.min_steps=x: must be null or a valid integer",
    ("train", "seed=-1"): "seed=-1: must be an integer from 0 to",
    ("train", "weights=no/run"): "weights=no/run: must be a run directory",
    ("train", "task=enwik8"): "task.corpus.name=enwik8: nodata/enwik8/enwik8 does not exist; `gyral fetch enwik8`",
    (
        "train",
        "task=text_file",
        "task.corpus.path=no/text.txt",
    ): "task.corpus.path=no/text.txt: cannot be read (No such",
    ("train", "task=sequences", "task.data=no/data.csv"): "task.data=no/data.csv: cannot be read (No such file or",
    (
        "train",
        "task=summarization_jsonl",
        "model=pointer_generator",
        "task.corpus.train=no.jsonl",
    ): "task.corpus.train=no.jsonl: no such file",
    ("train", "task=translation", "task.corpus.train=no.tsv"): "task.corpus.train=no.tsv: cannot be read (No such file",
    ("train", "resume=no/run"): "resume=no/run: must be a run directory",
    ("train", "-m", "seed=1,2", "model.cell.nosuch=1"): "model.cell.nosuch: no such option",
    ("train", "-m", "seed=1,2", "task.delay=x"): "task.delay=x: must be a valid integer",
    ("evaluate", "run=run", "checkpoint=x"): "checkpoint=x: must be one of best, last",
    ("evaluate", "run=run", "data=no/data.csv"): "data=no/data.csv: cannot be read (No such file or",
    ("predict", "run=run", "data=no/data.csv"): "data=no/data.csv: cannot be read (No such file or",
    ("generate", "run=run", "checkpoint=x", "length=3"): "checkpoint=x: must be one of best, last",
    ("export", "run=run", "save=model.onnx", "checkpoint=x"): "checkpoint=x: must be one of best, last",
    ("evaluate", "run=no/run"): "run=no/run: must be a run directory",
    ("predict", "run=no/run"): "run=no/run: must be a run directory",
    ("generate", "run=no/run"): "run=no/run: must be a run directory",
    ("export", "run=no/run", "save=model.onnx"): "run=no/run: must be a run directory",
    ("report", "sweep=no/sweep"): "sweep=no/sweep: there is no such directory",
}


def test_commands_answer_before_they_import_pytorch(tmp_path: Path) -> None:
    helps = [(command, "--help") for command in ("train", "evaluate", "predict", "generate", "report")]
    commands = json.dumps([*REFUSED, *helps])
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "checkpoints" / "last.ckpt").touch()
    write_config(tmp_path / "run" / "config.yaml", plain_values(compose_config()))
    path = os.pathsep.join(filter(None, sys.path))
    outcome = spawn("-c", SCRIPT, commands, cwd=tmp_path, DATA_DIR="nodata", PYTHONPATH=path)
    lines = outcome.err.splitlines()
    answers = [line for line in lines if not line.startswith("error: ")]
    expected = [f"{words[0]} 1 []" for words in REFUSED] + [f"{words[0]} 0 []" for words in helps]
    assert answers == expected, outcome.err
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    for error, reason in zip(errors, REFUSED.values(), strict=True):
        assert error.startswith(reason)
