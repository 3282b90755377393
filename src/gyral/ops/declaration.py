"""The declarations of an operator besides its kernels: checks of its arguments, and its floating-point operations.

Kernels read the memory of tensors, so that all of them are checked before. Each error is one line that names the
argument. Floating-point operations are counted as `torch.utils.flop_counter.FlopCounterMode` counts them: those of
matrix products alone, two for each multiplication with its addition.
"""

import operator
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gyral.core.compat import flop_registries, tensor_guard
from gyral.core.errors import InputError

COMMON = {"lengths": torch.int64, "starts": torch.bool}  # dtypes of arguments that all operators have
REMEMBERED = 32  # calls of an operator whose shapes are known to be correct
CPU = torch.device("cpu")
IS_NESTED = operator.attrgetter("is_nested")


def check_tensor(
    name: str, tensor: Any, device: torch.device, dtype: torch.dtype | None = None, of: str = "the parameters"
) -> None:
    """Check that an argument is a dense tensor on a device, of a dtype unless that is None.

    Args:
        name: The name of the argument.
        tensor: The argument.
        device, dtype: What it must have.
        of: Which tensors have this device and dtype.

    Raises:
        InputError: The tensor is on another device, sparse or nested, has another dtype, or is not a tensor.
    """
    if not isinstance(tensor, Tensor):
        raise InputError(f"{_is(name)} of type {type(tensor).__name__}, must be a tensor")
    if tensor.layout != torch.strided or tensor.is_nested:
        kind = "nested" if tensor.is_nested else f"of layout {tensor.layout}"
        raise InputError(f"{_is(name)} {kind}, must be dense (torch.strided)")
    if tensor.device != device:
        raise InputError(f"{_is(name)} on {tensor.device}, must be on {device}, the device of {of}")
    if dtype is not None and tensor.dtype != dtype:
        needed = f"that of {of}, {dtype}" if dtype.is_floating_point else dtype
        raise InputError(f"{_has(name)} dtype {tensor.dtype}, must have {needed}")


def in_memory(name: str, tensor: Tensor) -> Tensor:
    """Return a tensor in contiguous memory, whose bits are those of its numbers.

    Raises:
        InputError: It has no memory, as a tensor whose storage has been resized to zero.
    """
    if tensor.numel() > 0 and not tensor.data_ptr():
        if not tensor._is_zerotensor():
            raise InputError(f"{_has(name)} an empty storage, must have memory for {tensor.numel()} numbers")
        tensor = torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    return tensor.resolve_neg().contiguous()


def check_shape(name: str, tensor: Tensor | None, *sizes: int | str) -> tuple[int, ...]:
    """Return the shape of an argument, or nothing if it is None.

    Args:
        name: The name of the argument.
        tensor: The argument.
        sizes: The size of each dimension, or the letter of one that may have any size from 1 on.

    Raises:
        InputError: The tensor has another shape.
    """
    if tensor is None:
        return ()
    shape = tensor.shape
    if len(shape) != len(sizes) or any(
        found < 1 if isinstance(size, str) else found != size for size, found in zip(sizes, shape, strict=True)
    ):
        expected = f"({', '.join(map(str, sizes))}{',' * (len(sizes) == 1)})"
        raise InputError(f"{_has(name)} shape {tuple(shape)}, must have {expected}")
    return tuple(shape)


def check_range(name: str, tensor: Tensor, low: int, high: int) -> None:
    """Check the values of integers on a CPU; elsewhere the check would wait for the values.

    Raises:
        InputError: A value is below `low` or above `high`.
    """
    if tensor.device.type == "cpu" and tensor.numel() > 0:
        least, most = (int(bound) for bound in tensor.aminmax())
        if least < low or most > high:
            raise InputError(f"{_has(name)} values from {least} to {most}, must be in [{low}, {high}]")


