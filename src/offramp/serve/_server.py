"""A server of an artifact, made of settings that can be sent to another machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from offramp.data import open_data
from offramp.errors import InputError
from offramp.model._loading import load
from offramp.model._model import EarlyExitModel
from offramp.preprocessing._blank import blank_input
from offramp.runtime import LatencyTable
from offramp.serve._observer import Observer
from offramp.serve._requests import Limits
from offramp.serve._scheduler import Scheduler

__all__ = ["DRAIN_S", "ServerSettings", "load_model", "make_scheduler", "prepare_model"]

DRAIN_S = 30
"""Seconds that requests in progress have after the server was told to stop."""


@dataclass(frozen=True)
class ServerSettings:
    """Settings of a server: plain values, which a YAML file can hold."""

    artifact: str
    """Folder of the artifact."""
    name: str
    """Name of the model in addresses."""
    backend: str
    """Backend that runs the network."""
    point: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of `EarlyExitModel.at`; without any, the point that the artifact was saved at, or the default point."""
    latency: str | None = None
    """Latency file whose times are the costs."""
    data: str | None = None
    """Inputs to make graphs with and to warm up on."""
    trust: Sequence[str] = ()
    """Names of third-party code that the artifact may run."""
    batch_size: int = 64
    """Most inputs that run together."""
    queue: int = 512
    """Most inputs that wait."""
    overload_drop: float | None = None
    """Drop that must be guaranteed for points that overload lowers requests to."""
    slow_ms: float = 100.0
    """Milliseconds in the queue from which on there is overload."""
    deadline_ms: float = 60_000.0
    """Milliseconds after which a request is given up."""

    @property
    def limits(self) -> Limits:
        """Largest requests: none has more inputs than the queue can hold."""
        return Limits(samples=min(Limits.samples, self.max_queue), deadline_ms=self.deadline_ms)

    @property
    def max_queue(self) -> int:
        """Most inputs that wait: at least one batch."""
        return max(self.queue, self.batch_size)


def load_model(settings: ServerSettings) -> EarlyExitModel:
    """Load the artifact, at the operating point of the settings."""
    model = load(settings.artifact, trust=settings.trust)
    if settings.latency is not None:
        table = LatencyTable.load(settings.latency)
        model = model.with_latency(table, batch_size=table.batch_sizes[0])
    return model.at(**settings.point) if settings.point or model.chosen is None else model


def prepare_model(model: EarlyExitModel, settings: ServerSettings) -> EarlyExitModel:
    """Put a model on its backend, and run it once.

    Args:
        model: The model, at its operating point.
        settings: Settings of the server.
    """
    example = _read_example(model, settings.data)
    model = model.on(settings.backend, example=example)
    if example is not None:
        for count in (1, 2):  # graphs are made at their first use
            model.predict(example[:count])
    return model


def make_scheduler(
    model: EarlyExitModel, settings: ServerSettings, *, shadow: float = 0.0, observer: Observer | None = None
) -> Scheduler:
    """Return the scheduler of a model; it is not started.

    Args:
        model: The model, prepared.
        settings: Settings of the server.
        shadow: As for `Scheduler`.
        observer: As for `Scheduler`.
    """
    return Scheduler(
        model,
        max_batch=settings.batch_size,
        max_queue=settings.max_queue,
        overload_drop=settings.overload_drop,
        slow_ms=settings.slow_ms,
        shadow=shadow,
        observer=observer,
    )


def _read_example(model: EarlyExitModel, data: str | None) -> Any:
    """Return two inputs to make graphs with and to warm up on; None if nothing tells what the model takes."""
    if data is not None:
        source = open_data(data)
        return source.read(0, min(2, len(source))).inputs
    try:
        return blank_input(model.backbone.name, model.preprocessing)
    except InputError:
        return None
