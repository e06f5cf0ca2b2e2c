"""The metrics of a server. The only file that imports prometheus_client."""

from offramp.errors import MissingExtraError
from offramp.model._answer import Answer
from offramp.serve._record import CLOSED, FAILED, RequestRecord
from offramp.serve._scheduler import Scheduler

try:
    from prometheus_client import (
        CONTENT_TYPE_LATEST,
        CollectorRegistry,
        Counter,
        Gauge,
        Histogram,
        ProcessCollector,
        generate_latest,
    )
except ImportError as error:
    raise MissingExtraError("metrics need prometheus-client", hint="pip install 'offramp[serve]'") from error

__all__ = ["REASONS", "Metrics"]

REASONS = {
    400: "invalid",
    404: "unknown_model",
    408: "slow_body",
    413: "too_large",
    CLOSED: "client_gone",
    503: "busy",
    504: "deadline",
}
"""Reasons of refusals, by status."""

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Bounds of the buckets of times."""


class Metrics:
    """Counters and histograms of one scheduler and the servers before it.

    It is the observer of the scheduler; `observe_request` is called at the end of each request.

    Attributes:
        content_type: Type of what `render` returns.
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._samples = Counter("offramp_samples", "Answered samples, by exit", ["exit"], registry=registry)
        self._cost = Counter(
            "offramp_relative_cost", "Sum over samples of the cost as a share of the full network's", registry=registry
        )
        self._requests = Histogram(
            "offramp_request_seconds", "Time of answered requests", ["route"], buckets=SECONDS, registry=registry
        )
        self._queue = Histogram(
            "offramp_queue_seconds", "Time of requests in the queue", buckets=SECONDS, registry=registry
        )
        self._stages = Histogram(
            "offramp_stage_seconds",
            "Time from one exit in use to the next, by the stage of the latter; 'all' if the network ran at once",
            ["stage"],
            buckets=(0.0001, 0.0002, 0.0005, *SECONDS),
            registry=registry,
        )
        self._batches = Histogram(
            "offramp_batch_samples", "Samples per batch", buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256), registry=registry
        )
        self._refusals = Counter("offramp_refusals", "Requests without an answer", ["reason"], registry=registry)
        self._errors = Counter("offramp_errors", "Requests that met an error of the server", registry=registry)
        self._shadows = Counter("offramp_shadow_samples", "Answers compared with the full network", registry=registry)
        self._disagreements = Counter(
            "offramp_shadow_disagreements", "Answers that differ from the full network's", registry=registry
        )
        for reason in REASONS.values():  # so that a rate is there from the first refusal on
            self._refusals.labels(reason)

    def watch(self, scheduler: Scheduler) -> None:
        """Read the state of a scheduler whenever the metrics are rendered.

        Args:
            scheduler: The scheduler.
        """
        gauges = {
            "offramp_queue_samples": ("Samples in the queue", lambda: len(scheduler)),
            "offramp_queue_limit_samples": ("Samples that the queue can hold", lambda: scheduler.max_queue),
            "offramp_point_cost": (
                "Cost of the operating point in force, on the tune split, as a share of the full network's",
                lambda: scheduler.point.tune_metrics.get("cost", float("nan")),
            ),
            "offramp_point_level": ("Steps by which overload has lowered the point", lambda: scheduler.level),
        }
        for name, (text, read) in gauges.items():
            Gauge(name, text, registry=self._registry).set_function(read)

    def render(self) -> bytes:
        """Return the metrics in the text format of Prometheus."""
        return generate_latest(self._registry)

    def observe_batch(self, samples: int) -> None:
        """Count a batch; the arguments are those of `Observer`, here and below."""
        self._batches.observe(samples)

    def observe_stages(self, stage: int | None, seconds: float, answer: Answer | None) -> None:
        """Count the time of stages, and the samples that left."""
        self._stages.labels("all" if stage is None else str(stage)).observe(seconds)
        if answer is not None:
            self._samples.labels(str(int(answer.exits[0]))).inc(len(answer))
            self._cost.inc(float(answer.relative_cost.sum()))

    def observe_shadow(self, disagrees: bool) -> None:
        """Count a comparison with the full network."""
        self._shadows.inc()
        self._disagreements.inc(disagrees)

    def observe_request(self, record: RequestRecord) -> None:
        """Count a request.

        Args:
            record: The request.
        """
        if record.queued_s is not None:
            self._queue.observe(record.queued_s)
        if record.status == FAILED:
            self._errors.inc()
        elif record.status in REASONS:
            self._refusals.labels(REASONS[record.status]).inc()
        else:
            self._requests.labels(record.route).observe(record.total_s)
