import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.workshop import Shell
from tests.report.paper.examples import content, write


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder that looks like a checkout, whose benchmark prints results of one task."""
    module = tmp_path / "benchmarks" / "paper" / "__main__.py"
    module.parent.mkdir(parents=True)
    (tmp_path / "ready.json").write_text(json.dumps(content("nci1")))
    module.write_text("from pathlib import Path\nprint(Path('ready.json').read_text())\n")
    return tmp_path


def test_a_page_from_results(offramp: Shell, tmp_path: Path) -> None:
    results = write(tmp_path / "r.json", "nci1")
    ran = offramp("bench", "paper", results, "--into", tmp_path / "deep" / "page.html")
    assert ran.status == 0
    assert "1. Joint training" in ran.out
    assert "1 of 2 bars hold." in ran.out
    assert ran.told == f"Page, for a browser: {tmp_path}/deep/page.html"
    assert "nci1" in (tmp_path / "deep" / "page.html").read_text(encoding="utf-8")


def test_results_of_the_folder_one_is_in(offramp: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "benchmarks" / "results" / "paper.json", "nci1")
    monkeypatch.chdir(tmp_path)
    told = offramp.json("bench", "paper")
    assert told["page"] == "paper.html"
    assert (tmp_path / "paper.html").exists()
    assert told["verdicts"]["5. Tailored architectures"] == "not yet tested fairly"
    assert [bar["held"] for bar in told["bars"]] == [True, False]


def test_no_results(offramp: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = offramp("bench", "paper")
    assert ran.status == 1
    assert "expected results of the benchmark at benchmarks/results/paper.json, there are none" in ran.told
    assert "--recompute" in ran.told
    assert not list(tmp_path.iterdir())


def test_a_file_of_something_else(offramp: Shell, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text('{"tasks": 3, "bars": []}')
    ran = offramp("bench", "paper", tmp_path / "r.json", "--into", tmp_path / "p.html")
    assert ran.status == 1
    assert "r.json does not read" in ran.told
    assert not (tmp_path / "p.html").exists()


def test_a_place_that_cannot_be_written(offramp: Shell) -> None:
    ran = offramp("bench", "paper", "--into", "/dev/null/page.html")
    assert ran.status == 1
    assert "choose another --into" in ran.told


def test_another_benchmark(offramp: Shell) -> None:
    assert offramp("bench", "speed").status == 2


class TestRecompute:
    def test_runs_the_benchmark_of_the_checkout(self, offramp: Shell, checkout: Path) -> None:
        results = checkout / "benchmarks" / "results" / "paper.json"
        ran = offramp("bench", "paper", results, "--recompute", "--into", checkout / "p.html")
        assert ran.status == 0, ran.told
        assert json.loads(results.read_text()) == content("nci1")
        assert [path.name for path in results.parent.iterdir()] == ["paper.json"]
        assert (checkout / "p.html").exists()

    def test_a_failure_leaves_the_results_as_they_were(self, offramp: Shell, checkout: Path) -> None:
        results = write(checkout / "benchmarks" / "results" / "paper.json", "nci1")
        before = results.read_bytes()
        (checkout / "benchmarks" / "paper" / "__main__.py").write_text("print('half')\nraise SystemExit(3)\n")
        ran = offramp("bench", "paper", results, "--recompute", "--into", checkout / "p.html")
        assert ran.status == 1
        assert "ended with status 3" in ran.told
        assert results.read_bytes() == before
        assert [path.name for path in results.parent.iterdir()] == ["paper.json"]

    def test_outside_of_a_checkout(self, offramp: Shell, tmp_path: Path) -> None:
        ran = offramp("bench", "paper", tmp_path / "a" / "b" / "r.json", "--recompute", "--into", tmp_path / "p.html")
        assert ran.status == 1
        assert "expected a checkout of offramp with benchmarks/paper" in ran.told

    def test_interrupted(self, offramp: Shell, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupt(*arguments: Any, **options: Any) -> Any:
            options["stdout"].write("half")
            raise KeyboardInterrupt

        results = checkout / "benchmarks" / "results" / "paper.json"
        monkeypatch.setattr(subprocess, "run", interrupt)
        ran = offramp("bench", "paper", results, "--recompute", "--into", checkout / "p.html")
        assert ran.status == 130
        assert ran.told == "Stopped. Run the same command again: what is computed is kept."
        assert not list(results.parent.iterdir())

    def test_the_benchmark_that_is_run_is_there(self) -> None:
        from offramp.cli.bench import COMMAND

        assert list(COMMAND) == [sys.executable, "-m", "benchmarks.paper"]
        assert (Path(__file__).parents[2] / "benchmarks" / "paper" / "__main__.py").exists()
