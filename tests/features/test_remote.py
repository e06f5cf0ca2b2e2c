"""Stores behind an address, in fsspec's file system in memory; tests/scale/test_object_store.py has a server of S3."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.registry import known_implementations

from offramp.errors import CorruptFileError, InputError, MissingExtraError, StoreError
from offramp.features import _store, extract
from offramp.features._store import Store, cache_folder
from tests.cases import refuses
from tests.features.examples import CLEAN, contents, images, small_resnet

OPTIONS: dict[str, Any] = {"views": (CLEAN,), "batch_size": 4, "shard_mb": 0.03, "threads": 1}


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield "memory://bucket/store"
    memory = fsspec.filesystem("memory")
    memory.rm("/bucket", recursive=True) if memory.exists("/bucket") else None


def run(path: str | Path, rows: int = 12) -> Store:
    return extract(small_resnet(), images(rows), path, **OPTIONS)


def objects() -> dict[str, bytes]:
    memory = fsspec.filesystem("memory")
    return {name.removeprefix("/bucket/store/"): memory.cat_file(name) for name in memory.find("/bucket/store")}


def test_the_bytes_of_a_folder(address: str, tmp_path: Path) -> None:
    local = run(tmp_path / "store")
    store = run(address)
    assert objects() == contents(tmp_path / "store")
    assert store.ids().tolist() == local.ids().tolist()
    assert store.num_rows == 12


def test_shards_are_copied_when_they_are_read_and_only_then(address: str) -> None:
    run(address)
    assert not cache_folder().exists()
    ids = Store.open(address).shard(1)["ids"].tolist()
    (copy,) = cache_folder().iterdir()
    copy.unlink()
    copy.write_bytes(b"torn")
    assert Store.open(address).shard(1)["ids"].tolist() == ids


def test_a_cache_that_cannot_be_written(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(address)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with refuses(StoreError, problem="cannot copy memory://bucket/store/shards/000001.safetensors"):
        Store.open(address).shard(1)


def test_a_damaged_copy_that_another_process_has_removed(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run(address)
    store = Store.open(address)
    monkeypatch.setattr(_store, "file_sha256", lambda file: file.unlink() or "another hash")
    with refuses(CorruptFileError, problem="does not match its checksum"):
        store.shard(1)


def test_the_same_call_redoes_what_is_damaged(address: str) -> None:
    run(address)
    whole = objects()
    memory = fsspec.filesystem("memory")
    memory.rm("/bucket/store/shards/000000.json")
    memory.pipe_file("/bucket/store/shards/000001.safetensors", b"torn")
    memory.pipe_file("/bucket/store/manifest.json", b"no manifest")
    run(address)
    assert objects() == whole
    with pytest.raises(StoreError, match="memory://bucket/store holds another extraction: num_rows was 12, now 11"):
        run(address, rows=11)


def test_an_address_of_files_is_a_folder(tmp_path: Path) -> None:
    run(f"file://{tmp_path}/a%20store")
    run(tmp_path / "b")
    assert contents(tmp_path / "a store") == contents(tmp_path / "b")


def test_addresses_that_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"cannot open nosuch://bucket/store.*: .*such as s3://bucket/folder"):
        run("nosuch://bucket/store")
    with pytest.raises(InputError, match="expected an address as text"):
        run(Path("s3://bucket/store"))
    monkeypatch.setitem(known_implementations, "rare", {"class": "no_such.Files", "err": "Install x"})
    with pytest.raises(MissingExtraError, match=r"rare://bucket/store.* needs another library: Install x"):
        run("rare://bucket/store")
