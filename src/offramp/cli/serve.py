"""`offramp serve`."""

import logging
import signal
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from offramp.cli.choosing import (
    PointOptions,
    choose_point,
    read_run,
    warn_of_backend,
    with_latency_file,
    with_point_options,
)
from offramp.cli.console import say
from offramp.cli.options import ArtifactArgument, LatencyOption, TrustOption
from offramp.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from offramp.model._model import EarlyExitModel
    from offramp.serve._record import RequestRecord

__all__ = ["serve"]

SERVER = "The server"
"""Title of the options of the server."""

OPERATIONS = "Operations"
"""Title of the options of operations."""

DRAIN_S = 30
"""Seconds that requests in progress have after the server was told to stop."""


@with_point_options
def serve(
    artifact: ArtifactArgument,
    point_options: PointOptions,
    latency: LatencyOption = None,
    backend: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Backend: eager, bfloat16 or onnx. [dim]Without it: as measured in --latency, else the one that the "
            "artifact was tuned on, else eager.[/dim]",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            metavar="PATH",
            help="Inputs to make graphs with and to warm up on; the first two are read. [dim]Without it: a black image "
            "or a short text, if the preprocessing tells which.[/dim]",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on.", rich_help_panel=SERVER)
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, metavar="N", help="Port.", rich_help_panel=SERVER)] = 8080,
    grpc_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            metavar="N",
            help="Port of the Open Inference Protocol over gRPC. [dim]Without it: no gRPC.[/dim]",
            rich_help_panel=SERVER,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name of the model in addresses. [dim]Without it: the name of the folder.[/dim]",
            rich_help_panel=SERVER,
        ),
    ] = None,
    batch_size: Annotated[
        int, typer.Option(min=1, metavar="N", help="Most inputs that run together.", rich_help_panel=SERVER)
    ] = 64,
    queue: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Most inputs that wait; others are refused.", rich_help_panel=SERVER),
    ] = 1024,
    overload_drop: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Under overload, lower the operating point of requests that name none, as far as this drop is "
            "guaranteed: 0.03 for three points of accuracy. [dim]Without it: the point stays.[/dim]",
            rich_help_panel=SERVER,
        ),
    ] = None,
    slow_ms: Annotated[
        float,
        typer.Option(
            min=1,
            metavar="MS",
            help="Milliseconds in the queue from which on there is overload.",
            rich_help_panel=SERVER,
        ),
    ] = 100.0,
    deadline_ms: Annotated[
        float,
        typer.Option(
            min=1,
            metavar="MS",
            help="Milliseconds after which a request is given up, unless it names fewer.",
            rich_help_panel=SERVER,
        ),
    ] = 60_000.0,
    admin_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            metavar="N",
            help="Port of the administration: metrics for Prometheus, a page, another artifact. [dim]Without it: "
            "none.[/dim]",
            rich_help_panel=OPERATIONS,
        ),
    ] = None,
    admin_host: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Address of the administration.", rich_help_panel=OPERATIONS),
    ] = "127.0.0.1",
    shadow: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Share of requests that the full network answers as well, after their answer and while the queue is "
            "empty; metrics count how often it disagrees.",
            rich_help_panel=OPERATIONS,
        ),
    ] = 0.0,
    traces: Annotated[
        bool,
        typer.Option(
            "--traces",
            help="Export one OpenTelemetry span per request, as the environment variables OTEL_... say.",
            rich_help_panel=OPERATIONS,
        ),
    ] = False,
    log_requests: Annotated[
        bool,
        typer.Option(
            "--log-requests",
            help="Write one line of JSON per request to stderr, without inputs and labels. Errors are always written.",
            rich_help_panel=OPERATIONS,
        ),
    ] = False,
    trust: TrustOption = None,
) -> None:
    """Serve an artifact over HTTP.

    [bold]POST /predict[/bold] takes {"inputs": [...]} with texts, images as base64, or arrays, and answers with labels;
    budget, max_drop, sets and deadline_ms beside it are settings of that request alone. Clients of KServe and Triton
    use the Open Inference Protocol under [bold]/v2[/bold], or over gRPC with --grpc-port.

    Ctrl-C or SIGTERM ends it: requests in progress are answered, new ones are not accepted. Put TLS, tokens and rate
    limits before it: docs/serving.md.

    [bold]Example[/bold]: offramp serve my-offramp --max-drop 0.01 --port 8080

    [bold]Example[/bold]: curl localhost:8080/predict --data '{"inputs": ["where is my card?"], "budget": 0.5}'
    """
    from offramp.cli.networks import open_artifact
    from offramp.model._backends import backend_name
    from offramp.serve import Scheduler
    from offramp.serve._app import create_app
    from offramp.serve._connections import LimitedProtocol
    from offramp.serve._requests import Limits

    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtraError("serving needs uvicorn", hint="pip install 'offramp[serve]'") from error

    _check_port(host, port, "--port")
    if grpc_port is not None:
        _check_port(host, grpc_port, "--grpc-port")
    # As Ctrl-C: ends with 0 after the answers, and is not ignored by process 1 of a container while it prepares.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if admin_port is not None:
        _check_port(admin_host, admin_port, "--admin-port")
    elif shadow:
        raise InputError(expected="--admin-port with --shadow", got="only --shadow", hint="the metrics are there")
    backend, _ = read_run(latency, backend, batch_size)

    def load(path: Path) -> "EarlyExitModel":
        """Load an artifact, at the point that the options select, ready to answer."""
        model = with_latency_file(open_artifact(path, trust), latency, None)
        name = backend_name(model) if backend is None else backend
        warn_of_backend(model, name)
        model = choose_point(model, point_options, path)
        example = _example(model, data)
        say(f"Preparing '{name}' ...")
        model = model.on(name, example=example)
        if example is not None:
            for count in (1, 2):  # graphs are made at their first use
                model.predict(example[:count])
        return model

    metrics = None
    if admin_port is not None:
        from offramp.serve._metrics import Metrics

        metrics = Metrics()
    scheduler = Scheduler(
        load(artifact),
        max_batch=batch_size,
        max_queue=max(queue, batch_size),
        overload_drop=overload_drop,
        slow_ms=slow_ms,
        shadow=shadow,
        observer=metrics,
    )
    limits = Limits(deadline_ms=deadline_ms)
    name = artifact.resolve().name if name is None else name
    other_servers: list[AbstractAsyncContextManager[object]] = []
    on_request: list[Callable[[RequestRecord], None]] = []
    with ExitStack() as closing:
        if traces:
            from offramp.serve._traces import Traces

            exporting = Traces()
            closing.callback(exporting.close)
            on_request.append(exporting.observe_request)  # first, as it gives requests their trace ids
        if metrics is not None and admin_port is not None:
            from offramp.serve._admin import create_admin, run_admin
            from offramp.serve._history import History

            metrics.watch(scheduler)
            history = History()
            on_request += [metrics.observe_request, history.observe_request]
            folder = artifact.resolve().parent
            admin = create_admin(scheduler, name=name, metrics=metrics, history=history, folder=folder, load=load)
            other_servers.append(run_admin(admin, host=admin_host, port=admin_port))
        if grpc_port is not None:
            from offramp.serve._grpc import serve_grpc

            grpc = serve_grpc(
                scheduler,
                name=name,
                limits=limits,
                host=host,
                port=grpc_port,
                drain_s=DRAIN_S,
                on_request=on_request,
            )
            other_servers.append(grpc)
        app = create_app(scheduler, name=name, limits=limits, other_servers=other_servers, on_request=on_request)
        say(f"Serving '{name}' on http://{host}:{port}: POST /predict, and /v2 for clients of KServe and Triton.")
        if grpc_port is not None:
            say(f"Serving '{name}' over gRPC on {host}:{grpc_port}.")
        if admin_port is not None:
            say(f"Administration on http://{admin_host}:{admin_port}: the page, /metrics, /swap and /point.")
        if log_requests:
            _log_requests()
        uvicorn.run(
            app,
            host=host,
            port=port,
            http=LimitedProtocol,
            ws="none",
            limit_concurrency=limits.connections,
            access_log=False,
            log_level="error",
            timeout_graceful_shutdown=DRAIN_S,
        )
    say("Stopped: what was accepted is answered.")


def _log_requests() -> None:
    """Write the lines of requests to stderr as they are."""
    logger = logging.getLogger("offramp.serve")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(logging.StreamHandler())


def _check_port(host: str, port: int, option: str) -> None:
    """Refuse a port that is taken before the network is prepared, which may take a minute."""
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        raise InputError(
            f"cannot listen on {host}:{port}: {error.strerror}", hint=f"choose another {option}"
        ) from error


def _example(model: "EarlyExitModel", data: str | None) -> Any:
    """Return two inputs to make graphs with and to warm up on; None if nothing tells what the model takes."""
    from offramp.cli.datasets import check_inputs
    from offramp.cli.networks import blank_input
    from offramp.data import open_data

    if data is not None:
        source = open_data(data)
        check_inputs(data, source, model.backbone, model.preprocessing)
        return source.read(0, min(2, len(source))).inputs
    try:
        return blank_input(model.backbone.name, model.preprocessing)
    except InputError:
        return None
