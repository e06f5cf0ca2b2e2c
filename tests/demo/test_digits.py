"""Three parts that share no image, the same every time."""

import sys

import numpy as np
import pytest

from offramp.demo._digits import PREPROCESSING, digits
from offramp.errors import MissingExtraError
from offramp.features import ArraySource
from offramp.features._source import Rows


def rows(source: ArraySource) -> Rows:
    return source.read(0, len(source))


def test_parts_share_no_image_and_leave_none_out() -> None:
    parts = digits()
    found = {name: rows(getattr(parts, name)) for name in ("train", "validation", "test")}
    assert sum(len(part.labels) for part in found.values()) == 1797
    assert len(np.unique(np.concatenate([part.ids for part in found.values()]))) == 1797
    assert all(set(part.labels.tolist()) == set(range(10)) for part in found.values())


def test_an_image_keeps_its_id_in_another_division() -> None:
    one, other = rows(digits().train), rows(digits(seed=1).train)
    shared, first, second = np.intersect1d(one.ids, other.ids, return_indices=True)
    assert 200 < len(shared) < 600  # 356 are expected by chance
    np.testing.assert_array_equal(one.inputs[first], other.inputs[second])
    assert digits().train.name != digits(seed=1).train.name  # a kept store must not be taken for another division's


def test_the_same_seed_gives_the_same_division() -> None:
    np.testing.assert_array_equal(rows(digits().test).inputs, rows(digits().test).inputs)


def test_images_are_bytes_that_are_prepared_between_minus_one_and_one() -> None:
    images = rows(digits().train).inputs
    assert (images.dtype, images.shape, images.min(), images.max()) == (np.uint8, (800, 8, 8, 1), 0, 255)
    prepared = PREPROCESSING(images)
    assert (prepared.shape, float(prepared.min()), float(prepared.max())) == ((800, 1, 8, 8), -1.0, 1.0)


def test_without_scikit_learn_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'offramp\[demo\]'"):
        digits()
