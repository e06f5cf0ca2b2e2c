"""A frozen network with the samples to evaluate it on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from offramp.backbone._backbone import Backbone
from offramp.features import Source

__all__ = ["Pretrained"]


@dataclass(frozen=True)
class Pretrained:
    """A network, the samples it was fitted on, and others."""

    name: str
    backbone: Callable[[], Backbone]
    """Function that loads it, frozen; its preprocessing takes the samples below."""
    seen: Callable[[], Source]
    """Training samples it was fitted on, and may have memorized."""
    unseen: Callable[[], Source]
    """Training samples it was not fitted on."""
    test: Callable[[], Source]
    """Samples that nothing may be fitted or chosen on."""
    train: Callable[[], dict[str, Any]] | None
    """Function that fits it again, writes its weights and returns the figures; None if the data has the weights."""
    other_tests: Mapping[str, Callable[[], Source]] = field(default_factory=dict)
    """Further tests by name: parts of `test` with another distribution of classes."""
