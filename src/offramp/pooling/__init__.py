"""Poolings: from a hidden state to the features an exit sees."""

from offramp.pooling import _rich  # noqa: F401 (each registers itself)
from offramp.pooling._pooling import POOLINGS, Pooling, Representation, Tokens

__all__ = ["POOLINGS", "Pooling", "Representation", "Tokens"]
