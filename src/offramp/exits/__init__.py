"""Trained parts: classifiers on the backbone's features, and gates on the classifiers' answers."""

from offramp.exits.averaging import Averaging
from offramp.exits.bank import EXITS, ExitBank, all_logits, stack_exits
from offramp.exits.gate import Gates
from offramp.exits.ladder import LadderExits
from offramp.exits.linear import CumulativeLinearExits, LinearExits

__all__ = [
    "EXITS",
    "Averaging",
    "CumulativeLinearExits",
    "ExitBank",
    "Gates",
    "LadderExits",
    "LinearExits",
    "all_logits",
    "stack_exits",
]
