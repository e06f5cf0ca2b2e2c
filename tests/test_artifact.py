"""The format itself: what is refused before anything is made of it."""

import json
import os
import random
import struct
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

import offramp.artifact
from offramp.artifact import DEEPEST, LARGEST_MANIFEST, Field, _sealed, read_artifact, write_artifact
from offramp.errors import ArtifactError
from tests.artifact_examples import rehash, reseal

CONTENT = {"numbers": [1, 2.5], "text": "ä", "nested": {"flag": True, "none": None}}
TENSORS = {"exits": {"weight": torch.arange(6.0).view(2, 3)}, "points": {"cost": torch.ones(1, dtype=torch.float64)}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_artifact(tmp_path / "saved", CONTENT, TENSORS)
    return tmp_path / "saved"


def nested(levels: int) -> Any:
    made: Any = 1
    for _ in range(levels):
        made = [made]
    return made


def header(file: Path, entries: dict[str, Any], size: int = 24) -> None:
    """A safetensors file whose header says this, with so many bytes behind it."""
    raw = json.dumps(entries).encode()
    file.write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(size))


def _reads(folder: Path) -> bool:
    try:
        read_artifact(folder)
    except ArtifactError:
        return False
    return True


def test_round_trip(folder: Path) -> None:
    found = read_artifact(folder)
    assert found.content.value == CONTENT
    assert {name: dict(named) for name, named in found.tensors.items()}.keys() == TENSORS.keys()
    for name, named in TENSORS.items():
        for key, tensor in named.items():
            assert torch.equal(found.tensors[name][key], tensor)
            assert found.tensors[name][key].dtype == tensor.dtype


def test_the_same_content_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    write_artifact(tmp_path / "again", dict(reversed(CONTENT.items())), TENSORS)
    for file in folder.iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()


def test_the_manifest_is_as_documented(folder: Path) -> None:
    raw = (folder / "manifest.json").read_bytes()
    whole = json.loads(raw)
    assert raw == json.dumps(whole, sort_keys=True, indent=1).encode()
    assert sorted(whole) == ["content", "files", "format", "seal", "version"]
    assert (whole["format"], whole["version"]) == ("offramp", 4)


def test_a_flipped_byte_anywhere_is_refused_by_name(folder: Path) -> None:
    places = random.Random(0)
    for file in folder.iterdir():
        whole = file.read_bytes()
        for place in {0, len(whole) - 1, *(places.randrange(len(whole)) for _ in range(40))}:
            changed = bytearray(whole)
            changed[place] ^= 1 << places.randrange(8)
            file.write_bytes(changed)
            with pytest.raises(ArtifactError, match=file.name):
                read_artifact(folder)
        file.write_bytes(whole)
    read_artifact(folder)


@pytest.mark.parametrize("name", ["manifest.json", "exits.safetensors"])
def test_a_file_cut_short_too_long_missing_or_something_else(folder: Path, name: str, tmp_path: Path) -> None:
    file = folder / name
    whole = file.read_bytes()
    for changed in (b"", whole[:7], whole[: len(whole) // 2], whole[:-1], whole + b" "):
        file.write_bytes(changed)
        with pytest.raises(ArtifactError, match=name):
            read_artifact(folder)
    file.unlink()
    with pytest.raises(ArtifactError, match=name):
        read_artifact(folder)
    file.mkdir()
    with pytest.raises(ArtifactError, match=name):
        read_artifact(folder)
    file.rmdir()
    (tmp_path / "elsewhere").write_bytes(whole)
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ArtifactError, match=name):
        read_artifact(folder)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ArtifactError, match=name):
        read_artifact(folder)


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[1]",
        b"{}",
        b'{"seal": 1e999}',
        b'{"seal": NaN}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"9" * 10_000,
        b'{"seal": "\\ud800"}',
        b"PK\x03\x04",
        b"\x80\x04\x95",
    ],
)
def test_garbage_is_refused_by_name(folder: Path, garbage: bytes) -> None:
    (folder / "manifest.json").write_bytes(garbage)
    with pytest.raises(ArtifactError, match=r"manifest\.json"):
        read_artifact(folder)


def test_a_key_that_comes_twice_is_refused(folder: Path) -> None:
    file = folder / "manifest.json"
    file.write_bytes(file.read_bytes().replace(b' "format": "offramp",', b' "format": "no",\n "format": "offramp",'))
    with pytest.raises(ArtifactError, match="seal"):
        read_artifact(folder)


def test_a_huge_manifest_is_not_read(folder: Path) -> None:
    with open(folder / "manifest.json", "wb") as file:
        file.truncate(65 * 2**20)
    with pytest.raises(ArtifactError, match=rf"manifest\.json has {65 * 2**20} bytes, expected {LARGEST_MANIFEST}"):
        read_artifact(folder)


