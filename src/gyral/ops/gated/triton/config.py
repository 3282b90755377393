"""What is fixed when a kernel of gated recurrences is compiled."""

from typing import Any, NamedTuple

# By kind: the parts and products of a step, the further parameters, in multiples of N, and whether the product of the
# last part is not only added to it. The master gates of on_lstm are two more parts, of one number for each chunk.
PARTS = {"rnn_tanh": 1, "rnn_relu": 1, "modrelu": 1, "complex_modrelu": 2, "gru": 3, "goru": 3, "normalized_goru": 3}
KEEPS_PRODUCT = ("gru", "goru", "normalized_goru")


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
    """Return the configuration for the arguments of `gyral.ops.gated.naive.gated`, after `joined`."""
    widths = [a.units] * PARTS.get(a.kind, 4)
    if a.kind == "on_lstm":
        widths = [-(-a.units // a.chunk)] * 2 + widths
    return Config(
        kind=a.kind,
        size=a.units,
        chunk=a.chunk,
        widths=tuple(widths),
        offsets=tuple(sum(widths[:index]) for index in range(len(widths))),
        width=sum(widths),
        hidden=a.h0.shape[1] // a.units,
        extra=0 if a.extra is None else a.extra.numel() // a.units,
        keeps_product=a.kind in KEEPS_PRODUCT,
        has_cell_state=a.c0 is not None,
        zoneout=_zoneout(a.keep),
        zoneout_cell_state=_zoneout(a.keep_cell_state),
    )


def _zoneout(keep: Any) -> str:
    return "none" if keep is None else "mask" if keep.dim() > 0 else "probability"
