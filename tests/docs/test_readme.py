"""The README runs as it stands: its Python blocks as one program, then its commands, on a small classifier."""

import csv
import json
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

import offramp
from offramp.annotation import Annotation
from offramp.cli import main
from offramp.demo._digits import Digits
from offramp_bench.serving.processes import COMMAND, wait_until_ready
from tests.cli.workshop import sentences
from tests.demo.examples import trained
from tests.examples.test_scripts import save_texts

README = (Path(__file__).parents[2] / "README.md").read_text()
ROWS = {"train.csv": 300, "validation.csv": 900, "test.csv": 300, "new.csv": 100, "texts.csv": 1500}

MINE = """
import numpy as np, offramp
CLASSES = ["good", "bad", "dull"]
def embed(texts):
    return np.array([[name in text for name in CLASSES] for text in texts], np.float32)
def ask(texts):
    return [next(name for name in CLASSES if name in text) for text in texts]
def encoder():
    return offramp.encoder("mine:embed")
def llm():
    return offramp.callable_model("mine:ask", CLASSES, price={"per_call": 0.01, "currency": "EUR"})
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The files that the README names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    save_texts(tmp_path / "my-model")
    for seed, (name, count) in enumerate(ROWS.items()):
        texts, labels = sentences(count, seed=seed)
        with Path(name).open("w", newline="") as file:
            rows = zip(texts, labels, strict=True) if name[0] != "n" else ((text,) for text in texts)
            csv.writer(file).writerows([("text", "label") if name[0] != "n" else ("text",), *rows])
    Path("mine.py").write_text(MINE)
    yield tmp_path
    sys.modules.pop("mine", None)  # other tests have a module of that name


def blocks(kind: str) -> list[str]:
    """Return the fenced blocks of a kind; commands have none."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)
    return [block for name, block in found if name == kind]


@pytest.mark.slow
def test_its_programs_and_commands_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("offramp.demo.trained_networks", lambda train: trained())
    names: dict[str, object] = {}
    programs = blocks("python")
    assert len(programs) == 3
    exec(compile(programs[0], "README.md", "exec"), names)
    assert offramp.load("my-offramp").predict(["a text"]).names
    assert "300 samples, full network" in capsys.readouterr().out
    own, fast = names["model"], names["fast"]
    assert isinstance(own, offramp.EarlyExitModel)
    assert isinstance(fast, offramp.EarlyExitModel)
    assert fast.point.guarantee is not None
    assert fast.point.guarantee.at_most == 0.01
    exec(compile("\n".join(programs[1:]), "README.md", "exec"), names)
    assert_digits(names)
    assert "frontier of digitscnn+digitstransformer" in capsys.readouterr().out
    commands = [line for block in blocks("") for line in block.splitlines() if line.startswith("offramp ")]
    assert len(commands) == 7
    for command in commands:
        words = shlex.split(command)[1:]
        if words[0] == "serve":
            assert_serves(words)
        elif words != ["demo"]:  # tests/demo runs it
            assert main(words) == 0, command
    assert Path("my-report/report.html").is_file()
    with Path("answers.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == ROWS["new.csv"]
    with Path("labels.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == ROWS["texts.csv"]


def assert_digits(names: dict[str, object]) -> None:
    """Check what the examples without a model of the reader's lead to."""
    fast, model, answer, data, job = (names[name] for name in ("fast", "model", "answer", "data", "job"))
    assert isinstance(fast, offramp.EarlyExitModel)
    assert fast.point.guarantee is not None
    assert isinstance(model, offramp.EarlyExitModel)
    assert offramp.load("digits-model", backbone=model.backbone).point.guarantee == fast.point.guarantee
    assert isinstance(answer, offramp.Answer)
    assert isinstance(data, Digits)
    assert (answer.labels.numpy() == data.test.read(0, 497).labels).mean() > 0.95
    assert 0 < float(answer.relative_cost.mean()) < 0.22
    assert isinstance(job, Annotation)
    assert job.guarantee is not None
    assert job.guarantee.at_most == 0.05
    assert job.bill.asked < 0.7 * job.bill.inputs


def assert_serves(words: list[str]) -> None:
    """Run a server as the command says, but for its port, until it has answered."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    words[words.index("--port") + 1] = str(port)
    process = subprocess.Popen([sys.executable, "-c", COMMAND, *words])
    try:
        wait_until_ready(process, f"http://127.0.0.1:{port}/v2/health/ready", within_s=120)
        body = json.dumps({"inputs": ["a good day"]}).encode()
        with urlopen(Request(f"http://127.0.0.1:{port}/predict", body)) as response:
            assert response.status == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
