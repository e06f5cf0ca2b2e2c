"""Growth with the size: recovered where it is exact, never below zero, and the best there is."""

import numpy as np
import pytest
import torch

from offramp.cost._growth import fit_growth
from tests.cases import each


@each("truth", [(3.0, 0.5, 0.01), (3.0, 0.0, 0.01), (0.0, 2.0, 0.0), (4.0, 0.0, 0.0), (0.0, 0.0, 0.0)])
def test_exact_growth_is_recovered(truth: tuple[float, float, float]) -> None:
    sizes = [8, 32, 128]
    values = torch.tensor([[truth[0] + truth[1] * size + truth[2] * size**2] for size in sizes], dtype=torch.float64)
    assert fit_growth(sizes, values).flatten().tolist() == pytest.approx(truth, abs=1e-9)


def test_two_sizes_give_a_line_and_one_a_number() -> None:
    values = torch.tensor([[3.0, 1.0], [5.0, 1.0]], dtype=torch.float64)
    assert fit_growth([2, 4], values).tolist() == [
        [pytest.approx(1.0), pytest.approx(1.0)],
        [pytest.approx(1.0), 0],
        [0, 0],
    ]
    assert fit_growth([7], values[:1]).tolist() == [[3.0, 1.0], [0, 0], [0, 0]]


def test_no_grid_point_does_better() -> None:
    draw = np.random.default_rng(0)
    sizes = [4, 9, 17, 30]
    grid = np.stack(np.meshgrid(*[np.linspace(0, most, 60) for most in (3.0, 0.2, 0.01)], indexing="ij"), -1).reshape(
        -1, 3
    )
    powers = np.array([[1, size, size**2] for size in sizes], dtype=float)
    for _ in range(20):
        values = draw.uniform(0, 3, 4)
        found = fit_growth(sizes, torch.from_numpy(values)[:, None]).flatten().numpy()
        assert (found >= 0).all()
        missed = ((powers @ found - values) ** 2).sum()
        assert missed <= ((grid @ powers.T - values) ** 2).sum(1).min() + 1e-9


def test_shapes_and_types_remain() -> None:
    values = torch.rand(3, 4, 5)
    found = fit_growth([1, 2, 3], values)
    assert found.shape == (3, 4, 5)
    assert found.dtype == torch.float32
    one = fit_growth([1, 2, 3], values[:, 2, 3:4])
    assert torch.allclose(found[:, 2, 3:4], one)
