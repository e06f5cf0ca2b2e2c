"""The example for LitServe, run as it stands."""

import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.model.examples import images
from tests.serve.examples import model

EXAMPLE = Path(__file__).parents[2] / "examples" / "litserve_server.py"


def fetch(address: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return response.read()


def test_network_and_exits_are_on_the_device(tmp_path: Path) -> None:
    model().save(tmp_path / "shapes", weights=True)
    served = runpy.run_path(str(EXAMPLE))["EarlyExitAPI"](str(tmp_path / "shapes"))
    served.setup("meta")
    parts = [*served._model.backbone.parameters(), *served._model.exits.parameters()]
    assert {part.device.type for part in parts} == {"meta"}


@pytest.mark.slow
def test_answers_are_those_of_predict(tmp_path: Path) -> None:
    model().save(tmp_path / "shapes", weights=True)
    with socket.create_server(("127.0.0.1", 0)) as place:
        address = f"http://127.0.0.1:{place.getsockname()[1]}"
    line = [sys.executable, str(EXAMPLE), str(tmp_path / "shapes")]
    # A session of its own: LitServe's workers outlive a SIGTERM to their parent.
    server = subprocess.Popen([*line, address.rpartition(":")[2]], cwd=tmp_path, start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while True:
            assert server.poll() is None
            assert time.monotonic() < deadline
            try:
                if fetch(f"{address}/health") == b"ok":
                    break
            except OSError:
                pass
            time.sleep(0.2)
        inputs = images(3, seed=3)[0]
        rows = [json.loads(fetch(f"{address}/predict", {"input": image.tolist()})) for image in inputs]
        assert [row["label"] for row in rows] == list(model().predict(inputs).names)
        assert [row["exit"] for row in rows] == model().predict(inputs).exits.tolist()
        for bad in ({"input": [[[300]]]}, {"input": "a text"}, {"inputs": 1}):
            assert json.loads(fetch(f"{address}/predict", bad))["error"]
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
