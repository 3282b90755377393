"""Checks that every figure has to pass: nothing is cut off, the legend covers nothing, and the text is readable."""

from matplotlib.figure import Figure
from matplotlib.text import Text

SMALLEST = 6  # points


def check_figure(figure: Figure) -> None:
    """Check a figure that was drawn with `gyral.plotting.style.style`."""
    figure.draw_without_rendering()
    whole = figure.get_window_extent()
    renderer = figure._get_renderer()  # type: ignore[attr-defined]
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    ticks = {id(tick.label1) for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)
             for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())
             if not min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())}  # fmt: skip
    for text in texts:
        assert text.get_fontsize() >= SMALLEST, text
        if id(text) in ticks:  # beyond the end of its axis, and therefore not drawn
            continue
        box = text.get_window_extent(renderer)
        inside = box.x0 >= whole.x0 - 1 and box.x1 <= whole.x1 + 1 and box.y0 >= whole.y0 - 1 and box.y1 <= whole.y1 + 1
        assert inside, f"{text} is cut off: {box} in {whole}"
    for legend in figure.legends:
        for axes in figure.axes:
            assert not legend.get_window_extent().overlaps(axes.get_tightbbox(renderer)), "the legend covers a panel"
    boxes = [axes.get_window_extent() for axes in figure.axes]
    assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])
