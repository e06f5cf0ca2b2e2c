import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from offramp.data import open_data
from offramp.data.remote import RemotePath
from offramp.errors import InputError, MissingExtraError
from tests.data.examples import NAMES, WRITERS, png


@pytest.fixture
def memory() -> Iterator[Any]:
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    yield files
    files.store.clear()
    files.pseudo_dirs[:] = [""]


def upload(memory: Any, local: Path) -> str:
    for file in [local] if local.is_file() else local.rglob("*"):
        if file.is_file():
            memory.pipe(f"/bucket/{file.relative_to(local.parent).as_posix()}", file.read_bytes())
    return f"memory://bucket/{local.name}"


@pytest.mark.parametrize("name", sorted(set(WRITERS) - {"huggingface"}))
def test_data_at_an_address_is_that_on_disk(tmp_path: Path, memory: Any, name: str) -> None:
    path = WRITERS[name](tmp_path)
    here, there = open_data(path), open_data(upload(memory, path))
    assert (there.name, there.classes, there.labelled, len(there)) == (here.name, here.classes, here.labelled, 5)
    for data in (there, pickle.loads(pickle.dumps(there))):
        for start, stop in ((0, 5), (1, 4), (3, 3)):
            expected, found = here.read(start, stop), data.read(start, stop)
            np.testing.assert_array_equal(found.ids, expected.ids)
            np.testing.assert_array_equal(found.labels, expected.labels)
            assert len(found.inputs) == len(expected.inputs)
            for one, other in zip(found.inputs, expected.inputs, strict=True):
                np.testing.assert_array_equal(one, other)
            assert data.keys(start, stop) == here.keys(start, stop)


def test_file_addresses_too(tmp_path: Path) -> None:
    path = WRITERS["tars"](tmp_path)
    data = open_data(f"file://{path}/train-{{000000..000001}}.tar")
    assert data.keys(0, 5) == open_data(path).keys(0, 5)
    np.testing.assert_array_equal(data.read(0, 5).ids, open_data(path).read(0, 5).ids)


def test_a_saved_dataset_at_an_address_is_refused(tmp_path: Path, memory: Any) -> None:
    with pytest.raises(InputError, match="expected a saved dataset on disk, got memory://bucket/pets; copy it"):
        open_data(upload(memory, WRITERS["huggingface"](tmp_path)))


@pytest.mark.parametrize("name", ["folder", "parquet", "shards", "tar", "tars"])
def test_a_vanished_object_is_named_and_may_come_back(tmp_path: Path, memory: Any, name: str) -> None:
    path = WRITERS[name](tmp_path)
    data = open_data(upload(memory, path))
    expected = data.read(0, 5)
    kept = dict(memory.store)
    data = pickle.loads(pickle.dumps(data))
    memory.store.clear()
    with pytest.raises(InputError, match=r"found nothing at memory://bucket/pets.*; check the address, or put it back"):
        data.read(0, 5)
    memory.store.update(kept)
    np.testing.assert_array_equal(data.read(0, 5).ids, expected.ids)


