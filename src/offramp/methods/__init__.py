"""Ways to fit exits on cached features."""

from offramp.methods import _distilled, _joint  # noqa: F401 (each registers itself)
from offramp.methods._method import METHODS, FittedExits, Method

__all__ = ["METHODS", "FittedExits", "Method"]
