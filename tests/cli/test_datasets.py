"""Data by what `--data` names: every format, and all that may be wrong with it."""

import re
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet

from tests.cases import each
from tests.cli.workshop import MODELS, NAMES, Shell, opened, samples


@each(
    "data",
    [
        "test.npz",
        "test.csv --label kind",
        "test.parquet",
        "test*.parquet",
        "saved --split test",
        "test.npz --label y --column x",
    ],
)
def test_formats_of_the_same_samples(offramp: Shell, artifact: Path, data: str) -> None:
    line = ["--trust", f"{MODELS}:make", "--cost", "0.6", "--data", *data.split()]
    found = offramp.json("evaluate", artifact, *line)["chosen"]
    answer = opened(artifact).at(cost=0.6).predict(samples(90, seed=2)[0])
    near = 1.5 / 90  # a sample on the very boundary may fall either way
    right = (answer.labels.numpy() == samples(90, seed=2)[1]).mean()
    assert found["accuracy"] == pytest.approx(right, abs=near)
    assert found["relative_cost"] == pytest.approx(float(answer.relative_cost.mean()), abs=near)


def test_an_address_is_read_by_datasets(offramp: Shell, artifact: Path) -> None:
    line = ("evaluate", artifact, "--trust", f"{MODELS}:make", "--data")
    here = f"file://{Path.cwd()}"
    assert offramp.json(*line, f"{here}/test.parquet")["samples"] == offramp.json(*line, "test.parquet")["samples"]
    ran = offramp(*line, f"{here}/none.parquet")
    assert ran.status == 1
    assert "none.parquet cannot be read by datasets" in ran.told


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data with one thing wrong each."""
    folder = tmp_path_factory.mktemp("wrong")
    inputs, labels = samples(50, seed=5)
    broken = inputs.copy()
    broken[7, 3] = np.nan
    np.savez(folder / "nan.npz", x=broken, y=labels)
    np.savez(folder / "narrow.npz", x=inputs[:, :5], y=labels)
    np.savez(folder / "four.npz", x=inputs, y=labels + (labels == 2))
    np.savez(folder / "negative.npz", x=inputs, y=-labels)
    np.savez(folder / "real.npz", x=inputs, y=labels / 2)
    np.savez(folder / "uneven.npz", x=inputs, y=labels[:9])
    np.savez(folder / "pickle.npz", x=np.array([{}] * 3, dtype=object), y=[0, 1, 2])
    np.savez(folder / "named.npz", x=inputs, y=np.array(NAMES)[labels])
    np.savez(folder / "two.npz", x=inputs, y=np.array(NAMES)[labels % 2])
    np.savez(folder / "words.npz", x=np.array(["a day"] * 50), y=labels)
    for name in ("empty.csv", "empty.npz", "empty.parquet", "empty.txt"):
        (folder / name).write_bytes(b"")
    (folder / "header.csv").write_text("text,label\n")
    (folder / "ragged.csv").write_text("text,label\na,b,c\n")
    (folder / "half.csv").write_text("text,label\na,0\nb,\n")
    (folder / "letters.csv").write_text("x,y,label\n1,2,0\n1,two,1\n")
    (folder / "latin.csv").write_bytes("text,label\ncafé,0\n".encode("latin-1"))
    (folder / "gone.csv").write_text("image,label\ngone.png,0\n")
    (folder / "pets.xlsx").write_text("")
    (folder / "nothing").mkdir()
    (folder / "mixed" / "bad").mkdir(parents=True)
    for place in ("mixed/1.png", "mixed/bad/1.png"):
        Image.new("RGB", (32, 32)).save(folder / place)
    (folder / "torn" / "bad").mkdir(parents=True)
    (folder / "torn" / "bad" / "1.png").write_bytes(b"\x89PNG\r\n")
    for split in ("train", "test"):
        (folder / "splits" / split / "bad").mkdir(parents=True)
    table = pyarrow.table({"a": [1.0], "b": ["x"], "label": [0]})
    parquet.write_table(table, folder / "kinds.parquet")
    return folder


class TestRefused:
    @each(
        ("backbone", "data", "told"),
        [
            ("make", "no-such.csv", "got nothing at .*no-such.csv; offramp opens .arrow, .csv"),
            ("make", "pets.xlsx", "got pets.xlsx; offramp opens .arrow, .csv"),
            ("make", "empty.csv", "empty.csv is empty; give at least one row"),
            ("make", "empty.npz", "empty.npz is not a valid .npz file"),
            ("make", "empty.parquet", "empty.parquet cannot be read by datasets"),
            ("make", "empty.txt", "empty.txt is empty"),
            ("make", "header.csv", "header.csv is empty; give at least one row"),
            ("make", "ragged.csv", "line 2 of .*: expected 2 cells, .*, got 3"),
            ("make", "half.csv", "line 3 of .*half.csv has no label; leave the label out in every row or in none"),
            (
                "make",
                "letters.csv",
                "column 'y', line 3 of .*, got 'two'; .*On the command line: --column",
            ),
            ("make", "latin.csv", "cannot be read as CSV in UTF-8"),
            ("pictures", "gone.csv", "line 2 of .* names the image 'gone.png', but there is no file"),
            ("pictures", "nothing", "expected images in .*nothing, got none; put them into one sub-folder per class"),
            ("pictures", "mixed", "all in sub-folders, or none, got both"),
            ("pictures", "torn --classes names.txt", "1.png cannot be decoded as an image"),
            (
                "pictures",
                "splits",
                "holds the splits test, train; .* On the command line: --split",
            ),
            (
                "make",
                "kinds.parquet",
                "a column text or image, or numbers only, .*On the command line: --column",
            ),
            ("make", "nan.npz", "row 7 .*: expected a finite single-precision number"),
            ("make", "narrow.npz", r"'tiny' cannot take these inputs \(float32 of shape \(1, 5\)\)"),
            ("make", "four.npz", "label of row .*: expected 0 to 2, as the backbone has 3 classes, got 3"),
            ("make", "negative.npz", "expected labels from 0 up, got -[12] at row"),
            ("make", "real.npz", "expected labels as"),
            ("make", "uneven.npz", r"expected arrays with one row per sample .*On the command line: --column"),
            ("make", "pickle.npz", "pickled objects are not loaded"),
            ("make", "two.npz", r"expected the 3 classes of the network 'tiny', got 2 \(bad, dull\); name all"),
            ("make", "../full", "has no labels; name their column with --label"),
            ("make", "new.txt", "has no labels; name their column with --label"),
            ("make", "test.csv --label species", "unknown column 'species'; Known: kind, x0"),
            ("make", "test.csv --label kid", "unknown column 'kid'; did you mean 'kind'?"),
            ("make", "test.npz --column z", "unknown array 'z'; Known: x, y"),
            ("make", "test.npz --split test", "expected no split for .*, which has none, got 'test'"),
            ("make", "saved", "holds the splits test; choose one: split='test' On the command line: --split"),
            ("make", "saved --split tset", "unknown split 'tset'; did you mean 'test'?"),
            ("pictures", "images --split bad", "no labels"),
            ("pictures", "images --column x", "expected no column for .*images, which has none"),
            ("pictures", "sizes", "expected images of one size after preprocessing"),
            ("pictures", "texts-test.tsv", "texts-test.tsv has texts, the network 'cifar-resnet-8' does not take them"),
            ("pictures", "test.npz", "expected images N x H x W x C, got shape"),
            (
                "make",
                "texts-test.tsv",
                r"texts-test.tsv has texts, the network 'tiny' does not .*text_preprocessing\(",
            ),
            ("make", "words.npz", r"words.npz has texts, .* let its function set backbone.preprocessing = "),
            ("make", "images", r"images has images, the network 'tiny' .* offramp.image_preprocessing\("),
            ("texts", "images", "expected a list of texts, got shape"),
        ],
    )
    def test_with_what_to_do(
        self, offramp: Shell, wrong: Path, tmp_path: Path, backbone: str, data: str, told: str
    ) -> None:
        path, *more = data.replace("../full", "full.npz").split()
        place = wrong / path if (wrong / path).exists() else path
        line = ["--model", f"{MODELS}:{backbone}", "--data", place, "--store", tmp_path / "store", *more]
        ran = offramp("estimate", *line)
        assert (ran.status, ran.out) == (1, ""), ran
        assert "unexpected error" not in ran.told, ran.told
        assert re.search(told, ran.told), ran.told


class TestClasses:
    @each(
        ("content", "told"),
        [
            (None, "cannot read the classes from .*names: .*; give a text file, one name per line"),
            (b"", "names is empty; give the names of the classes, one per line"),
            (b"\n \n", "names is empty"),
            (b"bad\ndull\nbad\n", "names the class 'bad' twice; give each class one line"),
            (b"\xff\xfe", "cannot read the classes"),
            (b"bad\ndull\n", "unknown class 'good'.* the classes are 'bad', 'dull'"),
            (
                b"bad\ndull\ngood\nfine",
                r"the 3 classes of the network 'tiny', got 4 \(bad, dull, good, fine\)",
            ),
        ],
    )
    def test_refused(self, offramp: Shell, wrong: Path, tmp_path: Path, content: bytes | None, told: str) -> None:
        if content is not None:
            (tmp_path / "names").write_bytes(content)
        line = ["--model", f"{MODELS}:make", "--data", wrong / "named.npz", "--store", tmp_path / "store"]
        ran = offramp("estimate", *line, "--classes", tmp_path / "names")
        assert ran.status == 1
        assert re.search(told, ran.told), ran.told

    def test_in_another_order_than_the_artifacts(self, offramp: Shell, of_texts: Path, tmp_path: Path) -> None:
        (tmp_path / "names").write_text("good\nbad\ndull\n")
        ran = offramp("evaluate", of_texts, "--data", "texts-test.tsv", "--classes", tmp_path / "names")
        assert ran.status == 1
        assert "in another order; leave --classes out" in ran.told


def test_data_of_another_size_than_the_exits_were_fitted_on(offramp: Shell, artifact: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "narrow.npz", x=np.zeros((5, 9), np.float32), y=np.zeros(5, np.int64))
    ran = offramp("evaluate", artifact, "--trust", f"{MODELS}:make", "--data", tmp_path / "narrow.npz")
    assert ran.status == 1
    assert "cannot take these inputs" in ran.told
