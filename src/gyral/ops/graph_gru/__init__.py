"""A GRU whose recurrent input is gathered along typed edges, over a whole sequence.

    p_t = W_ih x_t + b                                          (3N)
    g_t = [Σ h_{t'}^e over the edges (t', t) of type e, for e = 0, 1, …]
    q_t = W_hh g_t                                              (3N)
    r = σ(p_r + q_r)
    z = σ(p_z + q_z)
    n = tanh(p_n + r ⊙ q_n)
    h_t = (1 − z) ⊙ n + z ⊙ c_t

The gate order is that of torch: r, z, n. Type 0 is the edge from each step to the next, and h^e is the slice of h of
type e, or all of h. c_t is h_{t−1} or g_t. The equations are those of MAGE-GRU (Dhingra, Yang, Cohen and Salakhutdinov,
"Linguistic Knowledge as Memory for Recurrent Neural Networks", 2017) with at most one edge of each type into a step;
further ones are summed. `naive` computes them in plain torch.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gyral.core.checks import check_integer
from gyral.core.errors import InputError
from gyral.ops.declaration import check_shape, product, projection
from gyral.ops.graph_gru import naive
from gyral.ops.graph_gru.naive import latest
from gyral.ops.native.kernels import ProjectedKernels, rows
from gyral.ops.operator import Operator, cast_for_autocast
from gyral.ops.sequences import reachable_since

__all__ = ["graph_gru", "latest", "unsupported_reason"]


def shapes(a: Any) -> None:
    """Check the shapes and options; see `gyral.ops.declaration.Checks`."""
    steps, batch, inputs = check_shape("x", a.x, *a.x.shape[:2], "X")
    *_, units = check_shape("memory", a.memory, batch, "C", "N")
    check_shape("w_ih", a.w_ih, 3 * units, inputs)
    check_shape("b", a.b, 3 * units)
    check_shape("since", a.since, steps, batch)
    check_integer("first_size", a.first_size, maximum=units)
    check_integer("capacity", a.capacity)
    if a.edge_size is None and (a.linked or a.first_size != units):
        raise InputError(f"edge_size is None: first_size must be {units}, and linked False")
    gathered = a.first_size
    if a.earlier is not None:
        *_, types, _ = check_shape("earlier", a.earlier, steps, batch, "E", a.earlier.shape[-1])
        gathered += types * (units if a.edge_size is None else check_integer("edge_size", a.edge_size))
        if a.edge_size is not None and gathered != units:
            raise InputError(f"edge_size must be such that all slices have {units} units, not {gathered}")
    check_shape("w_hh", a.w_hh, 3 * units, gathered)


def sizes(a: Any) -> dict[str, Any]:
    """Return the numbers that the kernel takes, and the steps that it can reach."""
    steps, batch, _ = a.x.shape
    past, units = a.memory.shape[1:]
    edge_types, edge_slots = (0, 0) if a.earlier is None else a.earlier.shape[2:]
    return {
        "steps": steps,
        "batch": batch,
        "hidden_size": units,
        "past": past,
        "gathered_size": a.w_hh.shape[1],
        "edge_size": units if a.edge_size is None else a.edge_size,
        "edge_types": edge_types,
        "edge_slots": edge_slots,
        "shared": a.edge_size is None,
        "since": None if a.since is None else a.since.clamp(min=-past),  # the kernel would read before the memory
    }


def products(a: Any) -> tuple[int, int]:
    """Return the operations of products; see `gyral.ops.declaration.formulas_of`."""
    return projection(a), product(len(a.x) * len(a.memory), a.w_hh)


class GraphKernels(ProjectedKernels):
    """The kernels, which overwrite the gradient of the outputs, and the gradient of the recurrent weights."""

    def backward(self, a: Any, results: list[Any], kept: list[Any], gradients: Any, needs: dict[str, bool]) -> Any:
        """Return the gradients; see `gyral.ops.operator.Operator`."""
        grad_outputs, grad_memory = gradients
        copy = None if grad_outputs is None else grad_outputs.clone()
        found = super().backward(a, results, kept, [copy, grad_memory], needs)
        parts, gathered, product = (tensor.flatten(0, 1) for tensor in kept)
        gates = parts[:, : 2 * product.shape[1]]
        found["w_hh"] = torch.cat((gates.T @ gathered, product.T @ gathered))
        return found


KERNELS = GraphKernels(
    Path(__file__).with_name("graph_gru.cpp"),
    sizes=sizes,
    results={
        "outputs": lambda a: rows(a, a.memory.shape[2]),
        "final_memory": lambda a: a.x.new_empty(a.memory.shape[0], a.capacity, a.memory.shape[2]),
    },
    kept={"gathered": lambda a: rows(a, a.w_hh.shape[1]), "product": lambda a: rows(a, a.memory.shape[2])},
    optional=("memory", "final_memory"),
)
OPERATOR = Operator(
    naive.graph_gru,
    {"cpu": KERNELS},
    shapes=shapes,
    dtypes={"earlier": torch.int64, "since": torch.int64},
    products=products,
)
unsupported_reason = OPERATOR.unsupported_reason


def graph_gru(
    x: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b: Tensor | None,
    memory: Tensor,
    earlier: Tensor | None = None,
    *,
    edge_types: int,
    edge_size: int | None,
    carry: str = "previous",
    capacity: int | None = None,
    lengths: Tensor | None = None,
    starts: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Run the recurrence over inputs (T, B, X), under autocast in the dtype of the parameters.

    Args:
        x: (T, B, X).
        w_ih: W_ih (3N, X).
        w_hh: W_hh (3N, G), with G = N; or G = (E + 1) N if `edge_size` is None. Its columns are in the order of
            the types, from 0.
        b: (3N,) or None.
        memory: (B, C, N) with C ≥ 1, the hidden vectors of the last C steps, the latest last. Those before the first
            step of a sequence are zeros.
        earlier: (T, B, E, D) integers, the distances of the steps that edges come from, 0: no edge. Edges from before
            the memory or before the last start count as absent. None: there are only edges of type 0.
        edge_types: E.
        edge_size: Width of the slice of each type from 1; type 0 has the first N − E · `edge_size` ≥ 1 units. None:
            the slice of every type is the whole hidden vector.
        carry: "previous": c_t = h_{t−1}. "linked": c_t = g_t, which needs an `edge_size`.
        capacity: C', the number of vectors in the returned memory; C if None.
        lengths: (B,) int64 in [1, T], or None; see `gyral.nn.recurrent.Recurrent`.
        starts: (T, B) bool, or None. True resets the memory of the row to zeros before the step.

    Returns:
        outputs (T, B, N), zero beyond the lengths, and the memory (B, C', N) after the last step of each sequence.

    Raises:
        KernelUnavailableError: There are no kernels for this device and dtype; see `unsupported_reason`.
        InputError: See `gyral.ops.declaration.Checks`.
        ValueError: `earlier` has another shape, or there is no `edge_size` for `carry`.
    """
    x, memory = cast_for_autocast(w_hh.dtype, x, memory)
    if carry == "linked" and edge_size is None:
        raise ValueError('carry="linked" needs an edge_size')
    if earlier is not None and earlier.shape[:3] != (*x.shape[:2], edge_types):
        raise ValueError(f"earlier must be {(*x.shape[:2], edge_types)} × D, not {tuple(earlier.shape)}")
    units = memory.shape[2]
    first_size = units if edge_size is None else units - edge_types * edge_size
    if earlier is None or earlier.shape[2] == 0:
        # the columns of the other types would only meet zeros
        earlier, w_hh = None, w_hh[:, :first_size]
    else:
        earlier = earlier.to(torch.int64)
    since = reachable_since(starts, memory.shape[1])
    capacity = memory.shape[1] if capacity is None else capacity
    outputs, memory = OPERATOR.run(
        *(x, w_ih, w_hh, b, memory, earlier, lengths, since, first_size, edge_size, carry == "linked", capacity)
    )
    return outputs, memory
