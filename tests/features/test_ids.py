"""Ids from the content of rows, and bottom-k sketches against sets of all ids."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from offramp.data import open_data
from offramp.errors import InputError
from offramp.features import ArraySource
from offramp.features._ids import MOST_RANKS, IdSketch, rank_ids
from offramp.preprocessing._row_hashes import hash_rows
from tests.cases import each, refuses

IMAGES = np.random.default_rng(0).integers(0, 256, (5, 6, 7, 3), np.uint8)


def test_ids_of_many_rows_differ_and_ignore_the_label() -> None:
    rows = np.arange(200_000, dtype=np.int32)
    assert len(np.unique(hash_rows(rows))) == 200_000
    texts = ["purrs", "barks"]
    sources = [ArraySource(texts, labels, name=str(labels)) for labels in ([0, 1], [1, 0])]
    np.testing.assert_array_equal(sources[0].read(0, 2).ids, sources[1].read(0, 2).ids)


@each("inputs", [np.array([object()]), np.array([{1, 2}], dtype=object), np.array([None])])
def test_objects_of_other_kinds_need_ids_of_their_own(inputs: Any) -> None:
    with refuses(InputError, hint="give ids="):
        hash_rows(inputs)
    rows = ArraySource(inputs, [0], name="objects", ids=[7]).read(0, 1)
    assert rows.ids.tolist() == [7]


def test_a_memory_map_is_hashed_as_its_array(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", IMAGES)
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    np.testing.assert_array_equal(
        ArraySource(mapped, np.zeros(5, int), name="m").read(1, 4).ids, hash_rows(IMAGES)[1:4]
    )


def test_a_text_has_one_id_in_every_file(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    pyarrow = pytest.importorskip("pyarrow")
    texts, labels = ["purrs, loudly", 'barks "twice"', "müde"], ["cat", "dog", "cat"]
    pyarrow.parquet = pytest.importorskip("pyarrow.parquet")
    quoted = ['"' + text.replace('"', '""') + '"' for text in texts]
    rows = [f"{text},{label}" for text, label in zip(quoted, labels, strict=True)]
    (tmp_path / "a.csv").write_text("\n".join(["text,label", *rows]), "utf-8")
    columns = [f"{label}\t{text}" for text, label in zip(texts, labels, strict=True)]
    (tmp_path / "a.tsv").write_text("\n".join(["label\ttext", *columns]), "utf-8")
    (tmp_path / "a.txt").write_text("\n".join(texts), "utf-8")
    np.savez(tmp_path / "a.npz", x=np.array(texts), y=[0, 1, 0])
    pyarrow.parquet.write_table(pyarrow.table({"text": texts, "label": labels}), tmp_path / "a.parquet")
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict({"text": texts, "label": labels}).save_to_disk(tmp_path / "saved")
    for name in ("a.csv", "a.tsv", "a.txt", "a.npz", "a.parquet", "saved"):
        assert open_data(tmp_path / name).read(0, 3).ids.tolist() == hash_rows(texts).tolist(), name


def test_an_image_has_one_id_in_every_folder_and_file(tmp_path: Path) -> None:
    for place in ("one/cats", "two/dogs"):
        (tmp_path / place).mkdir(parents=True)
        Image.fromarray(IMAGES[0]).save(tmp_path / place / "a.png")
    (tmp_path / "table.csv").write_text("image,label\none/cats/a.png,cat\n")
    wanted = hash_rows(IMAGES[:1]).tolist()
    for name in ("one", "two", "table.csv"):
        assert open_data(tmp_path / name).read(0, 1).ids.tolist() == wanted, name


def test_numbers_of_a_table_are_those_of_an_array(tmp_path: Path) -> None:
    (tmp_path / "iris.csv").write_text("length,width,label\n5.1,3.5,0\n6.2,2.9,1\n")
    numbers = np.array([[5.1, 3.5], [6.2, 2.9]], np.float32)
    assert open_data(tmp_path / "iris.csv").read(0, 2).ids.tolist() == hash_rows(numbers).tolist()


@each("count", [1, 1_000, MOST_RANKS - 1, MOST_RANKS, 200_000])
def test_what_a_sketch_says_is_true(count: int) -> None:
    draw = np.random.default_rng(count)
    ids = draw.integers(-(2**63), 2**63 - 1, count)
    sketch = IdSketch.of(np.array_split(np.concatenate([ids, ids[: count // 2]]), 5))
    queries = np.concatenate([ids[:3_000], draw.integers(-(2**63), 2**63 - 1, 3_000)])
    truth, tells = np.isin(queries, ids), sketch.can_tell(queries)
    np.testing.assert_array_equal(sketch.contains(queries)[tells], truth[tells])
    assert not sketch.contains(queries)[~tells].any()
    assert sketch.is_complete == (count < MOST_RANKS)
    assert len(sketch.ranks) == min(count, MOST_RANKS)
    assert (np.diff(sketch.ranks) > 0).all()
    assert sketch.ranks[0] >= 0
    if sketch.is_complete:
        assert tells.all()
    else:
        share = MOST_RANKS / count
        assert abs(tells.mean() - share) < 5 * np.sqrt(max(share * (1 - share), 1e-9) / len(queries)) + 0.02


def test_a_sketch_of_no_ids() -> None:
    empty = IdSketch.of([])
    assert empty.is_complete
    assert not empty.contains(np.arange(5)).any()
    assert empty.can_tell(np.arange(5)).all()


def test_ranks_are_the_same_on_every_machine() -> None:
    assert (rank_ids(np.array([7, 8, 7]), seed=0) // np.uint64(10**15)).tolist() == [236, 2834, 236]
