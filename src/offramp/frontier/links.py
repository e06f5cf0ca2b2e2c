"""What each network of a chain brings, and leaving out those that bring nothing."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from offramp.features import BatchSource, StageView
from offramp.frontier.contributions import Contribution
from offramp.frontier.frontier import Frontier
from offramp.frontier.thinning import area
from offramp.trunk import ChainTrunk, Trunk

__all__ = ["drop_links"]


def drop_links(
    trunk: Trunk,
    sources: Sequence[BatchSource],
    fit_one: Callable[[Trunk, Sequence[BatchSource]], Frontier],
) -> Frontier:
    """Fit a trunk; of a chain, also each chain with one network fewer, and keep the best.

    The networks run no more than once: a shorter chain reads the same cached features.

    Args:
        trunk: Any trunk.
        sources: Its cached features: fit, tune, calibrate.
        fit_one: Fits a trunk on such sources.

    Returns:
        The frontier of the chain whose curve on the tune split is best, with what each network brings.
    """
    return _shortened(fit_one(trunk, sources), sources, fit_one)


def _shortened(
    whole: Frontier, sources: Sequence[BatchSource], fit_one: Callable[[Trunk, Sequence[BatchSource]], Frontier]
) -> Frontier:
    trunk = whole.trunk
    if not isinstance(trunk, ChainTrunk):
        return whole
    best, best_sources, dropped = whole, sources, None
    links = []
    for index, link in enumerate(trunk.links[:-1]):
        shorter = trunk.without(index)
        if len(shorter.own_heads) == shorter.num_exits:
            continue  # heads alone, nothing to fit: only this link's exits make it a frontier
        kept = [stage for place, part in enumerate(trunk.stages_of_links) if place != index for stage in part]
        views = [StageView(source, kept) for source in sources]
        without = fit_one(shorter, views)
        gain = _area(whole) - _area(without)
        links.append(Contribution(link.name, gain, kept=gain > 0))
        if _area(without) >= _area(best):
            best, best_sources, dropped = without, views, links[-1]
    if dropped is None:
        return replace(whole, contributions=(*links, *whole.contributions))
    # Once more: what the other networks bring depends on which are there.
    rest = _shortened(best, best_sources, fit_one)
    return replace(rest, contributions=(dropped, *rest.contributions))


def _area(frontier: Frontier) -> float:
    """Under a threshold, as exits are judged: with one number to set, it owes the least to chance on the tune split."""
    return area(frontier.points["threshold"])
