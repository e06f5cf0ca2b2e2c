"""False alarms over long streams, how soon real shifts are found, and promises after calibrating again."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from offramp.monitor import Monitor, Traffic
from offramp.policy import OperatingPoint
from offramp_bench.bars import Bar, say
from offramp_bench.guarantees.after_shift import BROKEN, recalibration
from offramp_bench.guarantees.pools import POOLS, Pool, pool
from offramp_bench.guarantees.shifts import Shift, shifts_of, traffic_of

__all__ = ["monitoring"]

STREAMS, LENGTH = 1000, 10_000
"""Without a shift."""

SHIFTED_STREAMS, WITHIN = 200, 1000
"""Of each shift, and the samples it is to be found in."""

STARTS = {"from the start": 0, "late": 2000}
"""Samples before a shift."""

REFERENCE = {"cifar10": 2000, "clinc150": 1000}
"""Samples: as many as calibrate there."""

SHADOW = 0.05
"""Share of the traffic that is run to full depth; the reference is as a whole."""

FALSE_ALARM = 0.01

DROPS = {"default": 0.005, "cheap": 0.03}
"""Points: the cheapest that lost at most this on tune. The first is what commands once chose where nothing was asked
for; the other sees less of a sample before it leaves."""

COSTLY, OUTSIDE = 0.05, 0.2
"""Shifts that must be found: the accuracy they cost, or the share of out-of-scope inputs they bring, at least."""


class Samples:
    """Traffic to draw from, with replacement.

    Args:
        traffic: Of a pool.
        other: Of a shift, mixed in.
        share: How much of it.
    """

    def __init__(self, traffic: Traffic, other: Traffic | None = None, share: float = 0.0) -> None:
        self._share, self._rows = share, len(traffic)
        whole = traffic if other is None else traffic.join(other)
        self._columns = np.stack([whole.exits, whole.confidence, whole.disagreement])

    def draw(self, random: np.random.Generator, count: int, *, shadow: float = SHADOW) -> Traffic:
        """So many, each by itself; of a share it is told whether the full network agrees."""
        rows = random.integers(self._rows, size=count)
        if self._share:
            others = random.random(count) < self._share
            rows[others] = random.integers(self._rows, self._columns.shape[1], size=int(others.sum()))
        drawn = self._columns[:, rows]
        drawn[2, random.random(count) >= shadow] = np.nan
        return Traffic(*drawn)


def monitoring() -> tuple[dict[str, Any], list[Bar]]:
    """Figures of both pools, and what must hold of them."""
    figures: dict[str, Any] = {}
    bars: list[Bar] = []
    allowed = FALSE_ALARM + 2 * math.sqrt(FALSE_ALARM * (1 - FALSE_ALARM) / STREAMS)
    for name in POOLS:
        known = pool(name)
        shifts = shifts_of(known)
        say(f"{name}: shifts")
        found = {kind: [_detection(shift, point_of(known, drop)) for shift in shifts] for kind, drop in DROPS.items()}
        say(f"{name}: false alarms")
        alarms = _false_alarms(known, point_of(known, DROPS["default"]))
        say(f"{name}: calibrating again")
        again = recalibration(known, shifts)
        figures[name] = {"false alarms": alarms, "shifts": found, "calibrated again": again}
        bars.append(Bar(f"{name}: streams with a false alarm", alarms["share"], allowed))
        for kind, rows in found.items():
            for row in rows:
                if row["must be found"]:
                    told = f"{name}, {kind} point, {row['shift']}: streams where it is missed"
                    bars += [Bar(f"{told}, {when}", round(1 - row[when]["found"], 6), 0.05) for when in STARTS]
        for row in again:
            told = f"{name}, {row['shift']}: promises broken after calibrating again"
            bars.append(Bar(told, row["after"]["broken"], BROKEN))
    return figures, bars


def point_of(known: Pool, drop: float) -> OperatingPoint:
    """The cheapest point that lost at most so much accuracy on tune."""
    return next(one for one in known.points if one.tune_metrics["accuracy"] >= known.frontier.full_accuracy - drop)


def _false_alarms(known: Pool, point: OperatingPoint) -> dict[str, Any]:
    """Reference and stream both redrawn from the pool."""
    samples, random = Samples(traffic_of(point, known.pool)[0]), np.random.default_rng(0)
    by_test = dict.fromkeys(("exit", "confidence", "disagreement"), 0)
    alarms = 0
    for stream in range(STREAMS):
        monitor = Monitor(samples.draw(random, REFERENCE[known.name], shadow=1), false_alarm=FALSE_ALARM, seed=stream)
        verdict = monitor.update(samples.draw(random, LENGTH))
        alarms += verdict.action != "keep"
        for name in verdict.alarms:
            by_test[name] += 1
    return {
        "streams": STREAMS,
        "samples": LENGTH,
        "reference": REFERENCE[known.name],
        "cost": point.tune_metrics["cost"],
        "share": alarms / STREAMS,
        "by test": {name: count / STREAMS for name, count in by_test.items()},
    }


def _detection(shift: Shift, point: OperatingPoint) -> dict[str, Any]:
    """How soon a shift is found that is there from the start, and one that comes later."""
    pooled, other = (traffic_of(point, seen)[0] for seen in (shift.pool.pool, shift.seen))
    before, after = Samples(pooled), Samples(pooled, other, shift.share)
    lost = shift.accuracy_lost(point)
    row: dict[str, Any] = {
        "shift": shift.name,
        "cost": point.tune_metrics["cost"],
        "accuracy lost": lost,
        "disagreement": [
            float(pooled.disagreement.mean()),
            _mixed(pooled.disagreement, other.disagreement, shift.share),
        ],
        "must be found": lost >= COSTLY or OUTSIDE <= shift.share < 1,
    }
    for when, start in STARTS.items():
        random = np.random.default_rng(1)
        delays = np.full(SHIFTED_STREAMS, np.inf)
        actions: dict[str, int] = {}
        for stream in range(SHIFTED_STREAMS):
            reference = before.draw(random, REFERENCE[shift.pool.name], shadow=1)
            monitor = Monitor(reference, false_alarm=FALSE_ALARM, seed=stream)
            monitor.update(before.draw(random, start))
            verdict = monitor.update(after.draw(random, WITHIN))
            alarms = [test.alarmed_at for test in verdict.tests.values() if test.alarmed_at is not None]
            if alarms and min(alarms) > start:  # an alarm before the shift has not found it
                delays[stream] = min(alarms) - start
            actions[verdict.action] = actions.get(verdict.action, 0) + 1
        found = np.isfinite(delays)
        median = float(np.median(delays))
        row[when] = {
            "found": float(found.mean()),
            "median delay": median if math.isfinite(median) else None,
            "actions": {action: count / SHIFTED_STREAMS for action, count in sorted(actions.items())},
        }
    return row


def _mixed(pooled: npt.NDArray[np.float64], other: npt.NDArray[np.float64], share: float) -> float:
    return float((1 - share) * pooled.mean() + share * other.mean())
