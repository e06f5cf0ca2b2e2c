"""Processes of a measurement: servers on one core, the load generator on the other."""

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

__all__ = ["COMMAND", "load", "serve", "wait_until_ready", "write_bodies"]

COMMAND = "import offramp_bench.torchvision_ops; from offramp.cli.main import main; main()"
"""The command line, after the operators that transformers needs with this build of torch."""

SERVER_CORE, LOAD_CORE = "0", "1"
READY_S = 300
"""Seconds until a server must be ready."""
END_S = 60
"""Seconds until a server must have ended by itself."""
MOST_BODIES = 3080
"""Largest number of different requests."""


@contextmanager
def serve(
    network: str, side: str, graphs: Path, port: int, *options: str, ready: str = "v2/health/ready"
) -> Iterator[None]:
    """Run a server until the end of the block."""
    line = [sys.executable, "-m", "offramp_bench.serving.server", network, side, str(graphs), str(port), *options]
    _wait_until_free(port)
    process = subprocess.Popen(["taskset", "-c", SERVER_CORE, *line], start_new_session=True)
    try:
        wait_until_ready(process, f"http://127.0.0.1:{port}/{ready}", within_s=READY_S)
        yield
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # LitServe leaves processes behind, which keep the port
        process.wait()


def _wait_until_free(port: int) -> None:
    """Wait until the previous server has released its port; otherwise it would be measured instead of the next one."""
    begin = time.monotonic()
    while True:
        try:
            socket.create_server(("127.0.0.1", port)).close()
            return
        except OSError:
            if time.monotonic() > begin + END_S:
                raise
            time.sleep(0.2)


def wait_until_ready(
    process: "subprocess.Popen[bytes]", url: str, *, within_s: float, read_log: Callable[[], str] = str
) -> None:
    """Wait until a server answers.

    Args:
        process: The server.
        url: Address that it answers once it is ready.
        within_s: Largest number of seconds to wait.
        read_log: Function that returns its log, for the error if it ends.
    """
    begin = time.monotonic()
    while subprocess.run(["curl", "-sf", "-o", "/dev/null", url], check=False).returncode:
        assert process.poll() is None, f"the server before {url} ended with {process.poll()}: {read_log()[-2000:]}"
        assert time.monotonic() < begin + within_s, f"the server before {url} is not ready"
        time.sleep(0.2)


def load(bodies: Path, port: int, seconds: float, **options: float) -> dict[str, Any]:
    """Run the load generator.

    Args:
        bodies: File of requests.
        port: Port of the server.
        seconds: Length of the window.
        options: `rate` per second or `connections`; `seed`; `record` to keep the answers.
    """
    line = [sys.executable, "-m", "offramp_bench.serving.load", str(port), str(bodies), str(seconds)]
    for name, value in options.items():
        line += [f"--{name}", str(value)]
    process = subprocess.run(["taskset", "-c", LOAD_CORE, *line], capture_output=True, text=True, check=True)
    content: dict[str, Any] = json.loads(process.stdout)
    return content


def write_bodies(file: Path, inputs: Any, **settings: float) -> None:
    """Write one request for each input: a text, or an image as a PNG file in base64."""
    rows = [value if isinstance(value, str) else _encode_image(value) for value in inputs[:MOST_BODIES]]
    file.write_text("".join(json.dumps({"inputs": [row], **settings}) + "\n" for row in rows), "utf-8")


def _encode_image(pixels: np.ndarray) -> str:
    file = BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()
