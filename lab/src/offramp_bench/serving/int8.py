"""Measure models tuned on INT8: their speed beside the full network in INT8, and their accuracy beside float32 exits.

    python -m offramp_bench.serving.int8 [--check] [--network cascade banking77]

Speeds are whole runs in turns with the full network on the same backend, on one core. Efficiency is the relative cost
times the speed: 1 if time were saved as Mul-Adds are. Accuracy is compared on test, at points of the same cost.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

import offramp_bench.torchvision_ops  # noqa: F401 (before transformers loads a model)
from offramp.model._backend_times import measure_backends
from offramp.model._model import EarlyExitModel
from offramp.runtime._processor import processor_name
from offramp_bench.bars import Bar, parser, report, say
from offramp_bench.serving.networks import NETWORKS, read_all

BATCH_SIZES = (1, 64)
SPEEDUPS = {1: 1.5, 64: 1.8}
"""Times the full network's speed in INT8, at least."""
EFFICIENCY = 0.80
"""Of single samples in float32 under ONNX Runtime, at least."""
POINTS_LOST = 0.005
"""Accuracy that INT8 may lose against float32 exits of the same cost."""
TIMED = 256
"""Samples that speeds are measured on, drawn from all test samples, which are sorted by class."""


def measure_speed(model: EarlyExitModel, backend: str, inputs: Any) -> dict[str, Any]:
    """Return the speed of a model over that of its full network, by batch size."""
    table = measure_backends(model, inputs, batch_sizes=BATCH_SIZES, progress=False)
    cost = float(model.predict(inputs).relative_cost.mean())
    return {
        str(one.batch_size): {
            "speedup": one.speedup,
            "least": one.full_ms / one.most_ms,
            "most": one.full_ms / one.least_ms,
            "relative cost": cost,
            "efficiency": one.speedup * cost,
        }
        for one in table.runs
        if one.backend == backend and one.exits == len(model.point.active)
    }


def run(model: EarlyExitModel, inputs: Any, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which samples a model answers correctly, and their relative costs."""
    answers = [model.predict(inputs[start : start + 64]) for start in range(0, len(labels), 64)]
    given = torch.cat([answer.labels for answer in answers]).numpy()
    return given == labels, torch.cat([answer.relative_cost for answer in answers]).numpy()


def measure(network: str) -> dict[str, Any]:
    """Return the figures of one network."""
    served = NETWORKS[network]
    model = served.frontier()
    with TemporaryDirectory() as folder:
        tuned = model.with_backend("int8", served.validation(), store=Path(folder), progress=False)
    say(f"{network}: tuned on INT8")
    asked = model.at(max_drop=served.max_drop, policy="threshold")
    inputs, labels = read_all(served.test())
    right, spent = run(asked, inputs, labels)
    own_right, own_spent = run(tuned.at(cost=asked.point.tune_metrics["cost"], policy="threshold"), inputs, labels)
    change = own_right.astype(float) - right.astype(float)
    say(f"{network}: accuracy {right.mean():.4f}, INT8 {own_right.mean():.4f}")
    guaranteed = tuned.at(max_drop=served.max_drop, policy="threshold")
    (measured,) = guaranteed.evaluate(served.test(), progress=False).rows
    timed = inputs[np.random.default_rng(0).choice(len(labels), TIMED, replace=False)]
    return {
        "max_drop": served.max_drop,
        "accuracy": {"float32": float(right.mean()), "int8": float(own_right.mean())},
        "relative cost": {"float32": float(spent.mean()), "int8": float(own_spent.mean())},
        "change": {"mean": float(change.mean()), "half width": 1.96 * float(change.std()) / len(change) ** 0.5},
        "guaranteed in int8": {
            "relative cost": measured.relative_cost,
            "change from the full network": measured.change,
            "interval": measured.change_interval,
        },
        "int8": measure_speed(guaranteed, "int8", timed),
        "float32": measure_speed(asked, "onnx", timed),
    }


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--network", nargs="+", default=["cascade", "banking77"], choices=list(NETWORKS))
    arguments = options.parse_args()
    torch.set_num_threads(1)
    figures: dict[str, Any] = {"processor": processor_name()}
    bars: list[Bar] = []
    for network in arguments.network:
        found = figures[network] = measure(network)
        bars += [
            Bar(f"{network}: time over the full network's in INT8, batch {size}", 1 / speed["speedup"], 1 / least)
            for size, least in SPEEDUPS.items()
            for speed in [found["int8"][str(size)]]
        ]
        bars += [
            Bar(
                f"{network}: time not saved at batch 1, float32",
                1 - found["float32"]["1"]["efficiency"],
                1 - EFFICIENCY,
            ),
            Bar(f"{network}: accuracy lost by INT8", -found["change"]["mean"], POINTS_LOST),
        ]
    return report(figures, bars, check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
