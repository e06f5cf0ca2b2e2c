"""The command: what it writes, and what --check compares."""

import json
import sys
from pathlib import Path

import pytest

from lab.tests.paper.examples import details, everybody, row, task
from offramp_bench.paper import __main__ as command
from offramp_bench.paper.details import identity
from offramp_bench.paper.tasks import TASKS
from tests.methods.examples import QUICK


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(command, "CLAIMS", tmp_path / "claims.json")
    monkeypatch.setattr(command, "read_results", lambda: {"a": task(**everybody())})
    monkeypatch.setattr(command, "read_details", lambda: {"a": details()})
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["paper", *arguments])
    return command.main()


def test_claims_of_other_results_are_stale(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--check") == 1
    assert run(monkeypatch) == 0
    assert {claim["verdict"] for claim in json.loads((results / "claims.json").read_text())} == {"holds", "not tested"}
    assert run(monkeypatch, "--check") == 0
    capsys.readouterr()
    monkeypatch.setattr(command, "read_results", lambda: {"a": task(**everybody(DiffBranch=row(0.95)))})
    assert run(monkeypatch, "--check") == 1
    assert json.loads(capsys.readouterr().out)["stale"] == ["DiffBranch"]


def test_details_are_measured_once(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []
    settings = {"JEI-DNN": QUICK}
    known = identity(TASKS["nci1"], settings)

    def measure(measured_task: object, tuned: object) -> dict[str, str]:
        measured.append(measured_task)
        return {"identity": known}

    monkeypatch.setattr(command, "detail_file", lambda name: results / f"{name}.json")
    monkeypatch.setattr(command, "tuned_settings", lambda measured_task: settings)
    monkeypatch.setattr(command, "run_details", measure)
    for _ in range(2):
        assert run(monkeypatch, "--tasks", "nci1") == 0
    assert measured == [TASKS["nci1"]]
