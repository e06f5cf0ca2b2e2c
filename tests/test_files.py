import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from offramp._files import as_place, hold_lock, write_atomically
from offramp._remote import RemotePath
from offramp.errors import BusyError, InputError

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
    for folder in (tmp_path, "features/store", Path("features"), "C:/features"):
        assert as_place(folder) == Path(folder)


def test_a_holder_that_has_not_yet_written_its_name(tmp_path: Path) -> None:
    with hold_lock(tmp_path / "a.lock", wait_s=0):
        (tmp_path / "a.lock.owner").write_text("")
        with pytest.raises(BusyError, match=r"^another process is writing"), hold_lock(tmp_path / "a.lock", wait_s=0):
            pass
