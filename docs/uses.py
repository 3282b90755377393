"""The uses of `torch.nn.GRU` that every layer has, and the ones that a layer refuses.

tests/nn/test_uses.py runs each use with each layer; `make results` makes the table of docs/how-to/layers.md.
"""

from functools import partial
from typing import Any, NamedTuple

import gyral
from gyral.nn import layers


class Layer(NamedTuple):
    """A layer of the table: its class in `gyral`, and its options."""

    name: str
    options: dict[str, Any]

    def make(self, *sizes: int, **options: Any) -> Any:
        """Return a layer with these sizes."""
        return getattr(gyral, self.name)(*sizes, **self.options, **options)


class Use(NamedTuple):
    """A use of a layer: what it is called, and what its test proves."""

    title: str
    proof: str


class Limit(NamedTuple):
    """A use, or a part of it, that a layer refuses.

    Attributes:
        error: A regular expression for the message, one line, of the error or of the cause of torch's own error.
        reason: The note below the table.
        partly: Whether the layer refuses only a part of the use.
    """

    error: str
    reason: str
    partly: bool = False


# options of layers whose default ones are large or have no default; a layer that is not listed has its default options
OPTIONS: dict[str, dict[str, Any]] = {
    "LightConv": {"kernel_size": 3, "heads": 2},
    "DynamicConv": {"kernel_size": 3, "heads": 2},
    "S4D": {"state_size": 2},
    "Mamba": {"state_size": 2},
    "GLA": {"heads": 1, "gate_rank": 2},
    "HGRN2": {"heads": 2},
    "Mamba3": {"heads": 2, "state_size": 4},
    "Mamba2": {"heads": 2, "state_size": 2},
    "DeltaNet": {"heads": 2},
    "GatedDeltaNet": {"heads": 1},
    "DeltaProduct": {"heads": 1},
    "KDA": {"heads": 2},
    "GatedDeltaNet2": {"heads": 1},
    "MLSTM": {"heads": 2},
    "MLSTMLarge": {"heads": 2},
    "RWKV7": {"heads": 2, "decay_rank": 2, "rate_rank": 2, "gate_rank": 2},
    "RotationScan": {"heads": 2},
    "PDSSM": {"state_size": 3, "dictionary_size": 2},
    "SLiCE": {"block_size": 3},
    "SLSTM": {"heads": 2},
    "M2RNN": {"heads": 2},
    "ONLSTM": {"chunk_size": 2},
    "LANTM": {"width": 3, "capacity": 4, "forget": 2},
    "MAGEGRU": {"edge_size": 2, "capacity": 6},
    "MAGE": {"edge_size": 2, "capacity": 6},
    "FSRNN": {"fast": partial(gyral.LSTMCell, layer_norm=True), "slow": gyral.LSTMCell},
    "NTM": {"slots": 3, "width": 2},
    # two slots: with more, the rounding of bfloat16 changes the order in which free slots are used
    "DNC": {"slots": 2, "width": 2, "read_heads": 1},
}
LAYERS = {name: Layer(name, OPTIONS.get(name, {})) for name in layers.__all__ if name != "Layer"}
LAYERS["RUM(lambd=1)"] = Layer("RUM", {"lambd": 1.0})

