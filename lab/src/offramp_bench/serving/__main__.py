"""Measure servers under load: a model with exits against its full network behind the same server and scheduler.

    python -m offramp_bench.serving [--check] [--network cascade banking77] [--rounds 5] [--seconds 20] [--peer]

Each server is a process on one core, the load generator a process on the other. Windows of the two sides take turns.
Networks run at a point that a guarantee fixed without test rows; requests are test rows. Saturation is what 64
connections get that always have one request open; the held rates are shares of the full network's saturation. "In
time" is ten times the median latency of the full network without load.

With --peer, LitServe with its own batching serves the full network of Banking77, in nine settings. At 80 % of the best
one's saturation it has some p99; the model with exits is given growing multiples of that rate until it has the same.
"""

import sys
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import offramp_bench.torchvision_ops  # noqa: F401 (before transformers loads a model)
from offramp.runtime._processor import processor_name
from offramp_bench.bars import Bar, parser, report, say
from offramp_bench.serving.networks import NETWORKS, SIDES, build, keep_graphs, read_all
from offramp_bench.serving.processes import load, serve, write_bodies

PORTS = {"exits": 8321, "full": 8322, "peer": 8323}
CONNECTIONS = 64
LIGHT, SHARES = 0.1, (0.8, 1.2)
"""Shares of the full network's saturation: without load, and the two that have bars."""
LATENCIES = ("p50_ms", "p99_ms")

SATURATION = {"cascade": 1.7, "banking77": 3.0}
"""Times the full network's saturation, at least."""

PEER_SETTINGS = tuple(product((8, 16, 64), (0.0, 5.0, 20.0)))
"""Batch size and milliseconds that LitServe waits for a batch."""
PEER_RATES = (1.5, 2.0, 2.5, 3.0, 3.5, 4.0)
"""Multiples of the rate that LitServe sustains."""
PEER_BAR = 3.0


def summarise(window: dict[str, Any], *, in_time_s: float | None = None) -> dict[str, float]:
    """Return the figures of one window."""
    latencies = np.array([answer["s"] for answer in window["answers"] if answer["status"] == 200])
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


def measure(network: str, rounds: int, seconds: float) -> dict[str, Any]:
    """Return all windows of one network."""
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
        most = float(np.median([window["served_per_s"] for window in windows["saturation"]["full"]]))
        light = windows["light"] = summarise(load(bodies, PORTS["full"], seconds / 2, rate=LIGHT * most))
        for share in SHARES:
            windows[f"{share:g}"] = {side: [] for side in SIDES}
            for turn in range(rounds):
                for side in SIDES if turn % 2 else SIDES[::-1]:
                    window = load(bodies, PORTS[side], seconds, rate=share * most, seed=turn)
                    figures = summarise(window, in_time_s=light["p50_ms"] / 100)
                    windows[f"{share:g}"][side].append(figures)
                    say(f"{network} at {share:g}, {side}: {figures}")
    return windows


def measure_peer(network: str, seconds: float) -> dict[str, Any]:
    """Return LitServe's best setting before the full network, and the rate at which the exits have its p99."""
    found: dict[str, Any] = {"settings": {}, "rates": {}}
    with ExitStack() as servers:
        folder = Path(servers.enter_context(TemporaryDirectory()))
        inputs, _ = read_all(NETWORKS[network].test())
        bodies = folder / "bodies"
        write_bodies(bodies, inputs)
        graphs = {side: keep_graphs(build(network, side), folder / side) for side in SIDES}

        def peer(setting: tuple[float, float]) -> Any:
            return serve(
                network, "full", graphs["full"], PORTS["peer"], "--litserve", *map(str, setting), ready="health"
            )

        for setting in PEER_SETTINGS:
            with peer(setting):
                load(bodies, PORTS["peer"], 2, connections=CONNECTIONS)
                window = summarise(load(bodies, PORTS["peer"], seconds / 2, connections=CONNECTIONS))
            found["settings"]["{:g} samples, {:g} ms".format(*setting)] = window
            say(f"LitServe, {setting}: {window}")
        rates = [window["served_per_s"] for window in found["settings"].values()]
        sustained = 0.8 * max(rates)
        with peer(PEER_SETTINGS[int(np.argmax(rates))]):
            load(bodies, PORTS["peer"], 2, connections=CONNECTIONS)
            held = found["sustained"] = summarise(load(bodies, PORTS["peer"], seconds, rate=sustained))
        say(f"LitServe at 80 %: {held}")
        found["times"] = 0.0
        with serve(network, "exits", graphs["exits"], PORTS["exits"]):
            for times in PEER_RATES:
                window = summarise(load(bodies, PORTS["exits"], seconds, rate=times * sustained))
                found["rates"][f"{times:g}"] = window
                say(f"exits at {times:g} of it: {window}")
                enough = window["served_per_s"] > 0.97 * times * sustained and window["p99_ms"] <= held["p99_ms"]
                found["times"] = times if enough else found["times"]
    return found


def ratios(windows: dict[str, Any], figure: str) -> dict[str, float]:
    """Return one figure of the exits over that of the full network: median and range over the rounds."""
    pairs = zip(windows["exits"], windows["full"], strict=True)
    single = [own[figure] / full[figure] for own, full in pairs]
    return {"median": float(np.median(single)), "least": min(single), "most": max(single)}


def make_bars(network: str, found: dict[str, Any]) -> list[Bar]:
    """Return what the figures of a network must show."""
    return [
        Bar(
            f"{network}: full network's saturation over ours",
            1 / found["saturation"]["median"],
            1 / SATURATION[network],
        ),
        Bar(
            f"{network}: p50 over the full network's, at 80 % of its saturation", found["p50_ms at 0.8"]["median"], 0.4
        ),
        Bar(
            f"{network}: p99 over the full network's, at 80 % of its saturation", found["p99_ms at 0.8"]["median"], 0.6
        ),
        Bar(f"{network}: p99 over the full network's, at 120 %", found["p99_ms at 1.2"]["median"], 0.25),
        Bar(f"{network}: share of requests not answered in time, at 120 %", 1 - found["in time at 1.2"]["exits"], 0.03),
    ]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--network", nargs="*", default=list(NETWORKS), choices=list(NETWORKS))
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=20.0)
    options.add_argument("--peer", action="store_true")
    arguments = options.parse_args()
    figures: dict[str, Any] = {"processor": processor_name()}
    bars: list[Bar] = []
    for network in arguments.network:
        windows = measure(network, arguments.rounds, arguments.seconds)
        found = {
            "max_drop": NETWORKS[network].max_drop,
            "saturation": ratios(windows["saturation"], "served_per_s"),
            **{f"{name} at {share:g}": ratios(windows[f"{share:g}"], name) for share in SHARES for name in LATENCIES},
            "in time at 1.2": {
                side: float(np.median([window["in_time"] for window in windows["1.2"][side]])) for side in SIDES
            },
        }
        figures[network] = {**found, "windows": windows}
        bars += make_bars(network, found) if network in SATURATION else []
    if arguments.peer:
        peer = figures["peer"] = measure_peer("banking77", arguments.seconds)
        bars.append(Bar("banking77: LitServe's rate over ours", 1 / max(peer["times"], 1e-9), 1 / PEER_BAR))
    return report(figures, bars, check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
