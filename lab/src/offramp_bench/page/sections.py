"""The figures and tables of the paper in order, with what became of each claim."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from offramp.report._page import prose
from offramp_bench.page import tables
from offramp_bench.page.card import Picture, card
from offramp_bench.page.curves import ACCURACY, CALIBRATION, SETS, Shown, against_cost, compared
from offramp_bench.page.pictures import calibration_by_depth, convergence, coverage, decomposition
from offramp_bench.page.results import Observation, PaperResults, Task
from offramp_bench.page.standing import MAIN, PAPER

__all__ = ["FIVE", "Section", "sections"]

FIVE = (
    "1. Joint training",
    "2. Learned gates",
    "3. Where samples leave",
    "4. Uncertainty",
    "5. Tailored architectures",
)
"""The observations of the paper's main text."""

_NOT_RUN = (
    ("ImageNet (accuracy against cost, T2T-ViT-14 and Dynamic Perceiver)", "neither images nor weights are to be had"),
    ("T2T-ViT-7 and -14 with ImageNet weights", "no weights; a small T2T-ViT trained for these benchmarks stands in"),
    ("Dynamic Perceiver, alone, with JEI-DNN and end to end", "no weights; gates on offramp's ladder stand in"),
    ("MSDNet and RANet with their own weights", "no weights; their rule (geometric thresholds) is compared instead"),
    ("IMTA", "trains the network itself, from weights that are not to be had"),
    ("GRIT on superpixels", "no weights; graph networks trained for these benchmarks stand in"),
)

_NAMES = (
    ("offramp", "its default: ladder exits on a grid of means and maxima, samples leave by optimal stopping"),
    ("JEI-DNN", "the paper's method: linear exits on means, trained together with gates, which decide"),
    ("threshold", "one threshold on confidence for all exits, on linear exits on means trained on all samples"),
    ("fixed classifiers", "the paper's gates on classifiers that no longer learn"),
    ("plain, rescaled, full", "the paper's alternation with other losses of the classifiers; full: the whole gradient"),
    ("exit if min", "gates are asked to open at the best exit alone, not from it on"),
    ("ladder", "a small state that every sample carries up the network, into which every stage writes"),
    ("look", "what an exit sees of a stage: the paper's, a mean (of a transformer its first token), or offramp's grid"),
    (
        "means alone, one view",
        "offramp's exits without the maxima; without further views of the images they learn from",
    ),
    ("half as wide, twice as wide, half as long", "offramp's state with other widths; fitted for half of the epochs"),
    ("cost weight, priced loss", "the paper's lambda; cross-entropy plus lambda times the relative cost"),
)
"""Words of the page that need some."""

_BASELINES = ("BoostedNet", "L2W-DEN")


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    anchor: str
    """Its id."""
    title: str
    """Its heading."""
    about: str
    """What it shows, in a sentence or two."""
    claims: tuple[str, ...]
    """Names of the observations that it bears on."""
    content: Callable[[PaperResults], Iterable[str]]
    """HTML."""

    def html(self, number: int, results: PaperResults) -> str:
        """The section.

        Args:
            number: Its place on the page.
            results: All results.
        """
        claims = [_claim(results.observations[name]) for name in self.claims if name in results.observations]
        if self.claims and not claims:
            claims = ["<p>The results hold no verdict on this.</p>"]
        parts = list(self.content(results)) or ["<p>Nothing of this has been measured yet.</p>"]
        return "\n".join(
            [
                f'<section id="{self.anchor}">',
                f"<h2>{number}. {prose(self.title)}</h2>",
                f"<p>{prose(self.about)}</p>",
                *claims,
                *parts,
                "</section>",
            ]
        )


def _claim(one: Observation) -> str:
    """A claim, its verdict and its reasons; those of the five observations are told at the end."""
    look = one.verdict.replace(" ", "-")
    lines = [
        f'<div class="claim {look}">',
        f'<p><span class="badge">{prose(_badge(one.verdict))}</span> The paper: {prose(one.claim)}</p>',
    ]
    if one.name in FIVE:
        lines.append(f'<p class="why"><a href="#observations">Observation {prose(one.name)}</a></p>')
    else:
        lines += [f'<p class="why">{prose(one.why)}</p>', _figures(one)]
    return "\n".join([*lines, "</div>"])


def _badge(verdict: str) -> str:
    return f"{verdict[0].upper()}{verdict[1:]} here."


def _figures(one: Observation) -> str:
    if not any(measure.by_task for measure in one.figures):
        return ""
    return f"<details><summary>Figures by task</summary>\n{tables.figures(one)}\n</details>"


