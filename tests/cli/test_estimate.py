"""Is it worth it: what is told, and how it agrees with the library."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

import offramp as library
from offramp.backbone._making import make_backbone
from offramp.cli.estimate import sentences
from offramp.data import open_data, sample
from offramp.model._estimation import Estimate, EstimatedPoint
from tests.cases import each
from tests.cli.workshop import MODELS, QUICK, Shell, samples, stopped_after

LINE = ("estimate", "--model", f"{MODELS}:make", "--data", "train.npz")


@pytest.mark.slow
def test_as_json_it_agrees_with_the_library(offramp: Shell) -> None:
    ran = offramp(*LINE, "--samples", "80", "--seed", "2", "--json")
    assert (ran.status, ran.err) == (0, "")
    expected = library.estimate(
        make_backbone(f"{MODELS}:make", {}),
        sample(open_data("train.npz"), 80, seed=2),
        settings=replace(QUICK, seed=2),
        progress=False,
    )
    plain = json.loads(json.dumps(asdict(expected)))
    assert ran.json == {**plain, "verdict": sentences(expected)}


@pytest.mark.slow
def test_a_cascade_as_a_table(offramp: Shell) -> None:
    ran = offramp(*LINE[:1], "--model", f"{MODELS}:small", *LINE[1:])
    assert ran.status == 0
    assert "160 samples; the full network is right on" in ran.out
    for text in ("exits in tiny", "exits in small+tiny", "small by itself", "Exits in tiny: "):
        assert text in ran.out
    assert "give it as the first of two --model" not in ran.err


@pytest.mark.slow
def test_one_network_as_a_table(offramp: Shell) -> None:
    ran = offramp(*LINE)
    assert ran.told == "A cheaper network before this one often saves more: --model SMALL --model LARGE."


def test_a_network_too_small_for_exits(offramp: Shell) -> None:
    ran = offramp("estimate", "--model", f"{MODELS}:make,width=16", "--data", "train.npz")
    assert ran.status == 0
    assert "No point costs 0.9 or less: the network is so small that exits cost more than they save." in ran.out


def test_too_few_samples(offramp: Shell, tmp_path: Path) -> None:
    for count in (1, 39):
        inputs, labels = samples(count, seed=0)
        np.savez(tmp_path / "few.npz", x=inputs, y=labels)
        ran = offramp("estimate", "--model", f"{MODELS}:make", "--data", tmp_path / "few.npz")
        assert ran.status == 1
        assert f"expected at least 40 samples to estimate from, better 1,000, got {count}" in ran.told


@each("kept", [True, False])
def test_interrupted(offramp: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool) -> None:
    store = ("--store", tmp_path) if kept else ()
    with stopped_after(monkeypatch, "offramp.methods._joint.cosine_step", 3):
        ran = offramp(*LINE, *store)
    assert (ran.status, ran.out) == (130, "")
    assert ran.told == "Stopped. Run the same command again" + ("." if kept else "; --store FOLDER keeps what is done.")
    assert any(tmp_path.iterdir()) == kept


class TestSentences:
    def estimated(self, *points: tuple[float, float, float], samples: int = 1000) -> Estimate:
        curve = tuple(EstimatedPoint(cost, cost, change, (lower, change + 0.01)) for cost, change, lower in points)
        alone = (("cheap", EstimatedPoint(0.1, 0.1, -0.2, (-0.3, -0.1))),)
        return Estimate(samples, 10, 0.9, {"net": curve}, alone)

    def test_worth_it(self) -> None:
        told = sentences(self.estimated((0.4, -0.005, -0.02), (0.6, 0.0, -0.009)))
        assert told == [
            "Exits in net: worth it. At 60 % of the cost, at most 1 point is lost with 95 % confidence (change +0.00)."
        ]

    def test_probably(self) -> None:
        told = sentences(self.estimated((0.4, -0.005, -0.02)))
        assert told == [
            "Exits in net: probably. At 40 % of the cost, accuracy changes by -0.50, but 1,000 samples do not rule out "
            "a loss of 2.0 points; give more."
        ]

    def test_not(self) -> None:
        assert sentences(self.estimated((0.4, -0.05, -0.1))) == [
            "Exits in net: no gain. Every point loses more than 1 point."
        ]

    def test_few_samples_a_class(self) -> None:
        told = sentences(self.estimated((0.4, 0.0, 0.0), samples=150))
        assert told[-1].startswith("With 15 samples per class exits learn little")

    def test_the_cheap_network_is_as_good(self) -> None:
        found = self.estimated((0.4, 0.0, 0.0))
        found = replace(found, alone=(("cheap", EstimatedPoint(0.1, 0.1, 0.001, (-0.1, 0.1))),))
        assert sentences(found)[-1] == "cheap by itself is as accurate, at 10 % of the cost: use that."
