"""State spaces as Triton kernels: two launches and two products forward, two launches and four products backward."""

import functools
import sys
from typing import Any

import torch
from torch import Tensor

from gyral.ops.diagonal import state_space
from gyral.ops.diagonal.layer import KINDS
from gyral.ops.diagonal.triton import parameters
from gyral.ops.diagonal.triton.coefficients import Config
from gyral.ops.diagonal.triton.kernels import BLOCK, BLOCK_STEPS
from gyral.ops.diagonal.triton.launch import DTYPES
from gyral.ops.diagonal.triton.layer_kernels import backward_layer, forward_layer
from gyral.ops.triton.launch import as_bytes, difference, launch, preparation, waves

__all__ = ["DTYPES", "allocate", "backward", "forward", "prepare"]


def allocate(a: Any) -> tuple[list[Any], list[Any]]:
    """Return outputs and last state; and λ, the weights of the two products, the driven inputs and the states."""
    (_, states, size), dtype = a.drive.shape, a.product_dtype
    saved = [a.h0.new_empty(2 * states), a.h0.new_empty(2 * states, size, dtype=dtype)]
    saved += [a.h0.new_empty(size, 2 * states, dtype=dtype)]
    saved += [a.h0.new_empty(*a.inputs.shape[:2], 2 * states)]
    return [torch.empty_like(a.inputs), torch.empty_like(a.h0)], saved


def forward(a: Any) -> tuple[list[Any], list[Any]]:
    """Run all steps; see `gyral.ops.operator.Operator`."""
    results, saved = allocate(a)
    (outputs, final), (decay, weight, read, hidden) = results, saved
    vectors = a.rate, a.frequency, a.scale
    given = *vectors, a.drive, a.readout, decay, weight, read
    launch(parameters.forward_parameters, _programs(a), given, _parameters(a))
    driven = torch.mm(_flat(a.inputs, weight.dtype), weight.T).view(hidden.shape)
    _launch(forward_layer, a, driven, decay, [hidden, final, outputs])
    _add_product(outputs, hidden, read.T)
    return results, saved


def backward(
    a: Any, results: list[Any], saved: list[Any], gradients: list[Any], needs: dict[str, bool]
) -> dict[str, Any]:
    """Return the gradients; see `gyral.ops.operator.Operator`."""
    (decay, weight, read, hidden), (grad_outputs, grad_final) = saved, gradients
    dtype, (states, size), batch = weight.dtype, a.drive.shape[1:], len(a.h0)
    grad_hidden, grad_read = None, torch.zeros_like(read) if grad_outputs is None else torch.empty_like(read)
    if grad_outputs is not None:
        flat = _flat(grad_outputs, dtype)
        grad_hidden = torch.mm(flat, read).view(hidden.shape)
        torch.mm(flat.T, _flat(hidden, dtype), out=grad_read)
    names = "rate", "frequency", "scale", "drive", "readout", "skip"
    found = {name: torch.empty_like(getattr(a, name)) for name in (*names, "inputs", "h0")}
    driven, sums = torch.empty_like(hidden), (a.h0.new_empty(batch, 2 * states), a.h0.new_empty(batch, size))
    written = [driven, found["inputs"], found["h0"], *sums]
    _launch(backward_layer, a, driven, decay, [hidden, grad_outputs, grad_hidden, grad_final, *written])
    grad_weight = torch.mm(_flat(driven, dtype).T, _flat(a.inputs, dtype))
    _add_product(found["inputs"], driven, weight)
    given = a.rate, a.frequency, a.scale, a.drive, grad_weight, grad_read, *sums, *(found[name] for name in names)
    launch(parameters.backward_parameters, _programs(a), (*given, batch), _parameters(a))
    return found


def _parameters(a: Any) -> parameters.Config:
    _, states, size = a.drive.shape
    return parameters.Config(a.kind, states, size, a.gain)


def _programs(a: Any) -> int:
    """Return the number of programs of the kernels of the parameters."""
    return -(-max(a.drive.shape[1:]) // parameters.BLOCK.value)


def _launch(kernel: Any, a: Any, driven: Tensor, decay: Tensor, others: list[Any]) -> None:
    """Launch a kernel of the layer on all steps."""
    (_, states, size), (steps, batch) = a.drive.shape, a.inputs.shape[:2]
    config = Config("constant", states, True, "", 2 * states, 0, 0, True, states, 2)
    given = driven, decay, a.inputs, a.skip, a.h0, a.lengths, as_bytes(a.starts), *others, steps, batch, size
    launch(kernel, -(-batch * max(states, size) // BLOCK.value), given, config)


def _flat(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a tensor (T, B, …) as a matrix (T B, …) of a dtype."""
    return tensor.flatten(0, 1).to(dtype)


def _add_product(added: Tensor, factor: Tensor, weight: Tensor) -> None:
    """Add a product to a tensor (T, B, …), whose first factor is (T, B, …)."""
    flat = _flat(factor, weight.dtype)
    if flat.dtype == added.dtype:
        added.flatten(0, 1).addmm_(flat, weight)
    else:
        added.flatten(0, 1).add_(torch.mm(flat, weight))


@functools.cache
@torch.inference_mode(False)
def _probe(device: torch.device) -> str | None:
    """Return the reason why the kernels fail, or None. The example has two tiles, lengths and starts."""
    steps, batch, states, size = BLOCK_STEPS.value + 1, 3, 4, 6
    shapes = (steps, batch, size), (2, states, size), (2, size, states), (size,), *[(states,)] * 3, (batch, 2 * states)
    tensors = [waves(device, *shape) for shape in shapes]
    tensors[4] = -tensors[4].square()  # the rate
    lengths, starts = torch.arange(steps - batch + 1, steps + 1, device=device), waves(device, steps, batch) > 0.9
    names = state_space.Arguments._fields[: len(shapes)]
    return difference(sys.modules[__name__], state_space, (*tensors, lengths, starts, KINDS[1]), names)


prepare = preparation("state spaces", _probe)
