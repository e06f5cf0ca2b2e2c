"""The page: one file that needs nothing else."""

from collections import Counter
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from string import Template

from offramp.report._page import prose, style
from offramp_bench.page.results import VERDICTS, WITHHELD, PaperResults, Task
from offramp_bench.page.standing import DEFAULT, MAIN, is_ahead, is_behind, is_dearer

__all__ = ["headline", "write_paper_page"]

_TITLE = "Every figure and table of the paper, measured again"
_OF = (
    "Jointly-Learned Exit and Inference for a Dynamic Neural Network (JEI-DNN, ICLR 2024), its rivals and offramp on "
    "the same frozen networks, features, splits and costs"
)


def write_paper_page(results: PaperResults, path: str | Path) -> Path:
    """Write the page.

    It needs no network, no script and no other file, and follows the reader's choice of light or dark.

    Args:
        results: What was measured.
        path: The file to write; its folder is made if it is not there.

    Returns:
        Where the page is.

    Raises:
        MissingExtraError: Without matplotlib.
    """
    # Here and not above: results can be read without matplotlib, pictures cannot be drawn.
    from offramp_bench.page.sections import sections

    parts = list(enumerate(sections(), 1))
    template = files("offramp_bench.page").joinpath("page.html").read_text(encoding="utf-8")
    page = Template(template).substitute(
        title=prose(_TITLE),
        of=prose(_OF),
        style=style(),
        verdict=prose(headline(results)),
        notes="\n".join(f"<li>{prose(note)}</li>" for note in _notes(results)),
        contents="\n".join(f'<li><a href="#{part.anchor}">{prose(part.title)}</a></li>' for _, part in parts),
        sections="\n".join(part.html(number, results) for number, part in parts),
    )
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    return path


def headline(results: PaperResults) -> str:
    """What came out, in a few sentences.

    Args:
        results: All results.

    Example:
        >>> headline(PaperResults({}, (), {}))
        'Nothing has been measured yet.'
    """
    told = [_against(results, name) for name in MAIN[1:]]
    told.append(_dearer(results, "cost_at_full", "the full network's accuracy"))
    told.append(_dearer(results, "cost_at_half", "half a point less"))
    told.append(_claims(results))
    if results.bars:
        told.append(f"{sum(bar.held for bar in results.bars)} of {len(results.bars)} bars hold.")
    return " ".join(sentence for sentence in told if sentence) or "Nothing has been measured yet."


def _against(results: PaperResults, name: str) -> str:
    met = [task.contestants[name] for task in results.tasks.values() if name in task.contestants]
    if not met:
        return ""
    ahead, behind = sum(map(is_behind, met)), sum(map(is_ahead, met))
    return f"{DEFAULT} is above {name} with 95 % on {ahead} of {len(met)} tasks, below it on {behind}."


def _dearer(results: PaperResults, key: str, accuracy: str) -> str:
    lost = [task.name for task in results.tasks.values() if is_dearer(task, key)]
    return f"Somebody reaches {accuracy} at less cost than {DEFAULT} on {', '.join(lost)}." if lost else ""


def _claims(results: PaperResults) -> str:
    counted = Counter(one.verdict for one in results.observations.values())
    if not counted:
        return ""
    parts = [f"{verdict} {counted[verdict]}" for verdict in VERDICTS if counted[verdict]]
    verdicts = f"Verdicts on {counted.total()} claims of the paper: {', '.join(parts)}."
    if not counted[WITHHELD]:
        return verdicts
    return f"{verdicts} JEI-DNN had fewer epochs than its rivals here: its rows are not what the paper's method can do."


def _notes(results: PaperResults) -> Iterator[str]:
    yield (
        "Points of every curve are chosen on one split and measured on another that nothing was fitted on; costs are "
        "counted Mul-Adds relative to the full network, heads and gates included."
    )
    yield (
        "Area: the mean accuracy over costs from the first exit's (.02 of the network's at least) to the network's, "
        "evenly on a logarithmic scale, a mean over seeds. Cascades have the axis of their last network and are left "
        "out of means over tasks."
    )
    yield (
        "Intervals are of 95 %, of paired differences, resampling test samples; verdicts call a difference level where "
        "it is within them or within two tenths of a point."
    )
    yield (
        "A claim that something is better holds if it is better on half of the tasks at least and worse on none; it "
        "does not hold if it is worse on more tasks than better; it is not shown if all are level; else it is mixed. "
        "A claim that two things are alike holds if no task tells them apart, and does not hold if half of them do. Of "
        "several figures all must agree, or the claim is mixed; with some against and the others level, it does not "
        "hold."
    )
    for task in results.tasks.values():
        for alike in _alike(task):
            yield f"On {task.name} these came out the same, to the last digit: {'; '.join(alike)}."
    if results.missing:
        yield f"Not measured with all seeds, and so not on this page: {', '.join(results.missing)}."
    missing = [task.name for task in results.tasks.values() if task.alone is None and MAIN[1] not in task.contestants]
    if missing:
        yield f"The paper's method has not been measured on {', '.join(missing)} yet."


def _alike(task: Task) -> list[list[str]]:
    """Names of contestants that have one and the same curve."""
    by_curve: dict[object, list[str]] = {}
    for one in task.contestants.values():
        by_curve.setdefault((one.area, one.curve), []).append(one.name)
    return [names for names in by_curve.values() if len(names) > 1]
