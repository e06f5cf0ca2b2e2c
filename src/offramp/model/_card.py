"""The page of a model in a repository: README.md and a picture of its frontier."""

import json
import math
import re
import unicodedata
from collections.abc import Iterator, Sequence
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from offramp.artifact._network import factory_for
from offramp.backbone import Factory
from offramp.model._networks import names_to_trust
from offramp.policy import OperatingPoint

if TYPE_CHECKING:
    from offramp.model._model import EarlyExitModel

__all__ = ["draw_frontier", "escape_markdown", "write_card"]

PICTURE = "frontier.svg"
"""Name of the picture's file."""

ROWS = 12
"""Operating points in the table at most."""

CLASSES = 100
"""Class names at most."""

LONGEST = 80
"""Characters of a name at most."""

LONGEST_TEXT = 1000
"""Characters of a sentence at most."""

_MARKUP = re.compile(r"[ ,;%()'A-Za-z0-9]|[^\x00-\x7f]|(?<=[^\W_])[-_](?=[^\W_])|(?<=\d)\.(?=\d)|(.)")
"""One character; those in the group may be markup, and are written by their numbers."""

KINDS = {"text-classification": {"tokenize"}, "image-classification": {"channels_first", "center_crop", "resize"}}
"""Tasks of the Hub, and the steps of preprocessing that identify each."""

EXTRAS = {"timm": "timm", "transformers": "transformers", "transformers_images": "transformers", "llm": "llm"}
"""Extras that networks of these factories need."""

INPUTS = {
    "text-classification": '["a text", "another one"]',
    "image-classification": "images  # uint8, N x height x width x 3",
    None: "inputs  # as the network takes them",
}
"""Inputs in the example, by the task."""


def write_card(
    model: "EarlyExitModel", folder: Path, address: str, *, licence: str | None, factory: Factory | None
) -> None:
    """Write the page and its picture.

    Args:
        model: The model.
        folder: The folder of the artifact.
        address: Address of the repository, `hf://owner/name` or `hf://owner/name@revision`.
        licence: Identifier of the licence, if any.
        factory: The factory it is saved with; the network's own if left out.
    """
    factory = factory_for(model.backbone, factory)
    steps = {name for name, _ in model.preprocessing.steps} | set(_steps(factory))
    task = next((task for task, own in KINDS.items() if own & steps), None)
    head = {"library_name": "offramp", "license": licence, "pipeline_tag": task}
    lines = [
        "---",
        *(f"{key}: {value}" for key, value in head.items() if value is not None),
        "tags:",
        *(f"- {tag}" for tag in ("offramp", "early-exit", "adaptive-computation")),
        "---",
        "",
        f"# {address.removeprefix('hf://').partition('@')[0]}",
        "",
        f"A frozen network, {escape_markdown(model.backbone.name)}, with classifiers after its stages: easy inputs are "
        "answered early and cost less. Made with offramp.",
        "",
        "## Run it",
        "",
        *_running(model, address, factory, task, steps),
        "",
        "## Operating points",
        "",
        f"![Accuracy against cost]({PICTURE})",
        "",
        *_table(model),
        "",
        "## Guarantee",
        "",
        *_guarantee(model.point),
        "",
        "## Limits",
        "",
        *(f"* {limit}" for limit in _limits(model)),
        "",
        *_classes(model.classes),
    ]
    (folder / "README.md").write_text("\n".join(lines), encoding="utf-8")
    (folder / PICTURE).write_text(draw_frontier(model), encoding="utf-8")


def escape_markdown(text: str, *, longest: int = LONGEST) -> str:
    """Write a text so that it stays text: no line breaks, control characters, HTML, links or emphasis.

    It must not stand at the beginning of a line, where `1)` would begin a list.

    Args:
        text: The text.
        longest: Characters at most; the rest is cut off.

    Example:
        >>> escape_markdown("card_arrival [a|b](http://c) <i>")
        'card_arrival &#91;a&#124;b&#93;(http&#58;&#47;&#47;c) &#60;i&#62;'
    """
    plain = "".join(" " if unicodedata.category(character)[0] in "CZ" else character for character in text)
    plain = " ".join(plain.split())
    plain = plain if len(plain) <= longest else plain[: longest - 3] + "..."
    return _MARKUP.sub(lambda match: f"&#{ord(match[1])};" if match[1] else match[0], plain)


def _steps(factory: Factory | None) -> Iterator[str]:
    if factory is not None:
        yield from (name for name, _ in factory.preprocessing.steps)
        for member in factory.members:
            yield from _steps(member)


