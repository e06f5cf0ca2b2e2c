"""Answers to new inputs: the file, what it agrees with, and what is refused."""

import csv
import json
import re
import shutil
from hashlib import sha256
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from offramp.model._loading import load
from offramp.model._model import EarlyExitModel
from tests.cases import each
from tests.cli.workshop import MODELS, NAMES, Shell, opened, samples, stopped_after

TRUST = ("--trust", f"{MODELS}:make")


def rows_of(file: Path) -> list[dict[str, Any]]:
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in file.read_text().splitlines()]
    with open(file, newline="") as opened_file:
        return [
            {
                "input": row["input"],
                "label": int(row["label"]),
                "confidence": float(row["confidence"]),
                "exit": int(row["exit"]),
                "cost": float(row["cost"]),
                "set": json.loads(row["set"]),
            }
            for row in csv.DictReader(opened_file)
        ]


@each("suffix", [".csv", ".jsonl"])
@each("miscoverage", [0.05, 0.1])
def test_the_file_has_what_the_network_answers(
    offramp: Shell, artifact: Path, tmp_path: Path, suffix: str, miscoverage: float
) -> None:
    out = tmp_path / "new" / f"answers{suffix}"
    line = ("--data", "full.npz", "--out", out, "--cost", "0.6", "--miscoverage", miscoverage, *TRUST)
    found = offramp.json("predict", artifact, *line)
    network = opened(artifact).at(cost=0.6)
    inputs = samples(90, seed=2)[0]
    answers = [network.predict(inputs[start : start + 64]) for start in (0, 64)]
    rows = rows_of(out)
    assert [row["input"] for row in rows] == [str(row) for row in range(90)]
    assert [row["label"] for row in rows] == torch.cat([one.labels for one in answers]).tolist()
    assert [row["exit"] for row in rows] == torch.cat([one.exits for one in answers]).tolist()
    costs = torch.cat([one.relative_cost for one in answers])
    assert [row["cost"] for row in rows] == pytest.approx(costs.tolist(), abs=1e-6)
    probabilities = torch.cat([one.probabilities for one in answers])
    assert [row["confidence"] for row in rows] == pytest.approx(probabilities.amax(1).tolist(), abs=1e-6)
    sets = torch.cat([one.prediction_sets[miscoverage] for one in answers])
    assert [row["set"] for row in rows] == [one.nonzero().flatten().tolist() for one in sets]
    if suffix == ".jsonl":
        assert np.allclose([row["probabilities"] for row in rows], probabilities, atol=1e-6)
    mean = pytest.approx(float(costs.mean()), abs=1e-6)
    decided = {"policy": "threshold", "budget": None, "guarantee": None}
    assert found == {
        "out": str(out),
        "rows": 90,
        "cost": mean,
        "unit": {"name": "Mul-Adds", "full": None},
        "mean_cost": None,
        **decided,
    }
    assert {place.name for place in out.parent.iterdir()} == {out.name, f".{out.name}.lock"}


