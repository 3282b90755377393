"""Arguments of operators and layers that are unusual, or wrong: each is used, or refused in one line."""

import warnings
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

# Errors that `torch.nn` raises for wrong arguments, too.
REFUSED = (RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError, MemoryError, OverflowError)


class Subclass(Tensor):
    """A subclass with the memory of a tensor."""


class Wrapper(Tensor):
    """A subclass without memory of its own, whose operations are those of the tensor that it wraps."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "Wrapper":
        made: Wrapper = Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        arguments, options = tree_map_only(Wrapper, lambda each: each.inner, (arguments, options or {}))
        return tree_map_only(Tensor, cls, function(*arguments, **options))


def without_memory(tensor: Tensor) -> Tensor:
    tensor = tensor.clone()
    tensor.untyped_storage().resize_(0)
    return tensor


def conjugated(tensor: Tensor) -> Tensor:
    """Return the tensor as a lazily negated view of one number in two."""
    return torch.complex(torch.zeros_like(tensor), -tensor).conj().imag


def offset(tensor: Tensor) -> Tensor:
    return torch.cat((tensor.new_zeros(3), tensor.flatten()))[3:].view(tensor.shape)


def transposed(tensor: Tensor) -> Tensor:
    order = tuple(range(tensor.dim()))[::-1]
    return tensor.permute(order).contiguous().permute(order)


def tagged(tensor: Tensor) -> Tensor:
    return tensor.as_subclass(Subclass)


def parameter(tensor: Tensor) -> Tensor:
    return nn.Parameter(tensor.detach(), requires_grad=tensor.is_floating_point())


def of_many_steps(tensor: Tensor) -> Tensor:
    return tensor[:1].expand(2**40, *tensor.shape[1:])


def inference(tensor: Tensor) -> Tensor:
    with torch.inference_mode():
        return tensor.clone()


# With these values, an argument means the same.
SAME: tuple[Callable[[Tensor], Tensor], ...] = (
    offset,
    transposed,
    tagged,
    parameter,
    inference,
    conjugated,
    lambda tensor: torch._neg_view(-tensor),
    lambda tensor: tensor[:1].expand_as(tensor) if tensor.dim() else tensor,
    lambda tensor: tensor[..., :1].expand_as(tensor) if tensor.dim() else tensor,
    lambda tensor: (
        torch.as_strided(tensor.clone(), tensor.shape, [1] * tensor.dim())
        if sum(tensor.shape) - tensor.dim() < tensor.numel()
        else tensor
    ),
    lambda tensor: torch._efficientzerotensor(tensor.shape, dtype=tensor.dtype),
    lambda tensor: tensor * torch.nan,
    lambda tensor: tensor * 1e30,
    lambda tensor: Wrapper(tensor.detach()),
)

OTHER: tuple[Callable[[Tensor], Any], ...] = (
    lambda tensor: tensor.to("meta"),
    lambda tensor: tensor.to_sparse(),
    lambda tensor: tensor.flatten(1).to_sparse_csr() if tensor.dim() > 1 else tensor.to_sparse(),
    lambda tensor: tensor.to_mkldnn(),
    lambda tensor: torch.quantize_per_tensor(tensor.float(), 0.1, 0, torch.qint8),
    lambda tensor: torch.nested.nested_tensor([*tensor] if tensor.dim() else [tensor]),
    lambda tensor: torch.nested.nested_tensor([*tensor], layout=torch.jagged),
    lambda tensor: torch.nested.nested_tensor([*tensor[0]]),
    without_memory,
    lambda tensor: nn.UninitializedParameter(),
    *(lambda tensor, dtype=dtype: tensor.to(dtype) for dtype in (torch.float64, torch.float16, torch.bfloat16)),
    *(lambda tensor, dtype=dtype: tensor.to(dtype) for dtype in (torch.int64, torch.int32, torch.bool)),
    lambda tensor: tensor.to(torch.complex64),
    lambda tensor: tensor.float(),
    lambda tensor: tensor[0],
    lambda tensor: tensor.unsqueeze(0),
    lambda tensor: tensor.unsqueeze(-1),
    lambda tensor: tensor[:-1],
    lambda tensor: tensor[..., :-1],
    lambda tensor: tensor[:0],
    lambda tensor: tensor[..., :0],
    lambda tensor: torch.cat((tensor, tensor)),
    lambda tensor: torch.cat((tensor, tensor), -1),
    lambda tensor: tensor.flatten(),
    lambda tensor: tensor.mT,
    lambda tensor: tensor.new_zeros(()),
    lambda tensor: tensor.new_zeros(1).expand(2**40),
    lambda tensor: tensor[..., :1].expand(*tensor.shape[:-1], 2**31 + 1),
    of_many_steps,
    lambda tensor: tensor.numpy(),
    lambda tensor: tensor.tolist(),
    lambda tensor: [tensor],
    lambda tensor: None,
    lambda tensor: 3,
    lambda tensor: "tensor",
)

INTEGERS = (-(2**63), -(2**31), -7, -1, 0, 1, 2, 1000, 2**31, 2**62, 2**63 - 1)
NUMBERS: tuple[Any, ...] = (*INTEGERS, 2**70, -0.5, 0.5, 1e300, torch.inf, torch.nan, None, True, "number", [1])
TEXTS: tuple[Any, ...] = ("", "unknown", "relu", "lstm", "gru", "rum", "dnc", None, 1)


def changed(value: Any, random: Random) -> tuple[Any, Any]:
    """Return an unusual value in place of one, and what it means in a plain form, or None if it may be wrong."""
    if isinstance(value, list):
        if not value or random.random() < 0.2:
            return random.choice(([], value[:-1], [*value, None], [*value, *value], None, 3)), None
        place = random.randrange(len(value))
        item, plain = changed(value[place], random)
        items = [[*value[:place], each, *value[place + 1 :]] for each in (item, plain)]
        return items[0], None if plain is None else items[1]
    if isinstance(value, Tensor):
        return changed_tensor(value, random)
    return random.choice(TEXTS if isinstance(value, str) else NUMBERS), None


def changed_tensor(tensor: Tensor, random: Random) -> tuple[Any, Any]:
    if not tensor.is_floating_point() and random.random() < 0.4:
        wrong = tensor.clone()
        if wrong.numel():
            wrong.view(-1)[random.randrange(wrong.numel())] = random.choice(INTEGERS)
        return wrong, None
    is_same = random.random() < 0.4
    for change in random.sample(ways := SAME if is_same else OTHER, len(ways)):
        try:
            with warnings.catch_warnings(action="ignore"):
                odd = change(tensor)
                return odd, plain_copy(odd) if is_same else None
        except Exception:  # torch has no such tensor of this dtype or shape
            continue
    return tensor, None


def plain_copy(tensor: Tensor) -> Tensor:
    if isinstance(tensor, Wrapper):
        return tensor.inner.clone()
    if tensor._is_zerotensor():
        return torch.zeros(tensor.shape, dtype=tensor.dtype)
    return tensor.detach().as_subclass(Tensor).resolve_neg().clone(memory_format=torch.contiguous_format)


def leaves(values: Any) -> Iterator[Tensor]:
    """Return the floating-point tensors in nested lists and tuples of them, without those that a subclass wraps."""
    for value in values if isinstance(values, list | tuple) else [values]:
        if isinstance(value, list | tuple):
            yield from leaves(value)
        elif isinstance(value, Wrapper):
            yield value.inner
        elif isinstance(value, Tensor) and value.is_floating_point():
            yield value.as_subclass(Tensor)
