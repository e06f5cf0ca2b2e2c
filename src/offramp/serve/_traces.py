"""Traces of requests. The only file that imports OpenTelemetry."""

from typing import TYPE_CHECKING

from offramp.errors import MissingExtraError
from offramp.serve._record import FAILED, RequestRecord

try:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.trace import SpanKind, Status, StatusCode, format_trace_id
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise MissingExtraError("traces need OpenTelemetry", hint="pip install 'offramp[traces]'") from error

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

__all__ = ["Traces"]


class Traces:
    """One span per request, below the span that its `traceparent` names.

    Args:
        exporter: Receiver of the spans; OTLP over HTTP, as the environment variables `OTEL_...` say, if left out.
    """

    def __init__(self, exporter: "SpanExporter | None" = None) -> None:
        resource = Resource({SERVICE_NAME: "offramp"}).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter() if exporter is None else exporter))
        self._tracer = self._provider.get_tracer("offramp.serve")

    def observe_request(self, record: RequestRecord) -> None:
        """Export the span of a request, and note its trace in the record.

        Args:
            record: The request.
        """
        started_ns = round(1e9 * record.started.timestamp())
        parent = TraceContextTextMapPropagator().extract(record.context)
        attributes: dict[str, int | float | list[int] | None] = {
            "http.response.status_code": record.status,
            "offramp.samples": len(record.exits),
            "offramp.exits": record.exits,
            "offramp.queue_ms": None if record.queued_s is None else 1000 * record.queued_s,
            "offramp.relative_cost": record.relative_cost,
            "offramp.point_cost": record.point_cost,
        }
        span = self._tracer.start_span(
            f"offramp {record.route}",
            parent,
            SpanKind.SERVER,
            {name: value for name, value in attributes.items() if value is not None},
            start_time=started_ns,
        )
        if record.status >= FAILED:
            span.set_status(Status(StatusCode.ERROR))
        span.end(started_ns + round(1e9 * record.total_s))
        record.trace_id = format_trace_id(span.get_span_context().trace_id)

    def close(self) -> None:
        """Export what is left."""
        self._provider.shutdown()
