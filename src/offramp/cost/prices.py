"""The seam to every unit of cost: whatever can price exits that are yet to be trained."""

from typing import Protocol

from offramp.cost.table import Costs
from offramp.exits import ExitBank
from offramp.policy import Policy

__all__ = ["Prices"]


class Prices(Protocol):
    """What a network's pieces cost, in Mul-Adds or in milliseconds."""

    def price(self, bank: ExitBank, policy: Policy) -> Costs:
        """Put the costs of network, exits and policy together.

        Args:
            bank: The exits.
            policy: What decides who leaves.
        """
