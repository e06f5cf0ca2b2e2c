"""Kills, races, full disks and planted links: a folder holds the old artifact or the new one, whole."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from offramp.artifact._format import is_artifact_file, read_artifact, write_artifact
from offramp.errors import ArtifactError, BusyError
from tests.artifact_examples import tensor_file
from tests.cases import each
from tests.test_files import holder

ROOT = Path(__file__).parents[2]

PRELUDE = """
import json, os, random, resource, signal, sys, time
from pathlib import Path
import torch
from offramp.artifact._format import read_artifact, write_artifact
from offramp.errors import ArtifactError

torch.set_num_threads(1)  # this process forks
folder, times = Path(sys.argv[1]), int(sys.argv[2])

def save(number):
    tensors = {"exits": {"weight": torch.full((300_000,), float(number))}, "points": {"cost": torch.full((9,), number)}}
    write_artifact(folder, {"number": number, "names": {place: "x" * 40 for place in range(500)}}, tensors)

def loaded():
    artifact = read_artifact(folder)
    number = artifact.content.at("number").integer()
    for name, key in (("exits", "weight"), ("points", "cost")):
        assert (artifact.tensors[name][key] == number).all()
    return number

def forked(work):
    child = os.fork()
    if not child:
        status = 1
        try:
            work()
            status = 0
        except BaseException as error:
            print(type(error).__name__, error, file=sys.stderr, flush=True)
        finally:
            os._exit(status)
    return child