def _is_number(tensor: Any) -> bool:
    """Return whether a tensor is a real number without dimensions."""
    is_dense = isinstance(tensor, Tensor) and tensor.layout == torch.strided
    return is_dense and tensor.dim() == 0 and tensor.is_floating_point()


def _has(name: str) -> str:
    return f"{name} {'have' if _is_plural(name) else 'has'}"


def _is(name: str) -> str:
    return f"{name} {'are' if _is_plural(name) else 'is'}"


def _is_plural(name: str) -> bool:
    return name.endswith("s") and name != "bias"


def _has_type(value: Any, hint: Any) -> bool:
    """Return whether a value has the type of an argument; an integer may be that of a real number."""
    if typing.get_origin(hint) is list:
        return isinstance(value, list) and all(_has_type(item, typing.get_args(hint)[0]) for item in value)
    kinds = typing.get_args(hint) or (hint,)
    return isinstance(value, (*kinds, int) if float in kinds else kinds)


class KnownCall(NamedTuple):
    """A call whose arguments have been checked. To compare others with them takes a third of the time of the checks.

    Attributes:
        others_of, others: Returns the arguments that are no tensors, and these.
        tensors_of: Returns the tensors.
        guard: See `gyral.core.compat.tensor_guard`.
    """

    others_of: Callable[[Any], tuple[Any, ...]]
    others: tuple[Any, ...]
    tensors_of: Callable[[Any], tuple[Tensor, ...]]
    guard: Callable[..., bool]

    @classmethod
    def of(cls, given: Sequence[Any]) -> "KnownCall | None":
        """Return the value to compare other arguments with, or None if they cannot be compared so."""
        places = [index for index, value in enumerate(given) if isinstance(value, Tensor)]
        others = [index for index, value in enumerate(given) if not isinstance(value, Tensor)]
        guard = tensor_guard([given[index] for index in places])
        if guard is None or len(places) < 2 or len(others) < 2:  # of one index, itemgetter returns no tuple
            return None
        others_of = operator.itemgetter(*others)
        return cls(others_of, others_of(given), operator.itemgetter(*places), guard)


