"""Parameters of some points for every policy that is registered, and what there is to see of some samples."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from offramp.policy import Observation, Policy

__all__ = ["at", "drawn", "observed"]


def _gates(points: int, exits: int, classes: int, draw: torch.Generator) -> dict[str, Tensor]:
    return {
        "weight": torch.randn(points, exits, 4, generator=draw),
        "bias": torch.randn(points, exits, generator=draw) - 1,
        "offset": torch.randn(points, generator=draw),
    }


def _eenet(points: int, exits: int, classes: int, draw: torch.Generator) -> dict[str, Tensor]:
    return {
        "class_weight": 0.3 * torch.randn(points, exits, classes, generator=draw),
        "weight": torch.rand(points, exits, 3, generator=draw) * torch.tensor([0.6, 0.3, 0.4]),
        "bias": 0.1 * torch.randn(points, exits, generator=draw),
        "threshold": 0.3 + 0.5 * torch.rand(points, exits, generator=draw),
    }


# A new policy finds its tests here once it says what it takes: `P x L x ...` or `P` numbers.
_DRAWN: dict[str, Callable[[int, int, int, torch.Generator], dict[str, Tensor]]] = {
    "beem": lambda points, exits, classes, draw: {
        "weight": torch.rand(points, exits, generator=draw),
        "threshold": torch.rand(points, generator=draw),
    },
    "branch_gates": _gates,
    "class_precision": lambda points, exits, classes, draw: {
        "threshold": 0.8 * torch.rand(points, exits, classes, generator=draw)
    },
    "eenet": _eenet,
    "entropy": lambda points, exits, classes, draw: {"limit": torch.rand(points, generator=draw)},
    "exit_thresholds": lambda points, exits, classes, draw: {"threshold": torch.rand(points, exits, generator=draw)},
    "gates": _gates,
    "margin": lambda points, exits, classes, draw: {"threshold": 0.7 * torch.rand(points, generator=draw)},
    "patience": lambda points, exits, classes, draw: {"patience": 1.0 + torch.arange(points) % 2},
    "pcee": lambda points, exits, classes, draw: {
        "start": torch.rand(points, exits, 20, generator=draw).sort(-1).values - 0.05,
        "accuracy": torch.rand(points, exits, 20, generator=draw),
        "target": 0.3 + 0.5 * torch.rand(points, generator=draw),
    },
    "sampled_gates": _gates,
    "stopping": lambda points, exits, classes, draw: {
        "weight": 0.5 * torch.randn(points, exits, 8, generator=draw),
        "offset": torch.randn(points, generator=draw) - 0.3,
    },
    "threshold": lambda points, exits, classes, draw: {"threshold": torch.rand(points, generator=draw)},
}


def drawn(name: str, points: int, *, exits: int, classes: int, seed: int = 1) -> dict[str, Tensor]:
    """Parameters of some points, `P x L x ...` for those that differ from exit to exit, else `P`."""
    assert name in _DRAWN, f"add to _DRAWN how parameters of the policy '{name}' are drawn"
    return _DRAWN[name](points, exits, classes, torch.Generator().manual_seed(seed))


def at(policy: Policy, parameters: Mapping[str, Tensor], exit: int) -> dict[str, Tensor]:
    """Each parameter at one exit, its points first."""
    return {name: value[:, exit] if name in policy.per_exit else value for name, value in parameters.items()}


def observed(policy: Policy, count: int, classes: int, *, seed: int, keep: Tensor | None = None) -> Observation:
    """Return an observation with the fields that the policy reads, and no others."""
    draw = torch.Generator().manual_seed(seed)
    everything = {
        "confidence": torch.rand(count, generator=draw),
        "evidence": torch.randn(count, 4, generator=draw),
        "margin": torch.rand(count, generator=draw),
        "noise": torch.rand(count, generator=draw),
        "prediction": torch.randint(classes, (count,), generator=draw),
        "probabilities": (2 * torch.randn(count, classes, generator=draw)).softmax(1),
    }
    kept = {reading: value if keep is None else value[keep] for reading, value in everything.items()}
    return Observation(**{reading: kept[reading] for reading in policy.reads})
