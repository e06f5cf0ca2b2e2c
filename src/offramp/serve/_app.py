"""The HTTP server of a model: the Open Inference Protocol, version 2, and one plain route."""

import asyncio
import gc
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from importlib.metadata import version
from typing import Any, TypeVar

from offramp.errors import BudgetError, BusyError, InputError, MissingExtraError
from offramp.model._answer import Answer, join_answers
from offramp.model._marking import mark_inputs
from offramp.model._model import EarlyExitModel
from offramp.serve._memory import share_memory, trim_often
from offramp.serve._record import CLOSED, OnRequest, RefusedError, record_request
from offramp.serve._requests import (
    BUSY,
    LARGE_BYTES,
    READERS,
    RECEIVED,
    SETTINGS,
    Limits,
    Settings,
    describe_answer,
    describe_error,
    describe_point,
    read_settings,
    submit,
    submit_each,
)
from offramp.serve._scheduler import Scheduler, Ticket
from offramp.serve._served import takes_texts
from offramp.serve._tensors import describe_parameters, describe_tensors, parse_json, read_request, write_outputs

try:
    from fastapi import FastAPI, Request
    from fastapi.responses import JSONResponse
    from starlette.requests import ClientDisconnect
    from starlette.types import ASGIApp, Receive, Scope, Send
except ImportError as error:
    raise MissingExtraError("serving needs FastAPI and uvicorn", hint="pip install 'offramp[serve]'") from error

__all__ = ["Bodies", "Response", "create_app", "refuse"]

T = TypeVar("T")

RETRY_AFTER_S = 1
"""Seconds after which a refused client may try again: a full queue is worked off in less."""
TURN = 4
"""Small requests that are read before answers are sent again."""

SWITCH_S = 0.0001
"""Seconds after which Python lets another thread run. With its own 5 ms, the thread that runs batches waits that long
after each call of the network while requests are read: it then answers half as many."""

RETRY = {"Retry-After": str(RETRY_AFTER_S)}

NUMBER = {"type": "number", "exclusiveMinimum": 0}
PARAMETERS = {name: NUMBER for name in SETTINGS}
PREDICT_BODY = {
    "type": "object",
    "required": ["inputs"],
    "additionalProperties": False,
    "properties": {
        "inputs": {
            "type": "array",
            "minItems": 1,
            "items": {},
            "description": "Texts; images, each an image file as base64 or rows of pixels; or arrays of numbers.",
        },
        **PARAMETERS,
    },
}
TENSOR = {
    "type": "object",
    "required": ["name", "shape", "datatype"],
    "properties": {
        "name": {"type": "string"},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 1}},
        "datatype": {"type": "string"},
        "data": {"type": "array", "items": {}},
    },
}
INFER_BODY = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "id": {"type": "string"},
        "inputs": {"type": "array", "minItems": 1, "items": TENSOR},
        "outputs": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
        "parameters": {"type": "object", "properties": PARAMETERS},
    },
}
FAILURES = {
    400: "Wrong inputs or settings",
    404: "Another model",
    408: "The body took too long",
    413: "The body is too large",
    503: "The server is too busy; Retry-After says when to try again",
    504: "The deadline passed",
}