class Checks:
    """The checks of the arguments of an operator.

    All tensors must be on the device of the first one, and have its dtype, except for those of `COMMON` and `dtypes`.
    Real numbers as tensors without dimensions, such as a probability, may have any dtype and be on any device.

    Args:
        arguments: The named tuple of the arguments.
        hints: Their types: tensors, numbers, strings, dtypes, lists of these, and any of them or None.
        tensors: The indices of those that are tensors or None; the first of them is a sequence (T, B, …).
        shapes: Checks the shapes and the options of the arguments, with `check_shape`. T ≥ 1 and the shapes of
            `lengths` (B,) and `starts` (T, B) are checked here, and that lengths are in [1, T].
        dtypes: The dtypes of arguments that are no floating-point numbers, by their names.
        limits: By the names of tensors of indices, functions that return from the arguments how many indices there are.
    """

    def __init__(
        self,
        arguments: Any,
        hints: Sequence[Any],
        tensors: Sequence[int],
        shapes: Callable[[Any], object],
        dtypes: Mapping[str, torch.dtype],
        limits: Mapping[str, Callable[[Any], int]],
    ) -> None:
        self.arguments, self.hints, self.first, self.shapes = arguments, hints, tensors[0], shapes
        self.lists = [index for index, hint in enumerate(hints) if typing.get_origin(hint) is list]
        self.fields: Sequence[str] = arguments._fields
        dtypes = {**COMMON, **dtypes}
        self.dtypes = [(index, dtypes.get(self.fields[index])) for index in tensors]
        self.limits = [(self.fields.index(name), limit) for name, limit in limits.items()]
        self.lengths = self.fields.index("lengths") if "lengths" in self.fields else None
        self.known: list[list[Any]] = []  # shapes and options that are correct, those of the last calls first
        self.calls: list[KnownCall] = []  # the same, where no tensor needs a copy

    def check_kinds(self, given: Sequence[Any]) -> None:
        """Check devices, dtypes and layouts alone, also of tensors that have no memory.

        Raises:
            InputError: See `check_tensor`.
        """
        first, name = given[self.first], self.fields[self.first]
        if not isinstance(first, Tensor):
            check_tensor(name, first, CPU)
        device, dtype = first.device, first.dtype
        for index, own in self.dtypes:
            tensor = given[index]
            is_like = (
                isinstance(tensor, Tensor)
                and tensor.dtype == (own or dtype)
                and tensor.device == device
                and tensor.layout == torch.strided
                and not tensor.is_nested
            )
            if not is_like and tensor is not None and not _is_number(tensor):  # the error, which is worth a call
                check_tensor(self.fields[index], tensor, device, own or dtype, name)
        for index in self.lists:
            for place, item in enumerate(given[index] or ()):
                if isinstance(item, Tensor) and not _is_number(item):
                    check_tensor(f"{self.fields[index]}[{place}]", item, device, dtype, name)

    def prepare(self, given: Sequence[Any]) -> Any:
        """Return the named tuple of the arguments, whose tensors are in contiguous memory.

        Raises:
            InputError: See `check_tensor`, `in_memory`, `check_shape` and `check_range`.
        """
        arguments = self.arguments._make(given) if self._is_known(given) else self._check(given)
        if self.lengths is not None and arguments[self.lengths] is not None:
            check_range("lengths", arguments[self.lengths], 1, len(arguments[self.first]))
        for index, limit in self.limits:
            if arguments[index] is not None:
                check_range(self.fields[index], arguments[index], 0, limit(arguments) - 1)
        return arguments

    def _check(self, given: Sequence[Any]) -> Any:
        """Do the same but for the values of integers, and remember the call."""
        values, signature = list(given), list(given)
        first = given[self.first]
        try:
            dtype, is_cpu, device = first.dtype, first.is_cpu, first.device
            for index, own in self.dtypes:
                tensor = given[index]
                if tensor is not None:
                    if (
                        tensor.dtype is not (own or dtype)
                        or tensor.is_cpu is not is_cpu
                        or not (is_cpu or tensor.device == device)
                        or not tensor.data_ptr()
                        or tensor.is_neg()
                        or not tensor.is_contiguous()
                    ):
                        if not _is_number(tensor):
                            check_tensor(self.fields[index], tensor, device, own or dtype, self.fields[self.first])
                        values[index] = in_memory(self.fields[index], tensor)
                    signature[index] = tensor.shape
            for index in self.lists:
                if given[index] is not None:
                    values[index], signature[index] = self._prepare_list(self.fields[index], given[index], first)
        except (AttributeError, RuntimeError):  # sparse and nested tensors have no address or shape
            self.check_kinds(given)
            raise
        arguments = self.arguments._make(values)
        if signature not in self.known:
            self._check_shapes(given, arguments)
            self.known = [signature, *self.known[: REMEMBERED - 1]]
        if all(map(operator.is_, values, given)) and (call := KnownCall.of(given)) is not None:
            self.calls = [call, *self.calls[: REMEMBERED - 1]]
        return arguments

    def _is_known(self, given: Sequence[Any]) -> bool:
        """Return whether tensors in contiguous memory with these shapes, and these options, have been checked."""
        try:
            for others_of, others, tensors_of, guard in self.calls:
                if others_of(given) == others:
                    tensors = tensors_of(given)
                    if all(map(Tensor.data_ptr, tensors)) and not any(map(IS_NESTED, tensors)) and guard(*tensors):
                        return True
        except (RuntimeError, TypeError):  # of arguments that are no dense tensors
            pass
        return False

    def _prepare_list(self, name: str, items: list[Any], first: Tensor) -> tuple[list[Any], list[Any]]:
        """Return the items of an argument in contiguous memory, and what must be known of them."""
        values, signature = list(items), list(items)
        for place, item in enumerate(items):
            if isinstance(item, Tensor):
                signature[place] = item.shape, item.layout, item.dtype == first.dtype, item.device == first.device
                values[place] = in_memory(f"{name}[{place}]", item)
        return values, signature

    def _check_shapes(self, given: Sequence[Any], arguments: Any) -> None:
        for name, value, hint in zip(self.fields, given, self.hints, strict=True):
            if not _has_type(value, hint):
                raise InputError(
                    f"{_is(name)} of type {type(value).__name__}, must be of type {getattr(hint, '__name__', hint)}"
                )
        if self.lists:
            self.check_kinds(given)
        first, name = arguments[self.first], self.fields[self.first]
        if first.dim() < 2 or len(first) == 0:
            raise InputError(f"{_has(name)} shape {tuple(first.shape)}, must have (T, B, …) with T ≥ 1")
        steps, batch = first.shape[:2]
        self.shapes(arguments)
        check_shape("lengths", getattr(arguments, "lengths", None), batch)
        check_shape("starts", getattr(arguments, "starts", None), steps, batch)


