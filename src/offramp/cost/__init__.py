"""Costs of leaving: tables in any unit, and Mul-Adds counted."""

from offramp.cost._fewer_exits import keep_exits
from offramp.cost._mul_adds import count_backbone
from offramp.cost._table import Costs

__all__ = ["Costs", "count_backbone", "keep_exits"]
