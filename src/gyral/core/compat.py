"""Private functions of torch that the library needs. Nothing is patched here.

Private functions and patches of Lightning and Hydra are in `gyral.training.compat`: the library cannot import that
module, because `from gyral import RUM` imports neither. All are tested with the versions in constraints.txt.
`torch.utils._pytree` and `torch._foreach_*` are used where they are needed: torch documents both, or exports them to
other projects.
"""

import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils import _pytree
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

Function = TypeVar("Function", bound=Callable[..., Any])


def assume_constant_result(function: Function) -> Function:
    """Let compilers call a function while they trace, and take its result for a constant.

    As `torch.compiler.assume_constant_result`, which also imports `torch._dynamo`: two seconds at the import of Gyral.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]  # the mark that the decorator of torch sets
    return function


def transform_is_active() -> bool:
    """Return whether this code runs within a transform of `torch.func`, such as `grad`, or a forward-mode derivative.

    Own autograd functions do not support them. `torch.autograd.Function.apply` asks the same; there is no public way.
    """
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def apply_function(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """Return `function.apply(*arguments)`, which spends most of its time on arguments that `torch.func` has left."""
    if torch._C._are_functorch_transforms_active():
        return function.apply(*arguments)
    return super(torch.autograd.Function, function).apply(*arguments)  # type: ignore[misc]


def is_batched(tensor: Tensor) -> bool:
    """Return whether a tensor is a batch of tensors within `vmap`, as the gradients of `is_grads_batched` are."""
    functorch = torch._C._functorch
    return functorch.is_batchedtensor(tensor) or functorch.is_legacy_batchedtensor(tensor)


def is_compiler_failure(error: Exception) -> bool:
    """Return whether `torch.compile` has raised an error because its own compiler, such as that of C++, has failed."""
    from torch._dynamo.exc import BackendCompilerFailed  # imported already if there is such an error

    return isinstance(error, BackendCompilerFailed)


def register_tuples_of(cell: type) -> None:
    """Let `torch.export.save` and `torch.load` handle the named tuples that a class or its module defines or imports.

    A class within the class, such as `LSTMCell.State`, also becomes an attribute of the module, `LSTMCell_State`: the
    pickles of `torch.save` would find it by a call of `getattr`, which `torch.load` refuses.
    """
    module, path = sys.modules.get(cell.__module__), f"{cell.__qualname__}."
    if module is not None and "<locals>" not in path:
        for name, value in vars(cell).items():
            if _pytree.is_namedtuple_class(value) and value.__qualname__ == path + name:
                value.__qualname__ = value.__qualname__.replace(".", "_")
                setattr(module, value.__qualname__, value)
    register_tuples([*vars(cell).values(), *(vars(module).values() if module else ())])


def register_tuples(values: Iterable[Any]) -> None:
    """Let `torch.export.save` and `torch.load` handle the classes of named tuples among values."""
    for value in values:
        if _pytree.is_namedtuple_class(value) and value not in _pytree.SUPPORTED_NODES:
            _pytree._register_namedtuple(value, serialized_type_name=f"{value.__module__}.{value.__qualname__}")
            torch.serialization.add_safe_globals([value])


def below_autograd() -> AbstractContextManager[Any]:
    """Return a context in which operators skip autograd, as torch's guide to own operators of C++ does."""
    return torch._C._AutoDispatchBelowAutograd()


def tensor_guard(tensors: Sequence[Tensor]) -> Callable[..., bool] | None:
    """Return a function that compares tensors with these in type, device, dtype, layout, sizes, strides and views.

    It is how `torch.compile` finds code that it has compiled before: one call for all tensors, none of them nested.
    None if this version of torch has no such function.
    """
    try:
        from torch._C._dynamo.guards import TensorGuards

        # for each tensor a list, whatever the stubs of torch say
        sizes, strides = ([[*each(tensor)] for tensor in tensors] for each in (Tensor.size, Tensor.stride))
        options: dict[str, Any] = {"dynamic_dims_sizes": sizes, "dynamic_dims_strides": strides}
        guard: Callable[..., bool] = TensorGuards(*tensors, **options).check
    except (ImportError, TypeError, SystemError):
        return None
    return guard


def flop_registries() -> list[dict[Any, Callable[..., int]]]:
    """Return the formulas of `torch.utils.flop_counter`, which new counters copy, and those of the counters in use.

    There are none where nothing has imported that module.
    """
    module = sys.modules.get("torch.utils.flop_counter")
    if module is None:
        return []
    counters = [
        mode.counter for mode in _get_current_dispatch_mode_stack() if isinstance(mode, module._FlopCounterMode)
    ]
    return [module.flop_registry, *(counter.flop_registry for counter in counters)]


def has_bfloat16_instructions() -> bool:
    """Return whether oneDNN computes LSTM in bfloat16 on this processor; elsewhere it raises an error."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def scan_operator(
    combine: Callable[[list[Tensor], list[Tensor]], tuple[list[Tensor], Tensor]],
    states: Sequence[Tensor],
    inputs: Sequence[Tensor],
    dynamic_shapes: bool,
) -> tuple[list[Tensor], Tensor]:
    """Run a step over time as one operator, which becomes Scan in ONNX: the only way to export a loop of any length.

    Args:
        combine: the step.
        states: tensors that are carried from step to step.
        inputs: tensors with the time first.
        dynamic_shapes: whether a size that differs from an earlier call becomes a symbol.
    """
    from torch._higher_order_ops.scan import scan

    with torch._dynamo.config.patch(automatic_dynamic_shapes=dynamic_shapes), warnings.catch_warnings():
        # torch's own, of tensors that it asks for their gradients
        warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf", UserWarning)
        return scan(combine, list(states), list(inputs))
