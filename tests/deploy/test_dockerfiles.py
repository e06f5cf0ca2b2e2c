"""The Dockerfiles: what they name exists, and their steps work where no Docker daemon is."""

import json
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import offramp
from offramp.demo import digits
from offramp.demo._networks import DigitsTransformer, as_backbone
from tests.cases import each
from tests.deploy.dockerfiles import Image, Step, build, read_steps
from tests.deploy.server import ROOT, server_options

DOCKERFILES = [ROOT / "deploy/Dockerfile", ROOT / "deploy/Dockerfile.onnx"]
PORT = "8080"


def step(steps: list[Step], name: str) -> Step:
    """Return the last instruction of a name."""
    return [step for step in steps if step.name == name][-1]


def test_a_dockerfile_is_read(tmp_path: Path) -> None:
    lines = [
        "# comment",
        "FROM a:1 AS b",
        "",
        "HEALTHCHECK --timeout=3s \\",
        '    CMD ["x", "y z"]',
        "COPY --from=b /c d",
    ]
    (tmp_path / "Dockerfile").write_text("\n".join(lines) + '\nCMD ["p q", "r"]\n')
    assert read_steps(tmp_path / "Dockerfile") == [
        Step("FROM", {}, "a:1 AS b"),
        Step("HEALTHCHECK", {"timeout": "3s"}, 'CMD ["x", "y z"]'),
        Step("COPY", {"from": "b"}, "/c d"),
        Step("CMD", {}, '["p q", "r"]'),
    ]
    assert read_steps(tmp_path / "Dockerfile")[-1].words == ["p q", "r"]


@each("dockerfile", DOCKERFILES)
def test_images_are_safe_by_default(dockerfile: Path) -> None:
    steps = read_steps(dockerfile)
    assert int(step(steps, "USER").value.partition(":")[0]) > 0, "a user without rights"
    assert step(steps, "ENTRYPOINT").value.startswith("["), "in exec form, so that signals arrive"
    assert "curl" not in dockerfile.read_text()
    assert "PIP_NO_CACHE_DIR=1" in dockerfile.read_text() or "--no-cache-dir" in dockerfile.read_text()


@each("dockerfile", DOCKERFILES)
def test_the_python_is_one_that_offramp_runs_on(dockerfile: Path) -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        least = tomllib.load(file)["project"]["requires-python"].removeprefix(">=")
    for base in (step.value for step in read_steps(dockerfile) if step.name == "FROM"):
        assert re.fullmatch(rf"python:{re.escape(least)}-slim( AS \w+)?", base), base


@each("dockerfile", DOCKERFILES)
def test_pinned_packages_are_those_of_the_constraints(dockerfile: Path) -> None:
    constraints = (ROOT / "constraints.txt").read_text().splitlines()
    pins = re.findall(r"\b[a-z]+==[\w.]+", dockerfile.read_text())
    assert pins
    assert set(pins) <= set(constraints)


def test_the_server_is_made_of_files_that_exist() -> None:
    steps = read_steps(ROOT / "deploy/Dockerfile")
    copied = [word for step in steps if step.name == "COPY" and not step.options for word in step.words[:-1]]
    ignore = (ROOT / "deploy/Dockerfile.dockerignore").read_text().splitlines()
    assert {f"!{name}" for name in copied} == {line for line in ignore if line.startswith("!")}
    assert all((ROOT / name).exists() for name in copied)


def test_the_server_names_extras_and_options_that_exist() -> None:
    steps = read_steps(ROOT / "deploy/Dockerfile")
    extras = next(step for step in steps if step.value.startswith("EXTRAS="))
    with (ROOT / "pyproject.toml").open("rb") as file:
        known = tomllib.load(file)["project"]["optional-dependencies"]
    assert set(extras.value.removeprefix("EXTRAS=").split(",")) <= set(known)
    program, command, *words = step(steps, "ENTRYPOINT").words
    assert (Path(program).name, command) == ("offramp", "serve")
    assert {word for word in words if word.startswith("--")} <= server_options()
    assert words[words.index("--port") + 1] == PORT == step(steps, "EXPOSE").value
    assert f":{PORT}/v2/health/ready" in step(steps, "HEALTHCHECK").value