HOSTILE: list[tuple[str, Callable[[dict[str, Any]], object], str]] = [
    ("deep", lambda whole: whole["content"].update(numbers=nested(DEEPEST)), "seal"),
    ("half characters", lambda whole: whole["content"].update(text="\ud800"), "seal"),
    ("no format", lambda whole: whole.pop("format"), "format"),
    ("another format", lambda whole: whole.update(format="pickle"), "format"),
    ("no version", lambda whole: whole.pop("version"), "version"),
    ("version 0", lambda whole: whole.update(version=0), "version"),
    ("version as text", lambda whole: whole.update(version="1"), "version"),
    ("version true", lambda whole: whole.update(version=True), "version"),
    ("version huge", lambda whole: whole.update(version=10**4000), "version"),
    ("newer version", lambda whole: whole.update(version=5), "install a newer offramp"),
    ("no files", lambda whole: whole.pop("files"), "files"),
    ("files a list", lambda whole: whole.update(files=["exits.safetensors"]), "files"),
    ("file an integer", lambda whole: whole["files"].update({"exits.safetensors": 3}), "files.exits"),
    ("no content", lambda whole: whole.pop("content"), "content"),
    ("content a list", lambda whole: whole.update(content=[]), "content"),
    ("no hash", lambda whole: whole["files"]["exits.safetensors"].pop("sha256"), "sha256"),
    ("hash a number", lambda whole: whole["files"]["exits.safetensors"].update(sha256=1), "sha256"),
    ("negative size", lambda whole: whole["files"]["exits.safetensors"].update(bytes=-1), "bytes"),
    ("huge size", lambda whole: whole["files"]["exits.safetensors"].update(bytes=2**60), "bytes"),
    ("wrong size", lambda whole: whole["files"]["exits.safetensors"].update(bytes=2**30), "exits.safetensors"),
]
HOSTILE += [
    (
        f"file {name!r}",
        lambda whole, name=name: whole["files"].update({name: whole["files"]["exits.safetensors"]}),  # type: ignore[misc]
        "files",
    )
    for name in (
        "../exits.safetensors",
        "/etc/passwd",
        "/tmp/exits.safetensors",
        "sub/exits.safetensors",
        "..\\exits.safetensors",
        "exits.safetensors\n",
        "exits.safetensors\x00",
        "Exits.safetensors",
        "exits.pkl",
        ".safetensors",
        "manifest.json",
        "",
        "a" * 1000 + ".safetensors",
    )
]


@pytest.mark.parametrize(("change", "told"), [pytest.param(*rest, id=name) for name, *rest in HOSTILE])
def test_a_made_up_manifest_is_refused(
    folder: Path, change: Callable[[dict[str, Any]], object], told: str, tmp_path: Path
) -> None:
    (tmp_path / "exits.safetensors").write_bytes((folder / "exits.safetensors").read_bytes())
    reseal(folder, change)
    with pytest.raises(ArtifactError, match=r"manifest\.json|exits\.safetensors") as caught:
        read_artifact(folder)
    assert told in str(caught.value)


def test_a_listed_file_must_be_there_and_an_unlisted_one_is_ignored(folder: Path) -> None:
    (folder / "more.safetensors").write_bytes(b"anything")
    (folder / "code.py").write_text("raise SystemExit")
    assert set(read_artifact(folder).tensors) == {"exits", "points"}
    (folder / "points.safetensors").unlink()
    with pytest.raises(ArtifactError, match=r"points\.safetensors is missing"):
        read_artifact(folder)


@pytest.mark.parametrize(
    "entries",
    [
        {"weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 2**60]}},
        {"weight": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 24]}},
        {"weight": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 24]}},
        {"weight": {"dtype": "F32", "shape": [-6], "data_offsets": [0, 24]}},
        {"weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [24, 0]}},
        {"weight": {"dtype": "F32", "shape": [1, 3], "data_offsets": [0, 12]}},
        {"weight": {"dtype": "O", "shape": [6], "data_offsets": [0, 24]}},
        {"weight": 3},
        [],
    ],
)
def test_a_lying_header_is_refused(folder: Path, entries: dict[str, Any]) -> None:
    header(folder / "exits.safetensors", entries)
    rehash(folder, "exits.safetensors")
    with pytest.raises(ArtifactError, match=r"exits\.safetensors"):
        read_artifact(folder)


@pytest.mark.parametrize("length", [0, 7, 2**62, 2**63])
def test_a_lying_header_length_is_refused(folder: Path, length: int) -> None:
    (folder / "exits.safetensors").write_bytes(struct.pack("<Q", length) + b"{}")
    rehash(folder, "exits.safetensors")
    with pytest.raises(ArtifactError, match=r"exits\.safetensors"):
        read_artifact(folder)


