import pickle

import numpy as np
import torch

from offramp.errors import InputError
from offramp.features import ArraySource
from offramp.features._source import Rows, read_ids, take_part
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


def test_a_part_holds_its_rows_alone_under_their_numbers() -> None:
    inputs = {"array": np.arange(40).reshape(20, 2), "tensor": torch.arange(20)}
    for ids in (None, np.arange(20) + 100):
        source = ArraySource(inputs, np.arange(20) % 3, name="numbers", ids=ids)
        part = take_part(source, 7, 12)
        assert (len(part), part.name) == (20, "numbers")
        for rows in (part, take_part(part, 8, 10)):
            assert rows.read(8, 10).inputs["array"].tolist() == [[16, 17], [18, 19]]
            assert rows.read(8, 10).inputs["tensor"].tolist() == [8, 9]
            assert rows.read(8, 10).labels.tolist() == [2, 0]
            assert rows.read(8, 10).ids.tolist() == source.read(8, 10).ids.tolist()
    large = ArraySource(np.zeros((100_000, 10)), np.zeros(100_000, np.int64), name="large")
    assert len(pickle.dumps(take_part(large, 500, 510))) < 2_000


def test_a_source_that_cannot_be_cut_is_sent_whole() -> None:
    class Whole:
        name = "whole"

        def __len__(self) -> int:
            return 3

        def read(self, start: int, stop: int) -> Rows:
            raise AssertionError

    source = Whole()
    assert take_part(source, 1, 2) is source


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
