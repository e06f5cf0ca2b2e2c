"""What a trunk was made with, so that a saved frontier can name it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from offramp.errors import InputError
from offramp.trunk.preprocessing import AS_IS, Preprocessing

__all__ = ["Factory", "check_classes"]


MOST_CLASSES = 1_000_000
"""Classes at most: a number from a file must not ask for any amount of memory."""


def check_classes(num_classes: int) -> None:
    """Refuse a number of classes that no classifier has."""
    if type(num_classes) is not int or not 2 <= num_classes <= MOST_CLASSES:
        raise InputError(f"expected 2 to {MOST_CLASSES:,} classes, got {num_classes!r}")


@dataclass(frozen=True)
class Factory:
    """What makes a trunk: a name, and what to call it with."""

    name: str
    """A registered name, or `package.module:function`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments: numbers, texts, lists of them."""
    preprocessing: Preprocessing = AS_IS
    """What the trunk does to raw inputs."""
    links: tuple["Factory", ...] = ()
    """Of a chain, its networks'."""

    @property
    def size(self) -> int:
        """How many networks there are to make."""
        return sum(link.size for link in self.links) if self.links else 1
