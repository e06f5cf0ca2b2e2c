"""Extraction by many workers: the bytes of one process, whatever is lost, damaged or interrupted."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pytest

from offramp.errors import InputError, StoreError
from offramp.features import ArraySource, extract
from offramp.features._source import Rows
from offramp.features._store import Store
from offramp.scale import extract_on_cluster
from tests.cases import each
from tests.features.examples import CLEAN, SHIFTED, Slowly, contents, images, small_resnet

OPTIONS: dict[str, Any] = {"views": (CLEAN, SHIFTED), "batch_size": 4, "shard_mb": 0.06, "progress": False}
"""9 shards of 70 rows."""


def by_many(path: Path, source: Any = None, **options: Any) -> Store:
    return extract_on_cluster(small_resnet(), images(70) if source is None else source, path, **{**OPTIONS, **options})


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same by one process."""
    return extract(small_resnet(), images(70), tmp_path_factory.mktemp("alone"), threads=1, **OPTIONS).path


class Struck:
    """A source whose reader is struck once, in the middle: by a signal, or by an error."""

    def __init__(self, place: Path, strike: Any) -> None:
        self._source = images(70)
        self.name = self._source.name
        self._place, self._strike = place, strike

    def __len__(self) -> int:
        return len(self._source)

    def read(self, start: int, stop: int) -> Rows:
        if start == 36 and not self._place.exists():
            self._place.touch()
            self._strike()
        return self._source.read(start, stop)


class Files:
    """A source of a file a sample, opened when read."""

    name = "files"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __len__(self) -> int:
        return 20

    def read(self, start: int, stop: int) -> Rows:
        pixels = np.stack([np.load(self._folder / f"{row}.npy") for row in range(start, stop)])
        return ArraySource(pixels, np.arange(stop - start) % 10, name="files", ids=np.arange(start, stop)).read(0, 99)


