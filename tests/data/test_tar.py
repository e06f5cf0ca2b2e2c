import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from offramp.data.tar import read_members
from offramp.errors import InputError
from tests.data.examples import add_member


def write(path: Path, contents: dict[str, bytes], kind: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, "w", format=kind) as archive:
        for name, content in contents.items():
            add_member(archive, name, content)
    return path


@pytest.mark.parametrize("kind", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_members_lie_where_it_says(tmp_path: Path, kind: int) -> None:
    long = "f" * 60 + "/" + "n" * 90 + ".txt"
    contents = {"a.txt": b"one", "b.txt": b"", long: b"x" * 513, "c.txt": b"last"}
    path = write(tmp_path / "a.tar", contents, kind)
    whole = path.read_bytes()
    found = {name: (whole[start : start + size], read()) for name, start, size, read in read_members(path)}
    assert found == {name: (content, content) for name, content in contents.items()}


def test_folders_and_links_are_passed_over(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, kind in (("folder", tarfile.DIRTYPE), ("link", tarfile.SYMTYPE)):
            member = tarfile.TarInfo(name)
            member.type = kind
            archive.addfile(member)
        add_member(archive, "a.txt", b"one")
    assert [name for name, *_ in read_members(tmp_path / "a.tar")] == ["a.txt"]


def test_only_headers_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.tar", {f"{row}.bin": bytes(1 << 20) for row in range(8)})
    taken = []

    class Counted(io.BufferedReader):
        def read(self, size: int | None = -1, /) -> bytes:
            content = super().read(size)
            taken.append(len(content))
            return content

    monkeypatch.setattr("builtins.open", lambda file, mode: Counted(io.FileIO(file, mode)))
    assert len(list(read_members(path))) == 8
    assert sum(taken) < 20 * tarfile.BLOCKSIZE


BREAKS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "cut inside a member": (lambda whole: whole[:1700], "cannot be read as tar: unexpected end of data"),
    "cut inside a header": (lambda whole: whole[:1100], "is cut short: its end is missing at byte 1024"),
    "cut between members": (lambda whole: whole[:1024], "is cut short: its end is missing at byte 1024"),
    "cut before the end": (lambda whole: whole[:2048], "is cut short: its end is missing at byte 2048"),
    "a broken header": (lambda whole: whole[:1024] + b"?" * 512 + whole[1536:], "is broken at byte 1024"),
    "no tar": (lambda whole: b"?" * 2048, "cannot be read as tar"),
    "empty": (lambda whole: b"", "cannot be read as tar: empty file"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_what_is_broken_is_told_and_never_a_shorter_file(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "a.tar", {"a.txt": b"one", "b.txt": b"x" * 300}, tarfile.USTAR_FORMAT)
    spoil, message = BREAKS[name]
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(InputError, match=rf"a\.tar {message}.*; put it back whole, or write it anew"):
        list(read_members(path))
