"""Results as the benchmark of the paper prints them, of curves in closed form."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from offramp_bench.paper.observations import observations

TASKS = {
    "cifar10": ("image", None, 0.937, 10, 0.12),
    "cifar10-cascade": ("image", "cifar10", 0.937, 10, 0.12),
    "cifar100": ("image", None, 0.69, 100, 0.08),
    "cifar100lt": ("image", None, 0.42, 100, 0.08),
    "svhn": ("image", None, 0.93, 10, 0.08),
    "cifar10-t2t": ("image", None, 0.81, 10, 0.2),
    "clinc150": ("text", None, 0.961, 150, 0.02),
    "banking77": ("text", None, 0.933, 77, 0.02),
    "superpixels": ("graph", None, 0.9, 10, 0.15),
    "nci1": ("graph", None, 0.8, 2, 0.2),
}
"""Kind, cascade of, full accuracy, classes, cost of the first exit."""

SPEEDS = {
    "offramp": ("default", 9.0),
    "JEI-DNN": ("paper", 5.0),
    "threshold": ("paper", 5.2),
    "entropy": ("rival", 5.0),
    "margin": ("rival", 5.1),
    "geometric (MSDNet)": ("rival", 4.8),
    "BoostedNet": ("rival", 4.2),
    "L2W-DEN": ("rival", 4.4),
    "DiffBranch": ("rival", 2.5),
    "PTEENet": ("rival", 3.0),
    "EENet": ("rival", 4.6),
    "ZTW": ("rival", 5.8),
    "patience (PABEE)": ("rival", 3.8),
    "optimal stopping": ("rival", 5.3),
    "fixed classifiers": ("ablation", 4.7),
    "JEI-DNN's classifiers, threshold": ("ablation", 5.1),
    "rescaled": ("ablation", 5.0),
    "plain": ("ablation", 4.9),
    "full": ("ablation", 4.95),
    "exit if min": ("ablation", 4.98),
    "no imbalance weights": ("ablation", 4.5),
    "offramp's exits, threshold": ("policy", 8.8),
    "offramp's exits, gates": ("policy", 8.6),
    "offramp's exits, stopping": ("policy", 9.1),
    "linear exits, offramp's look": ("exits", 6.5),
    "ladder, paper's look": ("exits", 7.5),
    "cascade of full networks": ("rival", 7.0),
}
"""Kind, and how fast accuracy rises with cost."""

ON_LINEAR = ("threshold", "entropy", "margin", "geometric (MSDNet)", "EENet", "patience (PABEE)", "optimal stopping")
"""Rules on the same exits, which are fitted once."""

ON_CASCADES = ("offramp", "offramp's exits, threshold", "offramp's exits, gates", "cascade of full networks")


def accuracy_at(costs: Any, full: float, classes: int, first: float, speed: float) -> Any:
    """Rises from a half of the full accuracy at the first exit to all of it."""
    chance = max(1 / classes, 0.5 * full)
    return full - (full - chance) * np.exp(-speed * (np.asarray(costs) - first) * 1.5)


def contestant(name: str, task: str) -> dict[str, Any]:
    """One row of a task."""
    kind, speed = SPEEDS[name]
    _, alone, full, classes, first = TASKS[task]
    speed *= 1.6 if alone else 1.0
    costs = np.geomspace(first, 1.02, 24)
    accuracy = accuracy_at(costs, full, classes, first, speed)
    ours = accuracy_at(costs, full, classes, first, SPEEDS["offramp"][1] * (1.6 if alone else 1.0))
    ece = 0.01 + 0.1 * (full - accuracy) + 0.01 / speed
    sets = 1 + (classes - 1) * 0.06 * (full - accuracy + 0.05)
    coverage = 0.95 - 0.01 * np.cos(6 * costs + speed)
    early = np.clip(0.9 - costs - 0.05 * speed, 0, 1)
    below = float((ours - accuracy).mean())

    def least(wanted: float) -> float | None:
        reached = np.flatnonzero(accuracy >= wanted)
        return float(costs[reached[0]]) if len(reached) else None

    return {
        "kind": kind,
        "area": float(accuracy.mean()),
        "areas": [float(accuracy.mean()) + shift for shift in (-0.001, 0.0, 0.001)],
        "cost at full": least(full - 0.001),
        "cost at full - .5": least(full - 0.005),
        "curve": np.stack([costs, accuracy, ece, sets, coverage, early], 1).round(4).tolist(),
        "CPU seconds": 75.0 if name == "JEI-DNN" else 50.0 if name in ON_LINEAR else 40 + 3 * speed,
        "parameters": int(1000 * classes + (50 if name in ("JEI-DNN", "full") else 0)),
        "below default": below,
        "interval": [below - 0.004, below + 0.004],
        "exit accuracy": accuracy_at(np.linspace(first, 1, 8), full, classes, first, 3.0).tolist(),
    }


def decomposed(task: str, weight: float, exits: int = 8, samples: int = 6000) -> dict[str, Any]:
    """The paper's gates at a cost weight: the dearer compute is, the earlier samples leave."""
    _, _, full, classes, first = TASKS[task]
    middle = (exits - 1) / (1 + weight)
    shares = np.exp(-0.5 * ((np.arange(exits) - middle) / 1.3) ** 2)
    shares[np.abs(np.arange(exits) - middle) > 3] = 0
    leave = np.floor(samples * shares / shares.sum()).astype(int)
    leave[leave.argmax()] += samples - leave.sum()
    everyone = accuracy_at(np.linspace(first, 1, exits), full, classes, first, 3.0)
    rows = []
    for place in range(exits):
        count, hit = int(leave[place]), float(min(0.99, everyone[place] + 0.08 - 0.02 * place))
        rows.append(
            {
                "leave": count,
                "accuracy": hit if count else None,
                "accuracy of all": float(everyone[place]),
                "accuracy at the end": min(1.0, hit + 0.01) if count else None,
                "ece": 0.06 - 0.005 * place if count >= 50 else None,
            }
        )
    requested = [0.98, 0.95, 0.9, 0.85, 0.8]
    covered = {
        variant: [share + off for share in requested]
        for variant, off in (("general", 0.002), ("per_exit", 0.012), ("strict", -0.01), ("gated", -0.004))
    }
    return {
        "cost weight": weight,
        "cost": 0.9 - 0.2 * weight,
        "accuracy": full - 0.01 * weight,
        "ece": 0.02,
        "exits": rows,
        "requested": requested,
        "covered": covered,
    }


