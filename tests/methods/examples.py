"""Small features whose classes a linear exit can tell apart, better from stage to stage, and what they cost."""

import torch
import torch.nn.functional as F

from offramp.cost._mul_adds import BackboneMulAdds
from offramp.features._batch import MemorySource
from offramp.methods import FittedExits
from offramp.methods._settings import JointSettings

WIDTHS = (4, 6, 8)
QUICK = JointSettings(
    cost_weights=(0.1, 1.0, 3.0), warmup_epochs=1, epochs=1, switch_every=2, batch_size=16, weight_decay=0.0, seed=3
)


def costs(num_stages: int) -> BackboneMulAdds:
    """Stages that cost alike."""
    zero = torch.zeros(1, num_stages, dtype=torch.float64)
    head = zero.clone()
    head[0, -1] = 1e3
    return BackboneMulAdds(zero + 1e4, zero, head, full=torch.tensor([1e4 * num_stages + 1e3], dtype=torch.float64))


COSTS = costs(3)


def clusters(
    num_samples: int = 200,
    *,
    widths: tuple[int, ...] = WIDTHS,
    num_classes: int = 3,
    own_heads: tuple[int, ...] = (),
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> MemorySource:
    """Classes whose features get clearer from stage to stage; the own heads, the last one first, are nearly right."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, num_classes, (num_samples,), generator=draw)
    centers = torch.randn(num_classes, sum(widths), generator=torch.Generator().manual_seed(99))
    noise = torch.cat([torch.full((width,), 2 / 2**stage) for stage, width in enumerate(widths)])
    features = centers[labels] + noise * torch.randn(num_samples, sum(widths), generator=draw)
    right = 4 * F.one_hot(labels, num_classes)
    heads = (*own_heads, len(widths) - 1)
    own = {stage: (right + torch.randn(num_samples, num_classes, generator=draw)).to(dtype) for stage in heads}
    return MemorySource(features.to(dtype), own, labels, widths)


def weights_of(fitted: FittedExits) -> dict[str, torch.Tensor]:
    """All that was trained."""
    gates = {} if fitted.gates is None else fitted.gates.state_dict()
    return {**fitted.exits.state_dict(), **{f"gates.{key}": value for key, value in gates.items()}}
