"""The recommendations for different traffic, which depend on the traffic alone."""

import math

import numpy as np
import pytest

from offramp.errors import InputError
from offramp.monitor import Monitor, Traffic
from offramp.monitor._monitor import Verdict


def traffic(
    random: np.random.Generator,
    samples: int,
    *,
    sure: float = 9.0,
    late: float = 0.5,
    differs: float = 0.02,
    shadow: float = 0.1,
) -> Traffic:
    exits = random.binomial(3, late, samples)
    shadowed = random.random(samples) < shadow
    disagreement = np.where(shadowed, random.random(samples) < differs, math.nan)
    return Traffic(exits, random.beta(sure, 1, samples), disagreement)


def seen(*parts: Traffic, reference: Traffic, max_disagreement: float | None = None) -> Verdict:
    monitor = Monitor(reference, max_disagreement=max_disagreement)
    for part in parts:
        monitor.update(part)
    return monitor.verdict


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(1)


@pytest.mark.parametrize("sure", [6.0, 14.0])
def test_surer_or_less_sure_is_to_be_calibrated_again(random: np.random.Generator, sure: float) -> None:
    verdict = seen(traffic(random, 1000, sure=sure), reference=traffic(random, 1000))
    assert (verdict.action, verdict.alarms[0]) == ("recalibrate", "confidence")
    assert "disagreement" not in verdict.alarms


@pytest.mark.parametrize("late", [0.4, 0.6])
def test_earlier_or_later_is_to_be_calibrated_again(random: np.random.Generator, late: float) -> None:
    verdict = seen(traffic(random, 1000, late=late), reference=traffic(random, 1000))
    assert (verdict.action, verdict.alarms) == ("recalibrate", ("exit",))


def test_more_disagreement_is_to_fall_back(random: np.random.Generator) -> None:
    verdict = seen(traffic(random, 1000, differs=0.25), reference=traffic(random, 2000, shadow=1))
    assert (verdict.action, verdict.alarms) == ("fall back", ("disagreement",))


def test_less_disagreement_is_no_alarm(random: np.random.Generator) -> None:
    reference = traffic(random, 2000, shadow=1, differs=0.3)
    assert seen(traffic(random, 3000, shadow=1, differs=0.0), reference=reference).action == "keep"


@pytest.mark.parametrize(("max_disagreement", "action"), [(0.02, "fall back"), (0.3, "keep")])
def test_a_limit_decides(random: np.random.Generator, max_disagreement: float, action: str) -> None:
    late = traffic(random, 1000, differs=0.25)
    assert seen(late, reference=traffic(random, 1000, shadow=0), max_disagreement=max_disagreement).action == action


def test_the_alarm_stays_and_the_first_sample_of_it_is_told(random: np.random.Generator) -> None:
    reference, before = traffic(random, 1000), traffic(random, 2000)
    change, after = traffic(random, 1000, sure=5), traffic(random, 2000, sure=9)
    monitor = Monitor(reference)
    assert monitor.update(before).action == "keep"
    found = monitor.update(change).tests["confidence"].alarmed_at
    assert found is not None
    assert 2000 < found < 2400
    verdict = monitor.update(after)
    assert (verdict.action, verdict.tests["confidence"].alarmed_at, verdict.samples) == ("recalibrate", found, 5000)
    assert verdict.tests["confidence"].max_wealth >= verdict.tests["confidence"].alarm_level == 300


def test_the_sample_of_an_alarm_is_counted_in_all_traffic(random: np.random.Generator) -> None:
    """One in ten is shadowed: where they all disagree, a handful of them is enough."""
    quiet, loud = traffic(random, 500, shadow=0), traffic(random, 300, differs=1.0)
    verdict = seen(quiet, loud, reference=traffic(random, 1000), max_disagreement=0.02)
    found = verdict.tests["disagreement"].alarmed_at
    assert found is not None
    where = 500 + np.flatnonzero(~np.isnan(loud.disagreement)) + 1
    assert found in where[:6]
    assert verdict.tests["disagreement"].samples == len(loud.shadowed)


@pytest.mark.parametrize("step", [1, 7, 400])
def test_batches_do_not_matter(random: np.random.Generator, step: int) -> None:
    reference, all_of_it = traffic(random, 300), traffic(random, 400, sure=7)
    monitor = Monitor(reference)
    for start in range(0, 400, step):
        monitor.update(all_of_it[start : start + step])
    whole = Monitor(reference).update(all_of_it)
    for name, test in monitor.verdict.tests.items():
        assert test.wealth == pytest.approx(whole.tests[name].wealth)
        assert test.alarmed_at == whole.tests[name].alarmed_at


def test_false_alarms_are_rare_however_small_the_reference(random: np.random.Generator) -> None:
    alarms = [seen(traffic(random, 1500), reference=traffic(random, 50, shadow=1)).action != "keep" for _ in range(300)]
    assert np.mean(alarms) <= 0.01 + 2 * math.sqrt(0.01 * 0.99 / 300)


def test_data_drawn_from_the_same_seed_is_no_different() -> None:
    """Ties broken by the very draws that made the data would hide a change, or make one up."""
    fortunes = []
    for seed in range(100):
        random = np.random.default_rng(seed)
        exits = random.integers(0, 2, 2000)
        monitor = Monitor(Traffic(exits[1000:], np.full(1000, 0.5)), seed=seed)
        fortunes.append(monitor.update(Traffic(exits[:1000], np.full(1000, 0.5))).tests["exit"].max_wealth)
    assert max(fortunes) < 200


def test_one_exit_for_all_is_no_reason_for_alarm(random: np.random.Generator) -> None:
    alike = Traffic(np.zeros(3000), np.full(3000, 0.5))
    verdict = seen(alike, reference=alike[:100])
    assert verdict.action == "keep"
    assert set(verdict.tests) == {"exit", "confidence"}
    assert verdict.tests["exit"].alarm_level == 200


def test_an_exit_that_the_reference_never_took(random: np.random.Generator) -> None:
    verdict = seen(Traffic(np.full(50, 9), random.beta(9, 1, 50)), reference=traffic(random, 500, shadow=0))
    assert verdict.alarms[0] == "exit"


def test_no_traffic_is_no_alarm(random: np.random.Generator) -> None:
    verdict = seen(Traffic([], []), reference=traffic(random, 10))
    assert (verdict.action, verdict.samples) == ("wait", 0)
    assert {test.wealth for test in verdict.tests.values()} == {1.0}


def test_what_is_refused(random: np.random.Generator) -> None:
    with pytest.raises(InputError, match=r"false-alarm rate between 0 and 1, got 0; 1 % is 0.01"):
        Monitor(traffic(random, 10), false_alarm=0)
    with pytest.raises(InputError, match=r"max_disagreement between 0 and 1, got 2; 2 % is 0.02"):
        Monitor(traffic(random, 10), max_disagreement=2)
    with pytest.raises(InputError, match="expected reference samples"):
        Monitor(Traffic([], []))
    with pytest.raises(InputError, match=r"with shadowed samples, as in this traffic, got a reference without"):
        Monitor(traffic(random, 10, shadow=0)).update(traffic(random, 10, shadow=1))