@pytest.fixture(scope="module")
def model() -> Iterator[tuple[Path, offramp.EarlyExitModel]]:
    """A small model of digits and its artifact, which everybody may read; the network is untrained."""
    torch.manual_seed(0)
    data, quick = digits(), offramp.JointSettings(cost_weights=(1.0,), warmup_epochs=1, epochs=1)
    made = offramp.fit(as_backbone(DigitsTransformer()), data.train, data.validation, settings=quick, anyway=True)
    with tempfile.TemporaryDirectory(prefix="offramp-deploy-") as name:
        Path(name).chmod(0o755)
        made.save(f"{name}/artifact", weights=True)
        yield Path(name) / "artifact", made


def make(dockerfile: str, context: Path, **arguments: str) -> Image:
    folder = Path(tempfile.mkdtemp(prefix="offramp-image-"))
    folder.chmod(0o755)
    return build(ROOT / "deploy" / dockerfile, context, folder, arguments)


def is_healthy(image: Image, port: str) -> bool:
    process = image.start(image.health, replace=[(PORT, port)])
    process.communicate()
    return process.returncode == 0


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_server_is_built_answers_and_ends(model: tuple[Path, offramp.EarlyExitModel]) -> None:
    image = make("Dockerfile", ROOT)
    try:
        shutil.copytree(model[0], image.map("/models/digits"))
        with socket.create_server(("127.0.0.1", 0)) as place:
            port = str(place.getsockname()[1])
        line = [*image.entrypoint, "/models/digits", "--cost", "1.2"]
        server = image.start(line, replace=[(PORT, port)])
        try:
            deadline = time.monotonic() + 180
            while not is_healthy(image, port):
                assert server.poll() is None, server.communicate()[0]
                assert time.monotonic() < deadline
                time.sleep(1)
            images = np.asarray(digits().test.read(0, 8).inputs)
            body = json.dumps({"inputs": images.tolist()}).encode()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/predict", body, timeout=30) as response:
                rows = json.load(response)["predictions"]
            expected = model[1].at(cost=1.2).predict(images)
            assert [row["label"] for row in rows] == [row["label"] for row in expected.to_dicts()]
            assert [row["exit"] for row in rows] == expected.exits.tolist()
            server.send_signal(signal.SIGTERM)
            told, _ = server.communicate(timeout=60)
            assert server.returncode == 0, told
            assert "Stopped: what was accepted is answered." in told
        finally:
            server.kill()
            server.wait()
    finally:
        shutil.rmtree(image.root.parent)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_small_image_answers_without_torch(model: tuple[Path, offramp.EarlyExitModel], tmp_path: Path) -> None:
    from offramp.runtime.onnx import export_onnx

    fast = model[1].at(cost=1.2)
    images = np.asarray(digits().test.read(0, 8).inputs)
    export_onnx(fast, tmp_path / "graphs", example=images[:2])
    image = make("Dockerfile.onnx", tmp_path / "graphs")
    try:
        np.save(image.map("/data/images.npy"), images)
        line = [*image.entrypoint, "--input", "/data/images.npy", "--json"]
        process = image.start(line)
        told, _ = process.communicate(timeout=60)
        assert process.returncode == 0, told
        labels = [json.loads(row)["label"] for row in told.splitlines()]
        assert labels == [row["label"] for row in fast.predict(images).to_dicts()]
        listing = subprocess.run(
            [image.map("/usr/local/bin/pip"), "freeze"],
            env=image.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        packages = {line.partition("==")[0] for line in listing.stdout.splitlines()}
        assert {"numpy", "onnxruntime"} <= packages
        assert not {"torch", "offramp"} & packages
    finally:
        shutil.rmtree(image.root.parent)
