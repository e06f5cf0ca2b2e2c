"""Fewer, longer stages: exits cost time, and not every stage is worth one."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from offramp.backbone.backbone import Backbone
from offramp.backbone.cascade import Cascade, cascade
from offramp.backbone.factory import Factory
from offramp.backbone.hidden import Hidden
from offramp.backbone.representation import Representation
from offramp.errors import InputError

__all__ = ["MergedBackbone", "merge"]


def merge(backbone: Backbone, ends: Sequence[int]) -> Backbone:
    """Run the stages between some ends as one.

    Features that were cached for the backbone serve the merged one too: `features.StageView(source, ends)` are its own.

    Args:
        backbone: Any backbone; of a cascade, the stages of its networks are merged, each within its network.
        ends: Stages (0-based) to keep the ends of, ascending; every stage with a head of the network's own among them.

    Returns:
        The backbone with as many stages as ends.

    Example:
        >>> import torch
        >>> from offramp.backbone import CifarResNet
        >>> coarse = merge(CifarResNet(20), (2, 5, 8))
        >>> coarse.num_exits, coarse(torch.zeros(1, 3, 32, 32)).shape
        (3, torch.Size([1, 10]))
    """
    ends = tuple(ends)
    kept = set(backbone.own_heads)
    if list(ends) != sorted(set(ends)) or not kept <= set(ends) or ends[0] < 0 or ends[-1] != backbone.num_exits - 1:
        raise InputError(
            f"expected ascending ends of stages, those with heads of the network's own ({sorted(kept)}) among them, "
            f"the last {backbone.num_exits - 1}; got {ends}"
        )
    if len(ends) == backbone.num_exits:
        return backbone
    if isinstance(backbone, Cascade):
        parts = zip(backbone.members, backbone.stages_of_members, strict=True)
        members = [merge(member, [end - part.start for end in ends if end in part]) for member, part in parts]
        return cascade(*members, name=backbone.name)
    return MergedBackbone(backbone, ends)


class MergedBackbone(Backbone):
    """A backbone whose stages are several of another's. Made by `merge`.

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
        self._base = (base,)  # in a tuple: its stages are these, and are not to be counted twice
        self._ends = tuple(ends)

    def representation(self, hidden: Hidden, stage: int) -> Representation:
        """Return the representation of the other backbone after its stage."""
        return self._base[0].representation(hidden, self._ends[stage])

    def prepare(self, inputs: Any) -> Hidden:
        """As the other backbone does."""
        return self._base[0].prepare(inputs)

    def axes(self, depth: int) -> Any:
        """As the other backbone says."""
        return self._base[0].axes(self._depth(depth))

    def sizes(self, inputs: Hidden) -> Tensor:
        """As the other backbone says."""
        return self._base[0].sizes(inputs)

    @property
    def grows(self) -> bool:
        """As the other backbone says."""
        return self._base[0].grows

    def resized(self, inputs: Hidden, size: int) -> Hidden:
        """As the other backbone does."""
        return self._base[0].resized(inputs, size)

    def batch_size(self, hidden: Hidden, depth: int) -> int:
        """As the other backbone says."""
        return self._base[0].batch_size(hidden, self._depth(depth))

    def select(self, hidden: Hidden, keep: Tensor, depth: int) -> Hidden:
        """As the other backbone does."""
        return self._base[0].select(hidden, keep, self._depth(depth))

    def trimmed(self, hidden: Hidden, depth: int) -> Hidden:
        """As the other backbone does."""
        return self._base[0].trimmed(hidden, self._depth(depth))

    def concatenate(self, hiddens: Sequence[Hidden], depth: int) -> Hidden:
        """As the other backbone does."""
        return self._base[0].concatenate(hiddens, self._depth(depth))

    def own_logits(self, hidden: Hidden, stage: int) -> Tensor:
        """As the other backbone answers."""
        return self._base[0].own_logits(hidden, self._ends[stage])

    def _depth(self, depth: int) -> int:
        return self._ends[depth - 1] + 1 if depth else 0