def ended(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""
"""Each scenario is one new process that imports torch once and forks those that are killed or race."""

KILLS = """
def lines_of(work, stop=None):
    # Count the lines that run of the two files that write artifacts; die at the one of number `stop`.
    counted = 0
    def line(frame, event, argument):
        nonlocal counted
        counted += 1
        if counted == stop:
            os.kill(os.getpid(), signal.SIGKILL)
        return line
    def call(frame, event, argument):
        return line if frame.f_code.co_filename.endswith(("offramp/artifact/_format.py", "offramp/_files.py")) else None
    sys.settrace(call)
    try:
        work()
    finally:
        sys.settrace(None)
    return counted

save(0)
steps = lines_of(lambda: save(1))
began = time.perf_counter()
save(2)
took_s = time.perf_counter() - began
before, killed, found = 2, 0, []
for time_of_kill in range(times):
    number = 3 + time_of_kill
    if time_of_kill % 3:  # at a line of the program, spread over all of them
        stop = 1 + steps * time_of_kill // times
        child = forked(lambda: lines_of(lambda: save(number), stop))
    else:  # at a moment, in the middle of a write perhaps
        child = forked(lambda: save(number))
        time.sleep(random.Random(time_of_kill).uniform(0, took_s))
        os.kill(child, signal.SIGKILL)
    killed += ended(child) == -signal.SIGKILL
    now = loaded()
    assert now in (before, number), (now, before, number)
    found.append("old" if now == before else "new")
    before = now
save(10_000)
assert loaded() == 10_000
print(json.dumps({"killed": killed, "steps": steps, "old": found.count("old"), "new": found.count("new")}))
"""

SAVERS = """
save(0)
found = []
for pair in range(times):
    numbers = 2 * pair + 1, 2 * pair + 2
    children = [forked(lambda number=number: save(number)) for number in numbers]
    assert [ended(child) for child in children] == [0, 0]
    found.append(numbers.index(loaded()))
print(json.dumps({"found": found}))
"""

READERS = """
save(0)
def saving():
    for number in range(1, times + 1):
        save(number)
saver = forked(saving)
numbers = []
while not numbers or numbers[-1] != times:
    numbers.append(loaded())
    assert len(numbers) < 1_000_000
assert ended(saver) == 0
assert numbers == sorted(numbers)
print(json.dumps({"read": len(numbers), "different": len(set(numbers))}))
"""

FULL = """
save(0)
sizes = sorted(file.stat().st_size for file in folder.iterdir())
refused = 0
for limit in (1, 100, *(size - 1 for size in sizes if size)):
    def full():
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        save(1)
    refused += ended(forked(full)) == 1
    assert loaded() == 0
    names = {file.name for file in folder.iterdir()}
    assert len([name for name in names if name.endswith((".safetensors", ".tmp"))]) == 2, names
save(1)
assert loaded() == 1
print(json.dumps({"tried": 2 + len([size for size in sizes if size]), "refused": refused}))
"""


def run(scenario: str, folder: Path, times: int = 0) -> Any:
    command = [sys.executable, "-c", PRELUDE + scenario, str(folder), str(times)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("times", [9, pytest.param(50, marks=pytest.mark.long)])
def test_a_kill_at_any_moment_leaves_the_old_or_the_new_artifact(tmp_path: Path, times: int) -> None:
    found = run(KILLS, tmp_path / "saved", times)
    assert found["old"] + found["new"] == times
    assert found["killed"] >= 2 * times // 3, "the kills came too late"
    assert found["old"] > 0
    assert found["new"] > 0, "no kill came after the manifest was replaced"
    left = {file.name.partition("-")[0] for file in (tmp_path / "saved").iterdir()}
    assert left == {".lock", "exits", "manifest.json", "points"}  # the next save removes what killed ones left


@pytest.mark.parametrize("times", [5, pytest.param(100, marks=pytest.mark.long)])
def test_of_two_savers_at_once_one_is_left_whole(tmp_path: Path, times: int) -> None:
    assert len(run(SAVERS, tmp_path / "saved", times)["found"]) == times


@pytest.mark.parametrize("times", [10, pytest.param(100, marks=pytest.mark.long)])
def test_who_reads_while_another_saves_gets_the_old_or_the_new_artifact(tmp_path: Path, times: int) -> None:
    found = run(READERS, tmp_path / "saved", times)
    assert found["different"] > 1


def test_a_full_disk_leaves_the_old_artifact(tmp_path: Path) -> None:
    found = run(FULL, tmp_path / "saved")
    assert found["refused"] == found["tried"]


CONTENT = {"number": 1}
TENSORS = {"exits": {"weight": torch.ones(3)}, "points": {"cost": torch.zeros(2)}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_artifact(tmp_path / "saved", CONTENT, TENSORS)
    return tmp_path / "saved"


class TestLinks:
    """Links that somebody has planted in the folder are replaced or refused, never followed."""

    @each("name", ["exits", "manifest.json", ".lock.owner"])
    def test_are_replaced(self, folder: Path, tmp_path: Path, name: str) -> None:
        precious = tmp_path / "precious"
        precious.write_bytes(b"mine")
        link = tensor_file(folder, name) if name == "exits" else folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(precious)
        write_artifact(folder, CONTENT, TENSORS)
        assert precious.read_bytes() == b"mine"
        assert not link.is_symlink()
        assert read_artifact(folder).content.value == CONTENT

    def test_in_place_of_the_lock_are_refused(self, folder: Path, tmp_path: Path) -> None:
        precious = tmp_path / "precious"
        precious.write_bytes(b"mine")
        (folder / ".lock").unlink()
        (folder / ".lock").symlink_to(precious)
        with pytest.raises(ArtifactError, match=r"cannot write .*\.lock"):
            write_artifact(folder, {"number": 2}, TENSORS)
        assert precious.read_bytes() == b"mine"
        assert read_artifact(folder).content.value == CONTENT

    def test_that_are_named_like_our_files_are_removed_and_not_what_they_point_to(
        self, folder: Path, tmp_path: Path
    ) -> None:
        precious = tmp_path / "precious"
        precious.write_bytes(b"mine")
        (folder / "backbone-0123456789abcdef.safetensors").symlink_to(precious)
        write_artifact(folder, {"number": 2}, TENSORS)
        assert precious.read_bytes() == b"mine"
        assert not (folder / "backbone-0123456789abcdef.safetensors").is_symlink()

    def test_are_not_read(self, folder: Path, tmp_path: Path) -> None:
        for file in (folder / "manifest.json", tensor_file(folder, "exits")):
            moved = file.rename(tmp_path / file.name)
            file.symlink_to(moved)
            with pytest.raises(ArtifactError, match=r"is not there|is missing"):
                read_artifact(folder)
            file.unlink()
            moved.rename(file)
        assert read_artifact(folder).content.value == CONTENT


class TestLock:
    def test_who_waits_too_long_is_told_who_saves(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("offramp.artifact._format.WAIT_S", 0.1)
        with holder(folder / ".lock") as process:
            try:
                with pytest.raises(BusyError, match=f"process {process.pid} .*wait until it has finished"):
                    write_artifact(folder, {"number": 2}, TENSORS)
                assert read_artifact(folder).content.value == CONTENT  # reading needs no lock
            finally:
                process.kill()
        write_artifact(folder, {"number": 2}, TENSORS)
        assert read_artifact(folder).content.value == {"number": 2}

    def test_reading_leaves_nothing_in_the_folder(self, folder: Path) -> None:
        (folder / ".lock").unlink()
        before = sorted(os.listdir(folder))
        read_artifact(folder)
        assert sorted(os.listdir(folder)) == before

    def test_its_files_are_part_of_an_artifact(self, folder: Path) -> None:
        assert all(is_artifact_file(file.name) for file in folder.iterdir())
        assert is_artifact_file(".lock.owner")
        assert not is_artifact_file(".lock.other")


def test_a_file_that_is_missing_is_read_for_once_more_only_if_the_manifest_was_replaced(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from offramp.artifact import _format as artifact

    read, calls = artifact._read, []

    def counted(*arguments: Any) -> Any:
        calls.append(arguments)
        return read(*arguments)

    monkeypatch.setattr(artifact, "_read", counted)
    tensor_file(folder, "exits").unlink()
    with pytest.raises(ArtifactError, match="is missing; copy the whole folder"):
        read_artifact(folder)
    assert len(calls) == 1
