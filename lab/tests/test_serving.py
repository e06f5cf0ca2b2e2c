"""The load generator against a real server, and the figures of windows."""

import argparse
import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from offramp_bench.serving import load as generator
from offramp_bench.serving.overload import drop_bound
from offramp_bench.serving.peer import sustained_times
from offramp_bench.serving.windows import ratios, summarise


class RefusingHandler(BaseHTTPRequestHandler):
    """A handler that refuses every fourth request."""

    protocol_version = "HTTP/1.1"
    count = 0

    def do_POST(self) -> None:
        RefusingHandler.count += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(503 if RefusingHandler.count % 4 == 0 else 200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), RefusingHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(("rate", "connections"), [(100.0, 0), (0.0, 4)])
def test_requests_are_sent_and_counted(port: int, rate: float, connections: int, tmp_path: Path) -> None:
    bodies = tmp_path / "bodies"
    bodies.write_text('{"inputs": ["one"]}\n{"inputs": ["two"]}\n')
    RefusingHandler.count = 0
    options = argparse.Namespace(
        port=port, bodies=bodies, seconds=1.0, rate=rate, connections=connections, seed=0, record=0
    )
    window = asyncio.run(generator.generate(options))
    assert len(window["answers"]) == RefusingHandler.count > 10
    refused = sum(answer["status"] == 503 for answer in window["answers"])
    assert refused == RefusingHandler.count // 4
    if rate:
        assert 50 < len(window["answers"]) < 160  # 100 are expected: five standard deviations
    figures = summarise(window, in_time_s=60.0)
    assert figures["in_time"] == pytest.approx(1 - refused / RefusingHandler.count)
    assert figures["served_per_s"] == pytest.approx((RefusingHandler.count - refused) / window["seconds"])


def test_figures_of_a_window() -> None:
    window = {"seconds": 2.0, "answers": [{"status": 200, "s": s} for s in (0.1, 0.3, 0.2)] + [{"status": 503, "s": 0}]}
    figures = summarise(window, in_time_s=0.25)
    assert figures["served_per_s"] == 1.5
    assert figures["p50_ms"] == pytest.approx(200)
    assert figures["in_time"] == 0.5


def test_ratios_are_of_rounds() -> None:
    windows = {"exits": [{"x": 2.0}, {"x": 6.0}, {"x": 3.0}], "full": [{"x": 1.0}, {"x": 2.0}, {"x": 3.0}]}
    assert ratios(windows, "x") == {"median": 2.0, "least": 1.0, "most": 3.0}


def test_the_sustained_multiple_has_the_peers_latency_and_enough_answers() -> None:
    def window(served_per_s: float, p99_ms: float) -> list[dict[str, float]]:
        return [{"served_per_s": served_per_s, "p99_ms": p99_ms}]

    peer = {"peer": window(10, 80)}
    assert sustained_times({**peer, "2": window(20, 70), "3": window(30, 79), "4": window(40, 90)}, 10) == 3
    assert sustained_times({**peer, "2": window(20, 70), "3": window(25, 79)}, 10) == 2  # too few answers
    assert sustained_times({**peer, "2": window(20, 90)}, 10) == 0


def test_the_drop_of_a_burst_counts_rows_once() -> None:
    answered = [{"row": row} for row in (0, 0, 0, 1, 2, 3)]
    full_right = np.array([True, True, True, False])
    drop = drop_bound(answered, {0: False, 1: False, 2: False, 3: True, 4: True, 5: True}, full_right)
    # Row 0 lost three times, row 3 won once: (3 - 1) / 6; deviations by rows: 3 - 1, -1/3, -1/3, -1 - 1/3.
    assert drop["mean"] == pytest.approx(1 / 3)
    assert drop["upper"] == pytest.approx(1 / 3 + 1.645 * (4 + 1 / 9 + 1 / 9 + 16 / 9) ** 0.5 / 6)
