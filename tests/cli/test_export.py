"""Graphs from the command line: they answer as the network does."""

import sys
from pathlib import Path

import numpy as np
import onnxruntime

import offramp_onnx
from offramp.model._loading import load
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
    assert runner.default_point == found["default_point"]
    answer = runner.predict(raw)
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


def test_texts_need_no_single_graph_and_no_option(offramp: Shell, of_texts: Path, tmp_path: Path) -> None:
    line = ("--data", "texts-test.tsv", "--trust", f"{MODELS}:texts")
    ran = offramp("export", "onnx", of_texts, tmp_path / "graphs", *line)
    assert ran.status == 0, ran.told
    assert f"python {tmp_path}/graphs/offramp_onnx.py {tmp_path}/graphs --input FILE" in ran.told
    files = {path.name for path in (tmp_path / "graphs").iterdir()}
    assert files > {"README.md", "manifest.json", "offramp_onnx.py", "tokenizer.json"}
    assert "single.onnx" not in files
    sys.path.insert(0, str(Path.cwd()))
    texts = ["very good day", "", "bad day"]
    expected = load(of_texts, trust=[f"{MODELS}:texts"]).at().predict(texts)
    answer = offramp_onnx.load(tmp_path / "graphs").predict(texts)
    assert answer.names == expected.names
    np.testing.assert_allclose(answer.probabilities, expected.probabilities, atol=1e-5)


@each(
    ("format", "more", "message"),
    [
        ("tflite", (), "format: expected onnx, got 'tflite'"),
        ("onnx", ("--loss", "brier"), "expected --max-drop with --loss, got only --loss"),
    ],
)
def test_refused_options(
    offramp: Shell, artifact: Path, tmp_path: Path, format: str, more: tuple[str, ...], message: str
) -> None:
    ran = offramp("export", format, artifact, tmp_path / "graphs", *DATA, *TRUST, *more)
    assert ran.status == 1
    assert message in ran.told
    assert not (tmp_path / "graphs").exists()


def test_inputs_to_check_graphs_with_are_needed(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    ran = offramp("export", "onnx", artifact, tmp_path / "graphs", *TRUST, "--cost", "0.6")
    assert ran.status == 1
    assert "expected --data PATH, got none" in ran.told
    assert not (tmp_path / "graphs").exists()
