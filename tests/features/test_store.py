"""Files that were changed, cut, taken away, or made up: refused by name, and never with another error."""

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from offramp._files import _encode, file_sha256, read_checked_json, write_checked_json
from offramp.errors import CorruptFileError, StoreError, UnknownNameError
from offramp.features import extract, split_by_id
from offramp.features._store import Store
from tests.cases import each, refuses
from tests.features.examples import VectorBackbone, contents, vectors


def read_everything(path: Path) -> None:
    store = Store.open(path)
    for shard in range(store.plan.num_shards):
        store.shard(shard)


def test_a_flipped_byte_anywhere_is_refused_by_name(small_store: Store) -> None:
    path = small_store.path
    places = random.Random(0)
    for name, whole in contents(path).items():
        for place in {0, len(whole) - 1, *(places.randrange(len(whole)) for _ in range(10))}:
            changed = bytearray(whole)
            changed[place] ^= 1 << places.randrange(8)
            (path / name).write_bytes(changed)
            with pytest.raises(CorruptFileError, match=name):
                read_everything(path)
        (path / name).write_bytes(whole)
    read_everything(path)


def test_a_file_cut_short_or_too_long_is_refused_by_name(small_store: Store) -> None:
    path = small_store.path
    for name, whole in contents(path).items():
        for changed in (b"", whole[:7], whole[: len(whole) // 2], whole[:-1], whole + b" "):
            (path / name).write_bytes(changed)
            with pytest.raises(CorruptFileError, match=name):
                read_everything(path)
        (path / name).write_bytes(whole)


def test_a_shard_cut_short_is_refused_on_opening(small_store: Store) -> None:
    file = small_store.path / "shards" / "000002.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with refuses(CorruptFileError, problem="000002.safetensors", got="bytes"):
        Store.open(small_store.path)


@contextmanager
def spoilt(file: Path) -> Iterator[Path]:
    """A file that is put right again afterwards."""
    whole = file.read_bytes()
    yield file
    file.write_bytes(whole)


def test_a_missing_file_is_refused_by_name(small_store: Store) -> None:
    path = small_store.path
    for name, whole in contents(path).items():
        (path / name).unlink()
        with pytest.raises(StoreError, match=name):
            read_everything(path)
        (path / name).mkdir()
        with pytest.raises(StoreError, match=name):
            read_everything(path)
        (path / name).rmdir()
        (path / name).write_bytes(whole)


@each("name", ["plan.json", "manifest.json", "shards/000000.json"])
@each("garbage", [b"\xff\xfe", b"null", b"[1]", b"{}", b'{"seal": 1e999}', b"[" * 100_000, b'{"seal": "\\ud800"}'])
def test_garbage_is_refused_by_name(small_store: Store, name: str, garbage: bytes) -> None:
    with spoilt(small_store.path / name) as file:
        file.write_bytes(garbage)
        with pytest.raises(CorruptFileError, match=name):
            Store.open(small_store.path)


def test_another_version_is_refused(small_store: Store) -> None:
    for name in ("plan.json", "manifest.json", "shards/000001.json"):
        file = small_store.path / name
        whole = file.read_bytes()
        content = {**read_checked_json(file), "version": 2}
        # With a checksum as the later version would write it: the checksum never changes.
        file.write_bytes(_encode(content))
        with refuses(StoreError, problem=name, expected="1", got="2"):
            Store.open(small_store.path)
        file.write_bytes(whole)


@each(
    ("field", "value"),
    [
        ("num_rows", 0),
        ("num_rows", True),
        ("shard_rows", 0),
        ("shard_rows", "4"),
        ("batch_size", -4),
        ("threads", 1.5),
        ("dtype", "int8"),
        ("dtype", ["float16"]),
        ("views", []),
        ("views", [["channels_first"]]),
        ("views", 3),
        ("poolings", {"grid": [0]}),
        ("poolings", ["grid"]),
        ("own_heads", [-1]),
        ("own_heads", 2),
        ("num_classes", None),
        ("backbone", None),
        ("source", 5),
        ("extra", 1),
    ],
)
def test_a_made_up_plan_is_refused(small_store: Store, field: str, value: Any) -> None:
    """Correctly sealed, but senseless."""
    with spoilt(small_store.path / "plan.json") as file:
        write_checked_json(file, {**read_checked_json(file), field: value})
        with pytest.raises(CorruptFileError, match=r"plan\.json does not describe"):
            Store.open(small_store.path)


def test_a_plan_of_more_rows_than_there_are_is_refused(small_store: Store) -> None:
    file = small_store.path / "plan.json"
    write_checked_json(file, {**read_checked_json(file), "num_rows": 10**15})
    with pytest.raises(CorruptFileError, match=r"manifest\.json"):
        Store.open(small_store.path)


def _rewrite(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    content = read_checked_json(file)
    change(content)
    write_checked_json(file, content)


@each(
    ("name", "change"),
    [
        ("manifest.json", lambda content: content.pop("shards")),
        ("manifest.json", lambda content: content["shards"].pop()),
        ("manifest.json", lambda content: content.update(shards=[1, 2, 3])),
        ("manifest.json", lambda content: content["plan"].update(num_rows=11)),
        ("shards/000001.json", lambda content: content.update(start=0)),
        ("shards/000001.json", lambda content: content.update(plan="another")),
        ("shards/000001.json", lambda content: content.pop("bytes")),
        ("shards/000001.json", lambda content: content.update(sha256="0" * 64)),
    ],
)
def test_files_that_do_not_agree_are_refused(
    small_store: Store, name: str, change: Callable[[dict[str, Any]], object]
) -> None:
    with spoilt(small_store.path / name) as file:
        _rewrite(file, change)
        with pytest.raises(CorruptFileError, match=name):
            Store.open(small_store.path)


@pytest.mark.parametrize("content", ["garbage", "another shape", "another type", "a column less"])
def test_a_made_up_shard_is_refused(small_store: Store, content: str) -> None:
    """Its hash is right in entry and manifest; its content is not what the plan says."""
    file = small_store.path / "shards" / "000001.safetensors"
    columns = {name: column.clone() for name, column in small_store.shard(1).items()}
    if content == "garbage":
        file.write_bytes(b"\xff" * 1000)
    else:
        if content == "another shape":
            columns["labels"] = columns["labels"][:2].clone()
        elif content == "another type":
            columns["sizes"] = columns["sizes"].double()
        else:
            del columns["ids"]
        save_file(columns, file)
    entry = {"bytes": file.stat().st_size, "sha256": file_sha256(file)}
    _rewrite(small_store.path / "shards" / "000001.json", lambda content: content.update(entry))
    _rewrite(small_store.path / "manifest.json", lambda content: content["shards"][1].update(entry))
    store = Store.open(small_store.path)
    with pytest.raises(CorruptFileError, match=r"000001\.safetensors"):
        store.shard(1)


def test_no_store_at_all(tmp_path: Path) -> None:
    with refuses(StoreError, problem="no feature store at"):
        Store.open(tmp_path)
    with refuses(StoreError, problem="no feature store at"):
        Store.open(tmp_path / "nowhere")


def test_a_shard_of_another_store_is_refused(small_store: Store) -> None:
    path = small_store.path
    for suffix in ("json", "safetensors"):
        shutil.copy(path / "shards" / f"000000.{suffix}", path / "shards" / f"000001.{suffix}")
    with pytest.raises(CorruptFileError, match="000001"):
        read_everything(path)


def test_a_shard_is_verified_once(small_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offramp.features._store.OPEN_SHARDS", 1)
    hashed: list[Path] = []

    def watched(path: Path) -> str:
        hashed.append(path)
        return file_sha256(path)

    monkeypatch.setattr("offramp.features._store.file_sha256", watched)
    store = Store.open(small_store.path)
    for shard in (0, 1, 0, 2, 1, 0):
        assert store.shard(shard)["labels"].shape == (4,)
        assert len(store._mapped) == 1
    assert len(hashed) == 3


def test_held_out_rows_are_those_of_a_split_by_id(store: Store) -> None:
    for seed in (0, 1):
        parts, wanted = store.hold_out([9, 5], seed=seed), split_by_id(store.ids(), [9, 5], seed=seed)
        assert [part.tolist() for part in parts] == [part.tolist() for part in wanted]


def test_an_unknown_pooling_suggests_the_near_one(store: Store) -> None:
    assert store.poolings == ("grid", "mean")
    with pytest.raises(UnknownNameError, match=r"did you mean 'mean'.*Known: grid, mean"):
        store.widths("means")


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads /proc")
def test_reading_a_shard_takes_no_memory_of_its_own(tmp_path: Path) -> None:
    numbers = np.ones((400, 25_000), np.float32)
    store = extract(
        VectorBackbone([nn.Identity()], 25_000), vectors(numbers, np.zeros(400, int)), tmp_path, poolings=["mean"]
    )
    store = Store.open(tmp_path)
    before_kb = _anonymous_kb()
    features = store.shard(0)["features.mean"]
    assert features.nbytes == 20_000_000
    assert features.view(torch.int16).numpy().max() > 0
    assert _anonymous_kb() - before_kb < 2_000


def _anonymous_kb() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))


def test_json_is_plain(small_store: Store) -> None:
    for file in small_store.path.rglob("*.json"):
        assert isinstance(json.loads(file.read_bytes()), dict)
