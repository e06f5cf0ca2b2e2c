"""Contract checks for backbones of your own."""

from offramp.testing._backbone import check_backbone

__all__ = ["check_backbone"]