USES = {
    "packed": Use("packed sequences", "outputs, states and gradients are those of each sequence alone"),
    "unbatched": Use("unbatched input", "a sequence (T, X) equals a batch of one"),
    "states": Use("states between windows", "two windows equal the whole; detached, the gradient ends between them"),
    "rows": Use(
        "`reset_state`, `select_state`",
        "reset rows begin anew, and other and selected rows continue, also in gradients",
    ),
    "state_dict": Use("`state_dict`", "another layer gives the same outputs and gradients after a strict load"),
    "deepcopy": Use("`copy.deepcopy`", "the copy computes the same, and the original does not follow its changes"),
    "pickle": Use(
        "`pickle`",
        "a layer, also with `weight_drop`, computes the same after a round trip, also of `torch.save`",
    ),
    "dtype": Use("`.to(dtype)`", "float64 equals a layer that was made in float64; bfloat16 agrees to its precision"),
    "autocast": Use("`torch.autocast`", "outputs and gradients agree with float32 to the precision of bfloat16"),
    "compile": Use("`torch.compile`", "`fullgraph=True`: outputs, states and gradients equal the eager ones"),
    "export": Use(
        "`torch.export`",
        "a saved program gives the layer's outputs, states and gradients, for any number of steps and rows",
    ),
    "onnx": Use(
        "ONNX", "onnxruntime agrees with the layer to 1e-5, also for other numbers of steps and rows (see above)"
    ),
    "functional": Use("`torch.func.grad`", "equals the gradients of `backward`"),
    "ddp": Use("DistributedDataParallel", "gradients are those of the whole batch"),
    "checkpointing": Use(
        "gradient checkpointing", "same outputs and gradients, with the same dropout masks; only the inputs are kept"
    ),
    "in_place": Use("in-place operations", "outputs and states may be overwritten before the backward pass"),
    "forward_mode": Use("forward-mode derivatives", "`torch.autograd.forward_ad` agrees with `backward`"),
    "batched": Use("batched gradients", "`is_grads_batched` and `jacobian(vectorize=True)` equal gradients one by one"),
    "not_finite": Use("resets of NaN and infinity", "nothing of the old state reaches values or gradients"),
    "hooks": Use("hooks", "hooks of the layer see, and may replace, what passes; all modules may have some"),
    "empty": Use("empty sequences", "with T = 0 or a length of 0, the state is returned as given, also in gradients"),
    "strided": Use("strided and expanded inputs", "views, and tensors that `expand` has made, equal their copies"),
    "frozen": Use("`requires_grad_(False)`", "frozen parameters have no gradient, and the others the same as before"),
    "inference": Use("`no_grad`, `inference_mode`", "the same outputs, and the layer can be trained afterwards"),
    "parametrized": Use("`parametrize`", "a parametrization of every parameter has its effect on values and gradients"),
    "average": Use("`AveragedModel`", "the average of one model computes the same, in shared memory too"),
    "meta": Use(
        "meta device", "`to_empty` with `reset_parameters`, or a load with `assign=True`, makes a usable layer"
    ),
    "vmap": Use("`torch.func.vmap`", "an ensemble, and gradients for each sample, equal a loop"),
    "replicas": Use("replicas of `DataParallel`", "a replica, which has no parameters by name, computes the same"),
    "fx": Use("`torch.fx`", "in the graph of a model, the layer is one call, as the modules of torch are"),
    "trace": Use(
        "`torch.jit.trace`",
        "PyTorch's check of the graph passes, with and without gradients; other inputs of this size give the same",
    ),
    "script": Use("`torch.jit.script`", "an error of one line names the replacement"),
}

COMPLEX = ("EURNN", "URNN", "FullURNN")
LIMITS = {
    ("dtype", layer): Limit(
        rf"^{layer}Cell is complex and supports the dtypes float32 and float64, not bfloat16$",
        "PyTorch has no complex numbers of bfloat16 and float16.",
        partly=True,
    )
    for layer in COMPLEX
} | {
    ("onnx", layer): Limit(
        rf"^{layer}Cell is complex, and cannot be exported to ONNX$",
        "ONNX has no complex arithmetic. `EURNN(…, is_complex=False)` can be exported.",
    )
    for layer in COMPLEX
}
LIMITS |= {
    ("onnx", layer): Limit(
        rf"^{layer}Cell has a matrix exponential, and cannot be exported to ONNX$", "ONNX has no matrix exponential."
    )
    for layer in ("ExpRNN", "DTRIV")
}
LIMITS |= {
    ("script", layer): Limit(
        r"^\w+: torch\.jit\.script does not support layers of Gyral; use torch\.export or torch\.compile$",
        "`torch.export` and `torch.compile` replace TorchScript, which PyTorch no longer develops.",
    )
    for layer in LAYERS
}


# `torch.onnx.export` of these with `dynamic_shapes` fails in torch
FIXED_SIZE_IN_ONNX = ("Mamba3",)


def table() -> str:
    """Return the uses with what the test of each proves, after the layers that refuse one."""
    refused: dict[tuple[str, Limit], list[str]] = {}
    for (use, layer), limit in LIMITS.items():
        refused.setdefault((use, limit._replace(error="")), []).append(layer)
    limits = []
    for (use, limit), own in sorted(refused.items(), key=lambda item: [*USES].index(item[0][0])):
        by = "all layers" if len(own) == len(LAYERS) else ", ".join(f"`{layer}`" for layer in own)
        limits.append(f"* {USES[use].title}{' in part' if limit.partly else ''}: {by}. {limit.reason}")
    rows = [f"| {use.title} | {use.proof} |" for use in USES.values()]
    return "\n".join(
        ["All layers have all uses, except:", "", *limits, "", "| use | what its test proves |", "| --- | --- |", *rows]
    )
