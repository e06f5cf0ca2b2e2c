"""A real gRPC server on loopback: answers are those of `predict`, and wrong calls end with a status."""

import asyncio
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

import grpc
import numpy as np
import pytest
import torch
from PIL import Image

import offramp
from offramp.serve import Scheduler
from offramp.serve._grpc import serve_grpc
from offramp.serve._messages import CONTENTS, MESSAGES, METHODS, SERVICE
from offramp.serve._record import RequestRecord
from offramp.serve._requests import Limits
from offramp.serve._tensors import DTYPES
from tests.cases import each
from tests.model import text_examples
from tests.model.examples import images
from tests.serve.examples import Waiting, model

LIMITS = Limits(samples=8, body_bytes=200_000)
Status = grpc.StatusCode


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread; all servers run in it, as gRPC wants one loop per process."""
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever)
    thread.start()
    yield made
    made.call_soon_threadsafe(made.stop)
    thread.join()
    made.close()


@contextmanager
def serving(loop: asyncio.AbstractEventLoop, scheduler: Scheduler, **options: Any) -> Iterator[grpc.Channel]:
    """Run a server, and yield a channel to it."""
    server = serve_grpc(scheduler, name="shapes", limits=LIMITS, host="127.0.0.1", port=0, drain_s=30, **options)
    with scheduler:
        port = asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(60)
        try:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield channel
        finally:
            asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result(60)


@pytest.fixture(scope="module")
def channel(loop: asyncio.AbstractEventLoop) -> Iterator[grpc.Channel]:
    with serving(loop, Scheduler(model())) as channel:
        yield channel


def method(channel: grpc.Channel, name: str) -> Any:
    return channel.unary_unary(
        f"/{SERVICE}/{name}",
        request_serializer=MESSAGES[f"{name}Request"].SerializeToString,
        response_deserializer=MESSAGES[f"{name}Response"].FromString,
    )


def call(channel: grpc.Channel, name: str, request: Any = None, **settings: Any) -> Any:
    given = MESSAGES[f"{name}Request"](**(request or {}))
    return method(channel, name)(given, timeout=settings.pop("timeout", 60), **settings)


def refused(channel: grpc.Channel, name: str, request: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call(channel, name, request)
    return caught.value.code(), caught.value.details()


def infer_request(inputs: Any, *, raw: bool = True, **fields: Any) -> dict[str, Any]:
    """Return a request for one tensor: an array, or texts or files."""
    tensor: dict[str, Any] = {"name": "x"}
    if isinstance(inputs, list):
        tensor |= {"datatype": "BYTES", "shape": [len(inputs)]}
        data, values = b"".join(struct.pack("<I", len(value)) + value for value in inputs), inputs
    else:
        datatype = next(name for name, dtype in DTYPES.items() if dtype == inputs.dtype)
        tensor |= {"datatype": datatype, "shape": inputs.shape}
        data, values = inputs.tobytes(), inputs.ravel().tolist()
    if raw:
        fields["raw_input_contents"] = [data]
    else:
        tensor["contents"] = {CONTENTS[tensor["datatype"]]: values}
    return {"model_name": "shapes", "inputs": [tensor], **fields}


def parameter(key: str, **value: Any) -> dict[str, Any]:
    return {"key": key, "value": value}


def tensors(response: Any) -> dict[str, Any]:
    """Return the outputs of a response, whichever form they have."""
    found: dict[str, Any] = {}
    for place, output in enumerate(response.outputs):
        if not response.raw_output_contents:
            values = list(getattr(output.contents, CONTENTS[output.datatype]))
            found[output.name] = np.array(values, DTYPES.get(output.datatype, object)).reshape(output.shape)
            continue
        assert not output.HasField("contents")
        data = response.raw_output_contents[place]
        if output.datatype == "BYTES":
            texts = []
            while data:
                (length,) = struct.unpack_from("<I", data)
                texts.append(data[4 : 4 + length])
                data = data[4 + length :]
            found[output.name] = np.array(texts, object).reshape(output.shape)
        else:
            found[output.name] = np.frombuffer(data, DTYPES[output.datatype]).reshape(output.shape)
    return found


def check_same(response: Any, expected: offramp.Answer) -> None:
    found = tensors(response)
    assert [label.decode() for label in found["label"]] == list(expected.names)
    assert found["probabilities"].tobytes() == expected.probabilities.numpy().tobytes()
    assert found["exit"].tolist() == expected.exits.tolist()
    assert torch.equal(torch.tensor(found["relative_cost"]), expected.relative_cost.float())


class TestAnswers:
    @each("raw", [False, True])
    def test_to_images_are_those_of_predict(self, channel: grpc.Channel, raw: bool) -> None:
        pixels = images(3, seed=3)[0]
        files = []
        for image in pixels:
            file = BytesIO()
            Image.fromarray(image).save(file, "PNG")
            files.append(file.getvalue())
        expected = model().predict(pixels)
        for inputs in (pixels, files):
            sets = [parameter("sets", double_param=0.1), parameter("priority", uint64_param=3)]
            response = call(channel, "ModelInfer", infer_request(inputs, raw=raw, id="42", parameters=sets))
            assert bool(response.raw_output_contents) == raw
            assert (response.id, response.model_name) == ("42", "shapes")
            check_same(response, expected)
            assert tensors(response)["prediction_set"].tolist() == expected.prediction_sets[0.1].tolist()
            figures = {entry.key: entry.value for entry in response.parameters}
            assert figures["policy"].string_param == "threshold"
            assert figures["cost"].double_param == model().point.tune_metrics["cost"]
            assert "confidence" in figures["guarantee"].string_param

    def test_to_a_large_request_are_those_of_predict(self, channel: grpc.Channel) -> None:
        """It is read in another thread."""
        pixels = np.repeat(np.repeat(images(2, seed=3)[0], 4, axis=1), 4, axis=2)
        assert pixels.nbytes > 64 * 2**10
        check_same(call(channel, "ModelInfer", infer_request(pixels)), model().predict(pixels))

    @each("raw", [False, True])
    def test_to_texts_are_those_of_predict(self, loop: asyncio.AbstractEventLoop, raw: bool) -> None:
        given, texts = text_examples.fitted().at(cost=0.9), text_examples.RAW[:5]
        with serving(loop, Scheduler(given)) as channel:
            metadata = call(channel, "ModelMetadata", {"name": "shapes"})
            assert [(entry.name, entry.datatype) for entry in metadata.inputs] == [("text", "BYTES")]
            response = call(channel, "ModelInfer", infer_request([text.encode() for text in texts], raw=raw))
            check_same(response, given.predict(texts))

    def test_are_the_named_outputs(self, channel: grpc.Channel) -> None:
        request = infer_request(images(1, seed=3)[0], outputs=[{"name": "exit"}])
        assert list(tensors(call(channel, "ModelInfer", request))) == ["exit"]

    @each("form", ["double_param", "string_param"])
    def test_are_at_the_budget_of_the_request(self, channel: grpc.Channel, form: str) -> None:
        inputs, budget = images(4, seed=3)[0], model().dial.cheapest
        value = repr(budget) if form == "string_param" else budget
        request = infer_request(inputs, parameters=[parameter("budget", **{form: value})])
        check_same(call(channel, "ModelInfer", request), model().predict(inputs, budget=budget))

    def test_a_whole_number_is_a_setting_too(self, channel: grpc.Channel) -> None:
        inputs = images(1, seed=3)[0]
        request = infer_request(inputs, parameters=[parameter("deadline_ms", int64_param=20_000)])
        check_same(call(channel, "ModelInfer", request), model().predict(inputs))


class TestMetadata:
    def test_health_and_metadata(self, channel: grpc.Channel) -> None:
        assert call(channel, "ServerLive").live
        assert call(channel, "ServerReady").ready
        assert call(channel, "ModelReady", {"name": "shapes"}).ready
        assert call(channel, "ServerMetadata").name == "offramp"
        metadata = call(channel, "ModelMetadata", {"name": "shapes"})
        (image,) = metadata.inputs
        assert (image.name, image.datatype, list(image.shape)) == ("image", "UINT8", [-1] * 4)
        assert [2] == [len(output.shape) for output in metadata.outputs if output.name == "probabilities"]

    @each("name", ["ModelReady", "ModelMetadata", "ModelInfer"])
    def test_another_model_is_not_found(self, channel: grpc.Channel, name: str) -> None:
        request = {"model_name" if name == "ModelInfer" else "name": "other"}
        assert refused(channel, name, request)[0] == Status.NOT_FOUND

    def test_messages_have_the_wire_form_of_the_protocol(self) -> None:
        """Written out by hand: a field is its number and wire type, then its length."""
        request = MESSAGES["ModelInferRequest"](
            **infer_request(np.zeros((1, 2), np.uint8), raw=False, id="7", parameters=[parameter("sets", bool_param=1)])
        )
        tensor = b"\x0a\x01x" + b"\x12\x05UINT8" + b"\x1a\x02\x01\x02" + b"\x2a\x04\x22\x02\x00\x00"
        expected = b"\x0a\x06shapes" + b"\x1a\x017" + b"\x22\x0a\x0a\x04sets\x12\x02\x08\x01"
        assert request.SerializeToString() == expected + b"\x2a" + bytes([len(tensor)]) + tensor
        assert {f"{name}{kind}" for name in METHODS for kind in ("Request", "Response")} <= set(MESSAGES)


IMAGE = np.zeros((1, 32, 32, 3), np.uint8)


class TestErrors:
    @each(
        ("change", "words"),
        [
            ({"inputs": [], "raw_input_contents": []}, "at least one"),
            ({"raw_input_contents": [b"", b""]}, "raw_input_contents"),
            ({"raw_input_contents": [b"123"]}, "3072 bytes"),
            ({"raw_input_contents": []}, "3072 numbers"),
            ({"outputs": [{"name": "logits"}]}, "logits"),
            ({"parameters": [parameter("budget", double_param=1e-9)]}, "budget"),
            ({"parameters": [parameter("budget", double_param=float("nan"))]}, "finite"),
            ({"parameters": [parameter("max_drop", double_param=float("inf"))]}, "finite"),
            ({"parameters": [parameter("budget", bool_param=True)]}, "number"),
            ({"parameters": [parameter("budget", string_param="half")]}, "half"),
            ({"parameters": [parameter("sets", string_param="0.3")]}, "calibrated"),
            ({"parameters": [parameter("deadline_ms", int64_param=0)]}, "deadline_ms"),
        ],
    )
    def test_wrong_requests_are_invalid(self, channel: grpc.Channel, change: dict[str, Any], words: str) -> None:
        code, details = refused(channel, "ModelInfer", {**infer_request(IMAGE), **change})
        assert (code, words in details) == (Status.INVALID_ARGUMENT, True), details

    @each(
        "change",
        [
            {"shape": [2, 32, 32, 3]},
            {"shape": [-1, 32, 32, 3]},
            {"shape": []},
            {"datatype": "FP16"},
            {"datatype": "INT8"},
            {"contents": {"uint_contents": [300] * 3072}},
        ],
    )
    def test_wrong_tensors_are_invalid(self, channel: grpc.Channel, change: dict[str, Any]) -> None:
        request = infer_request(IMAGE, raw=False)
        request["inputs"][0] |= change
        assert refused(channel, "ModelInfer", request)[0] == Status.INVALID_ARGUMENT

    def test_both_forms_at_once_are_invalid(self, channel: grpc.Channel) -> None:
        request = infer_request(IMAGE, raw=False, raw_input_contents=[IMAGE.tobytes()])
        assert refused(channel, "ModelInfer", request)[0] == Status.INVALID_ARGUMENT

    def test_inputs_that_the_network_cannot_take_are_invalid(self, channel: grpc.Channel) -> None:
        assert refused(channel, "ModelInfer", infer_request(IMAGE[:, 0]))[0] == Status.INVALID_ARGUMENT
        assert refused(channel, "ModelInfer", infer_request([b"no file"]))[0] == Status.INVALID_ARGUMENT

    def test_a_message_that_is_too_large_is_refused(self, channel: grpc.Channel) -> None:
        code, details = refused(channel, "ModelInfer", {**infer_request(IMAGE), "id": "x" * LIMITS.body_bytes})
        assert code == Status.RESOURCE_EXHAUSTED
        assert "larger than max" in details

    def test_a_message_that_is_none_is_refused(self, channel: grpc.Channel) -> None:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(f"/{SERVICE}/ModelInfer")(b"\xff\xff\xff", timeout=60)
        assert caught.value.code() == Status.INVALID_ARGUMENT
        assert call(channel, "ServerLive").live

    def test_calls_at_once_are_limited(self, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("offramp.serve._grpc.MOST_CALLS", 2)
        let, given = threading.Event(), model()
        backend = Waiting(given, let)
        with serving(loop, Scheduler(given.on(backend))) as channel:
            message = MESSAGES["ModelInferRequest"](**infer_request(IMAGE))
            waiting = [method(channel, "ModelInfer").future(message, timeout=60) for _ in range(2)]
            assert backend.started.wait(60)
            time.sleep(0.2)
            assert refused(channel, "ServerLive", {})[0] == Status.RESOURCE_EXHAUSTED
            let.set()
            for answer in waiting:
                assert answer.result().model_name == "shapes"


class TestLoad:
    @each("how", ["cancelled", "too late"])
    def test_a_full_queue_and_a_call_that_ends(self, loop: asyncio.AbstractEventLoop, how: str) -> None:
        let = threading.Event()
        backend = Waiting(model(), let)
        scheduler = Scheduler(model().on(backend), max_batch=1, max_queue=1)
        fields = infer_request(images(1, seed=3)[0])
        request = MESSAGES["ModelInferRequest"](**fields)
        with serving(loop, scheduler) as channel:
            first = method(channel, "ModelInfer").future(request, timeout=60)
            assert backend.started.wait(60)
            second = method(channel, "ModelInfer").future(request, timeout=60 if how == "cancelled" else 1)
            while len(scheduler) == 0:
                time.sleep(0.01)
            (waiting,) = [part for _, _, part in scheduler._queue]
            assert refused(channel, "ModelInfer", fields)[0] == Status.RESOURCE_EXHAUSTED
            if how == "cancelled":
                assert waiting.request.deadline - waiting.request.submitted > 50
                second.cancel()
            else:
                assert waiting.request.deadline - waiting.request.submitted < 2  # gRPC rounds it up
                assert second.code() == Status.DEADLINE_EXCEEDED
            while not waiting.request.ticket.cancelled():
                time.sleep(0.01)
            let.set()
            assert tensors(first.result())["exit"].shape == (1,)

    def test_a_call_that_ends_while_its_request_is_read(self, loop: asyncio.AbstractEventLoop) -> None:
        let = threading.Event()
        tickets: list[Any] = []

        class Slow(Scheduler):
            def submit(self, inputs: Any, **settings: Any) -> Any:
                reading.set()
                let.wait(60)
                tickets.append(super().submit(inputs, **settings))
                return tickets[0]

        reading = threading.Event()
        pixels = np.zeros((4, 96, 96, 3), np.uint8)
        request = MESSAGES["ModelInferRequest"](**infer_request(pixels))
        proceed = threading.Event()
        backend = Waiting(model(), proceed)
        with serving(loop, Slow(model().on(backend))) as channel:
            call = method(channel, "ModelInfer").future(request, timeout=60)
            assert reading.wait(60)
            call.cancel()
            time.sleep(0.2)
            let.set()
            while not tickets or not tickets[0].cancelled():
                time.sleep(0.01)
            proceed.set()

    def test_a_deadline_that_passes_in_the_queue(self, loop: asyncio.AbstractEventLoop) -> None:
        let = threading.Event()
        backend = Waiting(model(), let)
        scheduler = Scheduler(model().on(backend), max_batch=1)
        deadline = [parameter("deadline_ms", string_param="50")]
        inputs = images(1, seed=3)[0]
        with serving(loop, scheduler) as channel:
            infer = method(channel, "ModelInfer")
            first = infer.future(MESSAGES["ModelInferRequest"](**infer_request(inputs)), timeout=60)
            assert backend.started.wait(60)
            late = infer.future(MESSAGES["ModelInferRequest"](**infer_request(inputs, parameters=deadline)), timeout=60)
            while len(scheduler) == 0:
                time.sleep(0.01)
            time.sleep(0.1)
            let.set()
            assert first.code() == Status.OK
            assert late.code() == Status.DEADLINE_EXCEEDED
            assert "deadline" in late.details()

    def test_calls_in_progress_are_answered_before_the_end(self, loop: asyncio.AbstractEventLoop) -> None:
        let = threading.Event()
        backend = Waiting(model(), let)
        request = MESSAGES["ModelInferRequest"](**infer_request(images(1, seed=3)[0]))

        async def run() -> Any:
            scheduler = Scheduler(model().on(backend))
            server = serve_grpc(scheduler, name="shapes", limits=LIMITS, host="127.0.0.1", port=0, drain_s=30)
            with scheduler:
                async with server as port:
                    caller = asyncio.create_task(asyncio.to_thread(ask, port))
                    await asyncio.to_thread(backend.started.wait, 60)
                    threading.Timer(0.2, let.set).start()
            return await caller

        def ask(port: int) -> Any:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                return method(channel, "ModelInfer")(request, timeout=60)

        assert len(asyncio.run_coroutine_threadsafe(run(), loop).result(60).outputs) == 4

    def test_a_port_in_use_is_an_error(self, loop: asyncio.AbstractEventLoop) -> None:
        async def run() -> None:
            common: dict[str, Any] = {"name": "shapes", "limits": LIMITS, "host": "127.0.0.1", "drain_s": 1}
            async with serve_grpc(Scheduler(model()), port=0, **common) as port:
                with pytest.raises(RuntimeError):
                    await serve_grpc(Scheduler(model()), port=port, **common).__aenter__()

        asyncio.run_coroutine_threadsafe(run(), loop).result(60)


class TestRecords:
    def test_of_calls_have_their_figures(
        self, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        records: list[RequestRecord] = []
        scheduler, inputs = Scheduler(model()), images(2, seed=3)[0]
        trace = "0af7651916cd43dd8448eb211c80319c"
        with serving(loop, scheduler, on_request=[records.append]) as channel:
            call(
                channel,
                "ModelInfer",
                infer_request(inputs),
                metadata=[("traceparent", f"00-{trace}-b7ad6b7169203331-01")],
            )
            refused(channel, "ModelInfer", {"model_name": "other"})
            refused(channel, "ModelInfer", {"model_name": "shapes"})

            def fail(*arguments: Any, **options: Any) -> None:
                raise RuntimeError("a secret")

            monkeypatch.setattr(scheduler, "submit", fail)
            code, details = refused(channel, "ModelInfer", infer_request(inputs))
        assert code == Status.INTERNAL
        assert "secret" not in details + caplog.text
        assert [(record.route, record.status) for record in records] == [
            *(("grpc", status) for status in (200, 404, 400, 500))
        ]
        assert records[0].trace_id == trace
        assert records[0].exits == model().predict(inputs).exits.tolist()
