"""Bars that the committed results are held against."""

from collections.abc import Mapping, Sequence
from typing import Any

from offramp_bench.bars import Bar
from offramp_bench.tracks.contestants import CASCADE, CONTESTANTS, DEFAULTS, ONE_EXIT, SHIPPED
from offramp_bench.tracks.samples import LARGEST_SHARE
from offramp_bench.tracks.yardstick import FIGURES, HALF

__all__ = ["bars"]

WINS = 6
"""Tasks of nine on which the default must be cheapest at half a point lost, on the exits track."""

HALF_COST = 5
"""Tasks of nine on which the full network's accuracy must be had at half its cost, on the open track."""


def bars(results: Mapping[str, Mapping[str, Any]], tasks: Sequence[str]) -> list[Bar]:
    """Return the bars of all tracks.

    Args:
        results: Results by task, as `read_results` gives them.
        tasks: All tasks of the comparison; those of the final test may be among the results.
    """
    missing = [name for name in tasks if name not in results]
    all_bars = [Bar(f"tasks that are not measured ({', '.join(missing) or 'none'})", len(missing), 0)]
    for name, task_results in results.items():
        for default in (name for name in DEFAULTS if name in task_results["leads"]):
            leads = task_results["leads"][default]
            behind = [
                f"{rival}, {figure}"
                for rival, by_figure in leads.items()
                for figure, (_, _, high) in by_figure.items()
                if high < 0
            ]
            title = f"{name}, {DEFAULTS[default]}: figures in which a contestant is ahead beyond the interval"
            all_bars.append(Bar(title + (f" ({'; '.join(behind)})" if behind else ""), len(behind), 0))
        shares = [row["share of exits"] for row in task_results["contestants"].values() if row["track"] == "exits"]
        all_bars.append(Bar(f"{name}: largest share of exits on the exits track", max(shares), LARGEST_SHARE))
    compared = {name: results[name] for name in tasks if name in results}
    for default in (name for name in DEFAULTS if CONTESTANTS[name].track == "exits"):
        tasks_won = [name for name, task_results in compared.items() if _is_cheapest(task_results, default)]
        all_bars.append(
            Bar(
                f"{DEFAULTS[default]}: tasks short of {WINS} where the default is cheapest at half a point lost "
                f"({', '.join(tasks_won) or 'none'})",
                WINS - len(tasks_won),
                0,
            )
        )
    return [*all_bars, *_open_bars(compared)]


def _open_bars(results: Mapping[str, Mapping[str, Any]]) -> list[Bar]:
    """Return the bars of the open track: of a cascade where there is one, else of the exits alone."""
    half_cost_tasks, no_dearer_networks = [], []
    for name, task_results in results.items():
        rows = task_results["contestants"]
        default = rows.get(CASCADE, rows.get(SHIPPED))
        if default is None:
            continue
        if default["figures"][FIGURES[0]] <= 0.5:
            half_cost_tasks.append(name)
        static = [row for row in rows.values() if row["track"] == "open" and row["policy"] == ONE_EXIT]
        no_dearer_networks += [
            f"{name}, {row['name']}" for row in static if row["figures"][HALF] <= default["figures"][HALF]
        ]
    at_half = f"open track: tasks short of {HALF_COST} with the full accuracy at half the cost"
    no_dearer = "open track: static networks that are no dearer at half a point lost"
    return [
        Bar(f"{at_half} ({', '.join(half_cost_tasks) or 'none'})", HALF_COST - len(half_cost_tasks), 0),
        Bar(f"{no_dearer} ({'; '.join(no_dearer_networks) or 'none'})", len(no_dearer_networks), 0),
    ]


def _is_cheapest(task_results: Mapping[str, Any], default: str) -> bool:
    """Return whether no rival of the default's footing costs less at half a point lost."""
    rows = task_results["contestants"]
    rivals = [name for name in task_results["leads"].get(default, ()) if rows[name]["kind"] in ("rival", "paper")]
    return bool(rivals) and all(rows[default]["figures"][HALF] <= rows[name]["figures"][HALF] for name in rivals)
