"""What leaving costs: tables in any unit, and Mul-Adds counted."""

from offramp.cost.growth import growth
from offramp.cost.mul_adds import TrunkMulAdds, count_mul_adds, count_trunk, price
from offramp.cost.prices import Prices
from offramp.cost.table import Costs, CostTable
from offramp.cost.thinning import thinned

__all__ = [
    "CostTable",
    "Costs",
    "Prices",
    "TrunkMulAdds",
    "count_mul_adds",
    "count_trunk",
    "growth",
    "price",
    "thinned",
]
