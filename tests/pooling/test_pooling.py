import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from offramp.errors import InputError
from offramp.pooling import POOLINGS, Representation, Tokens
from offramp.pooling._pooling import AutoPooling, FirstPooling, GridPooling, MeanPooling, Nodes
from tests.cases import each

quick = settings(deadline=None, max_examples=30)


def maps(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def words(*lengths: int, longest: int, width: int = 3) -> Tokens:
    """Texts of these lengths, filled up with numbers that must never count."""
    values = maps(len(lengths), longest, width)
    mask = torch.arange(longest) < torch.tensor(lengths)[:, None]
    return Tokens(torch.where(mask[..., None], values, 1e6), mask)


def graphs(*sizes: int, width: int = 3) -> Nodes:
    """Graphs of these sizes, their nodes mixed."""
    graph = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes, dtype=torch.long))
    graph = graph[torch.randperm(len(graph), generator=torch.Generator().manual_seed(1))]
    return Nodes(maps(len(graph), width), graph, len(sizes))


KINDS: dict[str, Representation] = {
    "vectors": maps(5, 6),
    "rows": maps(5, 6, 8),
    "maps": maps(5, 6, 8, 8),
    "patches": Tokens(maps(5, 17, 6), prefix=1),
    "words": words(4, 1, 7, 3, 2, longest=7, width=6),
    "nodes": graphs(4, 1, 7, 3, 2, width=6),
}
TAKES = {"mean": list(KINDS), "auto": list(KINDS), "rich": list(KINDS), "grid": ["maps"], "first": ["patches", "words"]}
TAKEN = [(name, kind) for name in POOLINGS for kind in KINDS if kind in TAKES.get(name, ())]
REFUSED = [(name, kind) for name in POOLINGS for kind in KINDS if kind not in TAKES.get(name, KINDS)]


def only(representation: Representation, sample: int) -> Representation:
    """One sample alone."""
    match representation:
        case Tokens(values, mask, prefix):
            return Tokens(values[[sample]], None if mask is None else mask[[sample]], prefix)
        case Nodes(values, graph, _):
            mine = graph == sample
            return Nodes(values[mine], torch.zeros(int(mine.sum()), dtype=torch.long), 1)
        case _:
            return representation[[sample]]


def numbers(representation: Representation) -> Tensor:
    return representation if isinstance(representation, Tensor) else representation.values


class TestContract:
    """Everything registered, on every kind of representation."""

    def test_every_pooling_is_here(self) -> None:
        assert set(TAKES) == set(POOLINGS), "say in TAKES which kinds of representation the new pooling takes"

    @each(("name", "kind"), TAKEN)
    def test_a_vector_a_sample(self, name: str, kind: str) -> None:
        pooling, given = POOLINGS.get(name), KINDS[kind]
        assert pooling.name == name
        features = pooling(given)
        assert features.ndim == 2
        assert len(features) == 5
        # A sample's features are its own, wherever it stands and however its map lies in memory.
        torch.testing.assert_close(pooling(only(given, 3)), features[[3]])
        if kind == "maps":
            assert isinstance(given, Tensor)
            torch.testing.assert_close(pooling(given.contiguous(memory_format=torch.channels_last)), features)

    @each(("name", "kind"), TAKEN)
    def test_features_outlive_a_stage_that_works_in_place(self, name: str, kind: str) -> None:
        given = KINDS[kind]
        features = POOLINGS.get(name)(given)
        before = features.clone()
        kept = numbers(given).clone()
        numbers(given).zero_()
        try:
            assert torch.equal(features, before)
        finally:
            numbers(given).copy_(kept)

    @each(("name", "kind"), REFUSED)
    def test_what_it_cannot_take_is_refused(self, name: str, kind: str) -> None:
        with pytest.raises(InputError, match="use pooling 'auto'"):
            POOLINGS.get(name)(KINDS[kind])

    @each("name", ["mean", "grid", "auto"])
    def test_every_number_of_a_map_is_added_once(self, name: str) -> None:
        assert POOLINGS.get(name).mul_adds(maps(1, 6, 8, 8)) == 384
        assert POOLINGS.get(name).mul_adds(maps(5, 6, 8, 8)) == 5 * 384

    @each(("kind", "count"), [("patches", 5 * 17 * 6), ("words", 5 * 7 * 6), ("nodes", 17 * 6)])
    def test_tokens_and_nodes_are_gone_through_as_often_as_needed(self, kind: str, count: int) -> None:
        assert MeanPooling().mul_adds(KINDS[kind]) == count
        assert AutoPooling().mul_adds(KINDS[kind]) == 2 * count
        assert FirstPooling().mul_adds(KINDS[kind]) == 0

    @each("name", ["mean", "auto"])
    def test_no_samples(self, name: str) -> None:
        for none in (maps(0, 6), maps(0, 6, 8, 8), Tokens(maps(0, 17, 6), prefix=1), words(longest=4), graphs()):
            assert len(POOLINGS.get(name)(none)) == 0


