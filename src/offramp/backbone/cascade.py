"""Networks in a row as one backbone, the cheap ones first."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from offramp.backbone.backbone import Backbone
from offramp.backbone.factory import Factory
from offramp.backbone.hidden import SAMPLES_FIRST, Hidden
from offramp.backbone.preprocessing import AS_IS, Preprocessing
from offramp.backbone.representation import Representation
from offramp.backbone.task import are_probabilities
from offramp.errors import InputError

__all__ = ["Cascade", "cascade", "scores"]


def cascade(*members: Backbone, name: str | None = None) -> "Cascade":
    """Put networks in a row, from cheap to strong: a sample that no exit of one can answer goes on to the next.

    A member may be another network, the same one at a lower resolution (a backbone whose `preprocessing` resizes), a
    quantised one, or any function that gives class scores (`scores`). Costs are relative to the last network alone.

    Args:
        *members: At least two backbones with the same classes, in the order they are asked.
        name: Part of the fingerprint; the members' names if left out.

    Returns:
        The cascade, a backbone itself.

    Example:
        >>> from offramp.backbone import CifarResNet
        >>> both = cascade(CifarResNet(8), CifarResNet(20))
        >>> both.num_exits, both.own_heads, both.full_stages
        (12, (2, 11), range(3, 12))
    """
    for member in members:
        if not isinstance(member, Backbone):
            raise InputError(
                f"the members of a cascade are backbones, got {type(member).__name__}; cut a network with "
                "offramp.split, or make a function one with offramp.backbone.scores"
            )
    return Cascade(members, name="+".join(member.name for member in members) if name is None else name)


def scores(
    function: Callable[[Any], Any],
    num_classes: int,
    *,
    name: str,
    mul_adds: float,
    preprocessing: Preprocessing = AS_IS,
) -> Backbone:
    """Any function that gives class scores, as a member of a cascade.

    Args:
        function: Inputs (as `preprocessing` leaves them) to `N x K` scores, logits or log-probabilities: an array or a
            tensor.
        num_classes: K.
        name: All that a feature store knows of the function: give another one another name.
        mul_adds: What it costs a sample; it cannot be counted.
        preprocessing: From raw inputs to what the function takes.

    Example:
        >>> member = scores(lambda inputs: inputs[:, :3], 3, name="first-three", mul_adds=3)
        >>> member(torch.eye(4)).shape
        torch.Size([4, 3])
    """
    backbone = _Scores(name, [_Function(function, num_classes)], {0: nn.Identity()}, num_classes)
    backbone.preprocessing = preprocessing
    backbone.declared_mul_adds = {0: mul_adds}
    return backbone


class _Scores(Backbone):
    def prepare(self, inputs: Any) -> Any:
        """As they are: what the function takes, only the function knows."""
        return inputs


class _Function(nn.Module):
    def __init__(self, function: Callable[[Any], Any], num_classes: int) -> None:
        super().__init__()
        self.function, self.num_classes = function, num_classes

    def forward(self, inputs: Any) -> Tensor:
        found = torch.as_tensor(self.function(inputs))
        if found.ndim != 2 or found.shape[1] != self.num_classes:
            raise InputError(f"expected N x {self.num_classes} scores of the function, got {tuple(found.shape)}")
        if are_probabilities(found.float()):
            raise InputError(
                "the function gives probabilities; give scores, such as their logarithms (scikit-learn: "
                "decision_function or predict_log_proba)"
            )
        return found.float()


_RAW = Backbone("raw", [nn.Identity()], {0: nn.Identity()}, num_classes=2)


class _Begin(nn.Module):
    """The first stage of a member: prepares the cascade's inputs in its own way."""

    def __init__(self, member: Backbone, preprocessing: Preprocessing, *, first: bool, last: bool) -> None:
        super().__init__()
        self.stage = member.stages[0]
        self._member = (member,)  # in a tuple: not a part of this stage, whose weights are the stage's own
        self._preprocessing = preprocessing
        self.first, self.last = first, last

    def prepared(self, inputs: Hidden) -> Hidden:
        """The cascade's inputs as the member takes them."""
        return self._member[0].prepare(self._preprocessing(inputs))

    def forward(self, hidden: Hidden) -> Hidden:
        inputs = hidden if self.first else hidden["inputs"]
        reached = {"hidden": self.stage(self.prepared(inputs))}
        return reached if self.last else {"inputs": inputs, **reached}

    def extra_repr(self) -> str:
        # What a backbone prints is part of its fingerprint: a member at another resolution is another network, and of a
        # function nothing but its name is known.
        return f"{self._member[0].name} {json.dumps(self._preprocessing.describe(), sort_keys=True)}"


