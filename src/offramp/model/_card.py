"""The page of a model in a repository: README.md and a picture of its frontier."""

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from offramp.artifact._network import factory_for
from offramp.backbone import Factory
from offramp.model._frontier_picture import draw_frontier
from offramp.model._networks import names_to_trust
from offramp.policy import OperatingPoint

if TYPE_CHECKING:
    from offramp.model._model import EarlyExitModel

__all__ = ["escape_markdown", "write_card"]

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