@pytest.mark.parametrize("name", ["folder", "parquet", "shards", "tar", "tars"])
def test_a_broken_connection_is_tried_again(
    tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("offramp.addresses.WAIT_S", 0)
    address = upload(memory, WRITERS[name](tmp_path))
    asked = set()

    def breaking(question: Any) -> Any:
        def put(*given: Any, **more: Any) -> Any:
            if question.__name__ not in asked:
                asked.add(question.__name__)
                raise ConnectionResetError("gone")
            return question(*given, **more)

        return put

    for question in ("info", "ls", "find", "open", "cat_file", "cat_ranges"):
        monkeypatch.setattr(MemoryFileSystem, question, breaking(getattr(MemoryFileSystem, question)))
    assert len(open_data(address).read(0, 5).inputs) == 5
    assert asked


@pytest.mark.parametrize("name", ["csv", "parquet", "tar"])
def test_a_connection_breaks_while_a_file_is_read(
    tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("offramp.addresses.WAIT_S", 0)
    monkeypatch.setattr("offramp.data.remote.BLOCK_BYTES", 700)
    path = WRITERS[name](tmp_path)
    address, whole, breaks = upload(memory, path), MemoryFileSystem.cat_file, iter(range(1_000_000))

    def breaking(files: Any, place: str, **span: Any) -> bytes:
        if next(breaks) % 2:
            raise ConnectionResetError("gone")
        return whole(files, place, **span)  # type: ignore[no-any-return]

    monkeypatch.setattr(MemoryFileSystem, "cat_file", breaking)
    there = open_data(address)
    np.testing.assert_array_equal(there.read(0, 5).ids, open_data(path).read(0, 5).ids)
    assert next(breaks) > 2


def test_errors_that_come_as_answers_are_raised(tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offramp.addresses.WAIT_S", 0)
    data = open_data(upload(memory, WRITERS["folder"](tmp_path)))
    monkeypatch.setattr(MemoryFileSystem, "cat_ranges", lambda *_, **__: [TimeoutError("too slow")])
    with pytest.raises(InputError, match="TimeoutError: too slow; check network"):
        data.read(0, 1)


def test_a_server_that_gives_no_parts(tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    address = upload(memory, WRITERS["tar"](tmp_path))
    whole = memory.cat("/bucket/pets.tar")
    monkeypatch.setattr("offramp.data.remote.BLOCK_BYTES", 700)
    monkeypatch.setattr(MemoryFileSystem, "cat_file", lambda *_, **__: whole)
    with pytest.raises(InputError, match=r"pets\.tar is given whole where a part was asked for; copy it to disk"):
        open_data(address)


def test_a_file_in_the_manner_of_python(memory: Any) -> None:
    memory.pipe("/bucket/numbers", bytes(range(100)))
    for ahead in (True, False):
        with RemotePath("memory://bucket/numbers").open(ahead=ahead) as file:
            assert file.read(3) == bytes([0, 1, 2])
            assert file.seek(-2, 2) == 98
            assert (file.tell(), file.read(), file.read(1)) == (98, bytes([98, 99]), b"")
            assert file.seek(10) == 10
            assert file.seek(5, 1) == 15
            assert file.read(1) == bytes([15])
            file.seek(200)
            assert file.read(1) == b""


def test_names_that_begin_with_a_dot(memory: Any) -> None:
    memory.pipe("/bucket/images/tom.png", png(2, 1))
    memory.pipe("/bucket/pets.csv", b"label,image\ncat,./images/tom.png\ndog,images/../images/tom.png")
    assert len(open_data("memory://bucket/pets.csv").read(0, 2).inputs) == 2


def test_an_object_cut_short_is_named(tmp_path: Path, memory: Any) -> None:
    address = upload(memory, WRITERS["tar"](tmp_path))
    data = open_data(address)
    memory.pipe("/bucket/pets.tar", memory.cat("/bucket/pets.tar")[:3000])
    with pytest.raises(InputError, match=r"memory://bucket/pets\.tar, got .*: it was cut short"):
        data.read(0, 5)
    with pytest.raises(InputError, match=r"memory://bucket/pets\.tar .*put it back whole"):
        open_data(address)
    memory.pipe("/bucket/pets.parquet", b"PAR1 and no more")
    with pytest.raises(InputError, match=r"memory://bucket/pets\.parquet cannot be read as Parquet"):
        open_data("memory://bucket/pets.parquet")


@pytest.mark.parametrize(
    "address", ["memory://bucket/pets.csv", "memory://none/pets", "memory://bucket/{0..3}.parquet"]
)
def test_nothing_there(memory: Any, address: str) -> None:
    memory.pipe("/bucket/other.csv", b"")
    with pytest.raises(InputError, match=rf"found nothing at {address.replace('{', '.')}"):
        open_data(address)


def test_a_missing_shard_of_a_pattern_is_named(tmp_path: Path, memory: Any) -> None:
    upload(memory, WRITERS["tars"](tmp_path))
    with pytest.raises(InputError, match=r"found nothing at memory://bucket/pets/train-000002\.tar"):
        open_data("memory://bucket/pets/train-{000000..000002}.tar")


def test_images_that_a_table_names(memory: Any) -> None:
    rows = [f"{name},images/{row}/a[{row}].png" for row, name in enumerate(NAMES)]
    for row in range(len(NAMES)):
        memory.pipe(f"/bucket/images/{row}/a[{row}].png", png(2 + row, row))
    memory.pipe("/bucket/pets.csv", "\n".join(["label,image", *rows]).encode())
    data = open_data("memory://bucket/pets.csv")
    assert [image.shape[0] for image in data.read(1, 4).inputs] == [3, 4, 5]
    assert data.keys(2, 3) == ["images/2/a[2].png"]
    del memory.store["/bucket/images/3/a[3].png"]
    with pytest.raises(InputError, match=r"found nothing at memory://bucket/images/3/a\[3\]\.png"):
        data.read(0, 5)
    with pytest.raises(InputError, match=r"line 5 of memory://bucket/pets\.csv names the image 'images/3/a\[3\]\.png'"):
        open_data("memory://bucket/pets.csv")


def test_litter_is_passed_over_and_splits_are_asked_for(tmp_path: Path, memory: Any) -> None:
    for name in ("train/cat/a.png", "test/cat/b.png", "test/__MACOSX/c.png", "test/dog/.d.png", "test/dog/e.png"):
        memory.pipe(f"/bucket/pets/{name}", png(2, 1))
    with pytest.raises(InputError, match="memory://bucket/pets holds the splits test, train"):
        open_data("memory://bucket/pets")
    data = open_data("memory://bucket/pets", split="test")
    assert (data.keys(0, 2), data.classes) == (["cat/b.png", "dog/e.png"], ("cat", "dog"))


def test_names_of_addresses() -> None:
    path = RemotePath("s3://bucket/folder/pets.v1.parquet/")
    assert (path.name, path.stem, str(path.parent)) == ("pets.v1.parquet", "pets.v1", "s3://bucket/folder")
    assert RemotePath("https://host/pets.csv?key=a/b").parent / "x" != path
    assert RemotePath("https://host/pets.csv?key=ab").name == "pets.csv"
    assert str(RemotePath("memory://") / "pets") == "memory://pets"
    assert str(RemotePath("memory://pets").parent) == "memory://"


@pytest.mark.parametrize("address", ["simplecache::s3://bucket/a.csv", "zip://a.csv::s3://bucket/a.zip", "://a.csv"])
def test_chains_are_refused(address: str) -> None:
    with pytest.raises(InputError, match="expected an address such as s3://bucket/folder"):
        open_data(address)


def test_an_unknown_scheme_is_told() -> None:
    with pytest.raises(InputError, match=r"nonsense://bucket/a\.csv cannot be read: .*check the address"):
        open_data("nonsense://bucket/a.csv")


def test_a_missing_library_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(MissingExtraError, match=r"reading s3://bucket/a\.csv needs one more library: .*s3fs"):
        open_data("s3://bucket/a.csv")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'offramp\[remote\]'"):
        open_data("memory://bucket/a.csv")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError("Forbidden"), "may not be read: Forbidden; give credentials"),
        (RuntimeError("no route"), "cannot be read: RuntimeError: no route; check network and credentials"),
    ],
)
def test_what_a_store_says_is_passed_on(
    tmp_path: Path, memory: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    address = upload(memory, WRITERS["tar"](tmp_path))
    data = open_data(address)

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise error

    monkeypatch.setattr(MemoryFileSystem, "cat_file", refuse)
    with pytest.raises(InputError, match=f"{address} {message}"):
        data.read(0, 1)
    monkeypatch.setattr(MemoryFileSystem, "info", refuse)
    with pytest.raises(InputError, match=f"{address} {message}"):
        open_data(address)
