"""An exported folder runs in an environment without torch and without offramp, as its README says."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_image

import offramp_onnx
from offramp.model._model import EarlyExitModel
from offramp.preprocessing import photo_preprocessing
from offramp.runtime.onnx import export_onnx
from tests.model import text_examples
from tests.model.examples import images
from tests.runtime.onnx.examples import example

PACKAGES = (
    "numpy",
    "onnxruntime",
    "tokenizers",
    "PIL",
    "numpy.libs",
    "pillow.libs",
    "flatbuffers",
    "google",
    "packaging",
)
SIZES = ((40, 40), (64, 33), (31, 57), (200, 300))
TEXTS = [*text_examples.RAW[:6], "", text_examples.RAW[-1], "word1 word2"]


@dataclass(frozen=True)
class Exported:
    model: EarlyExitModel
    folder: Path
    files: Sequence[str]
    raw: Any


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the packages that a README installs, and no others."""
    place = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    (packages,) = place.glob("lib/python*/site-packages")
    for name in PACKAGES:
        (packages / name).symlink_to(Path(np.__file__).parents[1] / name)
    return place / "bin" / "python"


@cache
def exported(kind: str, place: Path) -> Exported:
    folder = place / kind
    if kind == "texts":
        model = text_examples.fitted().at(cost=1.2)
        export_onnx(model, folder, example=TEXTS[:1])
        (folder / "texts.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
        return Exported(model, folder, ("texts.txt",), TEXTS)
    model = replace(example("ladder").frontier, classes=("red", "green", "blue")).at(cost=1.2)
    if kind == "arrays":
        model = replace(model, preprocessing=replace(model.preprocessing, steps=()))
        raw: Any = example("ladder").arrays[:9]
        export_onnx(model, folder, example=raw[:1])
        np.save(folder / "inputs.npy", raw)
        return Exported(model, folder, ("inputs.npy",), raw)
    settings = {"resized": 36, "mode": "bicubic", "mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25)}
    model = replace(model, preprocessing=photo_preprocessing(32, **settings))  # type: ignore[arg-type]
    photo = Image.fromarray(load_sample_image("china.jpg"))
    raw = [photo.resize((width, height)) for height, width in SIZES]
    raw[1] = raw[1].convert("L")
    export_onnx(model, folder, example=raw[:1], single=True)
    files = ["photo.jpg", *(f"{number}.png" for number in range(1, len(raw)))]
    for image, file in zip(raw, files, strict=True):
        image.save(folder / file)
    return Exported(model, folder, files, [Image.open(folder / file) for file in files])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("exported")


def run(python: Path, folder: Path, *arguments: str) -> str:
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(arguments, cwd=folder, env={"PATH": path}, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def agree(found: Sequence[dict[str, Any]], expected: Sequence[dict[str, Any]]) -> None:
    for row, other in zip(found, expected, strict=True):
        assert (row["label"], row["exit"]) == (other["label"], other["exit"])
        assert row["confidence"] == pytest.approx(other["confidence"], abs=1e-4)
        assert row["relative_cost"] == pytest.approx(other["relative_cost"], rel=1e-5)
        sets = {float(miscoverage): members for miscoverage, members in row["prediction_sets"].items()}
        assert sets == other["prediction_sets"] != {}


KINDS = ("images", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("texts", "arrays")))


def test_the_environment_has_neither_torch_nor_offramp(python: Path, tmp_path: Path) -> None:
    for name in ("torch", "offramp", "offramp_onnx", "onnx"):
        code = f"import importlib.util; print(importlib.util.find_spec({name!r}))"
        assert run(python, tmp_path, "python", "-c", code) == "None\n"


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_answers_as_the_model_does(kind: str, python: Path, place: Path) -> None:
    given = exported(kind, place)
    command = ("python", "offramp_onnx.py", ".", "--input", *given.files, "--json")
    rows = [json.loads(line) for line in run(python, given.folder, *command).splitlines()]
    agree(rows, given.model.predict(given.raw).to_dicts())
    named = kind == "images"
    assert [row["input"] for row in rows][:2] == (
        list(given.files[:2]) if named else [f"{given.files[0]}:{row + (kind == 'texts')}" for row in range(2)]
    )
    points = offramp_onnx.load(given.folder).points
    costs = [point["tune_metrics"]["cost"] for point in points]
    rows = [json.loads(line) for line in run(python, given.folder, *command, "--budget", "9").splitlines()]
    agree(rows, given.model.predict(given.raw, budget=9.0).to_dicts())
    cheapest = costs.index(min(costs))
    lines = run(python, given.folder, *command, "--point", str(cheapest)).splitlines()
    agree([json.loads(line) for line in lines], given.model.predict(given.raw, budget=min(costs)).to_dicts())


@pytest.mark.parametrize("kind", KINDS)
def test_the_commands_of_the_readme_run(kind: str, python: Path, place: Path) -> None:
    given = exported(kind, place)
    readme = (given.folder / "README.md").read_text(encoding="utf-8")
    install, *commands = re.findall(r"```sh\n(.*?)```", readme, flags=re.DOTALL)
    assert "pip install numpy 'onnxruntime>=" in install
    (command,) = commands
    first, *_ = run(python, given.folder, "sh", "-c", command).splitlines()
    (expected, *_) = given.model.predict(given.raw).to_dicts()
    name, label, confidence, exit, cost = first.split("\t")
    assert name.startswith(given.files[0])
    assert (label, int(exit)) == (str(expected["label"]), expected["exit"])
    assert float(confidence) == pytest.approx(expected["confidence"], abs=1e-4)
    assert float(cost) == pytest.approx(expected["relative_cost"], abs=1e-4)
    (code,) = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    raw = {"images": given.raw[:1], "texts": ["a text", "another text"], "arrays": given.raw}[kind]
    agree(ast.literal_eval(run(python, given.folder, "python", "-c", code)), given.model.predict(raw).to_dicts())
    default = offramp_onnx.load(given.folder).default_point
    metrics = given.model.point.tune_metrics
    assert f"| {default} (default) | {metrics['cost']:.4f} | {metrics['accuracy']:.4f} |" in readme
    assert ", ".join(given.model.classes) in readme


def test_errors_of_the_command(python: Path, place: Path) -> None:
    folder = exported("images", place).folder
    for arguments, message in (
        (("elsewhere", "--input", "photo.jpg"), "cannot read elsewhere/manifest.json"),
        ((".", "--input", "no.jpg"), "No such file or directory: 'no.jpg'"),
        ((".", "--input", "photo.jpg", "--budget", "0.0001"), "budget: expected"),
        ((".", "--input", "photo.jpg", "--budget", "1", "--point", "0"), "not allowed with argument"),
    ):
        environment = {"PATH": str(python.parent)}
        command = [python, "offramp_onnx.py", *arguments]
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode in (1, 2)
        assert message in ran.stderr
        assert "Traceback" not in ran.stderr


@pytest.mark.slow
def test_int8_is_exported_as_it_was_tuned(tmp_path: Path) -> None:
    given = example("ladder")
    tuned = given.frontier.with_backend("int8", images(400, seed=2), progress=False).at(max_drop=0.5, confidence=0.8)
    assert tuned.point.guarantee is not None
    export_onnx(tuned, tmp_path / "int8")
    runner, expected = offramp_onnx.load(tmp_path / "int8"), tuned.predict(given.raw)
    manifest = offramp_onnx.read_manifest(tmp_path / "int8")
    assert manifest["precision"] == "int8"
    assert manifest["points"][manifest["default_point"]]["guarantee"]["at_most"] == 0.5
    assert f"Guaranteed at the default point: {tuned.point.guarantee}." in (tmp_path / "int8/README.md").read_text()
    found = runner.predict(given.raw)
    np.testing.assert_array_equal(found.exits, expected.exits)
    np.testing.assert_allclose(found.probabilities, expected.probabilities, atol=1e-5)
