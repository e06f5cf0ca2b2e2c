"""The package as a whole: what it needs, and what importing it brings along."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

HEAVY = ("PIL", "datasets", "matplotlib", "pandas", "pyarrow", "rich", "sklearn", "tokenizers", "transformers", "typer")


@pytest.mark.parametrize(
    ("module", "needless"),
    [("offramp", HEAVY), ("offramp.cli.main", tuple(name for name in HEAVY if name not in ("rich", "typer")))],
)
def test_importing_brings_nothing_optional(module: str, needless: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print(*[name for name in {needless} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_what_the_core_needs() -> None:
    project = tomllib.loads(Path(__file__, "..", "..", "pyproject.toml").resolve().read_text())["project"]
    names = [re.split(r"[<>=!~\[; ]", requirement)[0] for requirement in project["dependencies"]]
    assert names == ["numpy", "rich", "safetensors", "torch", "typer"]
