"""Measure replicas under load while one is killed, the artifact is swapped, and the number of replicas changes.

    python -m offramp_bench.serving.replicas [--check] [--rate 10] [--port 8331]

Ray runs on this machine; the server is the command `offramp serve --replicas 2` or a configuration that it wrote; the
load generator is a separate process. The network is the cascade of the demo. A replica is stopped for a moment before
it is killed, so that requests are in flight on it.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from offramp.demo import digits
from offramp.demo._run import run
from offramp.runtime._processor import processor_name
from offramp.scale._workers import open_workers
from offramp_bench.bars import Bar, parser, report, say
from offramp_bench.scale.processes import descendants

NAME = "digits"
INPUTS = 2
"""Images per request."""

PATIENCE_S = 300.0
"""Seconds that replicas may take to start or end."""

HELD_S = 0.3
"""Seconds that a replica is stopped before it is killed."""

SWAP_S = 150.0
"""Seconds of load around a swap, which must end within them."""

LAG_S = 0.05
"""Seconds after a kill in which a request may still be sent to the replica."""


class Cluster:
    """Ray on this machine, and the files that requests and servers need.

    Args:
        folder: Folder for the files.
        port: Port of the server.
        rate: Requests per second.
    """

    def __init__(self, folder: Path, port: int, rate: float) -> None:
        import ray

        self._address = ray.get_runtime_context().gcs_address
        self._folder, self._port, self._rate = folder, port, rate
        say("fitting the model")
        model = run(folder, progress=False)
        self.artifacts = folder / "artifact", folder / "other"
        names = tuple(f"new {digit}" for digit in range(model.backbone.num_classes))
        replace(model, classes=names).save(self.artifacts[1], weights=True)
        images = digits().test.read(0, 50 * INPUTS).inputs
        rows = [images[start : start + INPUTS] for start in range(0, len(images), INPUTS)]
        tensors = [
            {"name": "image", "datatype": "UINT8", "shape": list(row.shape), "data": row.ravel().tolist()}
            for row in rows
        ]
        self._tensors, self._bodies = folder / "tensors", folder / "bodies"
        self._tensors.write_text("".join(json.dumps(tensor) + "\n" for tensor in tensors))
        self._bodies.write_text("".join(json.dumps({"inputs": row.tolist()}) + "\n" for row in rows))

    def line(self, artifact: Path, replicas: str) -> list[str]:
        """Return the command of a server."""
        line = [sys.executable, "-m", "offramp.cli", "serve", str(artifact), "--name", NAME, "--replicas", replicas]
        return [*line, "--port", str(self._port), "--batch-size", "8"]

    @contextmanager
    def serve(self, artifact: Path) -> Iterator[None]:
        """Run `offramp serve --replicas 2` until the end of the block."""
        server = subprocess.Popen([*self.line(artifact, "2"), "--cluster", self._address], stdout=sys.stderr)
        try:
            wait_for(2)
            yield
        finally:
            server.terminate()
            assert server.wait(60) == 0

    def deploy(self, artifact: Path, replicas: str, **scaling: float) -> None:
        """Deploy a configuration with some options of its scaling by Ray's own command."""
        file = self._folder / "config.yaml"
        subprocess.run([*self.line(artifact, replicas), "--write-config", str(file)], check=True, stdout=sys.stderr)
        config = yaml.safe_load(file.read_text())
        if scaling:
            config["applications"][0]["deployments"][0]["autoscaling_config"].update(scaling)
        file.write_text(yaml.safe_dump(config))
        serve = str(Path(sys.executable).with_name("serve"))
        line = [serve, "run", str(file), "--address", self._address, "--non-blocking"]
        subprocess.run(line, check=True, capture_output=True)

    @contextmanager
    def load(self, seconds: float, seed: int = 0) -> Iterator[list[dict[str, Any]]]:
        """Send requests with the tracking generator; the list holds its rows after the block."""
        line = [sys.executable, "-m", "offramp_bench.serving.tracked_load", str(self._port), NAME, str(self._tensors)]
        line += [str(seconds), "--rate", str(self._rate), "--seed", str(seed)]
        rows: list[dict[str, Any]] = []
        generator = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
        try:
            yield rows
            printed, _ = generator.communicate(timeout=seconds + PATIENCE_S)
            rows += json.loads(printed)
        finally:
            generator.kill()
            generator.wait()

    def saturate(self, seconds: float) -> subprocess.Popen[str]:
        """Start the generator whose connections always have one request open."""
        line = [sys.executable, "-m", "offramp_bench.serving.load", str(self._port), str(self._bodies), str(seconds)]
        return subprocess.Popen([*line, "--connections", "48"], stdout=subprocess.PIPE, text=True)


