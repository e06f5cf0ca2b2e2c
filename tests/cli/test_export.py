"""Graphs from the command line: they answer as the network does."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import offramp_onnx
from offramp.runtime import Dial
from tests.cases import each
from tests.cli.workshop import MODELS, Shell, opened, samples

TRUST = ("--trust", f"{MODELS}:make")
DATA = ("--data", "full.npz")


def test_a_folder_with_all_points_and_a_single_graph(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    out = tmp_path / "graphs"
    found = offramp.json("export", "onnx", artifact, out, *DATA, *TRUST, "--single", "--cost", "0.6")
    frontier = opened(artifact)
    assert found["points"] == len(Dial(frontier.points[frontier.policy]))
    assert found["bytes"] == sum(path.stat().st_size for path in out.iterdir())
    network = frontier.at(cost=0.6)
    runner, raw = offramp_onnx.load(out), samples(30, seed=2)[0]
    prepared = frontier.backbone.prepare(frontier.preprocessing(raw)).numpy()
    expected = network.predict(raw)
    answer = runner.predict(prepared, point=found["single"])
    np.testing.assert_array_equal(answer.exits, expected.exits)
    np.testing.assert_allclose(answer.probabilities, expected.probabilities, atol=1e-5)
    np.testing.assert_allclose(answer.relative_cost, expected.relative_cost, rtol=1e-5)
    for budget in (Dial(frontier.points[frontier.policy]).cheapest, 0.6, 1.0):
        alike = frontier.at(cost=budget).predict(raw)
        np.testing.assert_array_equal(runner.predict(prepared, budget=budget).exits, alike.exits)
        np.testing.assert_array_equal(network.predict(raw, budget=budget).exits, alike.exits)
    session = onnxruntime.InferenceSession(out / "single.onnx")
    exits = [session.run(["exit"], {"input": prepared[row : row + 1]})[0][0] for row in range(30)]
    assert exits == expected.exits.tolist()


def test_eight_bits_promise_nothing(
    offramp: Shell, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("offramp.runtime.onnx.export_onnx", lambda *_, **__: (tmp_path / "graphs").mkdir())
    line = ("export", "onnx", artifact, tmp_path / "graphs", *DATA, *TRUST, "--int8")
    assert "nothing is guaranteed" not in offramp(*line, "--single", "--cost", "0.6").told
    (tmp_path / "graphs").rmdir()
    monkeypatch.setattr("offramp.cli.export.choose_point", lambda model, *_: model.at(max_drop=0.4))
    assert "Careful: nothing is guaranteed" in offramp(*line, "--single").told


@pytest.mark.long
def test_in_eight_bits(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    offramp.json("export", "onnx", artifact, tmp_path / "graphs", *DATA, *TRUST, "--int8")
    assert json.loads((tmp_path / "graphs" / "manifest.json").read_text())["precision"] == "int8"
    assert offramp_onnx.load(tmp_path / "graphs").points


def test_texts_in_eight_bits_are_refused(offramp: Shell, of_texts: Path, tmp_path: Path) -> None:
    line = ("--data", "texts-test.tsv", "--trust", f"{MODELS}:texts", "--int8")
    ran = offramp("export", "onnx", of_texts, tmp_path / "graphs", *line)
    assert ran.status == 1
    assert "export it in float32, without int8 (--int8)" in ran.told
    assert not (tmp_path / "graphs").exists()


@each(
    ("format", "more", "message"),
    [
        ("tflite", (), "format: expected onnx, got 'tflite'"),
        ("onnx", ("--cost", "0.6"), "expected --single with --cost, got only --cost"),
        ("onnx", ("--cost", "0"), "expected --single with --cost, got only --cost"),
        ("onnx", ("--loss", "brier"), "expected --single with --loss, got only --loss"),
        ("onnx", ("--single", "--int8", "--max-drop", "0.4"), "expected --max-drop without --int8, got both"),
    ],
)
def test_what_is_refused(
    offramp: Shell, artifact: Path, tmp_path: Path, format: str, more: tuple[str, ...], message: str
) -> None:
    ran = offramp("export", format, artifact, tmp_path / "graphs", *DATA, *TRUST, *more)
    assert ran.status == 1
    assert message in ran.told
    assert not (tmp_path / "graphs").exists()
