"""Export the model of a run for programs without Gyral: onnxruntime, or PyTorch's runtime in C++.

    gyral export run=outputs/copy/rum/<time> model.onnx step=true

See `gyral export --help`.
"""

import dataclasses
import sys
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, open_dict

from gyral.config import command_line
from gyral.core.checks import check_boolean
from gyral.core.errors import OptionError
from gyral.core.extras import import_extra
from gyral.core.inputs import path_of
from gyral.runs.directory import Run, choose_checkpoint, load_run

SUFFIXES = (".onnx", ".pt2")


def export(config: DictConfig) -> None:
    """Write the model of a run to a file, and print the names, types and shapes of its inputs and outputs."""
    if config.run is None:
        raise OptionError("run", "<nothing>", "must be a run directory")
    if config.save is None:
        raise OptionError("save", "<nothing>", "must be a file, such as model.onnx")
    path, step = path_of(config.save), check_boolean("step", config.step)
    starts = check_boolean("starts", config.starts)
    if starts and not step:
        raise OptionError("starts", "true", "needs step=true: whole sequences begin with the initial state")
    if path.suffix not in SUFFIXES:
        raise OptionError("save", path, f"must end in one of {', '.join(SUFFIXES)}")
    if not path.absolute().parent.is_dir():
        raise OptionError("save", path, f"{path.absolute().parent} is not a directory")
    if path.suffix == ".onnx":
        import_extra("onnxscript", f"save={path}", "onnx")
    run = load_run(Path(config.run), config.trust)
    choose_checkpoint(run.directory, config.checkpoint)  # before PyTorch is imported

    from gyral.models import deployment
    from gyral.models.sequence import SequenceModel
    from gyral.tasks.base import SequenceTask
    from gyral.tasks.sequences import SequencesTask
    from gyral.training import build

    task, number = build.load_for_inputs(on_cpu(run), config.checkpoint)
    try:
        if isinstance(task.model, SequenceModel) and type(task).model_inputs not in (
            SequenceTask.model_inputs,
            SequencesTask.model_inputs,
        ):
            raise deployment.ExportError(f"{type(task).__name__} has further inputs, such as edges, which no file has")
        if isinstance(task, SequencesTask) and task.data.sequences.schema.step_tokens is not None:
            raise deployment.ExportError("a step of its inputs has several tokens; only steps of one can be exported")
        deployed = deployment.deploy(task.model, getattr(task, "preprocessing", None), step, starts)
        write = deployment.write_onnx if path.suffix == ".onnx" else deployment.write_package
        write(deployed, path)
    except deployment.ExportError as error:
        raise OptionError("run", config.run, str(error)) from error
    print(f"{path}: {path.stat().st_size:,} bytes, of {config.run} (step {number:,})")
    for line in deployed.describe():
        print(f"  {line}")


def on_cpu(run: Run) -> Run:
    """Return a run whose model is loaded on the CPU."""
    config: Any = run.config.copy()
    with open_dict(config):
        config.trainer.accelerator = "cpu"
    return dataclasses.replace(run, config=config)


def main() -> None:
    """Run `gyral export` with the arguments of the command line, of which a word without "=" is the file."""
    sys.argv[1:] = [word if "=" in word or word.startswith("-") else f"save={word}" for word in sys.argv[1:]]
    command_line.main(export, "export", literal=("save",), runs_jobs=False, explains=True)


if __name__ == "__main__":
    main()
