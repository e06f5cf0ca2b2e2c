"""The figures of a killed replica, computed from the rows of a load, and a client that tries again."""

import argparse
import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from offramp_bench.serving import tracked_load
from offramp_bench.serving.replicas import judge_kill


def row(number: int, sent: float, answered: float | None, *failures: float, answers: int = 1) -> dict[str, Any]:
    failed = [[time, 500] for time in failures]
    return {"id": number, "sent": sent, "answered": answered, "failures": failed, "answers": answers}


def test_failures_are_of_the_killed_replica_or_not() -> None:
    rows = [
        row(0, 8.0, 8.5),
        row(1, 9.9, 10.6, 10.1),  # in flight, and answered at the second attempt
        row(2, 9.8, 10.2),
        row(3, 9.0, 9.7, 9.5),  # failed before
        row(4, 11.0, 12.5, 11.2),  # failed long after
        row(5, 11.0, None, 11.2),
    ]
    figures = judge_kill(rows, 10.0)
    assert figures["requests"] == 6
    assert figures["in_flight"] == 2
    assert (figures["failed"], figures["failed_elsewhere"], figures["lost"]) == (4, 3, 1)
    assert round(figures["most_s_to_success_after_failure"], 6) == 1.3
    assert round(figures["most_s_to_failure_after_kill"], 6) == 0.1
    assert figures["statuses"] == [500]
    assert judge_kill([row(0, 1, 2), row(1, 1, 2, answers=2)], 10.0)["answered_twice"] == 1


class FailingHandler(BaseHTTPRequestHandler):
    """A handler that fails at the first attempt of every request."""

    protocol_version = "HTTP/1.1"
    numbers: ClassVar[set[str]] = set()

    def do_POST(self) -> None:
        number = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["id"]
        answer = json.dumps({"id": number, "outputs": [{"name": "label", "data": ["a"]}]}).encode()
        self.send_response(200 if number in self.numbers else 500)
        self.numbers.add(number)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments: object) -> None:
        pass


def test_a_failed_request_is_sent_again(tmp_path: Path) -> None:
    (tmp_path / "tensors").write_text('{"name": "image"}\n')
    with ThreadingHTTPServer(("127.0.0.1", 0), FailingHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = {"port": server.server_address[1], "model": "m", "tensors": tmp_path / "tensors", "seconds": 0.5}
        rows = asyncio.run(tracked_load.generate(argparse.Namespace(**options, rate=40.0, seed=0)))
        server.shutdown()
    assert len(rows) > 3
    for number, entry in enumerate(rows):
        assert (entry["id"], entry["label"], len(entry["failures"]), entry["answers"]) == (number, "a", 1, 1)
        assert entry["sent"] < entry["failures"][0][0] < entry["answered"]