Products = Callable[[Any], tuple[int, int]]


def register(formulas: Mapping[Any, Callable[..., int]]) -> None:
    """Tell the counters in use, and later ones, how many operations operators have.

    This happens when an operator runs: an import of torch.utils.flop_counter takes a fifth of a second.
    """
    for registry in flop_registries():
        for packet, formula in formulas.items():
            registry.setdefault(packet, formula)


def formulas_of(name: str, arguments: Any, first: int, products: Products) -> dict[Any, Callable[..., int]]:
    """Return the formulas of an operator and of its backward pass.

    Backward has two products for each one of forward: the gradients of both factors. That of the inputs is left out if
    it is not needed.

    Args:
        name: The name of the operator.
        arguments: The named tuple of its arguments.
        first: The index of the inputs among the arguments.
        products: Returns the operations of the products of the inputs with weights, and of all other products.
    """

    def forward(*given: Any, out_val: Any = None, **options: Any) -> int:
        return sum(products(arguments(*given, **options)))

    def backward(
        gradients: Any, results: Any, saved: Any, needs: Any, *given: Any, out_val: Any = None, **options: Any
    ) -> int:
        of_inputs, others = products(arguments(*given, **options))
        return (1 + bool(needs[first])) * of_inputs + 2 * others

    return {getattr(torch.ops.gyral, name): forward, getattr(torch.ops.gyral, f"{name}_backward"): backward}


def projection(a: Any) -> int:
    """Return the operations of W_ih x_t for all steps."""
    return product(a.x.shape[0] * a.x.shape[1], a.w_ih)


def product(rows: int, weight: Tensor) -> int:
    """Return the operations of a product of `rows` vectors with a matrix."""
    return 2 * rows * weight.numel()


def _layer_of_torch(inputs: Tensor, *given: Any, out_val: Any = None, **options: Any) -> int:
    """Return the operations of one layer of torch on inputs (T, B, X), followed by its weights, or a list of them."""
    weights = given[0] if isinstance(given[0], list | tuple) else given[:4]
    rows = inputs.shape[0] * inputs.shape[1]
    return sum(product(rows, weight) for weight in weights if weight.dim() == 2)


def _layer_of_torch_backward(*given: Any, out_val: Any = None, **options: Any) -> int:
    return 2 * _layer_of_torch(*given)


# LSTM, GRU and RNN of oneDNN and cuDNN, of which torch counts nothing.
LAYERS_OF_TORCH: dict[Any, Callable[..., int]] = {
    torch.ops.aten.mkldnn_rnn_layer: _layer_of_torch,
    torch.ops.aten.mkldnn_rnn_layer_backward: _layer_of_torch_backward,
    torch.ops.aten._cudnn_rnn: _layer_of_torch,
    torch.ops.aten._cudnn_rnn_backward: _layer_of_torch_backward,
}
