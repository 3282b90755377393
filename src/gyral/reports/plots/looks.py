"""Colors, dashes and markers of the rows of plots: a cell has the same ones in all figures. Imports no torch."""

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from matplotlib.colors import to_hex, to_rgb

from gyral.plotting.style import DASHES, FAMILIAR, MARKERS, line_style

# Colors of cells that this library does not have; none of its own cells has one of them.
OWN_COLORS = ("#882255", "#44aa99")
LIGHTEST = 0.5  # of a shade of the color of a cell; 1 is white
# A thin solid gray line, at the score of a predictor that knows a part of what is asked: rows are thick and colored.
GUESS: dict[str, Any] = {"color": "#8a8a8a", "linestyle": "-", "linewidth": 0.7, "zorder": 1.5}


def row_styles(cells: Sequence[str]) -> list[dict[str, Any]]:
    """Return the color, dashes and marker of each row of a figure: those of its cell, the same in all figures.

    Further rows of a cell have lighter shades of its color, other dashes and other markers. Hollow markers are left for
    published values.

    Args:
        cells: the name of each row's cell, such as "GRU"; the same name for rows that differ in other options.
    """
    styles = []
    for place, cell in enumerate(cells):
        variant, count = cells[:place].count(cell), cells.count(cell)
        look, dashes = _cell_style(cell)
        look["linestyle"] = DASHES[(dashes + variant) % len(DASHES)]
        if variant:
            look["color"] = shade(look["color"], LIGHTEST * variant / max(count - 1, 3))
            look["marker"] = MARKERS[(MARKERS.index(look["marker"]) + variant) % len(MARKERS)]
        styles.append(look)
    return styles


def shade(color: str, lightness: float) -> str:
    """Return a color mixed with white.

    Args:
        color: the color.
        lightness: the share of white, from 0 to 1.
    """
    red, green, blue = (part + (1 - part) * lightness for part in to_rgb(color))
    return to_hex((red, green, blue))


def _cell_style(cell: str) -> tuple[dict[str, Any], int]:
    """Return the style of a cell, and the index of its dashes."""
    if cell in FAMILIAR:
        index = FAMILIAR.index(cell)
        return line_style(index), index
    number = crc32(cell.encode())
    own = {"color": OWN_COLORS[number % len(OWN_COLORS)], "marker": MARKERS[number // 8 % len(MARKERS)]}
    return own, number // 2
