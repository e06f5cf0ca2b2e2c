from pathlib import Path

import pytest

from offramp.data.location import file_sizes, locate, names_in, opened, read_range
from offramp.data.remote import RemotePath
from offramp.errors import InputError


def test_paths_are_whole_and_addresses_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate("pets.csv") == locate(Path("pets.csv")) == tmp_path / "pets.csv"
    assert str(locate("s3://bucket//pets.csv")) == "s3://bucket//pets.csv"
    assert locate(RemotePath("s3://bucket")) == RemotePath("s3://bucket/")


def test_an_address_that_went_through_a_path_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="which lost a slash"):
        locate(Path("gs://bucket/pets.csv"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ab:").mkdir()
    (tmp_path / "ab:" / "pets.csv").touch()
    assert locate(Path("ab:/pets.csv")) == tmp_path / "ab:" / "pets.csv"


def test_names_and_sizes(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.txt").write_bytes(b"four")
    assert names_in(tmp_path) == ["a"]
    assert file_sizes(tmp_path, ["a/b.txt", "a", "c", "x" * 5000, "a\0"]) == [4, None, None, None, None]


def test_a_range_must_be_there_in_full(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    assert read_range(tmp_path / "a", 2, 5) == b"234"
    assert read_range(tmp_path / "a", 3, 3) == b""
    with pytest.raises(InputError, match=r"bytes 8 to 11 of .*a, got 2 of 4: it was cut short"):
        read_range(tmp_path / "a", 8, 12)


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none cannot be read: No such file"), opened(tmp_path / "none"):
        pass
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        read_range(tmp_path, 0, 1)
