"""Operators of torch with own kernels: one path for eager, compiled and exported models."""

import collections
import functools
import importlib
import inspect
import logging
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import is_in_torch_dispatch_mode
from torch.utils._pytree import tree_map_only

from gyral.core.compat import apply_function, assume_constant_result, below_autograd, is_batched
from gyral.core.errors import InputError
from gyral.ops.autograd import differentiate, has_autocast, outside_autocast
from gyral.ops.compiler import kernels_unsupported_reason
from gyral.ops.declaration import Checks, Products, formulas_of, in_memory, register

log = logging.getLogger(__name__)

LIBRARY = torch.library.Library("gyral", "FRAGMENT")

Sizes = list[int | None] | None
PLAIN = frozenset({Tensor, nn.Parameter, type(None), bool, int, float, str, list, torch.dtype})  # types of arguments
OPERATORS: dict[str, "Operator"] = {}  # by name, for functions that compilers call
Value = Any  # of an argument: a tensor, a list of tensors, a number, a string, a dtype or None


class KernelUnavailableError(Exception):
    """No kernel supports this device or dtype; the message is the reason."""


class NotReady(str):
    """The reason why the kernels of a device and dtype cannot be made ready, such as a compiler that fails."""


class Operator:
    """An operator of torch whose readable definition is a function in plain torch, and which runs own kernels.

    The operator takes its name, its arguments, their types and defaults, and its docstring from `naive`. Every result
    of `naive` is a tensor or None. A call runs kernels if they support the device, the dtype and the arguments, else
    `naive`, in both cases outside autocast.

    The kernels are an instance of `gyral.ops.native.kernels.Kernels`, or the name of a module, which is imported on
    first use. A module of kernels has

    * `DTYPES`, the supported dtypes of the tensors with a gradient;
    * `prepare(device)`, which makes the kernels ready, or raises `KernelUnavailableError` with the reason;
    * `allocate(arguments)`, which returns results and saved tensors without values, two lists;
    * `forward(arguments)`, which returns them with values;
    * `backward(arguments, results, saved, gradients, needs)`, which returns the gradients by name of the argument.
      `gradients` are those of the results, None stands for zeros, and `needs` tells by name which gradients are needed.
      It may overwrite `saved`, but no other tensor.

    `arguments` is a named tuple; its tensors are contiguous. No two of the returned tensors share memory. `naive`
    provides the second derivatives. A second backward pass over the same graph runs forward again.

    The gradient is a `torch.autograd.Function` that is registered for the operator's dispatch key:
    `torch.library.register_autograd` takes a quarter of a millisecond longer in each training step, which is a quarter
    of the time of a GRU at 16 × 30 × 50.

    Args:
        naive: The function in plain torch.
        kernels: The kernels, by type of the device.
        constant: The number of last results that have no gradient.
        unread: The number of last results that the backward pass of the kernels does not read. They are not kept for
            it, and a caller may overwrite them; the kernels get None.
        supports: Returns whether the kernels support the arguments; they support all if None.
        shapes, dtypes, limits: See `gyral.ops.declaration.Checks`.
        products: See `gyral.ops.declaration.formulas_of`. None: the operator has no products of matrices.
    """

    def __init__(
        self,
        naive: Callable[..., Any],
        kernels: dict[str, Any],
        constant: int = 0,
        unread: int = 0,
        supports: Callable[[Any], bool] | None = None,
        *,
        shapes: Callable[[Any], object],
        dtypes: Mapping[str, torch.dtype] | None = None,
        limits: Mapping[str, Callable[[Any], int]] | None = None,
        products: Products | None = None,
    ) -> None:
        self.naive, self.kernels, self.constant, self.unread, self.supports = naive, kernels, constant, unread, supports
        functools.update_wrapper(self, naive)
        signature, name = inspect.signature(naive), naive.__name__
        self.name = name
        OPERATORS[name] = self
        defaults = [each.default for each in signature.parameters.values() if each.default is not each.empty]
        self.Arguments: Any = collections.namedtuple(name, signature.parameters, defaults=defaults)  # type: ignore[misc]
        self.results = len(typing.get_args(typing.get_type_hints(naive)["return"])) or 1
        hints = [hint for name, hint in typing.get_type_hints(naive).items() if name != "return"]
        self.tensors = _find_tensors(hints)
        self.first, self.has_lists = self.tensors[0], any(typing.get_origin(hint) is list for hint in hints)
        self.checks = Checks(self.Arguments, hints, self.tensors, shapes, dtypes or {}, limits or {})
        arguments = _schema(signature)
        LIBRARY.define(f"{name}({arguments}) -> Tensor[]", tags=torch.Tag.pt2_compliant_tag)
        LIBRARY.define(
            f"{name}_backward(Tensor?[] gradients, Tensor[] results, Tensor[] saved, bool[] needs, {arguments})"
            " -> Tensor[]",
            tags=torch.Tag.pt2_compliant_tag,
        )
        self.forward_operator = getattr(torch.ops.gyral, name).default
        self.backward_operator = getattr(torch.ops.gyral, f"{name}_backward").default
        self.flops = {} if products is None else formulas_of(name, self.Arguments, self.first, products)
        LIBRARY.impl(name, self._forward, "CompositeExplicitAutograd")
        LIBRARY.impl(name, self._differentiable, "Autograd")
        LIBRARY.impl(f"{name}_backward", self._backward_of_copies, "CompositeExplicitAutograd")
        torch.library.register_fake(f"gyral::{name}", self._fake, lib=LIBRARY)
        torch.library.register_fake(f"gyral::{name}_backward", self._fake_backward, lib=LIBRARY)

    def __call__(self, *given: Value, **options: Value) -> Any:
        """Return the results, in the form of `naive`.

        Raises:
            InputError: See `gyral.ops.declaration.Checks`. Or the arguments are not those of
                `naive`.
        """
        arguments = self.Arguments(*given, **options)
        first = arguments[self.first]
        device = first.device.type
        if has_autocast(device) and torch.is_autocast_enabled(device):
            with torch.autocast(device, enabled=False):
                return self(*arguments)
        has_kernel = self.has_kernel(first)
        if not has_kernel:
            self.checks.check_kinds(arguments)
        elif self.supports is not None and type(first) is Tensor and not torch.compiler.is_compiling():
            self.checks.prepare(arguments)  # `supports` may read values
        if not has_kernel or not (self.supports is None or self.supports(arguments)):
            return self.naive(**arguments._asdict())
        results = self._run_kernels(arguments)
        return tuple(results) if self.results > 1 else results[0]

    def run(self, *arguments: Value) -> list[Any]:
        """Run kernels outside autocast on all arguments, in order; return the results.

        Raises:
            KernelUnavailableError: There are no kernels for this device and dtype; see `unsupported_reason`.
            InputError: See `gyral.ops.declaration.Checks`.
        """
        first = arguments[self.first]
        if has_autocast(first.device.type) and torch.is_autocast_enabled(first.device.type):
            with outside_autocast(first.device):
                return self._run_kernels(arguments)
        return self._run_kernels(arguments)

    def _run_kernels(self, arguments: Sequence[Value]) -> list[Any]:
        """Do the same as `run`, outside autocast already."""
        # without a compiler, another tracer and subclasses of tensors, the dispatcher would only take time
        if (
            torch.compiler.is_compiling()
            or is_in_torch_dispatch_mode()
            or not PLAIN.issuperset(map(type, arguments))
            or (self.has_lists and self._has_subclass(arguments))
        ):
            if not torch.compiler.is_compiling():
                register(self.flops)
            results = []
            for tensor in self.forward_operator(*arguments)[: self.results]:
                results.append(None if tensor.dim() == 0 else tensor)
            return results
        if not torch.is_grad_enabled():
            return self._run(arguments)[0]
        sizes = self.sizes(arguments)
        return list(apply_function(_Function, self, sizes, False, *_flatten(arguments, sizes)))

    def _has_subclass(self, arguments: Sequence[Value]) -> bool:
        """Return whether a tensor in a list is of a subclass."""
        return any(not PLAIN.issuperset(map(type, value)) for value in arguments if isinstance(value, list))

    def unsupported_reason(self, tensor: Tensor) -> str | None:
        """Return the reason why no kernel supports the device and dtype of a tensor, or None if one does."""
        return self.unsupported_on(tensor.device, tensor.dtype)

    def unsupported_on(self, device: torch.device, dtype: torch.dtype) -> str | None:
        """Return the reason why no kernel supports a device and dtype, or None if one does."""
        if torch.compiler.is_compiling():
            return reason_as_constant(self.name, device, dtype)
        found = load_or_reason(self.kernels.get(device.type), device, dtype)
        return found if isinstance(found, str) else None

    def has_kernel(self, tensor: Tensor) -> bool:
        """Return whether kernels run for the device and dtype of a tensor; for callers that run `naive` otherwise.

        If the kernels cannot be made ready, one line of the log says so: the last digits of `naive` differ.
        """
        return kernels_unsupported_reason() is None and self.is_ready(tensor)

    def is_ready(self, tensor: Tensor) -> bool:
        """Return `has_kernel` where nothing traces this code that supports functions of torch alone."""
        if torch.compiler.is_compiling():
            return is_ready_as_constant(self.name, tensor.device, tensor.dtype)
        return is_ready(self.kernels.get(tensor.device.type), tensor.device, tensor.dtype)

    def prepare(self, given: Sequence[Value], is_fake: bool = False) -> tuple[Any, Any]:
        """Return the module of kernels and the named tuple of the arguments.

        Args:
            given: The arguments, in order.
            is_fake: Whether tensors have no values, and may have symbols as sizes: their shapes are checked later.

        Raises:
            KernelUnavailableError: There are no kernels.
            InputError: See `gyral.ops.declaration.Checks`.
        """
        if is_fake:
            self.checks.check_kinds(given)
            arguments = tree_map_only(Tensor, Tensor.contiguous, self.Arguments._make(given))
        else:
            arguments = self.checks.prepare(given)
        tensor = given[self.first]
        kernels = load_or_reason(self.kernels.get(tensor.device.type), tensor.device, tensor.dtype)
        if isinstance(kernels, str):
            raise KernelUnavailableError(kernels)
        return kernels, arguments

    def _run(self, given: Sequence[Value], differentiable: bool = False) -> tuple[list[Any], list[Any]]:
        """Return the results and the saved tensors, any of them None."""
        kernels, arguments = self.prepare(given)
        if given[self.first].is_cuda:
            from gyral.ops.compilation import compile_first_use  # which a CPU does not need

            compile_first_use(kernels, arguments, differentiable)
        results, saved = kernels.forward(arguments)
        return results, saved

    def _forward(self, *given: Value) -> list[Tensor]:
        results, saved = self._run(given)
        return _as_tensors([*results, *saved])

    def _fake(self, *given: Value) -> list[Tensor]:
        kernels, arguments = self.prepare(given, is_fake=True)
        results, saved = kernels.allocate(arguments)
        return _as_tensors([*results, *saved])

    def _backward(
        self,
        gradients: list[Tensor | None],
        results: list[Tensor],
        saved: list[Tensor],
        needs: list[bool],
        *given: Value,
    ) -> list[Tensor]:
        found = self._run_backward(gradients, results, saved, needs, given)
        # compilers read them by the strides of `_fake_backward`
        return [tensor.contiguous() for tensor, needed in zip(found, needs, strict=True) if needed]  # type: ignore[union-attr]

    def _run_backward(
        self,
        gradients: Sequence[Tensor | None],
        results: list[Any],
        saved: list[Any],
        needs: Sequence[bool],
        given: Sequence[Value],
    ) -> Sequence[Tensor | None]:
        """Return the gradients of the arguments, with those of the items of lists; they may be there if not needed."""
        kernels, arguments = self.prepare(given)
        fields = self.Arguments._fields
        sizes = self.sizes(given)
        needed = needs if sizes is None else [_any(value) for value in _unflatten(needs, sizes)]
        # a tensor without dimensions stands for None, see `_as_tensors`
        results, saved = (
            [None if tensor is None or tensor.dim() == 0 else tensor.contiguous() for tensor in tensors]
            for tensors in (results, saved)
        )
        given_gradients = [
            None if tensor is None or tensor.dim() == 0 else in_memory("a gradient", tensor) for tensor in gradients
        ]
        found = kernels.backward(arguments, results, saved, given_gradients, dict(zip(fields, needed, strict=True)))
        flat: Sequence[Tensor | None] = _flatten([found.get(name) for name in fields], sizes)
        missing = [is_needed and each is None for each, is_needed in zip(flat, needs, strict=True)]
        if any(missing):
            names = [name for name, value in zip(fields, _unflatten(missing, sizes), strict=True) if _any(value)]
            raise InputError(f"the kernels compute no gradient of {', '.join(names)}, which requires one: detach it")
        return flat

    def _backward_of_copies(self, gradients: Any, results: Any, saved: list[Tensor], *others: Any) -> list[Tensor]:
        # compilers do not support an operator that overwrites its arguments and returns a list
        return self._backward(gradients, results, [tensor.clone() for tensor in saved], *others)

    def _fake_backward(
        self, gradients: Any, results: Any, saved: Any, needs: list[bool], *given: Value
    ) -> list[Tensor]:
        return [
            torch.empty_like(value, memory_format=torch.contiguous_format)
            for value, needed in zip(_flatten(given, self.sizes(given)), needs, strict=True)
            if needed
        ]

    def _differentiable(self, *given: Value) -> list[Tensor]:
        sizes = self.sizes(given)
        return list(_Function.apply(self, sizes, True, *_flatten(given, sizes)))

    def places(self, flat: Sequence[Value]) -> Sequence[int]:
        """Return the indices of the tensors among arguments whose lists are flattened."""
        if not self.has_lists:
            return self.tensors
        return [index for index, value in enumerate(flat) if isinstance(value, Tensor)]

    def sizes(self, given: Sequence[Value]) -> Sizes:
        """Return the lengths of the arguments that are lists, None for the others; None if no argument is a list."""
        return [len(value) if isinstance(value, list) else None for value in given] if self.has_lists else None


