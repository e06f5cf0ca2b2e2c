"""Measure LitServe before a full network against `offramp serve` with exits.

    python -m offramp_bench.serving.peer [--check] [--rounds 3] [--seconds 20]

LitServe serves the full network of Banking77 with its own dynamic batching, in nine settings of batch size and
time-out. The p99 of the setting with the highest saturation is measured at 80 % of that rate. The model with exits, at
a point that a guarantee fixed without test rows, gets increasing multiples of the same rate; windows of both take
turns. Servers run on one core, the load generator on the other.
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
from offramp_bench.serving.windows import CONNECTIONS, summarise

NETWORK = "banking77"
OUR_PORT, PEER_PORT = 8321, 8323

SETTINGS = tuple(product((8, 16, 64), (0.0, 5.0, 20.0)))
"""Batch size and milliseconds that LitServe waits for a batch."""
SHARE = 0.8
"""Share of its saturation that LitServe gets."""
RATES = (2.0, 2.5, 3.0, 3.5, 4.0)
"""Multiples of the rate that LitServe sustains."""
SERVED = 0.97
"""Share of the requests that must be answered."""
TIMES = 3.0
"""Multiple that the model with exits must reach."""
WARM_UP_S = 2


def measure(rounds: int, seconds: float) -> dict[str, Any]:
    """Measure LitServe's settings, and the windows of both sides.

    Args:
        rounds: Windows of each kind.
        seconds: Length of a window.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        inputs, _ = read_all(NETWORKS[NETWORK].test())
        bodies = folder / "bodies"
        write_bodies(bodies, inputs)
        graphs = {side: keep_graphs(build(NETWORK, side), folder / side) for side in SIDES}

        def start(servers: ExitStack, setting: tuple[float, float]) -> None:
            options = ("--litserve", *map(str, setting))
            servers.enter_context(serve(NETWORK, "full", graphs["full"], PEER_PORT, *options, ready="health"))
            load(bodies, PEER_PORT, WARM_UP_S, connections=CONNECTIONS)

        saturation = []
        for setting in SETTINGS:
            with ExitStack() as servers:
                start(servers, setting)
                saturation.append(summarise(load(bodies, PEER_PORT, seconds / 2, connections=CONNECTIONS)))
            say(f"LitServe, {setting}: {saturation[-1]}")
        best = int(np.argmax([window["served_per_s"] for window in saturation]))
        rate = SHARE * saturation[best]["served_per_s"]
        windows: dict[str, list[dict[str, float]]] = {"peer": [], **{f"{times:g}": [] for times in RATES}}
        start(stack, SETTINGS[best])
        stack.enter_context(serve(NETWORK, "exits", graphs["exits"], OUR_PORT))
        load(bodies, OUR_PORT, WARM_UP_S, connections=CONNECTIONS)
        for turn in range(rounds):
            windows["peer"].append(summarise(load(bodies, PEER_PORT, seconds, rate=rate, seed=turn)))
            for times in RATES:
                windows[f"{times:g}"].append(summarise(load(bodies, OUR_PORT, seconds, rate=times * rate, seed=turn)))
            say(f"round {turn}: { {name: rows[-1] for name, rows in windows.items()} }")
    settings = {
        f"{size} samples, {wait_ms:g} ms": row for (size, wait_ms), row in zip(SETTINGS, saturation, strict=True)
    }
    return {"settings": settings, "rate": rate, "windows": windows, "times": sustained_times(windows, rate)}


def sustained_times(windows: dict[str, list[dict[str, float]]], rate: float) -> float:
    """Return the largest multiple of a rate at which the exits have at most LitServe's p99; 0 if there is none.

    Medians over the rounds decide.

    Args:
        windows: Figures of the windows: of "peer", and of each multiple by its number.
        rate: Requests per second of LitServe.
    """
    p99_ms = float(np.median([window["p99_ms"] for window in windows["peer"]]))
    multiples = [0.0]
    for name, rows in windows.items():
        if name == "peer":
            continue
        served = float(np.median([row["served_per_s"] for row in rows]))
        if served >= SERVED * float(name) * rate and float(np.median([row["p99_ms"] for row in rows])) <= p99_ms:
            multiples.append(float(name))
    return max(multiples)


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=float, default=20.0)
    arguments = options.parse_args()
    figures = measure(arguments.rounds, arguments.seconds)
    bars = [Bar("banking77: LitServe's rate over ours, at its p99", 1 / max(figures["times"], 1e-9), 1 / TIMES)]
    return report({"processor": processor_name(), **figures}, bars, check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
