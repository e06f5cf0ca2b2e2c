"""`offramp serve`."""

import logging
import os
import signal
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from offramp.cli.places import find_address, find_name
from offramp.errors import BudgetError, InputError

if TYPE_CHECKING:
    from offramp.model._model import EarlyExitModel
    from offramp.serve._record import RequestRecord
    from offramp.serve._server import ServerSettings

__all__ = ["serve"]

SERVER = "The server"
"""Title of the options of the server."""

OPERATIONS = "Operations"
"""Title of the options of operations."""

REPLICAS = "Many replicas"
"""Title of the options of replicas."""


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
            help="Name of the model in addresses. [dim]Without it: the name of the folder or of the repository.[/dim]",
            rich_help_panel=SERVER,
        ),
    ] = None,
    batch_size: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Most inputs that run together; fewer for networks that need much memory.",
            rich_help_panel=SERVER,
        ),
    ] = 64,
    queue: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Most inputs that wait; others are refused, and so are requests with more inputs than this.",
            rich_help_panel=SERVER,
        ),
    ] = 512,
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
            help="With --overload-drop: lower the point while requests wait longer than this in the queue.",
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
            help="Port of the administration: /metrics for Prometheus, a page, /swap and /point to change the model. "
            "It asks for no password, so keep it private; not with --replicas. [dim]Without it: none.[/dim]",
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
    replicas: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Replicas by Ray Serve: 2, or 1:4 to scale between 1 and 4 with the load. [dim]Without it: this "
            "process alone.[/dim]",
            rich_help_panel=REPLICAS,
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Address of the Ray cluster for the replicas: host:port, or auto. Its machines need the same packages "
            "and the artifact under the same path. [dim]Without it: RAY_ADDRESS, else this machine.[/dim]",
            rich_help_panel=REPLICAS,
        ),
    ] = None,
    write_config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Serve nothing; write the file that serve deploy takes, for a cluster that exists. "
            "[dim]Without it: serve.[/dim]",
            rich_help_panel=REPLICAS,
        ),
    ] = None,
    trust: TrustOption = None,
) -> None:
    """Serve an artifact over HTTP.

    [bold]POST /predict[/bold] takes {"inputs": [...]} with texts, images as base64, or arrays, and answers with labels;
    budget, max_drop, sets and deadline_ms beside it are settings of that request alone. Clients of KServe and Triton
    use the Open Inference Protocol under [bold]/v2[/bold], or over gRPC with --grpc-port.

    Ctrl-C or SIGTERM ends it: requests in progress are answered, new ones are not accepted. Put TLS, tokens and rate
    limits before it: docs/reference/server.md.

    [bold]Example[/bold]: offramp serve my-offramp --max-drop 0.01 --port 8080

    [bold]Example[/bold]: curl localhost:8080/predict --data '{"inputs": ["where is my card?"], "budget": 0.5}'
    """
    from offramp.cli.datasets import check_inputs
    from offramp.cli.networks import open_artifact
    from offramp.data import open_data
    from offramp.model._backends import backend_name
    from offramp.serve._app import create_app
    from offramp.serve._connections import run_app
    from offramp.serve._requests import describe_briefly
    from offramp.serve._server import DRAIN_S, ServerSettings, make_scheduler, prepare_model

    if replicas is None and (cluster or write_config):
        raise InputError(
            expected="--replicas with --cluster and --write-config", got="none", hint="add it, such as --replicas 2"
        )
    own = {
        "--grpc-port": grpc_port,
        "--admin-port": admin_port,
        "--shadow": shadow,
        "--traces": traces,
        "--log-requests": log_requests,
    }
    for option, value in own.items():
        if replicas is not None and value:
            raise InputError(expected=f"{option} or --replicas", got="both", hint="leave one out")
    ports = {"--port": port, "--grpc-port": grpc_port, "--admin-port": admin_port}
    option_of: dict[int, str] = {}
    for option, number in ports.items():
        if number in option_of:
            raise InputError(option, expected=f"another port than {option_of[number]}", got=f"{number} for both")
        if number is not None:
            option_of[number] = option
    counts = None if replicas is None else _read_replicas(replicas)
    cluster = cluster or os.environ.get("RAY_ADDRESS")
    if counts is None or not (cluster or write_config):
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

    def load(path: Path) -> tuple["EarlyExitModel", str]:
        """Load an artifact at the point that the options select, and tell its backend."""
        model = with_latency_file(open_artifact(path, trust), latency, None)
        name = backend_name(model) if backend is None else backend
        warn_of_backend(model, name)
        model = choose_point(model, point_options, path)
        if data is not None:
            check_inputs(data, open_data(data), model.backbone, model.preprocessing)
        return model, name

    model, used = load(artifact)
    settings = ServerSettings(
        artifact=find_address(artifact.resolve()),
        name=find_name(artifact) if name is None else name,
        backend=used,
        point={key: value for key, value in vars(point_options).items() if value is not None},
        latency=None if latency is None else str(latency.resolve()),
        data=str(Path(data).resolve()) if data is not None and Path(data).exists() else data,
        trust=trust or (),
        batch_size=batch_size,
        queue=queue,
        overload_drop=overload_drop,
        slow_ms=slow_ms,
        deadline_ms=deadline_ms,
    )
    if counts is not None:
        _serve_replicas(settings, counts, host, port, cluster, write_config)
        return
    name, limits = settings.name, settings.limits
    metrics = None
    if admin_port is not None:
        from offramp.serve._metrics import Metrics

        metrics = Metrics()
    say(f"Preparing '{used}' ...")
    scheduler = make_scheduler(prepare_model(model, settings), settings, shadow=shadow, observer=metrics)

    def load_other(path: Path) -> "EarlyExitModel":
        other, backend = load(path)
        other = prepare_model(other, replace(settings, backend=backend))
        if scheduler.model.point.guarantee is not None and other.point.guarantee is None:
            raise BudgetError(
                f"the operating point of '{path.name}'",
                expected="a guarantee, as the current model has it",
                got="none",
                hint="choose its point with --max-drop, and save it there",
            )
        return other

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
            admin = create_admin(
                scheduler, name=name, metrics=metrics, history=history, artifact=artifact.resolve(), load=load_other
            )
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
        say(f"Operating point: {describe_briefly(scheduler.model.point)}")
        say(f"Serving '{name}' on http://{host}:{port}: POST /predict, and /v2 for clients of KServe and Triton.")
        if grpc_port is not None:
            say(f"Serving '{name}' over gRPC on {host}:{grpc_port}.")
        if admin_port is not None:
            say(f"Administration on http://{admin_host}:{admin_port}: the page, /metrics, /swap and /point.")
        if log_requests:
            _log_requests()
        run_app(app, host=host, port=port, limits=limits, most_requests=scheduler.most_requests)
    say("Stopped: what was accepted is answered.")