def sections() -> tuple[Section, ...]:
    """All sections, in order."""
    return (
        Section(
            "summary",
            "Who wins, and where",
            "Each curve is summed up by its area; offramp's is compared with the others' sample by sample. Orange is "
            "where somebody else is ahead.",
            (),
            _summary,
        ),
        Section(
            "accuracy",
            "Accuracy against Mul-Adds",
            "The paper's main figure, on every task; the dashed line is the full network.",
            ("1. Joint training", "DiffBranch"),
            lambda results: _curves(results, ACCURACY),
        ),
        Section(
            "calibration",
            "Calibration error against Mul-Adds",
            "15 bins of as many samples each, over the whole test set, temperatures fitted on tune.",
            ("Calibration",),
            lambda results: _curves(results, CALIBRATION),
        ),
        Section(
            "sets",
            "Size of prediction sets against Mul-Adds",
            "Sets of 95 % with thresholds from the calibrate split alone. The paper lowers its thresholds until the "
            "coverage on test is reached, which nobody can do who does not know the answers.",
            ("Set size",),
            lambda results: _curves(results, SETS),
        ),
        Section(
            "coverage",
            "Coverage asked for and coverage found",
            "Of prediction sets under the paper's gates, by four ways to set thresholds, means over cost weights. "
            "Above the dashed line sets hold the true class more often than asked, below it less often.",
            ("Coverage", "Conformal variants"),
            _coverages,
        ),
        Section(
            "exits",
            "Who leaves where",
            "The paper's gates at three cost weights. A circle above its diamond: the easy samples leave there. A bar "
            "above its circle: the full network would have known better.",
            ("2. Learned gates", "3. Where samples leave", "Easy stays easy"),
            _decompositions,
        ),
        Section(
            "depth",
            "Calibration by depth",
            "Of those who leave at each exit.",
            ("Calibration by depth",),
            _depth,
        ),
        Section(
            "ablation",
            "What each part brings",
            "Areas minus those of the whole: a negative number is what the part is worth. Differences to offramp that "
            "are within chance are grey.",
            ("Ablation",),
            _ablations,
        ),
        Section(
            "convergence",
            "Convergence of the full gradient",
            "The paper's approximation beside its complete gradient: priced loss on tune, a mean over cost weights, "
            "by epoch after warm-up.",
            ("Full gradient",),
            lambda results: _cards(
                convergence(task)
                for task in results.tasks.values()
                if all(task.priced_losses.get(name) for name in ("weighted", "full"))
            ),
        ),
        Section(
            "exit-if-min",
            "ExitIfMin",
            "Two ways to tell gates when to open.",
            ("Exit if min",),
            lambda results: _some(results.tasks.values(), (PAPER, "exit if min"), "exit-if-min"),
        ),
        Section(
            "graphs",
            "Graph networks",
            "The paper's method beside BoostedNet on graphs.",
            ("Graphs",),
            lambda results: _some(
                (task for task in results.tasks.values() if task.kind == "graph"), (*MAIN, "BoostedNet"), "graph"
            ),
        ),
        Section(
            "training",
            "Training time and parameters",
            "Of what is fitted beside the frozen network, on cached features; contestants that share a fit share a "
            "row.",
            ("Training time",),
            lambda results: tables.training(results) if results.tasks else (),
        ),
        Section(
            "not-run",
            "What cannot be run here",
            "Nothing is downloaded while benchmarks run, and these are not to be had otherwise.",
            (),
            _not_run,
        ),
        Section(
            "observations",
            "The paper's five observations",
            "Each as a test with a verdict. Figures within what chance does to this many samples are grey; orange ones "
            "speak against the claim.",
            (),
            _five,
        ),
    )


def _summary(results: PaperResults) -> Iterator[str]:
    if results.tasks:
        yield tables.areas(results)
        yield tables.differences(results)
        yield tables.costs(results, "cost_at_full", "the full network's accuracy")
        yield tables.costs(results, "cost_at_half", "half a point less")
        yield tables.winners(results)
        yield tables.about(results)
    if results.observations:
        yield tables.claims(results)
    if results.bars:
        yield f"<details><summary>{len(results.bars)} bars</summary>\n{tables.bars(results)}\n</details>"
    names = tables.pairs("Who is who", ("name", "what"), _NAMES)
    yield f"<details><summary>Who is who</summary>\n{names}\n</details>"


def _cards(pictures: Iterable[Picture | None]) -> Iterator[str]:
    """The pictures side by side."""
    drawn = [card(picture) for picture in pictures if picture is not None]
    if drawn:
        yield "\n".join(['<div class="cards">', *drawn, "</div>"])


def _curves(results: PaperResults, shown: Shown) -> Iterator[str]:
    return _cards(against_cost(results, task, shown) for task in results.tasks.values())


def _some(tasks: Iterable[Task], names: tuple[str, ...], prefix: str) -> Iterator[str]:
    return _cards(compared(task, names, ACCURACY, prefix=prefix) for task in tasks)


def _coverages(results: PaperResults) -> Iterator[str]:
    if results.tasks:
        yield tables.coverage(results, (*MAIN, *_BASELINES))
    yield from _cards(coverage(task) for task in results.tasks.values())


def _decompositions(results: PaperResults) -> Iterator[str]:
    shown = [task for task in results.tasks.values() if task.decomposition]
    for task in shown:
        (cards,) = _cards(decomposition(task, index) for index in range(len(task.decomposition)))
        opened = " open" if task is shown[0] else ""
        yield f"<details{opened}><summary>{prose(task.name)}</summary>\n{cards}\n</details>"


def _depth(results: PaperResults) -> Iterator[str]:
    tasks = {name: task for name, task in results.tasks.items() if task.decomposition}
    return _cards([calibration_by_depth(tasks)] if tasks else [])


def _ablations(results: PaperResults) -> Iterator[str]:
    if results.tasks:
        yield tables.brought_to_paper(results)
        yield tables.brought(results, "The same ablations: area minus offramp's, points", "ablation")
        yield tables.brought(results, "Other rules on offramp's exits: area minus offramp's, points", "policy")
        yield tables.brought(results, "Other exits for offramp: area minus offramp's, points", "exits")


def _not_run(results: PaperResults) -> Iterator[str]:
    yield tables.pairs("Figures of the paper that are missing", ("what", "why"), _NOT_RUN)


def _five(results: PaperResults) -> Iterator[str]:
    for name in FIVE:
        if name in results.observations:
            one = results.observations[name]
            yield "\n".join(
                [
                    f'<div class="claim {one.verdict.replace(" ", "-")}">',
                    f"<h3>{prose(one.name)}</h3>",
                    f'<p><span class="badge">{prose(_badge(one.verdict))}</span> The paper: {prose(one.claim)}</p>',
                    f'<p class="why">{prose(one.why)}</p>',
                    tables.figures(one) if any(measure.by_task for measure in one.figures) else "",
                    "</div>",
                ]
            )
