"""Prices: the sum of their parts."""

import pytest

from offramp.calls import Price
from offramp.calls._price import as_price
from offramp.errors import InputError
from tests.cases import each


def test_the_price_of_an_answer_is_the_sum_of_its_parts() -> None:
    price = Price(per_call=1.0, per_input_token=0.1, per_output_token=0.5, per_input=len)
    assert price.of("four", input_tokens=10, output_tokens=2) == pytest.approx(1 + 1 + 1 + 4)


@each(
    ("price", "varies"),
    [
        (Price(), False),
        (Price(per_call=1), False),
        (Price(per_output_token=1), False),
        (Price(per_input_token=1), True),
        (Price(per_input=len), True),
    ],
)
def test_inputs_differ_in_price_if_what_they_hold_is_billed(price: Price, varies: bool) -> None:
    assert price.varies is varies


@each("wrong", [-1.0, float("inf"), float("nan")])
@each("part", ["per_call", "per_input_token", "per_output_token"])
def test_a_price_below_nothing_or_without_end_is_refused(part: str, wrong: float) -> None:
    with pytest.raises(InputError):
        Price(**{part: wrong})  # type: ignore[arg-type]


def test_parts_by_name() -> None:
    assert as_price({"per_call": 2.0, "currency": "EUR"}) == Price(per_call=2.0, currency="EUR")
    assert as_price(None) is None
    with pytest.raises(InputError, match=r"expected per_call, .*currency, got per_token"):
        as_price({"per_token": 1.0})
