"""The demo, with networks that are hardly trained; tests/demo has it whole."""

from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

import offramp as library
from offramp.model._loading import load
from tests.cli.workshop import Shell, stopped_after


@pytest.fixture(autouse=True)
def _hardly_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    demo = import_module("offramp.demo._run")
    quick = replace(library.DEFAULT, warmup_epochs=1, epochs=1, cost_weights=(0.1, 1.0))
    monkeypatch.setattr(demo, "EPOCHS", 2)
    monkeypatch.setattr(demo, "fit", partial(library.fit, settings=quick))


@pytest.mark.slow
def test_as_json_and_as_text_with_what_to_do_next(
    offramp: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = offramp("demo", "--out", tmp_path / "demo", "--json")
    assert (ran.status, ran.err) == (0, "")
    frontier = load(ran.json["artifact"])
    assert ran.json["network"] == frontier.backbone.name
    assert Path(ran.json["report"]).exists()
    monkeypatch.setattr(
        "offramp.demo._run.run", lambda *_, **__: frontier
    )  # the same every time: tests/demo/test_run.py
    ran = offramp("demo", "-o", tmp_path / "demo")
    assert ran.status == 0
    assert "cost (counted Mul-Adds) it is right" in ran.out
    assert f"All operating points: offramp inspect {tmp_path}/demo/artifact" in ran.told
    assert offramp("inspect", tmp_path / "demo" / "artifact").status == 0


def test_a_place_that_cannot_be_written(offramp: Shell) -> None:
    ran = offramp("demo", "--out", "/dev/null/demo")
    assert ran.status == 1
    assert "cannot write into /dev/null/demo: Not a directory; choose another --out" in ran.told


def test_interrupted(offramp: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stopped_after(monkeypatch, "offramp.methods._joint.cosine_step", 3):
        ran = offramp("demo", "--out", tmp_path)
    assert ran.status == 130
    assert ran.told == f"Stopped. Run the same command again; delete {tmp_path} to start from the beginning."