def _factories(factory: Factory | None) -> Iterator[str]:
    if factory is not None:
        yield factory.name
        for member in factory.members:
            yield from _factories(member)


def _running(
    model: "EarlyExitModel", address: str, factory: Factory | None, task: str | None, steps: set[str]
) -> Iterator[str]:
    """Yield how to install the library and to run the model."""
    names = set(_factories(factory))
    extras = {"hub"} | {EXTRAS[name] for name in names if name in EXTRAS}
    extras |= {"text"} if "tokenize" in steps else set()
    extras |= {"onnx"} if model.tuned_on is not None and model.tuned_on.kind in ("onnx", "int8") else set()
    more = " torchvision" if "torchvision" in names else ""
    trust = names_to_trust(model, factory)
    options = "" if factory is not None else ", backbone=network"
    options += f", trust={json.dumps(trust)}" if trust else ""
    yield from ("```", f"pip install 'offramp[{','.join(sorted(extras))}]'{more}", "```", "", "```python")
    yield from ("import offramp", "", f'model = offramp.load("{address}"{options})')
    inputs, mark, comment = INPUTS[task].partition("  # ")
    yield f"print(model.predict({inputs}).to_dicts()){mark}{comment}"
    yield "```"
    yield ""
    if factory is None:
        yield (
            "The repository does not hold the network: `network` is the one that the exits were fitted for, as "
            "`model.backbone` was."
        )
    if trust:
        yield "The names in `trust` are code that you have to install. It runs when the model is loaded."
    yield (
        "`model.at(cost=0.5)` or `model.at(max_drop=0.01)` chooses another operating point. Loading runs no code of "
        "this repository."
    )


def _table(model: "EarlyExitModel") -> Iterator[str]:
    """Yield the table of operating points: at most ROWS of them, evenly spread, and the current one."""
    points, unit = model.frontier.points, model.unit
    rows = {round(step * (len(points) - 1) / (ROWS - 1)) for step in range(ROWS)} if points else set()
    chosen = next((place for place, point in enumerate(points) if _same(point, model.point)), None)
    rows |= set() if chosen is None else {chosen}
    extra = [escape_markdown(unit.heading)] if unit.heading else []
    columns = ["relative cost", *extra, "accuracy, %", "change, points", "classifiers", ""]
    yield f"| {' | '.join(columns)} |"
    yield f"|{'---:|' * (len(columns) - 1)}---|"
    for place in sorted(rows):
        cost, accuracy = points[place].tune_metrics["cost"], points[place].tune_metrics["accuracy"]
        cells = [
            f"{cost:.3f}",
            *(unit.figure(cost) for _ in extra),
            f"{100 * accuracy:.2f}",
            f"{100 * (accuracy - model.full_accuracy):+.2f}",
            str(len(points[place].active)),
            "this artifact's" if place == chosen else "",
        ]
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield (
        f"The full network has {100 * model.full_accuracy:.2f} %. All figures are from the tune split, on which the "
        f"points were chosen. A relative cost of 0.5 is half of the full network's {escape_markdown(unit.noun)}. Shown "
        f"are {len(rows)} of {len(points)} points of the policy {escape_markdown(model.policy)}."
    )


def _same(point: OperatingPoint, chosen: OperatingPoint) -> bool:
    return dict(point.tune_metrics) == dict(chosen.tune_metrics) and point.active == chosen.active


def _guarantee(point: OperatingPoint) -> Iterator[str]:
    """Yield what is guaranteed at the saved point."""
    if point.guarantee is None:
        yield (
            "None at the operating point of this artifact. `model.at(max_drop=0.01)` chooses a point that loses at "
            "most one point of accuracy, with 95 % confidence, or says why there is none."
        )
    else:
        yield f"At the operating point of this artifact: {escape_markdown(str(point.guarantee), longest=LONGEST_TEXT)}."
        yield ""
        yield f"This assumes: {escape_markdown(point.guarantee.assumes, longest=LONGEST_TEXT)}."
    if point.conformal_thresholds:
        shares = " or ".join(f"{100 * (1 - level):.4g} %" for level in sorted(point.conformal_thresholds))
        yield ""
        yield (
            f"Prediction sets (`answer.prediction_sets`) hold the true class of {shares} of the inputs, if these are "
            "drawn as the calibrate split was."
        )


