"""What must hold."""

from typing import Any

from offramp_bench.bars import Bar

__all__ = ["bars"]


def bars(tasks: dict[str, Any]) -> list[Bar]:
    """The bars, as far as the tasks are there.

    Args:
        tasks: As `assembled` gives them.
    """
    made = []
    single = {name: task for name, task in tasks.items() if task["alone"] is None}
    above: dict[str, int] = {}
    for task in single.values():
        for name, row in task["contestants"].items():
            if row["kind"] in ("rival", "paper", "ablation"):
                above[name] = above.get(name, 0) + (row["interval"][0] > 0)
    for name, wins in above.items():
        least = min(
            task["contestants"][name]["below default"] for task in single.values() if name in task["contestants"]
        )
        made.append(Bar(f"{name}: points above the default on its best task", -100 * least, 0.0))
        made.append(Bar(f"{name}: tasks where the default is not above with 95 %", len(single) - wins, 1))
    policies = {
        name for task in single.values() for name, row in task["contestants"].items() if row["kind"] == "policy"
    }
    for name in sorted(policies):
        lead = [-task["contestants"][name]["below default"] for task in single.values() if name in task["contestants"]]
        made.append(Bar(f"{name}: mean points above the default", 100 * sum(lead) / len(lead), 0.1))
    cheaper = [name for name, task in single.items() if _saving(task) >= 0.15]
    made.append(
        Bar(f"tasks short of 5 with 15 % less cost at half a point lost ({', '.join(cheaper)})", 5 - len(cheaper), 0)
    )
    half = {task["alone"] or name for name, task in tasks.items() if _at_half(task)}
    made.append(
        Bar(f"tasks short of 4 with the full accuracy at half the cost ({', '.join(sorted(half))})", 4 - len(half), 0)
    )
    return made


def _saving(task: dict[str, Any]) -> float:
    """How much less the default costs at half a point lost than the best of the paper's method and a threshold."""
    key = "cost at full - .5"
    rivals = [task["contestants"][name][key] for name in ("JEI-DNN", "threshold") if name in task["contestants"]]
    reached = [cost for cost in rivals if cost is not None]
    ours = task["contestants"]["offramp"][key]
    if ours is None:
        return -1.0
    return float(1 - ours / min(reached)) if reached else 1.0


def _at_half(task: dict[str, Any]) -> bool:
    cost = task["contestants"]["offramp"]["cost at full"]
    return cost is not None and cost <= 0.5
