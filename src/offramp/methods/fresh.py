"""Exits before they are trained."""

from offramp.exits import CumulativeLinearExits, ExitBank, LadderExits, LinearExits
from offramp.methods.settings import DEFAULT, JointSettings

__all__ = ["fresh_exits"]


def fresh_exits(
    widths: tuple[int, ...], own_heads: tuple[int, ...], num_classes: int, *, settings: JointSettings = DEFAULT
) -> ExitBank:
    """The exits that a fit starts from: one after every stage without a head of the network's own.

    Args:
        widths: Features of each stage.
        own_heads: Stages after which the network has a head of its own.
        num_classes: K.
        settings: How they would be fitted.

    Example:
        >>> fresh_exits((16, 32, 64), (2,), 10).stages
        (0, 1)
    """
    stages = tuple(stage for stage in range(len(widths)) if stage not in own_heads)
    if settings.exits == "ladder":
        return LadderExits(widths, stages, num_classes, width=settings.ladder_width, dropout=settings.dropout)
    kind = LinearExits if settings.exits == "linear" else CumulativeLinearExits
    return kind(widths, stages, num_classes)
