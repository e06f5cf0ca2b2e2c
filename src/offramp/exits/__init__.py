"""Trained parts: classifiers on the backbone's features, and gates on the classifiers' answers."""

from offramp.exits._exit_set import EXITS, ExitSet
from offramp.exits._ladder import LadderExits
from offramp.exits._linear import LinearExits

__all__ = ["EXITS", "ExitSet", "LadderExits", "LinearExits"]
