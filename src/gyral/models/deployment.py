"""Programs of a trained model for other runtimes: ONNX, and packages of Ahead-of-time Inductor (.pt2).

A program has whole sequences as inputs, or one step with the state before it. Its inputs and outputs are plain tensors
with names, and the number of rows and of steps is free. It computes with operators of PyTorch alone: the process that
runs it needs neither Gyral nor, for ONNX, PyTorch.
"""

import contextlib
import copy
import logging
import shutil
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.utils._pytree import tree_flatten, tree_flatten_with_path, tree_unflatten

from gyral.cells.inputs import MaskedInputs
from gyral.core.errors import one_line
from gyral.core.files import replace_when_written
from gyral.models.attention import LastStep
from gyral.models.sequence import SequenceModel

ROWS, STEPS = "rows", "steps"  # the free sizes
EXAMPLE = {ROWS: 2, STEPS: 3}  # exporters take a size of 1 for a constant


class ExportError(Exception):
    """A model cannot be exported; the message is the reason, in one line."""


class Value(NamedTuple):
    """An input or output of a program.

    Attributes:
        name: its name.
        dtype: its type.
        sizes: its sizes; those that are free are "rows" and "steps".
        initial: what a tensor of the state has in each row before the first step; None for others.
    """

    name: str
    dtype: torch.dtype
    sizes: tuple[int | str, ...]
    initial: Tensor | None = None

    def __str__(self) -> str:
        return " ".join(map(str, (self.name, str(self.dtype).removeprefix("torch."), *self.sizes)))

    def example(self) -> Tensor:
        """Return zeros of this type, with the sizes of the example."""
        return torch.zeros([EXAMPLE[size] if isinstance(size, str) else size for size in self.sizes], dtype=self.dtype)

    def initial_numbers(self) -> str:
        """Return the numbers of `initial` in their order, separated by spaces; one if all are equal."""
        assert self.initial is not None
        numbers = (self.initial.int() if self.dtype == torch.bool else self.initial).flatten().tolist()
        return " ".join(map(str, numbers[:1] if len(set(numbers)) == 1 else numbers))


class Deployed(NamedTuple):
    """A model as a function of plain tensors.

    Attributes:
        module: the function.
        inputs, outputs: its inputs and outputs, in their order.
    """

    module: nn.Module
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]

    def describe(self) -> Iterator[str]:
        """Yield a line for each input and output: its name, type and sizes."""
        for kind, values in (("input", self.inputs), ("output", self.outputs)):
            for value in values:
                yield f"{kind} {value}"

    def examples(self) -> tuple[Tensor, ...]:
        """Return inputs with which the function is traced."""
        return tuple(value.example() for value in self.inputs)

    def shapes(self) -> tuple[dict[int, Any], ...]:
        """Return the free dimensions of the inputs."""
        free = {name: Dim(name, min=1) for name in EXAMPLE}
        return tuple(
            {index: free[size] for index, size in enumerate(value.sizes) if isinstance(size, str)}
            for value in self.inputs
        )


class _Function(nn.Module):
    """A model as a function of plain tensors, by the names of its inputs."""

    def __init__(self, model: SequenceModel, preprocessing: nn.Module | None) -> None:
        super().__init__()
        self.model, self.preprocessing = model, preprocessing
        self.names: tuple[str, ...] = ()

    def of_model(self, given: dict[str, Tensor]) -> Any:
        """Return the inputs of the model, (B, T, …) or those of a step, (B, …)."""
        inputs = given["inputs"] if self.preprocessing is None else self.preprocessing(given["inputs"])
        return MaskedInputs(inputs, given["write"]) if "write" in given else inputs


class Sequences(_Function):
    """The outputs for whole sequences."""

    def forward(self, *arguments: Tensor) -> Tensor:
        given = dict(zip(self.names, arguments, strict=True))
        outputs: Tensor = self.model(self.of_model(given), lengths=given.get("lengths"))[0]
        return outputs


