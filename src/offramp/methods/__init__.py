"""Ways to fit exits on cached features."""

from offramp.methods import _joint  # noqa: F401 (it registers its methods)
from offramp.methods._method import METHODS, FittedExits, Method

__all__ = ["METHODS", "FittedExits", "Method"]
