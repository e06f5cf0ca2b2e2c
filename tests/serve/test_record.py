"""Records of requests: their times and exits for logs and traces, and nothing of their inputs."""

import asyncio
import json
import logging
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from offramp.serve import Scheduler
from offramp.serve._record import CLOSED, FAILED, RefusedError, RequestRecord, record_request
from offramp.serve._traces import Traces
from tests.cases import each
from tests.model.examples import images
from tests.serve.examples import model
from tests.serve.test_app import INFER, call, encode, serving

PARENT = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
TRACE = "0af7651916cd43dd8448eb211c80319c"


def answered(**headers: str) -> RequestRecord:
    """Return the record of three samples that were answered."""
    records: list[RequestRecord] = []
    scheduler = Scheduler(model())
    with record_request("predict", headers, [records.append]) as record:
        record.tickets = [scheduler.submit(images(2, seed=3)[0]), scheduler.submit(images(1, seed=4)[0])]
        scheduler.run_batch()
    assert records == [record]
    return record


class TestRecord:
    def test_has_the_figures_of_its_answers(self) -> None:
        record = answered(**PARENT)
        expected = [model().predict(images(2, seed=3)[0]), model().predict(images(1, seed=4)[0])]
        costs = [cost for answer in expected for cost in answer.relative_cost.tolist()]
        assert record.exits == [exit for answer in expected for exit in answer.exits.tolist()]
        assert record.relative_cost == pytest.approx(sum(costs) / 3)
        assert record.point_cost == model().point.tune_metrics["cost"]
        assert (record.status, record.trace_id) == (200, TRACE)
        assert record.queued_s is not None
        assert 0 <= record.queued_s <= record.total_s

    @each(
        ("error", "status"),
        [(RefusedError(413, "large"), 413), (asyncio.CancelledError(), CLOSED), (ValueError("secret"), FAILED)],
    )
    def test_has_the_status_of_an_error(self, error: BaseException, status: int) -> None:
        records: list[RequestRecord] = []
        with (
            pytest.raises(asyncio.CancelledError if status == CLOSED else RefusedError),
            record_request("infer", {"traceparent": "wrong"}, [records.append]),
        ):
            raise error
        assert [(record.status, record.trace_id, record.exits) for record in records] == [(status, "", [])]
        assert (records[0].error is error) == (status == FAILED)

    def test_errors_are_logged_without_their_message(self, caplog: pytest.LogCaptureFixture) -> None:
        with pytest.raises(RefusedError) as caught, record_request("infer", PARENT, []):
            raise ValueError("secret")
        assert "secret" not in str(caught.value)
        (line,) = [json.loads(entry.message) for entry in caplog.records]
        assert (line["error"], line["status"], line["trace_id"]) == ("ValueError", 500, TRACE)
        assert any("test_record.py" in place for place in line["places"])
        assert "secret" not in caplog.text


class TestLogs:
    def test_have_one_line_per_request_and_no_payload(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "offramp.serve")
        inputs = images(2, seed=3)[0]
        with serving(Scheduler(model())) as port:
            call(port, "/predict", {"inputs": [encode(image) for image in inputs]}, PARENT)
            call(port, "/predict", {"inputs": ["a secret"]})
            call(port, "/v2/health/live")
            call(port, "/v2/models/secret/infer", {})
        lines = [json.loads(entry.message) for entry in caplog.records if entry.name == "offramp.serve"]
        assert [(line["route"], line["status"], line["samples"]) for line in lines] == [
            ("predict", 200, 2),
            ("predict", 400, 0),
            ("infer", 404, 0),
        ]
        assert set(lines[0]) == {
            *("time", "route", "status", "samples", "queue_ms", "total_ms", "exits", "cost", "trace_id")
        }
        assert lines[0]["exits"] == model().predict(inputs).exits.tolist()
        assert lines[0]["trace_id"] == TRACE
        assert "secret" not in caplog.text

    def test_an_error_of_the_server_ends_with_500(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        scheduler = Scheduler(model())

        def fail(*arguments: Any, **options: Any) -> None:
            raise RuntimeError("a secret")

        monkeypatch.setattr(scheduler, "submit", fail)
        tensor = {"name": "image", "datatype": "UINT8", "shape": [1, 32, 32, 3], "data": [0] * 3072}
        with serving(scheduler) as port:
            status, answer = call(port, INFER, {"inputs": [tensor]})
        assert status == 500
        assert "secret" not in answer["error"]
        assert "secret" not in caplog.text
        assert "RuntimeError" in caplog.text


class TestTraces:
    def test_have_a_span_below_that_of_the_caller(self) -> None:
        exporter = InMemorySpanExporter()
        traces = Traces(exporter)
        record = answered(**PARENT)
        traces.observe_request(record)
        traces.close()
        (span,) = exporter.get_finished_spans()
        assert (span.name, span.kind, span.status.status_code) == ("offramp predict", SpanKind.SERVER, StatusCode.UNSET)
        assert span.parent is not None
        assert f"{span.parent.span_id:016x}" == "b7ad6b7169203331"
        assert f"{span.context.trace_id:032x}" == record.trace_id == TRACE
        assert span.attributes is not None
        assert span.attributes["offramp.exits"] == tuple(record.exits)
        assert span.attributes["offramp.point_cost"] == record.point_cost
        assert span.attributes["offramp.relative_cost"] == record.relative_cost
        assert span.attributes["offramp.queue_ms"] == 1000 * (record.queued_s or 0)
        assert span.end_time is not None
        assert span.start_time is not None
        assert (span.end_time - span.start_time) / 1e9 == pytest.approx(record.total_s, abs=1e-6)
        assert span.resource.attributes["service.name"] == "offramp"

    def test_give_requests_without_a_parent_a_trace(self) -> None:
        exporter = InMemorySpanExporter()
        traces = Traces(exporter)
        with serving(Scheduler(model()), on_request=[traces.observe_request]) as port:
            call(port, "/predict", {"inputs": images(1, seed=3)[0].tolist()})
            call(port, "/predict", {"inputs": []})
        traces.close()
        first, second = exporter.get_finished_spans()
        assert first.parent is None
        assert first.context.trace_id != second.context.trace_id
        assert second.attributes is not None
        assert second.attributes["http.response.status_code"] == 400
