"""The corruptions of images, and the draws of streams."""

import math

import numpy as np
import pytest

pytest.importorskip("torch_geometric")
pytest.importorskip("efficientnet_lite_pytorch", reason="not installed: scripts/setup installs it")

from offramp.monitor import Traffic
from offramp_bench.guarantees.monitoring import Samples
from offramp_bench.guarantees.shifts import blur, contrast, noise


def images(count: int = 3) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.random.default_rng(0).uniform(0, 255, (count, 32, 32, 3))


def test_noise_has_its_spread() -> None:
    added = noise(images(20), 8.0) - images(20)
    assert added.std() == pytest.approx(8, rel=0.02)
    assert added.mean() == pytest.approx(0, abs=0.2)


def test_a_blurred_dot_is_a_bell() -> None:
    dot = np.zeros((1, 32, 32, 3))
    dot[0, 16, 16] = 1
    spread = blur(dot, 0.8)[0, :, :, 0]
    assert spread.sum() == pytest.approx(1)
    steps = np.arange(-4, 5)
    weights = np.exp(-(steps**2) / (2 * 0.8**2))
    expected = np.outer(weights, weights) / weights.sum() ** 2
    assert np.allclose(spread[12:21, 12:21], expected)


def test_an_even_image_is_not_blurred_even_at_its_edges() -> None:
    assert np.allclose(blur(np.full((1, 32, 32, 3), 7.0), 0.6), 7)


def test_contrast_keeps_the_mean() -> None:
    left = contrast(images(), 0.2)
    assert np.allclose(left.mean((1, 2, 3)), images().mean((1, 2, 3)))
    assert np.allclose(left.std((1, 2, 3)), 0.2 * images().std((1, 2, 3)))


def test_streams_mix_by_share() -> None:
    known, other = Traffic(np.zeros(50), np.full(50, 0.5), np.zeros(50)), Traffic([1] * 30, [0.5] * 30, [1] * 30)
    drawn = Samples(known, other, 0.3).draw(np.random.default_rng(0), 20_000, shadow=0.1)
    margin = 4 * math.sqrt(0.25 / 20_000)
    assert drawn.exits.mean() == pytest.approx(0.3, abs=margin)
    assert len(drawn.shadowed) / 20_000 == pytest.approx(0.1, abs=margin)
    assert drawn.shadowed.mean() == pytest.approx(0.3, abs=0.04)
    assert Samples(known).draw(np.random.default_rng(0), 1000, shadow=1).exits.max() == 0
    assert len(Samples(known, other, 1.0).draw(np.random.default_rng(0), 0)) == 0
    assert Samples(known, other, 1.0).draw(np.random.default_rng(0), 100).exits.min() == 1
