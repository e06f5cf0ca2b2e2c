"""Networks in a row as one trunk, the cheap ones first."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from offramp.errors import InputError
from offramp.trunk.factory import Factory
from offramp.trunk.hidden import SAMPLES_FIRST, Hidden
from offramp.trunk.preprocessing import AS_IS, Preprocessing
from offramp.trunk.representation import Representation
from offramp.trunk.task import are_probabilities
from offramp.trunk.trunk import Trunk

__all__ = ["ChainTrunk", "chain", "scores"]


def chain(*links: Trunk, name: str | None = None) -> "ChainTrunk":
    """Put networks in a row, from cheap to strong: a sample that no exit of one can answer goes on to the next.

    A link may be another network, the same one at a lower resolution (a trunk whose `preprocessing` resizes), a
    quantised one, or any function that gives class scores (`scores`). Costs are relative to the last network alone.

    Args:
        *links: At least two trunks with the same classes, in the order they are asked.
        name: Part of the fingerprint; the links' names if left out.

    Returns:
        The chain, a trunk itself.

    Example:
        >>> from offramp.trunk import CifarResNet
        >>> both = chain(CifarResNet(8), CifarResNet(20))
        >>> both.num_exits, both.own_heads, both.bare_stages
        (12, (2, 11), range(3, 12))
    """
    for link in links:
        if not isinstance(link, Trunk):
            raise InputError(
                f"the links of a chain are trunks, got {type(link).__name__}; cut a network with offramp.split, or "
                "make a function one with offramp.trunk.scores"
            )
    return ChainTrunk(links, name="+".join(link.name for link in links) if name is None else name)


def scores(
    function: Callable[[Any], Any],
    num_classes: int,
    *,
    name: str,
    mul_adds: float,
    preprocessing: Preprocessing = AS_IS,
) -> Trunk:
    """Any function that gives class scores, as a link of a chain.

    Args:
        function: Inputs (as `preprocessing` leaves them) to `N x K` scores, logits or log-probabilities: an array or a
            tensor.
        num_classes: K.
        name: All that a feature store knows of the function: give another one another name.
        mul_adds: What it costs a sample; it cannot be counted.
        preprocessing: From raw inputs to what the function takes.

    Example:
        >>> link = scores(lambda inputs: inputs[:, :3], 3, name="first-three", mul_adds=3)
        >>> link(torch.eye(4)).shape
        torch.Size([4, 3])
    """
    trunk = _Scores(name, [_Function(function, num_classes)], {0: nn.Identity()}, num_classes)
    trunk.preprocessing = preprocessing
    trunk.declared_mul_adds = {0: mul_adds}
    return trunk


class _Scores(Trunk):
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


_RAW = Trunk("raw", [nn.Identity()], {0: nn.Identity()}, num_classes=2)


class _Begin(nn.Module):
    """The first stage of a link: prepares the chain's inputs in its own way."""

    def __init__(self, link: Trunk, preprocessing: Preprocessing, *, first: bool, last: bool) -> None:
        super().__init__()
        self.stage = link.stages[0]
        self._link = (link,)  # in a tuple: not a part of this stage, whose weights are the stage's own
        self._preprocessing = preprocessing
        self.first, self.last = first, last

    def prepared(self, inputs: Hidden) -> Hidden:
        """The chain's inputs as the link takes them."""
        return self._link[0].prepare(self._preprocessing(inputs))

    def forward(self, hidden: Hidden) -> Hidden:
        inputs = hidden if self.first else hidden["inputs"]
        reached = {"hidden": self.stage(self.prepared(inputs))}
        return reached if self.last else {"inputs": inputs, **reached}

    def extra_repr(self) -> str:
        # What a trunk prints is part of its fingerprint: a link at another resolution is another network, and of a
        # function nothing but its name is known.
        return f"{self._link[0].name} {json.dumps(self._preprocessing.describe(), sort_keys=True)}"


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


def _shared_classes(links: Sequence[Trunk]) -> tuple[str, ...]:
    """Return the class names of the links that have some; they must agree, order included."""
    named = [link for link in links if link.classes]
    for link in named[1:]:
        if tuple(link.classes) != tuple(named[0].classes):
            place = next(
                i for i, pair in enumerate(zip(named[0].classes, link.classes, strict=True)) if len({*pair}) > 1
            )
            raise InputError(
                f"expected networks with the same classes in the same order, got class {place} as "
                f"'{named[0].classes[place]}' of '{named[0].name}' and '{link.classes[place]}' of '{link.name}'; order "
                "the outputs of one as those of the other, and set its `classes`"
            )
    return named[0].classes if named else ()


