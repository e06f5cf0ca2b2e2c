"""Tables of the pages about guarantees, from made-up results."""

from typing import Any

from offramp_bench.guarantees.tables import default_block, dial_block, risk_block, shift_block, stream_block


def _default(ratio: float) -> dict[str, Any]:
    return {
        "calibrate": 1667,
        "guaranteed": 0.905,
        "broken": 0.04,
        "cost": 0.137,
        "ratio": ratio,
        "cheapest that truly keeps one point": 0.074,
        "within half a point on tune": {"more than one point lost": 0.365},
    }


def test_a_task_that_misses_its_target_is_named() -> None:
    text = default_block({"cifar10": _default(1.28), "banking77": _default(1.87)})
    assert "| 1.28 | **1.87** |" in text
    assert "Banking77 misses the target: the cheapest point whose true loss is at most 0.01 costs only 7 %" in text
    assert "CIFAR-10 misses" not in text


def test_the_worst_share_of_broken_guarantees_is_of_all_cells() -> None:
    rows = [
        {
            "loss": loss,
            "samples": 1000,
            "max_drop": drop,
            "risk": risk,
            "bound": bound,
            "broken": 0.06 if (bound, loss) == ("wsr", "brier") and risk == 0.1 else 0.01,
            "nothing promised": 0.6,
            "saved": 0.25,
            "saved with no guarantee": 0.5,
        }
        for loss in ("accuracy", "disagreement", "brier")
        for drop in (0.005, 0.01, 0.02)
        for risk in (0.05, 0.1)
        for bound in ("ltt", "wsr")
    ]
    text = risk_block({"clinc150": {"rows": rows}})
    assert "at most 0.010 at risk 0.05 and 0.060 at risk 0.1" in text
    assert "| CLINC150, 1,000 | accuracy | 0.25 (0.50) | 0.25 (0.50) | 0.25 (0.50) |" in text
    assert "in 60 % of CLINC150's draws" in text


def test_a_debt_beyond_its_bound_is_reported() -> None:
    beyond = {"beyond": 0.0005}
    budgets = {
        "settings": 91,
        "test samples": 6000,
        "one setting": beyond,
        "one setting, on the calibrate split": beyond,
        "kept by a controller": beyond,
    }

    def stream(debt: float) -> list[dict[str, Any]]:
        size = {"average": 0.502, "accuracy": 0.897, "largest debt": debt, "its bound": 10.0}
        fixed = {"average": 0.488, "accuracy": 0.924}
        return [{"budget": 0.5, "one setting": fixed, "batch size": {"64": size}, "off by": 0.005}]

    results = {
        "budgets": {"cifar10": budgets, "banking77": budgets},
        "streams": {"cifar10": stream(5.5), "banking77": stream(480.0)},
    }
    text = dial_block(results)
    assert "| largest debt, as a share of the theorem's bound | 0.55 | **48** |" in text
    assert "The last row misses its bar of 1 on Banking77" in text
    assert "answered 89.7 % correctly at a cost of 0.502, one fixed point 92.4 % at 0.488" in stream_block(results)


def test_shifts_that_a_cheap_point_misses_are_named() -> None:
    def shift(share: float, *, cost: float) -> dict[str, Any]:
        when = {"found": share, "median delay": 214.0 if share > 0.5 else None}
        row = {"shift": "10% out of scope", "cost": cost, "accuracy lost": 0.096, "must be found": True}
        return {**row, "from the start": when, "late": when}

    again = {"shift": "10% out of scope", "before": {"broken": 0.642}, "after": {"broken": 0.036}}
    shifts = {"default": [shift(1.0, cost=0.05)], "cheap": [shift(0.4, cost=0.005)]}
    text = shift_block({"clinc150": {"shifts": shifts, "calibrated again": [again]}})
    assert "| CLINC150, 10 % out of scope | 9.6 | 100 %, 214 | 100 %, 214 | 64.2 % | 3.6 % |" in text
    assert "0.5 % of the cost on CLINC150" in text
    assert "or more: CLINC150, 10 % out of scope: 60.0 %, late 60.0 %." in text
