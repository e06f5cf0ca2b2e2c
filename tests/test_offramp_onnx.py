"""The runner without torch agrees with the engine, and names the fault of a damaged folder."""

import json
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image

import offramp_onnx
from offramp.model._model import EarlyExitModel
from offramp.preprocessing import Preprocessing, photo_preprocessing, text_preprocessing
from offramp.runtime import Dial
from offramp.runtime.onnx._export import _write_preprocessing
from tests.cases import each
from tests.model import text_examples
from tests.runtime.onnx.examples import COUNT, KINDS, Example, engine, example, mixed


def network(given: Example, row: int) -> EarlyExitModel:
    return replace(given.frontier, chosen=given.points[row], points={})


@pytest.mark.parametrize("kind", KINDS)
def test_every_point_answers_as_the_network_does(kind: str) -> None:
    given = example(kind)
    runner = offramp_onnx.load(given.folder)
    left = set()
    for row in range(len(given.points)):
        expected, found = network(given, row).predict(given.raw), runner.predict(given.arrays, point=row)
        np.testing.assert_array_equal(found.exits, expected.exits)
        np.testing.assert_array_equal(found.labels, expected.labels)
        np.testing.assert_allclose(found.probabilities, expected.probabilities, atol=1e-5)
        np.testing.assert_allclose(found.relative_cost, expected.relative_cost, rtol=1e-5)
        assert set(found.prediction_sets) == set(expected.prediction_sets) != set()
        for miscoverage, sets in expected.prediction_sets.items():
            np.testing.assert_array_equal(found.prediction_sets[miscoverage], sets)
        left |= set(found.exits.tolist())
    assert len(left) > 1


@pytest.mark.parametrize("kind", KINDS)
def test_every_sample_may_have_a_point_of_its_own(kind: str) -> None:
    given = example(kind)
    probabilities, exits = engine(given).run(given.inputs, point=mixed())
    found = offramp_onnx.load(given.folder).predict(given.arrays, point=mixed().numpy())
    np.testing.assert_array_equal(found.exits, exits)
    np.testing.assert_allclose(found.probabilities, probabilities, atol=1e-5)


def test_prediction_sets_by_class() -> None:
    given = example("ladder")
    runner, own = offramp_onnx.load(given.folder), network(given, 0)
    shape = (len(own.point.temperatures), len(runner.predict(given.arrays, point=0).probabilities[0]))
    thresholds = torch.linspace(0.05, 0.95, shape[0] * shape[1]).view(shape)
    runner.points = [{**runner.points[0], "conformal_thresholds": {"0.1": thresholds.tolist()}}]
    expected = replace(own, chosen=replace(own.point, conformal_thresholds={0.1: thresholds})).predict(given.raw)
    found = runner.predict(given.arrays, point=0).prediction_sets[0.1]
    np.testing.assert_array_equal(found, expected.prediction_sets[0.1])
    assert 0 < found.mean() < 1


@each("size", [1, 7])
def test_batches_of_any_size(size: int) -> None:
    given = example("ladder")
    runner = offramp_onnx.load(given.folder)
    whole = runner.predict(given.arrays, point=1)
    parts = [runner.predict(given.arrays[start : start + size], point=1) for start in range(0, COUNT, size)]
    np.testing.assert_array_equal(np.concatenate([part.exits for part in parts]), whole.exits)
    np.testing.assert_allclose(np.concatenate([part.probabilities for part in parts]), whole.probabilities, atol=1e-5)