class _Continue(nn.Module):
    def __init__(self, stage: nn.Module) -> None:
        super().__init__()
        self.stage = stage

    def forward(self, hidden: Hidden) -> Hidden:
        return {**hidden, "hidden": self.stage(hidden["hidden"])}


class _Head(nn.Module):
    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(self, hidden: Hidden) -> Any:
        return self.head(hidden["hidden"])


def _shared_classes(members: Sequence[Backbone]) -> tuple[str, ...]:
    """Return the class names of the members that have some; they must agree, order included."""
    named = [member for member in members if member.classes]
    for member in named[1:]:
        if tuple(member.classes) != tuple(named[0].classes):
            place = next(
                i for i, pair in enumerate(zip(named[0].classes, member.classes, strict=True)) if len({*pair}) > 1
            )
            raise InputError(
                f"expected networks with the same classes in the same order, got class {place} as "
                f"'{named[0].classes[place]}' of '{named[0].name}' and '{member.classes[place]}' of '{member.name}'; "
                "order the outputs of one as those of the other, and set its `classes`"
            )
    return named[0].classes if named else ()


class Cascade(Backbone):
    """A cascade of backbones. Made by `cascade`.

    The hidden state holds the current member's own under "hidden" and, until the last member has started, the cascade's
    inputs under "inputs". Where all members prepare inputs alike, the cascade's `preprocessing` does it once.

    Args:
        members: The backbones.
        name: Part of the fingerprint.
    """

    def __init__(self, members: Sequence[Backbone], *, name: str) -> None:
        if len(members) < 2:
            raise InputError(f"a cascade needs at least two networks, got {len(members)}")
        if len({member.num_classes for member in members}) > 1:
            classes = ", ".join(f"{member.name} with {member.num_classes}" for member in members)
            raise InputError(f"the networks of a cascade must have the same classes, got {classes}")
        alike = all(member.preprocessing == members[0].preprocessing for member in members)
        stages: list[nn.Module] = []
        heads: dict[int, nn.Module] = {}
        place: list[tuple[Backbone, int]] = []
        for index, member in enumerate(members):
            offset = len(stages)
            own = AS_IS if alike else member.preprocessing
            stages.append(_Begin(member, own, first=index == 0, last=index == len(members) - 1))
            stages.extend(_Continue(stage) for stage in list(member.stages)[1:])
            heads |= {offset + stage: _Head(member.heads[str(stage)]) for stage in member.own_heads}
            place += [(member, stage) for stage in range(member.num_exits)]
        super().__init__(name, stages, heads, members[0].num_classes)
        self.members = tuple(members)
        self.preprocessing = members[0].preprocessing if alike else AS_IS
        self.classes = _shared_classes(members)
        self._place = place
        self.alike = alike
        known = [
            replace(member.factory, preprocessing=member.preprocessing)
            for member in members
            if member.factory is not None
        ]
        if len(known) == len(members):
            self.factory = Factory("cascade", {"name": name}, members=tuple(known))
        self.declared_mul_adds = {
            stage: member.declared_mul_adds[local]
            for stage, (member, local) in enumerate(place)
            if local in member.declared_mul_adds
        }

    @property
    def full_stages(self) -> range:
        """The stages of the last network."""
        last = self.members[-1]
        return range(self.num_exits - last.num_exits + last.full_stages.start, self.num_exits)

    @property
    def stages_of_members(self) -> tuple[range, ...]:
        """The stages of each member."""
        ends = np.cumsum([0, *(member.num_exits for member in self.members)]).tolist()
        return tuple(range(start, stop) for start, stop in pairwise(ends))

    def without(self, index: int) -> Backbone:
        """The cascade without one of its members; the last network alone where no other is left."""
        kept = [member for place, member in enumerate(self.members) if place != index]
        return kept[0] if len(kept) == 1 else cascade(*kept)

    def prepare(self, inputs: Any) -> Hidden:
        """As the last network does it where members prepare inputs alike; else raw inputs as tensors."""
        return self.members[-1].prepare(inputs) if self.alike else super().prepare(inputs)

    def axes(self, depth: int) -> Any:
        """Of the inputs: the last network's where members prepare them alike, else samples first."""
        if depth == 0:
            return self.members[-1].axes(0) if self.alike else SAMPLES_FIRST
        member, local = self._place[depth - 1]
        riding = {"inputs": self.axes(0)} if depth <= self.stages_of_members[-1].start else {}
        return {**riding, "hidden": member.axes(local + 1)}

    def representation(self, hidden: Hidden, stage: int) -> Representation:
        """Return the representation of the stage's own network."""
        member, local = self._place[stage]
        return member.representation(hidden["hidden"], local)

    def inputs_of_members(self, inputs: Hidden) -> list[Hidden]:
        """The cascade's inputs as each member takes them."""
        begins = (self.stages[part.start] for part in self.stages_of_members)
        return [begin.prepared(inputs) for begin in begins if isinstance(begin, _Begin)]

    def sizes(self, inputs: Hidden) -> Tensor:
        """The sizes of samples as the last network sees them."""
        last = self.members[-1]
        return last.sizes(inputs if self.alike else last.prepare(last.preprocessing(inputs)))

    @property
    def grows(self) -> bool:
        """True where samples differ in size, as the last network sees them."""
        return self.members[-1].grows

    def resized(self, inputs: Hidden, size: int) -> Hidden:
        """The first sample at another size, where members prepare inputs alike: raw ones do not show it."""
        return self.members[-1].resized(inputs, size)

    def batch_size(self, hidden: Hidden, depth: int) -> int:
        """Number of samples in a hidden state."""
        if depth == 0:
            return self._input_backbone.batch_size(hidden, 0)
        member, local = self._place[depth - 1]
        return member.batch_size(hidden["hidden"], local + 1)

    def select(self, hidden: Hidden, keep: Tensor, depth: int) -> Hidden:
        """Some samples of a hidden state, inputs included."""
        return self._each([hidden], depth, lambda backbone, parts, local: backbone.select(parts[0], keep, local))

    def concatenate(self, hiddens: Sequence[Hidden], depth: int) -> Hidden:
        """One batch of several hidden states, inputs included."""
        return self._each(hiddens, depth, lambda backbone, parts, local: backbone.concatenate(parts, local))

    def _each(
        self, hiddens: Sequence[Hidden], depth: int, apply: Callable[[Backbone, Sequence[Hidden], int], Hidden]
    ) -> Hidden:
        """Apply to the inputs as the last network would, and to the current member's own state as that member would."""
        if depth == 0:
            return apply(self._input_backbone, hiddens, 0)
        member, local = self._place[depth - 1]
        made = {"hidden": apply(member, [hidden["hidden"] for hidden in hiddens], local + 1)}
        if "inputs" in hiddens[0]:
            made["inputs"] = apply(self._input_backbone, [hidden["inputs"] for hidden in hiddens], 0)
        return made

    @property
    def _input_backbone(self) -> Backbone:
        """The backbone that selects samples of the cascade's inputs: the last network, or any one for raw inputs."""
        return self.members[-1] if self.alike else _RAW
