"""The record of a request: its times, exits and status for metrics, traces and logs, and never its inputs or labels."""

import asyncio
import json
import logging
import re
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from offramp.model._answer import Answer
from offramp.serve._scheduler import Ticket

__all__ = ["CLOSED", "FAILED", "OnRequest", "RefusedError", "RequestRecord", "record_request"]

CLOSED = 499
"""Status of a request whose client is gone; nobody receives it."""

FAILED = 500
"""Status of a request that met an error of the server."""

TRACEPARENT = re.compile("[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")

logger = logging.getLogger("offramp.serve")


class RefusedError(Exception):
    """A request that ends with an error status.

    Args:
        status: Status of HTTP.
        message: The reason.
        headers: More headers of the response.
    """

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers


@dataclass(eq=False)
class RequestRecord:
    """A request that has ended."""

    route: str
    """`predict`, `infer` or `grpc`."""
    context: Mapping[str, str]
    """Its headers `traceparent` and `tracestate`."""
    trace_id: str
    """Trace that it belongs to; empty if there is none."""
    started: datetime
    """Time of its start."""
    status: int = 200
    """Status of HTTP, or its counterpart over gRPC."""
    total_s: float = 0.0
    """Seconds from its headers to its answer."""
    tickets: Sequence[Ticket] = field(default_factory=list)
    """Tickets of its inputs; none if it was refused."""
    error: BaseException | None = None
    """The error of the server, if it met one."""

    @property
    def queued_s(self) -> float | None:
        """Seconds in the queue; None if it did not leave it."""
        times = [ticket.queued_s for ticket in self.tickets if ticket.queued_s is not None]
        return max(times, default=None)

    @property
    def answers(self) -> list[Answer]:
        """Answers to its inputs."""
        done = [ticket for ticket in self.tickets if ticket.done() and not ticket.cancelled()]
        return [ticket.result() for ticket in done if ticket.exception() is None]

    @property
    def exits(self) -> list[int]:
        """Exit of each sample that was answered."""
        return [exit for answer in self.answers for exit in answer.exits.tolist()]

    @property
    def relative_cost(self) -> float | None:
        """Mean cost of its samples as a share of the full network's cost; None if none was answered."""
        costs = [cost for answer in self.answers for cost in answer.relative_cost.tolist()]
        return sum(costs) / len(costs) if costs else None

    @property
    def point_cost(self) -> float | None:
        """Cost of its operating point on the tune split; None if it was refused."""
        return self.tickets[0].point.tune_metrics.get("cost") if self.tickets else None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of a log line: the time, numbers and the place of an error."""
        line = {
            "time": self.started.isoformat(timespec="milliseconds"),
            "route": self.route,
            "status": self.status,
            "samples": len(self.exits),
            "queue_ms": None if self.queued_s is None else round(1000 * self.queued_s, 3),
            "total_ms": round(1000 * self.total_s, 3),
            "exits": self.exits,
            "cost": self.relative_cost,
            "trace_id": self.trace_id or None,
        }
        if self.error is not None:  # without its message, which may quote inputs
            frames = traceback.extract_tb(self.error.__traceback__)
            places = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
            line |= {"error": type(self.error).__name__, "places": places}
        return line


OnRequest = Sequence[Callable[[RequestRecord], None]]
"""Functions that are called with the record of each request at its end."""


@contextmanager
def record_request(route: str, headers: Mapping[str, str], on_request: OnRequest) -> Iterator[RequestRecord]:
    """Record a request, then log it.

    Args:
        route: Name of the route.
        headers: Headers of the request.
        on_request: Functions to call with the record, in this order.

    Yields:
        The record, for the tickets.

    Raises:
        RefusedError: For every error but that of a cancelled task.
    """
    context = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
    parent = TRACEPARENT.fullmatch(context.get("traceparent", "").strip())
    record = RequestRecord(route, context, parent[1] if parent else "", datetime.now(UTC))
    begin = time.perf_counter()
    try:
        yield record
    except RefusedError as refused:
        record.status = refused.status
        raise
    except asyncio.CancelledError:
        record.status = CLOSED
        raise
    except Exception as error:
        record.status, record.error = FAILED, error
        raise RefusedError(FAILED, "the server failed; its log has the place") from error
    finally:
        record.total_s = time.perf_counter() - begin
        for observe in on_request:
            observe(record)
        level = logging.ERROR if record.status == FAILED else logging.INFO
        if logger.isEnabledFor(level):
            logger.log(level, json.dumps(record.to_dict()))
