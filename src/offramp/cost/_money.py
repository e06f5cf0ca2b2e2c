"""Prices of cascades whose last member is paid for by the call."""

from dataclasses import dataclass

import torch
from torch import Tensor

from offramp.backbone import Cascade
from offramp.backbone._backbone import Backbone
from offramp.backbone.adapters._callable import CalledModel
from offramp.cost._table import Costs, CostTable
from offramp.errors import InputError
from offramp.exits import ExitSet
from offramp.policy import Policy

__all__ = ["MoneyPrices", "costs_money", "price_members"]


@dataclass(frozen=True)
class MoneyPrices:
    """The price per sample of each stage of a cascade, as a + b size; see `CalledModel.sizes`."""

    stage: Tensor
    """`2 x L`: the coefficients of 1 and of the size."""
    full: Tensor
    """`2` coefficients of the last member."""
    currency: str
    """Name of the currency, or "calls"."""

    def price(self, exits: ExitSet, _policy: Policy) -> Costs:
        """Return the costs of the cascade; its exits and decisions run on the user's machine and are free."""
        free = torch.zeros_like(self.stage[0])
        return Costs(
            tuple(
                CostTable(stage, free, free, free, full=full, carries_state=exits.carries_state)
                for stage, full in zip(self.stage, self.full, strict=True)
            )
        )


def costs_money(backbone: Backbone) -> bool:
    """Tell if the costs of a network are prices: it is a cascade that ends in a priced model."""
    last = backbone.members[-1] if isinstance(backbone, Cascade) else backbone
    return isinstance(last, CalledModel) and last.is_priced


def price_members(backbone: Cascade) -> MoneyPrices:
    """Price the members of a cascade.

    The price of a called member in front is taken to grow with the size that the last member sees, by the ratio of
    their mean sizes. The price of a network is spread evenly over its stages. Members without a price are free.

    Args:
        backbone: The cascade; called members must have given answers, from which their prices are learned.
    """
    last = backbone.members[-1]
    assert isinstance(last, CalledModel)
    currencies = {member.price.currency for member in backbone.members if member.price is not None}
    if len(currencies) > 1:
        raise InputError("prices of a cascade", expected="one currency", got=sorted(currencies))
    columns = []
    for member in backbone.members:
        base, slope = 0.0, 0.0
        if isinstance(member, CalledModel) and (member is last or member.price is not None):
            base, slope = member.caller.price_line
            if slope:
                slope *= member.caller.mean_size / last.caller.mean_size
        elif member.price is not None:
            base = member.price.per_call
        column = torch.tensor([[base], [slope]], dtype=torch.float64) / member.num_exits
        columns.append(column.expand(2, member.num_exits))
    full = torch.tensor(last.caller.price_line, dtype=torch.float64)
    if not full.any():
        raise InputError(
            f"price of '{last.name}'",
            expected="a price above 0, as all costs are relative to it",
            got="0",
            hint="give price=offramp.calls.Price(per_call=...), or none: then calls are counted",
        )
    return MoneyPrices(torch.cat(columns, dim=1), full, last.caller.price.currency)