def _limits(model: "EarlyExitModel") -> Iterator[str]:
    """Yield what the figures do not say."""
    yield "No figure here is from a test set. `model.evaluate(...)` measures on your own labelled samples."
    yield "Figures, guarantee and prediction sets are for inputs drawn as those of the splits were, not for others."
    if model.unit.full is None:
        yield "Costs are counted multiplications and additions, not times: `offramp inspect --measure` times the model."
    yield "The network was not changed: what holds for its training data, its errors and its licence holds here too."
    yield "Single-label classification only."
    if model.splits:
        yield (
            "The repository has hashed ids of some samples of the splits: anyone who has an input can check "
            "whether it was probably among them."
        )


def _classes(classes: Sequence[str]) -> Iterator[str]:
    """Yield the names of the classes."""
    if classes:
        more = f", and {len(classes) - CLASSES:,} more" if len(classes) > CLASSES else ""
        yield from (f"## {len(classes):,} classes", "")
        yield f"In the order of the outputs: {', '.join(map(escape_markdown, classes[:CLASSES]))}{more}."
        yield ""
    yield f"Written by offramp {version('offramp')}."
    yield ""


WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 62, 20, 20, 48
"""Margins of the axes."""

DEEPEST = 0.25
"""Accuracy below the best point's that the picture still shows: cheap points would press the rest together."""

INK, MUTED, LINE, BLUE = "#1b1f24", "#59636e", "#d5dae0", "#0072b2"
"""Colours, those of the report."""


def draw_frontier(model: "EarlyExitModel") -> str:
    """Draw accuracy against relative cost as SVG, without a library.

    Args:
        model: The model; its policy's points are drawn, and its current one is marked.
    """
    pairs = [(row["cost"], row["accuracy"]) for row in model.frontier.to_dicts()]
    now = (model.point.tune_metrics["cost"], model.point.tune_metrics["accuracy"])
    full = (1.0, model.full_accuracy)
    required = [accuracy for _, accuracy in (now, full)]  # shown however far below the best point they are
    top = max(accuracy for _, accuracy in [*pairs, now, full])
    bottom = max(min(accuracy for _, accuracy in [*pairs, now, full]), min(top - DEEPEST, *required))
    low, high = max(0.0, bottom - 0.05 * (top - bottom) - 0.002), min(1.0, top + 0.05 * (top - bottom) + 0.002)
    right = max(1.05, 1.05 * max(cost for cost, _ in [*pairs, now]))
    pairs = [pair for pair in pairs if pair[1] >= low]

    def place(cost: float, accuracy: float) -> tuple[float, float]:
        across, up = cost / right, (accuracy - low) / (high - low)
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    title = "Accuracy against relative cost on the tune split"
    parts = [f"<title>{title}</title>", f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>']
    for percent in _ticks(100 * low, 100 * high):
        y = place(0, percent / 100)[1]
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="{LINE}"/>')
        parts.append(_text(LEFT - 8, y + 4, f"{percent:g}", "end"))
    for cost in _ticks(0, right):
        parts.append(_text(place(cost, low)[0], HEIGHT - BOTTOM + 18, f"{cost:g}", "middle"))
    y = place(0, model.full_accuracy)[1]
    parts.append(
        f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="{MUTED}" stroke-dasharray="5 4"/>'
    )
    parts.append(_text(LEFT + 6, y - 6 if y > TOP + 14 else y + 14, "full network", "start"))
    places = [place(*pair) for pair in pairs]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts.append(f'<polyline points="{line}" fill="none" stroke="{BLUE}" stroke-width="2"/>')
    parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{BLUE}"/>' for x, y in places]
    x, y = place(*now)
    parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="8" fill="none" stroke="{INK}" stroke-width="2"/>')
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "relative cost (circle: this artifact)", "middle"))
    label = _text(0, 0, "accuracy, %", "middle")
    parts.append(f'<g transform="translate(16 {(TOP + HEIGHT - BOTTOM) / 2:.0f}) rotate(-90)">{label}</g>')
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{"".join(parts)}</svg>\n'


def _ticks(low: float, high: float) -> Iterator[float]:
    """Yield at most seven round numbers in a range.

    Example:
        >>> list(_ticks(0, 1.05)), list(_ticks(86.3, 90.4))
        ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [87.0, 88.0, 89.0, 90.0])
    """
    power = 10.0 ** math.floor(math.log10(high - low))
    step = next(power * part for part in (0.1, 0.2, 0.5, 1, 2) if (high - low) / (power * part) <= 6)
    first = math.ceil(low / step)
    for count in range(first, math.floor(high / step) + 1):
        yield round(count * step, 10)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    style = f'font-family="sans-serif" font-size="13" fill="{INK}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {style}>{escape(text)}</text>'
