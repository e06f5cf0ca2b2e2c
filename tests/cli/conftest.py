import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import datasets
import pytest

from offramp.cli import main
from offramp.methods import METHODS
from tests.cli.workshop import MODELS, QUICK, Shell, furnish, quick


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    datasets.disable_progress_bars()
    folder = tmp_path_factory.mktemp("workshop")
    furnish(folder)
    return folder


@pytest.fixture(scope="session")
def artifact(workshop: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a network that the workshop's own code makes."""
    return _fitted(workshop, tmp_path_factory, "--model", f"{MODELS}:make")


@pytest.fixture(scope="session")
def cascade(workshop: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two networks in a row."""
    return _fitted(workshop, tmp_path_factory, "--model", f"{MODELS}:small", "--model", f"{MODELS}:make")


@pytest.fixture(scope="session")
def of_texts(workshop: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a text classifier that brings its tokenizer along."""
    data = ("--train", "texts-train.tsv", "--validation", "texts-val.tsv")
    return _fitted(workshop, tmp_path_factory, "--model", f"{MODELS}:texts", data=data)


def _fitted(
    workshop: Path,
    folders: pytest.TempPathFactory,
    *backbone: str,
    data: tuple[str, ...] = ("--train", "train.npz", "--validation", "val.npz"),
) -> Path:
    out = folders.mktemp("fitted") / "artifact"
    with _imports_undone(), contextlib.chdir(workshop), pytest.MonkeyPatch.context() as patch:
        patch.setitem(METHODS._entries, "default", quick)
        assert main(["fit", *backbone, *data, "--out", str(out), "--epochs", "2"]) == 0
    return out


@pytest.fixture
def offramp(workshop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Shell]:
    """Runs commands in the workshop."""
    monkeypatch.chdir(workshop)
    monkeypatch.setenv("COLUMNS", "1000")  # or long paths would be broken
    monkeypatch.setattr("offramp.methods._settings.DEFAULT", QUICK)
    monkeypatch.setitem(METHODS._entries, "default", quick)
    with _imports_undone():
        yield Shell(capsys)


@contextlib.contextmanager
def _imports_undone() -> Iterator[None]:
    """Let nothing of a folder that a command ran in remain importable."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("workshop_"):
            del sys.modules[name]
