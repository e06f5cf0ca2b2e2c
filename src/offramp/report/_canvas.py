"""Figures: their style, labels and file formats. The only file that imports matplotlib."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from io import BytesIO
from typing import Any, NamedTuple, ParamSpec, TypeVar

from offramp.errors import MissingExtraError
from offramp.report._palette import PALETTE
from offramp.report._words import clean

try:
    import matplotlib
    import matplotlib.image
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator
except ImportError as error:
    raise MissingExtraError("figures need matplotlib", hint="pip install 'offramp[report]'") from error

__all__ = [
    "WIDTH",
    "Axes",
    "Box",
    "Figure",
    "canvas",
    "find_positions",
    "find_room",
    "image_png",
    "in_style",
    "short",
    "to_png",
    "to_svg",
    "use_log_costs",
    "write_labels",
]

WIDTH, HEIGHT = 4.6, 3.4
"""Inches: at the width of a phone, a point of text is about a pixel."""

_GAP = 7.0  # points between a marker and its label

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
_Result = TypeVar("_Result")


@contextmanager
def _styled() -> Iterator[None]:
    """Apply the style inside the context; the caller's matplotlib settings do not change."""
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # Names may be of any script: an SVG leaves them to the browser, a PNG shows a box.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def in_style(draw: Callable[_Inputs, _Result]) -> Callable[_Inputs, _Result]:
    """Decorate a drawing function to use the style."""

    @wraps(draw)
    def draw_in_style(*args: _Inputs.args, **kwargs: _Inputs.kwargs) -> _Result:
        with _styled():
            return draw(*args, **kwargs)

    return draw_in_style


def to_svg(figure: Figure) -> str:
    """Return a figure as SVG with selectable text; the same findings give the same bytes."""
    return _saved(figure, "svg", metadata={"Date": None, "Creator": None}).decode()


def to_png(figure: Figure) -> bytes:
    """Return a figure as PNG."""
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
    """Write names beside their points, in this order, where there is room.

    Args:
        figure: The figure.
        axes: Its axes, with everything but the names drawn.
        named: Data coordinates and the name of each point.
        markers: Data coordinates that labels must not cover.
        crowd: Data coordinates that labels should not cover.
    """
    figure.draw_without_rendering()  # lays the axes out
    scale = 72 / figure.dpi

    def points(x: float, y: float) -> tuple[float, float]:
        position = axes.transData.transform((x, y)) * scale
        return float(position[0]), float(position[1])

    def box(extent: Any) -> Box:
        return Box(*(float(value) * scale for value in extent.bounds))

    obstacles = [Box(x - 6, y - 6, 12, 12) for x, y in (points(*marker) for marker in markers)]
    busy = [points(*point) for point in crowd]
    for x, y, text in named:
        note = axes.annotate(text, (x, y), (0, 0), textcoords="offset points", fontsize=9.5, color=_INK)
        note.set_in_layout(False)  # its position is computed for the current layout
        size = box(note.get_window_extent())
        bounds = box(axes.bbox)
        label_box = find_room(points(x, y), (size.width, size.height), bounds=bounds, obstacles=obstacles, crowd=busy)
        if label_box is None:
            note.remove()
            continue
        obstacles.append(Box(label_box.left - 4, label_box.bottom, label_box.width + 8, label_box.height))
        here = points(x, y)
        note.set_position((label_box.left - here[0], label_box.bottom - here[1]))
        note.set_verticalalignment("bottom")


def canvas(title: str, x: str, y: str, *, height: float = HEIGHT, width: float = WIDTH) -> tuple[Figure, Axes]:
    """Return an empty figure with a title, and its axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    figure.suptitle(title, x=0.015, horizontalalignment="left")  # as long as the figure is wide, not the axes
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.tick_params(length=0)
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    return figure, axes


def use_log_costs(axes: Axes, *, least: float, most: float) -> None:
    """Make the axis of costs logarithmic, with plain numbers.

    Args:
        axes: The axes.
        least: Its left end, above 0.
        most: Its right end.
    """
    axes.set_xscale("log")
    axes.set_xlim(least, most)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_locator(NullLocator())


def find_positions(figure: Figure, axes: Axes, points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the positions of data coordinates in the SVG of a figure.

    Args:
        figure: The figure, completely drawn.
        axes: Its axes.
        points: Data coordinates.
    """
    figure.draw_without_rendering()
    scale, top = 72 / figure.dpi, figure.bbox.height
    pixels = (axes.transData.transform(point) for point in points)
    return [(round(float(x) * scale, 2), round((top - float(y)) * scale, 2)) for x, y in pixels]


def image_png(image: Any) -> bytes:
    """Return an image, `H x W x 3` bytes, as PNG."""
    with BytesIO() as file:
        matplotlib.image.imsave(file, image, format="png")
        return file.getvalue()


def short(name: str, most: int = 18) -> str:
    """Shorten a name to fit on a line."""
    name = " ".join(clean(name).split())
    return name if len(name) <= most else name[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


class Box(NamedTuple):
    """A rectangle, in points."""

    left: float
    """Its left edge."""
    bottom: float
    """Its lower edge."""
    width: float
    """Its width."""
    height: float
    """Its height."""

    def meets(self, other: "Box") -> bool:
        """Return True if the two boxes overlap."""
        return (
            self.left < other.left + other.width
            and other.left < self.left + self.width
            and self.bottom < other.bottom + other.height
            and other.bottom < self.bottom + self.height
        )

    def within(self, other: "Box") -> bool:
        """Return True if it lies inside another box."""
        return (
            self.left >= other.left
            and self.left + self.width <= other.left + other.width
            and self.bottom >= other.bottom
            and self.bottom + self.height <= other.bottom + other.height
        )


def find_room(
    anchor: tuple[float, float],
    size: tuple[float, float],
    *,
    bounds: Box,
    obstacles: Sequence[Box],
    crowd: Sequence[tuple[float, float]] = (),
) -> Box | None:
    """Find room for a label.

    Args:
        anchor: Position of its marker.
        size: Width and height of the label.
        bounds: Box that it must lie in.
        obstacles: Other labels and markers, which it must not touch.
        crowd: Points it should not cover.

    Returns:
        The near box that covers the fewest points of the crowd; None if there is no room.

    Example:
        >>> page = Box(0, 0, 100, 100)
        >>> find_room((50, 50), (20, 10), bounds=page, obstacles=[])
        Box(left=57.0, bottom=45.0, width=20, height=10)
        >>> find_room((95, 50), (20, 10), bounds=page, obstacles=[])
        Box(left=68.0, bottom=45.0, width=20, height=10)
    """
    width, height = size
    candidates: list[tuple[int, Box]] = []
    for far, gap in enumerate((_GAP, 2 * _GAP, 4 * _GAP)):
        for side in ((1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (1, 1), (-1, -1), (-1, 1)):
            left = anchor[0] + side[0] * gap - (0, width / 2, width)[1 - side[0]]
            bottom = anchor[1] + side[1] * gap - (0, height / 2, height)[1 - side[1]]
            box = Box(left, bottom, width, height)
            if box.within(bounds) and not any(box.meets(other) for other in obstacles):
                covered = sum(box.meets(Box(x - 1, y - 1, 2, 2)) for x, y in crowd)
                candidates.append((covered + 4 * far, box))  # a far label looks like another marker's
    return min(candidates, key=lambda candidate: candidate[0])[1] if candidates else None
