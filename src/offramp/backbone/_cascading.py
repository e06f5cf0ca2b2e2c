"""Cascades: several networks as one backbone, the cheap ones first."""

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from torch import Tensor, nn

from offramp.backbone._backbone import Backbone
from offramp.backbone._factory import Factory
from offramp.backbone._hidden import SAMPLES_FIRST, Hidden
from offramp.backbone.adapters._callable import CalledModel, callable_model
from offramp.errors import InputError
from offramp.pooling import Representation
from offramp.preprocessing._preprocessing import AS_IS, Preprocessing

__all__ = ["Cascade", "cascade"]


def cascade(
    *members: Backbone | Callable[[Any], Any], classes: Sequence[str] = (), name: str | None = None
) -> "Cascade":
    """Combine networks into a cascade, from cheap to strong: samples that leave at no exit of one go on to the next.

    A member may be another network, the same one at a lower resolution (a backbone whose `preprocessing` resizes), a
    quantised one, or a plain function from a batch of inputs to one reply per input (`offramp.callable_model` has
    options for those). Costs are relative to the last member.

    Args:
        *members: At least two networks or functions with the same classes, in the order they run.
        classes: Class names in the order of the outputs; needed for functions if no other member knows them.
        name: Part of the fingerprint; the members' names by default.

    Returns:
        The cascade, a backbone itself.

    Example:
        >>> from offramp.backbone import CifarResNet
        >>> both = cascade(CifarResNet(8), CifarResNet(20))
        >>> both.num_exits, both.own_heads, both.full_stages
        (12, (2, 11), range(3, 12))
    """
    known = [member for member in members if isinstance(member, Backbone)]
    counts = (member.num_classes for member in known)
    answers: Sequence[str] | int = classes or _shared_classes(known) or max(counts, default=0)
    backbones = [member if isinstance(member, Backbone) else _from_function(member, answers) for member in members]
    _check_names(backbones)
    return Cascade(backbones, name="+".join(member.name for member in backbones) if name is None else name)


def _from_function(function: Any, classes: Sequence[str] | int) -> Backbone:
    if not callable(function) or isinstance(function, nn.Module | type):
        raise InputError(
            "members of a cascade",
            expected="backbones or functions",
            got=type(function).__name__,
            hint="split a network with offramp.split",
        )
    if not classes:
        raise InputError(
            expected="the classes that the functions of a cascade answer with",
            got="none",
            hint="give classes=[...]",
        )
    return callable_model(function, classes)


