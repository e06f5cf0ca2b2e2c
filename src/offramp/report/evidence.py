"""Evidence of a change over time, as a picture."""

from collections.abc import Mapping, Sequence

import numpy as np

from offramp.report.canvas import Figure, canvas, in_style
from offramp.report.palette import PALETTE, SERIES

__all__ = ["evidence_over_time"]

_LOWEST, _HIGHEST = 1e-3, 1e9  # a fortune outside says nothing more


@in_style
def evidence_over_time(counts: Sequence[int], curves: Mapping[str, Sequence[float]], *, needed: float) -> Figure:
    """What the tests of a monitor have found after so many samples.

    Args:
        counts: `T` numbers of samples.
        curves: By test, its `T` fortunes.
        needed: The fortune that is an alarm.

    Returns:
        The picture.
    """
    figure, axes = canvas("Evidence of a change", "samples of traffic", "fortune of a bet on a change")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")  # not as formulas, which our style does not set
    axes.axhline(needed, color=PALETTE["muted"].light, linewidth=1, linestyle=(0, (4, 3)), label="alarm")
    for (name, fortunes), colour in zip(curves.items(), SERIES, strict=False):
        shown = np.clip(np.asarray(fortunes, dtype=np.float64), _LOWEST, _HIGHEST)
        axes.plot(counts, shown, color=PALETTE[colour].light, linewidth=1.6, label=name)
    axes.set_ylim(_LOWEST, max(10 * needed, *(min(max(one, default=1.0), _HIGHEST) for one in curves.values())))
    figure.legend(loc="outside lower center", ncols=4, frameon=False, handlelength=1.0, columnspacing=0.9)
    return figure