class _Function(torch.autograd.Function):
    """The operator with its backward pass. Lists of tensors are flattened: autograd knows no lists."""

    @staticmethod
    def forward(ctx: Any, operator: Operator, sizes: Sizes, returns_saved: bool, *flat: Value) -> tuple[Any, ...]:
        """Return the results; if `returns_saved`, in the form of the operator of torch, with the saved tensors."""
        arguments = _unflatten(flat, sizes) if sizes else flat
        if is_in_torch_dispatch_mode():
            with below_autograd():
                found = operator.forward_operator(*arguments)
            results, saved = found[: operator.results], found[operator.results :]
        else:
            results, saved = operator._run(arguments, any(ctx.needs_input_grad))
            if returns_saved:
                results, saved = _as_tensors(results), _as_tensors(saved, results[0])
        others = list(flat)
        places = operator.places(flat)
        tensors = [flat[index] for index in places]
        for index in places:
            others[index] = None
        ctx.operator, ctx.sizes, ctx.others, ctx.places, ctx.is_fresh = operator, sizes, others, places, True
        ctx.set_materialize_grads(False)  # zeros of a large memory would be read for nothing
        if operator.constant or returns_saved:
            constant = results[operator.results - operator.constant :]
            constant = [each for each in constant if each is not None]
            ctx.mark_non_differentiable(*constant, *(saved if returns_saved else ()))
        ctx.kept_results = operator.results - operator.unread  # how many of the first ones the backward pass reads
        ctx.save_for_backward(*results[: ctx.kept_results], *tensors, *saved)
        return (*results, *saved) if returns_saved else tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        operator: Operator = ctx.operator
        sizes, count = ctx.sizes, operator.results
        if all(each is None for each in gradients[:count]):  # the engine calls it, too, if no gradient is defined
            return (None,) * len(ctx.needs_input_grad)
        kept = ctx.kept_results
        tensors = ctx.saved_tensors  # once: gradient checkpointing refuses to unpack them again
        results, flat = [*tensors[:kept], *[None] * operator.unread], list(ctx.others)
        end = kept + len(ctx.places)
        for index, tensor in zip(ctx.places, tensors[kept:end], strict=True):
            flat[index] = tensor
        with outside_autocast(tensors[kept].device):
            # the engine enables gradients within a backward pass if and only if `create_graph` is True
            if torch.is_grad_enabled() or _are_batched(gradients):
                with torch.enable_grad():
                    return None, None, None, *_differentiate(operator, sizes, flat, gradients[:count])
            arguments = _unflatten(flat, sizes) if sizes else flat
            # kernels overwrite what they saved, which `data` hides from the next call of `saved_tensors`
            saved = [None if each is None else each.data for each in tensors[end:]] if ctx.is_fresh else None
            ctx.is_fresh = False
            needs = list(ctx.needs_input_grad[3:])
            if is_in_torch_dispatch_mode():
                if saved is None:  # an earlier backward pass has overwritten them
                    found = operator.forward_operator(*arguments)
                    results, saved = found[:count], found[count:]
                results = [tensors[kept].new_empty(()) if each is None else each for each in results]
                tensors = _as_tensors([*results, *saved])
                wanted = iter(
                    operator.backward_operator(
                        list(gradients[:count]), tensors[:count], tensors[count:], needs, *arguments
                    )
                )
                return None, None, None, *[next(wanted) if needed else None for needed in needs]
            if saved is None:
                results, saved = operator._run(arguments)
            found = operator._run_backward(gradients[:count], results, saved, needs, arguments)
        return None, None, None, *[each if needed else None for each, needed in zip(found, needs, strict=True)]


