import torch
import torch.nn.functional as F

from offramp.pooling import Tokens
from offramp.pooling._pooling import AutoPooling, Nodes
from offramp.pooling._rich import RichPooling
from tests.cases import each

LAYOUTS = [torch.contiguous_format, torch.channels_last]


@each("layout", LAYOUTS)
@each("shape", [(1, 16, 32, 32), (5, 16, 32, 32), (3, 8, 7, 7), (2, 8, 13, 5), (2, 3, 2, 2)])
def test_means_and_maxima_of_the_same_cells(shape: tuple[int, ...], layout: torch.memory_format) -> None:
    maps = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(memory_format=layout)
    side = min(4, *shape[2:])
    means, largest = (pool(maps, side).flatten(1) for pool in (F.adaptive_avg_pool2d, F.adaptive_max_pool2d))
    torch.testing.assert_close(RichPooling()(maps), torch.cat([means, largest], 1))


def test_the_largest_of_the_patches_without_the_class_token() -> None:
    tokens = Tokens(torch.randn(3, 10, 4), prefix=1)
    found = RichPooling()(tokens)
    assert torch.equal(found[:, :-4], AutoPooling()(tokens))
    assert torch.equal(found[:, -4:], tokens.values[:, 1:].amax(1))


def test_words_and_graphs_are_as_before() -> None:
    words = Tokens(torch.randn(3, 5, 4), mask=torch.ones(3, 5, dtype=torch.bool))
    nodes = Nodes(torch.randn(5, 4), torch.tensor([0, 0, 1, 1, 1]), 2)
    for kind in (words, nodes):
        assert torch.equal(RichPooling()(kind), AutoPooling()(kind))
        assert RichPooling().mul_adds(kind) == AutoPooling().mul_adds(kind)


def test_maps_are_gone_through_twice() -> None:
    assert RichPooling().mul_adds(torch.zeros(2, 3, 8, 8)) == 2 * 2 * 3 * 8 * 8
