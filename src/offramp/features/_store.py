"""The feature store: shards of cached outputs, and a manifest written last.

Layout of the folder (docs/reference/store.md describes the content of each file):

    plan.json                   the plan of the extraction, written first
    shards/000000.safetensors   the columns of rows 0 to shard_rows - 1
    shards/000000.json          their row range, size and hash, written after the shard
    manifest.json               the plan and the entries of all shards, written when all shards are there
    .lock                       held by the process that is writing, if the folder is local
"""

import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt
from torch import Tensor

from offramp._files import (
    TEMPORARY,
    Place,
    as_place,
    file_sha256,
    hold_lock,
    place_size,
    read_checked_json,
    write_atomically,
    write_checked_json,
)
from offramp._registry import unknown_name
from offramp.errors import CorruptFileError, InputError, StoreError
from offramp.features._ids import Ids
from offramp.features._shard import (
    REDO,
    Entry,
    Plan,
    check_size,
    entry_path,
    is_finished,
    map_shard,
    read_entry,
    shard_path,
)
from offramp.features._splits import hold_out

__all__ = ["Store", "begin_store", "compile_manifest", "hold_store", "pending_shards", "read_plan"]

OPEN_SHARDS = 128
"""Largest number of mapped shards. Mapping one again costs 0.1 ms; each takes address space, but no memory."""

READERS = 16
"""Entries that are read from an object store at once: each takes some milliseconds, nearly all of it waiting."""

WAIT_S = 10.0
"""Seconds to wait for another writer of a store: about as long as verifying a store of some gigabytes takes."""


@final
class Store:
    """Cached outputs of a backbone, on disk, and mapped into memory as they are read.

    JSON files are verified when the store is opened, a shard when it is first mapped.

    Args:
        place: Folder or address of the store.
        plan: The plan of the extraction.
        entries: One per shard.
    """

    def __init__(self, place: Place, plan: Plan, entries: tuple[Entry, ...]) -> None:
        self.place = place
        self.plan = plan
        self._entries = entries
        self._verified: set[int] = set()
        self._mapped: OrderedDict[int, dict[str, Tensor]] = OrderedDict()

    @classmethod
    def open(cls, path: str | Place) -> "Store":
        """Open a finished store.

        Args:
            path: Its folder, or its address in an object store; shards are then copied to a local cache when they are
                first read.

        Raises:
            StoreError: If there is no finished store in the folder, or a file cannot be read.
            CorruptFileError: If a file was changed.
        """
        path = as_place(path)
        plan = read_plan(path)
        manifest = path / "manifest.json"
        if not manifest.exists():
            raise StoreError(
                f"the extraction into {path} is not finished: it has no manifest.json",
                hint="run the same extraction again: it goes on where it stopped",
            )
        content = read_checked_json(manifest)
        shards = content.get("shards")
        if content.get("plan") != plan.to_json() or not isinstance(shards, list) or len(shards) != plan.num_shards:
            raise CorruptFileError(f"{manifest} does not match the plan of this store", hint=REDO)
        entries = tuple(_read_entries(path, plan))
        for shard, entry in enumerate(entries):
            if asdict(entry) != shards[shard]:
                raise CorruptFileError(
                    f"{entry_path(path, shard)} and {manifest.name} do not agree",
                    hint="delete both and run the same extraction again",
                )
        return cls(path, plan, entries)

    @property
    def path(self) -> Path:
        """Folder of the store, if it has one."""
        if not isinstance(self.place, Path):
            raise InputError(expected="a store in a folder", got=f"one at {self.place}", hint="copy it to a folder")
        return self.place

    @property
    def num_rows(self) -> int:
        """N."""
        return self.plan.num_rows

    @property
    def num_views(self) -> int:
        """Number of views of each sample; the first is without augmentation."""
        return len(self.plan.views)

    @property
    def num_classes(self) -> int:
        """K."""
        return self.plan.num_classes

    @property
    def own_heads(self) -> tuple[int, ...]:
        """Stages after which the network has a classifier of its own."""
        return self.plan.own_heads

    @property
    def poolings(self) -> tuple[str, ...]:
        """Names of the poolings whose features are stored."""
        return tuple(self.plan.poolings)

    @property
    def fingerprint(self) -> str:
        """Hash of backbone, poolings and preprocessing."""
        return self.plan.fingerprint

    def widths(self, pooling: str) -> tuple[int, ...]:
        """Return the number of features of each stage under a pooling: L numbers."""
        if pooling not in self.plan.poolings:
            raise unknown_name(f"pooling of the store of '{self.plan.source}' in {self.place}", pooling, self.poolings)
        return self.plan.poolings[pooling]

    def shard(self, index: int) -> Mapping[str, Tensor]:
        """Return the columns of a shard by name, mapped into memory; do not write to them.

        `features.<pooling>` is `rows x views x D`, `logits.<stage>` is `rows x views x K`; `labels`, `ids` and `sizes`
        have one number per row.
        """
        if index in self._mapped:
            self._mapped.move_to_end(index)
            return self._mapped[index]
        file = self._local_file(index)
        if index not in self._verified:
            check_size(file, self._entries[index])
            if file_sha256(file) != self._entries[index].sha256:
                if not isinstance(self.place, Path):
                    file.unlink(missing_ok=True)  # else the same copy would be read again
                raise CorruptFileError(
                    f"{file} does not match its checksum",
                    hint="run the same extraction again: it redoes only this shard",
                )
            self._verified.add(index)
        columns = map_shard(file, self.plan, index)
        self._mapped[index] = columns
        if len(self._mapped) > OPEN_SHARDS:
            self._mapped.popitem(last=False)
        return columns

    def _local_file(self, index: int) -> Path:
        """Return the file of a shard, copied from the object store if needed."""
        place = shard_path(self.place, index)
        if isinstance(place, Path):
            return place
        entry = self._entries[index]
        file = cache_folder() / f"{entry.sha256}.safetensors"  # by its content: another store may have the same shard
        if not file.exists() or place_size(file) != entry.bytes:
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                with write_atomically(file) as temporary:
                    place.download(temporary)
            except OSError as error:
                raise StoreError(
                    f"cannot copy {place} to {file}: {error}", hint="make room, or check address and network"
                ) from error
        return file

    def hold_out(self, sizes: Sequence[int], *, seed: int = 0) -> list[Ids]:
        """Draw a few rows by sample id, to tune and to calibrate with, without holding the ids of all rows.

        The rows are those of `split_by_id(store.ids(), sizes, seed=seed)`; rows with equal ids stay together.
        `StoreSource(store, without=...)` reads the other rows.

        Args:
            sizes: Number of rows of each part.
            seed: Another seed draws other parts.

        Returns:
            The row numbers of each part, sorted.
        """
        return hold_out((self.shard(index)["ids"].numpy() for index in range(self.plan.num_shards)), sizes, seed=seed)

    def ids(self) -> Ids:
        """Return `N` sample ids."""
        return self._gather("ids")

    def labels(self) -> npt.NDArray[np.int64]:
        """Return `N` classes."""
        return self._gather("labels")

    def _gather(self, name: str) -> npt.NDArray[np.int64]:
        values = np.empty(self.num_rows, np.int64)
        for index in range(self.plan.num_shards):
            rows = self.plan.rows_of(index)
            values[rows.start : rows.stop] = self.shard(index)[name].numpy()
        return values


