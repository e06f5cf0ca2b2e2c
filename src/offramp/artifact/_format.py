"""The format of a saved model: a folder with one manifest and safetensors files named by their hashes.

docs/reference/artifact.md specifies it. Reading never runs code found in an artifact: it holds numbers, texts and
names, and what a name stands for is looked up where the caller allows it.
"""

import hashlib
import json
import math
import os
import re
import reprlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from offramp._files import TEMPORARY, hold_lock, write_atomically
from offramp._registry import Registry, check_own_name
from offramp._remote import is_address
from offramp.errors import ArtifactError, InputError, StoreError, UntrustedNameError

__all__ = [
    "MANIFEST",
    "VERSION",
    "Artifact",
    "Field",
    "as_json",
    "check_folder",
    "is_artifact_file",
    "list_files",
    "read_artifact",
    "write_artifact",
]

T = TypeVar("T")

SAVE_AGAIN = "save the model again"
"""Hint of most errors."""

VERSION = 1
"""Version of the format; no other one is read."""

MANIFEST = "manifest.json"

LOCK = ".lock"
"""Held while an artifact is saved; loading takes no lock, so that a folder may be read-only."""

WAIT_S = 60.0
"""Seconds to wait for another process that saves into the same folder: writing 4 GB takes about as long."""

ATTEMPTS = 100
"""Attempts to read an artifact that is being replaced: an attempt fails only if another save has just finished."""

LARGEST_MANIFEST = 4 * 2**20
"""Bytes of a manifest at most: one of 36 exits and 400 points has 0.2 MB. One made to be slow may take some seconds and
thirty times its size in memory before it is refused."""

DEEPEST = 32
"""Largest nesting depth of objects and lists."""

LONGEST = 1000
"""Characters of a text at most."""

LARGEST = 1e30
"""Largest number, and largest inverse of one above 0: quotients and products of two such numbers are finite."""

MOST_DIMENSIONS = 32
"""Dimensions of a tensor at most: with more than 64, most operations of torch end in an error."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TENSORS = rf"{_NAME.pattern}-[0-9a-f]{{16}}\.safetensors"
_TEMPORARY = rf"({_TENSORS}|{re.escape(MANIFEST)})\.[0-9a-f]{{32}}{re.escape(TEMPORARY)}"
_REMOVABLE = re.compile(rf"{_TENSORS}|{_TEMPORARY}")


@dataclass(frozen=True)
class Artifact:
    """Content of an artifact folder; hashes are verified, values are not."""

    content: "Field"
    """The manifest's content."""
    tensors: Mapping[str, Mapping[str, Tensor]]
    """The tensors of each file, by the name the manifest gives it."""
    files: Mapping[str, str]
    """The path of each file, by the same name."""
    sha256: str
    """Hash of the manifest, which has the hashes of all files."""


