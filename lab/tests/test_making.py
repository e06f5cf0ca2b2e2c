"""Files of the data folder, made from arrays and texts."""

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest

from offramp.errors import InputError
from offramp_bench.cifar import SHEET_ROWS, Sheets
from offramp_bench.data import files_of
from offramp_bench.making import write_sheets, write_texts


def draw_images(rows: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return np.random.default_rng(0).integers(0, 256, (rows, 32, 32, 3), dtype=np.uint8)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_sheets_give_the_same_pixels(tmp_path: Path) -> None:
    rows = SHEET_ROWS + 3
    images, labels = draw_images(rows), np.arange(rows + 5) % 10
    files = write_sheets(tmp_path / "new", "train", images, labels, photographs=np.arange(rows + 5))
    assert [file.name for file in files] == ["train-00.webp", "train-01.webp", "train-labels.npz"]
    assert sorted(files) == sorted((tmp_path / "new").iterdir())
    sheets = Sheets(tmp_path / "new", "train", rows)
    first, last = sheets.read(0, SHEET_ROWS), sheets.read(SHEET_ROWS, rows)
    assert np.array_equal(np.concatenate([first.inputs, last.inputs]), images)
    assert np.array_equal(sheets.labels, labels[:rows])
    with np.load(files[-1]) as saved:
        assert saved["y"].dtype == np.uint8
        assert np.array_equal(saved["src"], np.arange(rows + 5))


def test_other_arrays_are_refused(tmp_path: Path) -> None:
    images, labels = draw_images(2), np.zeros(2, np.int64)
    for wrong_images, wrong_labels in (
        (images.astype(np.float32), labels),
        (images.transpose(0, 3, 1, 2), labels),
        (images[:0], labels),
        (images, labels[:1]),
        (images, labels + 256),
        (images, labels[:, None]),
    ):
        with pytest.raises(InputError):
            write_sheets(tmp_path, "train", wrong_images, wrong_labels)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_texts(tmp_path: Path) -> None:
    write_texts(tmp_path / "a.tsv.gz", [3, 0], ["a\ttab", 'a "quote", naïve '])
    assert gzip.decompress((tmp_path / "a.tsv.gz").read_bytes()).decode() == (
        'label\ttext\n3\ta\ttab\n0\ta "quote", naïve \n'
    )
    for labels, texts in (([1], ["a", "b"]), ([1], ["a\nb"]), ([1], ["a\rb"])):
        with pytest.raises(InputError):
            write_texts(tmp_path / "b.tsv.gz", labels, texts)
    assert not (tmp_path / "b.tsv.gz").exists()


@pytest.mark.data
@pytest.mark.slow
def test_a_sheet_has_the_hash_of_the_list(data_dir: Path, tmp_path: Path) -> None:
    sheets = Sheets(data_dir / "cifar10", "test")
    rows = sheets.read(0, SHEET_ROWS)
    write_sheets(tmp_path, "test", rows.inputs, sheets.labels)
    hashes = files_of("cifar10")
    for name in ("test-00.webp", "test-labels.npz"):
        assert sha256(tmp_path / name) == hashes[f"cifar10/{name}"]


@pytest.mark.data
def test_texts_have_the_hashes_of_the_list(data_dir: Path, tmp_path: Path) -> None:
    for name, named in (("banking77/test.tsv.gz", False), ("sst2/test.tsv.gz", True)):
        lines = gzip.decompress((data_dir / name).read_bytes()).decode().split("\n")[1:-1]
        rows = [line.split("\t", 1) for line in lines]
        write_texts(tmp_path / name, [int(label) for label, _ in rows], [text for _, text in rows], named=named)
        assert sha256(tmp_path / name) == files_of(name.split("/")[0])[name]
