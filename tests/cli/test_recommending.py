"""Recommendations: the fastest run, one sentence each, and exits that are not worth their time."""

from dataclasses import asdict, replace

import pytest

from offramp.cli.recommending import describe_recommendation, print_recommendation
from offramp.runtime import LatencyTable
from offramp.runtime._run_times import RunTime

SINGLE = RunTime("onnx", 1, 9, ms=2.0, least_ms=1.9, most_ms=2.2, full_ms=6.0)
BATCH = RunTime("eager", 64, 9, ms=0.5, least_ms=0.4, most_ms=0.6, full_ms=1.0)
COARSE = RunTime("bfloat16", 64, 9, ms=0.1, least_ms=0.1, most_ms=0.1, full_ms=1.0, note="less precise")
FEWER = replace(SINGLE, exits=4, ms=1.5, least_ms=1.4, most_ms=1.6, note="needs a new fit")
TABLE = LatencyTable("eager", 1, (1, 64), (), (), (), (), runs=(SINGLE, BATCH, COARSE, FEWER))


def test_one_sentence_each(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    print_recommendation(TABLE)
    out = capsys.readouterr().out
    assert (
        "Recommended for one request at a time: onnx with 9 exits, 2 ms per sample (3.0 times as fast as the full "
        "network).\n" in out
    )
    assert "Recommended for throughput: eager in batches of 64, 0.5 ms per sample (2.0 times" in out
    assert "2,000 samples per second" in out
    assert "Hardly any sample takes 5 of the exits; without them, onnx takes 1.5 ms per sample" in out
    assert "less precise" in out


def test_fewer_exits_that_are_hardly_faster(capsys: pytest.CaptureFixture[str]) -> None:
    print_recommendation(replace(TABLE, runs=(SINGLE, replace(FEWER, most_ms=1.95))))
    assert "Hardly any sample" not in capsys.readouterr().out


def test_json() -> None:
    assert describe_recommendation(TABLE) == {"latency": asdict(SINGLE), "throughput": asdict(BATCH)}


def test_nothing_to_recommend(capsys: pytest.CaptureFixture[str]) -> None:
    table = replace(TABLE, runs=())
    print_recommendation(table)
    assert capsys.readouterr().out == ""
    assert describe_recommendation(table) is None
