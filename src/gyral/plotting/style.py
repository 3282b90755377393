"""The common style of all figures: sizes, fonts, colors, ticks, legends and files. Imports no torch."""

import math
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unicodedata import normalize
from zlib import crc32

import matplotlib
from matplotlib.animation import PillowWriter
from matplotlib.axis import Axis
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from gyral.core.errors import printable
from gyral.core.files import replace_when_written
from gyral.plotting.sizes import WIDTHS

# The color-blind-safe palette of Okabe and Ito without yellow and black, and four more colors. Colors, dashes and
# markers cycle at the same time: neighbors differ in all three, and no two of 180 lines look alike.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#332288", "#56b4e9", "#e69f00", "#8c510a", "#a0a000", "#7f7f7f")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<")
# Cells in an order in which those that are often compared have different colors, ten after ten. A cell that is not
# listed, such as a new one or one of a user, needs no entry: it has one of `OWN_COLORS` by its name.
CELL_ORDER = (
    "RUM", "GRU", "LSTM", "EURNN", "DeltaNet", "Mamba-2", "GORU", "rotation scan", "WeiNet", "RNN",
    "DeltaProduct", "fast weights", "LRU", "Gated DeltaNet", "uRNN", "sLSTM", "mLSTM", "SLiCE", "PD-SSM", "expRNN",
    "Mamba", "S5", "GLA", "RWKV-7", "full-capacity uRNN", "ON-LSTM", "KDA", "minGRU", "RG-LRU", "dtriv",
    "Mamba-3", "S4D", "HGRN2", "M²RNN", "Gated DeltaNet-2", "minLSTM", "mLSTM 7B", "LANTM", "NTM", "DNC",
    "MAGE-GRU", "MAGE", "LightConv", "DynamicConv",
)  # fmt: skip
OWN_COLORS = ("#882255", "#44aa99", "#ee3377", "#117733", "#9966cc", "#661100")  # none of those of listed cells
LIGHTEST = 0.6  # of a shade of the color of a cell; 1 is white
BASELINE: dict[str, Any] = {"color": "black", "linestyle": (0, (2, 2)), "linewidth": 1.0, "zorder": 1.5}
# of a predictor that knows a part of what is asked: thin, solid and gray, because rows are thick and colored
GUESS: dict[str, Any] = {"color": "#8a8a8a", "linestyle": "-", "linewidth": 0.7, "zorder": 1.5}
SMALL = 7  # points, of ticks and legends
FRAMES_A_SECOND = 6
ANIMATION_DPI = 120
SETTINGS: Any = {
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "figure.titlesize": 8,
    "legend.fontsize": SMALL,
    "legend.title_fontsize": SMALL,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    "grid.color": "#d9d9d9",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.3,
    "lines.markersize": 4,
    "lines.markeredgewidth": 0.8,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "legend.columnspacing": 1.4,
    "legend.handletextpad": 0.6,
    "legend.borderpad": 0.2,
    "image.cmap": "viridis",
    "pdf.fonttype": 42,  # fonts are embedded as TrueType, which journals require
    "ps.fonttype": 42,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "gyral",  # the same figure gives the same bytes
    "savefig.dpi": 250,
    "figure.dpi": 100,
}


@contextmanager
def style() -> Iterator[None]:
    """Apply the common style in the body. Figures have to be created, drawn and saved there.

    Other settings are Matplotlib's defaults, whatever the user's matplotlibrc has: with `text.usetex`, drawing would
    need LaTeX.
    """
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        yield


def line_style(index: int) -> dict[str, Any]:
    """Return the color, dashes and marker of a row."""
    return {
        "color": COLORS[index % len(COLORS)],
        "linestyle": DASHES[index % len(DASHES)],
        "marker": MARKERS[index % len(MARKERS)],
    }


def cell_styles(cells: Sequence[str]) -> list[dict[str, Any]]:
    """Return the color, dashes and marker of each row of a figure: those of its cell, the same in all figures.

    Further rows of a cell have lighter shades of its color, other dashes and other markers. Of cells that are not in
    `CELL_ORDER`, two in one figure have different colors. Hollow markers are left for published values.

    Args:
        cells: the name of each row's cell, such as "GRU"; the same name for rows that differ in other options.
    """
    order, styles = [_key(cell) for cell in CELL_ORDER], []
    own: dict[str, int] = {}  # the index of the color of each other cell
    for cell in sorted({*cells}):
        if _key(cell) not in order:
            places = [(crc32(cell.encode()) + step) % len(OWN_COLORS) for step in range(len(OWN_COLORS))]
            own[cell] = next((place for place in places if place not in own.values()), places[0])
    for place, cell in enumerate(cells):
        variant, count = cells[:place].count(cell), cells.count(cell)
        if cell in own:
            color, number = OWN_COLORS[own[cell]], crc32(cell.encode())
            dashes, marker = number // 2, number // 8
        else:
            dashes = marker = order.index(_key(cell))
            color = COLORS[marker % len(COLORS)]
        if variant:
            lightness = LIGHTEST * variant / max(count - 1, 3)
            red, green, blue = (part + (1 - part) * lightness for part in to_rgb(color))
            color = to_hex((red, green, blue))
        look = {
            "linestyle": DASHES[(dashes + variant) % len(DASHES)],
            "marker": MARKERS[(marker + variant) % len(MARKERS)],
        }
        styles.append({"color": color, **look})
    return styles