def _as_tensors(values: Sequence[Tensor | None], like: Tensor | None = None) -> list[Tensor]:
    """Return a tensor without dimensions in place of each None, which an operator of torch cannot return."""
    first = next(value for value in values if value is not None) if like is None else like
    return [first.new_zeros(()) if value is None else value for value in values]


def _are_batched(gradients: Sequence[Tensor | None]) -> bool:
    return any(is_batched(each) for each in gradients if each is not None)


def _differentiate(
    operator: Operator, sizes: Sizes, flat: Sequence[Value], gradients: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Return gradients that can be differentiated again."""
    differentiable = operator.results - operator.constant

    def run(*tensors: Tensor | None) -> Sequence[Tensor | None]:
        values = [value if tensor is None else tensor for tensor, value in zip(tensors, flat, strict=True)]
        found = operator.naive(**operator.Arguments._make(_unflatten(values, sizes))._asdict())
        return ((found,) if isinstance(found, Tensor) else tuple(found))[:differentiable]

    tensors = [value if isinstance(value, Tensor) else None for value in flat]
    return differentiate(run, tensors, gradients[:differentiable])


@functools.cache
def load_or_reason(module: Any, device: torch.device, dtype: torch.dtype) -> Any:
    """Return kernels, of which a module may be given by its name, ready to run on a device, or the reason why not.

    Raises:
        ImportError: The module is broken, for example a misspelt name. Only a missing `triton` package counts as
            unavailable, so that a broken module never falls back to the reference.
    """
    if module is None:
        return f"there are no kernels for {device.type}"
    try:
        kernels = importlib.import_module(module) if isinstance(module, str) else module
        if dtype not in kernels.DTYPES:
            return f"there are no kernels for {dtype} on {device.type}"
        kernels.prepare(device)
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        return "triton is not installed"
    except KernelUnavailableError as error:
        is_optional = isinstance(error.__cause__, ModuleNotFoundError)  # a package that most users have not installed
        return str(error) if is_optional else NotReady(error)
    return kernels


def is_ready(module: Any, device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether a module of kernels is ready to run; see `Operator.has_kernel`."""
    found = load_or_reason(module, device, dtype)
    if isinstance(found, NotReady):
        _log_once(module.split(".")[2] if isinstance(module, str) else module.kernel.source.stem, found)
    return not isinstance(found, str)


@assume_constant_result
def is_ready_as_constant(name: str, device: torch.device, dtype: torch.dtype) -> bool:
    """Return `Operator.is_ready`; the compiler of PyTorch 2.11 takes no kernels and no operator as an argument."""
    return is_ready(OPERATORS[name].kernels.get(device.type), device, dtype)


@functools.cache
def _log_once(name: str, reason: str) -> None:
    log.warning("The kernel %s is unavailable: %s; PyTorch runs instead, with other last digits", name, reason)


@assume_constant_result  # a compiler could not trace imports
def reason_as_constant(name: str, device: torch.device, dtype: torch.dtype) -> str | None:
    """Return `Operator.unsupported_on`."""
    found = load_or_reason(OPERATORS[name].kernels.get(device.type), device, dtype)
    return str(found) if isinstance(found, str) else None


def count_true(mask: Tensor) -> Any:
    """Return the number of True entries; while a compiler traces, a symbol. On a GPU the call waits for the values."""
    return int(mask.sum()) if type(mask) is Tensor else torch.library.get_ctx().new_dynamic_size()


def has_gradient(*tensors: Tensor | None) -> bool:
    """Return whether a backward pass may follow a function of these tensors."""
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


def cast_for_autocast(dtype: torch.dtype, *tensors: Tensor | None) -> tuple[Any, ...]:
    """Return inputs and states in the dtype of the parameters if autocast is on, else as they are."""
    for tensor in tensors:
        if tensor is not None and tensor.dtype != dtype and torch.is_autocast_enabled(tensor.device.type):
            return tuple([None if each is None else each.to(dtype) for each in tensors])
    return tensors


def _schema(signature: inspect.Signature) -> str:
    """Return the arguments of a function in the form of torch's schemas, all of them positional."""

    def prototype(*_: Any) -> None: ...

    parameters = [
        parameter.replace(kind=parameter.POSITIONAL_OR_KEYWORD, default=parameter.empty)  # torch drops defaults
        for parameter in signature.parameters.values()
    ]
    prototype.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=parameters, return_annotation=list[Tensor]
    )
    schema: str = torch.library.infer_schema(prototype, mutates_args=())
    return schema.partition("(")[2].rpartition(") ->")[0]


def _find_tensors(hints: Sequence[Any]) -> list[int]:
    """Return the indices of the tensors among arguments of these types, first of one that is never None."""
    first = hints.index(Tensor)
    others = [index for index, hint in enumerate(hints) if Tensor in (hint, *typing.get_args(hint)) and index != first]
    return [first, *others]


def _any(value: Any) -> bool:
    return any(value) if isinstance(value, list) else value


def _flatten(values: Sequence[Value], sizes: Sizes) -> Sequence[Value]:
    """Return the values with the items of lists in their place, as many Nones for a list that is None."""
    if sizes is None:
        return values
    flat: list[Value] = []
    for value, size in zip(values, sizes, strict=True):
        if size is None:
            flat.append(value)
        else:
            flat += [None] * size if value is None else value
    return flat


def _unflatten(flat: Sequence[Value], sizes: Sizes) -> Sequence[Value]:
    """Undo `_flatten`."""
    if sizes is None:
        return flat
    items = iter(flat)
    return [next(items) if size is None else [next(items) for _ in range(size)] for size in sizes]
