"""Two artifacts on the same samples, or one before and after an update."""

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from offramp.data import open_data
from offramp.features import StoreSource, extract
from offramp.frontier import compare
from offramp.trunk import make_trunk
from tests.cli.workshop import EXTRACTION, MODELS, NAMES, Shell, opened, samples

DATA = ("--data", "test.npz")
TRUST = ("--trust", f"{MODELS}:make", "--trust", f"{MODELS}:small")


def test_two_artifacts(offramp: Shell, artifact: Path, chained: Path, tmp_path: Path) -> None:
    ran = offramp("compare", artifact, chained, *DATA, *TRUST, "--cost", "0.6", "--json")
    assert (ran.status, ran.err) == (0, "")
    sides: list[Any] = []
    for path in (artifact, chained):
        frontier = opened(path)
        store = extract(frontier.trunk, open_data("test.npz"), tmp_path / str(len(sides)), progress=False)
        sides.append((frontier, frontier.choose(cost=0.6).point, StoreSource(store, pooling="rich")))
    expected = asdict(compare(sides[0], sides[1]))
    assert ran.json == {**json.loads(json.dumps(expected)), "names": [str(artifact), str(chained)]}


def test_as_a_table(offramp: Shell, artifact: Path, chained: Path) -> None:
    ran = offramp("compare", artifact, chained, *DATA, *TRUST)
    found = offramp.json("compare", artifact, chained, *DATA, *TRUST)
    assert ran.status == 0
    assert str(chained) in ran.out
    assert f"{100 * found['accuracies'][1]:.2f} %" in ran.out
    assert f"changes accuracy by {100 * found['gain']:+.2f} points" in ran.out


def test_an_artifact_with_itself(offramp: Shell, artifact: Path) -> None:
    found = offramp.json("compare", artifact, artifact, *DATA, *TRUST)
    assert (found["gain"], found["cost_ratio"], found["agreement"], found["newly_wrong"]) == (0, 1, 1, 0)


def test_an_update(offramp: Shell, artifact: Path) -> None:
    found = offramp.json("compare", artifact, "--trunk", f"{MODELS}:make,seed=0", *DATA, *TRUST)
    assert (found["gain"], found["agreement"]) == (0, 1)
    assert found["names"] == ["artifact", "after the update"]
    found = offramp.json("compare", artifact, "--trunk", f"{MODELS}:make,seed=1", *DATA, *TRUST)
    inputs, labels = samples(90, seed=2)
    for seed in (0, 1):
        full = make_trunk(f"{MODELS}:make", {"seed": seed})
        right = (full(full.prepare(inputs)).argmax(1).numpy() == labels).mean()
        assert found["full_accuracies"][seed] == pytest.approx(right)
    assert found["agreement"] < 1


def test_a_store_is_kept_and_used_again(
    offramp: Shell, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ("compare", artifact, "--trunk", f"{MODELS}:make,seed=1", *DATA, *TRUST, "--store", tmp_path)
    first = offramp.json(*line)
    monkeypatch.setattr(EXTRACTION, "_extract_batch", lambda *_: 1 / 0)
    assert offramp.json(*line) == first


class TestRefused:
    def test_nothing_to_compare_with(self, offramp: Shell, artifact: Path) -> None:
        ran = offramp("compare", artifact, *DATA, *TRUST)
        assert ran.status == 1
        assert "expected another artifact, or the updated network with --trunk: one of the two" in ran.told

    def test_both(self, offramp: Shell, artifact: Path) -> None:
        ran = offramp("compare", artifact, artifact, "--trunk", f"{MODELS}:make", *DATA, *TRUST)
        assert ran.status == 1
        assert "one of the two" in ran.told

    @pytest.mark.parametrize(
        ("network", "told"),
        [
            ("make,depth=2", "expected a network of 4 stages and 3 classes .* got 3, 3 and"),
            ("make,classes=4", "expected a network of 4 stages and 3 classes .* got 4, 4 and"),
            ("make,width=128", "the exit after stage 0 reads 256 features, these inputs give 128"),
            ("make,inputs=9", r"test.npz has numbers, the network 'tiny' does not take them .*shape \(1, 16\)"),
        ],
    )
    def test_a_network_of_another_shape(self, offramp: Shell, artifact: Path, network: str, told: str) -> None:
        ran = offramp("compare", artifact, "--trunk", f"{MODELS}:{network}", *DATA, *TRUST)
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
            offramp.json("fit", "--trunk", f"{MODELS}:make", *line, "--out", places[-1])
        ran = offramp("compare", *places, "--data", tmp_path / "data.npz", *TRUST)
        assert ran.status == 1
        assert "in the same order, got 'bad' in one where the other has 'good'" in ran.told

    def test_another_number_of_classes(self, offramp: Shell, artifact: Path, tmp_path: Path) -> None:
        inputs, labels = samples(40, seed=0, classes=2)
        np.savez(tmp_path / "data.npz", x=inputs, y=labels)
        line = ("--train", tmp_path / "data.npz", "--epochs", "1", "--out", tmp_path / "two")
        offramp.json("fit", "--trunk", f"{MODELS}:make,classes=2", *line, "--anyway")
        ran = offramp("compare", artifact, tmp_path / "two", *DATA, *TRUST)
        assert ran.status == 1
        assert "expected two frontiers of the same classes, got 3 and 2 classes" in ran.told
