"""Figures of docs/evidence/annotation.md, from the results of the benchmark."""

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["measured_block"]

TITLES = {"banking77": "Banking77", "clinc150": "CLINC150"}

Results = Mapping[str, Any]


def measured_block(results: Results) -> str:
    """Return the table of calls and guarantees, and one line for each other part in the results.

    Args:
        results: Figures of the benchmark, by part.
    """
    tasks = [task for task in TITLES if task in results]
    rows: list[tuple[str, Callable[[Results], str]]] = [
        ("inputs", lambda task: f"{task['rows']:,}"),
        *((f"share asked at {100 * drop:g} %, everything counted", _asked_at(drop)) for drop in (0.05, 0.02, 0.01)),
        *((f"the same with BARGAIN at {100 * drop:g} %", _bargain_at(drop)) for drop in (0.05, 0.02)),
        ("guarantees about these inputs broken, at 5, 2 and 1 %", _broken_of("inputs")),
        ("guarantees about inputs to come broken", _broken_of("future")),
        ("draws with a saving at 5 %: these inputs, inputs to come", _committed),
        ("CPU seconds to learn, most", lambda task: f"{max(task['cpu_s']):.0f}"),
    ]
    lines = [f"| | {' | '.join(TITLES[task] for task in tasks)} |", "|---" * (len(tasks) + 1) + "|"]
    lines += [f"| {title} | {' | '.join(figure(results[task]) for task in tasks)} |" for title, figure in rows]
    sentences = [f"* {write(results[part])}" for part, write in SENTENCES.items() if part in results]
    return "\n".join([*lines, "", *sentences])


def _asked_at(drop: float) -> Callable[[Results], str]:
    def figure(task: Results) -> str:
        level = task["inputs"][str(drop)]
        low, _, high = level["asked_quantiles"]
        return f"{level['asked']:.2f} ({low:.2f} to {high:.2f})"

    return figure


def _bargain_at(drop: float) -> Callable[[Results], str]:
    return lambda task: f"{min(task['inputs'][str(drop)]['bargain'].values()):.2f}"


def _broken_of(scope: str) -> Callable[[Results], str]:
    return lambda task: ", ".join(f"{100 * task[scope][drop]['broken']:.1f} %" for drop in ("0.05", "0.02", "0.01"))


def _committed(task: Results) -> str:
    return ", ".join(f"{100 * task[scope]['0.05']['committed']:.0f} %" for scope in ("inputs", "future"))


def _killed(part: Results) -> str:
    return (
        f"**Killed.** {part['inputs']:,} inputs, one request in ten failing, the process killed {part['kills']} "
        f"times: {part['wrong']:,} inputs without their answer, {part['asked_again']:,} asked again after their "
        f"answer was kept, {part['requests']:,} requests in all; a low spending cap was passed by "
        f"{part['over_cap']:.0f} replies."
    )


def _memory(part: Results) -> str:
    small, large = part["peak_mb"]
    return (
        f"**Memory.** {small:.0f} MB at most with {part['rows'][0]:,} embeddings, {large:.0f} MB with "
        f"{part['rows'][1]:,}."
    )


def _dry_run(tasks: Results) -> str:
    parts = [
        f"{TITLES[task]}: in {100 * part['covered']:.0f} % of {part['dry_runs']} dry runs the bill was within the 90 % "
        f"interval, whose median half-width is {100 * part['half_width']:.0f} % of the bill"
        for task, part in tasks.items()
    ]
    return f"**Estimated bills**, at 5 %, from 300 answers. {'; '.join(parts)}."


def _mixed(part: Results) -> str:
    return (
        f"**A function, a network with exits and a language model as one cascade** (Banking77): {part['asked']:,} of "
        f"{part['inputs']:,} inputs asked, {100 * part['bill_share']:.0f} % of the bill. On new texts "
        f"{100 * part['differs_on_test']:.1f} % of the answers differ, for {100 * part['price_share_on_test']:.0f} % "
        "of the price."
    )


SENTENCES: dict[str, Callable[[Results], str]] = {
    "dry_run": _dry_run,
    "killed": _killed,
    "memory": _memory,
    "mixed": _mixed,
}
"""Functions that write a sentence about each part beside the table."""
