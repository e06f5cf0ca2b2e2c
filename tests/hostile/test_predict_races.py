"""Two writers of one place, writers that are killed, and symbolic links put where they write."""

import contextlib
import csv
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from offramp.cli import main
from offramp.cli.places import lock_output
from offramp.cli.predictions import Predictions
from offramp.errors import BusyError, InputError, StoreError
from offramp.methods import METHODS
from offramp.model._answer import Answer
from tests.cases import each
from tests.cli.workshop import MODELS, furnish, quick

ROWS, BATCH = 400, 20

WRITER = """
import sys, time
from pathlib import Path
from offramp.cli.places import lock_output
from offramp.errors import BusyError
from tests.hostile.test_predict_races import begin, write

print("ready", flush=True)
for line in sys.stdin:
    out, pause_s = line.split()
    try:
        with lock_output(Path(out)):
            write(begin(Path(out)), pause_s=float(pause_s))
        print("done", flush=True)
    except BusyError as error:
        print(f"busy {error}", flush=True)
"""
"""Writes answers as the command does, into the files that it is told of."""


def begin(out: Path) -> Predictions:
    return Predictions(out, "key", point="at", batch_size=BATCH, classes=(), miscoverage=0.1)


def write(predictions: Predictions, *, pause_s: float = 0, rows: int = ROWS) -> None:
    probabilities = torch.eye(4)[torch.arange(BATCH) % 4]
    answer = Answer(
        probabilities.argmax(1), probabilities, torch.zeros(BATCH), torch.full((BATCH,), 0.5), {0.1: probabilities > 0}
    )
    for start in range(predictions.done, rows, BATCH):
        predictions.add([str(row) for row in range(start, start + BATCH)], answer)
        time.sleep(pause_s)
    if rows == ROWS:
        predictions.finish()


def inputs_in(out: Path) -> list[int]:
    with out.open(newline="") as file:
        return [int(row["input"]) for row in csv.DictReader(file)]


