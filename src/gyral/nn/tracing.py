"""How tracers treat a layer: `torch.fx` records one call, `torch.jit.script` refuses it, ONNX gets plain loops."""

from typing import Any, NoReturn

from torch import Tensor, nn
from torch.func import functional_call
from torch.fx import Proxy

from gyral.cells.base import RecurrentCell, State
from gyral.cells.inputs import StepInputs
from gyral.core.errors import UserError
from gyral.ops.scan import scan


def is_symbolic(inputs: Any) -> bool:
    """Return whether `torch.fx.symbolic_trace` calls a module, with symbols in place of tensors."""
    return isinstance(inputs.values if isinstance(inputs, StepInputs) else inputs, Proxy)


def record_call(module: nn.Module, *arguments: Any) -> Any:
    """Return the symbol of a call of a module, a leaf of the graph as the modules of torch are.

    Raises:
        UserError: The module itself is traced.
    """
    first = arguments[0]
    symbol: Any = first.values if isinstance(first, StepInputs) else first
    tracer = symbol.tracer
    if tracer.root is module:
        name = type(module).__name__
        raise UserError(f"{name}: torch.fx records a layer as one call; trace a module that contains it")
    while arguments[-1] is None:
        arguments = arguments[:-1]
    return tracer.create_proxy("call_module", tracer.path_of_module(module), arguments, {})


def refuse_script(module: nn.Module) -> NoReturn:
    """Refuse `torch.jit.script`.

    Raises:
        UserError: Always; the message names the replacement.
    """
    name = type(module).__name__
    raise UserError(f"{name}: torch.jit.script does not support layers of Gyral; use torch.export or torch.compile")


def scan_without_gradients(cell: RecurrentCell, *arguments: Any) -> tuple[Tensor, State]:
    """Return `gyral.ops.scan.scan` of a cell's `scan_step`, with weights that need no gradient.

    ONNX has no gradients. With weights that need one, the exporter of torch also keeps what a backward pass of the loop
    would read, and fails where that is a symbolic size.
    """
    loop = _Loop(cell)
    weights = {name: weight.detach() for name, weight in loop.named_parameters()}
    outputs, state = functional_call(loop, weights, arguments)
    return outputs, state


class _Loop(nn.Module):
    """The loop over a cell as a module, for `functional_call`."""

    def __init__(self, cell: RecurrentCell) -> None:
        super().__init__()
        self.holder = cell.holder or cell  # with the weights
        self.step = cell.scan_step

    def forward(self, *arguments: Any) -> tuple[Tensor, State]:
        return scan(self.step, *arguments)