def cache_folder() -> Path:
    """Return the folder of shards that were copied from object stores; it may be deleted at any time."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "offramp", "shards")


def read_plan(path: Place) -> Plan:
    """Read the plan of a store, finished or not."""
    file = path / "plan.json"
    if not file.exists():
        raise StoreError(
            f"no feature store at {path}: plan.json is missing",
            hint="extract into this folder, or download the store to it, first",
        )
    return Plan.from_json(read_checked_json(file), file)


@contextmanager
def hold_store(path: Place) -> Iterator[None]:
    """Hold a store so that no other process writes to it; a kill releases it.

    Args:
        path: Folder of the store; created if needed. The lock is the hidden file `.lock` in it, which stays. Object
            stores have no locks: two runs with one plan write the same objects, and another plan is refused.

    Raises:
        BusyError: If another process is still writing after some seconds; the message names the process.
    """
    with hold_lock(path / ".lock", wait_s=WAIT_S) if isinstance(path, Path) else nullcontext():
        yield


def begin_store(path: Place, plan: Plan) -> None:
    """Create the folder and write the plan, or check that the folder holds a store with this plan.

    Temporary files of killed writers are removed, so no other process may be writing.
    """
    if isinstance(path, Path):
        try:
            (path / "shards").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot make the folder {path}: {error}", hint="choose another path") from error
        _remove_temporary_files(path)
    if not (path / "plan.json").exists():
        write_checked_json(path / "plan.json", plan.to_json())
        return
    before, now = read_plan(path).to_json(), plan.to_json()
    differences = [f"{key} was {before[key]!r}, now {now[key]!r}" for key in now if before[key] != now[key]]
    if differences:
        raise StoreError(
            f"{path} holds another extraction: {', '.join(differences)}",
            hint="to go on with it, give the same arguments; otherwise choose another path or delete this one",
        )


def pending_shards(path: Place, plan: Plan) -> list[int]:
    """Return the shards still to be extracted: missing ones, and those whose bytes do not match their entry."""
    return [shard for shard in range(plan.num_shards) if not is_finished(path, plan, shard)]


def compile_manifest(path: str | Place) -> Store:
    """Finish a store: check that all shards are there, and write the manifest.

    Call it once, when all writers are done.
    """
    path = as_place(path)
    plan = read_plan(path)
    entries = [asdict(entry) for entry in _read_entries(path, plan)]
    if isinstance(path, Path):
        _remove_temporary_files(path)
    write_checked_json(path / "manifest.json", {"plan": plan.to_json(), "shards": entries})
    return Store.open(path)


def _read_entries(path: Place, plan: Plan) -> Iterator[Entry]:
    """Yield the entries of all shards, after checking that the shards are there and as long as they should be."""

    def read(shard: int) -> Entry:
        entry = read_entry(path, plan, shard)
        check_size(shard_path(path, shard), entry)
        return entry

    with ThreadPoolExecutor(1 if isinstance(path, Path) else READERS) as pool:
        yield from pool.map(read, range(plan.num_shards))


def _remove_temporary_files(path: Path) -> None:
    # safetensors writes to a file `.tmp...` of its own before it renames it to the given path.
    for file in [*path.glob(f"*{TEMPORARY}"), *path.glob(f"shards/*{TEMPORARY}"), *path.glob("shards/.tmp*")]:
        file.unlink(missing_ok=True)
