"""Results of the tracks and details with known figures."""

from typing import Any

HALF = 0.004
"""Half of every interval."""

NAMES = {
    "JEI": "JEI-DNN",
    "L2W": "L2W-DEN",
    "fixed": "JEI-DNN, fixed classifiers",
    "control": "JEI-DNN, threshold",
    "full": "JEI-DNN, full gradient",
    "if_min": "JEI-DNN, ExitIfMin",
    "plain": "JEI-DNN, plain loss",
    "gates": "linear exits: learned gates",
    "geometric": "linear exits: geometric thresholds (MSDNet)",
    "threshold": "linear exits: threshold",
}
"""Short names of contestants."""


def row(
    accuracy: float,
    *,
    ece: float = 0.02,
    size: float = 2.0,
    coverage: float = 0.95,
    early: float = 0.3,
    exits: tuple[float, ...] = (0.6, 0.8, 0.9),
    seconds: float = 10.0,
    parameters: int = 1000,
) -> dict[str, Any]:
    """Return a contestant whose figures are the same at every cost."""
    described = {"ece": ece, "set size": size, "coverage": coverage, "early": early}
    return {
        "figures": {"mean accuracy": accuracy},
        "uncertainty": [{"cost": cost, **described} for cost in (0.1, 0.4, 1.0)],
        "exit accuracy": list(exits),
        "CPU seconds": seconds,
        "parameters": parameters,
        "settings": {"batch_size": 64},
    }


def task(kind: str = "image", **contestants: dict[str, Any]) -> dict[str, Any]:
    """Return the results of a task; each track's default is compared with all contestants of the track."""
    rows = {NAMES.get(name, name): found for name, found in contestants.items()}
    leads: dict[str, Any] = {"ladder": {}, "linear exits: threshold": {}}
    for name in rows:
        default = "linear exits: threshold" if name.startswith("linear exits") else "ladder"
        if name != default:
            leads[default][name] = {"mean accuracy": [0.0, -HALF, HALF]}
    return {
        "kind": kind,
        "test": 10_000,
        "full accuracy": 0.9,
        "range": {"start": 0.2, "first_exit": 0.1},
        "contestants": rows,
        "leads": leads,
    }


def everybody(**changes: dict[str, Any]) -> dict[str, Any]:
    """Return contestants that bear out every claim, some of them changed."""
    return {
        "JEI": row(0.9, ece=0.01, size=1.5, coverage=0.951, early=0.1, seconds=12),
        "control": row(0.88),
        "fixed": row(0.88),
        "BoostedNet": row(0.87, ece=0.03, coverage=0.94),
        "L2W": row(0.88, ece=0.03, coverage=0.94),
        "linear": row(0.88, ece=0.03, coverage=0.94),
        "DiffBranch": row(0.6),
        "full": row(0.9),
        "if_min": row(0.9),
        "plain": row(0.88),
        "gates": row(0.88),
        "geometric": row(0.86),
        "threshold": row(0.87),
        **changes,
    }


def details(
    *,
    leavers: float = 0.95,
    apart: float = 0.0,
    off: float = 0.0,
    late_error: float = 0.01,
    success: float = 0.97,
    slower: int = 5,
) -> dict[str, Any]:
    """Return details that bear out every claim unless changed.

    Args:
        leavers: Accuracy of those who leave at the much-used exit; the exit has 0.8 on all.
        apart: Coverage by which one conformal variant differs.
        off: Distance of the coverage from the requested one; the baseline's is 0.03.
        late_error: Calibration error of late exits; that of early ones is 0.05.
        success: Least conditional accuracy.
        slower: Epochs that the full gradient takes more.
    """
    requested = [0.95, 0.9]
    rows = [(10, 0.5, 0.6), (70, leavers, 0.8), (20, 0.5, 0.9)]
    exits = [
        {"leave": leave, "accuracy": own, "accuracy of all": on_all, "full network's accuracy": 0.9, "ece": None}
        for leave, own, on_all in rows
    ]

    def sets(distance: float) -> dict[str, list[float]]:
        return {"coverage": [share - distance for share in requested], "size": [1.5, 1.2]}

    def accuracies(epochs: int) -> list[dict[str, list[float]]]:
        return [{"accuracy": [0.9 if epoch >= epochs else 0.5] * 2, "cost": [0.5] * 2} for epoch in range(20)]

    weight = {
        "cost weight": 1.0,
        "exits": exits,
        "sets": {"general": sets(off), "per_exit": sets(off + apart), "strict": sets(off), "gated": sets(off)},
        "baseline": {"sets": {"gated": sets(0.03)}},
    }
    errors = {"before": [0.05, 0.05, late_error, late_error], "after": [0.05, 0.05, late_error, late_error]}
    conditional = {"all": [0.8, 0.85], "right before": [success, 0.98]}
    return {
        "test": 10_000,
        "calibrate": 10_000,
        "full accuracy": 0.9,
        "requested": requested,
        "cost weights": [weight, weight],
        "calibration by depth": {"BoostedNet": errors, "JEI-DNN": errors},
        "accuracy after success": {"JEI-DNN": conditional, "BoostedNet": conditional},
        "convergence": {"JEI-DNN": accuracies(3), "JEI-DNN, full gradient": accuracies(3 + slower)},
    }
