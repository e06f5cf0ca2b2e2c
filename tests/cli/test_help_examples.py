"""The examples of `--help`, run one after the other in a folder with what they name."""

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer

from offramp.cli.main import app
from tests.cli.workshop import MODELS, Shell, sentences

MODULE = f"""
import sys

sys.path.insert(0, {{folder!r}})
from {MODELS} import texts

make = large = texts


def small():
    return texts(layers=1)
"""

ELSEWHERE = {
    "demo": "tests/demo",
    "annotate": "tests/cli/test_annotate.py",
    "serve": "tests/cli/test_serve.py",
    "doctor": "tests/cli/test_doctor.py",
    "export": "tests/cli/test_export.py",
}
"""Commands whose examples take long, run until they are stopped, or look at this machine: where they are tested."""

LONG = ("--workers", "--measure", "--backend")
"""Options whose work takes long; each has tests of its own."""


def examples() -> list[str]:
    """Return the examples of all commands, in the order of the commands."""
    group: Any = typer.main.get_command(app)
    return [
        line
        for name, command in group.commands.items()
        if name not in ELSEWHERE
        for line in re.findall(r"\[bold\]Example\[/bold\]: offramp (.*)", command.help)
        if not any(option in line for option in LONG)
    ]


def furnish(folder: Path, workshop: Path) -> None:
    """Write the network and the data that the examples name."""
    (folder / "models.py").write_text(MODULE.format(folder=str(workshop)))
    for seed, (name, count) in enumerate(
        (("train", 160), ("val", 120), ("validation", 120), ("test", 90), ("new", 60), ("recent", 120))
    ):
        texts, labels = sentences(count, seed=seed)
        rows = [f"{label},{text}" for text, label in zip(texts, labels, strict=True)]
        (folder / f"{name}.csv").write_text("\n".join(["label,text", *rows]) + "\n")
        (folder / f"{name}.txt").write_text("\n".join(texts) + "\n")


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("ignore:.*no guarantee")
def test_they_run(offramp: Shell, workshop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    furnish(tmp_path, workshop)
    monkeypatch.chdir(tmp_path)
    lines = examples()
    assert {line.split()[0] for line in lines} == {
        *("estimate", "inspect", "fit", "evaluate", "predict", "monitor", "recalibrate")
    }
    lines.sort(key=lambda line: not line.startswith(("estimate", "fit")))  # others need the artifact
    for line in lines:
        allowed = [0]
        if line.startswith("monitor"):
            allowed = [0, 3, 4, 5]  # its recommendations
            for name in ("reference", "monday", "tuesday"):
                ran = offramp("predict", "my-offramp", "--data", "recent.txt", "--shadow", "1", "--out", f"{name}.csv")
                assert ran.status == 0, ran.err
        if "evaluate old" in line:
            for name in ("old", "new"):
                shutil.copytree("my-offramp", name)
        ran = offramp(*shlex.split(line))
        assert ran.status in allowed, f"{line}: {ran.err}"
