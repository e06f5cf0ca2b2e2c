"""What leaving costs: tables in any unit, and Mul-Adds counted."""

from offramp.cost.mul_adds import TrunkMulAdds, count_mul_adds, count_trunk, price
from offramp.cost.table import Costs, CostTable
from offramp.cost.thinning import thinned

__all__ = ["CostTable", "Costs", "TrunkMulAdds", "count_mul_adds", "count_trunk", "price", "thinned"]
