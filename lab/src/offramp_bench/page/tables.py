"""The paper's comparisons in numbers."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from offramp.report._tables import Cell, table
from offramp.report._words import cost
from offramp_bench.page.results import Contestant, Observation, PaperResults, Task
from offramp_bench.page.standing import (
    DEFAULT,
    MAIN,
    PAPER,
    best_rival,
    by_contestant,
    cheapest,
    is_ahead,
    is_behind,
    is_dearer,
)

__all__ = [
    "about",
    "areas",
    "bars",
    "brought",
    "brought_to_paper",
    "claims",
    "costs",
    "coverage",
    "differences",
    "figures",
    "pairs",
    "points",
    "training",
    "winners",
]

_NOTHING = "\N{EN DASH}"
_SIGN = "\N{MINUS SIGN}"


def points(share: float, scale: float = 100.0) -> str:
    """A difference with its sign and two decimals.

    Args:
        share: The difference.
        scale: What it is multiplied with: points of a share by default.

    Example:
        >>> points(0.0123), points(-0.00001)
        ('+1.23', '0.00')
    """
    rounded = round(scale * share, 2)
    return f"{rounded:+.2f}".replace("-", _SIGN) if rounded else "0.00"


def areas(results: PaperResults) -> str:
    """Areas of the main contestants and the best rival.

    Args:
        results: All results.
    """
    rows: list[tuple[str, Sequence[Cell]]] = []
    for task in results.tasks.values():
        best = best_rival(task)
        shown = [*(task.contestants.get(name) for name in MAIN), best]
        cells: list[Cell] = [(task.name, "words"), (f"{task.samples:,}", ""), (f"{100 * task.full_accuracy:.1f}", "")]
        cells += [(_NOTHING if one is None else f"{100 * one.area:.2f}", "") for one in shown]
        rows.append(("", [*cells, (_NOTHING if best is None else best.name, "words")]))
    heads = [
        ("test samples", ""),
        ("full, %", ""),
        *((name, "") for name in MAIN),
        ("best rival", ""),
        ("which", "words"),
    ]
    return table("Area: mean accuracy over the logarithm of cost, %", [("task", "words"), *heads], rows)


def about(results: PaperResults) -> str:
    """What the tasks are.

    Args:
        results: All results.
    """
    rows: list[tuple[str, Sequence[Cell]]] = [
        ("", [(task.name, "words"), (task.kind, "words"), (task.about or _NOTHING, "words")])
        for task in results.tasks.values()
    ]
    return table("The tasks", [("task", "words"), ("kind", "words"), ("what", "words")], rows)


def pairs(title: str, heads: tuple[str, str], told: Iterable[tuple[str, str]]) -> str:
    """Two columns of words.

    Args:
        title: Of the table.
        heads: Of the columns.
        told: The rows.
    """
    rows = [("", [(one, "words"), (other, "words")]) for one, other in told]
    return table(title, [(head, "words") for head in heads], rows)


def claims(results: PaperResults) -> str:
    """What became of every claim.

    Args:
        results: All results.
    """
    rows: list[tuple[str, Sequence[Cell]]] = [
        ("", [(one.name, "words"), (one.verdict, "words wrong" if one.verdict == "does not hold" else "words")])
        for one in results.observations.values()
    ]
    return table("Claims of the paper", [("claim", "words"), ("here", "words")], rows)


def differences(results: PaperResults) -> str:
    """How far offramp's area lies above the others', paired.

    Args:
        results: All results.
    """
    rows: list[tuple[str, Sequence[Cell]]] = []
    for task in results.tasks.values():
        cells: list[Cell] = [(task.name, "words")]
        for one in (*(task.contestants.get(name) for name in MAIN[1:]), best_rival(task)):
            cells += [(_NOTHING, ""), (_NOTHING, "")] if one is None else _above(one)
        rows.append(("", cells))
    heads = [("task", "words")]
    for name in (*MAIN[1:], "the best rival"):
        heads += [(f"above {name}", ""), ("95 %", "")]
    return table(f"{DEFAULT}'s area above that of others, points", heads, rows)


def _above(one: Contestant) -> list[Cell]:
    low, high = one.interval
    look = "wrong" if one.below_default < 0 else ""
    return [(points(one.below_default), look), (f"{points(low)} to {points(high)}", look)]


def costs(results: PaperResults, key: str, accuracy: str) -> str:
    """What an accuracy costs.

    Args:
        results: All results.
        key: "cost_at_full" or "cost_at_half".
        accuracy: Which that is.
    """
    rows: list[tuple[str, Sequence[Cell]]] = []
    for task in results.tasks.values():
        main = (task.contestants.get(name) for name in MAIN)
        ours, *others = (_cost(None if one is None else getattr(one, key)) for one in main)
        best = cheapest(task, key)
        lost = "wrong" if is_dearer(task, key) else ""
        told = [_NOTHING, _NOTHING] if best is None else [cost(getattr(best, key)), best.name]
        cells: list[Cell] = [(task.name, "words"), (ours, lost), *((other, "") for other in others)]
        rows.append(("", [*cells, (told[0], lost), (told[1], f"words {lost}".strip())]))
    heads = [("task", "words"), *((name, "") for name in MAIN), ("cheapest of others", ""), ("which", "words")]
    return table(f"Relative cost of {accuracy} ({_NOTHING}: never, or not measured)", heads, rows)


def _cost(spent: float | None) -> str:
    return _NOTHING if spent is None else cost(spent)


def winners(results: PaperResults) -> str:
    """Where somebody has a larger area than offramp.

    Args:
        results: All results.
    """
    rows: list[tuple[str, Sequence[Cell]]] = []
    for task in results.tasks.values():
        cells: list[Cell] = [(task.name, "words")]
        for kinds in (("paper", "rival", "ablation", "static"), ("policy", "exits")):
            found = sorted(
                (one for one in task.contestants.values() if one.kind in kinds and one.below_default < 0),
                key=lambda one: one.below_default,
            )
            told = ", ".join(
                f"{one.name} {points(-one.below_default)}{' (95 %)' if is_ahead(one) else ''}" for one in found
            )
            cells.append((told or "nobody", "words wrong" if any(map(is_ahead, found)) else "words"))
        rows.append(("", cells))
    heads = [
        ("task", "words"),
        ("others that are ahead", "words"),
        (f"parts of {DEFAULT} that alone are ahead", "words"),
    ]
    return table(f"Who has a larger area than {DEFAULT}, by how many points; 95 %: surely so", heads, rows)


def bars(results: PaperResults) -> str:
    """What must hold.

    Args:
        results: All results.
    """
    rows: list[tuple[str, Sequence[Cell]]] = []
    for bar in results.bars:
        figure = _NOTHING if bar.figure is None else f"{bar.figure:.3f}".replace("-", _SIGN)
        held: Cell = ("holds", "words") if bar.held else ("missed", "words wrong")
        rows.append(("", [(bar.name, "words"), (figure, ""), (f"{bar.at_most:g}", ""), held]))
    return table("Bars", [("what", "words"), ("measured", ""), ("at most", ""), ("", "words")], rows)


def figures(observation: Observation) -> str:
    """What a verdict rests on.

    Args:
        observation: The claim.
    """
    tasks = list(dict.fromkeys(name for measure in observation.figures for name in measure.by_task))
    rows: list[tuple[str, Sequence[Cell]]] = []
    for measure in observation.figures:
        cells: list[Cell] = [(measure.what, "words"), (measure.verdict, "words")]
        for name in tasks:
            gap = measure.by_task.get(name)
            look = "" if gap is None or abs(gap.figure) > gap.noise else "level"
            look = "wrong" if name in measure.against else look
            cells.append((_NOTHING if gap is None else points(gap.figure, 1.0), look))
        rows.append(("", cells))
    heads = [("figure", "words"), ("", "words"), *((name, "") for name in tasks)]
    return table(f"{observation.name}: figures by task", heads, rows)


def brought(results: PaperResults, title: str, *kinds: str) -> str:
    """Areas of contestants minus offramp's.

    Args:
        results: All results.
        title: Of the table.
        kinds: Which contestants.
    """
    names = by_contestant(results.tasks, *kinds)
    cells = {name: _differences(results.tasks, name, DEFAULT) for name in names}
    return _by_task(title, results.tasks, cells)


def brought_to_paper(results: PaperResults) -> str:
    """Areas of the paper's ablations minus its own.

    Args:
        results: All results.
    """
    cells = {name: _differences(results.tasks, name, PAPER) for name in by_contestant(results.tasks, "ablation")}
    return _by_task(f"Area minus {PAPER}'s, points", results.tasks, cells)


def _differences(tasks: Mapping[str, Task], name: str, other: str) -> dict[str, tuple[float, str]]:
    found = {}
    for task in tasks.values():
        if name in task.contestants and other in task.contestants:
            one = task.contestants[name]
            look = ""
            if other == DEFAULT:
                look = "wrong" if is_ahead(one) else "" if is_behind(one) else "level"
            found[task.name] = (one.area - task.contestants[other].area, look)
    return found


def _by_task(title: str, tasks: Mapping[str, Task], cells: Mapping[str, Mapping[str, tuple[float, str]]]) -> str:
    kept = [name for name in tasks if any(name in row for row in cells.values())]
    rows: list[tuple[str, Sequence[Cell]]] = []
    for name, row in cells.items():
        if row:
            alone = [figure for task, (figure, _) in row.items() if tasks[task].alone is None]
            mean = points(fmean(alone)) if alone else _NOTHING
            shown = ((points(row[one][0]), row[one][1]) if one in row else (_NOTHING, "") for one in kept)
            rows.append(("", [(name, "words"), (mean, ""), *shown]))
    return table(title, [("", "words"), ("mean", ""), *((name, "") for name in kept)], rows)


def coverage(results: PaperResults, names: Iterable[str]) -> str:
    """Coverage of the prediction sets of 95 %, a mean over each curve.

    Args:
        results: All results.
        names: Of contestants.
    """
    tasks = [task for task in results.tasks.values() if task.alone is None]
    rows: list[tuple[str, Sequence[Cell]]] = []
    for name in names:
        cells: list[Cell] = [(name, "words")]
        for task in tasks:
            curve = task.contestants[name].curve if name in task.contestants else ()
            held = [point.coverage for point in curve if point.coverage is not None]
            cells.append((f"{100 * fmean(held):.1f}" if held else _NOTHING, ""))
        rows.append(("", cells))
    return table("Coverage of sets of 95 %, %", [("", "words"), *((task.name, "") for task in tasks)], rows)


def training(results: PaperResults) -> tuple[str, str]:
    """CPU seconds, and parameters, of what is fitted; contestants that share a fit in one row.

    Args:
        results: All results.
    """
    tasks = list(results.tasks.values())
    fits: dict[tuple[tuple[float | None, ...], tuple[int | None, ...]], list[str]] = {}
    for name in by_contestant(results.tasks, "default", "paper", "rival"):
        found = [task.contestants.get(name) for task in tasks]
        seconds = tuple(None if one is None else one.cpu_seconds for one in found)
        parameters = tuple(None if one is None else one.parameters for one in found)
        fits.setdefault((seconds, parameters), []).append(name)
    heads: list[Cell] = [("", "words"), *((task.name, "") for task in tasks)]
    rows = [
        [("", [(", ".join(names), "words"), *map(_amount, fit[which])]) for fit, names in fits.items()]
        for which in (0, 1)
    ]
    return table("CPU seconds to fit the exits of a whole curve", heads, rows[0]), table("Parameters", heads, rows[1])


def _amount(number: float | None) -> Cell:
    return (_NOTHING if number is None else f"{number:,.0f}", "")
