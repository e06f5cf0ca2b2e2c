"""The count of broken guarantees, on pools whose risks are known."""

from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor

from offramp.uncertainty._risk import LOSSES, RiskLoss, smooth_variances
from offramp_bench.bars import Bar
from offramp_bench.guarantees.__main__ import PARTS
from offramp_bench.guarantees.risk import RISKS, Candidates, _bar_figures, _side_by_side, tally
from tests.cases import each


def pool(loss: str = "disagreement", *, steps: int = 21, samples: int = 4000) -> Candidates:
    """Return points that lose from 0 to 0.1 with nested errors; cheaper points lose more."""
    shares = torch.linspace(0.1, 0, steps, dtype=torch.float64)
    noise = torch.rand(samples, generator=torch.Generator().manual_seed(0))
    losses = (noise < shares[:, None]).to(torch.int8)
    variances = smooth_variances(LOSSES[loss].to_unit(losses).var(1, unbiased=False), samples)
    costs = torch.linspace(0.2, 1, steps, dtype=torch.float64)
    return Candidates(LOSSES[loss], costs, losses.double().mean(1), variances, losses, 1 - costs)


@each("loss", ["disagreement", "accuracy"])
def test_promises_hold_and_cost_something(loss: str) -> None:
    rows = tally(pool(loss), size=500, draws=150, drops=(0.05,))
    assert [(row["risk"], row["bound"]) for row in rows] == [
        (risk, bound) for risk in RISKS for bound in ("ltt", "wsr")
    ]
    for row in rows:
        assert row["broken"] <= row["risk"] + 3 * (row["risk"] / 150) ** 0.5
        assert 0 < row["saved"] < row["saved with no guarantee"]
        assert row["ratio"] == pytest.approx(row["saved"] / row["saved with no guarantee"])
        assert row["nothing promised"] == 0


def test_what_too_few_samples_cannot_promise_saves_nothing() -> None:
    for row in tally(pool(), size=20, draws=5, drops=(0.01,)):
        assert (row["nothing promised"], row["saved"], row["broken"]) == (1, 0, 0)


def test_promises_are_counted_by_the_pool_and_not_by_what_was_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a test, points that look good on the draw are taken; about every other guarantee is broken."""

    def careless(drawn: Tensor, loss: RiskLoss, *, max_loss: float, **_: object) -> int:
        return int((drawn.double().mean(1) <= max_loss).nonzero().max())

    monkeypatch.setattr("offramp_bench.guarantees.risk.last_passing", careless)
    for row in tally(pool(), size=500, draws=200, drops=(0.05,)):
        assert 0.2 < row["broken"] < 0.9
        allowed = {limit for name, _, limit in _bar_figures(full(row["broken"])) if f"risk {row['risk']}" in name}
        assert allowed
        assert row["broken"] > max(allowed)


def full(broken: float) -> list[dict[str, Any]]:
    """Return one row per cell."""
    return [
        {"loss": loss, "bound": bound, "risk": risk, "samples": size, "max_drop": drop, "broken": broken, "ratio": 0.9}
        for loss in LOSSES
        for bound in ("ltt", "wsr")
        for risk in RISKS
        for size in (1000, 3000)
        for drop in (0.005, 0.02)
    ]


def test_the_bars_take_the_worst_cell() -> None:
    rows = full(0.01)
    assert all(Bar(*bar).held for bar in _bar_figures(rows))
    rows[0]["broken"], rows[-1]["ratio"] = 0.07, 0.6
    missed = [name for name, *limits in _bar_figures(rows) if not Bar(name, *limits).held]
    assert missed == [
        "accuracy by ltt, risk 0.05: broken promises in the worst cell",
        "disagreement by wsr: saving given up for 2 points from 3,000 samples",
    ]


def test_routes_are_set_side_by_side() -> None:
    rows = [
        {"loss": loss, "bound": "ltt", "risk": 0.05, "samples": 1000, "max_drop": 0.01, "saved": saved}
        for loss, saved in (("accuracy", 0.5), ("brier", 0.4), ("disagreement", 0.3))
    ]
    (row,) = _side_by_side(rows)
    assert (row["saved with labels"], row["saved without"], row["labels saved"]) == (0.5, 0.3, 1000)


@each("name", PARTS)
def test_every_part_is_a_function_of_a_module_of_its_name(name: str) -> None:
    assert callable(getattr(import_module(f"offramp_bench.guarantees.{name}"), name))
