from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from offramp.data.single_precision import LARGEST, first_unfit


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_the_first_that_is_not_finite_is_found(dtype: type, value: float) -> None:
    values: npt.NDArray[Any] = np.zeros((3, 2, 2), dtype)
    assert first_unfit(values) is None
    values[1, 0, 1] = values[2, 0, 0] = value
    assert first_unfit(values) == (1, 0, 1)


def test_the_range_is_that_of_single_precision() -> None:
    assert first_unfit(np.array([LARGEST, -LARGEST])) is None
    assert first_unfit(np.array([0, np.nextafter(LARGEST, np.inf)])) == (1,)
    assert first_unfit(np.array([0, 0, -1e300])) == (2,)


@pytest.mark.parametrize("values", [np.array([1, 2]), np.array(["a"]), np.array([True]), np.zeros((0, 3))])
def test_what_has_no_fractions_fits(values: npt.NDArray[Any]) -> None:
    assert first_unfit(values) is None
