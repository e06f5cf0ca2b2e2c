"""The gRPC server of a model: the Open Inference Protocol, version 2."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from offramp.errors import BudgetError, BusyError, InputError, MissingExtraError
from offramp.model._model import EarlyExitModel
from offramp.serve._messages import CONTENTS, MESSAGES, METHODS, SERVICE
from offramp.serve._record import FAILED, OnRequest, RefusedError, RequestRecord, record_request
from offramp.serve._requests import (
    LARGE_BYTES,
    LONGEST_SHOWN,
    READERS,
    SETTINGS,
    Limits,
    Settings,
    describe_error,
    read_settings,
    submit,
)
from offramp.serve._scheduler import Scheduler, Ticket
from offramp.serve._served import takes_texts
from offramp.serve._tensors import DTYPES, describe_parameters, describe_tensors, list_outputs, read_tensors

try:
    import grpc
    from google.protobuf.message import DecodeError
except ImportError as error:
    raise MissingExtraError("gRPC needs grpcio and protobuf", hint="pip install 'offramp[serve]'") from error

__all__ = ["serve_grpc"]

CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    404: grpc.StatusCode.NOT_FOUND,
    FAILED: grpc.StatusCode.INTERNAL,
    503: grpc.StatusCode.RESOURCE_EXHAUSTED,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
"""Counterparts of the statuses of HTTP."""
MOST_STREAMS = 64
"""Calls at once of one connection."""

MOST_CALLS = 256
"""Calls at once of all connections; each may hold a message of 16 MiB."""

CONNECTION_MS = 300_000
"""Milliseconds after which a connection is closed once its calls are answered; a call without a message would
keep its place for ever."""


@asynccontextmanager
async def serve_grpc(
    scheduler: Scheduler,
    *,
    name: str,
    limits: Limits,
    host: str,
    port: int,
    drain_s: float,
    on_request: OnRequest = (),
) -> AsyncIterator[int]:
    """Answer gRPC calls by a scheduler, in the event loop that runs.

    Args:
        scheduler: The scheduler, which somebody else starts and closes.
        name: Name of the model.
        limits: Largest requests.
        host: Address to listen on.
        port: Port; 0 for any that is free.
        drain_s: Seconds that calls in progress have at the end.
        on_request: Functions to call with the record of each request.

    Yields:
        The port.
    """
    # Without reuseport = 0, a second server on the port would get a part of the calls instead of an error.
    options = [
        ("grpc.max_receive_message_length", limits.body_bytes),
        ("grpc.max_concurrent_streams", MOST_STREAMS),
        ("grpc.max_connection_age_ms", CONNECTION_MS),
        ("grpc.max_connection_age_grace_ms", int(limits.deadline_ms + 1000 * limits.body_s)),
        ("grpc.so_reuseport", 0),
    ]
    server = grpc.aio.server(options=options, maximum_concurrent_rpcs=MOST_CALLS)
    service = _Service(scheduler, name, limits, on_request)
    handlers = {
        method: grpc.unary_unary_rpc_method_handler(
            _refuse_unread(getattr(service, method)),
            request_deserializer=_reader(MESSAGES[f"{method}Request"]),
            response_serializer=MESSAGES[f"{method}Response"].SerializeToString,
        )
        for method in METHODS
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    bound = server.add_insecure_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    await server.start()
    try:
        yield bound
    finally:
        await server.stop(drain_s)


class _Service:
    """Methods of the service, by their names in the protocol."""

    def __init__(self, scheduler: Scheduler, name: str, limits: Limits, on_request: OnRequest) -> None:
        self._scheduler, self._name, self._limits, self._on_request = scheduler, name, limits, on_request
        self._readers = asyncio.Semaphore(READERS)

    async def ServerLive(self, _request: Any, _context: Any) -> Any:
        return MESSAGES["ServerLiveResponse"](live=True)

    async def ServerReady(self, _request: Any, _context: Any) -> Any:
        return MESSAGES["ServerReadyResponse"](ready=self._scheduler.is_running)

    async def ModelReady(self, request: Any, context: Any) -> Any:
        await self._check_name(request.name, context)
        return MESSAGES["ModelReadyResponse"](ready=self._scheduler.is_running)

    async def ServerMetadata(self, _request: Any, _context: Any) -> Any:
        return MESSAGES["ServerMetadataResponse"](name="offramp", version=version("offramp"))

    async def ModelMetadata(self, request: Any, context: Any) -> Any:
        await self._check_name(request.name, context)
        tensors = describe_tensors(self._scheduler.model)
        return MESSAGES["ModelMetadataResponse"](name=self._name, platform="offramp", **tensors)

    async def ModelInfer(self, request: Any, context: Any) -> Any:
        headers = {str(key): value for key, value in context.invocation_metadata() if isinstance(value, str)}
        try:
            with record_request("grpc", headers, self._on_request) as record:
                return await self._infer(request, context, record)
        except RefusedError as error:
            await context.abort(CODES[error.status], str(error))

    async def _infer(self, request: Any, context: Any, record: RequestRecord) -> Any:
        """Answer a request."""
        self._refuse_name(request.model_name)
        try:
            if request.ByteSize() <= LARGE_BYTES and takes_texts(self._scheduler.model):
                ticket, settings = self._start(request, context)
            else:
                ticket, settings = await self._start_in_thread(request, context)
        except BusyError as error:
            raise RefusedError(503, str(error)) from error
        except (InputError, BudgetError) as error:
            raise RefusedError(400, describe_error(error)) from error
        record.tickets = [ticket]
        try:
            answer = await ticket  # the end of the call, should it come first, cancels the ticket
            outputs = list_outputs(answer, settings, [output.name for output in request.outputs])
        except BusyError as error:
            raise RefusedError(504, str(error)) from error
        except InputError as error:
            raise RefusedError(400, describe_error(error)) from error
        response = MESSAGES["ModelInferResponse"](model_name=self._name, id=request.id)
        for key, value in describe_parameters(ticket.point).items():
            kind = "string_param" if isinstance(value, str) else "double_param"
            response.parameters.add(key=key, value={kind: value})
        _write_outputs(response, outputs, raw=bool(request.raw_input_contents))
        return response

    def _start(self, request: Any, context: Any) -> tuple[Ticket, Settings]:
        """Read a request, and put it into the queue."""
        inputs = _read_inputs(request, self._scheduler.model, self._limits)
        settings = read_settings(_read_parameters(request.parameters), self._limits)
        remaining_s = context.time_remaining()
        if remaining_s is not None and settings.deadline_ms is not None:
            settings = replace(settings, deadline_ms=min(settings.deadline_ms, max(1000 * remaining_s, 1e-3)))
        return submit(self._scheduler, inputs, settings), settings

    async def _start_in_thread(self, request: Any, context: Any) -> tuple[Ticket, Settings]:
        """Start a request in another thread; if the call ends meanwhile, withdraw it."""
        async with self._readers:
            started = asyncio.ensure_future(asyncio.to_thread(self._start, request, context))
            try:
                return await asyncio.shield(started)
            except asyncio.CancelledError:
                ticket, _ = await started
                ticket.cancel()
                raise

    async def _check_name(self, name: str, context: Any) -> None:
        try:
            self._refuse_name(name)
        except RefusedError as error:
            await context.abort(CODES[error.status], str(error))

    def _refuse_name(self, name: str) -> None:
        """Refuse the name of another model."""
        if name != self._name:
            raise RefusedError(404, f"no model '{name[:100]}' is served here, only '{self._name}'")


def _reader(message: Any) -> Callable[[bytes], Any]:
    """Return a function that reads a message; None stands for bytes that are none, which gRPC would log."""

    def read(data: bytes) -> Any:
        try:
            return message.FromString(data)
        except DecodeError:
            return None

    return read


def _refuse_unread(method: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
    """Return a method that refuses messages that could not be read."""

    async def call(request: Any, context: Any) -> Any:
        if request is None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "expected a message of the protocol, got other bytes")
        return await method(request, context)

    return call


def _read_inputs(request: Any, model: EarlyExitModel, limits: Limits) -> Any:
    """Return the inputs of a request as `EarlyExitModel.predict` takes them."""
    tensors, raw = request.inputs, request.raw_input_contents
    if not tensors:
        raise InputError("inputs", expected="at least one tensor", got="none")
    if raw and (len(raw) != len(tensors) or any(tensor.HasField("contents") for tensor in tensors)):
        raise InputError("raw_input_contents", expected="the data of all inputs, or none", got="that of some")
    entries = []
    for place, tensor in enumerate(tensors):
        typed = CONTENTS.get(tensor.datatype)
        if not raw and typed is None:
            expected = f"raw_input_contents, or a datatype of {', '.join(CONTENTS)}"
            raise InputError(
                f"tensor '{tensor.name[:LONGEST_SHOWN]}'", expected=expected, got=tensor.datatype[:LONGEST_SHOWN]
            )
        data = raw[place] if raw else list(getattr(tensor.contents, str(typed)))
        entry = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape), "data": data}
        entries.append(entry)
    return read_tensors(entries, model, limits)


def _read_parameters(parameters: Any) -> dict[str, Any]:
    """Return the settings of a request by name; a text that holds a number is one, as some clients send no doubles."""
    settings = {}
    for parameter in parameters:
        kind = parameter.value.WhichOneof("parameter_choice")
        if parameter.key not in SETTINGS or kind is None:
            continue
        value = getattr(parameter.value, kind)
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError as error:
                raise InputError(parameter.key, expected="a number", got=value[:100]) from error
        settings[parameter.key] = value
    return settings


def _write_outputs(response: Any, outputs: Sequence[tuple[str, str, Any]], *, raw: bool) -> None:
    """Add outputs to a response, in the form in which the inputs came."""
    for name, datatype, values in outputs:
        texts = [text.encode() for text in values] if datatype == "BYTES" else None
        shape = [len(values)] if texts is not None else values.shape
        tensor = response.outputs.add(name=name, datatype=datatype, shape=shape)
        if not raw:
            getattr(tensor.contents, CONTENTS[datatype]).extend(values.ravel().tolist() if texts is None else texts)
        elif texts is None:
            response.raw_output_contents.append(values.astype(DTYPES[datatype], copy=False).tobytes())
        else:  # each with its length before it
            response.raw_output_contents.append(b"".join(struct.pack("<I", len(text)) + text for text in texts))