def test_a_budget_picks_as_the_dial_does() -> None:
    given = example("ladder")
    runner, draw = offramp_onnx.load(given.folder), np.random.default_rng(0)
    costs = [point.tune_metrics["cost"] for point in given.points]
    dear = int(Dial(given.points).pick_rows(torch.tensor([9.0]))[0])
    np.testing.assert_array_equal(
        runner.predict(given.arrays, budget=9.0).exits, runner.predict(given.arrays, point=dear).exits
    )
    for _ in range(50):  # other figures, many of them equal
        figures = [{"cost": float(c), "accuracy": float(a)} for c, a in draw.integers(1, 5, (len(costs), 2)) / 5]
        runner.points = [{**one, "tune_metrics": figure} for one, figure in zip(runner.points, figures, strict=True)]
        points = [replace(one, tune_metrics=figure) for one, figure in zip(given.points, figures, strict=True)]
        for budget in draw.uniform(Dial(points).cheapest, 1.1, 20):
            row = int(Dial(points).pick_rows(torch.tensor([budget]))[0])
            assert runner._pick_rows(None, float(budget), 3).tolist() == [row] * 3
    runner = offramp_onnx.load(given.folder)
    with pytest.raises(ValueError, match=f"expected {min(costs):.4f} or more"):
        runner.predict(given.arrays, budget=0.001)


def prepare(preprocessing: Preprocessing, inputs: Any, folder: Path) -> Any:
    """Apply a preprocessing without torch, as a network that was exported with it does."""
    manifest = json.loads((example("ladder").folder / "manifest.json").read_text())
    entries = {"preprocessing": _write_preprocessing(folder, preprocessing), "files": {}}
    return offramp_onnx.OnnxNetwork(folder, {**manifest, **entries}, threads=1)._preprocess(inputs)


PHOTO = load_sample_image("china.jpg")
NORM: dict[str, Any] = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
ROUNDING = 1e-3 / 255 / 0.224
"""A thousandth of a gray level, after normalising."""


@each("mode", ["bilinear", "bicubic"])
@each("squash", [False, True])
def test_images_are_prepared_as_by_torch(mode: str, squash: bool, tmp_path: Path) -> None:
    for height, width, resized, side in ((427, 640, 256, 224), (101, 75, 232, 224), (33, 57, 9, 8), (31, 31, 31, 31)):
        steps = photo_preprocessing(side, resized=resized, mode=mode, squash=squash, **NORM)
        for inputs in (PHOTO[None, :height, :width], PHOTO[None, -height:, -width:].astype(np.float32)):
            found = prepare(steps, inputs, tmp_path)
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, steps(inputs), atol=ROUNDING, rtol=0)


def test_images_of_several_sizes_and_kinds(tmp_path: Path) -> None:
    steps = photo_preprocessing(32, resized=40, mode="bicubic", **NORM)
    cuts = [Image.fromarray(PHOTO[:height, :width]) for height, width in ((50, 41), (300, 201), (33, 90))]
    kinds = [image.convert(mode) for image, mode in zip(cuts, ("L", "RGBA", "P"), strict=True)]
    for inputs in (cuts, kinds, [cuts[0], np.asarray(cuts[1])], [cuts[0], cuts[0]]):
        np.testing.assert_allclose(prepare(steps, inputs, tmp_path), steps(inputs), atol=ROUNDING, rtol=0)
    gray = Preprocessing().then("channels_first").then("normalize", scale=1 / 255, mean=[0.5], std=[0.25])
    for photos in (PHOTO[None, :, :, :1], PHOTO[None]):  # colours become gray
        np.testing.assert_array_equal(prepare(gray, photos, tmp_path), gray(photos))
    plain = Preprocessing().then("channels_first")
    with pytest.raises(ValueError, match="expected images of one size, got several"):
        prepare(plain, cuts, tmp_path)


@each(
    ("inputs", "message"),
    [
        (PHOTO, "expected images N x H x W x C"),
        (PHOTO[None, :20], "at least 224 x 224 pixels to crop"),
        (PHOTO[None, ..., :1], "images of 3 channels, got 1"),
        (PHOTO[None] / 255, "expected images of bytes"),
        ("a text", "expected a list of texts, got one text"),
    ],
)
def test_images_that_are_refused(inputs: Any, message: str, tmp_path: Path) -> None:
    steps = photo_preprocessing(224, resized=224, mode="bilinear", **NORM)
    without = Preprocessing(tuple(step for step in steps.steps if step[0] != "resize"))
    with pytest.raises(ValueError, match=message):
        prepare(without, inputs, tmp_path)


