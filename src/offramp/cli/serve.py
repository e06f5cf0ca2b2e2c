"""`offramp serve`."""

import signal
import socket
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

__all__ = ["serve"]

SERVER = "The server"
"""Title of the options of the server."""

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
    backend, _ = read_run(latency, backend, batch_size)
    model = with_latency_file(open_artifact(artifact, trust), latency, None)
    backend = backend_name(model) if backend is None else backend
    warn_of_backend(model, backend)
    model = choose_point(model, point_options, artifact)
    example = _example(model, data)
    say(f"Preparing '{backend}' ...")
    model = model.on(backend, example=example)
    if example is not None:
        for count in (1, 2):  # graphs are made at their first use
            model.predict(example[:count])
    scheduler = Scheduler(
        model,
        max_batch=batch_size,
        max_queue=max(queue, batch_size),
        overload_drop=overload_drop,
        slow_ms=slow_ms,
    )
    limits = Limits(deadline_ms=deadline_ms)
    name = artifact.resolve().name if name is None else name
    other_server = None
    if grpc_port is not None:
        from offramp.serve._grpc import serve_grpc

        other_server = serve_grpc(scheduler, name=name, limits=limits, host=host, port=grpc_port, drain_s=DRAIN_S)
    app = create_app(scheduler, name=name, limits=limits, other_server=other_server)
    say(f"Serving '{name}' on http://{host}:{port}: POST /predict, and /v2 for clients of KServe and Triton.")
    if grpc_port is not None:
        say(f"Serving '{name}' over gRPC on {host}:{grpc_port}.")
    uvicorn.run(app, host=host, port=port, access_log=False, log_level="warning", timeout_graceful_shutdown=DRAIN_S)
    say("Stopped: what was accepted is answered.")


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
