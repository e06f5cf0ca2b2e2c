"""The feature store: shards side by side, and a manifest compiled last.

Layout of the folder (docs/store.md says what is in each file):

    plan.json                   what is being extracted, written first
    shards/000000.safetensors   the columns of rows 0 to shard_rows - 1
    shards/000000.json          their row range, size and hash, written after the shard
    manifest.json               the plan and every entry, written when all shards are there
    .lock                       held by the process that is writing
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

from offramp.errors import CorruptFileError, StoreError
from offramp.features.plan import Plan
from offramp.features.sealed import file_sha256, read_sealed, write_sealed
from offramp.features.shard import Entry, is_finished, map_shard, read_entry, shard_path, sidecar_path
from offramp.features.splits import hold_out
from offramp.files import TEMPORARY, hold_lock
from offramp.registry import unknown_name

__all__ = ["Store", "begin_store", "compile_manifest", "hold_store", "pending_shards", "read_plan"]

Number = TypeVar("Number", np.int64, np.float32)

OPEN_SHARDS = 128
"""Shards kept mapped. Mapping one again costs 0.1 ms; each holds address space and page tables, but no memory."""

WAIT_S = 10.0
"""Seconds to wait for another writer of a store: to see that a store of some gigabytes is whole takes about as long."""


class Store:
    """Cached outcomes of a backbone, on disk and mapped into memory as they are read.

    Every JSON file is verified when the store is opened, every shard when it is first mapped.

    Args:
        path: Folder of the store.
        plan: What was extracted.
        entries: One per shard.

    Attributes:
        path: As above.
        plan: As above.
    """

    def __init__(self, path: Path, plan: Plan, entries: tuple[Entry, ...]) -> None:
        self.path = path
        self.plan = plan
        self._entries = entries
        self._verified: set[int] = set()
        self._mapped: OrderedDict[int, dict[str, Tensor]] = OrderedDict()

    @classmethod
    def open(cls, path: str | Path) -> "Store":
        """Open a finished store.

        Args:
            path: Its folder, on this machine or mounted.

        Example:
            >>> Store.open("nothing")
            Traceback (most recent call last):
            offramp.errors.StoreError: no feature store at nothing: plan.json is missing; extract into this folder, or \
