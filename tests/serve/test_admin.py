"""The administration on a port of its own: it changes the model under requests, and only to what it may."""

import asyncio
import http.client
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import offramp
from offramp.errors import ArtifactError
from offramp.serve import Scheduler
from offramp.serve._admin import create_admin, run_admin
from offramp.serve._charts import WIDTH
from offramp.serve._history import History
from offramp.serve._metrics import Metrics
from offramp.serve._page import render_page
from offramp.serve._record import record_request
from tests.cases import each
from tests.model.examples import images
from tests.serve.examples import model
from tests.serve.test_app import call, serving
from tests.serve.test_overload import DROP, dear
from tests.serve.test_scheduler import Clock
from tests.serve.test_served import retrained

Load = Callable[[Path], offramp.EarlyExitModel]


@contextmanager
def administering(scheduler: Scheduler, folder: Path, load: Load) -> Iterator[tuple[int, int]]:
    """Run a server with its administration, and yield both ports."""
    metrics, history, ports = Metrics(), History(), []
    metrics.watch(scheduler)
    app = create_admin(scheduler, name="shapes", metrics=metrics, history=history, artifact=folder / "first", load=load)

    @asynccontextmanager
    async def run() -> AsyncIterator[None]:
        async with run_admin(app, host="127.0.0.1", port=0) as port:
            ports.append(port)
            yield

    observe = [metrics.observe_request, history.observe_request]
    with serving(scheduler, other_servers=[run()], on_request=observe) as port:
        yield port, ports[0]


def get(port: int, path: str) -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.headers["Content-Type"], response.read().decode()
    finally:
        connection.close()


@pytest.fixture
def artifacts(tmp_path: Path) -> Path:
    for name in ("artifacts/new", "artifacts/bad", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "artifacts" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "artifacts" / "current").symlink_to(tmp_path / "artifacts" / "new")
    return tmp_path / "artifacts"


def load(path: Path) -> offramp.EarlyExitModel:
    if path.name == "bad":
        raise ArtifactError("not an artifact")
    return retrained()


class TestSwap:
    @each("name", ["new", "current"])
    def test_answers_by_the_new_model(self, artifacts: Path, name: str) -> None:
        inputs = images(3, seed=3)[0]
        with administering(Scheduler(model()), artifacts, load) as (port, admin):
            body = {"inputs": inputs.tolist()}
            before = call(port, "/predict", body)[1]
            status, answer = call(admin, "/swap", {"artifact": name})
            assert status == 200, answer
            assert answer["point"]["cost"] == retrained().point.tune_metrics["cost"]
            assert answer["artifact"] == (artifacts / name).resolve().name
            assert f"artifact {answer['artifact']}," in get(admin, "/")[2].replace("&nbsp;", " ")
            after = call(port, "/predict", body)[1]
        for found, given in ((before, model()), (after, retrained())):
            expected = given.predict(inputs).to_dicts()
            assert [row["confidence"] for row in found["predictions"]] == [row["confidence"] for row in expected]

    def test_no_request_fails_under_load(self, artifacts: Path) -> None:
        statuses: list[int] = []
        ended = threading.Event()

        def ask(port: int) -> None:
            while not ended.is_set():
                statuses.append(call(port, "/predict", {"inputs": images(1, seed=3)[0].tolist(), "sets": 0.1})[0])

        with administering(Scheduler(model(), max_batch=4), artifacts, load) as (port, admin):
            callers = [threading.Thread(target=ask, args=(port,)) for _ in range(3)]
            for caller in callers:
                caller.start()
            for _ in range(10):
                assert call(admin, "/swap", {"artifact": "new"})[0] == 200
            ended.set()
            for caller in callers:
                caller.join()
        assert set(statuses) == {200}

    @each(
        ("body", "status"),
        [
            ({"artifact": "bad"}, 400),
            ({"artifact": "missing"}, 400),
            ({"artifact": "../elsewhere"}, 400),
            ({"artifact": "link"}, 400),
            ({"artifact": "."}, 400),
            ({"artifact": "/etc"}, 400),
            ({"artifact": "a\0b"}, 400),
            ({"artifact": 3}, 400),
            ({"artifact": "new", "trust": "x"}, 400),
            ({}, 400),
            (b"[]", 400),
            (b" " * 10_001, 413),
        ],
    )
    def test_only_takes_artifacts_of_its_folder(self, artifacts: Path, body: Any, status: int) -> None:
        scheduler = Scheduler(model())
        with administering(scheduler, artifacts, load) as (_, admin):
            assert call(admin, "/swap", body)[0] == status
        assert scheduler.model is model()

    def test_requests_of_web_pages_are_refused(self, artifacts: Path) -> None:
        with administering(Scheduler(model()), artifacts, load) as (_, admin):
            assert call(admin, "/swap", {"artifact": "new"}, {"Origin": "http://localhost"})[0] == 403

    def test_one_change_at_a_time(self, artifacts: Path) -> None:
        let, started = threading.Event(), threading.Event()

        def load_slowly(path: Path) -> offramp.EarlyExitModel:
            started.set()
            assert let.wait(60)
            return load(path)

        with administering(Scheduler(model()), artifacts, load_slowly) as (port, admin):
            statuses: list[int] = []
            first = threading.Thread(target=lambda: statuses.append(call(admin, "/swap", {"artifact": "new"})[0]))
            first.start()
            assert started.wait(60)
            assert call(admin, "/swap", {"artifact": "new"})[0] == 409
            assert call(port, "/predict", {"inputs": images(1, seed=3)[0].tolist()})[0] == 200  # meanwhile
            let.set()
            first.join()
        assert statuses == [200]


