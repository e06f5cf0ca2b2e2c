"""Interrupted extractions: killed at random moments, at every rename, and with debris left behind."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from offramp.errors import StoreError
from offramp.features import extract
from offramp.features._store import Store
from tests.features.examples import CLEAN, SHIFTED, Slowly, contents, images, small_resnet


def run(path: Path, *, wait_s: float = 0.0) -> Store:
    """20 files: 9 shards with their entries, plan, manifest."""
    source = Slowly(images(70), wait_s)
    return extract(small_resnet(), source, path, views=(CLEAN, SHIFTED), batch_size=4, shard_mb=0.06, threads=1)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    path = tmp_path_factory.mktemp("undisturbed")
    run(path)
    return contents(path)


@pytest.mark.parametrize("kills", [pytest.param(1, marks=pytest.mark.slow), pytest.param(5, marks=pytest.mark.long)])
def test_killed_at_random_moments(undisturbed: dict[str, bytes], tmp_path: Path, kills: int) -> None:
    command = [sys.executable, __file__, str(tmp_path / "store")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    moments = random.Random(0)
    unfinished = 0
    for _ in range(kills):
        child = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
        assert child.stdout is not None
        with child.stdout:
            assert child.stdout.readline() == b"ready\n"
            try:
                child.wait(moments.uniform(0.05, 0.4))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        unfinished += not (tmp_path / "store" / "manifest.json").exists()
    assert unfinished > 0, "no kill found the extraction at work"
    run(tmp_path / "store")
    assert contents(tmp_path / "store") == undisturbed


@pytest.mark.parametrize("after", [False, True], ids=["before the rename", "after the rename"])
def test_stopped_at_every_rename(
    after: bool, small_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = contents(small_store.path)
    replace = os.replace

    def go(path: Path) -> None:
        extract(small_resnet(), images(12), path, views=(CLEAN,), batch_size=4, shard_mb=0.03)

    for stop in range(len(whole)):
        renamed: list[str] = []

        def stopping(source: str, target: str, stop: int = stop, renamed: list[str] = renamed) -> None:
            if len(renamed) == stop and not after:
                raise KeyboardInterrupt
            replace(source, target)
            renamed.append(target)
            if len(renamed) == stop + 1:
                raise KeyboardInterrupt

        path = tmp_path / str(stop)
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", stopping)
            with pytest.raises(KeyboardInterrupt):
                go(path)
        assert len(contents(path)) == stop + after
        go(path)
        assert contents(path) == whole


def test_debris_is_cleared_and_spoilt_shards_are_redone(undisturbed: dict[str, bytes], tmp_path: Path) -> None:
    run(tmp_path)
    (tmp_path / "manifest.json.0123.tmp").write_bytes(b"{")
    (tmp_path / "shards" / "000001.safetensors.4567.tmp").write_bytes(b"half a shard")
    shards = sorted((tmp_path / "shards").glob("*.safetensors"))
    shards[0].write_bytes(shards[0].read_bytes()[:100])  # cut short
    shards[1].unlink()
    shards[2].write_bytes(shards[2].read_bytes()[:-1] + b"\xff")  # changed
    shards[3].with_suffix(".json").write_bytes(b"no entry")
    shards[4].with_suffix(".json").unlink()
    (tmp_path / "manifest.json").write_bytes(b"no manifest")
    run(tmp_path)
    assert contents(tmp_path) == undisturbed


def test_finished_shards_are_not_run_again(tmp_path: Path) -> None:
    reads: list[int] = []
    source = images(12)

    class Watched(Slowly):
        def read(self, start, stop):  # type: ignore[no-untyped-def]
            reads.append(start)
            return super().read(start, stop)

    def go() -> None:
        extract(small_resnet(), Watched(source, 0), tmp_path, views=(CLEAN,), batch_size=4, shard_mb=0.03)

    go()
    assert reads == [0, 0, 4, 8]  # the first row is run once more, to learn the widths
    (tmp_path / "shards" / "000001.json").unlink()
    reads.clear()
    go()
    assert reads == [0, 4]


def test_another_plan_is_refused_and_says_what_differs(tmp_path: Path) -> None:
    backbone, source = small_resnet(), images(12)
    extract(backbone, source, tmp_path, views=(CLEAN,), batch_size=4)
    before = contents(tmp_path)
    with pytest.raises(StoreError, match="batch_size was 4, now 5"):
        extract(backbone, source, tmp_path, views=(CLEAN,), batch_size=5)
    with pytest.raises(StoreError, match=r"views was .*another path or delete"):
        extract(backbone, source, tmp_path, views=(SHIFTED,), batch_size=4)
    with pytest.raises(StoreError, match="num_rows was 12, now 11"):
        extract(backbone, images(11), tmp_path, views=(CLEAN,), batch_size=4)
    backbone.heads["2"].linear.bias.add_(1)  # type: ignore[union-attr, operator]
    with pytest.raises(StoreError, match="backbone was"):
        extract(backbone, source, tmp_path, views=(CLEAN,), batch_size=4)
    assert contents(tmp_path) == before


def test_a_place_that_cannot_be_written_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match="choose another place"):
        run(tmp_path / "file")
    (tmp_path / "store" / "plan.json").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"plan\.json"):
        run(tmp_path / "store")


def test_a_full_disk_is_a_store_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match=r"No space left on device.*goes on where it stopped"):
        run(tmp_path)
    assert not contents(tmp_path)


if __name__ == "__main__":
    print("ready", flush=True)
    run(Path(sys.argv[1]), wait_s=0.02)
