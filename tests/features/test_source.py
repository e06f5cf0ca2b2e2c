import subprocess
import sys

import numpy as np
import pytest
import torch

from offramp.errors import InputError
from offramp.features import ArraySource, sample_ids


def test_ids_name_the_sample_and_not_its_place() -> None:
    train, test = sample_ids("train", range(1000)), sample_ids("test", range(1000))
    assert len(np.unique(np.concatenate([train, test]))) == 2000
    assert (train >= 0).all()
    assert train.dtype == np.int64
    np.testing.assert_array_equal(sample_ids("train", range(400, 600)), train[400:600])


def test_ids_are_the_same_in_another_process() -> None:
    code = "import hashlib; print(int.from_bytes(hashlib.blake2b(b'train/5', digest_size=8).digest(), 'big') // 2)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert sample_ids("train", [5])[0] == int(printed)


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
    with pytest.raises(InputError, match="labels"):
        ArraySource(np.zeros((3, 2)), np.zeros(3), name="real labels")
    with pytest.raises(InputError, match="as many labels"):
        ArraySource(np.zeros((3, 2)), np.zeros(4, np.int64), name="too many labels")
    with pytest.raises(InputError, match="ids"):
        ArraySource(np.zeros((3, 2)), np.zeros(3, np.int64), name="ids of two columns", ids=np.zeros((3, 2), np.int64))