class TestPoint:
    def test_moves(self, artifacts: Path) -> None:
        scheduler = Scheduler(dear())
        with administering(scheduler, artifacts, load) as (port, admin):
            budget = dear().dial.cheapest
            assert call(admin, "/point", {"budget": budget})[1]["point"]["cost"] == budget
            body = {"inputs": images(1, seed=3)[0].tolist()}
            assert call(port, "/predict", body)[1]["point"]["cost"] == budget
            assert call(admin, "/point", {"max_drop": DROP})[1]["point"]["guarantee"]["at_most"] == DROP
            for wrong in ({}, {"budget": 1, "max_drop": 1}, {"budget": None}, {"budget": "1"}, {"budget": 1e-9}):
                assert call(admin, "/point", wrong)[0] == 400, wrong
        expected = dear().at(max_drop=DROP, policy="threshold").point
        assert scheduler.point.guarantee == expected.guarantee
        assert scheduler.point.parameters["threshold"] == expected.parameters["threshold"]


class TestPorts:
    def test_share_nothing(self, artifacts: Path) -> None:
        with administering(Scheduler(model()), artifacts, load) as (port, admin):
            for path in ("/metrics", "/", "/swap", "/point"):
                assert get(port, path)[0] == 404
            assert get(admin, "/predict")[0] == 404
            assert get(admin, "/openapi.json")[0] == 404

    def test_metrics(self, artifacts: Path) -> None:
        with administering(Scheduler(model()), artifacts, load) as (port, admin):
            call(port, "/predict", {"inputs": images(2, seed=3)[0].tolist()})
            status, kind, text = get(admin, "/metrics")
        assert (status, kind.split(";")[0]) == (200, "text/plain")
        assert 'offramp_request_seconds_count{route="predict"} 1.0' in text

    def test_the_second_server_on_a_port_is_told(self) -> None:
        async def run_twice() -> None:
            app = create_admin(
                Scheduler(model()), name="x", metrics=Metrics(), history=History(), artifact=Path("/x"), load=load
            )
            async with run_admin(app, host="127.0.0.1", port=0) as port, run_admin(app, host="127.0.0.1", port=port):
                pass

        with pytest.raises(OSError, match="in use"):
            asyncio.run(run_twice())


class TestPage:
    def test_shows_the_point_the_exits_and_the_load(self) -> None:
        clock = Clock()
        history, scheduler = History(clock=clock), Scheduler(model())
        inputs = images(4, seed=3)[0]
        for _ in range(5):
            with record_request("predict", {}, [history.observe_request]) as record:
                record.tickets = [scheduler.submit(inputs)]
                scheduler.run_batch()
        clock.now += 10
        page = render_page(scheduler, history, name="shapes <b>", artifact="first")
        assert "shapes &lt;b&gt;" in page
        assert "<script" not in page
        assert "http://" not in page
        assert str(model().point.guarantee)[:20].replace(" %", "&nbsp;%") in page
        assert '<td class="words">Requests answered</td><td>5</td>' in page
        charts = [ElementTree.fromstring(svg) for svg in re.findall("<svg.*?</svg>", page)]
        assert [chart.attrib["aria-label"] for chart in charts] == [
            *("accuracy", "Share of samples by exit", "requests per second", "milliseconds")
        ]
        exits = model().predict(inputs).exits.tolist()
        shares = {f"exit {exit}": f"{25 * exits.count(exit):.1f} %" for exit in exits}
        texts = [text.text for text in charts[1].iter("text")]
        for name, share in shares.items():
            assert texts[texts.index(name) + 1] == share
        (marker,) = charts[0].iter("circle")
        assert 0 < float(marker.attrib["cx"]) < WIDTH
        assert len(list(charts[2].iter("polyline"))) == 2

    def test_of_a_server_without_requests(self) -> None:
        page = render_page(Scheduler(model()), History(), name="shapes", artifact="first")
        assert not re.search(r"\bnan\b", page)