def count_running() -> int:
    """Return the number of replicas that accept requests."""
    from ray import serve

    application = serve.status().applications.get(NAME)
    if application is None:
        return 0
    states = [deployment.replica_states for deployment in application.deployments.values()]
    return sum(count for counts in states for state, count in counts.items() if state == "RUNNING")


def wait_for(count: int, lost: int | None = None) -> float:
    """Wait until a number of replicas run, not counting the lost one, and return the seconds it took."""
    begin = time.monotonic()
    while count_running() != count or (lost is not None and len(set(replicas()) - {lost}) < count):
        assert time.monotonic() < begin + PATIENCE_S, f"{count_running()} replicas run, expected {count}"
        time.sleep(0.1)
    return time.monotonic() - begin


def replicas() -> list[int]:
    """Return the process ids of the replicas."""
    return [process.number for process in descendants() if process.command.startswith("ray::ServeReplica")]


def judge_kill(rows: list[dict[str, Any]], killed: float) -> dict[str, Any]:
    """Return the figures of a load during which a replica was killed.

    Args:
        rows: One row per request.
        killed: Time at which the replica was killed.
    """
    failed = [row for row in rows if row["failures"]]
    # Requests that were sent before the kill and failed after it.
    kill_failures = [row for row in failed if row["sent"] <= killed + LAG_S and row["failures"][0][0] >= killed]
    retried_s = [row["answered"] - row["failures"][0][0] for row in failed if row["answered"] is not None]
    in_flight = [row for row in rows if row["sent"] <= killed and (row["answered"] is None or row["answered"] > killed)]
    return {
        "requests": len(rows),
        "in_flight": len(in_flight),
        "failed": len(failed),
        "failed_elsewhere": len(failed) - len(kill_failures),
        "lost": sum(row["answered"] is None for row in rows),
        "answered_twice": sum(row["answers"] > 1 for row in rows),
        "statuses": sorted({status for row in rows for _, status in row["failures"]}),
        "most_s_to_success_after_failure": max(retried_s, default=0.0),
        "most_s_to_failure_after_kill": max((row["failures"][0][0] - killed for row in kill_failures), default=0.0),
    }


def kill(cluster: Cluster, rounds: int) -> tuple[dict[str, Any], list[Bar]]:
    """Kill a replica under load, several times."""
    windows = []
    with cluster.serve(cluster.artifacts[0]):
        for turn in range(rounds):
            with cluster.load(25, seed=turn) as rows:
                time.sleep(5)
                victim = replicas()[turn % 2]
                os.kill(victim, signal.SIGSTOP)
                time.sleep(HELD_S)
                killed = time.time()
                os.kill(victim, signal.SIGKILL)
                full_s = wait_for(2, victim)
            windows.append(
                {**judge_kill(rows, killed), "s_to_full_service": full_s, "machine_load": os.getloadavg()[0]}
            )
            say(f"one of two replicas killed: {windows[-1]}")
    worst = {name: max(window[name] for window in windows) for name in windows[0] if name != "statuses"}
    bars = [
        Bar("kill: failures of requests that were not in flight on the replica", worst["failed_elsewhere"], 0),
        Bar(
            "kill: seconds from a failure to an answer",
            worst["most_s_to_success_after_failure"],
            1,
        ),
        Bar("kill: requests answered twice", worst["answered_twice"], 0),
        Bar("kill: requests lost by a client that tries again", worst["lost"], 0),
        Bar("kill: seconds to full service", worst["s_to_full_service"], 15),
        Bar("kill: no request failed, so that none was tried again", float(worst["failed"] == 0), 0),
    ]
    return {"windows": windows, "failed": sum(window["failed"] for window in windows)}, bars


