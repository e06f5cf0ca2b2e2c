"""Measure servers under load: a model with exits against its full network behind the same server and scheduler.

    python -m offramp_bench.serving [--check] [--network cascade banking77] [--rounds 5] [--seconds 20]

Each server is a process on one core, the load generator a process on the other. Windows of the two sides take turns.
Networks run at a point that a guarantee fixed without test rows; requests are test rows. Saturation is the rate that 64
connections reach, each with one open request at all times; the other rates are shares of the full network's saturation.
An answer is "in time" within ten times the median latency of the full network without load.
"""

import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import offramp_bench.torchvision_ops  # noqa: F401 (before transformers loads a model)
from offramp.runtime._processor import processor_name
from offramp_bench.bars import Bar, parser, report, say
from offramp_bench.serving.networks import NETWORKS, SIDES, build, keep_graphs, read_all
from offramp_bench.serving.processes import load, serve, write_bodies
from offramp_bench.serving.windows import CONNECTIONS, ratios, summarise

PORTS = {"exits": 8321, "full": 8322}
LIGHT, SHARES = 0.1, (0.8, 1.2)
"""Shares of the full network's saturation: nearly no load, and the two rates with bars."""
LATENCIES = ("p50_ms", "p99_ms")

SATURATION = {"cascade": 1.7, "banking77": 3.0}
"""Times the full network's saturation, at least."""


def measure(network: str, rounds: int, seconds: float) -> dict[str, Any]:
    """Measure all windows of one network."""
    windows: dict[str, Any] = {}
    with ExitStack() as servers:
        folder = Path(servers.enter_context(TemporaryDirectory()))
        inputs, _ = read_all(NETWORKS[network].test())
        bodies = folder / "bodies"
        write_bodies(bodies, inputs)
        windows["request_bytes"] = bodies.stat().st_size / len(bodies.read_text("utf-8").splitlines())
        for side in SIDES:
            say(f"starting {network}, {side}")
            graphs = keep_graphs(build(network, side), folder / side)
            servers.enter_context(serve(network, side, graphs, PORTS[side]))
        windows["saturation"] = {side: [] for side in SIDES}
        for turn in range(rounds):
            for side in SIDES if turn % 2 else SIDES[::-1]:
                window = load(bodies, PORTS[side], seconds / 2, connections=CONNECTIONS, seed=turn)
                windows["saturation"][side].append(summarise(window))
        saturation = float(np.median([window["served_per_s"] for window in windows["saturation"]["full"]]))
        light = windows["light"] = summarise(load(bodies, PORTS["full"], seconds / 2, rate=LIGHT * saturation))
        for share in SHARES:
            windows[f"{share:g}"] = {side: [] for side in SIDES}
            for turn in range(rounds):
                for side in SIDES if turn % 2 else SIDES[::-1]:
                    window = load(bodies, PORTS[side], seconds, rate=share * saturation, seed=turn)
                    figures = summarise(window, in_time_s=light["p50_ms"] / 100)
                    windows[f"{share:g}"][side].append(figures)
                    say(f"{network} at {share:g}, {side}: {figures}")
    return windows


def make_bars(network: str, figures: dict[str, Any]) -> list[Bar]:
    """Return the bars of a network."""
    return [
        Bar(
            f"{network}: full network's saturation over ours",
            1 / figures["saturation"]["median"],
            1 / SATURATION[network],
        ),
        Bar(
            f"{network}: p50 over the full network's, at 80 % of its saturation",
            figures["p50_ms at 0.8"]["median"],
            0.4,
        ),
        Bar(
            f"{network}: p99 over the full network's, at 80 % of its saturation",
            figures["p99_ms at 0.8"]["median"],
            0.6,
        ),
        Bar(f"{network}: p99 over the full network's, at 120 %", figures["p99_ms at 1.2"]["median"], 0.25),
        Bar(
            f"{network}: share of requests not answered in time, at 120 %", 1 - figures["in time at 1.2"]["exits"], 0.03
        ),
    ]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--network", nargs="*", default=list(NETWORKS), choices=list(NETWORKS))
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=20.0)
    arguments = options.parse_args()
    figures: dict[str, Any] = {"processor": processor_name()}
    bars: list[Bar] = []
    for network in arguments.network:
        windows = measure(network, arguments.rounds, arguments.seconds)
        summary = {
            "max_drop": NETWORKS[network].max_drop,
            "saturation": ratios(windows["saturation"], "served_per_s"),
            **{f"{name} at {share:g}": ratios(windows[f"{share:g}"], name) for share in SHARES for name in LATENCIES},
            "in time at 1.2": {
                side: float(np.median([window["in_time"] for window in windows["1.2"][side]])) for side in SIDES
            },
        }
        figures[network] = {**summary, "windows": windows}
        bars += make_bars(network, summary) if network in SATURATION else []
    return report(figures, bars, check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