@dataclass(frozen=True)
class Field:
    """A value of the manifest with its place, so that errors can name it.

    Example:
        >>> Field("manifest.json", "", {"classes": "ten"}).at("classes").integer(low=2)
        Traceback (most recent call last):
        offramp.errors.ArtifactError: manifest.json, field 'classes': expected a whole number of at least 2, got 'ten'
    """

    file: str
    """The file's path."""
    place: str
    """The way to the value."""
    value: Any
    """The value, as JSON gave it."""

    def wrong(self, expected: str) -> ArtifactError:
        """Return the error of a value that is not what was expected."""
        shown = reprlib.repr(self.value)
        shown = shown if len(shown) < 80 else shown[:77] + "..."
        return ArtifactError(f"{self.file}, field '{self.place}'", expected=expected, got=shown)

    def one_of(self, names: Iterable[str]) -> str:
        """Return the text if it is one of some names."""
        if self.text() not in names:
            raise self.wrong(f"one of those registered here ({', '.join(names)})")
        return self.text()

    def look_up(self, registry: Registry[T], trust: Collection[str]) -> T:
        """Return the entry of a registry that the text names; third-party code only if the caller trusts it."""
        if ":" not in self.text():
            return registry.get(self.one_of(registry))
        try:
            return registry.get(self.text(), trust=trust)
        except UntrustedNameError as error:
            raise UntrustedNameError(f"{self.file}, field '{self.place}': {error}") from error
        except InputError as error:
            raise ArtifactError(f"{self.file}, field '{self.place}': {error}") from error

    def check_own_name(self, entry: T) -> T:
        """Return an entry of a registry; refuse it if its `name` differs from the text."""
        try:
            check_own_name(entry, self.text())
        except InputError as error:
            raise ArtifactError(f"{self.file}, field '{self.place}': {error}") from error
        return entry

    def at(self, name: str) -> "Field":
        """Return an entry of an object."""
        entries = self.entries()
        if name not in entries:
            raise ArtifactError(f"{self.file}, field '{self._inside(name)}': is missing", hint=SAVE_AGAIN)
        return entries[name]

    def entries(self) -> dict[str, "Field"]:
        """Return all entries of an object."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        return {key: Field(self.file, self._inside(key), value) for key, value in self.value.items()}

    def items(self) -> list["Field"]:
        """Return all entries of a list."""
        if not isinstance(self.value, list):
            raise self.wrong("a list")
        return [Field(self.file, f"{self.place}[{index}]", value) for index, value in enumerate(self.value)]

    def integer(self, *, low: int = 0, high: int = 10**9) -> int:
        """Return a whole number in a range."""
        if type(self.value) is not int or not low <= self.value <= high:
            raise self.wrong(f"a whole number of at least {low}" + (f" and at most {high}" if high < 10**9 else ""))
        return int(self.value)

    def integers(self, *, low: int = 0, high: int = 10**9) -> tuple[int, ...]:
        """Return a list of whole numbers in a range."""
        return tuple(item.integer(low=low, high=high) for item in self.items())

    def number(self, *, low: float = -LARGEST, high: float = LARGEST) -> float:
        """Return a number in a range."""
        # Compared, not converted: whole numbers may be too large for a float.
        if type(self.value) not in (int, float) or not low <= self.value <= high:
            raise self.wrong(f"a number from {low:g} to {high:g}")
        return float(self.value)

    def text(self) -> str:
        """Return a text."""
        if not isinstance(self.value, str) or len(self.value) > LONGEST:
            raise self.wrong(f"a text of at most {LONGEST} characters")
        return self.value

    def flag(self) -> bool:
        """Return true or false."""
        if not isinstance(self.value, bool):
            raise self.wrong("true or false")
        return self.value

    def _inside(self, name: str) -> str:
        return f"{self.place}.{name}" if self.place else name


def is_artifact_file(name: str) -> bool:
    """Tell whether a file of this name may be part of an artifact, or of one whose saving was interrupted.

    Example:
        >>> is_artifact_file("exits-0123456789abcdef.safetensors"), is_artifact_file("model.safetensors")
        (True, False)
    """
    return name in (MANIFEST, LOCK, f"{LOCK}.owner") or _REMOVABLE.fullmatch(name) is not None


def check_folder(path: str | Path) -> None:
    """Refuse an address where a folder is expected: a folder of that name would be made here.

    Args:
        path: The folder; a `Path` made from an address has lost one of its slashes.

    Raises:
        InputError: If it is an address.

    Example:
        >>> check_folder("s3://bucket/my-offramp")
        Traceback (most recent call last):
        offramp.errors.InputError: expected a folder, got 's3://bucket/my-offramp'; save to a folder and copy it there
    """
    if not is_address(Path(path).as_posix()):
        return
    hint = "save to a folder and copy it there"
    if str(path).startswith("hf:/"):
        hint = "use model.push_to_hub('owner/name'), or save to a folder and upload it"
    raise InputError(expected="a folder", got=f"'{path}'", hint=hint)


def write_artifact(path: str | Path, content: Mapping[str, Any], tensors: Mapping[str, Mapping[str, Tensor]]) -> str:
    """Write an artifact, or replace one: a kill at any moment leaves the old one or the new one, whole.

    What was written is read back and compared before the old artifact is given up.

    Args:
        path: A folder; made if it is not there. Files in it that are no part of an artifact are left alone.
        content: What the manifest says. Keys that are numbers become texts, as JSON has no others.
        tensors: The tensors of each file, by a name of lower-case letters, digits and underscores.

    Returns:
        The hash of the manifest.

    Raises:
        InputError: If the path is an address.
        ArtifactError: If the folder cannot be written, or the content is not what JSON holds.
        BusyError: If another process has been saving into the folder for a minute.
    """
    check_folder(path)
    folder, plain = Path(path), as_json(content)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with hold_lock(folder / LOCK, wait_s=WAIT_S):
            try:
                files = {name: _write_tensors(folder, name, named) for name, named in sorted(tensors.items())}
                whole = {"format": "offramp", "version": VERSION, "files": files, "content": plain}
                return _write_manifest(folder / MANIFEST, whole)
            finally:
                _remove_unnamed(folder)
    except ArtifactError:
        raise
    except StoreError as error:
        raise ArtifactError(str(error)) from error
    except (OSError, SafetensorError) as error:
        raise ArtifactError(
            f"cannot write {folder}: {error}", hint="make room or give permission, then save again"
        ) from error


def read_artifact(path: str | Path) -> Artifact:
    """Read an artifact; refuse it where a name, a size or a hash is not what the manifest says.

    Args:
        path: The folder. If it is saved over meanwhile, the old artifact or the new one is read.

    Returns:
        Its content and tensors.

    Raises:
        ArtifactError: If the folder holds no artifact, or a damaged one.
    """
    file = Path(path) / MANIFEST
    for attempt in range(ATTEMPTS):
        raw, identity = _manifest_bytes(file)
        try:
            return _read(file, raw)
        except ArtifactError:
            # A save replaces the manifest before it removes files: a file that is gone by then is no damage.
            if attempt == ATTEMPTS - 1 or identity == _identity_of(file):
                raise
    raise AssertionError("the last attempt returns or raises")


def list_files(folder: str | Path) -> list[str]:
    """Return the names of the files that an artifact's manifest lists; the files need not be there.

    Args:
        folder: The folder with the manifest.

    Raises:
        ArtifactError: If there is no manifest, or none of this version.
    """
    file = Path(folder) / MANIFEST
    raw, _ = _manifest_bytes(file)
    return [named for _, _, named in _entries(_open_manifest(file, raw))]


def _read(file: Path, raw: bytes) -> Artifact:
    manifest = _open_manifest(file, raw)
    content = manifest.at("content")
    content.entries()
    tensors, files = {}, {}
    for name, entry, named in _entries(manifest):
        tensors[name], files[name] = _read_tensors(file.with_name(named), entry), str(file.with_name(named))
    return Artifact(content, tensors, files, hashlib.sha256(raw).hexdigest())


def _open_manifest(file: Path, raw: bytes) -> Field:
    """Return what a manifest says, after checking its format and version."""
    try:
        whole = _parse(raw)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(
            f"{file} is not what `save` of a model writes: {str(error)[:200]}", hint=f"copy it again, or {SAVE_AGAIN}"
        ) from error
    manifest = Field(str(file), "", whole)
    if manifest.at("format").value != "offramp":
        raise manifest.at("format").wrong("'offramp'")
    version = manifest.at("version").integer(low=1, high=10**6)
    if version != VERSION:
        raise ArtifactError(
            str(file),
            expected=f"version {VERSION} of the format",
            got=f"version {version}",
            hint="install the offramp that saved it",
        )
    return manifest


def _entries(manifest: Field) -> Iterator[tuple[str, Field, str]]:
    """Yield the name, the entry and the file name of each tensor file."""
    for name, entry in manifest.at("files").entries().items():
        if not _NAME.fullmatch(name):
            raise Field(manifest.file, "files", name).wrong("names such as 'exits'")
        if not _SHA256.fullmatch(entry.at("sha256").text()):
            raise entry.at("sha256").wrong("a SHA-256, 64 digits of 0-9 and a-f")
        yield name, entry, _file_name(name, entry.at("sha256").text())


def _is_own_file(file: Path) -> bool:
    """Tell whether a file is there; links are followed only in a snapshot of huggingface_hub's cache, to its blobs.

    There, `models--owner--name/snapshots/COMMIT/FILE` is a link into `models--owner--name/blobs`, or on from there into
    the `blobs` beside `models--owner--name`.
    """
    if not file.is_symlink():
        return file.is_file()
    folder = file.absolute().parent
    if folder.parent.name != "snapshots":
        return False
    stores = [repository / "blobs" for repository in folder.parents[1:3]]
    target = file.resolve()
    return target.is_file() and any(target.is_relative_to(store.resolve()) for store in stores)


def _manifest_bytes(file: Path) -> tuple[bytes, tuple[int, ...]]:
    """Return the bytes of a manifest, and an identity that changes when it is replaced."""
    try:
        if not _is_own_file(file):
            raise ArtifactError(
                f"{file} is not there",
                hint="check the path; no model was saved in this folder, or saving was interrupted",
            )
        with open(file, "rb") as opened:
            stat = os.fstat(opened.fileno())
            if stat.st_size > LARGEST_MANIFEST:
                raise ArtifactError(
                    str(file), expected=f"at most {LARGEST_MANIFEST} bytes", got=f"{stat.st_size}", hint=SAVE_AGAIN
                )
            return opened.read(LARGEST_MANIFEST + 1), _identity(stat)
    except ArtifactError:
        raise
    except OSError as error:
        raise ArtifactError(f"cannot read {file}: {error}", hint="give permission, or copy the folder again") from error


def _identity_of(file: Path) -> tuple[int, ...] | None:
    try:
        return _identity(os.stat(file))  # of the target, if it is a link that is followed
    except OSError:
        return None


def _identity(stat: os.stat_result) -> tuple[int, ...]:
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _read_tensors(file: Path, entry: Field) -> dict[str, Tensor]:
    """Return the tensors of a file after checking its size and hash."""
    expected_bytes, expected_hash = entry.at("bytes").integer(high=2**40), entry.at("sha256").text()
    try:
        if not _is_own_file(file):
            raise ArtifactError(f"{file} is missing", hint=f"copy the whole folder, or {SAVE_AGAIN}")
        size = file.stat().st_size
        if size != expected_bytes or _sha256(file) != expected_hash:
            raise ArtifactError(
                f"{file} is not the file that was saved",
                expected=f"{expected_bytes} bytes of the hash in the manifest",
                got=f"{size} bytes, or other content",
                hint=f"copy the folder again, or {SAVE_AGAIN}",
            )
        with safe_open(file, framework="pt") as opened:
            for key in opened.keys():
                if len(opened.get_slice(key).get_shape()) > MOST_DIMENSIONS:
                    raise ArtifactError(
                        f"{file}, tensor '{key[:LONGEST]}'",
                        expected=f"at most {MOST_DIMENSIONS} dimensions",
                        got=f"{len(opened.get_slice(key).get_shape())}",
                        hint=SAVE_AGAIN,
                    )
            return {key: opened.get_tensor(key).clone() for key in opened.keys()}
    except ArtifactError:
        raise
    except Exception as error:  # whatever a header makes safetensors or torch end with
        raise ArtifactError(f"cannot read {file}: {str(error)[:500]}", hint=SAVE_AGAIN) from error


def _write_tensors(folder: Path, name: str, named: Mapping[str, Tensor]) -> dict[str, Any]:
    """Write a file of tensors under the name of its hash, unless it is there; return its entry in the manifest."""
    assert _NAME.fullmatch(name), name
    for key, tensor in named.items():
        if tensor.ndim > MOST_DIMENSIONS:
            raise ArtifactError(
                f"cannot write tensor '{key}'",
                expected=f"at most {MOST_DIMENSIONS} dimensions",
                got=f"{tensor.ndim}",
                hint="reshape it, or save with weights=False",
            )
    raw = save(_apart(named))
    size, digest = len(raw), hashlib.sha256(raw).hexdigest()
    file = folder / _file_name(name, digest)
    if file.is_symlink() or not file.is_file() or file.stat().st_size != size or _sha256(file) != digest:
        with write_atomically(file) as temporary:
            temporary.write_bytes(raw)
            if _sha256(temporary) != digest:
                _differs(file)
    return {"bytes": size, "sha256": digest}


def _apart(named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors as safetensors takes them: contiguous, and no two in the same memory."""
    apart: dict[str, Tensor] = {}
    taken: set[int] = set()
    for key, tensor in named.items():
        plain = tensor.detach().cpu().contiguous()
        apart[key] = plain.clone() if plain.untyped_storage().data_ptr() in taken else plain
        taken.add(plain.untyped_storage().data_ptr())
    return apart


