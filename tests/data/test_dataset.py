"""What every format keeps to."""

import os
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from offramp.data import Dataset, open_data
from offramp.data.dataset import StoredDataset
from offramp.data.labels import unlabelled
from offramp.errors import InputError
from tests.data.examples import NAMES, NUMBERS, TEXTS, WRITERS


@pytest.fixture(params=WRITERS)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return WRITERS[request.param](tmp_path)


def plain(dataset: Dataset, start: int, stop: int) -> list[object]:
    inputs = dataset.read(start, stop).inputs
    return [row.tolist() if isinstance(row, np.ndarray) else row for row in inputs]


def test_rows_are_what_was_written(written: Path) -> None:
    data = open_data(written)
    rows = data.read(0, 5)
    assert len(data) == 5
    assert rows.labels.dtype == rows.ids.dtype == np.int64
    if data.labelled:
        expected = sorted(NUMBERS) if written.is_dir() and (written / "cat").exists() else NUMBERS
        assert rows.labels.tolist() == expected
        assert data.classes == ("cat", "dog")
    else:
        assert rows.labels.tolist() == [-1] * 5
        assert data.classes == ()
    if isinstance(rows.inputs, list) and isinstance(rows.inputs[0], str):
        assert rows.inputs == TEXTS
    assert len(set(rows.ids.tolist())) == 5


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (1, 4), (2, 5), (4, 5), (3, 3), (5, 5)])
def test_a_range_is_a_piece_of_the_whole(written: Path, start: int, stop: int) -> None:
    data = open_data(written)
    rows, whole = data.read(start, stop), data.read(0, 5)
    assert plain(data, start, stop) == plain(data, 0, 5)[start:stop]
    np.testing.assert_array_equal(rows.labels, whole.labels[start:stop])
    np.testing.assert_array_equal(rows.ids, whole.ids[start:stop])


@pytest.mark.parametrize(("start", "stop"), [(-1, 2), (0, 6), (3, 2)])
def test_a_range_beyond_the_data_is_refused(written: Path, start: int, stop: int) -> None:
    with pytest.raises(InputError, match="row range within 0 to 5"):
        open_data(written).read(start, stop)
    with pytest.raises(InputError, match="row range within 0 to 5"):
        open_data(written).keys(start, stop)


def test_each_row_has_a_key(written: Path) -> None:
    data = open_data(written)
    keys = ["0", "1", "2", "3", "4"]
    if (written / "cat").exists():
        keys = ["cat/0.png", "cat/2.png", "cat/4.png", "dog/1.png", "dog/3.png"]
    if written.suffix == ".tar" or any(written.glob("*.tar")):
        keys = [f"some/{key}" for key in keys]
    assert data.keys(0, 5) == keys
    assert data.keys(2, 4) == data.keys(0, 5)[2:4]
    assert data.keys(5, 5) == []


def test_a_key_can_be_written_whatever_bytes_the_name_of_a_file_is() -> None:
    name = b"caf\xe9.png".decode(errors="surrogateescape")
    data = StoredDataset(lambda start, stop: [], unlabelled(1), stem="pets", content="c0ffee", keys=[name])
    assert data.keys(0, 1) == ["caf\\udce9.png"]


def test_what_read_gives_may_be_written_to(written: Path) -> None:
    data = open_data(written)
    rows = data.read(0, 2)
    rows.labels[:] = 7
    if isinstance(rows.inputs, np.ndarray):
        rows.inputs[:] = 7
    assert (data.read(0, 2).labels != 7).all()
    assert plain(data, 0, 2) != [[7, 7], [7, 7]]


def test_the_name_can_be_a_folder_and_follows_the_content(written: Path, tmp_path: Path) -> None:
    data = open_data(written)
    assert re.fullmatch(r"pets-[0-9a-f]{16}", data.name)
    for place in ("elsewhere", "moved"):
        (tmp_path / place).mkdir()
    copy = tmp_path / "elsewhere" / written.name
    renamed = tmp_path / "moved" / written.name.replace("pets", "other pets")
    for target in (copy, renamed):
        if written.is_dir():
            shutil.copytree(written, target)
        else:
            shutil.copy(written, target)
    assert open_data(copy).name == data.name
    assert open_data(renamed).name.startswith("other-pets-")
    for target in (copy, renamed):
        np.testing.assert_array_equal(open_data(target).read(0, 5).ids, data.read(0, 5).ids)


def test_another_order_of_classes_is_another_name_for_the_same_samples(written: Path) -> None:
    data, other = open_data(written), open_data(written, classes=["dog", "bird", "cat"])
    assert other.classes == ("dog", "bird", "cat")
    np.testing.assert_array_equal(other.read(0, 5).ids, data.read(0, 5).ids)
    if data.labelled:
        assert other.name != data.name
        named = [data.classes[label] for label in data.read(0, 5).labels]
        assert [other.classes[label] for label in other.read(0, 5).labels] == named
        assert sorted(named) == sorted(NAMES)


READ_ELSEWHERE = """
import pickle, sys
from pathlib import Path
found = {}
for path in sorted(Path(sys.argv[1]).glob("*.pickled")):
    data = pickle.loads(path.read_bytes())
    rows = data.read(1, 5)
    found[path.stem] = (data.name, data.classes, data.labelled, data.keys(0, 5), rows.labels.tolist(),
        rows.ids.tolist(), [row.tolist() if hasattr(row, "tolist") else row for row in rows.inputs])
Path(sys.argv[1], "found").write_bytes(pickle.dumps(found))
"""


def test_another_process_in_another_folder_reads_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {}
    for name, write in WRITERS.items():
        (tmp_path / name).mkdir()
        path = write(tmp_path / name)
        monkeypatch.chdir(tmp_path / name)
        data = open_data(path.name)
        data.read(0, 1)  # what is kept of it must not come along
        (tmp_path / f"{name}.pickled").write_bytes(pickle.dumps(data))
        rows = data.read(1, 5)
        expected[name] = (
            data.name,
            data.classes,
            data.labelled,
            data.keys(0, 5),
            rows.labels.tolist(),
            rows.ids.tolist(),
            plain(data, 1, 5),
        )
    subprocess.run([sys.executable, "-c", READ_ELSEWHERE, str(tmp_path)], check=True, cwd=os.sep)
    assert pickle.loads((tmp_path / "found").read_bytes()) == expected


@pytest.mark.parametrize("name", ["folder", "parquet", "shards", "huggingface", "tar", "tars"])
def test_what_lies_on_disk_stays_there(tmp_path: Path, name: str) -> None:
    data = open_data(WRITERS[name](tmp_path))
    data.read(0, 5)
    pickled = pickle.dumps(data)
    assert not any(text.encode() in pickled for text in TEXTS)
    assert b"PNG" not in pickled


@pytest.mark.parametrize("name", ["folder", "parquet", "shards", "tar", "tars"])
def test_files_that_vanish_are_named_and_may_come_back(tmp_path: Path, name: str) -> None:
    path = WRITERS[name](tmp_path)
    data = open_data(path)
    expected = plain(data, 0, 5)
    data = pickle.loads(pickle.dumps(data))
    path.rename(tmp_path / "gone")
    with pytest.raises(InputError, match=re.escape(str(path))):
        data.read(0, 5)
    (tmp_path / "gone").rename(path)
    assert plain(data, 0, 5) == expected
