import hashlib
import os
import signal
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from offramp._files import as_place, file_sha256, hold_lock, write_atomically
from offramp._remote import RemotePath, find_file_system
from offramp.errors import BusyError, InputError, MissingExtraError, StoreError
from tests.cases import refuses

HOLDER = """
import sys, time
from pathlib import Path
from offramp._files import hold_lock
with hold_lock(Path(sys.argv[1]), wait_s=0):
    print("held", flush=True)
    time.sleep(60)
"""


def holder(lock: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(lock)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_lock_refuses_a_second_holder_names_the_first_and_is_released_by_a_kill(tmp_path: Path) -> None:
    lock = tmp_path / "answers.lock"
    with holder(lock) as process:
        for _ in range(3):  # refusing does not take the holder's name away
            with pytest.raises(BusyError) as caught, hold_lock(lock, wait_s=0):
                pass
            assert f"process {process.pid} " in str(caught.value)
        process.send_signal(signal.SIGKILL)
        process.wait()
        with hold_lock(lock, wait_s=5):
            assert f"process {os.getpid()} " in (tmp_path / "answers.lock.owner").read_text()


def test_a_lock_is_free_again_after_it_was_held(tmp_path: Path) -> None:
    for _ in range(2):
        with hold_lock(tmp_path / "lock", wait_s=0):
            pass
    assert not (tmp_path / "lock.owner").exists()


def test_what_ends_in_an_error_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("old")

    def write() -> None:
        with write_atomically(file) as temporary:
            temporary.write_text("new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
    assert file.read_text() == "old"


def test_a_symbolic_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    target, link = tmp_path / "precious.txt", tmp_path / "link.txt"
    target.write_text("precious")
    link.symlink_to(target)
    with write_atomically(link) as temporary:
        temporary.write_text("new")
    assert target.read_text() == "precious"
    assert not link.is_symlink()
    assert link.read_text() == "new"


def test_addresses_are_told_from_folders(tmp_path: Path) -> None:
    for address in ("s3://bucket/store", "https://host/folder"):
        assert isinstance(as_place(address), RemotePath)
    with pytest.raises(InputError, match="an address as text"):
        as_place(Path("s3://bucket/store"))
    for folder in (tmp_path, "features/store", Path("features"), "C:/features", "a::b", "file:a"):
        assert as_place(folder) == Path(folder)
    assert isinstance(as_place("simplecache::s3://bucket/store"), RemotePath)


def test_folders_and_addresses_have_the_same_path_in_every_place(tmp_path: Path) -> None:
    (tmp_path / "a b").write_text("content")
    for address in (f"file://{tmp_path}/a%20b", str(tmp_path / "a b")):
        files, path = find_file_system(address)
        assert Path(path) == as_place(address) == tmp_path / "a b"
        assert files.cat_file(path) == b"content"
    assert find_file_system(str(tmp_path / "a::b"))[1] == str(tmp_path / "a::b")


def test_places_that_fsspec_cannot_open(monkeypatch: pytest.MonkeyPatch) -> None:
    with refuses(InputError, problem="nothing://bucket"):
        find_file_system("nothing://bucket")
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with refuses(MissingExtraError, problem="s3://bucket", hint="pip install s3fs"):
        find_file_system("s3://bucket")


class TestRemotePath:
    def test_an_object_is_read_whole_and_in_pieces(self, tmp_path: Path) -> None:
        place, content = RemotePath("memory://bucket/a"), bytes(range(256)) * 10
        (tmp_path / "a").write_bytes(content)
        place.upload(tmp_path / "a")
        assert (place.exists(), place.size(), place.read_bytes()) == (True, 2560, content)
        with place.open() as file:
            assert file.read(3) + file.read() == content
        assert file_sha256(place) == hashlib.sha256(content).hexdigest()
        place.download(tmp_path / "b")
        assert (tmp_path / "b").read_bytes() == content
        assert not RemotePath("memory://bucket/b").exists()

    def test_errors_of_the_caller_are_not_the_stores(self, tmp_path: Path) -> None:
        (tmp_path / "a").touch()
        RemotePath("memory://bucket/c").upload(tmp_path / "a")
        with pytest.raises(ZeroDivisionError), RemotePath("memory://bucket/c").open():
            raise ZeroDivisionError

    def test_errors_of_the_store_are_os_errors(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "a").write_text("content")
        place = RemotePath("memory://bucket/d")
        place.upload(tmp_path / "a")

        class Torn(BytesIO):
            def readinto(self, buffer: Any) -> int:
                raise RuntimeError("the connection was lost")

        def fail(*arguments: Any) -> None:
            raise RuntimeError("no credentials")

        monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.open", lambda *a, **b: Torn())
        with pytest.raises(OSError, match="the connection was lost"), place.open() as file:
            file.read(1)
        with refuses(StoreError, problem="cannot read memory://bucket/d"):
            file_sha256(place)
        for method in ("info", "open", "cat_file"):
            monkeypatch.setattr(f"fsspec.implementations.memory.MemoryFileSystem.{method}", fail)
        with refuses(StoreError, problem="cannot read memory://bucket/d"):
            place.exists()
        with pytest.raises(OSError, match="no credentials"):
            place.read_bytes()


def test_a_holder_that_has_not_yet_written_its_name(tmp_path: Path) -> None:
    with hold_lock(tmp_path / "a.lock", wait_s=0):
        (tmp_path / "a.lock.owner").write_text("")
        with pytest.raises(BusyError, match=r"^another process is writing"), hold_lock(tmp_path / "a.lock", wait_s=0):
            pass
