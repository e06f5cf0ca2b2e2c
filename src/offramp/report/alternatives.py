"""What one could run instead, without deciding anything sample by sample."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from offramp.cost import CostTable
from offramp.features import BatchSource
from offramp.frontier import Outcomes
from offramp.report.answers import Answers
from offramp.trunk import ChainTrunk, Trunk
from offramp.uncertainty import paired_interval, wilson_interval

__all__ = ["Alternative", "alternatives", "network_names"]


@dataclass(frozen=True)
class Alternative:
    """A network without early exits: the bare one, another of the chain, or one cut short."""

    name: str
    """What it is called."""
    kind: Literal["network", "exit"]
    """A network by itself, or one cut short after an exit that everybody leaves at."""
    relative_cost: float
    """Total spent over the total of the bare network."""
    accuracy: float
    """Share of right answers."""
    accuracy_interval: tuple[float, float]
    """95 %, Wilson's."""
    lead: float
    """Its accuracy minus that of the chosen point on the same samples."""
    lead_interval: tuple[float, float]
    """95 %, Bonett and Price's, of the paired difference."""


def alternatives(
    trunk: Trunk, source: BatchSource, seen: Outcomes, table: CostTable, given: Answers, *, classifier: int
) -> tuple[Alternative, ...]:
    """Everything static, measured on the same samples.

    Args:
        trunk: The frozen network.
        source: The samples.
        seen: Their outcomes.
        table: What they cost, by the chosen point's policy.
        given: The answers given at the chosen point.
        classifier: Which set of classifiers answers at the exits.

    Returns:
        The bare network, the other networks of a chain, then the exits.
    """
    names: list[tuple[str, Literal["network", "exit"]]] = [(network_names(trunk)[-1], "network")]
    correct, costs = [seen.full_correct], [1.0]
    links = trunk.stages_of_links if isinstance(trunk, ChainTrunk) else ()
    if isinstance(trunk, ChainTrunk):
        heads = [part.stop - 1 for part in links[:-1]]
        for link, part, answers in zip(trunk.links, links, _own_answers(source, heads), strict=False):
            names.append((link.name, "network"))
            correct.append(answers == seen.labels)
            own = range(part.start + link.bare_stages.start, part.stop)
            costs.append(table.relative_cost_alone(own, len(seen.labels)))
    last = table.num_exits - 1
    # The own head of a chain's first network is that network by itself, which is there already.
    there = {last, links[0].stop - 1} if links else {last}
    for exit in (exit for exit in range(last) if exit not in there):
        names.append((f"exit {exit}", "exit"))
        correct.append(seen.correct[classifier, :, exit])
        costs.append(float(table.relative_cost(torch.full_like(seen.labels, exit), active=(exit, last))))
    count = len(seen.labels)
    found = []
    for (name, kind), cost, hits in zip(names, costs, correct, strict=True):
        ahead, behind = int((hits & ~given.correct).sum()), int((~hits & given.correct).sum())
        found.append(
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
    return tuple(found)


def network_names(trunk: Trunk) -> tuple[str, ...]:
    """`L` names: of the network that each stage belongs to."""
    if not isinstance(trunk, ChainTrunk):
        return (trunk.name,) * trunk.num_exits
    parts = zip(trunk.links, trunk.stages_of_links, strict=True)
    return tuple(link.name for link, part in parts for _ in part)


def _own_answers(source: BatchSource, heads: list[int]) -> list[Tensor]:
    """`N` classes that each of the networks' own heads predicts."""
    batches = [[batch.own_logits[head].argmax(-1) for head in heads] for batch in source.in_order(batch_size=1000)]
    return [torch.cat(parts) for parts in zip(*batches, strict=True)]
