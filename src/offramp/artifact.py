"""The format of a saved frontier: a folder with one manifest and safetensors files, every byte of it vouched for.

docs/artifact.md specifies it. Reading never runs code found in an artifact: it holds numbers, texts and names, and what
a name stands for is looked up where the caller allows it.
"""

import hashlib
import json
import re
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from offramp.errors import ArtifactError

__all__ = ["VERSION", "Artifact", "Field", "read_artifact", "write_artifact"]

VERSION = 4
"""Of the format. A reader takes this version and, through `_UPGRADES`, every older one."""

MANIFEST = "manifest.json"

LARGEST_MANIFEST = 4 * 2**20
"""Bytes of a manifest at most: one of 36 exits and 400 points has 0.2 MB. One made to be slow may take some seconds and
thirty times its size in memory before it is refused."""

DEEPEST = 32
"""Objects and lists within one another at most."""

LONGEST = 1000
"""Characters of a text at most."""

_UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {
    1: lambda content: {**content, "classes": []},  # version 2 names classes, and attaches files to preprocessing
    2: lambda content: {**content, "bare_ms": None},  # version 3 knows milliseconds, and who leaves where at a point
    3: lambda content: {**content, "calibration": None},  # version 4 has the losses that promises are made from
}
"""For each older version, the step from its content to the next version's."""

_FILE_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}\.safetensors")


@dataclass(frozen=True)
class Artifact:
    """What a folder holds, bytes checked, meaning not yet."""

    content: "Field"
    """The manifest's content."""
    tensors: Mapping[str, Mapping[str, Tensor]]
    """The tensors of each file, by the file's name without its suffix."""


@dataclass(frozen=True)
class Field:
    """A value of the manifest that knows where it stands, so that what is wrong with it can be told.

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
        """The error that says what was expected here."""
        shown = reprlib.repr(self.value)
        shown = shown if len(shown) < 80 else shown[:77] + "..."
        return ArtifactError(f"{self.file}, field '{self.place}': expected {expected}, got {shown}")

    def at(self, name: str) -> "Field":
        """An entry of an object."""
        entries = self.entries()
        if name not in entries:
            raise ArtifactError(f"{self.file}, field '{self._inside(name)}': is missing; save the frontier again")
        return entries[name]

    def entries(self) -> dict[str, "Field"]:
        """All entries of an object."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        return {key: Field(self.file, self._inside(key), value) for key, value in self.value.items()}

    def items(self) -> list["Field"]:
        """All entries of a list."""
        if not isinstance(self.value, list):
            raise self.wrong("a list")
        return [Field(self.file, f"{self.place}[{index}]", value) for index, value in enumerate(self.value)]

    def integer(self, *, low: int = 0, high: int = 10**9) -> int:
        """A whole number in a range."""
        if type(self.value) is not int or not low <= self.value <= high:
            raise self.wrong(f"a whole number of at least {low}" + (f" and at most {high}" if high < 10**9 else ""))
        return int(self.value)

    def integers(self, *, low: int = 0, high: int = 10**9) -> tuple[int, ...]:
        """A list of whole numbers in a range."""
        return tuple(item.integer(low=low, high=high) for item in self.items())

    def number(self) -> float:
        """A finite number."""
        # Compared, not converted: whole numbers may be too large for a float.
        if type(self.value) not in (int, float) or not abs(self.value) <= 1e300:
            raise self.wrong("a number")
        return float(self.value)

    def text(self) -> str:
        """A text."""
        if not isinstance(self.value, str) or len(self.value) > LONGEST:
            raise self.wrong(f"a text of at most {LONGEST} characters")
        return self.value

    def flag(self) -> bool:
        """True or false."""
        if not isinstance(self.value, bool):
            raise self.wrong("true or false")
        return self.value

    def _inside(self, name: str) -> str:
        return f"{self.place}.{name}" if self.place else name