def task(name: str) -> dict[str, Any]:
    """One task with all that compete on it."""
    kind, alone, full, _, first = TASKS[name]
    names = ON_CASCADES if alone else [one for one in SPEEDS if one != "cascade of full networks"]
    rows = {one: contestant(one, name) for one in names}
    if name == "cifar10":
        for layers, cost, right in ((20, 0.32, 0.918), (32, 0.55, 0.925), (44, 0.77, 0.93)):
            static = {"kind": "static", "area": 0.6, "curve": [[cost, right]], "parameters": 0}
            rows[f"ResNet-{layers}"] = {**static, "below default": 0.2, "interval": [0.19, 0.21]}
    epochs = [["warmup", 3.0], ["warmup", 2.0]]
    return {
        "kind": kind,
        "alone": alone,
        "network": None,
        "test": 6000,
        "full accuracy": full,
        "oracle": {"accuracy": 0.99, "cost": 0.3},
        "axis from": first,
        "exit accuracy": [0.5, full],
        "contestants": rows,
        "decomposition": None if alone else [decomposed(name, weight) for weight in (0.1, 0.5, 2.0)],
        "epochs": {
            one: None
            if alone
            else epochs + [["joint", 1.0, *(0.5 + 0.4 * np.exp(-rate * e) + w for w in (0, 0.1))] for e in range(10)]
            for one, rate in (("weighted", 1.0), ("full", 0.4))
        },
    }


def content(*names: str) -> dict[str, Any]:
    """What the file holds, of some tasks or of all; as JSON gives it back."""
    tasks = {name: task(name) for name in names or TASKS}
    bars = [
        {"name": "BoostedNet: points above the default on its best task", "figure": -1.2, "at_most": 0.0, "held": True},
        {"name": "tasks short of 5 with 15 % less cost at half a point lost", "figure": 1, "at_most": 0, "held": False},
    ]
    told = {"tasks": tasks, "bars": bars, "held": False, "observations": observations(tasks)}
    plain: dict[str, Any] = json.loads(json.dumps(told))
    return plain


def write(path: Path, *names: str) -> Path:
    """The file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content(*names)))
    return path
