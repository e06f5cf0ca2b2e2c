"""Coverage that each way to set conformal thresholds claims, coverage that it does not, and the bars for both."""

from statistics import NormalDist
from typing import Any

from offramp_bench.bars import Bar

__all__ = ["CHEAPEST", "CLAIMS", "FAILURES", "bars", "worst_of"]

CHEAPEST = "cheapest"
"""Name of the cheapest operating point, which uses few exits."""

CLAIMS: dict[str, tuple[str, ...]] = {
    "general": ("overall",),
    "per_exit": (),
    "strict": ("exit",),
    "gated": ("exit",),
    "pooled": ("overall", "exit", "rare exits"),
    "general by class": ("overall", "class"),
    "pooled by class": ("overall", "class", "class at exit"),
}
"""Groups that each way to set thresholds covers; exits and classes at exits only if they have their own threshold."""

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
"""Coverage that is not claimed, and must be missed somewhere."""


def bars(figures: dict[str, Any]) -> list[Bar]:
    """Return the bars: every claim holds within two standard errors, and every failure shows."""
    rows = [
        (pool_name, label, name, alpha, kind, group)
        for pool_name, of_pool in figures.items()
        for label, at_point in of_pool["points"].items()
        for name, levels in at_point["ways"].items()
        for alpha, kinds in levels.items()
        for kind, group in kinds.items()
        if kind != "mean set size"
    ]
    all_bars = []
    for pool_name in figures:
        for name, kinds in CLAIMS.items():
            for kind in kinds:
                groups = [
                    group for where, _, way, _, what, group in rows if (where, way, what) == (pool_name, name, kind)
                ]
                if groups:
                    short = max(group["short by standard errors"] for group in groups)
                    # Hundreds of small cells: the bar for the worst is as unlikely to be missed as two errors of one.
                    count = sum(group["groups"] for group in groups) if kind == "class at exit" else 1
                    all_bars.append(
                        Bar(f"{pool_name}, {name}, {kind}: short by standard errors", short, worst_of(count))
                    )
    for name, kind in FAILURES:
        lacking = [
            (1 - float(alpha) - group["coverage"] - 2 * group["standard error"], label != CHEAPEST, where, label, alpha)
            for where, label, way, alpha, what, group in rows
            if (way, what) == (name, kind)
        ]
        # Shown at a point that uses many exits, if it fails at one of those.
        worst, _, where, label, alpha = max(lacking, key=lambda row: (row[0] > 0 and row[1], row[0]))
        title = f"{name}, {kind}: not claimed, coverage and two standard errors at {alpha} ({where}, {label})"
        all_bars.append(Bar(title, 1 - float(alpha) - worst, 1 - float(alpha)))
    return all_bars


def worst_of(count: int) -> float:
    """Return the number that the largest of `count` normal draws exceeds as rarely as a single draw exceeds 2."""
    normal = NormalDist()
    return normal.inv_cdf(normal.cdf(2.0) ** (1 / count))
