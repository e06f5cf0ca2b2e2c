"""Exchange feature stores as one tar file, so that others compare on the same bytes.

An archive is an uncompressed tar file with deterministic content: `archive.json` first, with the SHA-256 of every other
file, then the files of the stores by name. An imported archive may be hostile: only file names of a feature store are
accepted, and nothing is put in place before every hash is checked.
"""

import os
import re
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from offramp._files import TEMPORARY, file_sha256, read_checked_json, sync_folder, write_checked_json, write_resumable
from offramp.errors import CorruptFileError, InputError, StoreError
from offramp.features._shard import entry_path, shard_path
from offramp.features._store import Store

__all__ = ["PARTS", "Archive", "export_stores", "import_stores"]

PARTS = ("seen", "unseen", "test")
"""Parts of a task that have a store each."""

MANIFEST = "archive.json"
"""Name of the first file of an archive."""

_STORE = rf"(?P<task>[a-z0-9][a-z0-9._-]*)-(?P<part>{'|'.join(PARTS)})-(?P<fingerprint>[0-9a-f]{{12}})"
_FILE = r"plan\.json|manifest\.json|shards/[0-9]{6,}\.(?:json|safetensors)"
_STORE_NAME = re.compile(_STORE)
_FILE_NAME = re.compile(rf"(?P<store>{_STORE})/(?:{_FILE})")


@dataclass(frozen=True)
class Archive:
    """An archive that was written or imported."""

    sha256: str
    """Of the whole file."""
    stores: tuple[str, ...]
    """Names of the stores, sorted."""
    num_files: int
    """Number of files of all stores."""
    new: tuple[str, ...] = ()
    """Names of the stores that an import put in place; the others were there with the same content."""


def export_stores(folder: Path, task: str, into: Path, *, fingerprint: str | None = None) -> Archive:
    """Write the feature stores of a task into one tar file.

    Args:
        folder: Folder of the stores, `<task>-<part>-<first 12 digits of the backbone's fingerprint>`.
        task: Name of the task.
        into: The file to write or replace.
        fingerprint: Beginning of the backbone's fingerprint; needed if there are stores of several backbones.

    Raises:
        InputError: If there are no stores of the task, or those of several backbones.
        StoreError: If a store is not finished or cannot be read.
        CorruptFileError: If a file of a store was changed.
    """
    stores = _find_stores(folder, task, fingerprint)
    hashes: dict[str, str] = {}
    for name in stores:
        hashes |= {f"{name}/{own}": file_sha256(folder / name / own) for own in _verify_store(folder / name)}
    with TemporaryDirectory() as temporary, write_resumable(into) as unfinished:
        manifest = Path(temporary, MANIFEST)
        write_checked_json(manifest, {"kind": "feature stores", "files": hashes})
        # USTAR has no field that could differ from one writer to the next; mode "x" does not follow links.
        with tarfile.open(unfinished, "x:", format=tarfile.USTAR_FORMAT) as archive:
            _add(archive, manifest, MANIFEST)
            for name in sorted(hashes):
                _add(archive, folder / name, name)
    return Archive(file_sha256(into), stores, len(hashes))


def import_stores(file: Path, folder: Path, *, sha256: str | None = None) -> Archive:
    """Put the feature stores of an archive in place, each at once.

    A store that is there with the same content stays as it is. An import that was killed can be run again.

    Args:
        file: An archive that `export_stores` wrote, by whomever.
        folder: Folder of the stores; created if needed.
        sha256: SHA-256 that the archive must have.

    Raises:
        InputError: If `sha256` is not 64 hexadecimal digits.
        CorruptFileError: If a hash does not match, or the file is not an archive of feature stores.
        StoreError: If another store is in the place of one, or a file cannot be read or written.
    """
    if sha256 is not None and not re.fullmatch("[0-9a-fA-F]{64}", sha256):
        raise InputError(
            "sha256", expected="64 hexadecimal digits", got=sha256, hint="copy the line that `features export` printed"
        )
    if not file.is_file():
        raise InputError("archive", expected="a tar file", got=f"{file}, which is no file", hint="give its path")
    given = file_sha256(file)
    if sha256 is not None and given != sha256.lower():
        raise CorruptFileError(
            f"SHA-256 of {file}", expected=sha256.lower(), got=given, hint="get the archive again; nothing was imported"
        )
    with _staging(folder) as staging:
        hashes = _unpack(file, staging)
        stores = tuple(sorted({name.split("/", 1)[0] for name in hashes}))
        for name in stores:
            try:
                own = {f"{name}/{file}" for file in _verify_store(staging / name)}
            except StoreError as error:
                raise _refusal(file, str(error)) from error
            if extra := {key for key in hashes if key.startswith(f"{name}/")} - own:
                raise _refusal(file, f"{min(extra)} does not belong to its store")
        new = tuple(name for name in stores if not _is_there(folder / name, name, hashes))
        for name in new:
            os.rename(staging / name, folder / name)  # fails if another process has put a store there by now
        sync_folder(folder)
    return Archive(given, stores, len(hashes), new)


