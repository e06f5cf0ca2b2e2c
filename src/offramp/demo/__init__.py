"""A complete example without downloads: digits, a transformer, a cascade and its exits."""

from offramp.demo._digits import PREPROCESSING, digits
from offramp.demo._run import trained_networks

__all__ = ["PREPROCESSING", "digits", "trained_networks"]