def swap(cluster: Cluster) -> tuple[dict[str, Any], list[Bar]]:
    """Deploy another artifact under load: a rolling update by Ray."""
    cluster.deploy(cluster.artifacts[0], "2")
    wait_for(2)
    with cluster.load(SWAP_S) as rows:
        time.sleep(3)
        before = set(replicas())
        begin = time.time()
        cluster.deploy(cluster.artifacts[1], "2")
        while before & set(replicas()) or count_running() != 2:
            assert time.time() < begin + PATIENCE_S, "the old replicas still run"
            time.sleep(0.1)
        end = time.time()
    new_rows = [row for row in rows if str(row["label"]).startswith("new")]
    figures = {
        "requests": len(rows),
        "failures": sum(len(row["failures"]) for row in rows),
        "statuses": sorted({status for row in rows for _, status in row["failures"]}),
        "by_old": len(rows) - len(new_rows),
        "by_new": len(new_rows),
        "sent_after": sum(row["sent"] > end for row in rows),
        "by_old_after": sum(row not in new_rows and row["sent"] > end for row in rows),
        "seconds": end - begin,
        "most_latency_s": max(row["answered"] - row["sent"] for row in rows),
    }
    say(f"swap: {figures}")
    return figures, [
        Bar("swap: failures", figures["failures"], 0),
        Bar("swap: answers of the old artifact after it", figures["by_old_after"], 0),
        Bar("swap: no requests after it", float(figures["sent_after"] == 0), 0),
    ]


def scale(cluster: Cluster) -> tuple[dict[str, Any], list[Bar]]:
    """Scale from one replica to two under load, and back."""
    delays = {"upscale_delay_s": 2.0, "downscale_delay_s": 5.0, "metrics_interval_s": 1.0, "look_back_period_s": 3.0}
    cluster.deploy(cluster.artifacts[0], "1:2", **delays)
    wait_for(1)
    generator = cluster.saturate(60)
    try:
        up_s = wait_for(2)
        printed, _ = generator.communicate(timeout=60 + PATIENCE_S)
    finally:
        generator.kill()
        generator.wait()
    down_s = wait_for(1)
    statuses = [answer["status"] for answer in json.loads(printed)["answers"]]
    figures = {
        "s_to_two": up_s,
        "s_to_one": down_s,
        "requests": len(statuses),
        "failures": sum(status != 200 for status in statuses),
    }
    say(f"scaled: {figures}")
    return figures, [
        Bar("scale: seconds from one replica to two", up_s, 60),
        Bar("scale: seconds from two replicas to one", down_s, 60),
        Bar("scale: failures", figures["failures"], 0),
    ]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rate", type=float, default=10.0)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--port", type=int, default=8331)
    arguments = options.parse_args()
    os.environ.setdefault("RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES", "200000000")
    figures: dict[str, Any] = {"processor": processor_name(), "rate": arguments.rate, "images_per_request": INPUTS}
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        stack.enter_context(open_workers(4))  # with room for a new replica beside the old ones
        cluster = Cluster(Path(folder), arguments.port, arguments.rate)
        figures["kill"], bars = kill(cluster, arguments.rounds)
        for name, part in (("swap", swap), ("scale", scale)):
            figures[name], more = part(cluster)
            bars += more
    return report(figures, bars, check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
