"""The section of docs/evidence/tables.md about guarantees."""

from collections.abc import Mapping
from typing import Any

__all__ = ["section"]

SECTION = """## Promises: `offramp_bench.guarantees`
Bars over a thousand redraws of real outcomes that nothing was fitted or tuned on (ResNet-56 on CIFAR-10, MiniLM on
CLINC150), by a threshold on the default's exits. What each part does, and its figures, are on pages of their own:
[guarantees](guarantees.md), [budgets](budgets.md), [monitoring](monitoring.md), [prediction sets](prediction-sets.md).

{parts}

{missed}
"""

_PARTS = {
    "risk": "share of broken promises, and of savings given up for a promise",
    "default": "guarantees of the default that are broken, and its cost over the least",
    "dial": "asked and spent, a stream that turns harder, the time of a switch",
    "monitoring": "false alarms, shifts missed, promises after calibrating again",
    "conformal": "coverage short of what is claimed, in standard errors",
}


def section(results: Mapping[str, Any]) -> str:
    """Return the section.

    Args:
        results: Results that the benchmark printed.
    """
    rows = ["| part | what is measured | bars | held |", "|---|---|---|---|"]
    for part, about in _PARTS.items():
        own = [bar for bar in results["bars"] if bar["name"].startswith(f"{part}: ")]
        rows.append(f"| {part} | {about} | {len(own)} | {sum(bar['held'] for bar in own)} |")
    missed = [bar for bar in results["bars"] if not bar["held"]]
    lines = ["Every bar holds."]
    if missed:
        lines = ["Missed:", "", "| what | measured | at most |", "|---|---|---|"]
        lines += [f"| {bar['name']} | {bar['figure']:.3f} | {bar['at_most']:g} |" for bar in missed]
    return SECTION.format(parts="\n".join(rows), missed="\n".join(lines))
