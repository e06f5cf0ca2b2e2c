"""Simulations of the dial's benchmark, on samples whose costs are known."""

import pytest
import torch

from offramp.policy import OperatingPoint
from offramp.runtime import Dial
from offramp_bench.guarantees.dial import STREAM, SampleCosts, bound, costs_at, draw_stream, run_controller
from tests.cases import each


def dial(settings: int = 10) -> Dial:
    points = [
        OperatingPoint(
            "threshold",
            {},
            (0, 1),
            torch.ones(2),
            tune_metrics={"cost": (row + 1) / settings, "accuracy": row / settings},
        )
        for row in range(settings)
    ]
    return Dial(points)


def samples(count: int = 4000, settings: int = 10) -> SampleCosts:
    """Return samples that cost 1 instead of 0.1 where they are harder than the setting's limit; sizes differ."""
    hardness = torch.rand(count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    limits = 1 - ((torch.arange(settings, dtype=torch.float64) + 1) / settings - 0.1) / 0.9
    full = 1 + torch.arange(count, dtype=torch.float64) % 3
    shares = torch.where(hardness >= limits[:, None], 1.0, 0.1).double()
    return SampleCosts(shares * full, full, hardness >= limits[:, None])


def test_one_setting_costs_what_is_spent_over_the_full_network() -> None:
    costs = samples()
    relative = costs_at(costs, dial(), torch.tensor([0.1, 0.58, 3.0]))
    expected = [float(costs.spent[row].sum() / costs.full.sum()) for row in (0, 4, 9)]
    assert relative.tolist() == pytest.approx(expected)
    assert relative.tolist() == pytest.approx([0.1, 0.5, 1.0], abs=0.02)


@each("batch_size", [1, 64])
def test_a_controller_keeps_a_stream_that_turns_harder(batch_size: int) -> None:
    costs = samples()
    stream = costs.take(draw_stream(costs, seed=0))
    assert len(stream.full) == STREAM
    easier, harder = (stream.spent / stream.full)[4].tensor_split(2)
    assert float(easier.mean()) < 0.4 < 0.6 < float(harder.mean())
    controlled = run_controller(stream, dial(), 0.5, batch_size=batch_size)
    assert controlled["average"] == pytest.approx(0.5, rel=0.02)
    assert controlled["largest debt"] <= controlled["its bound"]
    fixed = run_controller(stream, dial(1), 1.0, batch_size=batch_size)  # a dial of one setting: nothing to move
    assert fixed["average"] == pytest.approx(float((stream.spent / stream.full)[0].mean()))
    assert fixed["accuracy"] == pytest.approx(float(stream.correct[0].double().mean()))
    assert fixed["relative cost"] == pytest.approx(float(stream.spent[0].sum() / stream.full.sum()))


def test_the_bound_is_the_theorems() -> None:
    assert bound(0.5, dial(), (0.1, 1.0), 10) == pytest.approx(100 * 0.5 + 10 * 0.4)
    assert bound(0.9, dial(), (0.1, 1.0), 100) == pytest.approx(200 * 0.8 + 100 * 0.1)