download the store to it, first
        """
        path = Path(path)
        plan = read_plan(path)
        manifest = path / "manifest.json"
        if not manifest.exists():
            raise StoreError(
                f"the extraction into {path} is not finished: it has no manifest.json; run the same extraction again: "
                "it goes on where it stopped"
            )
        content = read_sealed(manifest)
        listed = content.get("shards")
        if content.get("plan") != plan.to_json() or not isinstance(listed, list) or len(listed) != plan.num_shards:
            raise CorruptFileError(
                f"{manifest} is not of this store's plan; delete it and run the same extraction again"
            )
        entries = tuple(read_entry(path, plan, shard) for shard in range(plan.num_shards))
        for shard, entry in enumerate(entries):
            if asdict(entry) != listed[shard]:
                raise CorruptFileError(
                    f"{sidecar_path(path, shard)} and {manifest.name} do not agree; delete both and run the same "
                    "extraction again"
                )
            _check_size(shard_path(path, shard), entry)
        return cls(path, plan, entries)

    @property
    def num_rows(self) -> int:
        """N."""
        return self.plan.num_rows

    @property
    def num_views(self) -> int:
        """Views of each sample; the first is the clean one."""
        return len(self.plan.views)

    @property
    def num_classes(self) -> int:
        """K."""
        return self.plan.num_classes

    @property
    def own_heads(self) -> tuple[int, ...]:
        """Stages after which the network brings a classifier of its own."""
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
        """Features of each stage under a pooling: L numbers."""
        if pooling not in self.plan.poolings:
            raise unknown_name(f"pooling of the store of '{self.plan.source}' in {self.path}", pooling, self.poolings)
        return self.plan.poolings[pooling]

    def shard(self, index: int) -> Mapping[str, Tensor]:
        """The columns of a shard by name, mapped and read-only by agreement.

        `features.<pooling>` is `rows x views x D`, `logits.<stage>` is `rows x views x K`; `labels`, `ids` and `sizes`
        have one number a row.
        """
        if index in self._mapped:
            self._mapped.move_to_end(index)
            return self._mapped[index]
        if index not in self._verified:
            file = shard_path(self.path, index)
            _check_size(file, self._entries[index])
            if file_sha256(file) != self._entries[index].sha256:
                raise CorruptFileError(
                    f"{file} does not match its checksum; run the same extraction again: it redoes only this shard"
                )
            self._verified.add(index)
        columns = map_shard(self.path, self.plan, index)
        self._mapped[index] = columns
        if len(self._mapped) > OPEN_SHARDS:
            self._mapped.popitem(last=False)
        return columns

    def hold_out(self, sizes: Sequence[int], *, seed: int = 0) -> list[npt.NDArray[np.int64]]:
        """Draw a few rows by sample id, to tune and to calibrate with, without holding the ids of all.

        The same rows as `split_by_id(store.ids(), sizes, seed=seed)` gives, equal ids together.
        `StoreSource(store, without=...)` reads the others.

        Args:
            sizes: Rows of each part.
            seed: Another seed draws other parts.

        Returns:
            The row numbers of each part, sorted.
        """
        return hold_out((self.shard(index)["ids"].numpy() for index in range(self.plan.num_shards)), sizes, seed=seed)

    def ids(self) -> npt.NDArray[np.int64]:
        """`N` sample ids."""
        return self._gather("ids", np.int64)

    def labels(self) -> npt.NDArray[np.int64]:
        """`N` classes."""
        return self._gather("labels", np.int64)

    def sizes(self) -> npt.NDArray[np.float32]:
        """`N` sizes."""
        return self._gather("sizes", np.float32)

    def _gather(self, name: str, dtype: type[Number]) -> npt.NDArray[Number]:
        gathered = np.empty(self.num_rows, dtype)
        for index in range(self.plan.num_shards):
            rows = self.plan.rows_of(index)
            gathered[rows.start : rows.stop] = self.shard(index)[name].numpy()
        return gathered


def read_plan(path: Path) -> Plan:
    """Read the plan of a store, finished or not."""
    file = path / "plan.json"
    if not file.exists():
        raise StoreError(
            f"no feature store at {path}: plan.json is missing; extract into this folder, or download the "
            "store to it, first"
        )
    return Plan.from_json(read_sealed(file), file)


@contextmanager
def hold_store(path: Path) -> Iterator[None]:
    """Hold a store so that no other process writes it; a kill releases it.

    Args:
        path: Folder of the store; made if it is not there. The lock is the hidden file `.lock` in it, which stays.

    Raises:
        BusyError: If another process is still writing it after some seconds; the message names the process.
    """
    with hold_lock(path / ".lock", wait_s=WAIT_S):
        yield


def begin_store(path: Path, plan: Plan) -> None:
    """Make the folder and write the plan, or check that it is the plan of what is there already.

    Leftovers of writers that were killed are removed, so no other writer may be at work.
    """
    try:
        (path / "shards").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make the folder {path}: {error}; choose another path") from error
    _remove_leftovers(path)
    if not (path / "plan.json").exists():
        write_sealed(path / "plan.json", plan.to_json())
        return
    recorded, asked = read_plan(path).to_json(), plan.to_json()
    differences = [f"{key} was {recorded[key]!r}, now {asked[key]!r}" for key in asked if recorded[key] != asked[key]]
    if differences:
        raise StoreError(
            f"{path} holds another extraction: {'; '.join(differences)}. To go on with it, ask for the same; "
            "otherwise choose another path or delete this one"
        )


def pending_shards(path: Path, plan: Plan) -> list[int]:
    """Shards still to be extracted: those that are missing, and those whose bytes are not what their entry says."""
    return [shard for shard in range(plan.num_shards) if not is_finished(path, plan, shard)]


def compile_manifest(path: str | Path) -> Store:
    """Finish a store: check that every shard is there, and write the manifest.

    Call it once, when all writers are done.
    """
    path = Path(path)
    plan = read_plan(path)
    entries = []
    for shard in range(plan.num_shards):
        entry = read_entry(path, plan, shard)
        _check_size(shard_path(path, shard), entry)
        entries.append(asdict(entry))
    _remove_leftovers(path)
    write_sealed(path / "manifest.json", {"plan": plan.to_json(), "shards": entries})
    return Store.open(path)


def _remove_leftovers(path: Path) -> None:
    # The last are safetensors' own, which writes under a name of its own making before it takes the one it was given.
    for leftover in [*path.glob(f"*{TEMPORARY}"), *path.glob(f"shards/*{TEMPORARY}"), *path.glob("shards/.tmp*")]:
        leftover.unlink(missing_ok=True)


def _check_size(file: Path, entry: Entry) -> None:
    try:
        size = file.stat().st_size
    except OSError as error:
        raise StoreError(f"cannot read {file}: {error}; run the same extraction again to restore it") from error
    if size != entry.bytes:
        raise CorruptFileError(
            f"{file} has {size} bytes, expected {entry.bytes}; run the same extraction again: it redoes only this shard"
        )