def create_app(
    scheduler: Scheduler,
    *,
    name: str,
    limits: Limits,
    other_servers: Sequence[AbstractAsyncContextManager[object]] = (),
    on_request: OnRequest = (),
) -> FastAPI:
    """Make the application that answers HTTP requests by a scheduler.

    Args:
        scheduler: The scheduler; it is started and closed with the application.
        name: Name of the model in addresses.
        limits: Largest requests.
        other_servers: Other servers of the scheduler, which run while the application does.
        on_request: Functions to call with the record of each request.
    """
    bodies = Bodies(limits)
    readers, turns = asyncio.Semaphore(READERS), asyncio.Semaphore(TURN)

    @asynccontextmanager
    async def run(app: FastAPI) -> AsyncIterator[None]:
        switch_s = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        gc.collect()
        gc.freeze()  # the network stays as it is: looking through it for garbage took a quarter of the time under load
        share_memory()
        trimming = asyncio.create_task(trim_often())
        try:
            with scheduler:  # closed last: what the other servers have accepted is answered
                async with AsyncExitStack() as servers:
                    for server in other_servers:
                        await servers.enter_async_context(server)
                    app.state.ready = True
                    try:
                        yield
                    finally:
                        app.state.ready = False
        finally:
            trimming.cancel()
            gc.unfreeze()
            sys.setswitchinterval(switch_s)

    app = FastAPI(title="offramp", version=version("offramp"), lifespan=run, docs_url=None, redoc_url=None)
    app.state.ready = False
    app.add_exception_handler(RefusedError, refuse)
    app.add_middleware(_RefuseBusy, on_request=on_request)

    async def start(request: Request, read: Callable[[bytes, float], T]) -> T:
        """Read a request, tell how long it has waited for that, and put it into the queue."""
        try:
            async with bodies.receive(request) as body:
                received = request.scope.get("state", {}).get(RECEIVED, time.monotonic())
                if len(body) <= LARGE_BYTES and takes_texts(scheduler.model):
                    async with turns:
                        await asyncio.sleep(0)
                        return read(body, time.monotonic() - received)
                async with readers:  # a small image file may take long to decode, too
                    return await asyncio.to_thread(lambda: read(body, time.monotonic() - received))
        except BusyError as error:
            raise RefusedError(503, str(error), RETRY) from error
        except (InputError, BudgetError) as error:
            raise RefusedError(400, describe_error(error)) from error

    def check_name(given: str) -> None:
        if given != name:
            raise RefusedError(404, f"no model '{given[:100]}' is served here, only '{name}'")

    @app.post("/predict", responses=_responses("Answers"), openapi_extra=_body(PREDICT_BODY))
    async def predict(request: Request) -> JSONResponse:
        def read(body: bytes, waited_s: float) -> tuple[list[Ticket | str], Settings]:
            content = parse_json(body)
            values = content.pop("inputs", None)
            settings = read_settings(content, limits)
            return submit_each(scheduler, values, settings, limits, waited_s), settings

        with record_request("predict", request.headers, on_request) as record:
            parts, settings = await start(request, read)
            record.tickets = [part for part in parts if isinstance(part, Ticket)]
            try:
                answers = [await _wait_marking(part, request, scheduler.model, alone=len(parts) == 1) for part in parts]
            finally:
                for ticket in record.tickets:  # of a client that is gone; answered ones stay as they are
                    ticket.cancel()
            points = [ticket.point for ticket in record.tickets]
            same = all(point is points[0] for point in points)  # overload may have lowered it between inputs
            point = points[0] if same else replace(points[0], guarantee=None)
            predictions = describe_answer(join_answers(answers), settings)
            return Response({"predictions": predictions, "point": describe_point(point)})

    @app.post("/v2/models/{model_name}/infer", responses=_responses("Answers"), openapi_extra=_body(INFER_BODY))
    @app.post("/v2/models/{model_name}/versions/{model_version}/infer", include_in_schema=False)
    async def infer(request: Request, model_name: str) -> JSONResponse:
        def read(body: bytes, waited_s: float) -> tuple[str, list[str], Ticket, Settings]:
            content, inputs, given = read_request(body, _header_length(request), scheduler.model, limits)
            settings = read_settings(given, limits)
            ticket = submit(scheduler, inputs, settings, waited_s)
            return _read_id(content), _wanted(content.get("outputs")), ticket, settings

        with record_request("infer", request.headers, on_request) as record:
            check_name(model_name)
            request_id, wanted, ticket, settings = await start(request, read)
            record.tickets = [ticket]
            answer = await _wait(ticket, request)
            try:
                outputs = write_outputs(answer, settings, wanted)
            except InputError as error:
                raise RefusedError(400, describe_error(error)) from error
            return Response(
                {
                    "model_name": name,
                    "id": request_id,
                    "parameters": describe_parameters(ticket.point),
                    "outputs": outputs,
                }
            )

    @app.get("/v2/health/live")
    async def live() -> JSONResponse:
        return Response({"live": True})

    @app.get("/v2/health/ready", responses={503: {"description": "Not yet"}})
    async def ready() -> JSONResponse:
        can_answer = app.state.ready and scheduler.is_running
        return Response({"ready": can_answer}, 200 if can_answer else 503)

    @app.get("/v2/models/{model_name}/ready", responses=_responses("Ready", 404))
    @app.get("/v2/models/{model_name}/versions/{model_version}/ready", include_in_schema=False)
    async def model_ready(model_name: str) -> JSONResponse:
        check_name(model_name)
        return await ready()

    @app.get("/v2")
    async def metadata() -> JSONResponse:
        return Response({"name": "offramp", "version": version("offramp"), "extensions": ["binary_tensor_data"]})

    @app.get("/v2/models/{model_name}", responses=_responses("Inputs and outputs", 404))
    @app.get("/v2/models/{model_name}/versions/{model_version}", include_in_schema=False)
    async def model_metadata(model_name: str) -> JSONResponse:
        check_name(model_name)
        return Response({"name": name, "versions": [], "platform": "offramp", **describe_tensors(scheduler.model)})

    return app


