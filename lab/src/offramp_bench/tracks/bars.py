"""Bars that the committed results are held against."""

from collections.abc import Mapping, Sequence
from typing import Any

from offramp_bench.bars import Bar
from offramp_bench.tracks.contestants import CONTESTANTS, DEFAULTS
from offramp_bench.tracks.samples import LARGEST_SHARE
from offramp_bench.tracks.yardstick import HALF

__all__ = ["bars"]

WINS = 6
"""Tasks of nine on which the default must be cheapest at half a point lost, on the exits track."""


def bars(results: Mapping[str, Mapping[str, Any]], tasks: Sequence[str]) -> list[Bar]:
    """Return the bars of all tracks.

    Args:
        results: Results by task, as `read_results` gives them.
        tasks: All tasks of the comparison.
    """
    missing = [name for name in tasks if name not in results]
    made = [Bar(f"tasks that are not measured ({', '.join(missing) or 'none'})", len(missing), 0)]
    for name, found in results.items():
        for default in (name for name in DEFAULTS if name in found["leads"]):
            leads = found["leads"][default]
            behind = [
                f"{rival}, {figure}"
                for rival, by_figure in leads.items()
                for figure, (_, _, high) in by_figure.items()
                if high < 0
            ]
            title = f"{name}, {DEFAULTS[default]}: figures in which a contestant is ahead beyond the interval"
            made.append(Bar(title + (f" ({'; '.join(behind)})" if behind else ""), len(behind), 0))
        shares = [row["share of exits"] for row in found["contestants"].values() if row["track"] == "exits"]
        made.append(Bar(f"{name}: largest share of exits on the exits track", max(shares), LARGEST_SHARE))
    for default in (name for name in DEFAULTS if CONTESTANTS[name].track == "exits"):
        cheapest = [name for name, found in results.items() if _is_cheapest(found, default)]
        made.append(
            Bar(
                f"{DEFAULTS[default]}: tasks short of {WINS} where the default is cheapest at half a point lost "
                f"({', '.join(cheapest) or 'none'})",
                WINS - len(cheapest),
                0,
            )
        )
    return made


def _is_cheapest(found: Mapping[str, Any], default: str) -> bool:
    """Return whether no rival of the default's footing costs less at half a point lost."""
    rows = found["contestants"]
    rivals = [name for name in found["leads"].get(default, ()) if rows[name]["kind"] in ("rival", "paper")]
    return bool(rivals) and all(rows[default]["figures"][HALF] <= rows[name]["figures"][HALF] for name in rivals)
