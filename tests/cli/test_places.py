"""Places that cannot be written to."""

from pathlib import Path

import pytest

from offramp.artifact._format import write_artifact
from offramp.cli.places import check_artifact, check_writable
from offramp.errors import InputError
from tests.cases import each, refuses


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    check_writable(tmp_path / "a" / "b", "--out")
    assert not any(tmp_path.iterdir())


def test_what_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    check_writable(tmp_path / "a", "--out")
    check_writable(tmp_path / "a" / "b", "--out")
    assert [place.name for place in tmp_path.rglob("*")] == ["a"]


@each("place", ["file", "file/below", "file/far/below", "x" * 300])
def test_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot write into .*; choose another --store"):
        check_writable(tmp_path / place, "--store")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


class TestArtifact:
    def test_what_an_interrupted_save_has_left_is_in_nobodys_way(self, tmp_path: Path) -> None:
        write_artifact(tmp_path, {}, {"exits": {}})
        check_artifact(tmp_path)
        (tmp_path / "manifest.json").unlink()
        (tmp_path / ".lock.owner").write_text("process 1 on machine")
        (tmp_path / f"manifest.json.{'0' * 32}.tmp").write_text("x")
        check_artifact(tmp_path)

    @each("address", ["hf://owner/name", "s3://bucket/x"])
    def test_an_address_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
        monkeypatch.chdir(tmp_path)
        with refuses(InputError, expected="a folder"):
            check_artifact(Path(address))
        assert not any(tmp_path.iterdir())

    @each("name", ["diary.txt", "model.safetensors", ".hidden"])
    def test_a_folder_of_other_things_is_refused(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_text("mine")
        with pytest.raises(InputError, match="is no artifact; choose another --out"):
            check_artifact(tmp_path)