def _check_names(members: Sequence[Backbone]) -> None:
    """Refuse two called members of one name: the answers of one would be taken for those of the other."""
    names = [member.name for member in members if isinstance(member, CalledModel)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(
            "members of a cascade",
            expected="functions of different names",
            got=f"two or more of '{twice[0]}'",
            hint="name them: offramp.callable_model(function, classes, name=...)",
        )


_RAW_INPUTS = Backbone("raw", [nn.Identity()], {0: nn.Identity()}, num_classes=2)
"""Selects and concatenates inputs whose samples come first."""


class _Begin(nn.Module):
    """The first stage of a member, which prepares the cascade's inputs for it."""

    def __init__(self, member: Backbone, preprocessing: Preprocessing, *, first: bool, last: bool) -> None:
        super().__init__()
        self.stage = member.stages[0]
        self._member = (member,)  # in a tuple, so that it is no submodule of this stage
        self._preprocessing = preprocessing
        self.first, self.last = first, last

    def prepare(self, inputs: Hidden) -> Hidden:
        """Return the cascade's inputs as the member takes them."""
        return self._member[0].prepare(self._preprocessing(inputs))

    def forward(self, hidden: Hidden) -> Hidden:
        inputs = hidden if self.first else hidden["inputs"]
        state = {"hidden": self.stage(self.prepare(inputs))}
        return state if self.last else {"inputs": inputs, **state}

    def extra_repr(self) -> str:
        # Printed, and so part of the fingerprint: it tells members at another resolution and other functions apart.
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
    """Return the class names of the members that have some; they must agree, including the order."""
    named = [member for member in members if member.classes]
    for member in named[1:]:
        if tuple(member.classes) != tuple(named[0].classes):
            index = next(
                i for i, pair in enumerate(zip(named[0].classes, member.classes, strict=True)) if len({*pair}) > 1
            )
            raise InputError(
                expected="networks with the same classes in the same order",
                got=f"class {index} as '{named[0].classes[index]}' of '{named[0].name}' and "
                f"'{member.classes[index]}' of '{member.name}'",
                hint="order the outputs of one as those of the other, and set its `classes`",
            )
    return named[0].classes if named else ()


class Cascade(Backbone):
    """A cascade of backbones; made by `cascade`.

    The hidden state holds the current member's hidden state under "hidden" and, until the last member has started, the
    cascade's inputs under "inputs". If all members have the same preprocessing, the cascade's does it once.

    Args:
        members: The backbones.
        name: Part of the fingerprint.
    """

    def __init__(self, members: Sequence[Backbone], *, name: str) -> None:
        if len(members) < 2:
            raise InputError("a cascade", expected="at least two members", got=f"{len(members)}")
        if not members[-1].heads:
            raise InputError(
                f"last member '{members[-1].name}'", expected="a model that answers", got="an encoder without a head"
            )
        answering = [member for member in members if member.heads]
        if len({member.num_classes for member in answering}) > 1:
            classes = ", ".join(f"{member.name} with {member.num_classes}" for member in answering)
            raise InputError(
                "a cascade",
                expected="networks of the same number of classes",
                got=classes,
                hint="use networks that were trained on the same classes",
            )
        alike = all(member.preprocessing == members[0].preprocessing for member in members)
        stages: list[nn.Module] = []
        heads: dict[int, nn.Module] = {}
        positions: list[tuple[Backbone, int]] = []
        for index, member in enumerate(members):
            offset = len(stages)
            own = AS_IS if alike else member.preprocessing
            stages.append(_Begin(member, own, first=index == 0, last=index == len(members) - 1))
            stages.extend(_Continue(stage) for stage in list(member.stages)[1:])
            heads |= {offset + stage: _Head(member.heads[str(stage)]) for stage in member.own_heads}
            positions += [(member, stage) for stage in range(member.num_exits)]
        super().__init__(name, stages, heads, members[-1].num_classes)
        self.members = tuple(members)
        self.preprocessing = members[0].preprocessing if alike else AS_IS
        self.classes = _shared_classes(members)
        self._positions = positions
        self.alike = alike
        factories = [
            replace(member.factory, preprocessing=member.preprocessing)
            for member in members
            if member.factory is not None
        ]
        if len(factories) == len(members):
            self.factory = Factory("cascade", {"name": name}, members=tuple(factories))
        self.declared_mul_adds = {
            stage: member.declared_mul_adds[local]
            for stage, (member, local) in enumerate(positions)
            if local in member.declared_mul_adds
        }

    @property
    def full_stages(self) -> range:
        """The stages of the last member's full network."""
        last = self.members[-1]
        return range(self.num_exits - last.num_exits + last.full_stages.start, self.num_exits)

    @property
    def stages_of_members(self) -> tuple[range, ...]:
        """The stages of each member."""
        ends = np.cumsum([0, *(member.num_exits for member in self.members)]).tolist()
        return tuple(range(start, stop) for start, stop in pairwise(ends))

    @property
    def front(self) -> Backbone:
        """The members before the last, as a backbone; it has no head if the only one is an encoder."""
        others = self.members[:-1]
        if len(others) > 1:
            return cascade(*others)
        front = copy.copy(others[0])
        front.num_classes = self.num_classes  # an encoder does not know it
        return front

    def without_member(self, index: int) -> Backbone:
        """Return the cascade without one of its members, or the only other member."""
        others = [member for position, member in enumerate(self.members) if position != index]
        return others[0] if len(others) == 1 else cascade(*others)

    def prepare(self, inputs: Any) -> Hidden:
        """Prepare inputs as the last member does; if members differ in preprocessing, return raw inputs as tensors."""
        return self.members[-1].prepare(inputs) if self.alike else super().prepare(inputs)

    def axes(self, depth: int) -> Any:
        """Return the current member's axes, and those of the inputs until the last member has started."""
        if depth == 0:
            return self.members[-1].axes(0) if self.alike else SAMPLES_FIRST
        member, local = self._positions[depth - 1]
        inputs = {"inputs": self.axes(0)} if depth <= self.stages_of_members[-1].start else {}
        return {**inputs, "hidden": member.axes(local + 1)}

    def representation(self, hidden: Hidden, stage: int) -> Representation:
        """Return the representation of the current member."""
        member, local = self._positions[stage]
        return member.representation(hidden["hidden"], local)

    def inputs_of_members(self, inputs: Hidden) -> list[Hidden]:
        """Return the cascade's inputs as each member takes them."""
        begins = (self.stages[part.start] for part in self.stages_of_members)
        return [begin.prepare(inputs) for begin in begins if isinstance(begin, _Begin)]

    def sizes(self, inputs: Hidden) -> Tensor:
        """Return the sizes of samples for the last member."""
        last = self.members[-1]
        return last.sizes(inputs if self.alike else last.prepare(last.preprocessing(inputs)))

    @property
    def varies_in_size(self) -> bool:
        """True if samples differ in size for the last member."""
        return self.members[-1].varies_in_size

    def with_size(self, inputs: Hidden, size: int) -> Hidden:
        """Return the first sample at another size; only if all members have the same preprocessing."""
        return self.members[-1].with_size(inputs, size)

    def batch_size(self, hidden: Hidden, depth: int) -> int:
        """Count the samples in a hidden state."""
        if depth == 0:
            return self._input_backbone.batch_size(hidden, 0)
        member, local = self._positions[depth - 1]
        return member.batch_size(hidden["hidden"], local + 1)

    def select(self, hidden: Hidden, keep: Tensor, depth: int) -> Hidden:
        """Select samples of a hidden state and of the inputs in it."""
        return self._each([hidden], depth, lambda backbone, parts, local: backbone.select(parts[0], keep, local))

    def concatenate(self, hiddens: Sequence[Hidden], depth: int) -> Hidden:
        """Join hidden states and the inputs in them into one batch."""
        return self._each(hiddens, depth, lambda backbone, parts, local: backbone.concatenate(parts, local))

    def _each(
        self, hiddens: Sequence[Hidden], depth: int, apply: Callable[[Backbone, Sequence[Hidden], int], Hidden]
    ) -> Hidden:
        """Apply a function to the current member's hidden states, and to the inputs."""
        if depth == 0:
            return apply(self._input_backbone, hiddens, 0)
        member, local = self._positions[depth - 1]
        result = {"hidden": apply(member, [hidden["hidden"] for hidden in hiddens], local + 1)}
        if "inputs" in hiddens[0]:
            result["inputs"] = apply(self._input_backbone, [hidden["inputs"] for hidden in hiddens], 0)
        return result

    @property
    def _input_backbone(self) -> Backbone:
        """The backbone that selects samples of the inputs: the last member, or `_RAW_INPUTS`."""
        return self.members[-1] if self.alike else _RAW_INPUTS
