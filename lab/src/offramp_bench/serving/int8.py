"""Measure models tuned on INT8: their speed beside the full network in INT8, and their accuracy beside float32 exits.

    python -m offramp_bench.serving.int8 [--check] [--network cascade banking77]

Speeds are whole runs in turns with the full network on the same backend, on one core. Efficiency is the relative cost
times the speed: 1 if exits save as large a share of time as of Mul-Adds. Accuracy is compared on test, at points of
the same cost.
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
"""Efficiency of single samples in float32 under ONNX Runtime, at least."""
POINTS_LOST = 0.005
"""Accuracy that INT8 may lose against float32 exits of the same cost."""
TIMED = 256
"""Samples that speeds are measured on, drawn from all test samples, which are sorted by class."""


def measure_speed(model: EarlyExitModel, backend: str, inputs: Any) -> dict[str, Any]:
    """Return the speed of a model over that of its full network, by batch size."""
    table = measure_backends(model, inputs, batch_sizes=BATCH_SIZES, progress=False)
    cost = float(model.predict(inputs).relative_cost.mean())
    return {
        str(row.batch_size): {
            "speedup": row.speedup,
            "least": row.full_ms / row.most_ms,
            "most": row.full_ms / row.least_ms,
            "relative cost": cost,
            "efficiency": row.speedup * cost,
        }
        for row in table.runs
        if row.backend == backend and row.exits == len(model.point.active)
    }


def run(model: EarlyExitModel, inputs: Any, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a boolean per sample, true if the model answers correctly, and the relative costs."""
    answers = [model.predict(inputs[start : start + 64]) for start in range(0, len(labels), 64)]
    predictions = torch.cat([answer.labels for answer in answers]).numpy()
    return predictions == labels, torch.cat([answer.relative_cost for answer in answers]).numpy()


def measure(network: str) -> dict[str, Any]:
    """Measure one network."""
    served = NETWORKS[network]
    model = served.frontier()
    with TemporaryDirectory() as folder:
        tuned = model.with_backend("int8", served.validation(), store=Path(folder), progress=False)
    say(f"{network}: tuned on INT8")
    model = model.at(max_drop=served.max_drop, policy="threshold")
    inputs, labels = read_all(served.test())
    correct, costs = run(model, inputs, labels)
    int8_correct, int8_costs = run(tuned.at(cost=model.point.tune_metrics["cost"], policy="threshold"), inputs, labels)
    change = int8_correct.astype(float) - correct.astype(float)
    say(f"{network}: accuracy {correct.mean():.4f}, INT8 {int8_correct.mean():.4f}")
    guaranteed = tuned.at(max_drop=served.max_drop, policy="threshold")
    (row,) = guaranteed.evaluate(served.test(), progress=False).rows
    speed_inputs = inputs[np.random.default_rng(0).choice(len(labels), TIMED, replace=False)]
    return {
        "max_drop": served.max_drop,
        "accuracy": {"float32": float(correct.mean()), "int8": float(int8_correct.mean())},
        "relative cost": {"float32": float(costs.mean()), "int8": float(int8_costs.mean())},
        "change": {"mean": float(change.mean()), "half width": 1.96 * float(change.std()) / len(change) ** 0.5},
        "guaranteed in int8": {
            "relative cost": row.relative_cost,
            "change from the full network": row.change,
            "interval": row.change_interval,
        },
        "int8": measure_speed(guaranteed, "int8", speed_inputs),
        "float32": measure_speed(model, "onnx", speed_inputs),
    }


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--network", nargs="+", default=["cascade", "banking77"], choices=list(NETWORKS))
    arguments = options.parse_args()
    torch.set_num_threads(1)
    figures: dict[str, Any] = {"processor": processor_name()}
    bars: list[Bar] = []
    for network in arguments.network:
        results = figures[network] = measure(network)
        bars += [
            Bar(f"{network}: time over the full network's in INT8, batch {size}", 1 / speed["speedup"], 1 / least)
            for size, least in SPEEDUPS.items()
            for speed in [results["int8"][str(size)]]
        ]
        bars += [
            Bar(
                f"{network}: time not saved at batch 1, float32",
                1 - results["float32"]["1"]["efficiency"],
                1 - EFFICIENCY,
            ),
            Bar(f"{network}: accuracy lost by INT8", -results["change"]["mean"], POINTS_LOST),
        ]
    return report(figures, bars, check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
