"""Measure servers under load: a model with exits against its full network behind the same server and scheduler.

    python -m offramp_bench.serving [--check] [--network cascade banking77] [--rounds 5] [--seconds 20]

Each server is a process on one core, the load generator a process on the other. Windows of the two sides take turns.
Both networks run at a point that a guarantee of 1 % fixed without test rows; requests are test rows. Saturation is what
64 connections get that always have one request open; the held rates are shares of the full network's saturation.
"In time" is ten times the median latency of the full network without load.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import offramp_bench.torchvision_ops  # noqa: F401 (before transformers loads a model)
from offramp.runtime._processor import processor_name
from offramp_bench.bars import Bar, parser, report, say
from offramp_bench.serving.networks import NETWORKS, SIDES

PORTS = {"exits": 8321, "full": 8322}
SERVER_CORE, LOAD_CORE = "0", "1"
LIGHT, SHARES = 0.1, (0.8, 1.2)
"""Shares of the full network's saturation: without load, and the two that have bars."""
READY_S = 900
"""Seconds until a server must be ready: graphs are made at the start."""

SATURATION = {"cascade": 1.7, "banking77": 3.0}
"""Times the full network's saturation, at least."""


@contextmanager
def serve(network: str, side: str, backend: str) -> Iterator[None]:
    """Run a server until it is no longer needed."""
    line = [sys.executable, "-m", "offramp_bench.serving.server", network, side, backend, str(PORTS[side])]
    process = subprocess.Popen(["taskset", "-c", SERVER_CORE, *line])
    try:
        begin = time.monotonic()
        while True:
            assert process.poll() is None, f"the server of {network}, {side}, ended with {process.poll()}"
            assert time.monotonic() < begin + READY_S, "the server is not ready"
            asked = ["curl", "-sf", "-o", "/dev/null", f"http://127.0.0.1:{PORTS[side]}/v2/health/ready"]
            if subprocess.run(asked, check=False).returncode == 0:
                break
            time.sleep(1)
        yield
    finally:
        process.terminate()
        process.wait()


def load(bodies: Path, side: str, seconds: float, *options: str) -> dict[str, Any]:
    """Run the load generator against one side."""
    line = [sys.executable, "-m", "offramp_bench.serving.load", str(PORTS[side]), str(bodies), str(seconds), *options]
    ran = subprocess.run(["taskset", "-c", LOAD_CORE, *line], capture_output=True, text=True, check=True)
    content: dict[str, Any] = json.loads(ran.stdout)
    return content


def summarise(window: dict[str, Any], *, in_time_s: float | None = None) -> dict[str, float]:
    """Return the figures of one window."""
    latencies = np.array([seconds for status, seconds in window["answers"] if status == 200])
    sent = len(window["answers"])
    figures = {
        "sent": sent,
        "served_per_s": len(latencies) / window["seconds"],
        "p50_ms": 1000 * float(np.median(latencies)),
        "p99_ms": 1000 * float(np.quantile(latencies, 0.99)),
    }
    if in_time_s is not None:
        figures["in_time"] = float((latencies <= in_time_s).sum()) / sent
    return figures


def measure(network: str, backend: str, rounds: int, seconds: float) -> dict[str, Any]:
    """Return all windows of one network."""
    windows: dict[str, Any] = {}
    with ExitStack() as servers:
        bodies = Path(servers.enter_context(TemporaryDirectory())) / "bodies"
        rows = NETWORKS[network].rows()
        bodies.write_text("".join(json.dumps({"inputs": [row]}) + "\n" for row in rows), "utf-8")
        windows["request_bytes"] = bodies.stat().st_size / len(rows)
        for side in SIDES:
            say(f"starting {network}, {side}")
            servers.enter_context(serve(network, side, backend))
        windows["saturation"] = {side: [] for side in SIDES}
        for turn in range(rounds):
            for side in SIDES if turn % 2 else SIDES[::-1]:
                window = load(bodies, side, seconds / 2, "--connections", "64", "--seed", str(turn))
                windows["saturation"][side].append(summarise(window))
        most = float(np.median([window["served_per_s"] for window in windows["saturation"]["full"]]))
        light = summarise(load(bodies, "full", seconds / 2, "--rate", str(LIGHT * most)))
        windows["light"] = light
        for share in SHARES:
            windows[f"{share:g}"] = {side: [] for side in SIDES}
            for turn in range(rounds):
                for side in SIDES if turn % 2 else SIDES[::-1]:
                    window = load(bodies, side, seconds, "--rate", str(share * most), "--seed", str(turn))
                    figures = summarise(window, in_time_s=light["p50_ms"] / 100)
                    windows[f"{share:g}"][side].append(figures)
                    say(f"{network} at {share:g}, {side}: {figures}")
    return windows


def ratios(windows: dict[str, Any], figure: str) -> dict[str, float]:
    """Return one figure of the exits over that of the full network: median and range over the rounds."""
    pairs = zip(windows["exits"], windows["full"], strict=True)
    single = [own[figure] / full[figure] for own, full in pairs]
    return {"median": float(np.median(single)), "least": min(single), "most": max(single)}


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--network", nargs="+", default=list(NETWORKS), choices=list(NETWORKS))
    options.add_argument("--backend", default="onnx", choices=["eager", "onnx"])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=20.0)
    arguments = options.parse_args()
    figures: dict[str, Any] = {"processor": processor_name(), "backend": arguments.backend}
    bars: list[Bar] = []
    for network in arguments.network:
        windows = measure(network, arguments.backend, arguments.rounds, arguments.seconds)
        found = {
            "saturation": ratios(windows["saturation"], "served_per_s"),
            **{f"{name} at {share:g}": ratios(windows[f"{share:g}"], name) for share in SHARES for name in LATENCIES},
            "in time at 1.2": {
                side: float(np.median([window["in_time"] for window in windows["1.2"][side]])) for side in SIDES
            },
        }
        figures[network] = {**found, "windows": windows}
        bars += [
            Bar(
                f"{network}: full network's saturation over ours",
                1 / found["saturation"]["median"],
                1 / SATURATION[network],
            ),
            Bar(f"{network}: p50 at 80 %", found["p50_ms at 0.8"]["median"], 0.4),
            Bar(f"{network}: p99 at 80 %", found["p99_ms at 0.8"]["median"], 0.6),
            Bar(f"{network}: p99 at 120 %", found["p99_ms at 1.2"]["median"], 0.25),
            Bar(f"{network}: not in time at 120 %", 1 - found["in time at 1.2"]["exits"], 0.03),
        ]
    return report(figures, bars, check=arguments.check)


LATENCIES = ("p50_ms", "p99_ms")


if __name__ == "__main__":
    sys.exit(main())