def test_as_a_sentence(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    ran = offramp("predict", artifact, "--data", "full.npz", "--out", tmp_path / "a.csv", *TRUST)
    assert (ran.status, ran.out) == (0, "")
    told = (
        rf"90 answers in {tmp_path}/a.csv, at \d\.\d+ of the network's Mul-Adds on average, "
        r"by \w+ \(tune split: .* right\)"
    )
    assert re.search(f"{told}$", ran.told)


def test_texts_one_a_line_with_names(offramp: Shell, of_texts: Path, tmp_path: Path) -> None:
    offramp.json("predict", of_texts, "--data", "new.txt", "--out", tmp_path / "a.csv")
    with open(tmp_path / "a.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] in NAMES for row in rows] == [True] * 3
    assert all(set(json.loads(row["set"])) <= set(NAMES) for row in rows)


def test_a_column_of_labels_is_passed_over(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    line = (*TRUST, "--out")
    offramp.json("predict", artifact, "--data", "test.csv", "--label", "kind", *line, tmp_path / "a.csv")
    offramp.json("predict", artifact, "--data", "full.npz", *line, tmp_path / "b.csv")
    assert (tmp_path / "a.csv").read_text() == (tmp_path / "b.csv").read_text()
    ran = offramp("predict", artifact, "--data", "test.csv", *line, tmp_path / "c.csv")
    assert ran.status == 1
    assert "cannot take these inputs (float32 of shape (1, 17))" in ran.told


@each("size", [1, 7, 1000])
def test_any_number_at_a_time(offramp: Shell, artifact: Path, tmp_path: Path, size: int) -> None:
    line = ("--data", "full.npz", "--out", tmp_path / "a.csv", "--batch-size", size, *TRUST)
    assert offramp.json("predict", artifact, *line)["rows"] == 90


def test_one_sample(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", x=samples(1, seed=0)[0])
    line = ("--data", tmp_path / "one.npz", "--out", tmp_path / "a.csv", *TRUST)
    assert offramp.json("predict", artifact, *line)["rows"] == 1


@each("suffix", [".csv", ".jsonl"])
@each("count", [0, 1, 3])
def test_interrupted_it_goes_on_to_the_same_file(
    offramp: Shell, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, count: int
) -> None:
    line = ("predict", artifact, "--data", "full.npz", *TRUST, "--batch-size", "20", "--out")
    with stopped_after(monkeypatch, "offramp.model._model.EarlyExitModel.predict", count):
        ran = offramp(*line, tmp_path / f"a{suffix}")
    assert (ran.status, ran.out) == (130, "")
    assert ran.told.endswith("Stopped. Run the same command again: it continues where it stopped.")
    assert not (tmp_path / f"a{suffix}").exists()
    asked = []
    predict = EarlyExitModel.predict

    def counted(self: Any, inputs: Any, **options: Any) -> Any:
        asked.append(len(inputs))
        return predict(self, inputs, **options)

    with monkeypatch.context() as patch:
        patch.setattr(EarlyExitModel, "predict", counted)
        first = offramp.json(*line, tmp_path / f"a{suffix}")
    assert sum(asked) == 90 - 20 * count
    second = offramp.json(*line, tmp_path / f"b{suffix}")
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()
    assert first["cost"] == pytest.approx(second["cost"])
    assert len([*tmp_path.glob("[!.]*")]) == 2


def test_an_artifact_that_is_replaced_after_it_was_loaded(
    offramp: Shell, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partial answers are those of the model that was loaded, and are not continued with the other one."""
    own = tmp_path / "own"
    shutil.copytree(artifact, own)
    manifest = own / "manifest.json"
    before = sha256(manifest.read_bytes()).hexdigest()

    def load_and_replace(*arguments: Any, **options: Any) -> EarlyExitModel:
        model = load(*arguments, **options)
        manifest.write_bytes(manifest.read_bytes() + b"\n")
        return model

    with monkeypatch.context() as patch:
        patch.setattr("offramp.cli.networks.load", load_and_replace)
        with stopped_after(patch, "offramp.model._model.EarlyExitModel.predict", 1):
            line = ("predict", own, "--data", "full.npz", *TRUST, "--batch-size", "20", "--out", tmp_path / "a.csv")
            assert offramp(*line).status == 130
    assert (tmp_path / "a.csv.part.key").read_text().split()[0] == before


class TestBudget:
    """An average over all inputs."""

    def test_the_file_has_what_the_controller_leads_to(self, offramp: Shell, artifact: Path, tmp_path: Path) -> None:
        network, inputs = opened(artifact).at(cost=1.1, policy="stopping"), samples(90, seed=2)[0]
        budget = 0.5 * (network.dial.cheapest + network.dial.most_expensive)
        line = ("--data", "full.npz", "--budget", budget, "--policy", "stopping", "--batch-size", 10, *TRUST)
        found = offramp.json("predict", artifact, *line, "--out", tmp_path / "a.csv")
        controller, expected, asked = network.controller(budget), [], set()
        for start in range(0, 90, 10):
            asked.add(controller.next_budget)
            answer = network.predict(inputs[start : start + 10], budget=controller.next_budget)
            controller.record(answer.relative_cost)
            expected += answer.exits.tolist()
        assert [row["exit"] for row in rows_of(tmp_path / "a.csv")] == expected
        assert found["cost"] == pytest.approx(controller.average, abs=1e-5)
        assert len(asked) > 1

    def test_interrupted_it_goes_on_to_the_same_file(
        self, offramp: Shell, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        line = ("predict", artifact, "--data", "full.npz", *TRUST, "--budget", "0.8", "--batch-size", "7", "--out")
        with stopped_after(monkeypatch, "offramp.model._model.EarlyExitModel.predict", 6):
            assert offramp(*line, tmp_path / "a.csv").status == 130
        offramp.json(*line, tmp_path / "a.csv")
        ran = offramp(*line, tmp_path / "b.csv")
        assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
        assert ran.told.endswith("(requested: 0.800)")

    @each(
        ("options", "told"),
        [
            (("--budget", "0.0001"), "the cost of the cheapest point, got 0.0001"),
            (("--budget", "0"), "--budget: expected a number between 0 and 1, such as 0.6, got 0"),
            (("--budget", "60"), "--budget: expected a number between 0 and 1, such as 0.6, got 60; did you mean 0.6?"),
            (("--budget", "nan"), "--budget: expected a number between 0 and 1, such as 0.6, got nan"),
            (("--budget", "0.8", "--cost", "0.8"), "expected --cost or --budget, got both; leave one out"),
        ],
    )
    def test_refused(self, offramp: Shell, artifact: Path, tmp_path: Path, options: tuple[str, ...], told: str) -> None:
        ran = offramp("predict", artifact, "--data", "full.npz", "--out", tmp_path / "a.csv", *TRUST, *options)
        assert (ran.status, ran.out) == (1, "")
        assert told in ran.told
        assert not any(tmp_path.iterdir())


class TestRefused:
    @each(
        ("out", "told"),
        [
            ("a.txt", "--out: expected a name that ends with .csv or .jsonl, got 'a.txt'"),
            ("a", "--out: expected a name that ends with .csv or .jsonl, got 'a'"),
            ("folder.csv", "folder.csv is a folder; choose another --out"),
            ("file/a.csv", "cannot write .*file: .*choose another place"),
        ],
    )
    def test_places(self, offramp: Shell, artifact: Path, tmp_path: Path, out: str, told: str) -> None:
        (tmp_path / "folder.csv").mkdir()
        (tmp_path / "file").write_text("")
        ran = offramp("predict", artifact, "--data", "full.npz", "--out", tmp_path / out, *TRUST)
        assert (ran.status, ran.out) == (1, "")
        assert re.search(told, ran.told), ran.told

    def test_a_miscoverage_that_was_not_calibrated(self, offramp: Shell, artifact: Path, tmp_path: Path) -> None:
        line = ("--data", "full.npz", "--out", tmp_path / "a.csv", "--miscoverage", "0.2", *TRUST)
        ran = offramp("predict", artifact, *line)
        assert ran.status == 1
        assert "--miscoverage: expected one that was calibrated (0.05, 0.1), got 0.2" in ran.told

    @each(
        ("data", "told"),
        [
            ("gone.csv", "gone.csv; offramp opens"),
            ("images", "images has images, the network 'tiny' does not take them as they are"),
            ("new.txt", "new.txt has texts, the network 'tiny' does not take them as they are"),
            ("full.npz --column y", "unknown array 'y'"),
            ("full.npz --split x", "expected no split"),
        ],
    )
    def test_data(self, offramp: Shell, artifact: Path, tmp_path: Path, data: str, told: str) -> None:
        ran = offramp("predict", artifact, "--data", *data.split(), "--out", tmp_path / "a.csv", *TRUST)
        assert (ran.status, ran.out) == (1, "")
        assert told in ran.told
        assert not any(tmp_path.iterdir())

    @each("wrong", [np.nan, np.inf])
    def test_numbers_that_are_none_say_where(
        self, offramp: Shell, artifact: Path, tmp_path: Path, wrong: float
    ) -> None:
        inputs = samples(90, seed=0)[0]
        inputs[70, 2] = wrong
        np.savez(tmp_path / "x.npz", x=inputs)
        ran = offramp("predict", artifact, "--data", tmp_path / "x.npz", "--out", tmp_path / "a.csv", *TRUST)
        assert ran.status == 1
        assert "row 70 of 'x'" in ran.told


def test_another_backend(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    line = ("--data", "full.npz", "--cost", "0.6", *TRUST)
    for backend in ("eager", "bfloat16"):
        offramp.json("predict", artifact, *line, "--backend", backend, "--out", tmp_path / f"{backend}.csv")
    expected, found = (rows_of(tmp_path / f"{backend}.csv") for backend in ("eager", "bfloat16"))
    same = [(one, other) for one, other in zip(found, expected, strict=True) if one["exit"] == other["exit"]]
    assert len(same) >= len(expected) - 4  # confidence near the threshold may round to its other side
    confidence = [[row["confidence"] for row in rows] for rows in zip(*same, strict=True)]
    assert confidence[0] != confidence[1]
    assert confidence[0] == pytest.approx(confidence[1], abs=0.05)


def test_an_unknown_backend(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    line = ("--data", "full.npz", "--cost", "0.6", *TRUST, "--out", tmp_path / "answers.csv", "--backend", "bfloat")
    ran = offramp("predict", artifact, *line)
    assert ran.status != 0
    assert "unknown backend 'bfloat'; did you mean 'bfloat16'?" in ran.told


def test_a_share_is_run_to_full_depth_too(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    line = ("--data", "full.npz", "--cost", "0.6", *TRUST)
    for share in (0, 0.3, 1):
        offramp.json("predict", artifact, *line, "--shadow", share, "--out", tmp_path / f"{share}.jsonl")
    without, some, everyone = (
        [json.loads(one) for one in (tmp_path / f"{share}.jsonl").read_text().splitlines()] for share in (0, 0.3, 1)
    )
    network, inputs = opened(artifact).at(cost=0.6), torch.from_numpy(samples(90, seed=2)[0])
    with torch.no_grad():
        expected = network.backbone(network.backbone.prepare(network.preprocessing(inputs))).argmax(1).tolist()
    assert [row["full"] for row in everyone] == expected
    shadowed = [row["full"] is not None for row in some]
    assert 10 < sum(shadowed) < 45
    assert [row["full"] for row in some if row["full"] is not None] == list(compress(expected, shadowed))
    assert all("full" not in row for row in without)
    assert [{**row, "full": None} for row in without] == [{**row, "full": None} for row in some]


def test_a_promise_is_told_to_programs_too(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    line = ("--data", "test.npz", "--trust", f"{MODELS}:make", "--max-drop", "0.5", "--confidence", "0.8")
    found = offramp.json("predict", artifact, *line, "--out", tmp_path / "a.csv")["guarantee"]
    assert (found["loss"], found["at_most"], found["confidence"]) == ("accuracy", 0.5, 0.8)
