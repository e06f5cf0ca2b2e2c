"""The seam to every way to train exits: cached features and prices in, exits out."""

import inspect
from typing import Any, Protocol

from offramp.cost import Prices
from offramp.errors import InputError
from offramp.features import BatchSource
from offramp.methods.fitted import FittedExits
from offramp.registry import Registry

__all__ = ["METHODS", "Method", "default_settings"]


class Method(Protocol):
    """A way to train exits on cached features of a frozen network.

    A method has settings of its own class, whose default is that of the argument `settings`; a field `seed` is set by
    `offramp fit --seed`. A method may also take `checkpoint=`, a file to keep its state in, and `on_epoch=`, to be
    called with an `EpochRecord`.
    """

    def __call__(self, fit: BatchSource, tune: BatchSource, costs: Prices, settings: Any = ...) -> FittedExits:
        """Train exits.

        Args:
            fit: Samples to learn from.
            tune: Samples to choose by, where the method chooses anything.
            costs: What the backbone and its exits cost, in any unit.
            settings: How to train.
        """


def default_settings(method: Method) -> Any:
    """Return the settings that a method uses unless given others: the default of its argument `settings`.

    Args:
        method: The method.

    Example:
        >>> default_settings(METHODS.get("default")).exits
        'ladder'
    """
    parameter = inspect.signature(method).parameters.get("settings")
    if parameter is None or parameter.default is parameter.empty:
        raise InputError(
            f"expected a method with an argument `settings` that has a default, got {method!r}; write "
            "def fit(fit, tune, costs, settings=Settings())"
        )
    return parameter.default


METHODS: Registry[Method] = Registry("method")
"""The ways to train exits, by name.

Example:
    >>> METHODS.get("default").__name__
    'fit_joint'
"""
