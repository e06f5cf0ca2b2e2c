import numpy as np
import torch

from offramp.errors import InputError
from offramp.features import ArraySource
from offramp.features._source import read_ids
from offramp.preprocessing._row_hashes import hash_rows
from tests.cases import refuses


def test_rows_read_apart_have_the_ids_of_the_whole() -> None:
    source = ArraySource(np.arange(40.0).reshape(20, 2), np.zeros(20, np.int64), name="numbers")
    whole = source.read(0, 20).ids
    assert len(np.unique(whole)) == 20
    np.testing.assert_array_equal(source.read(7, 12).ids, whole[7:12])
    assert not len(source.read(5, 5).ids)
    np.testing.assert_array_equal(read_ids(source, progress=False), whole)


def test_a_long_source_is_read_for_its_ids_in_pieces() -> None:
    source = ArraySource(np.arange(1200), np.zeros(1200, np.int64), name="numbers")
    np.testing.assert_array_equal(read_ids(source, progress=False), hash_rows(np.arange(1200)))


def test_read_copies_from_arrays_tensors_and_memory_maps(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "inputs.npy"
    np.save(file, np.arange(12).reshape(6, 2))
    mapped = np.load(file, mmap_mode="r")
    inputs = {"mapped": mapped, "tensor": torch.arange(6)}
    source = ArraySource(inputs, torch.arange(6), name="both", ids=np.arange(6) + 100)
    rows = source.read(2, 5)
    assert rows.inputs["mapped"].tolist() == [[4, 5], [6, 7], [8, 9]]
    assert rows.inputs["tensor"].tolist() == [2, 3, 4]
    assert rows.labels.tolist() == [2, 3, 4]
    assert rows.ids.tolist() == [102, 103, 104]
    rows.inputs["tensor"][0] = 77
    assert inputs["tensor"].tolist() == [0, 1, 2, 3, 4, 5]
    torch.as_tensor(rows.inputs["mapped"])  # would warn if it could not be written to


def test_arrays_that_do_not_fit_are_refused() -> None:
    with refuses(InputError, problem="labels"):
        ArraySource(np.zeros((3, 2)), np.zeros(3), name="real labels")
    with refuses(InputError, expected="as many labels"):
        ArraySource(np.zeros((3, 2)), np.zeros(4, np.int64), name="too many labels")
    with refuses(InputError, problem="ids"):
        ArraySource(np.zeros((3, 2)), np.zeros(3, np.int64), name="ids of two columns", ids=np.zeros((3, 2), np.int64))
