from pathlib import Path

import pytest

from offramp.data.remote import RemotePath
from offramp.data.selection import Selection
from offramp.data.shards import expand_pattern, find_shards, is_pattern, map_shards
from offramp.errors import InputError, UnknownNameError


def test_hidden_files_and_others_are_no_shards(tmp_path: Path) -> None:
    for name in ("b.tar", "a.tar", "._a.tar", "a.tar.idx", "a.json"):
        (tmp_path / name).touch()
    assert find_shards(tmp_path, Selection(), ".tar") == ["a.tar", "b.tar"]
    with pytest.raises(InputError, match="expected no split"):
        find_shards(tmp_path, Selection(split="train"), ".tar")


def test_splits_are_never_mixed(tmp_path: Path) -> None:
    for name in ("pets-train-0000.tar", "pets-train-0001.tar", "pets-validation-00.tar"):
        (tmp_path / name).touch()
    with pytest.raises(InputError, match="holds the splits train, validation; choose one"):
        find_shards(tmp_path, Selection(), ".tar")
    assert find_shards(tmp_path, Selection(split="validation"), ".tar") == ["pets-validation-00.tar"]
    with pytest.raises(UnknownNameError):
        find_shards(tmp_path, Selection(split="test"), ".tar")


@pytest.mark.parametrize(
    ("pattern", "folder", "names"),
    [
        ("/a/b-{8..10}.tar", "/a", ["b-8.tar", "b-9.tar", "b-10.tar"]),
        ("/a/{00..01}/b-{1..1}.tar", "/a", ["00/b-1.tar", "01/b-1.tar"]),
        ("/a-{1..2}/c/b.tar", "/", ["a-1/c/b.tar", "a-2/c/b.tar"]),
    ],
)
def test_patterns(pattern: str, folder: str, names: list[str]) -> None:
    assert is_pattern(Path(pattern))
    assert expand_pattern(Path(pattern)) == (Path(folder), names)


def test_patterns_of_addresses() -> None:
    pattern = RemotePath("s3://bucket/{0..1}/b-{08..09}.tar")
    expected = ["0/b-08.tar", "0/b-09.tar", "1/b-08.tar", "1/b-09.tar"]
    assert expand_pattern(pattern) == (RemotePath("s3://bucket"), expected)


@pytest.mark.parametrize("pattern", ["b-{3..2}.tar", "b-{0..999999999999}.tar", "{0..9999}/b-{0..9999}.tar"])
def test_ranges_that_make_no_sense_are_refused(pattern: str) -> None:
    with pytest.raises(InputError, match="expected ranges such as"):
        expand_pattern(Path(pattern))


@pytest.mark.parametrize("folder", [Path("pets"), RemotePath("memory://pets")])
def test_shards_are_told_in_order(folder: Path) -> None:
    names = [f"{shard}.tar" for shard in range(50)]
    assert map_shards(lambda shard: shard.name, folder, names) == names
