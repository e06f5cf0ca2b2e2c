"""False alarms over long streams, delays until real shifts are detected, and guarantees after recalibration."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from offramp.monitor import Monitor, Traffic
from offramp.policy import OperatingPoint
from offramp_bench.bars import Bar, say
from offramp_bench.guarantees.after_shift import MAX_BROKEN, recalibration
from offramp_bench.guarantees.pools import POOLS, Pool, load_pool
from offramp_bench.guarantees.shifts import Shift, shifts_of, traffic_of

__all__ = ["monitoring"]

STREAMS, LENGTH = 1000, 10_000
"""Number and length of streams without a shift."""

SHIFTED_STREAMS, WITHIN = 200, 1000
"""Number of streams per shift, and of samples within which the shift is to be detected."""

STARTS = {"from the start": 0, "late": 2000}
"""Samples before a shift."""

REFERENCE = {"cifar10": 2000, "clinc150": 1000}
"""Samples of the reference: as many as the calibrate split has."""

SHADOW = 0.05
"""Share of the traffic that is shadowed; of the reference all samples are."""

FALSE_ALARM = 0.01

DROPS = {"default": 0.005, "cheap": 0.03}
"""Largest loss on tune of each point, which is the cheapest within it. The first is an earlier default; at the second,
samples leave earlier."""

COSTLY, OUTSIDE = 0.05, 0.2
"""Shifts must be detected if they cost at least this accuracy, or bring at least this share of out-of-scope inputs."""


class Samples:
    """Traffic to draw from, with replacement.

    Args:
        traffic: Traffic of a pool.
        other: Traffic of a shift, mixed in.
        share: Share of the shift's traffic.
    """

    def __init__(self, traffic: Traffic, other: Traffic | None = None, share: float = 0.0) -> None:
        self._share, self._rows = share, len(traffic)
        whole = traffic if other is None else traffic.join(other)
        self._columns = np.stack([whole.exits, whole.confidence, whole.disagreement])

    def draw(self, random: np.random.Generator, count: int, *, shadow: float = SHADOW) -> Traffic:
        """Draw `count` samples; a share of them, `shadow`, is compared with the full network."""
        rows = random.integers(self._rows, size=count)
        if self._share:
            others = random.random(count) < self._share
            rows[others] = random.integers(self._rows, self._columns.shape[1], size=int(others.sum()))
        drawn = self._columns[:, rows]
        drawn[2, random.random(count) >= shadow] = np.nan
        return Traffic(*drawn)


def monitoring() -> tuple[dict[str, Any], list[Bar]]:
    """Measure both pools."""
    figures: dict[str, Any] = {}
    bars: list[Bar] = []
    allowed = FALSE_ALARM + 2 * math.sqrt(FALSE_ALARM * (1 - FALSE_ALARM) / STREAMS)
    for name in POOLS:
        pool = load_pool(name)
        shifts = shifts_of(pool)
        say(f"{name}: shifts")
        detections = {
            kind: [_detection(shift, point_of(pool, drop)) for shift in shifts] for kind, drop in DROPS.items()
        }
        say(f"{name}: false alarms")
        alarms = _false_alarms(pool, point_of(pool, DROPS["default"]))
        say(f"{name}: calibrating again")
        guarantees = recalibration(pool, shifts)
        figures[name] = {"false alarms": alarms, "shifts": detections, "calibrated again": guarantees}
        bars.append(Bar(f"{name}: streams with a false alarm", alarms["share"], allowed))
        for kind, rows in detections.items():
            for row in rows:
                if row["must be found"]:
                    title = f"{name}, {kind} point, {row['shift']}: streams where it is missed"
                    bars += [Bar(f"{title}, {when}", round(1 - row[when]["found"], 6), 0.05) for when in STARTS]
        for row in guarantees:
            title = f"{name}, {row['shift']}: promises broken after calibrating again"
            bars.append(Bar(title, row["after"]["broken"], MAX_BROKEN))
    return figures, bars


def point_of(pool: Pool, drop: float) -> OperatingPoint:
    """Return the cheapest point that loses at most `drop` of accuracy on tune."""
    return next(point for point in pool.points if point.tune_metrics["accuracy"] >= pool.frontier.full_accuracy - drop)


def _false_alarms(pool: Pool, point: OperatingPoint) -> dict[str, Any]:
    """Measure false alarms; reference and stream are both redrawn from the pool."""
    samples, random = Samples(traffic_of(point, pool.pool)[0]), np.random.default_rng(0)
    by_test = dict.fromkeys(("exit", "confidence", "disagreement"), 0)
    alarms = 0
    for stream in range(STREAMS):
        monitor = Monitor(samples.draw(random, REFERENCE[pool.name], shadow=1), false_alarm=FALSE_ALARM, seed=stream)
        verdict = monitor.update(samples.draw(random, LENGTH))
        alarms += verdict.action != "keep"
        for name in verdict.alarms:
            by_test[name] += 1
    return {
        "streams": STREAMS,
        "samples": LENGTH,
        "reference": REFERENCE[pool.name],
        "cost": point.tune_metrics["cost"],
        "share": alarms / STREAMS,
        "by test": {name: count / STREAMS for name, count in by_test.items()},
    }


def _detection(shift: Shift, point: OperatingPoint) -> dict[str, Any]:
    """Measure the delay until a shift is detected, if it is there from the start, and if it comes later."""
    pooled, other = (traffic_of(point, outcomes)[0] for outcomes in (shift.pool.pool, shift.outcomes))
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
            if alarms and min(alarms) > start:  # an alarm before the shift does not detect it
                delays[stream] = min(alarms) - start
            actions[verdict.action] = actions.get(verdict.action, 0) + 1
        detected = np.isfinite(delays)
        median = float(np.median(delays))
        row[when] = {
            "found": float(detected.mean()),
            "median delay": median if math.isfinite(median) else None,
            "actions": {action: count / SHIFTED_STREAMS for action, count in sorted(actions.items())},
        }
    return row


def _mixed(pooled: npt.NDArray[np.float64], other: npt.NDArray[np.float64], share: float) -> float:
    return float((1 - share) * pooled.mean() + share * other.mean())
