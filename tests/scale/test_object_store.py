"""Stores in an object store, against a server of S3 on this machine; `scripts/object-store` runs these."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from offramp.errors import CorruptFileError, StoreError
from offramp.features import StoreSource, extract
from offramp.features._store import Store, cache_folder
from offramp.scale import extract_on_cluster
from offramp.scale._workers import open_workers
from tests.cases import refuses
from tests.features.examples import contents, images, small_resnet
from tests.scale.test_extract import OPTIONS, Struck

s3fs = pytest.importorskip("s3fs", reason="scripts/object-store runs these")
moto_server = pytest.importorskip("moto.server", reason="scripts/object-store runs these")


@pytest.fixture(scope="module")
def _server() -> Iterator[None]:
    """A server of S3 on loopback, and two workers that know it."""
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "nobody")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        try:
            with open_workers(2):
                yield
        finally:
            server.stop()


@pytest.fixture
def bucket(_server: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new bucket, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    name = f"bucket-{tmp_path.name.replace('_', '-').lower()}"
    files().mkdir(name)
    return f"s3://{name}"


def files() -> Any:
    return s3fs.S3FileSystem(use_listings_cache=False, skip_instance_cache=True)


def objects(address: str) -> dict[str, bytes]:
    """Every object below an address, by name."""
    found = files().find(address)
    return {name.split("/", 2)[2]: files().cat_file(name) for name in found}


def times(address: str) -> dict[str, Any]:
    """When each shard was written."""
    return {
        name.rpartition("/")[2]: files().info(name)["LastModified"] for name in files().glob(f"{address}/shards/*.s*")
    }


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the same store on disk, written by one process."""
    path = tmp_path_factory.mktemp("alone")
    extract(small_resnet(), images(70), path, threads=1, **OPTIONS)
    return contents(path)


def by_many(address: str, source: Any = None, **options: Any) -> Store:
    source = images(70) if source is None else source
    return extract_on_cluster(small_resnet(), source, address, **{**OPTIONS, **options})


def test_one_process_and_many_write_the_bytes_of_a_folder(bucket: str, alone: dict[str, bytes]) -> None:
    extract(small_resnet(), images(70), f"{bucket}/one", threads=1, **OPTIONS)
    by_many(f"{bucket}/many")
    assert objects(f"{bucket}/one") == objects(f"{bucket}/many") == alone


def test_features_are_read_through_a_cache(bucket: str, tmp_path: Path) -> None:
    local = extract(small_resnet(), images(70), tmp_path / "local", threads=1, **OPTIONS)
    by_many(f"{bucket}/store")
    assert not cache_folder().exists()
    store = Store.open(f"{bucket}/store")
    batches = [StoreSource(each, pooling="rich").in_order(batch_size=70) for each in (local, store)]
    expected, found = (next(batch) for batch in batches)
    assert torch.equal(found.features, expected.features)
    assert found.ids.tolist() == expected.ids.tolist()
    copied = {file: file.stat().st_mtime_ns for file in cache_folder().iterdir()}
    assert len(copied) == store.plan.num_shards
    assert Store.open(f"{bucket}/store").labels().tolist() == local.labels().tolist()
    assert {file: file.stat().st_mtime_ns for file in cache_folder().iterdir()} == copied, "copied again"


def test_what_is_intact_is_kept_and_the_rest_is_redone(bucket: str, alone: dict[str, bytes]) -> None:
    address = f"{bucket}/store"
    by_many(address)
    before = times(address)
    remote = files()
    remote.rm(f"{address}/manifest.json")
    remote.rm(f"{address}/shards/000002.json")
    remote.rm(f"{address}/shards/000003.safetensors")
    whole = remote.cat_file(f"{address}/shards/000005.safetensors")
    remote.pipe_file(f"{address}/shards/000005.safetensors", whole[:-1])
    remote.pipe_file(f"{address}/shards/000006.safetensors", whole[:-1] + b"\xff")
    with pytest.raises(StoreError, match=r"not finished: it has no manifest\.json"):
        Store.open(address)
    by_many(address, batch_size=None)
    assert objects(address) == alone
    after = times(address)
    redone = {f"{shard:06d}.safetensors" for shard in (2, 3, 5, 6)}
    assert {name for name in after if after[name] == before.get(name)} == {*before} - redone


def test_a_worker_is_lost(bucket: str, alone: dict[str, bytes], tmp_path: Path) -> None:
    source = Struck(tmp_path / "struck", lambda: os.kill(os.getpid(), signal.SIGKILL))
    by_many(f"{bucket}/store", source)
    assert (tmp_path / "struck").exists()
    assert objects(f"{bucket}/store") == alone


def test_another_plan_is_refused(bucket: str) -> None:
    by_many(f"{bucket}/store")
    with refuses(StoreError, problem="batch_size was 4, now 5"):
        by_many(f"{bucket}/store", batch_size=5)


def test_a_changed_object_is_found_when_it_is_read_and_redone(bucket: str, alone: dict[str, bytes]) -> None:
    address = f"{bucket}/store"
    by_many(address)
    name = f"{address}/shards/000004.safetensors"
    files().pipe_file(name, files().cat_file(name)[:-1] + b"\xff")
    for _ in range(2):  # the wrong copy is not kept
        with pytest.raises(CorruptFileError, match="does not match its checksum; run the same extraction again"):
            Store.open(address).ids()
    by_many(address)
    assert len(Store.open(address).ids()) == 70
    assert objects(address) == alone


def test_a_place_that_is_not_there(bucket: str) -> None:
    with pytest.raises(StoreError, match=r"cannot (read|write) s3://nowhere-at-all/store"):
        by_many("s3://nowhere-at-all/store")
    with pytest.raises(StoreError, match=r"no feature store at s3://.*/empty"):
        Store.open(f"{bucket}/empty")


def test_a_server_that_does_not_answer(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        with pytest.raises(StoreError, match=r"cannot read s3://.*check the address, the credentials and the network"):
            extract(small_resnet(), images(5), f"{bucket}/store", **OPTIONS)
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
