from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from offramp.backbone import Axes
from offramp.backbone._hidden import batch_size, concatenate, select, with_length
from offramp.errors import InputError
from tests.cases import each

quick = settings(deadline=None, max_examples=40)

# Tokens of a sequence model: values, a mask a pair of positions, a recurrent state with samples second, one table.
AXES = {
    "tokens": Axes(lengths=(1,), pad=-1),
    "inner": (Axes(lengths=(1, 2), pad=7), {"state": Axes(batch=1)}),
    "table": Axes(batch=None),
}


def hidden(count: int, length: int, *, seed: int = 0) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    inner = (draw(count, length, length), {"state": draw(2, count, 3)})
    return {"tokens": draw(count, length), "inner": inner, "table": draw(5)}


class TestBatchSize:
    def test_tensors_and_trees(self) -> None:
        assert batch_size(torch.zeros(3, 2)) == 3
        assert batch_size((torch.zeros(3), [torch.zeros(3, 1), torch.zeros(3, 4)])) == 3
        assert batch_size(torch.zeros(3, 2), Axes(batch=1)) == 2
        assert batch_size(torch.zeros(3, 2), Axes(batch=-1)) == 2
        assert batch_size(hidden(4, 6), AXES) == 4
        assert batch_size(torch.zeros(0, 2)) == 0

    @each(
        ("tree", "axes"),
        [
            ((torch.zeros(3), torch.zeros(2)), Axes()),
            (torch.zeros(3), Axes(batch=None)),
            ((), Axes()),
        ],
    )
    def test_refuses_what_has_no_one_size(self, tree: Any, axes: Axes) -> None:
        with pytest.raises(InputError, match=r"one batch size|the batch axis is missing"):
            batch_size(tree, axes)

    @each("axes", [(Axes(), Axes(), Axes()), {"a": Axes(), "c": Axes()}, {"a": Axes()}, {"a": (Axes(),), "b": Axes()}])
    def test_refuses_axes_of_another_tree(self, axes: Any) -> None:
        tree = {"a": torch.zeros(3), "b": torch.zeros(3)}
        with pytest.raises(InputError, match="do not fit"):
            batch_size(tree, axes)
        with pytest.raises(InputError, match="do not fit"):
            select(tree, torch.tensor([0]), axes)
        with pytest.raises(InputError, match="do not fit"):
            concatenate([tree, tree], axes)

    def test_axes_go_by_name(self) -> None:
        tree = {"a": torch.zeros(3), "b": torch.zeros(5)}
        assert batch_size(tree, {"a": Axes(), "b": Axes(None)}) == 3
        assert batch_size(tree, {"b": Axes(None), "a": Axes()}) == 3


class TestSelect:
    @quick
    @given(keep=st.lists(st.integers(0, 4), max_size=8))
    def test_indices(self, keep: list[int]) -> None:
        whole = hidden(5, 4)
        part = select(whole, torch.tensor(keep, dtype=torch.long), AXES)
        assert batch_size(part, AXES) == len(keep)
        for row, sample in enumerate(keep):
            assert torch.equal(part["tokens"][row], whole["tokens"][sample])
            assert torch.equal(part["inner"][0][row], whole["inner"][0][sample])
            assert torch.equal(part["inner"][1]["state"][:, row], whole["inner"][1]["state"][:, sample])
        assert part["table"] is whole["table"]

    @quick
    @given(keep=st.lists(st.booleans(), min_size=5, max_size=5))
    def test_booleans(self, keep: list[bool]) -> None:
        whole = hidden(5, 4)
        part = select(whole, torch.tensor(keep), AXES)
        assert torch.equal(part["tokens"], whole["tokens"][torch.tensor(keep)])
        assert torch.equal(part["inner"][1]["state"], whole["inner"][1]["state"][:, torch.tensor(keep)])

    def test_one_axes_for_a_subtree(self) -> None:
        tree = {"a": (torch.arange(3), torch.eye(3)), "b": torch.arange(6).view(2, 3)}
        part = select(tree, torch.tensor([2]), {"a": Axes(), "b": Axes(batch=1)})
        assert part["a"][0].tolist() == [2]
        assert part["a"][1].tolist() == [[0, 0, 1]]
        assert part["b"].tolist() == [[2], [5]]

    def test_tensors_and_structures(self) -> None:
        assert select(torch.arange(4), torch.tensor([3, 3, 0])).tolist() == [3, 3, 0]
        kept = select(((), [torch.arange(2)]), torch.tensor([1]))
        assert isinstance(kept, tuple)
        assert kept[0] == ()
        assert kept[1][0].tolist() == [1]

    def test_axes_go_by_name(self) -> None:
        tree = {"a": torch.arange(3), "b": torch.arange(3)}
        part = select(tree, torch.tensor([2]), {"b": Axes(None), "a": Axes()})
        assert part["a"].tolist() == [2]
        assert part["b"].tolist() == [0, 1, 2]


