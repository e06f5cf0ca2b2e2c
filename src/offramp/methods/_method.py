"""The interface of every way to train exits: cached features and prices in, exits out."""

import inspect
from dataclasses import dataclass
from typing import Any, Protocol

from offramp._registry import Registry
from offramp.cost._table import Prices
from offramp.errors import InputError
from offramp.exits import ExitSet
from offramp.exits._gate import Gates
from offramp.features import BatchSource

__all__ = ["METHODS", "FittedExits", "Method", "default_settings"]


@dataclass(frozen=True)
class FittedExits:
    """Trained exits, and gates if the method trains any."""

    exits: ExitSet
    """The classifiers: one set per cost weight, or one for all."""
    gates: Gates | None = None
    """The gates, one set per cost weight; None where the method trains none."""
    gate_policy: str = "gates"
    """Name of the policy that the gates were trained for."""

    @property
    def trained_gates(self) -> Gates:
        """The gates; an error if the method trains none."""
        if self.gates is None:
            raise InputError(
                expected="exits with gates",
                got="exits of a method that trains none",
                hint="fit with method='paper', or choose the policy 'threshold'",
            )
        return self.gates


class Method(Protocol):
    """A way to train exits on cached features of a frozen network.

    A method has settings of its own class, whose default is that of the argument `settings`; a field `seed` is set by
    `offramp fit --seed`. A method may also take `checkpoint=`, a file to save its state in, and `on_epoch=`, a callback
    that takes an `EpochRecord`.
    """

    def __call__(self, fit: BatchSource, tune: BatchSource, costs: Prices, settings: Any = ...) -> FittedExits:
        """Train exits.

        Args:
            fit: Samples to train on.
            tune: Samples to choose by.
            costs: Costs of the backbone and its exits, in any unit.
            settings: Settings of the method.
        """


def default_settings(method: Method) -> Any:
    """Return the default of a method's argument `settings`.

    Example:
        >>> default_settings(METHODS.get("default")).exits
        'ladder'
    """
    parameter = inspect.signature(method).parameters.get("settings")
    if parameter is None or parameter.default is parameter.empty:
        raise InputError(
            expected="a method with an argument `settings` that has a default",
            got=repr(method),
            hint="write def fit(fit, tune, costs, settings=Settings())",
        )
    return parameter.default


METHODS: Registry[Method] = Registry("method")
"""The ways to train exits, by name."""
