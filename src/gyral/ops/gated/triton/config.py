"""What is fixed when a kernel of gated recurrences is compiled."""

import functools
from typing import Any, NamedTuple

from gyral.ops.gated import EXTRA, GATES, KEEPS_PRODUCT


class Config(NamedTuple):
    """What is fixed when a kernel is compiled.

    Attributes:
        kind: See `gyral.ops.gated.gated`.
        size: N, the number of units.
        chunk: Of on_lstm, see `gyral.ops.gated.gated`.
        widths: Of the rows that P_t consists of, in order; the products have the same ones.
        offsets: Of these rows in P_t.
        width: G, the width of P_t.
        hidden: The number of rows of N that h consists of: 2 for complex numbers.
        extra: The number of rows of N of further parameters.
        keeps_product: Whether the last product is kept apart: it is not only added to the last row of P_t.
        has_cell_state: Whether there is a cell state c, of N numbers.
        zoneout, zoneout_cell_state: "none", "mask" or "probability".
    """

    kind: str
    size: int
    chunk: int
    widths: tuple[int, ...]
    offsets: tuple[int, ...]
    width: int
    hidden: int
    extra: int
    keeps_product: bool
    has_cell_state: bool
    zoneout: str
    zoneout_cell_state: str


def config_of(a: Any) -> Config:
    """Return the configuration for the arguments of `gyral.ops.gated.naive.gated`, with one bias before the steps."""
    extra = 0 if a.extra is None else EXTRA[a.kind]  # sizes of tensors may be symbols of a compiler
    sizes = a.units, a.chunk, 2 if a.kind == "complex_modrelu" else 1, extra
    return _config(a.kind, *sizes, a.c0 is not None, _zoneout(a.keep), _zoneout(a.keep_cell_state))


@functools.cache
def _config(kind: str, size: int, chunk: int, hidden: int, extra: int, has_cell_state: bool, *zoneouts: str) -> Config:
    widths = [size] * GATES.get(kind, 4)
    if kind == "on_lstm":
        widths = [-(-size // chunk)] * 2 + widths  # the master gates have a number for each chunk
    return Config(
        kind=kind,
        size=size,
        chunk=chunk,
        widths=tuple(widths),
        offsets=tuple(sum(widths[:index]) for index in range(len(widths))),
        width=sum(widths),
        hidden=hidden,
        extra=extra,
        keeps_product=kind in KEEPS_PRODUCT,
        has_cell_state=has_cell_state,
        zoneout=zoneouts[0],
        zoneout_cell_state=zoneouts[1],
    )


def _zoneout(keep: Any) -> str:
    return "none" if keep is None else "mask" if keep.dim() > 0 else "probability"
