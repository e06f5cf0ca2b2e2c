"""What leaving costs: tables in any unit, and Mul-Adds counted."""

from offramp.cost.growth import growth
from offramp.cost.mul_adds import BackboneMulAdds, count_backbone, count_mul_adds, price
from offramp.cost.prices import Prices
from offramp.cost.table import Costs, CostTable
from offramp.cost.thinning import thinned

__all__ = [
    "BackboneMulAdds",
    "CostTable",
    "Costs",
    "Prices",
    "count_backbone",
    "count_mul_adds",
    "growth",
    "price",
    "thinned",
]
