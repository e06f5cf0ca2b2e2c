from dataclasses import replace

import pytest

from offramp.cost._unit import CostUnit
from offramp.model._evaluation import Measured
from offramp.report._answers import Coverage
from offramp.report._findings import Findings
from offramp.report._words import (
    change,
    clean,
    cost,
    describe_cost,
    headline,
    list_cautions,
    list_facts,
    list_notes,
    verdict,
)
from tests.cases import each
from tests.report.examples import found


@pytest.fixture(scope="module")
def findings() -> Findings:
    told = found()
    chosen = replace(
        told.chosen,
        relative_cost=0.5512,
        accuracy=0.931,
        accuracy_interval=(0.9252, 0.9371),
        change=-0.003,
        change_interval=(-0.0061, 0.0),
    )
    full = replace(told.full, name="big", accuracy=0.934, relative_cost=1.0, lead=0.003)
    return replace(told, chosen=chosen, alternatives=(full,), coverage=())


def test_the_verdict_is_one_sentence_with_intervals(findings: Findings) -> None:
    assert verdict(findings).replace("\N{NO-BREAK SPACE}", " ") == (
        "At 55.1 % of the full network's cost (counted Mul-Adds) it is right 93.1 % of the time (92.5 to 93.7); the "
        "full network 93.4 %: change \N{MINUS SIGN}0.3 points (\N{MINUS SIGN}0.6 to 0.0)."
    )


@each(
    ("cost_", "expected"),
    [
        (0.098, "10x cheaper"),
        (0.1004, "10x cheaper"),
        (0.42, "2.4x cheaper"),
        (0.0005, "2,000x cheaper"),
        (0.9, "10 % cheaper"),
        (1.0, "The cost of the full network: nothing is saved"),
        (0.998, "The cost of the full network: nothing is saved"),
        (1.13, "13 % more expensive than the full network: nothing is saved"),
        (0.0, "No cost at all"),
    ],
)
def test_the_headline_is_what_is_saved(cost_: float, expected: str) -> None:
    assert headline(cost_, CostUnit()) == headline(cost_, CostUnit("EUR", 0.1)) == expected
    timed = headline(cost_, CostUnit("ms", 4.0))
    assert timed == expected.replace("cheaper", "faster").replace("more expensive", "slower")


def test_facts_are_before_and_after_with_intervals(findings: Findings) -> None:
    accuracy, spent = list_facts(findings)
    assert accuracy[1].replace("\N{NO-BREAK SPACE}", " ") == "93.4 % before, 93.1 % after"
    assert "92.5 to 93.7 after" in accuracy[2]
    assert "\N{MINUS SIGN}0.6 to 0.0" in accuracy[2]
    assert spent[1].startswith("55.1")
    assert "counted Mul-Adds" in spent[2]


def test_time_and_price_are_told_where_they_are_known(findings: Findings) -> None:
    timed = list_facts(replace(findings, unit=CostUnit("ms", 8.0), cost_kind="measured time"))
    assert timed[2][:2] == ("Time", "8 ms before, 4.41 ms after")
    priced = list_facts(replace(findings, unit=CostUnit("EUR", 0.002), cost_kind="EUR"))
    assert priced[2][:2] == ("Price", "2 EUR before, 1.102 EUR after")
    assert "Per 1,000 inputs" in priced[2][2]
    assert describe_cost(findings.chosen, CostUnit("ms", 8.0)).endswith("; 4.41 ms per input")
    assert describe_cost(findings.chosen, CostUnit("EUR", 0.002)).endswith("; 1.102 EUR per 1,000 inputs")
    assert list_facts(replace(findings, unit=CostUnit("ms", 999.7)))[2][1] == "999.7 ms before, 551 ms after"
    assert list_facts(replace(findings, unit=CostUnit("ms", 12345.6)))[2][1] == "12,346 ms before, 6,805 ms after"
    assert "n/a: one row" in describe_cost(replace(findings.chosen, cost_interval=None), CostUnit())


def test_the_bill_comes_first_if_costs_are_money(findings: Findings) -> None:
    told = verdict(replace(findings, unit=CostUnit("EUR", 0.002), cost_kind="EUR"))
    assert told.startswith("The bill: 2 EUR per 1,000 before, 1.102 EUR per 1,000 after. At 55.1")


def test_what_beats_the_point_is_told_first_and_plainly(findings: Findings) -> None:
    assert list_cautions(findings) == ()
    small = replace(findings.full, name="small", relative_cost=0.3, accuracy=0.94, lead=0.009)
    exits = [replace(small, name=f"exit {index}", kind="exit", accuracy=0.95, lead=0.0) for index in range(5)]
    told = list_cautions(replace(findings, alternatives=(findings.full, *exits, small)))
    assert len(told) == 3
    assert told[0].startswith("small by itself is cheaper (0.30) and more accurate here (94.0")
    assert told[1].startswith("Always leaving at exit 0 is cheaper (0.30) and as accurate here")


def test_promises_not_kept_are_told(findings: Findings) -> None:
    kept, broken = Coverage(0.1, 0.88, (0.85, 0.91)), Coverage(0.05, 0.9, (0.87, 0.93))
    assert list_cautions(replace(findings, coverage=(kept,))) == ()
    (told,) = list_cautions(replace(findings, coverage=(kept, broken)))
    assert "less often than guaranteed: 90.0\N{NO-BREAK SPACE}% (87.0 to 93.0) instead of 95.0" in told


def test_notes_say_how_many_samples_and_when_it_may_be_chance(findings: Findings) -> None:
    told = " ".join(list_notes(findings))
    assert "it may be chance" in told
    assert "Costs are counted Mul-Adds" in told
    assert "Costs are measured time" in " ".join(list_notes(replace(findings, cost_kind="measured time")))
    assert "300 samples of 3 classes" in told
    surely: Measured = replace(findings.chosen, change_interval=(-0.006, -0.001))
    assert "it may be chance" not in " ".join(list_notes(replace(findings, chosen=surely)))
    fewer = (*findings.by_class[:-1], replace(findings.by_class[-1], samples=0))
    assert "1 of the classes has no samples" in " ".join(list_notes(replace(findings, by_class=fewer)))


def test_numbers_read_well() -> None:
    assert [change(value) for value in (-0.0004, 0.0004, 0.012, -0.2)] == ["0.0", "0.0", "+1.2", "\N{MINUS SIGN}20.0"]
    assert [cost(value) for value in (0.0034, 0.0951, 1.126)] == ["0.003", "0.10", "1.13"]


def test_characters_no_page_may_hold_are_replaced() -> None:
    assert clean("ok \N{NO-BREAK SPACE}喵\n\t") == "ok \N{NO-BREAK SPACE}喵\n\t"
    assert clean("a\x00b\x1b\ud800\uffff") == "a\ufffdb\ufffd\ufffd\ufffd"
