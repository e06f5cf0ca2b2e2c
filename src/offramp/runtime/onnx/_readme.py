"""The README.md of an exported folder: the commands that run it, its inputs, answers and operating points."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import onnxruntime

from offramp.policy import Guarantee

__all__ = ["make_readme"]

MOST_POINTS = 8
"""Rows in the table of operating points, besides the last and the default."""

MOST_CLASSES = 20
"""Class names that are listed."""

TEMPLATE = """\
# {name}

A classifier with early exits: easy inputs leave after few of its {stages} stages. This folder has everything it needs:
ONNX graphs, `manifest.json`{attachments}, and `offramp_onnx.py`, which runs them. It needs Python 3.11 or later, but
neither torch nor offramp. Run all commands in this folder.

## Run
Install:
```sh
python -m venv .venv && . .venv/bin/activate && pip install {packages}
```
Run on files ({files}):
```sh
python offramp_onnx.py . --input {file}
```
In Python:
```python
{imports}import offramp_onnx

network = offramp_onnx.load(".")
answer = network.predict({argument})
print(answer.to_dicts())
```
`--budget 0.6` (`predict(..., budget=0.6)`) spends at most 60 % of the full network's cost on average. `--point 0`
(`point=0`) takes an operating point of the table below. `--json` prints JSON lines.

## Inputs
{inputs}

## Answers
One line per input: its file and row, label, confidence, exit and relative cost; with `--json` also the prediction sets.

* Label: {classes}.
* Confidence: the calibrated probability of the label.
* Exit: the stage after which the input left, 0 to {last}.
* Relative cost: the cost of the answer as a share of the full network's cost.
* Prediction set: {sets}.

## Operating points
{points}

Cost and accuracy are means over the tune split, the samples that the points were chosen on. {guarantee}
"""


class _Kind(NamedTuple):
    """A kind of inputs."""

    packages: str
    """Packages to install, beside numpy and onnxruntime."""
    files: str
    """The content of input files."""
    file: str
    """An input file."""
    imports: str
    """Import lines of the Python example."""
    argument: str
    """Inputs in the Python example."""


KINDS = {
    "texts": _Kind(" tokenizers", "one text per line, UTF-8", "texts.txt", "", '["a text", "another text"]'),
    "images": _Kind(" pillow", "one image each", "photo.jpg", "from PIL import Image\n\n", '[Image.open("photo.jpg")]'),
    "array": _Kind("", "one array each", "inputs.npy", "import numpy as np\n\n", 'np.load("inputs.npy")'),
    "arrays": _Kind("", "arrays by name", "inputs.npz", "import numpy as np\n\n", 'dict(np.load("inputs.npz"))'),
}


def make_readme(manifest: Mapping[str, Any], guarantee: Guarantee | None) -> str:
    """Return the README.md of a folder.

    Args:
        manifest: The manifest of the folder.
        guarantee: The guarantee of the default point, if it has one.
    """
    steps = dict(manifest["preprocessing"])
    arrays = "array" if len(manifest["inputs"]) == 1 else "arrays"
    kind = KINDS["texts" if "tokenize" in steps else "images" if "channels_first" in steps else arrays]
    runtime = ".".join(onnxruntime.__version__.split(".")[:2])
    classes = manifest["classes"]
    names = ", ".join(classes[:MOST_CLASSES]) + (", ..." if len(classes) > MOST_CLASSES else "")
    levels = sorted(manifest["points"][manifest["default_point"]]["conformal_thresholds"], key=float)
    sets = "not calibrated"
    if levels:
        sets = f"holds the true class, except with probability {' or '.join(levels)}, for inputs as in calibration"
    return TEMPLATE.format(
        name=manifest["name"],
        stages=len(manifest["stages"]),
        attachments=", `tokenizer.json`" if "tokenize" in steps else "",
        packages=f"numpy 'onnxruntime>={runtime}'{kind.packages}",
        files=kind.files,
        file=kind.file,
        imports=kind.imports,
        argument=kind.argument,
        inputs=_describe_inputs(manifest, steps),
        classes=f"one of {len(classes)}: {names}" if classes else f"a number, 0 to {manifest['num_classes'] - 1}",
        last=len(manifest["stages"]) - 1,
        sets=sets,
        points=_tabulate_points(manifest),
        guarantee=f"Guaranteed at the default point: {guarantee}." if guarantee else "Nothing is guaranteed.",
    )


def _describe_inputs(manifest: Mapping[str, Any], steps: Mapping[str, Any]) -> str:
    """Return a paragraph about the inputs."""
    arrays = "; ".join(
        f"`{leaf['name']}`, {leaf['dtype']}, "
        + " x ".join("N" if axis == leaf["batch"] else str(size or "T") for axis, size in enumerate(leaf["shape"]))
        for leaf in manifest["inputs"]
    )
    text = f"Arrays, prepared as the network takes them: {arrays}."
    if steps:
        text = f"Preprocessing: {', '.join(steps)}. Arrays that went through it, with `prepared=True`: {arrays}."
    if "tokenize" in steps:
        text = f"A list of texts. They are cut after {steps['tokenize']['longest']} tokens. {text}"
    elif "channels_first" in steps:
        size = "any size" if "resize" in steps else "one size"
        text = f"Images of {size}: files; in Python, a list of Pillow images, or bytes N x H x W x C. {text}"
    if manifest["precision"] == "int8":
        text += " Stages compute in int8, with weights of seven bits, which run alike on all processors."
    return text


def _tabulate_points(manifest: Mapping[str, Any]) -> str:
    """Return a Markdown table of a few operating points, the default among them."""
    points, default = manifest["points"], manifest["default_point"]
    step = -(-len(points) // MOST_POINTS)
    lines = ["| point | relative cost | accuracy |", "|---|---|---|"]
    for row in sorted({*range(0, len(points), step), len(points) - 1, default}):
        metrics = points[row]["tune_metrics"]
        cells = [f"{metrics[name]:.4f}" if name in metrics else "" for name in ("cost", "accuracy")]
        lines.append(f"| {row}{' (default)' if row == default else ''} | {' | '.join(cells)} |")
    return "\n".join(lines)