@pytest.mark.parametrize(
    "dtype", ["F4", "F6_E2M3", "F6_E3M2", "F8_E8M0", "F8_E4M3", "F8_E5M2", "U16", "U64", "C64", "BOOL", "I8", "F16"]
)
def test_every_type_is_read_or_refused(folder: Path, dtype: str) -> None:
    for shape in ([24], [12], [3], [32]):
        header(folder / "exits.safetensors", {"weight": {"dtype": dtype, "shape": shape, "data_offsets": [0, 24]}})
        rehash(folder, "exits.safetensors")
        with pytest.raises(ArtifactError, match=r"exits\.safetensors") if not _reads(folder) else nullcontext():
            read_artifact(folder)


class TestUpgrades:
    def test_an_older_version_is_brought_up(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        now = offramp.artifact.VERSION
        monkeypatch.setattr(offramp.artifact, "VERSION", now + 2)
        steps = {
            now: lambda content: {**content, "steps": [1]},
            now + 1: lambda content: {"steps": [*content["steps"], 2]},
        }
        monkeypatch.setattr(offramp.artifact, "_UPGRADES", steps)
        assert read_artifact(folder).content.value == {"steps": [1, 2]}

    @pytest.mark.parametrize("step", [lambda content: content["gone"], lambda content: content + 1])
    def test_content_that_does_not_come_up_is_refused(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, step: Any
    ) -> None:
        now = offramp.artifact.VERSION
        monkeypatch.setattr(offramp.artifact, "VERSION", now + 1)
        monkeypatch.setattr(offramp.artifact, "_UPGRADES", {now: step})
        with pytest.raises(ArtifactError, match=rf"manifest\.json, field 'content': is not of version {now}"):
            read_artifact(folder)

    def test_every_older_version_has_a_step(self) -> None:
        assert sorted(offramp.artifact._UPGRADES) == list(range(1, offramp.artifact.VERSION))


class TestWriting:
    def test_a_folder_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("in the way")
        with pytest.raises(ArtifactError, match="cannot write"):
            write_artifact(tmp_path / "file" / "saved", CONTENT, TENSORS)

    @pytest.mark.parametrize("value", [object(), float("nan"), float("inf"), {1, 2}, b"bytes"])
    def test_what_json_does_not_hold(self, tmp_path: Path, value: Any) -> None:
        with pytest.raises(ArtifactError, match="must be numbers, texts or lists"):
            write_artifact(tmp_path, {"option": value}, {})
        assert not (tmp_path / "manifest.json").exists()

    @pytest.mark.parametrize("content", [{"deep": nested(40)}, {"long": "x" * LARGEST_MANIFEST}])
    def test_what_could_not_be_read_again(self, tmp_path: Path, content: Any) -> None:
        with pytest.raises(ArtifactError, match="are read again"):
            write_artifact(tmp_path, content, {})
        assert not (tmp_path / "manifest.json").exists()

    def test_an_interrupted_one_is_not_taken_for_whole(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted(*_: Any) -> None:
            raise OSError("no space left")

        monkeypatch.setattr(offramp.artifact, "save_file", interrupted)
        with pytest.raises(ArtifactError, match="no space left; make room"):
            write_artifact(folder, CONTENT, TENSORS)
        with pytest.raises(ArtifactError, match="saving was interrupted"):
            read_artifact(folder)

    def test_a_link_that_lies_there_is_not_followed(self, folder: Path, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.write_bytes(b"mine")
        for name in ("exits.safetensors", "manifest.json"):
            (folder / name).unlink()
            (folder / name).symlink_to(outside)
        write_artifact(folder, CONTENT, TENSORS)
        assert outside.read_bytes() == b"mine"
        read_artifact(folder)


class TestField:
    @pytest.mark.parametrize(
        ("kind", "value"),
        [
            ("number", 10**400),
            ("number", "1"),
            ("number", True),
            ("number", None),
            ("integer", 1.0),
            ("integer", True),
            ("integer", -1),
            ("integer", 10**400),
            ("integers", [0, "1"]),
            ("integers", 1),
            ("text", 1),
            ("text", "x" * 1001),
            ("flag", 1),
            ("flag", "true"),
            ("entries", []),
            ("items", {}),
            ("items", "text"),
        ],
    )
    def test_refuses_by_file_and_field(self, kind: str, value: Any) -> None:
        with pytest.raises(ArtifactError, match=r"^file\.json, field 'a\.b(\[1\])?': expected ") as caught:
            getattr(Field("file.json", "a.b", value), kind)()
        assert len(str(caught.value)) < 300

    def test_a_seal_is_of_everything_but_itself(self) -> None:
        assert json.loads(_sealed({"a": 1}))["seal"] != json.loads(_sealed({"a": 2}))["seal"]
