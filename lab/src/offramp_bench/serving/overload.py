"""Measure a server with twice the load that it can answer: lost and refused requests, drop of accuracy, recovery.

    python -m offramp_bench.serving.overload [--check] [--seconds 60]

MiniLM on Banking77. Without overload a drop of 1 % is guaranteed, under overload 2 %. Requests are test rows with a
deadline. After the burst, a light load shows when the normal point is in force again. Each answer is compared with that
of `predict` at the point that it names.
"""

import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import offramp_bench.torchvision_ops  # noqa: F401 (before transformers loads a model)
from offramp.model._model import EarlyExitModel
from offramp.runtime._processor import processor_name
from offramp_bench.bars import Bar, parser, report, say
from offramp_bench.serving.networks import NETWORKS, build, keep_graphs, read_all
from offramp_bench.serving.processes import load, serve, write_bodies

NETWORK, FLOOR_DROP, PORT = "banking77-strict", 0.02, 8324
DEADLINE_MS = 2_000.0
LIGHT_PER_S, AFTER_S = 20.0, 15.0
"""Load after the burst."""
BATCH = CONNECTIONS = 64


def labels_of(model: EarlyExitModel, inputs: Any) -> np.ndarray:
    """Return the predicted classes of all inputs."""
    parts = [model.predict(inputs[start : start + BATCH]) for start in range(0, len(inputs), BATCH)]
    return np.concatenate([part.labels.numpy() for part in parts])


def drop_bound(answered: list[dict[str, Any]], right: dict[int, bool], full_right: np.ndarray) -> dict[str, float]:
    """Return the drop of accuracy over a burst, with its upper 95 % bound; answers to the same row count as dependent.

    Args:
        answered: Answers with status 200.
        right: For each index of `answered`, true if the answer is right.
        full_right: For each row, true if the full network is right.
    """
    lost: dict[int, list[float]] = {}
    for index, answer in enumerate(answered):
        lost.setdefault(answer["row"], []).append(float(full_right[answer["row"]]) - float(right[index]))
    # The mean over requests is a ratio of sums over rows.
    sums, counts = np.array([sum(row) for row in lost.values()]), np.array([len(row) for row in lost.values()])
    mean = sums.sum() / counts.sum()
    deviation = np.sqrt(((sums - mean * counts) ** 2).sum()) / counts.sum()
    return {"mean": float(mean), "upper": float(mean + 1.645 * deviation)}


def measure(seconds: float) -> dict[str, Any]:
    """Measure a burst."""
    inputs, labels = read_all(NETWORKS[NETWORK].test())
    model, full = build(NETWORK, "exits"), build(NETWORK, "full")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        bodies = folder / "bodies"
        write_bodies(bodies, inputs, deadline_ms=DEADLINE_MS)
        graphs = keep_graphs(model, folder / "graphs")
        with serve(NETWORK, "exits", graphs, PORT):
            full_load = load(bodies, PORT, 15, connections=CONNECTIONS)
        saturation = len(full_load["answers"]) / full_load["seconds"]
        say(f"saturation at the normal point: {saturation:.0f} requests per second")
        stack.enter_context(serve(NETWORK, "exits", graphs, PORT, "--overload-drop", str(FLOOR_DROP)))
        burst = load(bodies, PORT, seconds, rate=2 * saturation, record=1)
        after = load(bodies, PORT, AFTER_S, rate=LIGHT_PER_S, seed=1, record=1)
    answered = [answer for answer in burst["answers"] if answer["status"] == 200]
    statuses = [answer["status"] for answer in burst["answers"]]
    costs = sorted({answer["content"]["point"]["cost"] for answer in answered})
    say(f"{len(statuses):,} sent, {len(answered):,} answered, at points of {len(costs)} costs")
    by_cost = {cost: labels_of(at_cost(model, cost), inputs) for cost in costs}
    predictions = [answer["content"]["predictions"][0]["label"] for answer in answered]
    expected = [by_cost[answer["content"]["point"]["cost"]][answer["row"]] for answer in answered]
    right = {index: label == labels[answered[index]["row"]] for index, label in enumerate(predictions)}
    normal = model.point.tune_metrics["cost"]
    served = [answer for answer in after["answers"] if answer["status"] == 200]
    lowered_s = [answer["at_s"] for answer in served if answer["content"]["point"]["cost"] != normal]
    accepted = [answer for answer in burst["answers"] if answer["status"] in (200, 504)]
    in_time = [answer for answer in answered if answer["s"] <= DEADLINE_MS / 1000]
    return {
        "saturation_per_s": saturation,
        "sent": len(statuses),
        "statuses": {str(status): statuses.count(status) for status in sorted(set(statuses))},
        "lost": sum(status not in (200, 503, 504) for status in statuses),
        "not as predict": float(np.mean(np.array(predictions) != np.array(expected))),
        "in time": len(in_time) / len(accepted),
        "drop": drop_bound(answered, right, labels_of(full, inputs) == labels),
        "points": {
            f"{cost:g}": sum(answer["content"]["point"]["cost"] == cost for answer in answered) for cost in costs
        },
        "recovered_s": max(lowered_s, default=0.0),
        "failed after": len(after["answers"]) - len(served),
    }


def at_cost(model: EarlyExitModel, cost: float) -> EarlyExitModel:
    """Return the model at the point with a given cost on tune."""
    point = next(point for point in model.engine.points.points if point.tune_metrics["cost"] == cost)
    return replace(model, chosen=point)


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--seconds", type=float, default=60.0)
    arguments = options.parse_args()
    figures = measure(arguments.seconds)
    bars = [
        Bar("requests without an answer or a refusal", figures["lost"], 0),
        Bar("answers that predict does not give", figures["not as predict"], 0.001),
        Bar("accepted requests that missed their deadline", 1 - figures["in time"], 0.01),
        Bar("upper bound of the drop over the burst", figures["drop"]["upper"], FLOOR_DROP),
        Bar("seconds until the normal point is in force again", figures["recovered_s"], 10.0),
    ]
    return report({"processor": processor_name(), **figures}, bars, check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
