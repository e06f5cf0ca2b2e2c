"""What each network of a cascade brings, and leaving out those that bring nothing."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from offramp.backbone import Backbone, Cascade
from offramp.features import BatchSource, StageView
from offramp.frontier.contributions import Contribution
from offramp.frontier.frontier import Frontier
from offramp.frontier.thinning import area

__all__ = ["drop_members"]


def drop_members(
    backbone: Backbone,
    sources: Sequence[BatchSource],
    fit_one: Callable[[Backbone, Sequence[BatchSource]], Frontier],
) -> Frontier:
    """Fit a backbone; of a cascade, also each cascade with one network fewer, and keep the best.

    The networks run no more than once: a shorter cascade reads the same cached features.

    Args:
        backbone: Any backbone.
        sources: Its cached features: fit, tune, calibrate.
        fit_one: Fits a backbone on such sources.

    Returns:
        The frontier of the cascade whose curve on the tune split is best, with what each network brings.
    """
    return _shortened(fit_one(backbone, sources), sources, fit_one)


def _shortened(
    whole: Frontier, sources: Sequence[BatchSource], fit_one: Callable[[Backbone, Sequence[BatchSource]], Frontier]
) -> Frontier:
    backbone = whole.backbone
    if not isinstance(backbone, Cascade):
        return whole
    best, best_sources, dropped = whole, sources, None
    members = []
    for index, member in enumerate(backbone.members[:-1]):
        shorter = backbone.without(index)
        if len(shorter.own_heads) == shorter.num_exits:
            continue  # heads alone, nothing to fit: only this member's exits make it a frontier
        kept = [stage for place, part in enumerate(backbone.stages_of_members) if place != index for stage in part]
        views = [StageView(source, kept) for source in sources]
        without = fit_one(shorter, views)
        gain = _area(whole) - _area(without)
        members.append(Contribution(member.name, gain, kept=gain > 0))
        if _area(without) >= _area(best):
            best, best_sources, dropped = without, views, members[-1]
    if dropped is None:
        return replace(whole, contributions=(*members, *whole.contributions))
    # Once more: what the other networks bring depends on which are there.
    rest = _shortened(best, best_sources, fit_one)
    return replace(rest, contributions=(dropped, *rest.contributions))


def _area(frontier: Frontier) -> float:
    """Under a threshold, as exits are judged: with one number to set, it owes the least to chance on the tune split."""
    return area(frontier.points["threshold"])
