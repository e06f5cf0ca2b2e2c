import hashlib
import re
from pathlib import Path

import pytest

from offramp.data import files
from offramp.data.files import dataset_name, file_digest, file_sizes, files_digest
from offramp.errors import InputError
from tests.cases import each


@each("stem", ["train", "my pets", "../..", "", "数据", ".hidden", "a" * 500, "a/b\\c:d\n"])
def test_a_name_can_be_a_folder(stem: str, tmp_path: Path) -> None:
    name = dataset_name(stem, "content")
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name)
    (tmp_path / name).mkdir()


def test_a_digest_is_blake2b_of_the_bytes(tmp_path: Path) -> None:
    content = bytes(range(256)) * 5000
    (tmp_path / "a").write_bytes(content)
    assert file_digest(tmp_path / "a") == hashlib.blake2b(content, digest_size=8).hexdigest()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gone cannot be read"):
        file_digest(tmp_path / "gone")
    with pytest.raises(InputError, match="gone cannot be read"):
        files_digest(tmp_path, ["gone"])


def test_files_of_the_same_names_and_sizes_differ_by_content(tmp_path: Path) -> None:
    for folder, content in (("a", b"12345678"), ("b", b"12345679")):
        (tmp_path / folder).mkdir()
        for name in ("x", "y"):
            (tmp_path / folder / name).write_bytes(content)
    assert files_digest(tmp_path / "a", ["x"]) != files_digest(tmp_path / "b", ["x"])
    assert files_digest(tmp_path / "a", ["x"]) != files_digest(tmp_path / "a", ["y"])


def test_only_the_edges_of_some_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "EDGE_BYTES", 4)
    digests = set()
    for content in (b"head....tail", b"head::::tail", b"HEAD....tail", b"head....TAIL"):
        (tmp_path / "a").write_bytes(content)
        digests.add(files_digest(tmp_path, ["a"]))
    assert len(digests) == 3


def test_sizes_of_files(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.txt").write_bytes(b"four")
    assert file_sizes(tmp_path, ["a/b.txt", "a", "c", "x" * 5000, "a\0"]) == [4, None, None, None, None]