class ChainTrunk(Trunk):
    """A chain of trunks. Made by `chain`.

    The hidden state holds the current link's own under "hidden" and, until the last link has started, the chain's
    inputs under "inputs". Where all links prepare inputs alike, the chain's `preprocessing` does it once.

    Args:
        links: The trunks.
        name: Part of the fingerprint.
    """

    def __init__(self, links: Sequence[Trunk], *, name: str) -> None:
        if len(links) < 2:
            raise InputError(f"a chain needs at least two networks, got {len(links)}")
        if len({link.num_classes for link in links}) > 1:
            classes = ", ".join(f"{link.name} with {link.num_classes}" for link in links)
            raise InputError(f"the networks of a chain must have the same classes, got {classes}")
        alike = all(link.preprocessing == links[0].preprocessing for link in links)
        stages: list[nn.Module] = []
        heads: dict[int, nn.Module] = {}
        place: list[tuple[Trunk, int]] = []
        for index, link in enumerate(links):
            offset = len(stages)
            own = AS_IS if alike else link.preprocessing
            stages.append(_Begin(link, own, first=index == 0, last=index == len(links) - 1))
            stages.extend(_Continue(stage) for stage in list(link.stages)[1:])
            heads |= {offset + stage: _Head(link.heads[str(stage)]) for stage in link.own_heads}
            place += [(link, stage) for stage in range(link.num_exits)]
        super().__init__(name, stages, heads, links[0].num_classes)
        self.links = tuple(links)
        self.preprocessing = links[0].preprocessing if alike else AS_IS
        self.classes = _shared_classes(links)
        self._place = place
        self.alike = alike
        known = [replace(link.factory, preprocessing=link.preprocessing) for link in links if link.factory is not None]
        if len(known) == len(links):
            self.factory = Factory("chain", {"name": name}, links=tuple(known))
        self.declared_mul_adds = {
            stage: link.declared_mul_adds[local]
            for stage, (link, local) in enumerate(place)
            if local in link.declared_mul_adds
        }

    @property
    def bare_stages(self) -> range:
        """The stages of the last network."""
        last = self.links[-1]
        return range(self.num_exits - last.num_exits + last.bare_stages.start, self.num_exits)

    @property
    def stages_of_links(self) -> tuple[range, ...]:
        """The stages of each link."""
        ends = np.cumsum([0, *(link.num_exits for link in self.links)]).tolist()
        return tuple(range(start, stop) for start, stop in pairwise(ends))

    def without(self, index: int) -> Trunk:
        """The chain without one of its links; the last network alone where no other is left."""
        kept = [link for place, link in enumerate(self.links) if place != index]
        return kept[0] if len(kept) == 1 else chain(*kept)

    def prepare(self, inputs: Any) -> Hidden:
        """As the last network does it where links prepare inputs alike; else raw inputs as tensors."""
        return self.links[-1].prepare(inputs) if self.alike else super().prepare(inputs)

    def axes(self, depth: int) -> Any:
        """Of the inputs: the last network's where links prepare them alike, else samples first."""
        if depth == 0:
            return self.links[-1].axes(0) if self.alike else SAMPLES_FIRST
        link, local = self._place[depth - 1]
        riding = {"inputs": self.axes(0)} if depth <= self.stages_of_links[-1].start else {}
        return {**riding, "hidden": link.axes(local + 1)}

    def representation(self, hidden: Hidden, stage: int) -> Representation:
        """What the stage's own network shows."""
        link, local = self._place[stage]
        return link.representation(hidden["hidden"], local)

    def inputs_of_links(self, inputs: Hidden) -> list[Hidden]:
        """The chain's inputs as each link takes them."""
        begins = (self.stages[part.start] for part in self.stages_of_links)
        return [begin.prepared(inputs) for begin in begins if isinstance(begin, _Begin)]

    def sizes(self, inputs: Hidden) -> Tensor:
        """The sizes of samples as the last network sees them."""
        last = self.links[-1]
        return last.sizes(inputs if self.alike else last.prepare(last.preprocessing(inputs)))

    @property
    def grows(self) -> bool:
        """Whether samples differ in size, as the last network sees them."""
        return self.links[-1].grows

    def resized(self, inputs: Hidden, size: int) -> Hidden:
        """The first sample at another size, where links prepare inputs alike: raw ones do not show it."""
        return self.links[-1].resized(inputs, size)

    def batch_size(self, hidden: Hidden, depth: int) -> int:
        """Number of samples in a hidden state."""
        if depth == 0:
            return self._input_trunk.batch_size(hidden, 0)
        link, local = self._place[depth - 1]
        return link.batch_size(hidden["hidden"], local + 1)

    def select(self, hidden: Hidden, keep: Tensor, depth: int) -> Hidden:
        """Some samples of a hidden state, inputs included."""
        return self._each([hidden], depth, lambda trunk, parts, local: trunk.select(parts[0], keep, local))

    def concatenate(self, hiddens: Sequence[Hidden], depth: int) -> Hidden:
        """One batch of several hidden states, inputs included."""
        return self._each(hiddens, depth, lambda trunk, parts, local: trunk.concatenate(parts, local))

    def _each(
        self, hiddens: Sequence[Hidden], depth: int, apply: Callable[[Trunk, Sequence[Hidden], int], Hidden]
    ) -> Hidden:
        """Apply to the inputs as the last network would, and to the current link's own state as that link would."""
        if depth == 0:
            return apply(self._input_trunk, hiddens, 0)
        link, local = self._place[depth - 1]
        made = {"hidden": apply(link, [hidden["hidden"] for hidden in hiddens], local + 1)}
        if "inputs" in hiddens[0]:
            made["inputs"] = apply(self._input_trunk, [hidden["inputs"] for hidden in hiddens], 0)
        return made

    @property
    def _input_trunk(self) -> Trunk:
        """Who knows how samples lie in the chain's inputs: the last network, or of raw inputs any trunk at all."""
        return self.links[-1] if self.alike else _RAW
