"""Alternatives without early exits, which run the same stages for every sample."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from offramp.backbone import Cascade
from offramp.backbone._backbone import Backbone
from offramp.cost._table import CostTable
from offramp.features import BatchSource
from offramp.model._outcomes import Outcomes
from offramp.report._answers import Answers
from offramp.uncertainty._intervals import paired_interval, wilson_interval

__all__ = ["Alternative", "alternatives", "network_names"]


@dataclass(frozen=True)
class Alternative:
    """A network without early exits: the full one, another of the cascade, or one cut short."""

    name: str
    """Its name."""
    kind: Literal["network", "exit"]
    """A network by itself, or a network cut short after an exit where all samples leave."""
    relative_cost: float
    """Total spent over the total of the full network."""
    accuracy: float
    """Share of right answers."""
    accuracy_interval: tuple[float, float]
    """95 %, Wilson's."""
    lead: float
    """Its accuracy minus that of the chosen point on the same samples."""
    lead_interval: tuple[float, float]
    """95 %, Bonett and Price's, of the paired difference."""


def alternatives(
    backbone: Backbone, source: BatchSource, outcomes: Outcomes, table: CostTable, answers: Answers, *, classifier: int
) -> tuple[Alternative, ...]:
    """Measure all alternatives without early exits on the same samples.

    Args:
        backbone: The frozen network.
        source: The samples.
        outcomes: Their outcomes.
        table: Their costs, by the chosen point's policy.
        answers: The answers at the chosen point.
        classifier: Index of the set of classifiers at the exits.

    Returns:
        The full network, the other networks of a cascade, then the exits.
    """
    names: list[tuple[str, Literal["network", "exit"]]] = [(network_names(backbone)[-1], "network")]
    correct, costs = [outcomes.full_correct], [1.0]
    members = backbone.stages_of_members if isinstance(backbone, Cascade) else ()
    if isinstance(backbone, Cascade):
        pairs = zip(backbone.members[:-1], members, strict=False)
        own_heads = [(member, part) for member, part in pairs if part.stop - 1 in backbone.own_heads]
        predicted = _own_predictions(source, [part.stop - 1 for _, part in own_heads])
        for (member, part), predictions in zip(own_heads, predicted, strict=True):
            names.append((member.name, "network"))
            correct.append(predictions == outcomes.labels)
            own = range(part.start + member.full_stages.start, part.stop)
            costs.append(table.relative_cost_alone(own, len(outcomes.labels)))
    last = table.num_exits - 1
    # The own head of a cascade's first network is that network by itself, which is listed already.
    listed_exits = {last, *(part.stop - 1 for part in members[:1] if part.stop - 1 in backbone.own_heads)}
    for exit in (exit for exit in range(last) if exit not in listed_exits):
        names.append((f"exit {exit}", "exit"))
        correct.append(outcomes.correct[classifier, :, exit])
        costs.append(float(table.relative_cost(torch.full_like(outcomes.labels, exit), active=(exit, last))))
    count = len(outcomes.labels)
    rows = []
    for (name, kind), cost, hits in zip(names, costs, correct, strict=True):
        ahead, behind = int((hits & ~answers.correct).sum()), int((~hits & answers.correct).sum())
        rows.append(
            Alternative(
                name=name,
                kind=kind,
                relative_cost=cost,
                accuracy=int(hits.sum()) / count,
                accuracy_interval=wilson_interval(int(hits.sum()), count),
                lead=(ahead - behind) / count,
                lead_interval=paired_interval(ahead, behind, count),
            )
        )
    return tuple(rows)


def network_names(backbone: Backbone) -> tuple[str, ...]:
    """Return `L` names, of the network that each stage belongs to."""
    if not isinstance(backbone, Cascade):
        return (backbone.name,) * backbone.num_exits
    parts = zip(backbone.members, backbone.stages_of_members, strict=True)
    return tuple(member.name for member, part in parts for _ in part)


def _own_predictions(source: BatchSource, heads: list[int]) -> list[Tensor]:
    """Return `N` predicted classes for each of some networks' own heads."""
    batches = [[batch.own_logits[head].argmax(-1) for head in heads] for batch in source.in_order(batch_size=1000)]
    return [torch.cat(parts) for parts in zip(*batches, strict=True)]
