"""A frozen network and the rows it is to be judged by."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from offramp.backbone._backbone import Backbone
from offramp.features import Source

__all__ = ["Pretrained"]


@dataclass(frozen=True)
class Pretrained:
    """A network, the rows it was fitted on, and rows it was not."""

    name: str
    backbone: Callable[[], Backbone]
    """Loads it, frozen; its preprocessing takes the rows below."""
    seen: Callable[[], Source]
    """Training rows it was fitted on: it may know them by heart."""
    unseen: Callable[[], Source]
    """Training rows it never saw."""
    test: Callable[[], Source]
    """Rows that nothing may be fitted or chosen on."""
    train: Callable[[], dict[str, Any]] | None
    """Fits it anew, writes its weights and returns the figures kept beside them; None where the weights are given."""
    other_tests: Mapping[str, Callable[[], Source]] = field(default_factory=dict)
    """Further tests by name, parts of `test` under another distribution of classes."""
