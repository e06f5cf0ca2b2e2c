import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp.errors import InputError
from offramp.trunk import POOLINGS, GridPooling, MeanPooling

quick = settings(deadline=None, max_examples=30)


def maps(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


class TestContract:
    """Everything registered."""

    @pytest.mark.parametrize("name", list(POOLINGS))
    def test_a_vector_a_sample(self, name: str) -> None:
        pooling = POOLINGS.get(name)
        assert pooling.name == name
        given = maps(5, 6, 8, 8)
        features = pooling(given)
        assert features.ndim == 2
        assert len(features) == 5
        # A sample's features are its own, wherever it stands and however its map lies in memory.
        torch.testing.assert_close(pooling(given[[3]]), features[[3]])
        torch.testing.assert_close(pooling(given.contiguous(memory_format=torch.channels_last)), features)

    @pytest.mark.parametrize("name", list(POOLINGS))
    def test_every_number_is_added_once(self, name: str) -> None:
        assert POOLINGS.get(name).mul_adds((6, 8, 8)) == 384


class TestMean:
    def test_over_all_positions(self) -> None:
        given = maps(2, 3, 4, 5)
        expected = torch.stack([torch.stack([channel.sum() / 20 for channel in sample]) for sample in given])
        torch.testing.assert_close(MeanPooling()(given), expected)
        torch.testing.assert_close(MeanPooling()(given.flatten(2)), expected)

    def test_vectors_pass_through(self) -> None:
        given = maps(2, 3)
        assert torch.equal(MeanPooling()(given), given)
        assert MeanPooling().mul_adds((3,)) == 0


class TestGrid:
    @pytest.mark.parametrize(
        ("shape", "width"),
        [
            ((16, 32, 32), 256),
            ((32, 16, 16), 512),
            ((64, 8, 8), 1024),
            ((128, 4, 4), 2048),  # the cap, exactly
            ((129, 4, 4), 129 * 9),
            ((512, 7, 7), 2048),
            ((513, 7, 7), 513),
            ((64, 2, 2), 256),
            ((64, 3, 9), 576),
            ((10, 1, 1), 10),
        ],
    )
    def test_widths(self, shape: tuple[int, ...], width: int) -> None:
        assert GridPooling()(torch.zeros(2, *shape)).shape == (2, width)

    def test_options(self) -> None:
        assert GridPooling(side=2)(torch.zeros(1, 16, 8, 8)).shape == (1, 64)
        assert GridPooling(largest=100)(torch.zeros(1, 16, 8, 8)).shape == (1, 64)

    @quick
    @given(channels=st.integers(1, 3), side=st.integers(1, 4), tall=st.integers(1, 3), wide=st.integers(1, 3))
    def test_means_of_cells_channels_outermost(self, channels: int, side: int, tall: int, wide: int) -> None:
        given = maps(2, channels, side * tall, side * wide)
        found = GridPooling(side=side)(given)
        for sample in range(2):
            expected = [
                given[sample, channel, row * tall : (row + 1) * tall, column * wide : (column + 1) * wide].mean()
                for channel in range(channels)
                for row in range(side)
                for column in range(side)
            ]
            torch.testing.assert_close(found[sample], torch.stack(expected))
        cells = found.view(2, channels, side * side)
        torch.testing.assert_close(cells.mean(-1), MeanPooling()(given))

    @pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 3, 4, 5, 6)])
    def test_refuses_what_is_no_map(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(InputError, match=r"N x C x H x W.*use pooling 'mean'"):
            GridPooling()(torch.zeros(shape))
