"""The format itself: what is refused before anything is made of it."""

import hashlib
import json
import math
import os
import random
import struct
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from offramp.artifact._format import (
    DEEPEST,
    LARGEST_MANIFEST,
    Field,
    as_json,
    check_folder,
    is_artifact_file,
    read_artifact,
    write_artifact,
)
from offramp.errors import ArtifactError, InputError
from tests.artifact_examples import change_bytes, change_manifest, tensor_file
from tests.cases import each, refuses

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


def header(entries: Any, size: int = 24) -> bytes:
    """A safetensors file whose header says this, with so many bytes behind it."""
    raw = json.dumps(entries).encode()
    return struct.pack("<Q", len(raw)) + raw + bytes(size)


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


@each("address", ["hf://owner/name", "s3://bucket/x", "file:///tmp/x", Path("hf://owner/name"), Path("s3://bucket/x")])
def test_an_address_is_no_folder(address: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hint = "push_to_hub" if str(address).startswith("hf:") else "copy it there"
    with refuses(InputError, expected="a folder", got=str(address), hint=hint):
        write_artifact(address, CONTENT, TENSORS)
    assert not any(tmp_path.iterdir())


@each("folder_name", ["C:/artifacts/x", "a/b:c", "x:y/z", "/tmp/a"])
def test_folders_that_look_a_little_like_addresses(folder_name: str) -> None:
    check_folder(folder_name)


def test_the_manifest_is_as_documented(folder: Path) -> None:
    raw = (folder / "manifest.json").read_bytes()
    whole = json.loads(raw)
    assert raw == json.dumps(whole, sort_keys=True, indent=1).encode()
    assert sorted(whole) == ["content", "files", "format", "version"]
    assert (whole["format"], whole["version"]) == ("offramp", 1)
    assert sorted(whole["files"]) == ["exits", "points"]
    for name, entry in whole["files"].items():
        raw = (folder / f"{name}-{entry['sha256'][:16]}.safetensors").read_bytes()
        assert entry == {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}


def test_a_flipped_byte_of_tensors_is_refused_by_name(folder: Path) -> None:
    places = random.Random(0)
    for file in folder.glob("*.safetensors"):
        whole = file.read_bytes()
        for place in {0, len(whole) - 1, *(places.randrange(len(whole)) for _ in range(40))}:
            changed = bytearray(whole)
            changed[place] ^= 1 << places.randrange(8)
            file.write_bytes(changed)
            with pytest.raises(ArtifactError, match=file.name):
                read_artifact(folder)
        file.write_bytes(whole)
    read_artifact(folder)


@each("name", [r"manifest\.json", "exits"])
def test_a_file_cut_short_too_long_missing_or_something_else(folder: Path, name: str, tmp_path: Path) -> None:
    file = folder / "manifest.json" if name != "exits" else tensor_file(folder, name)
    whole = file.read_bytes()
    for changed in (b"", whole[:7], whole[: len(whole) // 2], whole[:-1], whole + b"x"):
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


@each(
    "garbage",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[1]",
        b"{}",
        b'{"format": 1e999}',
        b'{"format": NaN}',
        b'{"format": -Infinity}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"9" * 10_000,
        b'{"format": "\\ud800"}',
        '{"format": "offramp"}'.encode("utf-16"),
        b"\xef\xbb\xbf{}",
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
    with pytest.raises(ArtifactError, match="a key comes twice"):
        read_artifact(folder)


def test_a_huge_manifest_is_not_read(folder: Path) -> None:
    with open(folder / "manifest.json", "wb") as file:
        file.truncate(65 * 2**20)
    with pytest.raises(
        ArtifactError, match=rf"manifest\.json: expected at most {LARGEST_MANIFEST} bytes, got {65 * 2**20}"
    ):
        read_artifact(folder)


HOSTILE: list[tuple[str, Callable[[dict[str, Any]], object], str]] = [
    ("deep", lambda whole: whole["content"].update(numbers=nested(DEEPEST)), "within one another"),
    ("half characters", lambda whole: whole["content"].update(text="\ud800"), "surrogates not allowed"),
    ("no format", lambda whole: whole.pop("format"), "format"),
    ("another format", lambda whole: whole.update(format="pickle"), "format"),
    ("no version", lambda whole: whole.pop("version"), "version"),
    ("version 0", lambda whole: whole.update(version=0), "version"),
    ("version as text", lambda whole: whole.update(version="1"), "version"),
    ("version true", lambda whole: whole.update(version=True), "version"),
    ("version huge", lambda whole: whole.update(version=10**4000), "version"),
    ("newer version", lambda whole: whole.update(version=2), "install the offramp that saved it"),
    ("no files", lambda whole: whole.pop("files"), "files"),
    ("files a list", lambda whole: whole.update(files=["exits"]), "files"),
    ("file an integer", lambda whole: whole["files"].update({"exits": 3}), "files.exits"),
    ("no content", lambda whole: whole.pop("content"), "content"),
    ("content a list", lambda whole: whole.update(content=[]), "content"),
    ("no hash", lambda whole: whole["files"]["exits"].pop("sha256"), "sha256"),
    ("hash a number", lambda whole: whole["files"]["exits"].update(sha256=1), "sha256"),
    ("hash of a path", lambda whole: whole["files"]["exits"].update(sha256="../" + "0" * 61), "sha256"),
    ("hash in capitals", lambda whole: whole["files"]["exits"].update(sha256="A" * 64), "sha256"),
    (
        "hash too long",
        lambda whole: whole["files"]["exits"].update(sha256=whole["files"]["exits"]["sha256"] * 2),
        "sha256",
    ),
    ("negative size", lambda whole: whole["files"]["exits"].update(bytes=-1), "bytes"),
    ("huge size", lambda whole: whole["files"]["exits"].update(bytes=2**60), "bytes"),
    ("wrong size", lambda whole: whole["files"]["exits"].update(bytes=2**30), "is not the file that was saved"),
]
HOSTILE += [
    (
        f"file {name!r}",
        lambda whole, name=name: whole["files"].update({name: whole["files"]["exits"]}),  # type: ignore[misc]
        "files",
    )
    for name in (
        "../exits",
        "/etc/passwd",
        "sub/exits",
        "..\\exits",
        "exits\n",
        "exits\x00",
        "Exits",
        "exits.pkl",
        "manifest.json",
        "",
        "a" * 1000,
    )
]


@each(("change", "told"), [rest for _, *rest in HOSTILE])
def test_a_made_up_manifest_is_refused(
    folder: Path, change: Callable[[dict[str, Any]], object], told: str, tmp_path: Path
) -> None:
    (tmp_path / tensor_file(folder, "exits").name).write_bytes(tensor_file(folder, "exits").read_bytes())
    change_manifest(folder, change)
    with pytest.raises(ArtifactError, match=r"manifest\.json|exits-[0-9a-f]{16}\.safetensors") as caught:
        read_artifact(folder)
    assert told in str(caught.value)


def test_a_listed_file_must_be_there_and_an_unlisted_one_is_ignored(folder: Path) -> None:
    (folder / "more.safetensors").write_bytes(b"anything")
    (folder / "code.py").write_text("raise SystemExit")
    assert set(read_artifact(folder).tensors) == {"exits", "points"}
    tensor_file(folder, "points").unlink()
    with pytest.raises(ArtifactError, match=r"points-.*\.safetensors is missing; copy the whole folder"):
        read_artifact(folder)


@each(
    "entries",
    [
        {"weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 2**60]}},
        {"weight": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 24]}},
        {"weight": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 24]}},
        {"weight": {"dtype": "F32", "shape": [-6], "data_offsets": [0, 24]}},
        {"weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [24, 0]}},
        {"weight": {"dtype": "F32", "shape": [1, 3], "data_offsets": [0, 12]}},
        {"weight": {"dtype": "O", "shape": [6], "data_offsets": [0, 24]}},
        {"weight": {"dtype": "F32", "shape": [1] * 5000, "data_offsets": [0, 4]}},
        {"weight": 3},
        [],
    ],
)
def test_a_lying_header_is_refused(folder: Path, entries: Any) -> None:
    change_bytes(folder, "exits", header(entries))
    with pytest.raises(ArtifactError, match=r"exits-.*\.safetensors"):
        read_artifact(folder)


@each("dimensions", [33, 65, 5000])
def test_a_tensor_of_many_dimensions_is_refused(folder: Path, dimensions: int) -> None:
    change_bytes(folder, "exits", header({"w": {"dtype": "F32", "shape": [1] * dimensions, "data_offsets": [0, 4]}}, 4))
    with pytest.raises(ArtifactError, match=f"tensor 'w': expected at most 32 dimensions, got {dimensions}; save"):
        read_artifact(folder)
    with pytest.raises(ArtifactError, match=r"reshape it|cannot write"):
        write_artifact(folder, CONTENT, {"exits": {"w": torch.ones([1] * dimensions)}})


@each("length", [0, 7, 2**62, 2**63])
def test_a_lying_header_length_is_refused(folder: Path, length: int) -> None:
    change_bytes(folder, "exits", struct.pack("<Q", length) + b"{}")
    with pytest.raises(ArtifactError, match=r"exits-.*\.safetensors"):
        read_artifact(folder)


@each("dtype", ["F4", "F6_E2M3", "F6_E3M2", "F8_E8M0", "F8_E4M3", "F8_E5M2", "U16", "U64", "C64", "BOOL", "I8", "F16"])
def test_every_type_is_read_or_refused(folder: Path, dtype: str) -> None:
    for shape in ([24], [12], [3], [32]):
        change_bytes(folder, "exits", header({"weight": {"dtype": dtype, "shape": shape, "data_offsets": [0, 24]}}))
        with pytest.raises(ArtifactError, match=r"exits-.*\.safetensors") if not _reads(folder) else nullcontext():
            read_artifact(folder)


class TestWriting:
    def test_a_folder_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("in the way")
        with pytest.raises(ArtifactError, match="cannot write"):
            write_artifact(tmp_path / "file" / "saved", CONTENT, TENSORS)

    @each("value", [object(), float("nan"), float("inf"), {1, 2}, b"bytes"])
    def test_what_json_does_not_hold(self, tmp_path: Path, value: Any) -> None:
        with pytest.raises(ArtifactError, match="must be numbers, texts, or lists"):
            write_artifact(tmp_path, {"option": value}, {})
        assert not list(tmp_path.iterdir())

    @each("content", [{"deep": nested(40)}, {"deep": nested(DEEPEST - 1)}, {"text": "\ud800"}])
    def test_what_is_too_deep_or_no_text(self, tmp_path: Path, content: Any) -> None:
        with pytest.raises(ArtifactError, match=r"cannot write manifest\.json: .*; options must be"):
            write_artifact(tmp_path, content, {})
        assert not list(tmp_path.iterdir())

    def test_the_deepest_comes_back(self, tmp_path: Path) -> None:
        write_artifact(tmp_path, {"deep": nested(DEEPEST - 2)}, {})
        assert read_artifact(tmp_path).content.value == {"deep": nested(DEEPEST - 2)}

    def test_what_could_not_be_read_again(self, folder: Path) -> None:
        with pytest.raises(ArtifactError, match="save fewer points"):
            write_artifact(folder, {"long": "x" * LARGEST_MANIFEST}, {"exits": {"weight": torch.ones(3)}})
        assert read_artifact(folder).content.value == CONTENT
        assert len([*folder.glob("exits-*")]) == 1  # what was written for nothing is gone

    def test_keys_that_are_numbers_come_back_as_texts(self, tmp_path: Path) -> None:
        names = {index: f"intent {index}" for index in range(1000)}
        write_artifact(tmp_path, {"id2label": names, "sizes": (3, 4)}, {})
        content = read_artifact(tmp_path).content.value
        assert content == {"id2label": {str(key): name for key, name in names.items()}, "sizes": [3, 4]}

    def test_keys_that_would_become_one_are_refused(self) -> None:
        with pytest.raises(ArtifactError, match="a key comes twice"):
            as_json({"names": {1: "a", "1": "b"}})

    def test_the_same_content_over_itself_leaves_the_files_alone(self, folder: Path) -> None:
        before = {file.name: file.stat().st_ino for file in folder.glob("*.safetensors")}
        write_artifact(folder, CONTENT, TENSORS)
        assert {file.name: file.stat().st_ino for file in folder.glob("*.safetensors")} == before
        file = tensor_file(folder, "exits")
        file.write_bytes(bytes(file.stat().st_size))  # of the right name and size, and not what it should be
        write_artifact(folder, CONTENT, TENSORS)
        assert torch.equal(read_artifact(folder).tensors["exits"]["weight"], TENSORS["exits"]["weight"])

    def test_tensors_that_share_memory_are_not_numbers_or_empty(self, tmp_path: Path) -> None:
        shared = torch.tensor([1.0, math.nan, math.inf])
        tensors = {"a": shared, "b": shared[1:], "empty": torch.zeros(0, 3), "one": torch.tensor(True)}
        write_artifact(tmp_path, {}, {"exits": tensors})
        read = read_artifact(tmp_path).tensors["exits"]
        assert torch.equal(read["b"].view(torch.uint8), shared[1:].clone().view(torch.uint8))
        assert read["empty"].shape == (0, 3)
        assert bool(read["one"])

    @each("broken", ["exits-", "points-", "manifest.json"])
    def test_what_is_not_read_back_as_it_was_written_is_refused(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, broken: str
    ) -> None:
        write_bytes = Path.write_bytes

        def forgetful(file: Path, raw: bytes) -> int:
            return write_bytes(file, raw[:-1] + b" " if broken in file.name else raw)

        monkeypatch.setattr(Path, "write_bytes", forgetful)
        with pytest.raises(ArtifactError, match=r"read back and is not what was written.*then save again"):
            write_artifact(folder, {"new": True}, {name: {"new": torch.ones(5)} for name in TENSORS})
        assert read_artifact(folder).content.value == CONTENT

    def test_files_nobody_knows_stay(self, folder: Path) -> None:
        kept = [
            "model.safetensors",
            "notes.txt",
            "exits-0123.safetensors",
            "Exits-0123456789abcdef.safetensors",
            "x.tmp",
        ]
        gone = [
            "exits-0123456789abcdef.safetensors",
            "more-0123456789abcdef.safetensors",
            f"points-0123456789abcdef.safetensors.{'a' * 32}.tmp",
            f"manifest.json.{'0' * 32}.tmp",
            f"exits-0123456789abcdef.safetensors.{'0' * 32}.tmp",
        ]
        for name in kept + gone:
            (folder / name).write_text("x")
            assert is_artifact_file(name) == (name in gone)
        (folder / "backbone-0123456789abcdef.safetensors").mkdir()
        write_artifact(folder, {"new": True}, TENSORS)
        left = {file.name for file in folder.iterdir()}
        assert left >= {*kept, "backbone-0123456789abcdef.safetensors"}
        assert not left & set(gone)
        assert read_artifact(folder).content.value == {"new": True}


class TestField:
    def test_numbers_have_a_range(self) -> None:
        assert Field("file.json", "a", 1).number(low=0, high=1) == 1
        for value in (-0.1, 1.1, 7):
            with pytest.raises(ArtifactError, match="expected a number from 0 to 1, got"):
                Field("file.json", "a", value).number(low=0, high=1)

    @each(
        ("kind", "value"),
        [
            ("number", 10**400),
            ("number", "1"),
            ("number", True),
            ("number", None),
            ("number", -1e31),
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
