"""Simultaneous intervals: coverage, pairing, and who is behind."""

import numpy as np
import pytest

from offramp_bench.tracks.intervals import bootstrap_figures, compare
from offramp_bench.tracks.yardstick import Curve

FIGURES = ("accuracy at 50 % of the cost", "mean accuracy")


def draw(generator: np.random.Generator, accuracy: float, *, samples: int = 400, seeds: int = 3) -> list[Curve]:
    """One point at 40 % of the cost with the given accuracy; the full network is right on 95 %."""
    full_correct = generator.random(samples) < 0.95
    return [
        Curve(
            np.full((1, samples), 0.4, np.float32),
            (generator.random(samples) < accuracy)[None],
            np.ones(samples, np.float32),
            full_correct,
        )
        for _ in range(seeds)
    ]


def test_a_contestant_that_is_the_default_has_no_lead_and_no_width() -> None:
    curves = draw(np.random.default_rng(0), 0.8)
    drawn, measured = bootstrap_figures({"default": curves, "twin": curves}, 0.4, draws=50)
    leads = compare(drawn, measured, {"default": ["twin"]}, dict.fromkeys(drawn, FIGURES))["default"]
    assert [(lead.lead, lead.low, lead.high) for lead in leads["twin"]] == [(0, 0, 0)] * 2


def test_costs_count_the_other_way() -> None:
    generator = np.random.default_rng(1)
    cheap, dear = draw(generator, 1.0), draw(generator, 1.0)
    dear = [Curve(curve.spent * 2, curve.correct, curve.full, curve.full_correct) for curve in dear]
    drawn, measured = bootstrap_figures({"default": cheap, "other": dear}, 0.8, draws=50)
    figures = {"default": (*FIGURES, "cost at 0 points lost"), "other": ["cost at 0 points lost"]}
    (lead,) = compare(drawn, measured, {"default": ["other"]}, figures)["default"]["other"]  # at what both have
    assert lead.lead == pytest.approx(0.4, abs=1e-5)
    assert lead.is_ahead
    assert not lead.is_behind


def test_intervals_hold_together_with_95_percent() -> None:
    # Five contestants exactly as good as the default: all intervals hold 0 in about 95 of 100 worlds.
    generator = np.random.default_rng(2)
    missed = 0
    for world in range(100):
        curves = {f"{place}": draw(generator, 0.8, seeds=2) for place in range(6)}
        drawn, measured = bootstrap_figures(curves, 0.4, draws=150, seed=world)
        leads = compare(drawn, measured, {"0": list(curves)}, dict.fromkeys(drawn, FIGURES))["0"]
        missed += any(lead.is_behind or lead.is_ahead for found in leads.values() for lead in found)
    assert missed <= 13  # 99.9 % of binomial draws with 5 % are at most this


def test_a_difference_is_found() -> None:
    generator = np.random.default_rng(3)
    drawn, measured = bootstrap_figures(
        {"default": draw(generator, 0.7), "better": draw(generator, 0.9), "worse": draw(generator, 0.5)}, 0.4, draws=200
    )
    leads = compare(drawn, measured, {"default": ["better", "worse"]}, dict.fromkeys(drawn, FIGURES))["default"]
    assert all(lead.is_behind for lead in leads["better"])
    assert all(lead.is_ahead for lead in leads["worse"])
