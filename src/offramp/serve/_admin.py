"""The administration of a server, on a port of its own: metrics, the page, another artifact, another point."""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from offramp.errors import InputError, MissingExtraError, OfframpError
from offramp.model._model import EarlyExitModel
from offramp.serve._app import Bodies, Response, refuse
from offramp.serve._history import History
from offramp.serve._metrics import Metrics
from offramp.serve._page import render_page
from offramp.serve._record import RefusedError
from offramp.serve._requests import LONGEST_SHOWN, Limits, describe_briefly, describe_point, read_settings
from offramp.serve._scheduler import Scheduler
from offramp.serve._tensors import parse_json

try:
    import uvicorn
    from fastapi import FastAPI, Request
    from fastapi.responses import HTMLResponse, JSONResponse
    from fastapi.responses import Response as PlainResponse
except ImportError as error:
    raise MissingExtraError("serving needs FastAPI and uvicorn", hint="pip install 'offramp[serve]'") from error

__all__ = ["create_admin", "run_admin"]

logger = logging.getLogger("offramp.serve")

LIMITS = Limits(body_bytes=10_000)
"""Largest requests."""


def create_admin(
    scheduler: Scheduler,
    *,
    name: str,
    metrics: Metrics,
    history: History,
    artifact: Path,
    load: Callable[[Path], EarlyExitModel],
) -> FastAPI:
    """Make the application that administers a scheduler.

    Args:
        scheduler: The scheduler.
        name: Name of the model.
        metrics: The metrics of the scheduler.
        history: Its last minutes.
        artifact: Folder of the artifact that is served; those beside it may take its place.
        load: Function that loads an artifact, ready to answer.
    """
    app = FastAPI(title="offramp administration", openapi_url=None)
    app.add_exception_handler(RefusedError, refuse)
    bodies, changing = Bodies(LIMITS), asyncio.Lock()
    served_name = artifact.name

    async def change(request: Request, apply: Callable[[dict[str, Any]], None]) -> Response:
        """Change the model of the scheduler, in a thread."""
        if "origin" in request.headers:  # sent by browsers, which have no business here: any page could do it
            raise RefusedError(403, "requests of web pages are refused")
        async with bodies.receive(request) as body:
            if changing.locked():
                raise RefusedError(409, "another change is on its way; try again when it has ended")
            async with changing:
                try:
                    await asyncio.to_thread(lambda: apply(parse_json(body)))
                except OfframpError as error:
                    raise RefusedError(400, str(error)) from error
        point = scheduler.model.point
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"time": time, "artifact": served_name, "point": describe_briefly(point)}
        logger.warning(json.dumps(line))  # at this level, so that it is in every log
        return Response({"artifact": served_name, "point": describe_point(point)})

    @app.get("/")
    async def page() -> HTMLResponse:
        return HTMLResponse(render_page(scheduler, history, name=name, artifact=served_name))

    @app.get("/metrics")
    async def show_metrics() -> PlainResponse:
        return PlainResponse(metrics.render(), media_type=metrics.content_type)

    @app.post("/swap")
    async def swap(request: Request) -> JSONResponse:
        def replace(content: dict[str, Any]) -> None:
            nonlocal served_name
            path = _find_artifact(artifact.parent, content)
            scheduler.replace(load(path))
            served_name = path.name

        return await change(request, replace)

    @app.post("/point")
    async def move_point(request: Request) -> JSONResponse:
        return await change(request, lambda content: scheduler.move_point(**_read_point(content)))

    return app


@asynccontextmanager
async def run_admin(app: FastAPI, *, host: str, port: int) -> AsyncIterator[int]:
    """Answer requests by the application, in the event loop that runs.

    Args:
        app: The application.
        host: Address to listen on.
        port: Port; 0 for any that is free.

    Yields:
        The port.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listening:
        config = uvicorn.Config(app, lifespan="off", access_log=False, log_config=None, timeout_graceful_shutdown=5)
        server = _Server(config)
        running = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            await running


class _Server(uvicorn.Server):
    """A server that leaves signals to the other one."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Leave the signals as they are."""
        return nullcontext()


def _find_artifact(folder: Path, content: dict[str, Any]) -> Path:
    """Return the folder of the artifact that a request names; it must be inside `folder`."""
    given = content.get("artifact")
    if set(content) != {"artifact"} or not isinstance(given, str):
        raise InputError("the body", expected='{"artifact": "NAME"}', got=_name_fields(content))
    try:
        path = (folder / given).resolve()
        inside = path != folder and path.is_relative_to(folder) and path.is_dir()
    except (OSError, ValueError):  # such as a name with a zero byte
        inside = False
    if not inside:
        raise InputError("artifact", expected=f"a folder inside {folder}", got=repr(given[:100]))
    return path


def _name_fields(content: dict[str, Any]) -> str:
    return f"an object with {', '.join(sorted(content))[:LONGEST_SHOWN] or 'nothing in it'}"


def _read_point(content: dict[str, Any]) -> dict[str, float]:
    """Return the setting of a request that names an operating point."""
    if set(content) not in ({"budget"}, {"max_drop"}) or None in content.values():
        raise InputError("the body", expected='{"max_drop": NUMBER} or {"budget": NUMBER}', got=_name_fields(content))
    read_settings(content, LIMITS)
    return content