def test_texts_are_tokenized_alike(tmp_path: Path) -> None:
    steps = text_preprocessing(text_examples.tokenizer(), longest=12)
    texts = text_examples.RAW
    assert "" in texts
    for inputs in (texts, tuple(texts), np.array(texts, dtype=object), [""], [], {"input_ids": np.ones((1, 2))}):
        expected, found = steps(inputs), prepare(steps, inputs, tmp_path)
        assert set(found) == set(expected)
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values)
            assert found[name].dtype == np.asarray(values).dtype
    assert prepare(steps, texts, tmp_path)["input_ids"].shape == (len(texts), 12)
    with pytest.raises(ValueError, match="expected a list of texts"):
        prepare(steps, [1, 2], tmp_path)


def test_every_step_is_known_but_random_ones() -> None:
    """In a process of its own: other tests add steps."""
    code = (
        "from offramp.preprocessing import STEPS; import offramp_onnx; print(*(set(STEPS) - set(offramp_onnx.STEPS)))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["shift_and_flip"]


@each(
    ("arguments", "message"),
    [
        ({"point": 0, "budget": 0.5}, "expected point or budget, got both"),
        ({"point": 6}, "0 to 5, got 6"),
        ({"point": [0, 1]}, f"or {COUNT}"),
        ({"point": 0.5}, "expected one index"),
    ],
)
def test_what_points_are_asked_for(arguments: dict[str, Any], message: str) -> None:
    given = example("ladder")
    with pytest.raises(ValueError, match=message):
        offramp_onnx.load(given.folder).predict(given.arrays, **arguments)


def test_inputs_that_do_not_fit() -> None:
    runner = offramp_onnx.load(example("ladder").folder)
    with pytest.raises(ValueError, match="expected shape N x 3 x 32 x 32, got"):
        runner.predict(np.zeros((2, 32, 32, 3)), point=0)
    with pytest.raises(ValueError, match="expected finite real numbers, got uint8"):
        runner.predict(np.zeros((2, 3, 32, 32), np.uint8), point=0)
    with pytest.raises(ValueError, match="got NaN or infinite numbers"):
        runner.predict(np.full((2, 3, 32, 32), np.nan), point=0)
    with pytest.raises(ValueError, match="budget: expected one share"):
        runner.predict(np.zeros((2, 3, 32, 32)), budget=np.array([0.5, 0.6]))  # type: ignore[arg-type]


@pytest.mark.slow
def test_inputs_that_are_missing() -> None:
    text = example("text")
    runner, names = offramp_onnx.load(text.folder), ("input_ids", "attention_mask")
    with pytest.raises(
        ValueError, match=r"inputs: expected \['attention_mask', .*\], got \['input_ids', 'token_type_ids'\]"
    ):
        runner.predict({"input_ids": text.arrays["input_ids"]}, point=0)
    found = runner.predict({name: text.arrays[name] for name in names}, point=0)
    assert np.array_equal(found.labels, runner.predict(text.arrays, point=0).labels)


def _not_json(folder: Path) -> None:
    (folder / "manifest.json").write_text("{")


def _changed(folder: Path) -> None:
    path = folder / "stage_01.onnx"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def _other(**entries: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "manifest.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))

    return change


def _entry(*place: Any, **entries: Any) -> Callable[[Path], None]:
    """Other entries somewhere inside."""

    def change(folder: Path) -> None:
        path = folder / "manifest.json"
        manifest = inner = json.loads(path.read_text())
        for key in place:
            inner = inner.setdefault(key, {}) if isinstance(inner, dict) else inner[key]
        inner.update(entries)
        path.write_text(json.dumps(manifest))

    return change


def _without(part: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "manifest.json"
        manifest = json.loads(path.read_text())
        del manifest[part]
        path.write_text(json.dumps(manifest))

    return change


@each(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "manifest.json").unlink(), "cannot read"),
        (_not_json, "is not JSON"),
        (_changed, "stage_01.onnx in .* is not the file that was exported"),
        (lambda folder: (folder / "exit_00.onnx").unlink(), "lacks exit_00.onnx"),
        (_other(version=2), "expected version 1, got 2"),
        (_other(format="other"), "is no manifest of exported graphs"),
        (_other(files=[]), r"expected files \(dict\)"),
        (_other(stages={}, points=None), r"expected stages \(list\), points \(list\)"),
        *((_without(part), rf"expected {part} \(") for part in offramp_onnx.PARTS),
        (lambda folder: (folder / "manifest.json").write_text("[" * 100_000), "is not JSON"),
        (_entry("files", **{"../elsewhere.onnx": ""}), "names a file outside its folder"),
        (_entry("files", **{"/etc/passwd": ""}), "names a file outside its folder"),
        (_entry("files", **{"..": ""}), "names a file outside its folder"),
        (_entry("files", **{"\0.onnx": ""}), "lacks \0.onnx"),
        (_entry("stages", 0, file="../other/stage_00.onnx"), "names for stage 0 a file without a hash, '../other"),
        (_entry("stages", 0, file="other.onnx"), "names for stage 0 a file without a hash, 'other.onnx'"),
        (_entry("stages", 0, file=["stage_00.onnx"]), "names for stage 0 a file without a hash"),
        (_entry("exits", "2", file="/other.onnx"), "names for the exit after stage 2 a file without a hash"),
        (_entry("exits", "2", file=None), "names for the exit after stage 2 a file without a hash, None"),
        (_entry("policies", "threshold", file="other.onnx"), "names for policy 'threshold' a file without a hash"),
        (_entry("sizes", file="other.onnx", reads=[], writes=[]), "names for sizes a file without a hash"),
        (_entry("single", file="other.onnx"), "names for single a file without a hash"),
        (_entry("exits", **{"0": {"file": "exit_00.onnx"}}), "expected file, reads, writes for the exit after stage 0"),
        (_other(stages=["stage_00.onnx"]), "expected file, reads, writes for stage 0"),
        (_other(points=[]), "expected operating points, got none"),
        (_other(default_point=6), "expected a default_point of 0 to 5"),
        (_other(preprocessing=[["blur", {}]]), "has a preprocessing step 'blur', which this runner does not know"),
        (_other(preprocessing=["blur"]), "has a preprocessing step 'blur'"),
        (_other(preprocessing=[[["blur"], {}]]), r"has a preprocessing step \['blur'\]"),
        (_other(preprocessing=[["center_crop", {"side": 3}]]), "preprocessing step 'center_crop': missing a required"),
        (_other(preprocessing=[["center_crop", 3]]), "preprocessing step 'center_crop'"),
        (
            _other(preprocessing=[["tokenize", {"tokenizer": {"file": "/etc/passwd"}, "longest": 8, "pad": 0}]]),
            "names for step 'tokenize' a file without a hash",
        ),
    ],
)
def test_errors_name_the_fault_of_a_folder(spoil: Callable[[Path], Any], message: str, tmp_path: Path) -> None:
    folder = shutil.copytree(example("ladder").folder, tmp_path / "copy")
    spoil(folder)
    with pytest.raises(offramp_onnx.FolderError, match=message):
        offramp_onnx.load(folder)


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(offramp_onnx.FolderError, match="cannot read"):
        offramp_onnx.load(tmp_path / "file")


def test_graphs_share_memory() -> None:
    """Five graphs that need 128 MB each for a moment take little more than one of them."""
    program = textwrap.dedent("""
        import numpy as np
        import onnx
        from onnx import TensorProto, helper
        from offramp_onnx import open_session

        def value(name):
            return helper.make_tensor_value_info(name, TensorProto.FLOAT, [None])

        def in_use_mb():
            with open("/proc/self/status") as file:
                return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) / 1e3

        nodes = [
            helper.make_node("Expand", ["x", "shape"], ["wide"]),
            helper.make_node("ReduceSum", ["wide"], ["y"], keepdims=1),
        ]
        shape = helper.make_tensor("shape", TensorProto.INT64, [1], [32_000_000])
        graph = helper.make_graph(nodes, "wide", [value("x")], [value("y")], [shape])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        before = in_use_mb()
        sessions = [open_session(model.SerializeToString()) for _ in range(5)]
        for session in sessions:
            session.run(None, {"x": np.ones(1, np.float32)})
        print(in_use_mb() - before)
    """)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert float(ran.stdout) < 300
