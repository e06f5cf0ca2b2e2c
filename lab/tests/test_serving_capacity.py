"""The arithmetic of many replicas, against sums done by hand."""

import json
from dataclasses import replace
from typing import Any

import pytest

from offramp_bench.places import RESULTS
from offramp_bench.serving.capacity import PAGE, Assumptions, limits, make_page, make_plan

BASE = Assumptions(core_hour=0.05, load=0.5, machine_cores=10)


def results() -> dict[str, Any]:
    saturation = {
        "exits": [{"served_per_s": rate} for rate in (90.0, 100.0, 500.0)],
        "full": [{"served_per_s": rate} for rate in (20.0, 25.0, 26.0)],
    }
    windows = {"saturation": saturation, "request_bytes": 1250.0}
    return {"processor": "a processor", "banking77": {"windows": windows}}


def test_a_plan_by_hand() -> None:
    plan = make_plan(1000, 100, BASE)  # 50 requests per second and replica
    assert (plan.replicas, plan.machines) == (20, 2)
    assert plan.month == pytest.approx(20 * 0.05 * 730)
    assert plan.million == pytest.approx(20 * 0.05 / 3.6)  # 3.6 million per hour
    assert make_plan(1001, 100, BASE).replicas == 21


def test_limits_by_hand() -> None:
    plan = make_plan(1000, 100, BASE)
    loads = limits(
        1000, 1250, plan, replace(BASE, gigabits=1.0, artifact_mb=100, start_s=32, series=100, most_series=4000)
    )
    assert loads["one proxy of Ray Serve, as shipped"] == pytest.approx(1000 / 213)
    assert loads["the proxy of each machine, with HAProxy"] == pytest.approx(500 / 2700)
    assert loads["one load balancer: bytes in"] == pytest.approx(0.01)  # 10 Mbit/s
    assert loads["reading the artifact in all replicas at once, within one start"] == pytest.approx(16 / 32)
    assert loads["one Prometheus: series"] == pytest.approx(0.5)
    assert loads["one Kubernetes cluster: machines"] == pytest.approx(2 / 5000)


def test_tables_replace_those_between_the_marks() -> None:
    page = make_page("before\n<!-- capacity -->\nthe old table\n<!-- /capacity -->\nafter\n", results(), BASE)
    assert page.startswith("before\n<!-- capacity -->\n")
    assert page.endswith("<!-- /capacity -->\nafter\n")
    assert "the old table" not in page
    assert "| 1,000 | exits | 20 | 2 | 730 | 0.278 |" in page
    assert "| 1,000 | full network | 80 | 8 | 2,920 | 1.111 |" in page
    assert "| one proxy of Ray Serve, as shipped | **4.7** |" in page
    assert make_page(page, results(), BASE) == page


def test_the_page_is_that_of_the_committed_results() -> None:
    page, file = PAGE.read_text("utf-8"), RESULTS / "serving.json"
    if file.exists():
        assert make_page(page, json.loads(file.read_text("utf-8")), Assumptions()) == page
    else:
        assert "The servers are being measured" in page