def _differs(file: Path) -> NoReturn:
    raise ArtifactError(
        f"{file} was read back and is not what was written; the artifact that was there is kept",
        hint="check the disk, then save again",
    )


def _write_manifest(file: Path, whole: Mapping[str, Any]) -> str:
    """Replace the manifest, after reading back what was written; return its hash."""
    raw = json.dumps(whole, sort_keys=True, indent=1, allow_nan=False).encode()
    if len(raw) > LARGEST_MANIFEST:
        raise ArtifactError(
            f"cannot write {file}",
            expected=f"at most {LARGEST_MANIFEST} bytes",
            got=f"{len(raw)}",
            hint="save fewer points, or plainer options",
        )
    with write_atomically(file) as temporary:
        temporary.write_bytes(raw)
        try:
            same = _parse(temporary.read_bytes()) == whole
        except ValueError:
            same = False
        if not same:
            _differs(file)
    return hashlib.sha256(raw).hexdigest()


def _remove_unnamed(folder: Path) -> None:
    """Remove files of our naming that the manifest does not name: those of the artifact before, or of a killed save."""
    named: set[str] = set()
    if os.path.lexists(folder / MANIFEST):
        try:
            files = _parse(_manifest_bytes(folder / MANIFEST)[0])["files"]
            named = {_file_name(name, entry["sha256"]) for name, entry in files.items()}
        except (ArtifactError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return  # saving has failed, and the manifest that was there cannot be read: its files are left alone
    with suppress(OSError):
        for file in list(folder.iterdir()):
            if _REMOVABLE.fullmatch(file.name) and file.name not in named:
                with suppress(OSError):  # a folder, or a file that another process has open on Windows
                    file.unlink()


def _file_name(name: str, sha256: str) -> str:
    return f"{name}-{sha256[:16]}.safetensors"


def as_json(content: Mapping[str, Any]) -> Any:
    """Return content as it will be read again: JSON has lists for tuples, and texts for all keys.

    Raises:
        ArtifactError: If JSON does not hold the content, or two keys become one text.

    Example:
        >>> as_json({"id2label": {0: "yes", 1: "no"}, "sizes": (3, 4)})
        {'id2label': {'0': 'yes', '1': 'no'}, 'sizes': [3, 4]}
    """
    try:
        return _parse(json.dumps(content, allow_nan=False).encode(), most=DEEPEST - 1)
    except (TypeError, ValueError, RecursionError) as error:
        raise ArtifactError(
            f"cannot write {MANIFEST}: {str(error)[:200]}",
            hint="options must be numbers, texts, or lists or dictionaries of these",
        ) from error


def _parse(raw: bytes, *, most: int = DEEPEST) -> Any:
    """Parse bounded JSON: UTF-8, finite numbers, no key twice, no lone surrogates, nothing too deep."""
    content = json.loads(raw.decode(), object_pairs_hook=_object, parse_constant=_not_finite, parse_float=_finite)
    if _depth(content) > most:
        raise ValueError(f"more than {DEEPEST} objects and lists within one another")
    json.dumps(content, ensure_ascii=False).encode()  # half characters, which nothing can print, are ValueErrors
    return content


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError(f"a key comes twice in an object of {len(pairs)}, {reprlib.repr(list(made))}")
    return made


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _not_finite(text)


def _not_finite(text: str) -> NoReturn:
    raise ValueError(f"{text[:20]} is no finite number")


def _depth(value: Any) -> int:
    """Return the depth of nesting of objects and lists."""
    depth, level = 0, [value]
    while level := [inner for inner in level if isinstance(inner, dict | list)]:
        level = [
            value for container in level for value in (container.values() if isinstance(container, dict) else container)
        ]
        depth += 1
    return depth


def _sha256(file: Path) -> str:
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
