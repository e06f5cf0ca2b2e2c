"""Contracts that trunks of others can be held against."""

from offramp.testing.trunk import check_trunk

__all__ = ["check_trunk"]
