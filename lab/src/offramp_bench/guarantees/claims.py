"""What each way to set conformal thresholds claims to cover, what it does not, and what must be seen of both."""

from statistics import NormalDist
from typing import Any

from offramp_bench.bars import Bar

__all__ = ["CHEAPEST", "CLAIMS", "FAILURES", "bars", "worst_of"]

CHEAPEST = "cheapest"
"""The name of the cheapest operating point, which few exits are used at."""

CLAIMS: dict[str, tuple[str, ...]] = {
    "general": ("overall",),
    "per_exit": (),
    "strict": ("exit",),
    "gated": ("exit",),
    "pooled": ("overall", "exit", "rare exits"),
    "general by class": ("overall", "class"),
    "pooled by class": ("overall", "class", "class at exit"),
}
"""What each way to set thresholds claims to cover; an exit, or a class at one, where it has a threshold of its own."""

FAILURES = (
    ("general", "exit"),
    ("general", "class"),
    ("per_exit", "overall"),
    ("per_exit", "exit"),
    ("strict", "every exit"),
    ("gated", "every exit"),
    ("gated", "rare exits"),
    ("gated", "overall"),
    ("pooled", "class"),
)
"""What is not claimed, and must be seen to fail somewhere."""


def bars(figures: dict[str, Any]) -> list[Bar]:
    """What must hold: every claim within two standard errors, and every failure seen."""
    rows = [
        (pool_name, label, name, alpha, kind, told)
        for pool_name, found in figures.items()
        for label, at_point in found["points"].items()
        for name, levels in at_point["ways"].items()
        for alpha, kinds in levels.items()
        for kind, told in kinds.items()
        if kind != "mean set size"
    ]
    made = []
    for pool_name in figures:
        for name, kinds in CLAIMS.items():
            for kind in kinds:
                judged = [
                    told for where, _, way, _, what, told in rows if (where, way, what) == (pool_name, name, kind)
                ]
                if judged:
                    short = max(told["short by standard errors"] for told in judged)
                    # Hundreds of small cells: the worst of them is allowed what is as unlikely as two errors of one.
                    count = sum(told["groups"] for told in judged) if kind == "class at exit" else 1
                    made.append(Bar(f"{pool_name}, {name}, {kind}: short by standard errors", short, worst_of(count)))
    for name, kind in FAILURES:
        lacking = [
            (1 - float(alpha) - told["coverage"] - 2 * told["standard error"], label != CHEAPEST, where, label, alpha)
            for where, label, way, alpha, what, told in rows
            if (way, what) == (name, kind)
        ]
        # Shown where exits are well used, if it fails there.
        worst, _, where, label, alpha = max(lacking, key=lambda one: (one[0] > 0 and one[1], one[0]))
        title = f"{name}, {kind}: not claimed, coverage and two standard errors at {alpha} ({where}, {label})"
        made.append(Bar(title, 1 - float(alpha) - worst, 1 - float(alpha)))
    return made


def worst_of(count: int) -> float:
    """What the largest of so many normal draws exceeds as rarely as one draw exceeds 2."""
    normal = NormalDist()
    return normal.inv_cdf(normal.cdf(2.0) ** (1 / count))
