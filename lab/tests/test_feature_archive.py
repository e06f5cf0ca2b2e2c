"""Feature stores that travel as one file."""

import io
import json
import os
import tarfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from typer.testing import CliRunner

from offramp._files import _encode, file_sha256
from offramp.errors import CorruptFileError, InputError, StoreError
from offramp.features import extract
from offramp.features._store import Store
from offramp_bench import cli
from offramp_bench.feature_archive import MANIFEST, export_stores, import_stores
from tests.features.examples import CLEAN, contents, images, small_resnet

FINGERPRINT = small_resnet().fingerprint()[:12]
SEEN, UNSEEN = f"toy-seen-{FINGERPRINT}", f"toy-unseen-{FINGERPRINT}"


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stores of two parts of a task. Read it only."""
    folder = tmp_path_factory.mktemp("stores")
    for name, rows in ((SEEN, 12), (UNSEEN, 6)):
        extract(small_resnet(), images(rows), folder / name, views=(CLEAN,), batch_size=4, shard_mb=0.03, threads=1)
    return folder


@pytest.fixture(scope="module")
def archive(stores: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Their archive. Read it only."""
    file = tmp_path_factory.mktemp("archive") / "toy.tar"
    export_stores(stores, "toy", file)
    return file


def read_members(file: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(file) as opened:
        rows = []
        for member in opened.getmembers():
            content = opened.extractfile(member)
            assert content is not None
            rows.append((member, content.read()))
        return rows


def write_members(file: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with tarfile.open(file, "w") as made:
        for header, content in members:
            header.size = len(content)
            made.addfile(header, io.BytesIO(content))
    return file


def refuse(file: Path, into: Path, reason: str = "nothing was imported") -> None:
    """Import, expect a refusal, and that nothing was put in place."""
    before = sorted(into.parent.rglob("*"))
    with pytest.raises(CorruptFileError, match=reason):
        import_stores(file, into)
    assert not into.exists() or list(into.iterdir()) == []
    assert set(into.parent.rglob("*")) <= {*before, into}


def test_round_trip(stores: Path, archive: Path, tmp_path: Path) -> None:
    imported = import_stores(archive, tmp_path / "new", sha256=file_sha256(archive).upper())
    assert imported.stores == imported.new == (SEEN, UNSEEN)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [SEEN, UNSEEN]
    for name in imported.stores:
        assert contents(tmp_path / "new" / name) == contents(stores / name)
        Store.open(tmp_path / "new" / name).labels()
    assert import_stores(archive, tmp_path / "new").new == ()
    exported = export_stores(tmp_path / "new", "toy", tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == archive.read_bytes()
    assert exported.sha256 == file_sha256(archive)


def test_the_bytes_are_deterministic(stores: Path, archive: Path) -> None:
    headers = [header for header, _ in read_members(archive)]
    assert [header.name for header in headers] == [MANIFEST, *sorted(header.name for header in headers[1:])]
    for header in headers:
        assert (header.mtime, header.uid, header.gid, header.uname, header.gname) == (0, 0, 0, "", "")
        assert ".lock" not in header.name


def test_one_of_several_backbones(stores: Path, tmp_path: Path) -> None:
    for name in (SEEN, UNSEEN, "toy-seen-0123456789ab"):
        (tmp_path / "stores" / name).parent.mkdir(exist_ok=True)
        os.symlink(stores / SEEN, tmp_path / "stores" / name)
    with pytest.raises(InputError, match="0123456789ab"):
        export_stores(tmp_path / "stores", "toy", tmp_path / "a.tar")
    assert export_stores(tmp_path / "stores", "toy", tmp_path / "a.tar", fingerprint=FINGERPRINT[:4]).stores
    with pytest.raises(StoreError, match="0123456789ab"):  # features of another backbone than the name says
        export_stores(tmp_path / "stores", "toy", tmp_path / "b.tar", fingerprint="0123")
    assert not (tmp_path / "b.tar").exists()


def test_no_stores(stores: Path, tmp_path: Path) -> None:
    for folder, task in ((stores, "to"), (stores, "toy-seen"), (tmp_path / "none", "toy")):
        with pytest.raises(InputError):
            export_stores(folder, task, tmp_path / "a.tar")
    assert not (tmp_path / "a.tar").exists()


def test_a_damaged_store_is_not_exported(archive: Path, tmp_path: Path) -> None:
    import_stores(archive, tmp_path / "stores")
    shard = tmp_path / "stores" / SEEN / "shards" / "000000.safetensors"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    with pytest.raises(CorruptFileError):
        export_stores(tmp_path / "stores", "toy", tmp_path / "a.tar")
    with pytest.raises(StoreError, match="other content"):
        import_stores(archive, tmp_path / "stores")
    assert shard.read_bytes() == content
    (tmp_path / "stores" / SEEN / "manifest.json").unlink()
    with pytest.raises(StoreError, match="not finished"):
        export_stores(tmp_path / "stores", "toy", tmp_path / "a.tar")
    assert not (tmp_path / "a.tar").exists()


def test_other_content_is_not_overwritten(stores: Path, archive: Path, tmp_path: Path) -> None:
    # The second store is the one that differs: the first is not put in place either.
    folder = tmp_path / "stores"
    extract(small_resnet(), images(5), folder / UNSEEN, views=(CLEAN,), batch_size=4, threads=1)
    before = contents(folder)
    with pytest.raises(StoreError, match=UNSEEN):
        import_stores(archive, folder)
    assert contents(folder) == before
    for kind in ("file", "link"):
        other = tmp_path / kind
        other.mkdir()
        (other / UNSEEN).write_text("") if kind == "file" else (other / UNSEEN).symlink_to("nowhere")
        with pytest.raises(StoreError, match=UNSEEN):
            import_stores(archive, other)
        assert [path.name for path in other.iterdir()] == [UNSEEN]


def test_a_flipped_byte_is_refused(archive: Path, tmp_path: Path) -> None:
    whole = archive.read_bytes()
    with pytest.raises(CorruptFileError):
        import_stores(archive, tmp_path / "new", sha256="0" * 64)
    with pytest.raises(InputError):
        import_stores(archive, tmp_path / "new", sha256="abc")
    with tarfile.open(archive) as opened:
        places = [member.offset_data + member.size // 2 for member in opened.getmembers()]
        places += [member.offset + 3 for member in opened.getmembers()]  # in a name: its header does not match
    for number, place in enumerate(places):
        changed = bytearray(whole)
        changed[place] ^= 1
        file = tmp_path / f"{number}.tar"
        file.write_bytes(changed)
        refuse(file, tmp_path / "new")


def test_cut_and_foreign_files_are_refused(archive: Path, tmp_path: Path) -> None:
    whole = archive.read_bytes()
    for number, content in enumerate((b"", b"no archive", whole[:700], whole[: len(whole) // 2], bytes(10_240))):
        file = tmp_path / f"{number}.tar"
        file.write_bytes(content)
        refuse(file, tmp_path / "new")
    with pytest.raises(InputError):
        import_stores(tmp_path / "none.tar", tmp_path / "new")


def _rename(name: str) -> Callable[[tarfile.TarInfo], None]:
    return lambda header: setattr(header, "name", name)


def _link(kind: bytes, target: str) -> Callable[[tarfile.TarInfo], None]:
    def change(header: tarfile.TarInfo) -> None:
        header.type, header.linkname = kind, target

    return change


HOSTILE = {
    "above": _rename("../escaped"),
    "above, within a store": _rename(f"{SEEN}/../../escaped"),
    "above, by a shard": _rename(f"{SEEN}/shards/../../../000000.json"),
    "absolute": _rename("/tmp/escaped-from-an-archive"),
    "backslashes": _rename(f"{SEEN}\\..\\escaped"),
    "a hidden file": _rename(f"{SEEN}/.lock"),
    "code": _rename(f"{SEEN}/shards/000000.py"),
    "a line break": _rename(f"{SEEN}/plan.json\n"),
    "no store": _rename("plan.json"),
    "another part": _rename(f"toy-all-{FINGERPRINT}/plan.json"),
    "a second manifest": _rename(MANIFEST),
    "a shard too many": _rename(f"{SEEN}/shards/000099.safetensors"),
    "symbolic link": _link(tarfile.SYMTYPE, "/etc/passwd"),
    "hard link": _link(tarfile.LNKTYPE, f"{SEEN}/plan.json"),
    "folder": _link(tarfile.DIRTYPE, ""),
    "pipe": _link(tarfile.FIFOTYPE, ""),
    "device": _link(tarfile.CHRTYPE, ""),
    "sparse": _link(tarfile.GNUTYPE_SPARSE, ""),
}


def test_hostile_archives_are_refused(archive: Path, tmp_path: Path) -> None:
    # The hostile file is listed with its hash: names and kinds are judged, not only hashes.
    for number, (kind, change) in enumerate(HOSTILE.items()):
        members = read_members(archive)
        header, content = tarfile.TarInfo(f"{SEEN}/plan.json"), b"{}"
        change(header)
        files = json.loads(members[0][1])["files"] | {header.name: sha256(content).hexdigest()}
        listed = _encode({"kind": "feature stores", "files": files, "version": 1})
        file = write_members(
            tmp_path / f"{number}.tar",
            [(members[0][0], listed), *members[1:], (header, content if header.isreg() else b"")],
        )
        refuse(file, tmp_path / "new" / kind, "not a regular file|not a file name|does not belong")
    assert not Path("/tmp/escaped-from-an-archive").exists()


def test_lists_that_do_not_match_are_refused(archive: Path, tmp_path: Path) -> None:
    members = read_members(archive)
    files = json.loads(members[0][1])["files"]
    first = members[1][0].name
    for number, changed in enumerate(
        (
            members[1:],
            members[:1],
            [*members[1:], members[0]],
            [*members, members[1]],
            members[:-1],
            [(members[0][0], b"{}"), *members[1:]],
            *(
                [(members[0][0], _encode(content)), *members[1:]]
                for content in (
                    {"kind": "feature stores", "files": files, "version": 2},
                    {"kind": "feature stores", "files": [], "version": 1},
                    {"kind": "other", "files": files, "version": 1},
                    {"kind": "feature stores", "files": files | {first: None}, "version": 1},
                    {"kind": "feature stores", "files": files | {f"{SEEN}/extra": ""}, "version": 1},
                )
            ),
        )
    ):
        refuse(write_members(tmp_path / f"{number}.tar", changed), tmp_path / "new")


def test_command_line(stores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "STORES", stores)
    file = tmp_path / "toy.tar"
    ran = CliRunner().invoke(cli.app, ["features", "export", "toy", "--into", str(file)])
    assert ran.exit_code == 0, ran.output
    digest = file_sha256(file)
    assert digest in ran.output
    monkeypatch.setattr(cli, "STORES", tmp_path / "there")
    ran = CliRunner().invoke(cli.app, ["features", "import", str(file), "--sha256", digest])
    assert ran.exit_code == 0, ran.output
    assert "2 of 2 stores are new" in ran.output
    assert contents(tmp_path / "there") == contents(stores)
