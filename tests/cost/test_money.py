"""Prices of cascades that end in a called model."""

from typing import Any

import numpy as np
import pytest
import torch

import offramp
from offramp.calls import Price, Reply
from offramp.cost._money import costs_money, price_members
from offramp.errors import InputError
from tests.cases import each

CLASSES = ("no", "yes")


def member(name: str, price: Price | None, reply: Any = 0) -> Any:
    made = offramp.callable_model(lambda texts: [reply] * len(texts), CLASSES, name=name, price=price)
    made(["abcd", "abcdefgh"])  # prices are learned from answers
    return made


def test_prices_per_call() -> None:
    both = offramp.cascade(member("small", Price(1.0, currency="EUR")), member("large", Price(10.0, currency="EUR")))
    prices = price_members(both)
    assert prices.stage.tolist() == [[1.0, 10.0], [0.0, 0.0]]
    assert (prices.full.tolist(), prices.currency) == ([10.0, 0.0], "EUR")
    assert costs_money(both)


def test_a_member_without_a_price_is_free_but_the_last_counts_calls() -> None:
    both = offramp.cascade(member("small", None), member("large", None))
    prices = price_members(both)
    assert prices.stage[0].tolist() == [0.0, 1.0]
    assert prices.currency == "calls"


def test_long_texts_cost_more() -> None:
    price = Price(per_input_token=0.5, currency="EUR")
    large = offramp.callable_model(
        lambda texts: [Reply(0, input_tokens=len(text) // 2) for text in texts], CLASSES, name="large", price=price
    )
    large(["ab" * size for size in range(1, 30)])
    prices = price_members(offramp.cascade(offramp.encoder(lambda texts: np.zeros((len(texts), 1))), large))
    sizes = large.sizes(np.array(["ab", "ab" * 20], dtype=object))
    found = prices.full[0] + prices.full[1] * sizes
    assert torch.allclose(found, torch.tensor([0.5, 10.0], dtype=torch.float64), atol=0.1)


@each(
    "prices, message",
    [
        ((Price(1.0, currency="EUR"), Price(2.0, currency="USD")), r"one currency, got \['EUR', 'USD'\]"),
        ((None, Price(0.0, currency="EUR")), "a price above 0, as all costs are relative to it"),
    ],
)
def test_prices_that_cannot_be_compared(prices: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        price_members(offramp.cascade(member("small", prices[0]), member("large", prices[1])))


def test_costs_of_networks_are_not_money() -> None:
    assert not costs_money(offramp.backbone.CifarResNet(8))
    declared = offramp.callable_model(lambda texts: texts, CLASSES, name="counted", mul_adds=10)
    assert not costs_money(declared)