class Step(_Function):
    """The outputs for one step, and the state after it."""

    def forward(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        count = len(self.names)
        given = dict(zip(self.names, arguments, strict=False))
        recurrent = self.model.recurrent
        before = tree_unflatten(list(arguments[count:]), tree_flatten(recurrent.init_state(1))[1])
        if "starts" in given:
            before = recurrent.reset_state(before, given["starts"])
        outputs, after = self.model.step(self.of_model(given), before)
        return (outputs, *tree_flatten(after)[0])


def deploy(
    model: nn.Module, preprocessing: nn.Module | None = None, step: bool = False, starts: bool = False
) -> Deployed:
    """Return a model as a function of plain tensors.

    Args:
        model: a trained model on the CPU.
        preprocessing: a module through which real inputs pass before the model, with its attribute `input_size`.
        step: whether the function computes one step with its state. Its inputs are then those of the step and the
            tensors of the state; its outputs are those of the step and the next state.
        starts: whether a step has the further input `starts`, (B,) bool. Where it is True, the state of the row counts
            as the initial one, whatever is given. Without it, the caller gives the initial state.

    Raises:
        ExportError: the model is not of sequences, or cannot run step by step.
    """
    if not isinstance(model, SequenceModel):
        raise ExportError(f"its model, {type(model).__name__}, cannot be exported; only those of sequences can")
    model = copy.deepcopy(model).eval()
    recurrent, readout = model.recurrent, model.readout
    recurrent.requested_backend = "reference"  # kernels are operators of Gyral, which other runtimes lack
    if step and recurrent.bidirectional:
        raise ExportError("a bidirectional model cannot run step by step; without step=true, it can be exported")
    if step and not (readout is None or isinstance(readout, LastStep)):
        reads = type(readout).__name__
        raise ExportError(f"{reads} reads all steps of a sequence at once; without step=true, it can be exported")
    parameter = next(model.parameters())
    times: tuple[str, ...] = () if step else (STEPS,)
    if model.input_size is None:
        inputs = [Value("inputs", torch.int64, (ROWS, *times))]
    else:
        size = model.input_size if preprocessing is None else int(preprocessing.input_size)  # type: ignore[arg-type]
        inputs = [Value("inputs", parameter.dtype, (ROWS, *times, size))]
    if step and starts:
        inputs.append(Value("starts", torch.bool, (ROWS,)))
    if not step and (readout is not None or recurrent.bidirectional):  # other outputs do not depend on what follows
        inputs.append(Value("lengths", torch.int64, (ROWS,)))
    if any(issubclass(MaskedInputs, cell.input_types) for cell in recurrent.cells):  # type: ignore[arg-type]
        inputs.append(Value("write", torch.bool, (ROWS, *times)))
    module = (Step if step else Sequences)(model, preprocessing)
    module.names = tuple(value.name for value in inputs)
    state = [
        Value("_".join(("state", *map(_key, path))), leaf.dtype, (ROWS, *leaf.shape[1:]), leaf[0].detach())
        for path, leaf in (tree_flatten_with_path(recurrent.init_state(1))[0] if step else ())
    ]
    outputs = Value("outputs", parameter.dtype, (ROWS, *(() if readout is not None else times), _output_size(model)))
    following = (value._replace(name=f"next_{value.name}", initial=None) for value in state)
    return Deployed(module.requires_grad_(False), (*inputs, *state), (outputs, *following))


def write_onnx(deployed: Deployed, path: Path) -> None:
    """Write a model as ONNX. Its metadata has the initial numbers of each tensor of the state, under its name.

    Raises:
        ExportError: ONNX has no operator for a part of the model.
    """
    with _reasons("ONNX"):
        traced = trace(deployed)  # given a module, torch.onnx would fix sizes that cannot be free, and say nothing
        if any(_is_complex(node.meta.get("val")) for node in traced.graph.nodes):
            raise ExportError("it has complex numbers")
        program = torch.onnx.export(
            traced,
            input_names=[value.name for value in deployed.inputs],
            output_names=[value.name for value in deployed.outputs],
            dynamic_shapes=(deployed.shapes(),),
            dynamo=True,
            verbose=False,
        )
        assert program is not None
        for node in program.model.graph.all_nodes():
            node.metadata_props.clear()  # the lines of code that each node is from, most of the file
        from gyral.models.onnx_rules import simplify  # which needs onnxscript

        simplify(program.model)
        initial = {value.name: value.initial_numbers() for value in deployed.inputs if value.initial is not None}
        program.model.metadata_props.update(initial)
        replace_when_written(path, lambda temporary: program.save(str(temporary)))


def _is_complex(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_complex()


def write_package(deployed: Deployed, path: Path) -> None:
    """Compile a model by Ahead-of-time Inductor and write the package.

    Its metadata has all inputs and outputs, as `input_0` and so on, and the initial numbers of a tensor of the state,
    such as `initial_1` for `input_1`.

    Raises:
        ExportError: the compiler of torch does not support a part of the model, or there is no C++ compiler.
    """
    values = {
        f"{kind}_{index}": str(value)
        for kind, group in (("input", deployed.inputs), ("output", deployed.outputs))
        for index, value in enumerate(group)
    }
    for index, value in enumerate(deployed.inputs):
        if value.initial is not None:
            values[f"initial_{index}"] = value.initial_numbers()
    with _reasons("Ahead-of-time Inductor"):
        program = trace(deployed)

        with TemporaryDirectory() as folder:
            package = f"{folder}/{path.stem}.pt2"  # the compiler accepts no other suffix
            options = {"aot_inductor.metadata": values}
            torch._inductor.aoti_compile_and_package(program, package_path=package, inductor_configs=options)
            replace_when_written(path, partial(shutil.copyfile, package))


def trace(deployed: Deployed) -> ExportedProgram:
    """Return a model as a program of `torch.export`."""
    return torch.export.export(deployed.module, deployed.examples(), dynamic_shapes=(deployed.shapes(),))


@contextlib.contextmanager
def _reasons(runtime: str) -> Iterator[None]:
    """Turn errors of an exporter into one line, and leave out its warnings."""
    logs = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript")]
    levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            yield
    except OSError:
        raise
    except Exception as error:
        root: BaseException = error
        while cause := root.__cause__ or root.__context__:
            root = cause
        if type(root).__name__ == "InvalidCxxCompiler":  # a class of torch's compiler, whose import takes seconds
            raise ExportError(f"{runtime} needs a C++ compiler: install g++, or set CXX") from error
        raise ExportError(f"{runtime} does not support this model: {one_line(root)}") from error
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)


def _output_size(model: SequenceModel) -> int:
    """Return the size of the outputs at a step or of a sequence."""
    dense: Any = model.head if model.head is not None else model.readout.dense  # type: ignore[union-attr]
    return int(dense.out_features)


def _key(key: Any) -> str:
    """Return a part of the place of a tensor in a state: a number or the name of a field."""
    return str(getattr(key, "name", getattr(key, "idx", key)))
