"""Compute replicas, prices and limits at three request rates, from the measured saturation of one replica.

    python -m offramp_bench.serving.capacity [RESULTS] [--core-hour 0.04] [--load 0.6] ...

RESULTS is the file that `offramp-bench run serve` writes. The tables go between the marks of docs/evidence/capacity.md.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any

from offramp_bench.marks import replace_marked
from offramp_bench.places import RESULTS, ROOT

__all__ = ["Assumptions", "Plan", "limits", "make_page", "make_plan"]

PAGE = ROOT / "docs" / "evidence" / "capacity.md"
MARK = "capacity"

RATES = (10**3, 10**5, 10**7)
"""Requests per second."""

HOURS = 730
"""Hours of a month."""

TITLES = {
    "banking77": "MiniLM on Banking77 (texts)",
    "cascade": "ResNet-20 before ResNet-56 on CIFAR-10 (images as PNG files in base64)",
}

PROXY_PER_S = {"as shipped": 213, "with HAProxy": 2700}
"""Requests per second through one proxy of Ray Serve 2.60 to a handler that does nothing, on two cores."""

KUBERNETES_MACHINES, KUBERNETES_PODS = 5000, 150_000
"""Largest cluster that Kubernetes 1.35 is designed for, in machines and in pods."""

RAY_MACHINES = 2000
"""Machines of the clusters that Ray's release tests run on."""


def _assume(value: float, text: str) -> Any:
    return field(default=value, metadata={"help": text})


@dataclass(frozen=True)
class Assumptions:
    """Assumed figures; each is an option of the command."""

    core_hour: float = _assume(0.04, "price of one core for one hour, in dollars")
    load: float = _assume(0.6, "share of its saturation that a replica is planned for")
    machine_cores: int = _assume(32, "cores of a machine, each with one replica")
    gigabits: float = _assume(10.0, "gigabits per second of one load balancer, and of the storage of artifacts")
    artifact_mb: float = _assume(100.0, "megabytes of the artifact")
    start_s: float = _assume(60.0, "seconds from the start of a replica to its first answer")
    series: int = _assume(500, "metric series of one replica")
    most_series: int = _assume(10**7, "metric series of one Prometheus")


@dataclass(frozen=True)
class Plan:
    """Replicas, machines and prices for a rate of requests."""

    replicas: int
    machines: int
    month: float
    """Dollars per month."""
    million: float
    """Dollars per million requests."""


def make_plan(rate: float, saturation: float, assumptions: Assumptions) -> Plan:
    r"""Return the plan for a rate: $\lceil \lambda / (u s) \rceil$ replicas of one core.

    $\lambda$ is the rate in requests per second, $s$ the saturation of one replica, $u$ the planned share of it.

    Args:
        rate: Requests per second.
        saturation: Largest number of requests per second of one replica.
        assumptions: The load and the prices.
    """
    replicas = ceil(rate / (assumptions.load * saturation))
    month = replicas * assumptions.core_hour * HOURS
    return Plan(replicas, ceil(replicas / assumptions.machine_cores), month, month / (rate * 3600 * HOURS / 1e6))


def limits(rate: float, request_bytes: float, plan: Plan, assumptions: Assumptions) -> dict[str, float]:
    """Return the load that a rate puts on each shared resource, as a multiple of the limit of one such resource.

    Args:
        rate: Requests per second.
        request_bytes: Bytes of a request's body.
        plan: The replicas that serve it.
        assumptions: Assumed sizes and limits.
    """
    pull_s = plan.replicas * assumptions.artifact_mb * 8e6 / (assumptions.gigabits * 1e9)
    return {
        **{f"one proxy of Ray Serve, {name}": rate / most for name, most in PROXY_PER_S.items()},
        "the proxy of each machine, with HAProxy": rate / plan.machines / PROXY_PER_S["with HAProxy"],
        "one load balancer: bytes in": rate * request_bytes * 8 / (assumptions.gigabits * 1e9),
        "reading the artifact in all replicas at once, within one start": pull_s / assumptions.start_s,
        "one Prometheus: series": plan.replicas * assumptions.series / assumptions.most_series,
        "one Ray cluster: machines": plan.machines / RAY_MACHINES,
        "one Kubernetes cluster: machines": plan.machines / KUBERNETES_MACHINES,
        "one Kubernetes cluster: pods": plan.replicas / KUBERNETES_PODS,
    }


def make_page(page: str, results: dict[str, Any], assumptions: Assumptions) -> str:
    """Return the page with the tables of some results between its marks."""
    return replace_marked(page, MARK, "\n".join(_lines(results, assumptions)))


def _lines(results: dict[str, Any], assumptions: Assumptions) -> Iterator[str]:
    yield f"Measured on one core of {results['processor']}, by ONNX Runtime in float32. Assumed:\n"
    yield "| option | assumption | |\n|---|---|---|"
    for entry in fields(Assumptions):
        option = f"--{entry.name.replace('_', '-')}"
        yield f"| `{option}` | {entry.metadata['help']} | {getattr(assumptions, entry.name):,} |"
    yield (
        f"\nA replica that is planned for {assumptions.load:.0%} of its saturation takes "
        f"{1 / assumptions.load - 1:.0%} more before its queue grows."
    )
    for network in (name for name in TITLES if name in results):
        windows = results[network]["windows"]
        exits, full = (
            median(window["served_per_s"] for window in windows["saturation"][side]) for side in ("exits", "full")
        )
        size = windows["request_bytes"]
        yield f"\n### {TITLES[network]}\n"
        yield (
            f"One replica serves {exits:,.0f} requests per second with exits and {full:,.0f} with the full network, at "
            f"saturation; a request has {size:,.0f} bytes.\n"
        )
        yield "| requests per second | | replicas | machines | $ per month | $ per million requests |"
        yield "|---|---|---|---|---|---|"
        for rate in RATES:
            for side, saturation in (("exits", exits), ("full network", full)):
                plan = make_plan(rate, saturation, assumptions)
                yield (
                    f"| {rate:,} | {side} | {plan.replicas:,} | {plan.machines:,} | {plan.month:,.0f} | "
                    f"{plan.million:.3f} |"
                )
        yield "\nWith exits, as a multiple of the limit; bold means that more than one is needed:\n"
        yield "| limit | " + " | ".join(f"{rate:,} per s" for rate in RATES) + " |"
        yield "|---|" + "---|" * len(RATES)
        shares = [limits(rate, size, make_plan(rate, exits, assumptions), assumptions) for rate in RATES]
        for name in shares[0]:
            yield f"| {name} | " + " | ".join(_format_share(share[name]) for share in shares) + " |"


def _format_share(share: float) -> str:
    return f"**{share:,.1f}**" if share > 1 else f"{share:.2f}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("results", type=Path, nargs="?", default=RESULTS / "serving.json")
    for entry in fields(Assumptions):
        name, default, text = entry.name.replace("_", "-"), entry.default, entry.metadata["help"]
        options.add_argument(f"--{name}", type=type(default), default=default, help=text)
    values = vars(options.parse_args())
    results = json.loads(values.pop("results").read_text("utf-8"))
    PAGE.write_text(make_page(PAGE.read_text("utf-8"), results, Assumptions(**values)), "utf-8")


if __name__ == "__main__":
    main()
