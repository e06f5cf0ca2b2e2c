"""Tests and bounds against closed forms, plain loops, and draws whose mean is known."""

import math
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from offramp.uncertainty._bounds import (
    betting_p_values,
    binomial_p_values,
    fixed_bets,
    log_wealth,
    predictable_bets,
)
from tests.cases import each


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@each(("samples", "most"), [(1, 0.5), (20, 0.1), (300, 0.02), (2000, 0.005)])
def test_binomial_p_values_are_exact(samples: int, most: float) -> None:
    counts = range(min(samples, 12) + 1)
    chance = Fraction(most)
    terms = [math.comb(samples, k) * chance**k * (1 - chance) ** (samples - k) for k in counts]
    expected = [float(sum(terms[: k + 1])) for k in counts]
    found = binomial_p_values(torch.tensor(list(counts)), samples=samples, max_loss=most)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-12)
    assert binomial_p_values(torch.tensor(samples), samples=samples, max_loss=most) == pytest.approx(1)


def test_binomial_p_values_of_no_samples_say_nothing() -> None:
    assert binomial_p_values(torch.tensor([0]), samples=0, max_loss=0.1).tolist() == [1.0]


def plain_bets(losses: list[float], confidence: float) -> list[float]:
    """As the equation says, one sample after the other."""
    bets, total, squares, variance = [], 0.5, 0.25, 0.25
    for count, loss in enumerate(losses, start=1):
        bets.append(math.sqrt(2 * math.log(1 / (1 - confidence)) / (len(losses) * variance)))
        total += loss
        squares += (loss - total / (count + 1)) ** 2
        variance = squares / (count + 1)
    return bets


@each("samples", [1, 63, 64, 65, 200])
def test_bets_and_capital_are_those_of_plain_loops(samples: int) -> None:
    losses, most, confidence = drawn(3, samples), 0.6, 0.9
    bets = predictable_bets(losses, confidence=confidence)
    found = log_wealth(losses, bets, most)
    for row in range(3):
        expected = plain_bets(losses[row].tolist(), confidence)
        assert bets[row].tolist() == pytest.approx(expected)
        log, best = 0.0, 0.0
        for loss, bet in zip(losses[row].tolist(), expected, strict=True):
            log += math.log(1 + min(bet, 0.9 / (1 - most)) * (most - loss))
            best = max(best, log)
        assert float(found[row]) == pytest.approx(best)


def test_no_bet_looks_at_its_own_sample() -> None:
    losses = drawn(2, 50)
    changed = losses.clone()
    changed[:, 30] = 1 - changed[:, 30]
    before, after = (predictable_bets(one, confidence=0.95) for one in (losses, changed))
    assert torch.equal(before[:, :31], after[:, :31])
    assert not torch.equal(before[:, 31:], after[:, 31:])


def test_no_samples_are_no_capital() -> None:
    assert log_wealth(torch.zeros(2, 0), torch.ones(2, 1), 0.1).tolist() == [0, 0]


def test_capital_that_outgrows_all_numbers_still_counts() -> None:
    assert bool((log_wealth(torch.zeros(1, 10_000), torch.full((1, 1), 1e9), 0.9999) > 1e3).all())


def test_bound_of_losses_that_are_all_zero_has_a_closed_form() -> None:
    # Fixed bets at the cap: (1 + 0.9 m / (1 - m)) ** n = 1 / delta.
    samples, risk = 500, 0.05
    root = risk ** (-1 / samples) - 1
    expected = root / (0.9 + root)
    assert float(log_wealth(torch.zeros(1, samples), torch.full((1, 1), 9.0), expected)) == pytest.approx(math.log(20))


@each("risk", [0.05, 0.2])
def test_predictable_bets_grow_rich_no_more_often_than_allowed(risk: float) -> None:
    draws = 2000
    allowed = risk + 2 * math.sqrt(risk * (1 - risk) / draws)
    uneven = drawn(draws, 150, seed=1).pow(4)  # mean 1/5
    rare = (drawn(draws, 150, seed=2) < 0.02).double()
    for losses, mean in ((uneven, 0.2), (rare, 0.02)):
        rich = log_wealth(losses, predictable_bets(losses, confidence=1 - risk), mean) > math.log(1 / risk)
        assert float(rich.double().mean()) <= allowed


@each("risk", [0.05, 0.2])
def test_p_values_are_small_no_more_often_than_allowed(risk: float) -> None:
    draws, samples, most = 2000, 300, 0.51  # gaps of 0.02 on average, mapped to [0, 1]
    noise = drawn(draws, samples, seed=3)
    gaps = (noise < 0.05).double() - (noise > 0.97).double()
    bets = fixed_bets(torch.tensor([[0.02]]), samples=samples, confidence=1 - risk)
    small = float((betting_p_values((gaps + 1) / 2, bets, max_loss=most) <= risk).double().mean())
    assert risk / 20 < small <= risk + 2 * math.sqrt(risk * (1 - risk) / draws)  # valid, and not idle


def test_what_is_clearly_better_is_found() -> None:
    noise = drawn(200, 3000, seed=4)
    gaps = (noise < 0.010).double() - (noise > 0.994).double()  # 0.004, with the variance of real ones
    bets = fixed_bets(torch.tensor([[0.004]]), samples=3000, confidence=0.95)
    assert float((betting_p_values((gaps + 1) / 2, bets, max_loss=0.51) <= 0.05).double().mean()) > 0.95
