"""Merged stages: fewer and longer ones, as not every stage is worth an exit."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from offramp.backbone._backbone import Backbone
from offramp.backbone._cascading import Cascade, cascade
from offramp.backbone._factory import Factory
from offramp.backbone._hidden import Hidden
from offramp.errors import InputError
from offramp.pooling import Representation

__all__ = ["MergedBackbone", "merge"]


def merge(backbone: Backbone, ends: Sequence[int]) -> Backbone:
    """Merge consecutive stages into one.

    Cached features of the backbone can be used for the merged one: `features.StageView(source, ends)`.

    Args:
        backbone: Any backbone; the stages of a cascade are merged within its members.
        ends: Last stage (0-based) of each merged stage, ascending; must include every stage with a head of its own.

    Returns:
        The backbone with one stage per end.

    Example:
        >>> import torch
        >>> from offramp.backbone import CifarResNet
        >>> coarse = merge(CifarResNet(20), (2, 5, 8))
        >>> coarse.num_exits, coarse(torch.zeros(1, 3, 32, 32)).shape
        (3, torch.Size([1, 10]))
    """
    ends = tuple(ends)
    heads = set(backbone.own_heads)
    if list(ends) != sorted(set(ends)) or not heads <= set(ends) or ends[0] < 0 or ends[-1] != backbone.num_exits - 1:
        raise InputError(
            expected=f"ascending ends of stages that include the network's own heads ({sorted(heads)}), the last "
            f"{backbone.num_exits - 1}",
            got=ends,
        )
    if len(ends) == backbone.num_exits:
        return backbone
    if isinstance(backbone, Cascade):
        parts = zip(backbone.members, backbone.stages_of_members, strict=True)
        members = [merge(member, [end - part.start for end in ends if end in part]) for member, part in parts]
        return cascade(*members, name=backbone.name)
    return MergedBackbone(backbone, ends)


class MergedBackbone(Backbone):
    """A backbone whose stages are merged stages of another; made by `merge`.

    Args:
        base: The other backbone.
        ends: Its stages that end one of these.
    """

    def __init__(self, base: Backbone, ends: Sequence[int]) -> None:
        stages = [
            base.stages[start + 1] if end == start + 1 else nn.Sequential(*list(base.stages)[start + 1 : end + 1])
            for start, end in pairwise((-1, *ends))
        ]
        heads = {ends.index(stage): base.heads[str(stage)] for stage in base.own_heads}
        super().__init__(base.name, stages, heads, base.num_classes)
        self.preprocessing, self.classes = base.preprocessing, base.classes
        self.declared_mul_adds = {
            place: sum(base.declared_mul_adds[stage] for stage in range(start + 1, end + 1))
            for place, (start, end) in enumerate(pairwise((-1, *ends)))
            if any(stage in base.declared_mul_adds for stage in range(start + 1, end + 1))
        }
        if base.factory is not None:
            self.factory = Factory("merged", {"ends": list(ends)}, base.preprocessing, (base.factory,))
        self._base = (base,)  # in a tuple, so that its stages are no submodules twice
        self._ends = tuple(ends)

    def representation(self, hidden: Hidden, stage: int) -> Representation:
        """Return the base's representation."""
        return self._base[0].representation(hidden, self._ends[stage])

    def prepare(self, inputs: Any) -> Hidden:
        """Prepare inputs as the base does."""
        return self._base[0].prepare(inputs)

    def axes(self, depth: int) -> Any:
        """Return the base's axes."""
        return self._base[0].axes(self._depth(depth))

    def sizes(self, inputs: Hidden) -> Tensor:
        """Return the base's sizes."""
        return self._base[0].sizes(inputs)

    @property
    def varies_in_size(self) -> bool:
        """True if samples differ in size."""
        return self._base[0].varies_in_size

    def with_size(self, inputs: Hidden, size: int) -> Hidden:
        """Return the first sample at another size."""
        return self._base[0].with_size(inputs, size)

    def batch_size(self, hidden: Hidden, depth: int) -> int:
        """Count the samples in a hidden state."""
        return self._base[0].batch_size(hidden, self._depth(depth))

    def select(self, hidden: Hidden, keep: Tensor, depth: int) -> Hidden:
        """Select samples as the base does."""
        return self._base[0].select(hidden, keep, self._depth(depth))

    def trim(self, hidden: Hidden, depth: int) -> Hidden:
        """Drop padding as the base does."""
        return self._base[0].trim(hidden, self._depth(depth))

    def concatenate(self, hiddens: Sequence[Hidden], depth: int) -> Hidden:
        """Join hidden states as the base does."""
        return self._base[0].concatenate(hiddens, self._depth(depth))

    def own_logits(self, hidden: Hidden, stage: int) -> Tensor:
        """Return the logits of the base's head."""
        return self._base[0].own_logits(hidden, self._ends[stage])

    def _depth(self, depth: int) -> int:
        return self._ends[depth - 1] + 1 if depth else 0
