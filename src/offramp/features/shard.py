"""One shard: a safetensors file of columns, and a sidecar entry that vouches for it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from offramp.errors import CorruptFileError, StoreError
from offramp.features.plan import Column, Plan
from offramp.features.sealed import file_sha256, read_sealed, seal, whole_file, write_sealed

__all__ = [
    "Entry",
    "is_finished",
    "map_shard",
    "read_entry",
    "shard_path",
    "sidecar_path",
    "write_shard",
]


@dataclass(frozen=True)
class Entry:
    """What a sidecar and the manifest say about a shard."""

    start: int
    """Its first row."""
    stop: int
    """The row after its last."""
    bytes: int
    """Size of its file."""
    sha256: str
    """Hash of its file."""


def shard_path(path: Path, shard: int) -> Path:
    """File of a shard."""
    return path / "shards" / f"{shard:06d}.safetensors"


def sidecar_path(path: Path, shard: int) -> Path:
    """File of a shard's entry."""
    return path / "shards" / f"{shard:06d}.json"


def write_shard(path: Path, plan: Plan, shard: int, columns: Mapping[str, Tensor]) -> None:
    """Write a shard, then the entry that vouches for it: a shard without an entry is as good as not there."""
    rows = plan.rows_of(shard)
    target = shard_path(path, shard)
    with whole_file(target) as temporary:
        save_file(dict(columns), temporary)
        entry = Entry(rows.start, rows.stop, temporary.stat().st_size, file_sha256(temporary))
    write_sealed(sidecar_path(path, shard), {**asdict(entry), "plan": seal(plan.to_json())})


def read_entry(path: Path, plan: Plan, shard: int) -> Entry:
    """Read a shard's sidecar; refuse one that another plan wrote."""
    sidecar = sidecar_path(path, shard)
    content = read_sealed(sidecar)
    rows = plan.rows_of(shard)
    wanted = {"plan": seal(plan.to_json()), "start": rows.start, "stop": rows.stop}
    if content.keys() != {"plan", "start", "stop", "bytes", "sha256"} or not wanted.items() <= content.items():
        raise CorruptFileError(f"{sidecar} is not of this store's plan; delete it and run the same extraction again")
    return Entry(rows.start, rows.stop, content["bytes"], content["sha256"])


def is_finished(path: Path, plan: Plan, shard: int) -> bool:
    """Whether a shard is there, and every byte of it as its entry says."""
    try:
        return file_sha256(shard_path(path, shard)) == read_entry(path, plan, shard).sha256
    except StoreError:
        return False


def map_shard(path: Path, plan: Plan, shard: int) -> dict[str, Tensor]:
    """Map a shard's columns into memory: a byte is read when it is used, and held by the page cache alone.

    Checks names, shapes and types. That the bytes are the right ones is `Store.shard`'s part.

    Args:
        path: Folder of the store.
        plan: Its plan.
        shard: Index of the shard.
    """
    file = shard_path(path, shard)
    expected = plan.columns(len(plan.rows_of(shard)))
    columns: dict[str, Tensor] = {}
    try:
        with safe_open(file, framework="pt") as opened:
            for name in expected:
                columns[name] = opened.get_tensor(name)
    except (OSError, SafetensorError) as error:
        raise CorruptFileError(f"cannot map {file}: {error}; run the same extraction again to restore it") from error
    for name, column in columns.items():
        if Column(tuple(column.shape), column.dtype) != expected[name]:
            raise CorruptFileError(
                f"{file} holds '{name}' as {column.dtype} of shape {tuple(column.shape)}, expected {expected[name]}; "
                "delete it and run the same extraction again"
            )
    return columns