class TestConcatenate:
    def test_pads_to_the_longest(self) -> None:
        batches = [hidden(2, 3, seed=1), hidden(1, 5, seed=2), hidden(3, 4, seed=3)]
        joined = concatenate(batches, AXES)
        assert batch_size(joined, AXES) == 6
        row = 0
        for batch in batches:
            length = batch["tokens"].shape[1]
            for sample in range(len(batch["tokens"])):
                expected = torch.full((5,), -1.0)
                expected[:length] = batch["tokens"][sample]
                assert torch.equal(joined["tokens"][row], expected)
                pairs = torch.full((5, 5), 7.0)
                pairs[:length, :length] = batch["inner"][0][sample]
                assert torch.equal(joined["inner"][0][row], pairs)
                state = batch["inner"][1]["state"][:, sample]
                assert torch.equal(joined["inner"][1]["state"][:, row], state)
                row += 1
        assert joined["table"] is batches[0]["table"]

    @each(
        ("dtype", "pad"),
        [(torch.float32, float("-inf")), (torch.bool, 1), (torch.long, 3), (torch.bfloat16, 0.5), (torch.int32, -2)],
    )
    def test_pads_any_dtype(self, dtype: torch.dtype, pad: float) -> None:
        joined = concatenate([torch.zeros(1, 1, dtype=dtype), torch.zeros(1, 3, dtype=dtype)], Axes(0, (-1,), pad))
        assert joined.dtype == dtype
        assert joined[0].tolist() == [0, torch.tensor(pad).to(dtype).item(), torch.tensor(pad).to(dtype).item()]

    def test_select_takes_the_parts_out_again(self) -> None:
        batches = [hidden(2, 3, seed=1), hidden(4, 3, seed=2)]
        joined = concatenate(batches, AXES)
        for batch, rows in zip(batches, (torch.arange(2), torch.arange(2, 6)), strict=True):
            again = select(joined, rows, AXES)
            assert torch.equal(again["tokens"], batch["tokens"])
            assert torch.equal(again["inner"][1]["state"], batch["inner"][1]["state"])

    def test_one_batch_and_empty_batches(self) -> None:
        one = torch.randn(3, 2)
        assert torch.equal(concatenate([one]), one)
        assert torch.equal(concatenate([one[:0], one, one[:0]]), one)

    def test_refuses_nothing(self) -> None:
        with pytest.raises(InputError, match="at least one"):
            concatenate([])

    def test_leaves_go_by_name(self) -> None:
        zero, one = torch.zeros(1), torch.ones(1)
        joined = concatenate([{"a": zero, "b": one}, {"b": one, "a": zero}])
        assert joined["a"].tolist() == [0, 0]
        assert joined["b"].tolist() == [1, 1]

    @each("second", [{"a": torch.ones(1), "c": torch.ones(1)}, {"a": torch.ones(1)}, (torch.ones(1), torch.ones(1))])
    def test_refuses_trees_that_differ(self, second: Any) -> None:
        with pytest.raises(InputError):
            concatenate([{"a": torch.zeros(1), "b": torch.zeros(1)}, second])


class TestAtLength:
    @each("length", [1, 3, 4, 9])
    def test_cut_or_repeated_from_the_start(self, length: int) -> None:
        whole = hidden(2, 4)
        found = with_length(whole, length, AXES)
        for row in range(length):
            assert torch.equal(found["tokens"][:, row], whole["tokens"][:, row % 4])
            for column in range(length):
                assert torch.equal(found["inner"][0][:, row, column], whole["inner"][0][:, row % 4, column % 4])
        assert found["tokens"].shape == (2, length)
        assert found["inner"][0].shape == (2, length, length)

    def test_what_does_not_grow_stays(self) -> None:
        whole = hidden(2, 4)
        found = with_length(whole, 7, AXES)
        assert torch.equal(found["inner"][1]["state"], whole["inner"][1]["state"])
        assert found["table"] is whole["table"]
        assert batch_size(found, AXES) == 2

    def test_any_type_and_axes_from_the_end(self) -> None:
        given = torch.tensor([[True], [False]])
        assert with_length(given, 2, Axes(lengths=(-1,))).tolist() == [[True, True], [False, False]]

    def test_refuses_axes_of_another_tree(self) -> None:
        with pytest.raises(InputError, match="do not fit"):
            with_length({"a": torch.zeros(3)}, 2, {"b": Axes()})
