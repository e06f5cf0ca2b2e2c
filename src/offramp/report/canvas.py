"""What pictures are drawn on, how they look and how they are saved. The only file that imports matplotlib."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from io import BytesIO
from typing import Any, ParamSpec

from offramp.errors import MissingExtraError
from offramp.report.labels import Box, place
from offramp.report.palette import PALETTE
from offramp.report.words import clean

try:
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator
except ImportError as error:
    raise MissingExtraError("pictures need matplotlib; pip install 'offramp[report]'") from error

__all__ = ["WIDTH", "Axes", "Figure", "canvas", "in_style", "short", "to_png", "to_svg", "write_labels"]

WIDTH, HEIGHT = 4.6, 3.4
"""Inches: at the width of a phone, a point of text is about a pixel."""

_INK, _MUTED, _LINE, _PAPER = (PALETTE[name].light for name in ("ink", "muted", "line", "paper"))

_STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": _LINE,
    "axes.facecolor": _PAPER,
    "axes.grid": True,
    "axes.labelcolor": _INK,
    "axes.labelsize": 10,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": _PAPER,
    "figure.titlesize": 11,
    "figure.titleweight": "bold",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "grid.color": _LINE,
    "grid.linewidth": 0.6,
    "image.composite_image": False,
    "legend.edgecolor": _LINE,
    "legend.facecolor": _PAPER,
    "legend.fontsize": 9.5,
    "legend.framealpha": 0.85,
    "legend.labelcolor": _INK,
    "savefig.facecolor": _PAPER,
    "svg.fonttype": "none",
    "svg.hashsalt": "offramp",
    "text.color": _INK,
    "text.parse_math": False,  # a class may be called "$5"
    "xtick.color": _MUTED,
    "xtick.labelcolor": _INK,
    "xtick.labelsize": 9.5,
    "ytick.color": _MUTED,
    "ytick.labelcolor": _INK,
    "ytick.labelsize": 9.5,
}

_Inputs = ParamSpec("_Inputs")


@contextmanager
def _styled() -> Iterator[None]:
    """Our style for a while; the caller's settings of matplotlib are not touched."""
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # Names may be of any script: an SVG leaves them to the browser, a PNG shows a box.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def in_style(draw: Callable[_Inputs, Figure]) -> Callable[_Inputs, Figure]:
    """Draw in our style."""

    @wraps(draw)
    def styled(*args: _Inputs.args, **kwargs: _Inputs.kwargs) -> Figure:
        with _styled():
            return draw(*args, **kwargs)

    return styled


def to_svg(figure: Figure) -> str:
    """A picture as an SVG file, the same bytes from the same findings; its text is text."""
    return _saved(figure, "svg", metadata={"Date": None, "Creator": None}).decode()


def to_png(figure: Figure) -> bytes:
    """A picture as a PNG file."""
    return _saved(figure, "png", dpi=200)


def _saved(figure: Figure, kind: str, **options: Any) -> bytes:
    with _styled(), BytesIO() as file:
        figure.savefig(file, format=kind, **options)
        return file.getvalue()


def write_labels(
    figure: Figure,
    axes: Axes,
    named: Sequence[tuple[float, float, str]],
    *,
    markers: Sequence[tuple[float, float]],
    crowd: Sequence[tuple[float, float]],
) -> None:
    """Write names beside their points, the first ones first, as long as there is room.

    Args:
        figure: The figure.
        axes: Its axes, with all but the names drawn.
        named: Where in the data, and what.
        markers: Where in the data nothing may be written.
        crowd: Where in the data nothing had better be written.
    """
    figure.draw_without_rendering()  # lays the axes out
    scale = 72 / figure.dpi

    def points(x: float, y: float) -> tuple[float, float]:
        where = axes.transData.transform((x, y)) * scale
        return float(where[0]), float(where[1])

    def box(extent: Any) -> Box:
        return Box(*(float(value) * scale for value in extent.bounds))

    taken = [Box(x - 6, y - 6, 12, 12) for x, y in (points(*one) for one in markers)]
    busy = [points(*one) for one in crowd]
    for x, y, text in named:
        note = axes.annotate(text, (x, y), (0, 0), textcoords="offset points", fontsize=9.5, color=_INK)
        note.set_in_layout(False)  # its place is found in the axes as they lie now
        size = box(note.get_window_extent())
        found = place(points(x, y), (size.width, size.height), bounds=box(axes.bbox), taken=taken, crowd=busy)
        if found is None:
            note.remove()
            continue
        taken.append(found)
        here = points(x, y)
        note.set_position((found.left - here[0], found.bottom - here[1]))
        note.set_verticalalignment("bottom")


def canvas(title: str, x: str, y: str, *, height: float = HEIGHT) -> tuple[Figure, Axes]:
    """An empty figure with its axes, titled."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    figure.suptitle(title, x=0.015, horizontalalignment="left")  # as long as the figure is wide, not the axes
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.tick_params(length=0)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    return figure, axes


def short(name: str, most: int = 18) -> str:
    """A name that fits on a line."""
    name = " ".join(clean(name).split())
    return name if len(name) <= most else name[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"