class TestMean:
    def test_over_all_positions(self) -> None:
        given = maps(2, 3, 4, 5)
        expected = torch.stack([torch.stack([channel.sum() / 20 for channel in sample]) for sample in given])
        torch.testing.assert_close(MeanPooling()(given), expected)
        torch.testing.assert_close(MeanPooling()(given.flatten(2)), expected)

    def test_vectors_pass_through(self) -> None:
        given = maps(2, 3)
        assert torch.equal(MeanPooling()(given), given)
        assert MeanPooling().mul_adds(given) == 0


class TestGrid:
    @each(
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

    def test_auto_is_the_same_on_maps(self) -> None:
        for shape in ((16, 32, 32), (512, 7, 7), (10, 1, 1), (3, 5, 9)):
            assert torch.equal(AutoPooling()(maps(2, *shape)), GridPooling()(maps(2, *shape)))

    @each("dtype", [torch.float64, torch.float32, torch.bfloat16])
    @each("shape", [(32, 32), (7, 7), (5, 9), (4, 4), (3, 2), (1, 1), (14, 11)])
    def test_cells_are_cut_as_torch_does(self, shape: tuple[int, int], dtype: torch.dtype) -> None:
        given = maps(2, 3, *shape).to(dtype)
        expected = torch.nn.functional.adaptive_avg_pool2d(given, min(4, *shape)).flatten(1)
        for layout in (torch.contiguous_format, torch.channels_last):
            torch.testing.assert_close(GridPooling()(given.to(memory_format=layout)), expected)

    def test_what_is_kept_serves_training_too(self) -> None:
        with torch.inference_mode():
            GridPooling()(torch.ones(1, 2, 13, 13))
        given = torch.ones(1, 2, 13, 13, requires_grad=True)
        (slope,) = torch.autograd.grad(GridPooling()(given).sum(), given)
        assert slope.shape == given.shape

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

    @each("shape", [(2, 3), (2, 3, 4), (2, 3, 4, 5, 6)])
    def test_refuses_what_is_no_map(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(InputError, match=r"N x C x H x W.*use pooling 'auto'"):
            GridPooling()(torch.zeros(shape))


def mean_largest(rows: list[Tensor], width: int) -> tuple[Tensor, Tensor]:
    """Number by number; zeros where there is nothing."""
    mean, largest = torch.zeros(2, width, dtype=torch.float64)
    for column in range(width):
        values = [float(row[column]) for row in rows]
        mean[column] = sum(values) / max(1, len(values))
        largest[column] = max(values, default=0.0)
    return mean, largest


class TestWords:
    @quick
    @given(lengths=st.lists(st.integers(0, 6), min_size=1, max_size=4), dtype=st.sampled_from([torch.bool, torch.long]))
    def test_against_a_loop(self, lengths: list[int], dtype: torch.dtype) -> None:
        text = words(*lengths, longest=6)
        assert text.mask is not None
        given = Tokens(text.values, text.mask.to(dtype))
        means, everything, first = MeanPooling()(given), AutoPooling()(given), FirstPooling()(given)
        for sample, length in enumerate(lengths):
            mean, largest = mean_largest([given.values[sample, token] for token in range(length)], 3)
            torch.testing.assert_close(means[sample], mean)
            torch.testing.assert_close(everything[sample], torch.cat([mean, largest, given.values[sample, 0]]))
            assert torch.equal(first[sample], given.values[sample, 0])

    def test_gaps_anywhere(self) -> None:
        given = Tokens(maps(1, 4, 2) - 10, torch.tensor([[False, True, False, True]]))
        mean, largest = mean_largest([given.values[0, 1], given.values[0, 3]], 2)
        torch.testing.assert_close(AutoPooling()(given)[0, :4], torch.cat([mean, largest]))

    @each("filling", [float("nan"), float("inf"), -float("inf")])
    def test_a_text_without_words_is_a_number_whatever_fills_it(self, filling: float) -> None:
        values = torch.full((2, 3, 4), filling)
        values[:, 0] = 0.5  # the first token may be looked at
        values[1, 1] = 1.5
        given = Tokens(values, torch.tensor([[False] * 3, [True, True, False]]))
        assert MeanPooling()(given).tolist() == [[0.0] * 4, [1.0] * 4]
        assert AutoPooling()(given).tolist() == [[0.0] * 8 + [0.5] * 4, [1.0] * 4 + [1.5] * 4 + [0.5] * 4]

    @each("dtype", [torch.float16, torch.bfloat16])
    def test_a_long_text_in_half_precision(self, dtype: torch.dtype) -> None:
        values = torch.full((1, 2048, 1), 100.0, dtype=dtype)  # their sum is past the largest number of 16 bits
        given = Tokens(values, torch.ones(1, 2048, dtype=torch.bool))
        assert AutoPooling()(given).tolist() == [[100.0, 100.0, 100.0]]
        assert AutoPooling()(given).dtype == MeanPooling()(given).dtype == dtype


class TestPatches:
    def test_tokens_before_them_their_mean_and_a_grid(self) -> None:
        given = Tokens(maps(2, 2 + 36, 3), prefix=2)
        found = AutoPooling()(given)
        assert found.shape == (2, 2 * 3 + 3 + 3 * 16)
        for sample in range(2):
            patches = [given.values[sample, token] for token in range(2, 38)]
            expected = [given.values[sample, 0], given.values[sample, 1], mean_largest(patches, 3)[0]]
            square = given.values[sample, 2:].T.reshape(3, 6, 6)  # row by row, as patches are laid out
            torch.testing.assert_close(found[sample, :9], torch.cat(expected))
            torch.testing.assert_close(found[[sample], 9:], GridPooling()(square[None]))

    def test_where_things_are_shows(self) -> None:
        values = torch.zeros(1, 1 + 16, 1)
        values[0, 1 + 4 * 1 + 2] = 1  # second row, third column
        grid = AutoPooling()(Tokens(values, prefix=1))[0, 2:].view(4, 4)
        assert grid.nonzero().tolist() == [[1, 2]]

    @each("count", [1, 2, 12, 15])
    def test_no_grid_where_they_form_no_square(self, count: int) -> None:
        given = Tokens(maps(2, 1 + count, 3), prefix=1)
        expected = torch.cat([given.values[:, 0], given.values[:, 1:].mean(1)], dim=1)
        torch.testing.assert_close(AutoPooling()(given), expected)

    def test_without_a_class_token(self) -> None:
        given = Tokens(maps(2, 16, 3))
        assert AutoPooling()(given).shape == (2, 3 + 48)
        torch.testing.assert_close(AutoPooling()(given)[:, :3], MeanPooling()(given))
        assert torch.equal(FirstPooling()(given), given.values[:, 0])


class TestNodes:
    @quick
    @given(sizes=st.lists(st.integers(0, 5), min_size=1, max_size=5))
    def test_against_a_loop(self, sizes: list[int]) -> None:
        given = graphs(*sizes)
        means, everything = MeanPooling()(given), AutoPooling()(given)
        assert means.shape == (len(sizes), 3)
        for sample, size in enumerate(sizes):
            mine = [row for row, graph in zip(given.values, given.graph.tolist(), strict=True) if graph == sample]
            mean, largest = mean_largest(mine, 3)
            torch.testing.assert_close(means[sample], mean)
            torch.testing.assert_close(everything[sample], torch.cat([mean, largest, mean * size]))

    def test_an_empty_graph_has_features_of_nothing(self) -> None:
        found = AutoPooling()(graphs(2, 0, 3, 0))  # one between others, and the last
        assert not found[[1, 3]].any()
        assert found[[0, 2]].all()
        assert not AutoPooling()(graphs(0, 0)).any()

    def test_below_zero(self) -> None:
        given = Nodes(torch.tensor([[-2.0], [-1.0]]), torch.tensor([0, 0]), 1)
        assert AutoPooling()(given).tolist() == [[-1.5, -1.0, -3.0]]
