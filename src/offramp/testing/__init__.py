"""Contracts that backbones of others can be held against."""

from offramp.testing.backbone import check_backbone

__all__ = ["check_backbone"]
