"""The unit of costs, as it is shown."""

from offramp.cost._unit import CostUnit


def test_money_is_shown_for_a_thousand() -> None:
    unit = CostUnit("EUR", 0.002)
    assert (unit.is_money, unit.full_ms, unit.noun, unit.heading) == (True, None, "EUR", "EUR per 1,000")
    assert (unit.figure(0.25), unit.show(1)) == ("0.5", "2 EUR per 1,000")


def test_milliseconds_are_shown_for_one() -> None:
    unit = CostUnit("ms", 8.0)
    assert (unit.is_money, unit.full_ms, unit.noun, unit.heading) == (False, 8.0, "time", "ms")
    assert unit.show(0.25) == "2 ms"


def test_mul_adds_are_shares_alone() -> None:
    unit = CostUnit()
    assert (unit.is_money, unit.noun, unit.heading, unit.figure(0.5), unit.show(0.5)) == (False, "Mul-Adds", "", "", "")
