import hashlib
import re
from pathlib import Path

import pytest

from offramp.data import _files as files
from offramp.data._files import file_size, hash_file, hash_files, name_dataset
from offramp.errors import InputError
from tests.cases import each


@each("stem", ["train", "my pets", "../..", "", "数据", ".hidden", "a" * 500, "a/b\\c:d\n"])
def test_a_name_can_be_a_folder(stem: str, tmp_path: Path) -> None:
    name = name_dataset(stem, "content")
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name)
    (tmp_path / name).mkdir()


def test_a_digest_is_blake2b_of_the_bytes(tmp_path: Path) -> None:
    content = bytes(range(256)) * 5000
    (tmp_path / "a").write_bytes(content)
    assert hash_file(tmp_path / "a") == hashlib.blake2b(content, digest_size=8).hexdigest()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gone cannot be read"):
        hash_file(tmp_path / "gone")
    with pytest.raises(InputError, match="gone cannot be read"):
        hash_files(tmp_path, ["gone"])


def test_files_of_the_same_names_and_sizes_differ_by_content(tmp_path: Path) -> None:
    for folder, content in (("a", b"12345678"), ("b", b"12345679")):
        (tmp_path / folder).mkdir()
        for name in ("x", "y"):
            (tmp_path / folder / name).write_bytes(content)
    assert hash_files(tmp_path / "a", ["x"]) != hash_files(tmp_path / "b", ["x"])
    assert hash_files(tmp_path / "a", ["x"]) != hash_files(tmp_path / "a", ["y"])


def test_only_the_edges_of_some_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "EDGE_BYTES", 4)
    digests = set()
    for content in (b"head....tail", b"head::::tail", b"HEAD....tail", b"head....TAIL"):
        (tmp_path / "a").write_bytes(content)
        digests.add(hash_files(tmp_path, ["a"]))
    assert len(digests) == 3


def test_sizes_of_files(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.txt").write_bytes(b"four")
    sizes = [file_size(tmp_path / name) for name in ("a/b.txt", "a", "c", "x" * 5000, "a\0")]
    assert sizes == [4, None, None, None, None]
