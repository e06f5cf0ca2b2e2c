"""Stores that lie elsewhere: read as if they were here, in little room, and through every mishap."""

import gc
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import fsspec
import numpy as np
import pytest
import torch

from offramp.errors import CorruptFileError, InputError, StoreError
from offramp.features import Store, StoreSource
from offramp.features.remote import RemoteFolder
from offramp.features.sealed import read_sealed, write_sealed
from tests.features.examples import contents
from tests.features.test_loader import joined, shuffled

ADDRESS = "memory://features"


@pytest.fixture
def files(store: Store) -> Iterator[fsspec.AbstractFileSystem]:
    """A memory filesystem with a copy of the store."""
    files = fsspec.filesystem("memory")
    for name, content in contents(store.path).items():
        files.pipe(f"/features/{name}", content)
    yield files
    with suppress(FileNotFoundError):
        files.rm("/features", recursive=True)


def shard_mb(store: Store) -> float:
    return max(file.stat().st_size for file in store.path.glob("shards/*.safetensors")) / 1e6


def cached(folder: Path) -> list[Path]:
    return sorted(folder.glob("fetched/*/shards/*.safetensors"))


def cached_mb(folder: Path) -> float:
    total = 0
    for file in cached(folder):
        with suppress(FileNotFoundError):  # deleted meanwhile, to make room for what is fetched
            total += file.stat().st_size
    return total / 1e6


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the shards that were fetched."""
    names: list[str] = []
    blocks = RemoteFolder.blocks

    def watched(self: RemoteFolder, name: str) -> Iterator[bytes]:
        if name.endswith(".safetensors"):
            names.append(name)
        return blocks(self, name)

    monkeypatch.setattr(RemoteFolder, "blocks", watched)
    return names


@pytest.mark.usefixtures("files")
def test_it_reads_as_a_local_one(store: Store, tmp_path: Path, fetched: list[str]) -> None:
    remote = Store.open(ADDRESS, cache=tmp_path)
    for name in ("ids", "labels", "sizes"):
        assert getattr(remote, name)().tolist() == getattr(store, name)().tolist()
    assert not fetched  # columns are read without the shards they are in
    assert [part.tolist() for part in remote.hold_out([5])] == [part.tolist() for part in store.hold_out([5])]
    for rows in (None, np.arange(0, 70, 3)):
        here, there = (StoreSource(one, pooling="grid", rows=rows, views="all") for one in (store, remote))
        assert torch.equal(joined(there.in_order(batch_size=9)).features, joined(here.in_order(batch_size=9)).features)
        assert torch.equal(shuffled(there).features, shuffled(here).features)
    assert sorted(fetched) == sorted(set(fetched))
    assert remote.ids().tolist() == store.ids().tolist()  # now from the cache


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("room", [2, 3, 4])
def test_little_room_is_enough(store: Store, room: int, tmp_path: Path, fetched: list[str]) -> None:
    cache_mb = (room + 0.5) * shard_mb(store)
    remote = Store.open(ADDRESS, cache=tmp_path, cache_mb=cache_mb)
    source = StoreSource(remote, pooling="mean", buffer_mb=0.05)
    assert remote.window == room // 2
    for epoch in range(3):
        fetched.clear()
        seen = []
        for batch in source.shuffled(batch_size=8, seed=0, epoch=epoch):
            seen += batch.ids.tolist()
            assert cached_mb(tmp_path) <= cache_mb
        assert sorted(seen) == sorted(store.ids().tolist())
        assert len(fetched) == len(set(fetched))
    in_order = joined(source.in_order(batch_size=8))
    assert in_order.ids.tolist() == store.ids().tolist()
    for index in (0, 1, 2, 3, 4, 0, 2, 4):
        assert torch.equal(remote.shard(index)["features.mean"], store.shard(index)["features.mean"])
        assert cached_mb(tmp_path) <= cache_mb


@pytest.mark.usefixtures("files")
def test_the_next_shards_come_meanwhile(tmp_path: Path) -> None:
    remote = Store.open(ADDRESS, cache=tmp_path)
    with remote.fetching() as fetch:
        fetch([3, 1])
        deadline_s = time.monotonic() + 60
        while len(cached(tmp_path)) < 2 and time.monotonic() < deadline_s:
            time.sleep(0.01)
    assert [file.name for file in cached(tmp_path)] == ["000001.safetensors", "000003.safetensors"]


@pytest.mark.usefixtures("files")
def test_a_store_that_is_gone_holds_nothing(tmp_path: Path) -> None:
    def held() -> int:
        paths = [Path(f"/proc/self/fd/{file}") for file in os.listdir("/proc/self/fd")]
        return sum(str(tmp_path) in str(path.readlink()) for path in paths if path.is_symlink())

    remote = Store.open(ADDRESS, cache=tmp_path)
    remote.shard(0)
    assert held() == 1
    del remote
    gc.collect()
    assert held() == 0


@pytest.mark.usefixtures("files")
def test_a_cache_for_less_than_two_shards_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"does not hold two shards of memory://features.*give twice that"):
        Store.open(ADDRESS, cache=tmp_path, cache_mb=1.9 * shard_mb(store))


def test_a_vanished_shard_is_named_and_found_again(files: fsspec.AbstractFileSystem, tmp_path: Path) -> None:
    name = "features/shards/000002.safetensors"
    whole = files.cat_file(f"/{name}")
    remote = Store.open(ADDRESS, cache=tmp_path)
    files.rm(f"/{name}")
    source = StoreSource(remote, pooling="mean")
    for read in (lambda: shuffled(source), lambda: remote.shard(2), remote.ids):
        with pytest.raises(StoreError, match=f"found nothing at memory://{name}; put it back"):
            read()
    files.pipe(f"/{name}", whole)
    assert len(shuffled(source).ids) == 70


@pytest.mark.parametrize("change", ["cut", "cut in the header", "flipped"])
def test_a_damaged_shard_is_named_and_read_once_mended(
    files: fsspec.AbstractFileSystem, tmp_path: Path, change: str
) -> None:
    name = "features/shards/000002.safetensors"
    whole = files.cat_file(f"/{name}")
    damaged = {"cut": whole[:-1], "cut in the header": whole[:20], "flipped": whole[:-1] + bytes([whole[-1] ^ 1])}[
        change
    ]
    files.pipe(f"/{name}", damaged)
    remote = Store.open(ADDRESS, cache=tmp_path)
    source = StoreSource(remote, pooling="mean")
    with pytest.raises(
        CorruptFileError, match=rf"memory://{name} .*; copy it there again, then run the same call again"
    ):
        shuffled(source)
    if change == "cut in the header":
        with pytest.raises(CorruptFileError, match=f"memory://{name} is cut short"):
            remote.ids()
    assert all(file.name != "000002.safetensors" for file in cached(tmp_path))
    files.pipe(f"/{name}", whole)
    assert len(shuffled(source).ids) == 70
    assert len(remote.ids()) == 70


@pytest.mark.parametrize("name", ["plan.json", "manifest.json"])
def test_what_a_store_begins_with_is_checked(files: fsspec.AbstractFileSystem, tmp_path: Path, name: str) -> None:
    whole = files.cat_file(f"/features/{name}")
    files.pipe(f"/features/{name}", whole[:-2])
    with pytest.raises(CorruptFileError, match=f"memory://features/{name} does not match its own checksum"):
        Store.open(ADDRESS, cache=tmp_path)
    files.rm(f"/features/{name}")
    with pytest.raises(StoreError, match=f"found nothing at memory://features/{name}"):
        Store.open(ADDRESS, cache=tmp_path)


def test_a_made_up_manifest_is_refused(store: Store, files: fsspec.AbstractFileSystem, tmp_path: Path) -> None:
    content = read_sealed(store.path / "manifest.json")
    shards = content["shards"]
    for made_up in (shards[:-1], [*shards[:-1], {}], [{**shards[0], "bytes": "1"}, *shards[1:]], 3, shards[::-1]):
        write_sealed(tmp_path / "manifest.json", {**content, "shards": made_up})
        files.pipe("/features/manifest.json", (tmp_path / "manifest.json").read_bytes())
        with pytest.raises(CorruptFileError, match=r"memory://features/manifest\.json is not of this store's plan"):
            Store.open(ADDRESS, cache=tmp_path)


@pytest.mark.usefixtures("files")
def test_a_damaged_cache_is_fetched_again(store: Store, tmp_path: Path) -> None:
    Store.open(ADDRESS, cache=tmp_path).shard(1)
    (file,) = cached(tmp_path)
    file.write_bytes(file.read_bytes()[:-1] + b"\0")
    assert torch.equal(Store.open(ADDRESS, cache=tmp_path).shard(1)["ids"], store.shard(1)["ids"])


@pytest.mark.usefixtures("files")
def test_another_store_is_not_taken_for_it(store: Store, small_store: Store, tmp_path: Path) -> None:
    files = fsspec.filesystem("memory")
    Store.open(ADDRESS, cache=tmp_path).shard(0)
    files.rm("/features", recursive=True)
    for name, content in contents(small_store.path).items():
        files.pipe(f"/features/{name}", content)
    assert Store.open(ADDRESS, cache=tmp_path).shard(0)["ids"].tolist() == small_store.shard(0)["ids"].tolist()


@pytest.mark.usefixtures("files")
def test_what_is_held_stays_and_what_is_old_goes(store: Store, tmp_path: Path) -> None:
    cache_mb = 2.5 * shard_mb(store)
    holder, other = (Store.open(ADDRESS, cache=tmp_path, cache_mb=cache_mb) for _ in range(2))
    held = holder.shard(0)["features.mean"]
    (file,) = cached(tmp_path)
    os.utime(file, (0, 0))  # the longest unused
    for index in (1, 2, 3):
        other.shard(index)
    assert file.exists()
    assert torch.equal(held, store.shard(0)["features.mean"])
    with holder.fetching():
        pass  # lets go of all
    other.shard(4)
    assert not file.exists()
    assert torch.equal(holder.shard(0)["features.mean"], store.shard(0)["features.mean"])


@pytest.mark.usefixtures("files")
def test_a_store_beside_it_is_left_alone(store: Store, tmp_path: Path) -> None:
    """As `offramp extract --store` leaves them."""
    shutil.copytree(store.path, tmp_path / "train")
    remote = Store.open(ADDRESS, cache=tmp_path, cache_mb=2.1 * shard_mb(store))
    list(StoreSource(remote, pooling="grid").in_order(batch_size=50))
    assert contents(tmp_path / "train") == contents(store.path)


@pytest.mark.usefixtures("files")
def test_what_dead_writers_left_is_removed(tmp_path: Path) -> None:
    remote = Store.open(ADDRESS, cache=tmp_path)
    old, new = (remote.path / "shards" / f"00000{index}.safetensors.x.tmp" for index in (1, 2))
    for file in (old, new):
        file.write_bytes(b"half")
    os.utime(old, (0, 0))
    remote.shard(0)
    assert not old.exists()
    assert new.exists()


READER = """
import sys
from offramp.features import Store, StoreSource
source = StoreSource(Store.open(sys.argv[1], cache=sys.argv[2], cache_mb=float(sys.argv[3])), pooling="mean")
for epoch in range(6):
    batches = source.shuffled(batch_size=8, seed=int(sys.argv[4]), epoch=epoch)
    assert len({int(id) for batch in batches for id in batch.ids}) == 70
