"""What docs/evidence.md says of the comparison."""

from collections.abc import Mapping
from typing import Any

from offramp_bench.paper.contestants import CONTESTANTS

__all__ = ["ablation", "cost_cell", "section"]

SECTION = """## Every rival: `offramp_bench.paper`
Every method fits its exits on the same cached features of the same frozen networks, its points are chosen on the tune
split and measured on test samples that nothing was fitted on; three seeds. *Area* is the mean accuracy in percent over
relative costs from the first exit's (.02 at least) to 1 on a logarithmic axis. Intervals are of the paired difference,
resampling test samples: they say how sure the difference is on these networks, not on others. All rivals, all curves,
and the claims of the paper one by one are on a page of their own: `offramp-bench page --into paper.html`. Tasks
that do not have all three seeds yet are not shown. Of cifar100lt the test samples are balanced, while those that tune
and calibrate are long-tailed as the train samples are: budgets set there are not what the test samples cost.

**JEI-DNN's rows are not the paper's achievement.** It was trained for 5 + 10 epochs and without the paper's weight
decay, its rivals for 15 epochs and more. Until all contestants get the same training, every verdict on a claim of the
paper reads *not yet tested fairly*, and leads over JEI-DNN say nothing.

{areas}

What it costs to keep the full network's accuracy, or to lose half a point, as a share of its cost; and *never*
where that is not reached; read off the curves on test. JEI-DNN is the paper's method as it was trained here,
*threshold* a global threshold on linear exits.

{kept}

What each part of the default brings: the area with that part changed, less the default's. Positive is better than the
default; what is empty was not measured.

{parts}

The same with other rules for leaving on the default's own exits.

{policies}

{bars}
"""


def section(found: Mapping[str, Any], bars: list[str]) -> str:
    """The section.

    Args:
        found: What the benchmark printed.
        bars: Its bars, as a table.
    """
    tasks = found["tasks"]
    return SECTION.format(
        areas="\n".join(_areas(tasks)),
        kept="\n".join(_kept(tasks)),
        parts="\n".join(ablation(tasks, "exits")),
        policies="\n".join(ablation(tasks, "policy")),
        bars="\n".join(bars),
    )


def ablation(tasks: Mapping[str, Any], kind: str) -> list[str]:
    """Contestants of a kind as rows, tasks as columns, differences of areas to the default's.

    Args:
        tasks: As `assembled` gives them.
        kind: "exits" or "policy".
    """
    shown = {name: task["contestants"] for name, task in tasks.items() if task["alone"] is None}
    rows = [f"| | {' | '.join(shown)} | mean |", "|---|" + "---|" * (len(shown) + 1)]
    for name, contestant in CONTESTANTS.items():
        leads = [-task[name]["below default"] if name in task else None for task in shown.values()]
        known = [lead for lead in leads if lead is not None]
        if contestant.kind == kind and known:
            cells = ["" if lead is None else f"{100 * lead:+.2f}" for lead in leads]
            rows.append(f"| {name} | {' | '.join(cells)} | {100 * sum(known) / len(known):+.2f} |")
    return rows


def _areas(tasks: Mapping[str, Any]) -> list[str]:
    rows = ["| task | full | offramp | JEI-DNN | threshold | best rival | lead over it |", "|---|" + "---|" * 6]
    for name, task in tasks.items():
        found = task["contestants"]
        rivals = [one for one, row in found.items() if row["kind"] in ("paper", "rival", "ablation", "static")]
        best = max(rivals, key=lambda one: found[one]["area"])
        lead, (low, high) = found[best]["below default"], found[best]["interval"]
        areas = [_percent(found.get(one, {}).get("area")) for one in ("offramp", "JEI-DNN", "threshold")]
        told = f"{_percent(found[best]['area'])} {best} | {100 * lead:+.2f} ({100 * low:+.2f} to {100 * high:+.2f})"
        rows.append(f"| {name} | {_percent(task['full accuracy'])} | {' | '.join(areas)} | {told} |")
    return rows


def _kept(tasks: Mapping[str, Any]) -> list[str]:
    names, keys = ("offramp", "JEI-DNN", "threshold"), ("cost at full - .5", "cost at full")
    titles = [
        f"{name}, {'half a point lost' if key.endswith('.5') else 'nothing lost'}" for key in keys for name in names
    ]
    rows = [f"| task | {' | '.join(titles)} |", "|---|" + "---|" * len(titles)]
    for task, found in tasks.items():
        shown = [(found["contestants"].get(name), key) for key in keys for name in names]
        rows.append(f"| {task} | {' | '.join(cost_cell(row, key) for row, key in shown)} |")
    return rows


def cost_cell(row: Mapping[str, Any] | None, key: str) -> str:
    """Cell of a table for the cost at which a contestant reaches an accuracy.

    Args:
        row: The contestant; None where it was not measured.
        key: Which cost.
    """
    if row is None:
        return ""
    return "never" if row[key] is None else f"{row[key]:.2f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"
