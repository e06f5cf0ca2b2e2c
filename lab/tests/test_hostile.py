"""A short attack on real servers, and its figures."""

import math
from pathlib import Path

import pytest

from offramp_bench.places import ROOT
from offramp_bench.serving import hostile
from offramp_bench.serving.attacks import Attacks


def test_the_growth_of_memory_is_counted_from_20_000_requests_on() -> None:
    memory = [(10_000, 50), (20_500, 100), (30_000, 90), (40_000, 103)]
    assert hostile.growth(memory) == pytest.approx(0.03)
    assert math.isnan(hostile.growth(memory[:1]))


def test_servers_have_the_settings_of_the_container() -> None:
    line = next(
        line for line in (ROOT / "deploy" / "Dockerfile").read_text().splitlines() if line.startswith("ENV OMP")
    )
    assert {f"{name}={value}" for name, value in hostile.CONTAINER.items()} <= set(line.split())


def test_attacks_are_those_of_their_seed() -> None:
    samples = ["one text", "another text"]
    first, again = (Attacks("texts", samples, seed=1) for _ in range(2))
    requests = [first.next() for _ in range(200)]
    assert requests == [again.next() for _ in range(200)]
    assert len({request.body for request in requests}) > 150
    assert [first.next_message() for _ in range(50)] == [again.next_message() for _ in range(50)]


@pytest.mark.slow
def test_a_short_attack_is_survived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostile, "PORTS", {"texts": hostile.free_ports()})
    with hostile.victim("texts", tmp_path, seed=1) as target:
        sent = hostile.attack([target], 300, seed=1)
        assert target.process.poll() is None
        assert "Traceback" not in hostile.read_log(target)
    assert sent >= 300
    assert (target.server_errors, target.lost, target.wrong) == ([], [], 0)
    assert target.valid >= 14
    assert target.statuses["400"] > 100
