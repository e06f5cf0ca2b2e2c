"""Places that cannot be written to."""

from pathlib import Path

import pytest

from offramp.cli.places import check_writable
from offramp.errors import InputError


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    check_writable(tmp_path / "a" / "b", "--out")
    assert not any(tmp_path.iterdir())


def test_what_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    check_writable(tmp_path / "a", "--out")
    check_writable(tmp_path / "a" / "b", "--out")
    assert [place.name for place in tmp_path.rglob("*")] == ["a"]


@pytest.mark.parametrize("place", ["file", "file/below", "file/far/below", "x" * 300])
def test_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write into .*; choose another --store"):
        check_writable(tmp_path / place, "--store")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