"""


@pytest.mark.slow
def test_processes_share_a_cache(store: Store, tmp_path: Path) -> None:
    command = [sys.executable, "-c", READER, f"file://{store.path}", str(tmp_path), str(2.5 * shard_mb(store))]
    readers = [subprocess.Popen([*command, str(seed)]) for seed in range(2)]
    assert [reader.wait(300) for reader in readers] == [0, 0]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own, as large as two shards and a bit."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("mounting a disk needs root")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def remount(folder: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)


@pytest.mark.usefixtures("files")
def test_a_full_cache_disk_is_named_and_goes_on_with_room(disk: Path) -> None:
    source = StoreSource(Store.open(ADDRESS, cache=disk), pooling="mean")
    with pytest.raises(StoreError, match=rf"cannot write {disk}/.*\.safetensors: .*No space left.*; make room"):
        shuffled(source)
    remount(disk, "size=4m")
    assert len(shuffled(source).ids) == 70


@pytest.mark.usefixtures("files")
def test_a_read_only_cache_is_named_and_goes_on_once_writable(disk: Path) -> None:
    remount(disk, "size=4m")
    remote = Store.open(ADDRESS, cache=disk)
    remote.shard(0)
    remount(disk, "ro")
    with pytest.raises(StoreError, match=rf"cannot make the folder {disk}/new/.*Read-only.*give another cache"):
        Store.open(ADDRESS, cache=disk / "new")
    assert Store.open(ADDRESS, cache=disk).shard(0)["ids"].tolist() == remote.shard(0)["ids"].tolist()
    with pytest.raises(StoreError, match=rf"cannot write {disk}/.*000001\.safetensors: .*Read-only.*give permission"):
        remote.shard(1)
    remount(disk, "rw")
    assert len(shuffled(StoreSource(remote, pooling="mean")).ids) == 70