@contextlib.contextmanager
def writer() -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [sys.executable, "-c", WRITER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        try:
            assert answer_of(process) == "ready"
            yield process
        finally:
            process.kill()


def ask(process: "subprocess.Popen[str]", out: Path, pause_s: float) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{out} {pause_s}\n")
    process.stdin.flush()


def answer_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.slow
def test_of_two_writers_one_writes_everything_and_the_other_names_it(tmp_path: Path) -> None:
    refused = 0
    with writer() as first, writer() as second:
        for turn in range(20):
            out = tmp_path / f"{turn}.csv"
            for process in (first, second) if turn % 2 else (second, first):
                ask(process, out, 0.002)
            ended = [answer_of(first), answer_of(second)]
            assert "done" in ended
            for told, other in ((ended[0], second), (ended[1], first)):
                if told != "done":
                    refused += 1
                    assert told.startswith("busy ")
                    assert f"process {other.pid} " in told or "another process" in told
                    assert "wait until it has finished, or choose another place" in told
            assert inputs_in(out) == list(range(ROWS))
            assert not [*tmp_path.glob("*.part*"), *tmp_path.glob("*.tmp")]
    assert refused >= 10  # they did meet


@pytest.mark.slow
def test_a_killed_writer_loses_one_batch_at_most_and_its_lock(tmp_path: Path) -> None:
    out = tmp_path / "a.csv"
    done = 0
    for _ in range(3):
        with writer() as process:
            ask(process, out, 0.01)
            part = out.with_name("a.csv.part")
            size = part.stat().st_size if part.exists() else 0
            while not part.exists() or part.stat().st_size <= size + 200:
                time.sleep(0.001)
            process.send_signal(signal.SIGKILL)
            process.wait()
            left = max(0, part.read_text().count("\n") - 1)
        with lock_output(out):
            resumed = begin(out)
        assert resumed.done >= left - left % BATCH
        assert resumed.done > done
        done = resumed.done
    with lock_output(out):
        write(begin(out))
    assert inputs_in(out) == list(range(ROWS))


class TestLinks:
    """Somebody put a symbolic link where a command writes; what it leads to is not touched."""

    @pytest.fixture
    def precious(self, tmp_path: Path) -> Iterator[Path]:
        file = tmp_path / "precious.txt"
        file.write_text("precious")
        yield file
        assert file.read_text() == "precious"

    @each("name", ["a.csv.part", "a.csv.part.key", "a.csv", ".a.csv.lock.owner"])
    def test_is_replaced(self, tmp_path: Path, precious: Path, name: str) -> None:
        out = tmp_path / "a.csv"
        (tmp_path / name).symlink_to(precious)
        with lock_output(out):
            write(begin(out))
        assert inputs_in(out) == list(range(ROWS))
        assert not out.is_symlink()

    def test_at_the_lock_is_refused(self, tmp_path: Path, precious: Path) -> None:
        (tmp_path / ".a.csv.lock").symlink_to(precious)
        with (
            pytest.raises(StoreError, match=r"cannot write .*check its permission, or choose another place"),
            lock_output(tmp_path / "a.csv"),
        ):
            pass

    def test_put_there_in_between_is_refused(self, tmp_path: Path, precious: Path) -> None:
        predictions = begin(tmp_path / "a.csv")
        (tmp_path / "a.csv.part").unlink()
        (tmp_path / "a.csv.part").symlink_to(precious)
        with pytest.raises(InputError, match="run the same command again"):
            write(predictions)

    def test_with_another_run_s_answers_is_not_gone_on_with(self, tmp_path: Path) -> None:
        write(begin(tmp_path / "other.csv"), rows=100)
        (tmp_path / "a.csv.part").symlink_to(tmp_path / "other.csv.part")
        (tmp_path / "a.csv.part.key").symlink_to(tmp_path / "other.csv.part.key")
        assert begin(tmp_path / "a.csv").done == 0
        assert begin(tmp_path / "other.csv").done == 100


def test_a_part_taken_away_is_not_begun_in_the_middle(tmp_path: Path) -> None:
    predictions = begin(tmp_path / "a.csv")
    (tmp_path / "a.csv.part").unlink()
    with pytest.raises(InputError, match="run the same command again"):
        write(predictions)


HOLDER = """
import sys, time
from pathlib import Path
from offramp._files import hold_lock
with hold_lock(Path(sys.argv[1]), wait_s=0):
    print("held", flush=True)
    time.sleep(600)
"""


@contextlib.contextmanager
def holder(lock: Path) -> Iterator[int]:
    """Hold a lock in another process, whose id is given."""
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(lock)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert answer_of(process) == "held"
            yield process.pid
        finally:
            process.kill()


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """Run commands in a folder, and let nothing of it remain importable."""
    path = list(sys.path)
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        sys.path[:] = path
        sys.modules.pop(MODELS, None)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workshop")
    furnish(folder)
    with inside(folder), pytest.MonkeyPatch.context() as patch:
        patch.setitem(METHODS._entries, "default", quick)
        data = ("--train", "train.npz", "--validation", "val.npz")
        assert main(["fit", "--model", f"{MODELS}:make", *data, "--out", "artifact", "--epochs", "2"]) == 0
    return folder


class TestCommands:
    @pytest.mark.slow
    def test_two_real_ones_at_once(self, workshop: Path) -> None:
        line = [sys.executable, "-m", "offramp.cli", "predict", "artifact", "--trust", f"{MODELS}:make"]
        line += ["--data", "test.npz", "--batch-size", "1", "--cost", "1.1"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        out = workshop / "both.csv"
        both = [
            subprocess.Popen([*line, "--out", str(out)], cwd=workshop, env=environment, stderr=subprocess.PIPE)
            for _ in range(2)
        ]
        ended = [(process.communicate()[1].decode(), process.returncode) for process in both]
        assert 0 in [status for _, status in ended]
        for told, status in ended:
            assert status in (0, 1), told
            assert status == 0 or "is writing there" in told
        assert sorted(inputs_in(out)) == list(range(90))

    @pytest.mark.slow
    @each("verb", ["predict", "fit"])
    def test_refused_while_another_holds_the_place(
        self, workshop: Path, verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("COLUMNS", "1000")
        line = {
            "predict": ["predict", "artifact", "--trust", f"{MODELS}:make", "--data", "test.npz"],
            "fit": ["fit", "--model", f"{MODELS}:make", "--train", "train.npz", "--validation", "val.npz"],
        }[verb]
        with inside(workshop), holder(workshop / ".held.csv.lock") as pid:
            assert main([*line, "--out", "held.csv"]) == 1
        assert f"process {pid} " in capsys.readouterr().err
        assert not [*workshop.glob("held.csv*")]

    @pytest.mark.slow
    def test_two_extractions_into_one_store(self, workshop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from offramp.backbone._backbone import Backbone
        from offramp.features import ArraySource, extract
        from offramp.features._store import Store

        monkeypatch.setattr("offramp.features._store.WAIT_S", 0.1)
        torch.manual_seed(0)
        backbone = Backbone("tiny", [torch.nn.Linear(4, 4)], {0: torch.nn.Linear(4, 2)}, num_classes=2)
        source = ArraySource(torch.randn(50, 4), torch.arange(50) % 2, name="rows")
        store = workshop / "store"
        store.mkdir()
        with holder(store / ".lock") as pid:
            with pytest.raises(BusyError, match=f"process {pid} .*wait until it has finished"):
                extract(backbone, source, store, progress=False)
            assert not (store / "plan.json").exists()
        assert extract(backbone, source, store, progress=False).num_rows == 50  # the kill has released it
        assert Store.open(store).num_rows == 50