def _find_stores(folder: Path, task: str, fingerprint: str | None) -> tuple[str, ...]:
    names = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    matches = [match for match in map(_STORE_NAME.fullmatch, names) if match]
    stores = [
        match for match in matches if match["task"] == task and match["fingerprint"].startswith(fingerprint or "")
    ]
    backbones = sorted({match["fingerprint"] for match in stores})
    if not stores:
        tasks = sorted({match["task"] for match in matches})
        raise InputError(
            f"feature stores of '{task}' in {folder}",
            expected=f"one of {', '.join(tasks)}" if tasks else "stores of a task",
            got="none",
            hint=f"extract them first: offramp-bench run paper --task {task}",
        )
    if len(backbones) > 1:
        raise InputError(
            f"feature stores of '{task}' in {folder}",
            expected="those of one backbone",
            got=f"those of {', '.join(backbones)}",
            hint="choose one: --fingerprint HEX",
        )
    return tuple(match[0] for match in stores)


def _verify_store(path: Path) -> list[str]:
    """Read every file of a store once: its own hashes tell of changed bytes.

    Returns:
        The names of its files within the folder; a lock and temporary files do not belong to it.
    """
    store = Store.open(path)
    if not store.plan.backbone.startswith(path.name.rpartition("-")[2]):
        raise StoreError(
            f"backbone of the store {path}",
            expected=f"the fingerprint in its name, {path.name.rpartition('-')[2]}",
            got=store.plan.backbone[:12],
            hint="name the folder after the backbone that the features are of",
        )
    files = [path / "plan.json", path / "manifest.json"]
    for shard in range(store.plan.num_shards):
        store.shard(shard)
        files += [entry_path(path, shard), shard_path(path, shard)]
    return [file.relative_to(path).as_posix() for file in files]


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    header = tarfile.TarInfo(name)  # a regular file of nobody, mode 644, of 1970
    with open(path, "rb") as file:
        header.size = os.fstat(file.fileno()).st_size
        archive.addfile(header, file)


@contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    """Make a temporary folder beside the stores, from which a store is renamed into its place."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".import-", suffix=TEMPORARY, dir=folder) as staging:
            yield Path(staging)
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(
            f"cannot import into {folder}: {error}", hint="make room or give permission, then import again"
        ) from error


def _unpack(file: Path, staging: Path) -> Mapping[str, str]:
    """Unpack an archive and check every hash.

    Returns:
        The SHA-256 of each file of the stores, by its name.
    """
    try:
        with tarfile.open(file, "r:") as archive:
            members = archive.getmembers()
            _check_members(file, members)
            for member in members:
                archive.extract(member, staging, filter="data")
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        raise _refusal(file, f"it cannot be read: {error}") from error
    manifest = staging / MANIFEST
    try:
        content = read_checked_json(manifest)
    except StoreError as error:
        raise _refusal(file, str(error)) from error
    manifest.unlink()
    hashes = content.get("files")
    if content.get("kind") != "feature stores" or not isinstance(hashes, dict):
        raise _refusal(file, f"{MANIFEST} lists no files")
    names = {member.name for member in members} - {MANIFEST}
    if names != set(hashes):
        raise _refusal(file, f"{min(names ^ set(hashes))} is only in one of {MANIFEST} and the archive")
    for name, digest in hashes.items():
        if file_sha256(staging / name) != digest:
            raise _refusal(file, f"{name} does not match its SHA-256 in {MANIFEST}")
    return hashes


def _check_members(file: Path, members: list[tarfile.TarInfo]) -> None:
    """Accept regular files with the names of a feature store, each once, after the manifest."""
    names: set[str] = set()
    for place, member in enumerate(members):
        # A sparse file may be larger than the archive.
        if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.sparse is not None:
            raise _refusal(file, f"{member.name!r} is not a regular file")
        if member.name != MANIFEST if place == 0 else not _FILE_NAME.fullmatch(member.name):
            raise _refusal(file, f"{member.name!r} is not a file name of a feature store")
        if member.name in names:
            raise _refusal(file, f"{member.name!r} is there twice")
        names.add(member.name)
    if len(members) < 2:
        raise _refusal(file, "it holds no store")


def _is_there(path: Path, name: str, hashes: Mapping[str, str]) -> bool:
    """Tell whether a store is in place with the same content; other content is refused."""
    if not os.path.lexists(path):
        return False
    own = {path.parent / key: digest for key, digest in hashes.items() if key.startswith(f"{name}/")}
    if not all(file.is_file() and file_sha256(file) == digest for file, digest in own.items()):
        raise StoreError(
            f"{path} is there with other content than in the archive",
            hint="keep it, or move it away and import again; nothing was imported",
        )
    return True


def _refusal(file: Path, reason: str) -> CorruptFileError:
    return CorruptFileError(
        f"{file} is not an intact archive of feature stores: {reason}", hint="get it again; nothing was imported"
    )
