"""Run the client examples of the pages about serving, and compare their answers with `predict`, for scripts/clients."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import offramp_bench.torchvision_ops  # noqa: F401 (before transformers loads a model)
from offramp.model._loading import load
from offramp.model._model import EarlyExitModel
from offramp_bench.serving.hostile import COMMAND, free_ports
from offramp_bench.serving.processes import wait_until_ready
from offramp_bench.serving.victims import save_texts

DOCS = Path(__file__).parents[1] / "docs"
GUIDES = (DOCS / "how-to" / "serve.md", DOCS / "reference" / "server.md")
NAME = "my-offramp"
"""Name of the artifact in the examples."""

ADMINISTRATION = ("/swap", "/point")
"""Routes that change the model; their examples run last."""

READY_S, ANSWER_S = 120, 60

PRINT = """
import json
print(json.dumps({
    "texts": [text.decode() for text in texts.ravel()],
    "label": [label if isinstance(label, str) else label.decode() for label in result.as_numpy("label")],
    **{name: result.as_numpy(name).tolist() for name in ("probabilities", "exit", "prediction_set")},
}))
"""
"""Prints all outputs after an example for the clients of Triton."""


def read_examples() -> tuple[list[str], list[str]]:
    """Return the curl commands and the programs for the clients of Triton."""
    text = "".join(guide.read_text() for guide in GUIDES)
    blocks = re.findall(r"```(\w+)\n(.*?)```", text, flags=re.DOTALL)
    shell = [code for kind, code in blocks if kind == "bash"]
    commands = [found for code in shell for found in re.findall(r"^curl .*(?:\n  .*)*", code, flags=re.MULTILINE)]
    programs = [code for kind, code in blocks if kind == "py" and "import tritonclient" in code]
    return commands, programs


@contextmanager
def serve(artifact: Path, ports: dict[str, int]) -> Iterator[None]:
    """Run a server until it is no longer needed."""
    line = [sys.executable, "-c", COMMAND, "serve", str(artifact), "--cost", "1.1"]
    for option, port in ports.items():
        line += [option, str(port)]
    process = subprocess.Popen(line, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        wait_until_ready(process, f"http://127.0.0.1:{ports['--port']}/v2/health/ready", within_s=READY_S)
        yield
    finally:
        process.terminate()
        process.wait(60)


def run(line: list[str]) -> Any:
    """Return the JSON that a command prints last."""
    ran = subprocess.run(line, capture_output=True, text=True, timeout=ANSWER_S, check=False)
    assert ran.returncode == 0, f"{shlex.join(line)} ended with {ran.returncode}: {ran.stderr}{ran.stdout}"
    return json.loads(ran.stdout.splitlines()[-1])


def check_curl(command: str, model: EarlyExitModel) -> None:
    """Run a curl command, and compare its answer."""
    line = shlex.split(command)
    found = run([line[0], "--silent", "--show-error", "--fail-with-body", *line[1:]])
    if "--data" not in line or any(path in command for path in ADMINISTRATION):
        assert "error" not in found, found
        return
    body = json.loads(line[line.index("--data") + 1])
    settings = body.get("parameters", body)
    if "predictions" not in found:
        tensors = {output["name"]: output["data"] for output in found["outputs"]}
        tensors["texts"] = body["inputs"][0]["data"]
        compare(tensors, model, settings)
        return
    expected = model.predict(body["inputs"], budget=settings.get("budget")).to_dicts()
    for entry, row in zip(found["predictions"], expected, strict=True):
        sets = row.pop("prediction_sets", {})
        if "sets" in settings:
            row["prediction_set"] = sets[settings["sets"]]
        assert entry == {key: row[key] for key in entry}, f"{entry} is not {row}"


def check_program(code: str, python: str, model: EarlyExitModel) -> None:
    """Run a program for the clients of Triton, and compare its answer."""
    parameters = re.search(r"parameters=(\{.*?\})", code)
    assert parameters is not None, "the example has no parameters"
    compare(run([python, "-c", code + PRINT]), model, json.loads(parameters[1]))


def compare(tensors: dict[str, Any], model: EarlyExitModel, settings: dict[str, Any]) -> None:
    """Compare the outputs of the protocol with `predict`, bit for bit."""
    expected = model.predict(tensors["texts"], budget=settings.get("budget"))
    assert list(tensors["label"]) == list(expected.names), tensors
    probabilities = torch.tensor(tensors["probabilities"], dtype=torch.float32).reshape(expected.probabilities.shape)
    assert torch.equal(probabilities, expected.probabilities), f"{probabilities} is not {expected.probabilities}"
    assert list(tensors["exit"]) == expected.exits.tolist(), tensors
    if "sets" in settings:
        sets = expected.prediction_sets[settings["sets"]]
        assert torch.tensor(tensors["prediction_set"]).reshape(sets.shape).equal(sets), tensors


def main() -> None:
    """Run all examples."""
    torch.set_num_threads(1)
    commands, programs = read_examples()
    assert len(commands) >= 3, commands
    assert len(programs) >= 2, programs
    with TemporaryDirectory() as folder:
        artifact = Path(folder) / NAME
        ports = dict(zip(("--port", "--grpc-port", "--admin-port"), (*free_ports(), *free_ports()), strict=False))
        save_texts(artifact)
        shutil.copytree(artifact, f"{artifact}-2")
        model = load(artifact).at(cost=1.1)

        def put_ports(text: str) -> str:
            for given, port in zip((8080, 8081, 9090), ports.values(), strict=True):
                text = text.replace(f"localhost:{given}", f"127.0.0.1:{port}")
            return text

        with serve(artifact, ports):
            for code in programs:
                check_program(put_ports(code), sys.argv[1], model)
                print(f"as predict: {re.findall('import tritonclient.*', code)[0]}")
            for command in sorted(commands, key=lambda command: any(path in command for path in ADMINISTRATION)):
                check_curl(put_ports(command), model)
                print(f"answered: {command[:100]}")


if __name__ == "__main__":
    main()
