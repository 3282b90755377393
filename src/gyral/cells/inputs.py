"""Inputs that tell a cell more about a step than a vector: whether it may write to a memory, which steps are linked."""

from typing import NamedTuple

import torch
from torch import Tensor

from gyral.core.compat import register_tuples
from gyral.core.edges import Edges
from gyral.ops.compiler import is_traced


class StepInputs:
    """Base class of such inputs, a NamedTuple whose first field is `values`: the vectors (T, B, X).

    All leaves begin with the dimensions (T, B), (B, T) with `batch_first`. A layer slices, reverses and packs them
    alike. A cell gets the inputs whole if its attribute `input_types` names their class, and else the values alone.
    In a stack of layers, the outputs of a layer take the place of the values for the next one.
    """

    __slots__ = ()
    values: Tensor

    def checked(self, lengths: Tensor | None, device: torch.device) -> "StepInputs":
        """Return the inputs with the other leaves on a device, and without what is beyond the lengths (B,).

        Raises:
            ValueError: A leaf other than the values has another form or dtype.
        """
        return self

    def backward(self) -> "StepInputs":
        """Return the inputs of the backward direction of a layer, before all leaves are reversed in time."""
        return self


class _MaskedInputs(NamedTuple):
    values: Tensor
    write: Tensor | None = None


class MaskedInputs(_MaskedInputs, StepInputs):
    """Inputs of a cell with an external memory.

    Attributes:
        values: (T, B, X).
        write: (T, B) bool, True where the cell may write to its memory; None: at all steps.
    """

    __slots__ = ()

    def checked(self, lengths: Tensor | None, device: torch.device) -> "MaskedInputs":
        if self.write is None:
            return self
        if not isinstance(self.write, Tensor):
            raise ValueError(f"write is a {type(self.write).__name__}, must be a bool tensor of shape (T, B)")
        if self.write.dtype != torch.bool or self.write.dim() != 2:
            shape = tuple(self.write.shape)
            raise ValueError(
                f"write is a {self.write.dtype} tensor of shape {shape}, must be a bool tensor of shape (T, B)"
            )
        return self._replace(write=self.write.to(device))


class _LinkedInputs(NamedTuple):
    values: Tensor
    edges: Edges | Tensor | None = None


class LinkedInputs(_LinkedInputs, StepInputs):
    """Inputs of a cell that reads earlier states along typed edges.

    Attributes:
        values: (T, B, X).
        edges: `gyral.Edges` with leaves (T, B, E, D), or the tensor `earlier` of them; None: no edges.
    """

    __slots__ = ()

    @property
    def earlier(self) -> Tensor | None:
        """The distances (T, B, E, D) to earlier steps."""
        return self.edges.earlier if isinstance(self.edges, Edges) else self.edges

    def checked(self, lengths: Tensor | None, device: torch.device) -> "LinkedInputs":
        if self.edges is None:
            return self
        if not isinstance(self.edges, Edges | Tensor):
            raise ValueError(f"edges are a {type(self.edges).__name__}, must be gyral.Edges or a tensor")
        given = self.edges if isinstance(self.edges, Edges) else Edges(self.edges)
        earlier = _check_distances(given.earlier).to(device)
        later = None if given.later is None else _check_distances(given.later).to(device)
        if lengths is not None:
            time, last = torch.arange(earlier.shape[0], device=device).view(-1, 1, 1, 1), lengths.view(1, -1, 1, 1)
            earlier = earlier.masked_fill(time >= last, 0)
            later = None if later is None else later.masked_fill(time + later >= last, 0)
        return self._replace(edges=Edges(earlier, later))

    def backward(self) -> "LinkedInputs":
        """Return the inputs with the same edges from their other ends: what comes later is read first."""
        if not isinstance(self.edges, Edges):
            return self
        return self._replace(edges=Edges(self.edges.inverted(), self.edges.earlier))


register_tuples((MaskedInputs, LinkedInputs, Edges))


def _check_distances(distances: Tensor) -> Tensor:
    form = "must be distances, int64, of shape (T, B, types, edges of a type)"
    if not isinstance(distances, Tensor):
        raise ValueError(f"edges have a {type(distances).__name__}, {form}")
    if distances.dtype != torch.int64 or distances.dim() != 4:
        raise ValueError(f"edges have a {distances.dtype} tensor of shape {tuple(distances.shape)}, {form}")
    if not is_traced() and distances.numel() > 0 and distances.min() < 0:
        raise ValueError(f"edges have a distance of {int(distances.min())}, must be ≥ 0, and 0 where there is no edge")
    return distances
