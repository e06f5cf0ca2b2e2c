"""Calibrating an artifact on new samples, from the command line."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

from offramp.features import ArraySource
from tests.cases import each
from tests.cli.workshop import MODELS, Shell, opened, samples

TRUST = ("--trust", f"{MODELS}:make")


@each("labelled", [False, True])
def test_as_the_library_does(offramp: Shell, artifact: Path, tmp_path: Path, labelled: bool) -> None:
    data, how = ("test.npz", ("--labelled",)) if labelled else ("full.npz", ())
    ran = offramp("recalibrate", artifact, "--data", data, "--out", tmp_path / "new", *how, *TRUST)
    assert ran.status == 0
    assert f"is calibrated on 90 samples of {data}, saved in {tmp_path / 'new'}" in ran.told
    assert ("Prediction sets are recalibrated." in ran.told) == labelled
    assert ("--max-drop 0.02 --loss disagreement" in ran.told) == (not labelled)
    before, found = opened(artifact), opened(tmp_path / "new")
    assert found.embedded == before.embedded is True  # the weights are in the new artifact too
    source = ArraySource(*samples(90, seed=2), name="test")
    expected = before.recalibrate(source, labelled=labelled, progress=False)
    assert found.provenance["recalibrated"]["labelled"] is labelled
    for policy, points in expected.points.items():
        for one, other in zip(points, found.points[policy], strict=True):
            assert one.tune_metrics == other.tune_metrics
            for name, known in one.losses.items():
                assert torch.equal(known.samples.sort().values, other.losses[name].samples.sort().values)
            for level, limits in one.conformal_thresholds.items():
                assert torch.equal(limits, other.conformal_thresholds[level])


def test_what_it_makes_is_used_by_others(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    found = offramp.json("recalibrate", artifact, "--data", "full.npz", "--out", new, *TRUST)
    assert found == {"artifact": str(new), "samples": 90, "labelled": False, "backend": "eager"}
    wish = ("--max-drop", "0.4", "--confidence", "0.8")
    line = ("predict", new, "--data", "test.npz", "--out", tmp_path / "answers.csv", *TRUST, *wish)
    ran = offramp(*line, "--loss", "disagreement")
    assert ran.status == 0
    assert "on 90 calibrate samples" in ran.told
    ran = offramp(*line)
    assert ran.status == 1
    assert ran.told.endswith("On the command line: --loss")


@each(
    ("line", "told"),
    [
        (("--data", "full.npz", "--labelled"), "full.npz has no labels; name their column with --label"),
        (("--data", "full.npz", "--classes", "names.txt"), "expected --labelled with --classes, got only --classes"),
        (("--data", "val.npz"), "rows of 'recalibrate' are in 'tune' too"),
        (("--data", "small.npz"), "does not take them as they are"),
        (("--data", "val.npz", "--backend", "int"), "unknown backend 'int'; did you mean 'int8'?"),
        (("--data", "full.npz", "--backend", "bfloat16"), "full.npz has no labels; name their column with --label"),
    ],
)
def test_what_is_refused(offramp: Shell, artifact: Path, tmp_path: Path, line: tuple[str, ...], told: str) -> None:
    np.savez(tmp_path / "small.npz", x=samples(9, seed=0)[0][:, :5])
    places = [str(tmp_path / word) if word == "small.npz" else word for word in line]
    ran = offramp("recalibrate", artifact, *places, "--out", tmp_path / "new", *TRUST)
    assert (ran.status, ran.out) == (1, "")
    assert told in ran.told
    assert not (tmp_path / "new").exists()


@each("backend", ["bfloat16", "int8"])
@pytest.mark.filterwarnings("ignore:.* is slower than float32:offramp.errors.OfframpWarning")
def test_points_are_tuned_on_a_backend(offramp: Shell, artifact: Path, tmp_path: Path, backend: str) -> None:
    new, answers, wish = tmp_path / "new", tmp_path / "answers.csv", ("--data", "test.npz", "--cost", "0.9")
    line = ("recalibrate", artifact, "--backend", backend, "--data", "val.npz", "--out", new, *TRUST)
    assert offramp.json(*line) == {"artifact": str(new), "samples": 60, "labelled": True, "backend": backend}
    model = opened(new)
    assert model.tuned_on is not None
    assert model.tuned_on.kind == backend
    offramp.json("predict", new, *wish, "--shadow", "0.5", "--out", answers, *TRUST)
    with open(answers) as file:
        rows = list(csv.DictReader(file))
    expected = model.at(cost=0.9).predict(samples(90, seed=2)[0])
    assert [int(row["exit"]) for row in rows] == expected.exits.tolist()
    measured = offramp.json("evaluate", new, *wish, *TRUST)
    assert measured["chosen"]["relative_cost"] == pytest.approx(float(expected.relative_cost.mean()), abs=0.01)
    assert offramp("monitor", answers, "--reference", answers).status == 5  # too few samples
    ran = offramp("predict", new, *wish, "--backend", "eager", "--out", tmp_path / "eager.csv", *TRUST)
    assert ran.status == 1
    assert f"got one tuned on the backend '{backend}'; leave the backend out" in ran.told
    ran = offramp("predict", new, *wish, "--device", "cpu", "--out", tmp_path / "cpu.csv", *TRUST)
    assert ran.status == 1
    assert "leave --device out" in ran.told
    again = ("recalibrate", new, "--data", "full.npz", "--out", tmp_path / "again", *TRUST)
    assert offramp.json(*again)["backend"] == backend
    assert offramp(*again[:-4], "--out", tmp_path / "eager", "--backend", "eager", "--label", "y", *TRUST).status == 1
    assert f"tuned on the backend '{backend}'" in offramp("inspect", new, *TRUST).out


def test_the_artifact_itself_is_not_written_over(offramp: Shell, artifact: Path) -> None:
    ran = offramp("recalibrate", artifact, "--data", "full.npz", "--out", artifact, *TRUST)
    assert ran.status == 1
    assert "--out: expected another folder than the artifact's" in ran.told
