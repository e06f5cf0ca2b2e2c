"""Replicas of a server, by Ray Serve; no other file uses it.

Ray starts, routes, scales, checks and updates them. Each replica is a whole server: the same application and scheduler
as that of one process.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch

from offramp.errors import MissingExtraError, WorkerLostError
from offramp.serve._app import RETRY_AFTER_S, create_app
from offramp.serve._server import DRAIN_S, ServerSettings, load_model, make_scheduler, prepare_model

try:
    import ray
    import yaml
    from ray import serve
except ImportError as error:
    raise MissingExtraError("replicas need Ray Serve", hint="pip install 'offramp[replicas,serve]'") from error

__all__ = ["build", "format_config", "serve_replicas"]

HEALTH_S = 1.0
"""Seconds between checks of a replica: Ray notices at a check that a replica was killed, and starts another."""

LOGGING = {"enable_access_log": False}
"""Logging of an application, as Ray Serve takes it."""


@serve.ingress()
class Replica:
    """One server of an artifact.

    Args:
        settings: Settings of the server.
    """

    def __init__(self, settings: ServerSettings) -> None:
        # Ray sets only OMP_NUM_THREADS, which torch may have read before.
        context: Any = ray.get_runtime_context()
        torch.set_num_threads(max(1, int(context.get_assigned_resources().get("CPU", 1))))
        self._settings = settings
        self._scheduler = make_scheduler(prepare_model(load_model(settings), settings), settings)

    def __serve_build_asgi_app__(self) -> Any:
        return create_app(self._scheduler, name=self._settings.name, limits=self._settings.limits)

    def check_health(self) -> None:
        """Raise an error if the scheduler runs no batches; Ray then replaces this replica."""
        if not self._scheduler.is_running:
            raise WorkerLostError("the thread that runs batches has ended")


def build(arguments: Mapping[str, Any]) -> serve.Application:
    """Make the application of a configuration file, which names this function.

    Args:
        arguments: Fields of `ServerSettings`.
    """
    return serve.deployment()(Replica).bind(ServerSettings(**arguments))


@contextmanager
def serve_replicas(settings: ServerSettings, replicas: tuple[int, int], *, host: str, port: int) -> Iterator[None]:
    """Run replicas on the cluster that Ray is connected to, until the end of the block; then answer what they have.

    Args:
        settings: Settings of each.
        replicas: Least and most replicas.
        host: Address to listen on.
        port: Port.

    Raises:
        WorkerLostError: If they cannot be started.
    """
    try:
        serve.start(http_options=_describe_http(settings, host, port), logging_config={"log_level": "ERROR"})
    except Exception as error:  # Ray raises several types
        raise WorkerLostError(
            f"Ray Serve did not start: {str(error)[:300]}", hint="if the machine is busy, try again when it is less so"
        ) from error
    logging.getLogger("ray.serve").setLevel(logging.ERROR)  # not before: it warns of options that a cluster ignores
    deployment = serve.deployment(**_describe_deployment(settings, replicas))(Replica)
    try:
        try:
            serve.run(deployment.bind(settings), name=settings.name, route_prefix="/", logging_config=LOGGING)
        except RuntimeError as error:  # it does not say why; the status does
            application = serve.status().applications[settings.name]
            reasons = [status.message for status in application.deployments.values()]
            raise WorkerLostError(f"the replicas of '{settings.name}' did not start: {' '.join(reasons)}") from error
        yield
    finally:
        serve.delete(settings.name)


def format_config(settings: ServerSettings, replicas: tuple[int, int], *, host: str, port: int) -> str:
    """Return the configuration file for `serve deploy`; the arguments are those of `serve_replicas`."""
    application = {
        "name": settings.name,
        "route_prefix": "/",
        "import_path": f"{__name__}:{build.__name__}",
        "args": {**asdict(settings), "trust": list(settings.trust)},
        "logging_config": LOGGING,
        "deployments": [{"name": Replica.__name__, **_describe_deployment(settings, replicas)}],
    }
    content = {"http_options": _describe_http(settings, host, port), "applications": [application]}
    return str(yaml.safe_dump(content, sort_keys=False))


def _describe_http(settings: ServerSettings, host: str, port: int) -> dict[str, Any]:
    """Return the options of Ray's HTTP servers."""
    # A replica gives up a request at its deadline; this is for requests that wait for a replica.
    timeout_s = settings.limits.body_s + settings.deadline_ms / 1000
    return {"host": host, "port": port, "request_timeout_s": timeout_s}


def _describe_deployment(settings: ServerSettings, replicas: tuple[int, int]) -> dict[str, Any]:
    """Return the options of the deployment that follow from those of the server."""
    least, most = replicas
    # Up to one batch of requests per replica is answered without waiting.
    scaling = {"min_replicas": least, "max_replicas": most, "target_ongoing_requests": settings.batch_size}
    return {
        **({"num_replicas": least} if least == most else {"autoscaling_config": scaling}),
        # More than the scheduler takes: it refuses requests by their deadlines, which Ray does not know.
        "max_ongoing_requests": settings.queue + settings.batch_size,
        "max_queued_requests": settings.queue,
        "backpressure_config": {"status_code": 503, "retry_after_s": RETRY_AFTER_S},
        "graceful_shutdown_timeout_s": DRAIN_S,
        "health_check_period_s": HEALTH_S,
    }
