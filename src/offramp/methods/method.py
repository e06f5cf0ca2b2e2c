"""The seam to every way to train exits: cached features and prices in, exits out."""

from typing import Protocol

from offramp.cost import Prices
from offramp.features import BatchSource
from offramp.methods.fitted import FittedExits
from offramp.methods.settings import JointSettings
from offramp.registry import Registry

__all__ = ["METHODS", "Method"]


class Method(Protocol):
    """A way to train exits on cached features of a frozen network.

    Every method trains its classifiers for `warmup_epochs + epochs` passes, early stopping aside, on batches of
    `samples_a_step`, and draws every random number from `seed`; of the other settings each reads those its docstring
    names.
    """

    def __call__(self, fit: BatchSource, tune: BatchSource, costs: Prices, settings: JointSettings) -> FittedExits:
        """Train exits.

        Args:
            fit: Samples to learn from.
            tune: Samples to choose by, where the method chooses anything.
            costs: What the trunk and its exits cost, in any unit.
            settings: How to train.
        """


METHODS: Registry[Method] = Registry("method")
"""The ways to train exits, by name.

Example:
    >>> METHODS.get("joint").__name__
    'fit_joint'
"""
