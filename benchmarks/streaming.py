"""Time of one step of one sequence, in Python and in onnxruntime, beside torch.nn.GRU.

    python -m benchmarks.streaming
    python -m benchmarks.streaming layer=MinGRU,LRU size=16x64 json=benchmarks/records/streaming.jsonl

  layer=GRU,…      layers; default: the ten of `benchmarks.deployment`
  size=16x64,…     inputs x units; default: 16x64,64x256
  json=path        append one line of JSON for each layer and size to this file

A model is a layer and a linear head with 16 outputs. In Python, the layer is called with one step and its state, on the
backend that it chooses; onnxruntime runs the file that `gyral export step=true` writes. torch.nn.GRU is exported by
`torch.onnx.export` with one step, and is one operator of onnxruntime. All run in turns, on one thread; a time is CPU
time, the best of several rounds: other processes only add to it. Nothing is reported unless onnxruntime agrees with the
layer to 10⁻⁴ over several steps.
"""

import json
import re
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

import gyral
from benchmarks.deployment import LAYERS, OUTPUTS
from benchmarks.provenance import provenance
from gyral.models import deployment
from gyral.models.sequence import SequenceModel
from gyral.nn import layers

SIZES = "16x64,64x256"
REFERENCE = "torch.nn.GRU"
ROUNDS, STEPS, CHECKED = 40, 50, 5  # rounds, steps of a round, and steps that are compared
TOLERANCE = 1e-4

Step = Callable[[Any], tuple[Any, Any]]  # from a state to the outputs and the next state


class TorchGRU(nn.Module):
    """torch.nn.GRU with a head."""

    def __init__(self, inputs: int, units: int) -> None:
        super().__init__()
        self.layer, self.head = nn.GRU(inputs, units), nn.Linear(units, OUTPUTS)

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        outputs, state = self.layer(inputs, state)
        return self.head(outputs), state


def session_of(path: Path) -> Any:
    """Return an onnxruntime session on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def steps_of_torch(inputs: int, units: int, folder: Path) -> tuple[int, dict[str, tuple[Step, Any]]]:
    """Return the number of nodes of torch.nn.GRU in ONNX, and for each runtime its step and its first state."""
    model = TorchGRU(inputs, units).eval().requires_grad_(False)
    vector, state = torch.randn(1, 1, inputs), torch.zeros(1, 1, units)
    program = torch.onnx.export(model, (vector, state), dynamo=True, verbose=False, input_names=["inputs", "state"])
    assert program is not None
    program.save(str(folder / "torch.onnx"))
    session, given = session_of(folder / "torch.onnx"), vector.numpy()

    def in_onnxruntime(state: Any) -> tuple[Any, Any]:
        return tuple(session.run(None, {"inputs": given, "state": state}))

    steps = {"python": (lambda state: model(vector, state), state), "onnxruntime": (in_onnxruntime, state.numpy())}
    return len(list(program.model.graph.all_nodes())), steps


def steps_of_layer(name: str, inputs: int, units: int, folder: Path) -> tuple[int, dict[str, tuple[Step, Any]]]:
    """Return the number of nodes of a layer in ONNX, and for each runtime its step and its first state.

    Raises:
        ArithmeticError: the runtimes disagree.
    """
    import onnx

    cell = partial(getattr(gyral, f"{name}Cell"), hidden_size=units)
    model = SequenceModel(cell, None, OUTPUTS, input_size=inputs).eval()
    deployed = deployment.deploy(model, step=True)
    path = folder / f"{name}.onnx"
    deployment.write_onnx(deployed, path)
    session = session_of(path)
    names = [value.name for value in deployed.inputs[1:]]
    initial = [value.initial[None].numpy() for value in deployed.inputs if value.initial is not None]
    vector = torch.randn(1, 1, inputs)
    given = vector[0].numpy()

    def in_onnxruntime(state: Any) -> tuple[Any, Any]:
        outputs, *after = session.run(None, {"inputs": given, **dict(zip(names, state, strict=True))})
        return outputs, after

    layer = getattr(layers, name)(inputs, units).eval()
    for own, parameter in zip(layer.parameters(), model.recurrent.parameters(), strict=True):
        own.copy_(parameter)

    def in_python(state: Any) -> tuple[Any, Any]:
        outputs, state = layer(vector, state)
        return model.head(outputs), state  # type: ignore[misc]

    (outputs, state), (given_outputs, after) = in_python(None), in_onnxruntime(initial)
    found = [(outputs, given_outputs)]
    begun = state, after
    for _ in range(CHECKED):
        (outputs, state), (given_outputs, after) = in_python(state), in_onnxruntime(after)
        found.append((outputs, given_outputs))
    error = max(float((one[0] - torch.from_numpy(other)).abs().max()) for one, other in found)
    if not error < TOLERANCE:
        raise ArithmeticError(f"{name}: onnxruntime differs by {error:.1e} from the layer")
    return len(onnx.load(path).graph.node), {"python": (in_python, begun[0]), "onnxruntime": (in_onnxruntime, begun[1])}


def measure(steps: dict[Any, tuple[Step, Any]]) -> dict[Any, float]:
    """Return the microseconds of each step, which run in turns."""
    times: dict[Any, float] = {}
    for _ in range(ROUNDS):
        for key, (step, state) in steps.items():
            begin = time.process_time()
            for _ in range(STEPS):
                _, state = step(state)
            spent = 1e6 * (time.process_time() - begin) / STEPS
            times[key] = min(spent, times.get(key, spent))
    return times


def rows_of(size: str, names: list[str], about: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each layer and torch.nn.GRU."""
    inputs, units = map(int, size.split("x"))
    torch.manual_seed(0)
    with TemporaryDirectory() as folder, torch.inference_mode(False), torch.no_grad():
        made = {REFERENCE: steps_of_torch(inputs, units, Path(folder))}
        made |= {name: steps_of_layer(name, inputs, units, Path(folder)) for name in names}
    with torch.inference_mode():
        times = measure({(name, runtime): step for name, (_, own) in made.items() for runtime, step in own.items()})
    rows = []
    for name, (nodes, own) in made.items():
        row: dict[str, Any] = {"layer": name, "inputs": inputs, "hidden": units, "outputs": OUTPUTS, "nodes": nodes}
        for runtime in own:
            row[f"{runtime}_us"] = round(times[name, runtime], 1)
            row[f"{runtime}_ratio"] = round(times[name, runtime] / times[REFERENCE, runtime], 3)
        rows.append({**row, "threads": 1, **about})
    return rows


def main(arguments: list[str]) -> int:
    """Print the rows; return the exit status."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    given = {"layer": ",".join(LAYERS), "size": SIZES, "json": ""}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals or key not in given or (key == "size" and not re.fullmatch(r"\d+x\d+(,\d+x\d+)*", value)):
            print(f"{argument}: must be layer=…, size=<inputs>x<units>,… or json=<file>", file=sys.stderr)
            return 2
        given[key] = value
    names = given["layer"].split(",")
    if unknown := [name for name in names if name not in layers.__all__]:
        print(f"layer={unknown[0]}: no such layer", file=sys.stderr)
        return 2
    import onnxruntime

    torch.set_num_threads(1)
    about = {**provenance(), "onnxruntime": onnxruntime.__version__}
    for size in given["size"].split(","):
        try:
            rows = rows_of(size, names, about)
        except ArithmeticError as error:
            print(error, file=sys.stderr)
            return 1
        for row in rows:
            print(*(f"{key}={row[key]}" for key in row if key not in about), flush=True)
        if given["json"]:
            with Path(given["json"]).open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
