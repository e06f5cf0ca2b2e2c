"""Results of small made-up tasks, as the comparison writes them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from offramp_bench.tracks.yardstick import FIGURES, is_cost

DEFAULTS = {
    "linear exits: threshold": "policy track, on the paper's exits",
    "ladder": "exits track, the paper's features",
}

CONTESTANTS = {
    "linear exits: threshold": ("policy", "linear", "threshold", "rival", 0.80),
    "linear exits: entropy": ("policy", "linear", "entropy", "rival", 0.79),
    "linear exits: learned gates": ("policy", "linear", "gates", "rival", 0.78),
    "ladder": ("exits", "ladder", "threshold", "variant", 0.84),
    "ladder, optimal stopping": ("exits", "ladder", "stopping", "variant", 0.843),
    "JEI-DNN": ("exits", "JEI-DNN", "gates", "paper", 0.80),
    "linear": ("exits", "linear", "threshold", "rival", 0.80),
    "ZTW": ("exits", "ZTW", "threshold", "rival", 0.81),
}
"""Track, training, policy, kind and mean accuracy."""


def figures(mean: float) -> dict[str, float]:
    """Return the seven figures of a contestant: the larger the mean accuracy, the smaller the costs."""
    return {figure: round(1.4 - mean, 4) if is_cost(figure) else mean for figure in FIGURES}


def task(
    name: str = "nci1", *, seeds: int = 5, noise: float = 0.005, means: Mapping[str, float] = {}
) -> dict[str, Any]:
    """Return the results of a task.

    Args:
        name: Name of the task.
        seeds: Number of seeds.
        noise: Half width of the intervals.
        means: Mean accuracies of some contestants, other than usual; a new name is a rival on the exits track.
    """
    rows = CONTESTANTS | {one: ("exits", one, "threshold", "rival", 0.0) for one in means if one not in CONTESTANTS}
    contestants: dict[str, Any] = {}
    for one, (track, training, policy, kind, usual) in rows.items():
        mean = means.get(one, usual)
        contestants[one] = {
            "name": one,
            "track": track,
            "training": training,
            "look": "means",
            "policy": policy,
            "kind": kind,
            "figures": figures(mean),
            "curve": [[cost, mean * (0.8 + 0.2 * cost)] for cost in (0.1, 0.3, 0.5, 0.7, 1.0)],
            "parameters": 1200,
            "share of exits": 0.0123,
            "CPU seconds": 4.5,
            "settings": {"learning_rate": 0.003, "batch_size": 64},
        }
    leads: dict[str, Any] = {}
    for default in DEFAULTS:
        ours = contestants[default]
        leads[default] = {}
        for other, row in contestants.items():
            if row["track"] == ours["track"] and other != default:
                found = {}
                for figure in FIGURES:
                    lead = (-1 if is_cost(figure) else 1) * (ours["figures"][figure] - row["figures"][figure])
                    found[figure] = [lead, lead - noise, lead + noise]
                leads[default][other] = found
    return {
        "task": name,
        "about": "Made-up molecules",
        "seeds": list(range(seeds)),
        "test": 800,
        "full accuracy": 0.85,
        "range": {"start": 0.2, "first_exit": 0.1},
        "figures": list(FIGURES),
        "footings": DEFAULTS,
        "contestants": contestants,
        "leads": leads,
    }


CLAIMS: list[dict[str, Any]] = [
    {
        "name": "1. Joint training",
        "claim": "Training both together is better.",
        "verdict": "does not hold",
        "why": "It is behind on nci1.",
        "figures": [
            {
                "what": "points of mean accuracy above fixed classifiers",
                "by_task": {"nci1": {"figure": -0.5, "noise": 0.2}, "cifar10": {"figure": 0.1, "noise": 0.2}},
                "against": ["nci1"],
                "verdict": "does not hold",
            }
        ],
    }
]


def write(folder: Path, *tasks: dict[str, Any], claims: list[dict[str, Any]] | None = None) -> Path:
    """Write results into a folder and return the folder."""
    (folder / "tracks").mkdir(parents=True, exist_ok=True)
    for place, content in enumerate(tasks or (task(),)):
        (folder / "tracks" / f"{place}.json").write_text(json.dumps(content))
    if claims is not None:
        (folder / "claims.json").write_text(json.dumps(claims))
    return folder
