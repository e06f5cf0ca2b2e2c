"""What each network of a chain brings, and leaving out those that bring nothing."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from offramp.features import BatchSource, StageView
from offramp.frontier.contributions import Contribution
from offramp.frontier.frontier import Frontier
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
    whole = fit_one(trunk, sources)
    if not isinstance(trunk, ChainTrunk):
        return whole
    best, best_sources = whole, sources
    links = []
    for index, link in enumerate(trunk.links[:-1]):
        kept = [stage for place, part in enumerate(trunk.stages_of_links) if place != index for stage in part]
        views = [StageView(source, kept) for source in sources]
        without = fit_one(trunk.without(index), views)
        gain = whole.area - without.area
        links.append(Contribution(link.name, gain, kept=gain > 0))
        if without.area >= best.area:
            best, best_sources = without, views
    if best is whole:
        return replace(whole, contributions=(*links, *whole.contributions))
    # Once more: what a network brings depends on which others are there.
    shorter = drop_links(best.trunk, best_sources, fit_one) if isinstance(best.trunk, ChainTrunk) else best
    return replace(shorter, contributions=(*(link for link in links if not link.kept), *shorter.contributions))