def write_artifact(path: str | Path, content: Mapping[str, Any], tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Write an artifact; the manifest comes last, so that one that was interrupted is not taken for whole.

    Args:
        path: A folder; made if it is not there. An artifact in it is replaced.
        content: What the manifest says, as JSON holds it.
        tensors: The tensors of each file, by a name of lower-case letters, digits and underscores.
    """
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST).unlink(missing_ok=True)
        files = {}
        for name, named in sorted(tensors.items()):
            file = folder / f"{name}.safetensors"
            assert _FILE_NAME.fullmatch(file.name), file.name
            file.unlink(missing_ok=True)  # or a link that lies there would be followed
            # Copied: safetensors refuses tensors that share memory.
            save_file({key: tensor.detach().cpu().clone().contiguous() for key, tensor in named.items()}, file)
            files[file.name] = {"bytes": file.stat().st_size, "sha256": _sha256(file)}
        whole = {"format": "offramp", "version": VERSION, "files": files, "content": dict(content)}
        raw = _sealed(whole)
        if len(raw) > LARGEST_MANIFEST or _depth(whole) > DEEPEST:
            raise ArtifactError(
                f"cannot write {folder / MANIFEST}: {len(raw)} bytes and {_depth(whole)} levels, at most "
                f"{LARGEST_MANIFEST} and {DEEPEST} are read again; save fewer points, or plainer options"
            )
        (folder / MANIFEST).write_bytes(raw)
    except ArtifactError:
        raise
    except (OSError, SafetensorError) as error:
        raise ArtifactError(f"cannot write {folder}: {error}; make room or give permission, then save again") from error


def read_artifact(path: str | Path) -> Artifact:
    """Read an artifact; refuse it where a byte, a name or a size is not what the manifest says.

    Args:
        path: The folder.

    Returns:
        Its content and tensors.
    """
    folder = Path(path)
    manifest = Field(str(folder / MANIFEST), "", _unsealed(folder / MANIFEST))
    if manifest.at("format").value != "offramp":
        raise manifest.at("format").wrong("'offramp'")
    version = manifest.at("version").integer(low=1, high=10**6)
    if version > VERSION:
        raise ArtifactError(
            f"{manifest.file} has version {version}, this offramp reads up to {VERSION}; install a newer offramp"
        )
    tensors = {}
    for name, entry in manifest.at("files").entries().items():
        if not _FILE_NAME.fullmatch(name):
            raise Field(manifest.file, "files", name).wrong("names such as 'exits.safetensors'")
        tensors[name.removesuffix(".safetensors")] = _read_tensors(folder / name, entry)
    content = {key: entry.value for key, entry in manifest.at("content").entries().items()}
    try:
        for older in range(version, VERSION):
            content = _UPGRADES[older](content)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ArtifactError(f"{manifest.file}, field 'content': is not of version {version}: {error!r}") from error
    return Artifact(Field(manifest.file, "content", content), tensors)


def _read_tensors(file: Path, entry: Field) -> dict[str, Tensor]:
    """The tensors of a file, once its size and hash are those of its entry."""
    expected_bytes, expected_hash = entry.at("bytes").integer(high=2**40), entry.at("sha256").text()
    try:
        if file.is_symlink() or not file.is_file():
            raise ArtifactError(f"{file} is missing; copy the whole folder, or save the frontier again")
        size = file.stat().st_size
        if size != expected_bytes or _sha256(file) != expected_hash:
            raise ArtifactError(
                f"{file} is not the file that was saved: {size} bytes where the manifest says {expected_bytes}, or "
                "other content; copy the folder again, or save the frontier again"
            )
        with safe_open(file, framework="pt") as opened:
            return {key: opened.get_tensor(key).clone() for key in opened.keys()}
    except ArtifactError:
        raise
    # The latter three where a header asks torch for a type or a shape it does not have.
    except (OSError, SafetensorError, AttributeError, RuntimeError, TypeError) as error:
        raise ArtifactError(f"cannot read {file}: {error}; save the frontier again") from error


def _sealed(whole: Mapping[str, Any]) -> bytes:
    """A manifest's bytes: canonical JSON that carries the hash of itself without it."""
    try:
        plain = _canonical(whole)
    except (TypeError, ValueError) as error:
        raise ArtifactError(f"cannot write {MANIFEST}: {error}; options must be numbers, texts or lists") from error
    return _canonical({**json.loads(plain), "seal": hashlib.sha256(plain).hexdigest()})


def _canonical(whole: Mapping[str, Any]) -> bytes:
    return json.dumps(whole, sort_keys=True, indent=1, allow_nan=False).encode()


def _unsealed(file: Path) -> dict[str, Any]:
    """A manifest's content, if its bytes are what its seal says."""
    try:
        if file.is_symlink() or not file.is_file():
            raise ArtifactError(f"{file} is not there: no frontier was saved in this folder, or saving was interrupted")
        if file.stat().st_size > LARGEST_MANIFEST:
            raise ArtifactError(f"{file} has {file.stat().st_size} bytes, expected {LARGEST_MANIFEST} at most")
        raw = file.read_bytes()
    except ArtifactError:
        raise
    except OSError as error:
        raise ArtifactError(f"cannot read {file}: {error}") from error
    try:
        content = json.loads(raw)
        canonical = isinstance(content, dict) and _depth(content) <= DEEPEST and _canonical(content) == raw
        intact = canonical and content.pop("seal", None) == hashlib.sha256(_canonical(content)).hexdigest()
        json.dumps(content, ensure_ascii=False).encode()  # half characters, which nothing can print, are ValueErrors
    except (ValueError, RecursionError):
        intact = False
    if not intact:
        raise ArtifactError(
            f"{file}, field 'seal': does not match the file, or the file is not what `offramp.save` writes; copy it "
            "again, or save the frontier again"
        )
    whole: dict[str, Any] = content
    return whole


def _depth(value: Any) -> int:
    """How many objects and lists are within one another."""
    depth, level = 0, [value]
    while level := [inner for inner in level if isinstance(inner, dict | list)]:
        level = [one for inner in level for one in (inner.values() if isinstance(inner, dict) else inner)]
        depth += 1
    return depth


def _sha256(file: Path) -> str:
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
