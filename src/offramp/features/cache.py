"""Shards of a remote store on a local disk, as many as there is room for."""

import hashlib
import os
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

from torch import Tensor

from offramp.errors import CorruptFileError, InputError, StoreError
from offramp.features.plan import Plan
from offramp.features.remote import RemoteFolder
from offramp.features.sealed import seal, unsealed, whole_file
from offramp.features.shard import Entry, read_columns, shard_name, shard_path
from offramp.files import TEMPORARY

try:
    import fcntl
except ImportError as error:
    raise StoreError(
        "stores at an address are read through locked files, which this system does not have; copy the store to it"
    ) from error

__all__ = ["ShardCache", "open_remote"]

FETCHED = "fetched"
"""Folder of everything that was fetched, in the folder of the cache."""

FETCHERS = 2
"""Shards fetched at a time: one connection seldom fills a network."""

ABANDONED_S = 3600
"""Age at which a file that was never finished is taken for a dead process's."""


class ShardCache:
    """The shards of one store that were fetched last, in a folder that other stores and processes may share.

    A shard is fetched whole under a temporary name, compared with its hash and renamed: what has its right name is
    whole. To make room, those that nobody holds are deleted, the longest unused first. Who holds one has a shared lock
    on its file, which ends with the process: one that is held is not deleted, so that several processes together may
    need more than the limit.

    Args:
        remote: The folder of the store.
        entries: Of its shards.
        folder: Where this store's shards go: `folder/shards`.
        root: Folder of all stores that share the limit.
        limit_mb: Megabytes of all shards in `root` together.
    """

    def __init__(
        self, remote: RemoteFolder, entries: Sequence[Entry], *, folder: Path, root: Path, limit_mb: float
    ) -> None:
        self.largest_bytes = max(entry.bytes for entry in entries)
        self._limit_bytes = int(limit_mb * 1e6)
        if self.room < 2:
            raise InputError(
                f"a cache of {limit_mb:g} MB does not hold two shards of {remote.address}, one to read, one to fetch "
                f"meanwhile; they have {self.largest_bytes / 1e6:.4g} MB each: give twice that or more"
            )
        self._remote, self._entries, self._folder, self._root = remote, entries, folder, root
        self._pool = ThreadPoolExecutor(FETCHERS, thread_name_prefix="offramp-fetch")
        self._fetching: dict[int, Future[None]] = {}
        self._held: dict[int, int] = {}  # the open file of each shard that is held
        weakref.finalize(self, _close, self._held)
        self._verified: set[int] = set()
        self._wanted: set[int] = set()
        self._reserved_bytes = 0
        self._lock = Lock()

    @property
    def room(self) -> int:
        """Shards there is room for."""
        return self._limit_bytes // self.largest_bytes

    def hold(self, shard: int) -> Path:
        """The file of a shard, fetched if it is not there, every byte verified; it stays until it is let go."""
        with self._lock:
            self._wanted.add(shard)
            fetched = self._fetching.pop(shard, None)
        if fetched is not None:
            fetched.result()
        self._hold(shard)  # at once, if it was fetched; what was let go meanwhile is fetched again
        return shard_path(self._folder, shard)

    def only(self, shards: Sequence[int]) -> None:
        """Begin to fetch shards, in that order, and let go of all others."""
        wanted = set(shards)
        with self._lock:
            self._wanted = wanted
            for shard, fetched in list(self._fetching.items()):
                if fetched.done() or (shard not in wanted and fetched.cancel()):
                    del self._fetching[shard]
            for shard in [shard for shard in self._held if shard not in wanted]:  # first: their room is needed
                os.close(self._held.pop(shard))
            for shard in shards:
                if shard not in self._held and shard not in self._fetching:
                    self._fetching[shard] = self._pool.submit(self._hold, shard)

    def let_go(self, shard: int) -> None:
        """Give a shard's room to others that need it."""
        with self._lock:
            file = self._held.pop(shard, None)
            self._wanted.discard(shard)
        if file is not None:
            os.close(file)

    def columns(self, plan: Plan, shard: int, names: Sequence[str]) -> dict[str, Tensor]:
        """Some columns of a shard that is not here, read from afar without the rest of it."""
        name = shard_name(shard)
        return read_columns(
            lambda start, stop: self._remote.read_range(name, start, stop),
            self._remote.address_of(name),
            plan,
            shard,
            names,
        )

    def has(self, shard: int) -> bool:
        """Whether a shard is there, whole or not."""
        return shard_path(self._folder, shard).exists()

    def _hold(self, shard: int) -> None:
        """Have a shard's file open and locked."""
        while True:
            with self._lock:
                if shard in self._held:
                    return
            file = self._locked(shard)
            if file is not None:
                break
            # One at a time: a second file of the same name would take the place of one that others hold.
            with _alone(shard_path(self._folder, shard)):
                if not self.has(shard):
                    self._fetch(shard)
        with self._lock:
            doubled = shard in self._held or shard not in self._wanted
            if not doubled:
                self._held[shard] = file
        if doubled:
            os.close(file)

    def _locked(self, shard: int) -> int | None:
        """The open file of a shard that is there and right, with a lock on it; None if there is none."""
        path = shard_path(self._folder, shard)
        try:
            file = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"cannot read {path}: {error}; mend that or choose another cache folder") from error
        kept = False
        try:
            fcntl.flock(file, fcntl.LOCK_SH)
            if not _is(file, path):  # deleted while the lock was waited for
                return None
            if shard in self._verified or _open_sha256(file) == self._entries[shard].sha256:
                self._verified.add(shard)
                with suppress(OSError):
                    os.utime(file)  # used now: the last to be deleted
                kept = True
                return file
            with _alone(path):
                if _is(file, path):
                    path.unlink()
            return None
        finally:
            if not kept:
                os.close(file)

    def _fetch(self, shard: int) -> None:
        """Bring a shard from afar."""
        name, path, entry = shard_name(shard), shard_path(self._folder, shard), self._entries[shard]
        with self._lock:
            self._make_room(entry.bytes)
            self._reserved_bytes += entry.bytes
        place, again = self._remote.address_of(name), "copy it there again, then run the same call again"
        try:
            digest, size = hashlib.sha256(), 0
            with whole_file(path) as temporary:
                with open(temporary, "wb") as file:
                    for block in self._remote.blocks(name):
                        file.write(block)
                        digest.update(block)
                        size += len(block)
                if size != entry.bytes:
                    raise CorruptFileError(f"{place} has {size} bytes, expected {entry.bytes}; {again}")
                if digest.hexdigest() != entry.sha256:
                    raise CorruptFileError(f"{place} does not match its checksum; {again}")
            self._verified.add(shard)
        finally:
            with self._lock:
                self._reserved_bytes -= entry.bytes

    def _make_room(self, needed_bytes: int) -> None:
        """Delete what nobody holds or is about to hold here, the longest unused first, until so much more fits."""
        wanted = {shard_path(self._folder, shard) for shard in self._wanted}
        found = []
        for path in self._root.glob("*/shards/*.safetensors*"):
            with suppress(FileNotFoundError):
                status = path.stat()
                if not path.name.endswith(TEMPORARY):
                    found.append((status.st_mtime, status.st_size, path))
                elif time.time() - status.st_mtime > ABANDONED_S:
                    path.unlink()
        total = needed_bytes + self._reserved_bytes + sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= self._limit_bytes:
                return
            if path not in wanted and _delete_if_free(path):
                total -= size


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Let nobody else, of any process, write a file meanwhile."""
    try:
        lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise StoreError(
            f"cannot write {path}: {error}; make room or give permission, then run the same call again"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def open_remote(
    address: str, *, cache: str | Path | None, cache_mb: float
) -> tuple[Path, Plan, tuple[Entry, ...], ShardCache]:
    """What a store at an address consists of, arguments as of `Store.open`.

    Returns:
        The folder for its shards on this machine, its plan, its entries, and what brings its shards.
    """
    remote = RemoteFolder(address)
    place = remote.address_of("plan.json")
    plan = Plan.from_json(unsealed(remote.read("plan.json"), place), place)
    place = remote.address_of("manifest.json")
    content = unsealed(remote.read("manifest.json"), place)
    entries = _listed(content, plan)
    if entries is None:
        raise CorruptFileError(f"{place} is not of this store's plan; copy the finished store there again")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "offramp"
    # A folder of its own: what lies beside it, stores of this machine for one, is not to be deleted to make room.
    root = (home if cache is None else Path(cache)) / FETCHED
    # By what it holds, and not by where it is: another store at the same address must not be taken for this one.
    folder = root / seal(content)[:16]
    try:
        (folder / "shards").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make the folder {folder}: {error}; make it possible or give another cache") from error
    return folder, plan, entries, ShardCache(remote, entries, folder=folder, root=root, limit_mb=cache_mb)


def _listed(content: Mapping[str, Any], plan: Plan) -> tuple[Entry, ...] | None:
    """The entries of a manifest; None if they are not those of the plan."""
    try:
        entries = tuple(Entry(**one) for one in content["shards"])
    except (KeyError, TypeError):
        return None
    rows = [plan.rows_of(shard) for shard in range(len(entries))]
    good = (
        content.get("plan") == plan.to_json()
        and len(entries) == plan.num_shards
        and all((one.start, one.stop) == (span.start, span.stop) for one, span in zip(entries, rows, strict=True))
        and all(type(one.bytes) is int and one.bytes > 0 and isinstance(one.sha256, str) for one in entries)
    )
    return entries if good else None


def _close(held: dict[int, int]) -> None:
    """Let go of everything, as nobody can ask for it any more."""
    while held:
        os.close(held.popitem()[1])


def _open_sha256(file: int) -> str:
    """Hash an open file, whatever has become of its name."""
    with open(os.dup(file), "rb") as opened:
        opened.seek(0)
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _is(file: int, path: Path) -> bool:
    """Whether an open file still has its name: others may have deleted it, or put another in its place."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def _delete_if_free(path: Path) -> bool:
    """Delete a file that nobody has a lock on."""
    try:
        file = os.open(path, os.O_RDWR)  # as some file systems lock none for one alone that cannot be written
    except FileNotFoundError:  # another process was faster
        return True
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is(file, path):
            path.unlink()
    except OSError:  # held, or not to be deleted: what is written next will say why
        return False
    finally:
        os.close(file)
    return True
