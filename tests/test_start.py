"""Commands answer a wrong option, a missing file and --help before they import PyTorch, which takes seconds."""

import json
from pathlib import Path

from tests.helpers.running import spawn

# one new process, and a fork of it for each command
SCRIPT = """
import json, os, sys
from gyral import __main__, evaluate, export, generate, predict, report, sweep, train

for words in json.loads(sys.argv[1]):
    sys.stdout.flush()
    if child := os.fork():
        os.waitpid(child, 0)
        continue
    sys.argv = ["gyral", *words]
    try:
        __main__.main()
    except SystemExit as end:
        found = {"torch", "pytorch_lightning", "pydantic", "matplotlib", "pandas"} & set(sys.modules)
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
    ("train", "task=enwik8"): "task.corpus.name=enwik8: nodata/enwik8/enwik8 does not exist; `gyral fetch enwik8`",
    (
        "train",
        "task=text_file",
        "task.corpus.path=no/text.txt",
    ): "task.corpus.path=no/text.txt: cannot be read (No such",
    ("train", "task=sequences", "task.data=no/data.csv"): "task.data=no/data.csv: cannot be read (No such file or",
    ("train", "resume=no/run"): "resume=no/run: must be a run directory",
    ("train", "-m", "seed=1,2", "model.cell.nosuch=1"): "model.cell.nosuch: no such option",
    ("evaluate", "run=no/run"): "run=no/run: must be a run directory",
    ("predict", "run=no/run"): "run=no/run: must be a run directory",
    ("generate", "run=no/run"): "run=no/run: must be a run directory",
    ("export", "run=no/run", "save=model.onnx"): "run=no/run: must be a run directory",
    ("report", "sweep=no/sweep"): "sweep=no/sweep: there is no such directory",
}


def test_commands_answer_before_they_import_pytorch(tmp_path: Path) -> None:
    helps = [(command, "--help") for command in ("train", "evaluate", "predict", "generate", "report")]
    commands = json.dumps([*REFUSED, *helps])
    outcome = spawn("-c", SCRIPT, commands, cwd=tmp_path, DATA_DIR="nodata")
    lines = outcome.err.splitlines()
    answers = [line for line in lines if not line.startswith("error: ")]
    expected = [f"{words[0]} 1 []" for words in REFUSED] + [f"{words[0]} 0 []" for words in helps]
    assert answers == expected, outcome.err
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    for error, reason in zip(errors, REFUSED.values(), strict=True):
        assert error.startswith(reason)
