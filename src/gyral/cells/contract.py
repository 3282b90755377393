"""Makes cells, and checks on a short sequence that a cell of a user keeps the contract of `RecurrentCell`."""

import copy
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from gyral.cells.base import RecurrentCell
from gyral.cells.masks import first_parameter
from gyral.core.errors import OptionError, UserError
from gyral.core.options import declares_options
from gyral.ops.autograd import outside_autocast
from gyral.ops.scan import is_shared

STEPS, ROWS = 2, 3  # of the sequence on which a cell is tried
# Attributes of the class of a cell that have another name now. Under the old name they would have no effect.
RENAMED = {"dynamics": "no_decay_parameters", "understands": "input_types"}


def make_cell(
    factory: Any, input_size: int, option: str = "cell_factory", sized_by: str = "hidden_size", **sizes: int
) -> RecurrentCell:
    """Return a cell from its factory; of a cell that is not Gyral's, check what its methods return.

    Args:
        factory: A class of cells, or a function that makes a cell.
        input_size: First argument of the factory.
        option: Name of the option with the factory.
        sized_by: Name of the option that determines the hidden size, if `sizes` has one.
        **sizes: Further arguments of the factory.

    Raises:
        OptionError: The factory is something else, or also sets a hidden size.
        UserError: It makes no cell, or a cell without parameters, with the old name of an attribute, or with a method
            whose return value has a wrong form.
    """
    if not callable(factory) or isinstance(factory, nn.Module):
        given = type(factory).__name__ if callable(factory) else factory
        example = "functools.partial(gyral.RUMCell, lambd=1.0)"
        raise OptionError(option, given, f"must be a class of cells or a function that makes a cell, such as {example}")
    own = getattr(factory, "keywords", {}).get("hidden_size")
    if own is not None and "hidden_size" in sizes:
        raise OptionError(f"{option}.hidden_size", own, f"{sized_by} determines the size of the cell; set it")
    cell = factory(input_size, **sizes)
    name = f"{type(cell).__module__}.{type(cell).__name__}"
    if not isinstance(cell, RecurrentCell):
        instead = "model=external runs a class with the interface of torch.nn.GRUCell"
        raise UserError(f"{name} must be a subclass of gyral.cells.base.RecurrentCell; {instead}")
    if name.startswith("gyral."):
        return cell
    if next(cell.parameters(), None) is None:
        raise UserError(f"{name} has no parameters; a cell needs at least one, which determines its dtype and device")
    for old, new in RENAMED.items():
        if isinstance(getattr(type(cell), old, None), type | tuple):
            raise UserError(f"{name}.{old} has another name now, and no effect under this one; rename it to {new}")
    fault = find_contract_violation(cell)
    if fault is not None:
        raise fault
    return cell


def check_cell(factory: Any, input_size: int, **sizes: int) -> None:
    """Raise `OptionError` if the class of a cell declares its options and refuses a value; no cell is made.

    Args:
        factory, input_size, sizes: See `make_cell`. Functions and classes that declare no options are not checked.
    """
    found = factory if isinstance(factory, partial) else partial(factory) if callable(factory) else None
    if found is not None and declares_options(found.func):
        found.func.check_options(input_size, *found.args, **{**found.keywords, **sizes})  # type: ignore[attr-defined]


def find_contract_violation(cell: RecurrentCell) -> UserError | None:
    """Return the error of the first method whose return value has a wrong form, or None.

    A copy of the cell takes a step on zeros, in evaluation mode. Its own errors are not reported, since it may take
    inputs of another structure; they appear when it runs.
    """
    outside = outside_autocast(first_parameter(cell).device)
    with suppress(Exception), torch.no_grad(), torch.random.fork_rng(devices=()), outside:
        return _fault(copy.deepcopy(cell).eval())
    return None


def _fault(cell: RecurrentCell) -> UserError | None:
    """See `find_contract_violation`; the cell's own errors are raised."""
    state = cell.init_state(ROWS)
    leaves = tree_leaves(state)
    is_state = isinstance(state, tuple) and hasattr(state, "_fields")
    if not (is_state and all(isinstance(leaf, Tensor) and leaf.shape[:1] == (ROWS,) for leaf in leaves)):
        return cell.contract_error("init_state", f"a NamedTuple of tensors (B, …), here B = {ROWS}", _show(state))

    inputs = cell.zeros(STEPS, ROWS, cell.input_size)
    projected, constants = cell.project(inputs), cell.sequence_constants(STEPS, ROWS)
    if not _has_leading(projected, STEPS, ROWS):
        must = f"tensors (T, B, …) for inputs (T, B, X), here ({STEPS}, {ROWS}, …)"
        return cell.contract_error("project", must, _show(projected))
    if not _has_leading(constants, STEPS):
        must = f"tensors (T, …), here ({STEPS}, …), and gyral.ops.scan.Shared for what all steps share"
        return cell.contract_error("sequence_constants", must, _show(constants))

    first = tree_map(
        lambda leaf: leaf[0] if isinstance(leaf, Tensor) else leaf, (projected, constants), is_leaf=is_shared
    )
    try:
        output, new = cell.scan_step(first, state)
    except UserError as error:
        return error
    wanted = torch.empty(ROWS, cell.output_size, dtype=inputs.dtype, device="meta")
    is_output = isinstance(output, Tensor) and (output.shape, output.dtype) == (wanted.shape, wanted.dtype)
    if not is_output:
        return cell.contract_error("step", f"an output (B, output_size), here {_show(wanted)}", _show(output))
    if [getattr(leaf, "shape", None) for leaf in tree_leaves(new)] != [leaf.shape for leaf in leaves]:
        return cell.contract_error("step", f"a state as init_state does, here {_show(state)}", _show(new))
    return None


def _has_leading(values: Any, *sizes: int) -> bool:
    """Return whether all tensors have these leading dimensions."""
    tensors = [leaf for leaf in tree_leaves(values, is_leaf=is_shared) if isinstance(leaf, Tensor)]
    return all(tensor.shape[: len(sizes)] == sizes for tensor in tensors)


def _show(value: Any) -> str:
    """Return a short text of a tensor, a tuple of tensors, or the type of something else."""
    if isinstance(value, Tensor):
        return f"a {str(value.dtype).removeprefix('torch.')} tensor {tuple(value.shape)}"
    if isinstance(value, tuple):
        name = type(value).__name__ if hasattr(value, "_fields") else ""
        return f"{name}({', '.join(map(_show, value))})"
    return type(value).__name__
