"""The figures of windows of load."""

from typing import Any

import numpy as np

__all__ = ["CONNECTIONS", "ratios", "summarise"]

CONNECTIONS = 64
"""Connections that measure saturation, each with one open request at all times."""


def summarise(window: dict[str, Any], *, in_time_s: float | None = None) -> dict[str, float]:
    """Return the figures of one window."""
    latencies = np.array([answer["s"] for answer in window["answers"] if answer["status"] == 200])
    sent = len(window["answers"])
    figures = {
        "sent": sent,
        "served_per_s": len(latencies) / window["seconds"],
        "p50_ms": 1000 * float(np.median(latencies)),
        "p99_ms": 1000 * float(np.quantile(latencies, 0.99)),
    }
    if in_time_s is not None:
        figures["in_time"] = float((latencies <= in_time_s).sum()) / sent
    return figures


def ratios(windows: dict[str, Any], figure: str) -> dict[str, float]:
    """Return one figure of the exits over that of the full network: median and range over the rounds."""
    pairs = zip(windows["exits"], windows["full"], strict=True)
    values = [exits[figure] / full[figure] for exits, full in pairs]
    return {"median": float(np.median(values)), "least": min(values), "most": max(values)}
