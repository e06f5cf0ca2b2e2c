"""Ways to fit exits on cached features."""

from offramp.methods import _joint, _logistic  # noqa: F401 (they register their methods)
from offramp.methods._method import METHODS, FittedExits, Method

__all__ = ["METHODS", "FittedExits", "Method"]
