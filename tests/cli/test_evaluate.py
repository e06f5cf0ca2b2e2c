"""Measuring an artifact: the same numbers as the library's, as a table, as JSON, as a report."""

import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from offramp.backbone._making import make_backbone
from offramp.data import open_data
from offramp.features import StoreSource, extract
from offramp.model import compare_models
from offramp.report import find
from tests.cases import each
from tests.cli.workshop import EXTRACTION, MODELS, NAMES, Shell, opened, samples, stopped_after

LINE = ("--data", "test.npz", "--trust", f"{MODELS}:make")
SMALL = ("--trust", f"{MODELS}:small")


def test_as_json_it_agrees_with_the_library(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    ran = offramp("evaluate", artifact, *LINE, "--cost", "0.6", "--json")
    assert (ran.status, ran.err) == (0, "")
    frontier = opened(artifact)
    store = extract(frontier.backbone, open_data("test.npz"), tmp_path, progress=False)
    source = StoreSource(store, pooling="rich")
    point = frontier.at(cost=0.6).point
    expected = find(frontier, source, point=point, name="test.npz")
    assert ran.json == {
        **json.loads(json.dumps(expected.to_json())),
        "unit": {"name": "Mul-Adds", "full": None},
        "mean_cost": None,
        "report": None,
        "against": None,
    }
    assert ran.json["chosen"]["accuracy"] == frontier.evaluate(source, points=[point]).rows[0].accuracy


def test_as_a_table(offramp: Shell, artifact: Path) -> None:
    ran = offramp("evaluate", artifact, *LINE, "--cost", "0.6")
    found = offramp.json("evaluate", artifact, *LINE, "--cost", "0.6")
    assert ran.status == 0
    assert "90 samples of test.npz" in ran.out
    chosen = found["chosen"]
    marked = next(line for line in ran.out.splitlines() if " < " in line)
    assert f"{chosen['relative_cost']:.3f} <" in marked
    assert f"{100 * chosen['accuracy']:.2f} %" in marked
    assert f"{100 * chosen['change']:+.2f}" in marked
    assert "the full network" in ran.out


def test_one_row_is_no_certainty(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    inputs, labels = samples(1, seed=7)
    np.savez(tmp_path / "row.npz", x=inputs, y=labels)
    line = ("--data", tmp_path / "row.npz", "--trust", f"{MODELS}:make", "--cost", "0.6", "--anyway")
    ran = offramp("evaluate", artifact, *line, "--report", tmp_path / "report")
    assert ran.status == 0
    assert "0.0 to 0.0" not in ran.out + ran.err
    assert "+0.00 to +0.00" not in ran.out
    page = (tmp_path / "report" / "report.html").read_text()
    assert "n/a: one row" in page
    assert "0.0 to 0.0" not in page
    found = offramp.json("evaluate", artifact, *line)["chosen"]
    assert found["cost_interval"] is None
    assert found["accuracy_interval"][1] - found["accuracy_interval"][0] > 0.7


def test_a_report(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    ran = offramp("evaluate", artifact, *LINE, "--report", tmp_path / "report")
    assert ran.status == 0
    assert ran.told.endswith(f"Report: {tmp_path}/report/report.html")
    assert (tmp_path / "report" / "report.html").stat().st_size > 10_000
    assert [*(tmp_path / "report" / "pictures").glob("*.svg")]


class TestReportsRefusedBeforeTheLongWork:
    @pytest.fixture(autouse=True)
    def no_work(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(
            "offramp.cli.datasets.extract_features", lambda *_, **__: pytest.fail("the long work began")
        )

    def test_a_place_that_cannot_be_written(self, offramp: Shell, artifact: Path) -> None:
        ran = offramp("evaluate", artifact, *LINE, "--report", "/dev/null/report")
        assert ran.status == 1
        assert "cannot write into /dev/null/report: Not a directory; choose another --report" in ran.told

    def test_without_matplotlib(
        self, offramp: Shell, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        missing: dict[str, ModuleType | None] = {"matplotlib": None}
        for name, module in missing.items():
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.delitem(sys.modules, "offramp.report._canvas", raising=False)
        ran = offramp("evaluate", artifact, *LINE, "--report", tmp_path / "report")
        assert ran.status == 1
        assert "figures need matplotlib; pip install 'offramp[report]'" in ran.told


def test_a_store_is_kept_and_used_again(
    offramp: Shell, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = offramp.json("evaluate", artifact, *LINE, "--store", tmp_path)
    monkeypatch.setattr(EXTRACTION, "_extract_batch", lambda *_: 1 / 0)
    assert offramp.json("evaluate", artifact, *LINE, "--store", tmp_path) == first


@each("kept", [True, False])
def test_interrupted(
    offramp: Shell, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    store = ("--store", tmp_path) if kept else ()
    with stopped_after(monkeypatch, "offramp.features._extraction._extract_batch", 0):
        ran = offramp("evaluate", artifact, *LINE, *store)
    assert (ran.status, ran.out) == (130, "")
    more = "." if kept else "; --store FOLDER keeps what is done."
    assert ran.told.endswith(f"Stopped. Run the same command again{more}")
    assert offramp("evaluate", artifact, *LINE, *store).status == 0


def test_a_cascade(offramp: Shell, cascade: Path) -> None:
    trust = ("--trust", f"{MODELS}:small", "--trust", f"{MODELS}:make")
    found = offramp.json("evaluate", cascade, "--data", "test.npz", *trust)
    assert found["network"] == "small+tiny"
    assert found["alternatives"][1]["name"] == "small"


def test_texts(offramp: Shell, of_texts: Path, tmp_path: Path) -> None:
    found = offramp.json(
        "evaluate", of_texts, "--data", "texts-test.tsv", "--classes", "names.txt", "--report", tmp_path
    )
    assert found["classes"] == ["bad", "dull", "good"]
    assert found["samples"] == 60
    assert "very" in Path(found["report"]).read_text()  # texts that leave first and last


@each("count", [1, 2])
def test_hardly_any_samples(offramp: Shell, artifact: Path, tmp_path: Path, count: int) -> None:
    inputs, labels = samples(count, seed=2)
    np.savez(tmp_path / "few.npz", x=inputs, y=labels)
    line = ("--data", tmp_path / "few.npz", *LINE[2:])
    assert "on the test split" in offramp("evaluate", artifact, *line).told  # so few tell nothing of the network
    found = offramp.json("evaluate", artifact, *line, "--anyway", "--report", tmp_path / "report")
    assert found["samples"] == count
    assert offramp("evaluate", artifact, *line, "--anyway").status == 0


def test_unlabelled_data(offramp: Shell, artifact: Path) -> None:
    ran = offramp("evaluate", artifact, "--data", "full.npz", *LINE[2:])
    assert ran.status == 1
    assert "full.npz has no labels; name their column with --label" in ran.told


def test_samples_that_were_fitted_on_are_refused_before_the_long_work(
    offramp: Shell, artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust = ("--trust", f"{MODELS}:make")
    for data, used in (("train.npz", True), ("val.npz", True), ("test.npz", False)):
        with monkeypatch.context() as patch:
            if used:
                patch.setattr(
                    "offramp.cli.datasets.extract_features", lambda *_, **__: pytest.fail("the long work began")
                )
            ran = offramp("evaluate", artifact, "--data", data, *trust)
        assert ran.status == int(used), data
        assert (" of artifact' too" in ran.told) == used, data
        assert (f"give '{data}' other rows" in ran.told) == used, data


def test_other_data_is_doubted(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    inputs, labels = samples(90, seed=5)
    np.savez(tmp_path / "other.npz", x=-inputs, y=labels)
    line = ("evaluate", artifact, "--data", tmp_path / "other.npz", "--trust", f"{MODELS}:make")
    ran = offramp(*line)
    assert ran.status == 1
    assert "no better than guessing on the test split" in ran.told
    ran = offramp(*line, "--anyway")
    assert ran.status == 0
    assert "Check for other data, inputs of another kind or size, and classes in another order." in ran.told


class TestAgainst:
    """Two artifacts on the same samples, or one before and after an update."""

    def test_another_artifact(self, offramp: Shell, artifact: Path, cascade: Path, tmp_path: Path) -> None:
        ran = offramp("evaluate", artifact, *LINE, *SMALL, "--against", cascade, "--cost", "0.6", "--json")
        assert (ran.status, ran.err) == (0, "")
        sides: list[Any] = []
        for path in (artifact, cascade):
            frontier = opened(path)
            store = extract(frontier.backbone, open_data("test.npz"), tmp_path / str(len(sides)), progress=False)
            sides.append((frontier.at(cost=0.6), StoreSource(store, pooling="rich")))
        expected = asdict(compare_models(sides[0], sides[1]))
        assert ran.json["against"] == {**json.loads(json.dumps(expected)), "names": [str(artifact), str(cascade)]}

    def test_as_a_table(self, offramp: Shell, artifact: Path, cascade: Path) -> None:
        ran = offramp("evaluate", artifact, *LINE, *SMALL, "--against", cascade)
        found = offramp.json("evaluate", artifact, *LINE, *SMALL, "--against", cascade)["against"]
        assert ran.status == 0
        assert str(cascade) in ran.out
        assert f"{100 * found['accuracies'][1]:.2f} %" in ran.out
        assert f"changes accuracy by {100 * found['gain']:+.2f} points" in ran.out

    def test_itself(self, offramp: Shell, artifact: Path) -> None:
        found = offramp.json("evaluate", artifact, *LINE, "--against", artifact)["against"]
        assert (found["gain"], found["cost_ratio"], found["agreement"], found["newly_wrong"]) == (0, 1, 1, 0)

    def test_an_update(self, offramp: Shell, artifact: Path) -> None:
        line = ("evaluate", artifact, *LINE, "--against-model")
        found = offramp.json(*line, f"{MODELS}:make,seed=0")["against"]
        assert (found["gain"], found["agreement"]) == (0, 1)
        assert found["names"] == ["artifact", "after the update"]
        found = offramp.json(*line, f"{MODELS}:make,seed=1")["against"]
        inputs, labels = samples(90, seed=2)
        for seed in (0, 1):
            full = make_backbone(f"{MODELS}:make", {"seed": seed})
            right = (full(full.prepare(inputs)).argmax(1).numpy() == labels).mean()
            assert found["full_accuracies"][seed] == pytest.approx(right)
        assert found["agreement"] < 1

    def test_a_store_is_kept_and_used_again(
        self, offramp: Shell, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        line = ("evaluate", artifact, "--against-model", f"{MODELS}:make,seed=1", *LINE, "--store", tmp_path)
        first = offramp.json(*line)
        monkeypatch.setattr(EXTRACTION, "_extract_batch", lambda *_: 1 / 0)
        assert offramp.json(*line) == first

    def test_both_are_refused(self, offramp: Shell, artifact: Path) -> None:
        line = ("--against", artifact, "--against-model", f"{MODELS}:make")
        ran = offramp("evaluate", artifact, *LINE, *line)
        assert ran.status == 1
        assert "expected --against or --against-model, got both" in ran.told

    @each(
        ("network", "told"),
        [
            ("make,depth=2", "expected a network of 4 stages and 3 classes .* got 3, 3 and"),
            ("make,classes=4", "expected a network of 4 stages and 3 classes .* got 4, 4 and"),
            ("make,width=128", "exit after stage 0: expected 256 features, got 128"),
            ("make,inputs=9", r"test.npz has numbers, the network 'tiny' does not take them .*shape \(1, 16\)"),
        ],
    )
    def test_a_network_of_another_shape(self, offramp: Shell, artifact: Path, network: str, told: str) -> None:
        ran = offramp("evaluate", artifact, "--against-model", f"{MODELS}:{network}", *LINE)
        assert ran.status == 1
        assert re.search(told, ran.told), ran.told
        assert "fit exits for" in ran.told or "cannot take these inputs" in ran.told

    def test_other_classes(self, offramp: Shell, tmp_path: Path) -> None:
        places: list[Path] = []
        for order in (NAMES, NAMES[::-1]):
            (tmp_path / "names").write_text("\n".join(order))
            inputs, labels = samples(40, seed=len(places))
            np.savez(tmp_path / "data.npz", x=inputs, y=np.array(NAMES)[labels])
            places.append(tmp_path / f"artifact{len(places)}")
            line = ("--train", tmp_path / "data.npz", "--classes", tmp_path / "names", "--epochs", "1", "--anyway")
            offramp.json("fit", "--model", f"{MODELS}:make", *line, "--out", places[-1])
        asked = ("--data", tmp_path / "data.npz", "--trust", f"{MODELS}:make")
        ran = offramp("evaluate", places[0], "--against", places[1], *asked)
        assert ran.status == 1
        assert "in the same order, got 'bad' in one where the other has 'good'" in ran.told

    def test_another_number_of_classes(self, offramp: Shell, artifact: Path, tmp_path: Path) -> None:
        inputs, labels = samples(40, seed=0, classes=2)
        np.savez(tmp_path / "data.npz", x=inputs, y=labels)
        line = ("--train", tmp_path / "data.npz", "--epochs", "1", "--out", tmp_path / "two")
        offramp.json("fit", "--model", f"{MODELS}:make,classes=2", *line, "--anyway")
        ran = offramp("evaluate", artifact, "--against", tmp_path / "two", *LINE)
        assert ran.status == 1
        assert "expected two models of the same classes, got 3 and 2 classes" in ran.told