def _key(cell: str) -> str:
    """Return the common form of the spellings of a name: "Mamba-2" and "Mamba2", "M²RNN" and "M2RNN"."""
    return re.sub(r"\W", "", normalize("NFKC", cell)).lower()


def format_tick(value: float, largest: float) -> str:
    """Return the label of a tick: "2,000", "20k", "0.05", "10⁻⁵".

    Args:
        value: its place.
        largest: the largest place on the axis, which decides on the unit.
    """
    size = abs(value)
    if value == 0:
        return "0"
    if largest >= 2e4:
        units = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
        factor, unit = next((pair for pair in units if size >= pair[0]), (1.0, ""))
        text = f"{value / factor:.6g}{unit}"
    elif size < 1e-3:
        exponent = math.floor(math.log10(size) + 1e-9)
        mantissa = f"{value / 10**exponent:.3g}"
        text = f"{'' if mantissa == '1' else mantissa + '·'}10{_superscript(exponent)}"
    else:
        text = f"{value:,.0f}" if size >= 1000 else f"{value:.6g}"
    return text.replace("-", "−")


def _superscript(number: int) -> str:
    return str(number).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def without_formulas(text: str) -> str:
    """Return a text that Matplotlib shows as it is: text between two dollar signs would be a formula."""
    return printable(text).replace("$", r"\$")


def set_ticks(axis: Axis, inches: float, *, log: bool = False, integer: bool = False) -> None:
    """Set round ticks with short labels on an axis, after its limits are final.

    Args:
        axis: the axis.
        inches: its length, on which the number of ticks depends.
        log: whether the axis is logarithmic.
        integer: whether ticks are whole numbers.
    """
    low, high = axis.get_view_interval()
    largest = max(abs(low), abs(high))
    formatter = FuncFormatter(lambda value, _: format_tick(value, largest))
    most = min(12, max(3, int(inches * 2.7)))
    if not log:
        axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10], integer=integer, min_n_ticks=3))
        axis.set_major_formatter(formatter)
        return
    decades = math.log10(high / low)
    subs = (1.0, 2.0, 5.0) if decades * 3 <= most + 1 else (1.0,)
    axis.set_major_locator(LogLocator(subs=subs, numticks=most + 1))
    axis.set_major_formatter(formatter)
    axis.set_minor_locator(LogLocator(subs="auto") if decades <= most else NullLocator())
    axis.set_minor_formatter(NullFormatter())


def add_legend(figure: Figure, handles: Sequence[Any], labels: Sequence[str]) -> Legend | None:
    """Add a legend below the panels, with as many columns as fit, and make the figure higher by its height.

    The last row is not a single entry if another number of columns avoids it.
    """
    if not labels:
        return None
    width = figure.get_figwidth()
    options: dict[str, Any] = {"columnspacing": 1.0} if width < WIDTHS["page"] else {}
    for columns in column_counts(len(labels)):
        trial = figure.legend(handles, labels, loc="lower center", ncols=columns, **options)
        box = trial.get_window_extent().transformed(figure.dpi_scale_trans.inverted())
        trial.remove()
        if box.width <= width or columns == 1:
            figure.set_figheight(figure.get_figheight() + box.height)
            return figure.legend(
                handles, labels, loc="outside lower center", ncols=columns, borderaxespad=0.3, **options
            )
    return None


def column_counts(entries: int) -> list[int]:
    """Return the numbers of columns of a legend in the order in which they are tried: the fewest rows first.

    The entries of the rows are as equal as possible. Numbers that leave one entry in the last row come after those
    with one row more.
    """

    def cost(columns: int) -> float:
        rows = math.ceil(entries / columns)
        left_alone = rows > 1 and entries - (rows - 1) * columns == 1
        return rows + (1.5 if left_alone else 0)

    balanced = {math.ceil(entries / math.ceil(entries / columns)) for columns in range(1, entries + 1)}
    return sorted(balanced, key=lambda columns: (cost(columns), columns))


def save(figure: Figure, path: Path, title: str, description: str = "") -> None:
    """Save a figure in the format of the path's suffix. The same figure gives the same bytes.

    Args:
        figure: the figure, created within `style`.
        path: the file, with one of `sizes.SUFFIXES`.
        title: title in the file's metadata.
        description: description in the file's metadata.

    Raises:
        OSError: The file cannot be written.
    """
    form = path.suffix.removeprefix(".")
    names = {"pdf": ("Title", "Subject"), "svg": ("Title", "Description"), "png": ("Title", "Description")}[form]
    metadata: dict[str, Any] = {name: text for name, text in zip(names, (title, description), strict=True) if text}
    metadata |= {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}[form]
    replace_when_written(path, lambda file: figure.savefig(file, format=form, metadata=metadata))


def save_animation(frames: Iterator[Figure], path: Path) -> None:
    """Save an animation as a GIF that repeats forever.

    Args:
        frames: the same figure for each frame, drawn within `style`; at least one.
        path: the file.

    Raises:
        OSError: The file cannot be written.
    """
    first = next(frames)
    writer = PillowWriter(fps=FRAMES_A_SECOND)
    with TemporaryDirectory() as folder:  # the writer needs a name that ends in .gif
        finished = Path(folder) / path.name
        with writer.saving(first, finished, dpi=ANIMATION_DPI):
            for _ in chain([first], frames):
                writer.grab_frame()
        replace_when_written(path, lambda file: shutil.copyfile(finished, file))