@pytest.mark.usefixtures("_ray")
class TestOnWorkers:
    def test_the_same_bytes_as_alone(self, alone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        store = by_many(Path("here"))  # which is another place where workers are
        assert contents(tmp_path / "here") == contents(alone)
        assert store.num_rows == 70

    @each("rows", [1, 4, 9])
    def test_few_rows(self, rows: int, tmp_path: Path) -> None:
        extract(small_resnet(), images(rows), tmp_path / "alone", threads=1, **OPTIONS)
        by_many(tmp_path / "many", images(rows))
        assert contents(tmp_path / "many") == contents(tmp_path / "alone")

    def test_it_goes_on_with_what_one_process_began(self, alone: Path, tmp_path: Path) -> None:
        path = shutil.copytree(alone, tmp_path / "store")
        (path / "manifest.json").unlink()
        (path / "shards" / "000002.json").unlink()
        (path / "shards" / "000003.safetensors").unlink()
        torn = path / "shards" / "000005.safetensors"
        torn.write_bytes(torn.read_bytes()[:-1])
        (path / "shards" / "000006.safetensors.0123.tmp").write_bytes(b"of a writer that was killed")
        (path / "shards" / ".tmpA1b2C3").write_bytes(b"of safetensors inside such a writer")
        kept = {shard: os.stat(path / "shards" / f"{shard:06d}.safetensors").st_ino for shard in (0, 1, 4, 6, 7, 8)}
        by_many(path, batch_size=None)
        assert contents(path) == contents(alone)
        for shard, inode in kept.items():
            assert os.stat(path / "shards" / f"{shard:06d}.safetensors").st_ino == inode, "extracted again"

    def test_another_plan_is_refused(self, alone: Path, tmp_path: Path) -> None:
        path = shutil.copytree(alone, tmp_path / "store")
        with pytest.raises(StoreError, match=r"holds another extraction: .*batch_size was 4, now 5"):
            by_many(path, batch_size=5)

    def test_a_worker_is_lost(self, alone: Path, tmp_path: Path) -> None:
        source = Struck(tmp_path / "struck", lambda: os.kill(os.getpid(), signal.SIGKILL))
        by_many(tmp_path / "store", source)
        assert (tmp_path / "struck").exists()
        assert contents(tmp_path / "store") == contents(alone)

    def test_an_error_of_the_source(self, alone: Path, tmp_path: Path) -> None:
        def strike() -> None:
            raise InputError("row 37 is black; take it out")

        source = Struck(tmp_path / "struck", strike)
        with pytest.raises(InputError, match=r"^row 37 is black; take it out$"):
            by_many(tmp_path / "store", source)
        with pytest.raises(StoreError, match="not finished"):
            Store.open(tmp_path / "store")
        assert not list((tmp_path / "store").rglob("*.tmp"))
        by_many(tmp_path / "store", source)
        assert contents(tmp_path / "store") == contents(alone)

    def test_a_vanished_input(self, tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        for row in range(20):
            np.save(tmp_path / "in" / f"{row}.npy", np.full((32, 32, 3), row, np.uint8))
        gone = (tmp_path / "in" / "11.npy").rename(tmp_path / "gone.npy")
        with pytest.raises(FileNotFoundError, match=r"in/11\.npy"):
            by_many(tmp_path / "store", Files(tmp_path / "in"))
        gone.rename(tmp_path / "in" / "11.npy")
        by_many(tmp_path / "store", Files(tmp_path / "in"))
        extract(small_resnet(), Files(tmp_path / "in"), tmp_path / "alone", threads=1, **OPTIONS)
        assert contents(tmp_path / "store") == contents(tmp_path / "alone")

    def test_a_full_disk(self, alone: Path, tmp_path: Path) -> None:
        with mounted(tmp_path / "disk", "size=400k") as disk:
            with pytest.raises(StoreError, match=rf"cannot write {disk}/store/shards/\d+.*No space left.*make room"):
                by_many(disk / "store")
            subprocess.run(["mount", "-o", "remount,size=10m", disk], check=True)
            by_many(disk / "store")
            assert contents(disk / "store") == contents(alone)

    def test_a_read_only_folder(self, alone: Path, tmp_path: Path) -> None:
        with mounted(tmp_path / "disk", "size=10m") as disk:
            path = shutil.copytree(alone, disk / "store")
            (path / "shards" / "000005.safetensors").unlink()
            subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
            with pytest.raises(StoreError, match=rf"cannot write {path}/.lock: .*[Rr]ead-only.*permission"):
                by_many(path)
            with pytest.raises(StoreError, match=rf"cannot write {disk}/new: .*; .*choose another place"):
                by_many(disk / "new")
            subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
            by_many(path)
            assert contents(path) == contents(alone)

    def test_samples_with_the_same_id(self, tmp_path: Path) -> None:
        source = ArraySource(np.zeros((12, 32, 32, 3), np.uint8), np.arange(12) % 10, name="x", ids=np.arange(12) % 11)
        assert by_many(tmp_path, source).ids().tolist() == [*range(11), 0]  # rows are told apart by their place


@contextmanager
def mounted(place: Path, options: str) -> Iterator[Path]:
    """A small disk of its own: what root may write must still be able to be full, or read-only."""
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True).returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def test_what_cannot_be_sent_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    backbone = small_resnet()
    backbone.lock = Lock()  # type: ignore[assignment]
    with pytest.raises(InputError, match="the backbone cannot be sent to other processes"):
        extract_on_cluster(backbone, images(5), tmp_path / "store", views=(CLEAN,))
    assert not (tmp_path / "store").exists()


def test_what_is_refused_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least 1 each, got 0 and 1"):
        by_many(tmp_path / "store", workers=0)
    with pytest.raises(InputError, match="fsspec cannot open nosuch://bucket/store"):
        extract_on_cluster(small_resnet(), images(5), "nosuch://bucket/store", views=(CLEAN,))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_driver_is_killed(alone: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    driver = subprocess.Popen([sys.executable, __file__, str(tmp_path / "store")], env=environment)
    try:
        while len(list(tmp_path.glob("store/shards/*.json"))) < 2:
            assert driver.poll() is None
            time.sleep(0.02)
    finally:
        driver.kill()
        driver.wait()
    assert not (tmp_path / "store" / "manifest.json").exists(), "the kill came too late"
    by_many(tmp_path / "store", workers=1)
    assert contents(tmp_path / "store") == contents(alone)


if __name__ == "__main__":
    by_many(Path(sys.argv[1]), Slowly(images(70), 0.2), workers=1)