class Response(JSONResponse):
    """A JSON response in ASCII: a text may hold halves of characters, which have no bytes in UTF-8."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()


async def refuse(_request: Request, error: Exception) -> JSONResponse:
    """Answer a request that was refused.

    Args:
        error: The reason.
    """
    assert isinstance(error, RefusedError)
    return Response({"error": str(error)}, error.status, error.headers)


class _RefuseBusy:
    """Middleware that refuses requests for which the server has no time, before anything is read of them."""

    def __init__(self, app: ASGIApp, on_request: OnRequest) -> None:
        self._app, self._on_request = app, on_request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope.get("state", {}).get(BUSY):
            return await self._app(scope, receive, send)
        request = Request(scope)
        try:
            route = "infer" if scope["path"].endswith("/infer") else "predict"
            with record_request(route, request.headers, self._on_request):
                raise RefusedError(503, "the server has too many requests; try again later", RETRY)
        except RefusedError as error:
            response = await refuse(request, error)
        await response(scope, receive, send)


class Bodies:
    """The bodies of requests that are being read: each of limited size and time, and limited together."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._num_bytes = 0

    @asynccontextmanager
    async def receive(self, request: Request) -> AsyncIterator[bytes]:
        """Read the body of a request, which counts while it is in use."""
        limits, counted = self._limits, 0
        too_large = RefusedError(413, f"the body: expected at most {limits.body_bytes:,} bytes, got more")
        length = request.headers.get("content-length", "0")
        if not _is_count(length) or int(length) > limits.body_bytes:
            raise too_large
        body = bytearray()
        try:
            try:
                async with asyncio.timeout(limits.body_s):
                    async for chunk in request.stream():
                        body += chunk
                        if len(body) > limits.body_bytes:
                            raise too_large
                        added = max(0, len(body) - LARGE_BYTES) - counted
                        if self._num_bytes + added > limits.bodies_bytes:
                            raise BusyError("too many large bodies are being read", hint="try again later")
                        self._num_bytes += added
                        counted += added
            except ClientDisconnect as error:
                raise RefusedError(CLOSED, "the client is gone") from error
            except TimeoutError as error:
                raise RefusedError(408, f"the body: expected all of it within {limits.body_s:g} s") from error
            yield bytes(body)
        finally:
            self._num_bytes -= counted


async def _wait(ticket: Ticket, request: Request) -> Answer:
    """Wait for an answer, and withdraw the request if its client is gone."""
    answered = asyncio.wrap_future(ticket)
    gone = asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait((answered, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        if not answered.done():
            ticket.cancel()
    if not answered.done():
        raise RefusedError(CLOSED, "the client is gone")
    try:
        return answered.result()
    except BusyError as error:
        raise RefusedError(504, str(error)) from error
    except InputError as error:
        raise RefusedError(400, describe_error(error)) from error


async def _wait_marking(part: Ticket | str, request: Request, model: EarlyExitModel, *, alone: bool) -> Answer:
    """Wait for an answer; one of several inputs that is bad is marked with its error."""
    if isinstance(part, str):
        return mark_inputs(model, [part])
    try:
        return await _wait(part, request)
    except RefusedError as error:
        if alone or error.status != 400:
            raise
        return mark_inputs(model, [str(error)])


def _header_length(request: Request) -> int | None:
    """Return the length of the JSON before binary data, if there is any."""
    text = request.headers.get("inference-header-content-length")
    if text is None:
        return None
    if not _is_count(text):
        raise InputError("Inference-Header-Content-Length", expected="a number of bytes", got=text[:100])
    return int(text)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 12


def _read_id(content: dict[str, Any]) -> str:
    """Return the name that the client has for a request; empty if it has none."""
    given = content.get("id")
    if given is not None and not isinstance(given, str):
        raise InputError("id", expected="a text", got=type(given).__name__)
    return given or ""


def _wanted(outputs: Any) -> list[str]:
    """Return the names of the outputs that a request asks for; none stands for all."""
    entries = [] if outputs is None else outputs
    if not isinstance(entries, list):
        raise InputError("outputs", expected="a list", got=type(entries).__name__)
    names = [entry["name"] for entry in entries if isinstance(entry, dict) and isinstance(entry.get("name"), str)]
    if len(names) != len(entries):
        raise InputError("outputs", expected="the name of each", got="one without a name")
    return names


def _body(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a JSON body."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _responses(answer: str, *failures: int) -> dict[int | str, dict[str, Any]]:
    """Return the descriptions of the answers of a route."""
    return {200: {"description": answer}, **{code: {"description": FAILURES[code]} for code in failures or FAILURES}}