def _log_requests() -> None:
    """Write the lines of requests to stderr as they are."""
    logger = logging.getLogger("offramp.serve")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(logging.StreamHandler())


def _serve_replicas(
    settings: "ServerSettings",
    counts: tuple[int, int],
    host: str,
    port: int,
    cluster: str | None,
    write_config: Path | None,
) -> None:
    """Serve from replicas until a signal ends it, or write the file that does so."""
    from offramp.scale._workers import open_workers
    from offramp.serve._replicas import format_config, serve_replicas

    if write_config is not None:
        write_config.write_text(format_config(settings, counts, host=host, port=port), "utf-8")
        say(f"Wrote {write_config}. Deploy it: serve deploy {write_config}")
        return
    say(f"Preparing '{settings.backend}' in replicas ...")
    with open_workers(counts[1], cluster), suppress(KeyboardInterrupt):
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # after Ray has set its own
        with serve_replicas(settings, counts, host=host, port=port):
            say(f"Serving '{settings.name}' on http://{host}:{port}: POST /predict, and /v2 for clients of KServe.")
            signal.pause()
    say("Stopped: what was accepted is answered.")


def _read_replicas(text: str) -> tuple[int, int]:
    """Return the least and the most replicas that `--replicas` names."""
    least, _, most = text.partition(":")
    counts = [int(count) for count in (least, most or least) if count.isascii() and count.isdigit()]
    if len(counts) != 2 or not 1 <= counts[0] <= counts[1]:
        raise InputError("--replicas", expected="a number such as 2, or two such as 1:4", got=f"'{text}'")
    return counts[0], counts[1]


def _check_port(host: str, port: int, option: str) -> None:
    """Refuse a port that is taken before the network is prepared, which may take a minute."""
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        raise InputError(
            f"cannot listen on {host}:{port}: {error.strerror}", hint=f"choose another {option}"
        ) from error
