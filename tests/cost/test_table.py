import pytest
import torch
from torch import Tensor

from offramp.cost import Costs
from offramp.cost._table import CostTable
from offramp.errors import InputError
from tests.cases import each

STAGE, CARRY, ANSWER, DECIDE = (
    [10.0, 20.0, 30.0, 40.0],
    [1.0, 2.0, 3.0, 4.0],
    [0.1, 0.2, 0.3, 0.4],
    [0.01, 0.02, 0.03, 0.0],
)


def double(values: object) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def table(*, carries_state: bool, full: float = 100.4) -> CostTable:
    return CostTable(double(STAGE), double(CARRY), double(ANSWER), double(DECIDE), double(full), carries_state)


def by_hand(exit: int, active: list[int], *, carries_state: bool) -> float:
    """Return the cost of a sample that leaves after stage `exit`, summed piece by piece."""
    paid = 0.0
    for stage in range(exit + 1):
        paid += STAGE[stage]
        awaited = carries_state and any(stage <= early < 3 for early in active)
        if awaited or stage in active:
            paid += CARRY[stage]
        if stage in active:
            paid += ANSWER[stage] + DECIDE[stage]
    return paid


class TestCumulativeCosts:
    @each("carries_state", [True, False])
    @each("active", [[0, 1, 2, 3], [3], [0, 3], [1, 2, 3], [2, 3]])
    def test_piece_by_piece(self, carries_state: bool, active: list[int]) -> None:
        found = table(carries_state=carries_state).cumulative_costs(active)
        expected = [by_hand(exit, active, carries_state=carries_state) for exit in range(4)]
        assert found.tolist() == pytest.approx(expected)

    def test_numbers(self) -> None:
        # Exits 0 and 3 active: 10 + 1 + .1 + .01; then full stages, and nobody reads a state that would be carried on.
        for carries_state in (False, True):
            assert table(carries_state=carries_state).cumulative_costs([0, 3]).tolist() == pytest.approx(
                [11.11, 31.11, 61.11, 105.51]
            )
        # Exits 2 and 3 active: a state is carried past exits 0 and 1, to be read at exit 2.
        assert table(carries_state=False).cumulative_costs([2, 3]).tolist() == pytest.approx([10, 30, 63.33, 107.73])
        assert table(carries_state=True).cumulative_costs([2, 3]).tolist() == pytest.approx([11, 33, 66.33, 110.73])

    def test_all_exits_if_left_out(self) -> None:
        priced = table(carries_state=False)
        assert torch.equal(priced.cumulative_costs(), priced.cumulative_costs([0, 1, 2, 3]))
        assert priced.num_exits == 4

    @each("active", [[], [0], [0, 1, 2]])
    def test_the_final_exit_is_always_in_force(self, active: list[int]) -> None:
        priced = table(carries_state=False)
        with pytest.raises(InputError, match="include the final one, 3"):
            priced.cumulative_costs(active)
        with pytest.raises(InputError, match="include the final one, 3"):
            priced.relative_cost(torch.tensor([0]), active)

    def test_an_exit_more_never_costs_less(self) -> None:
        priced = table(carries_state=False)
        assert (priced.cumulative_costs([0, 1, 3]) >= priced.cumulative_costs([1, 3])).all()

    @each("carries_state", [True, False])
    def test_samples_of_different_size(self, carries_state: bool) -> None:
        sizes = double([1.0, 2.0, 5.0])
        whole = table(carries_state=carries_state)
        # Only stages grow with size here; the other fields stay `L`.
        sized = CostTable(
            sizes[:, None] * whole.stage, whole.carry, whole.answer, whole.decide, whole.full, carries_state
        )
        found = sized.cumulative_costs([1, 3])
        assert found.shape == (3, 4)
        for sample, size in enumerate(sizes.tolist()):
            for exit in range(4):
                grown = (size - 1) * sum(STAGE[: exit + 1])
                expected = by_hand(exit, [1, 3], carries_state=carries_state) + grown
                assert found[sample, exit].item() == pytest.approx(expected)


class TestRelativeCosts:
    def test_are_shares_of_the_last_exit(self) -> None:
        found = table(carries_state=False).relative_costs().tolist()
        total = by_hand(3, [0, 1, 2, 3], carries_state=False)
        assert found == pytest.approx([by_hand(exit, [0, 1, 2, 3], carries_state=False) / total for exit in range(4)])
        assert found[-1] == 1

    def test_of_each_sample(self) -> None:
        stage = double([[1.0, 1.0], [1.0, 3.0]])
        zero = torch.zeros(2, dtype=torch.float64)
        found = CostTable(stage, zero, zero, zero, double([2.0, 4.0]), False).relative_costs()
        assert found.tolist() == [[0.5, 1.0], [0.25, 1.0]]


class TestSpent:
    def test_each_sample_pays_for_its_exit(self) -> None:
        priced = table(carries_state=True)
        exits = torch.tensor([[3, 0, 1], [0, 0, 2]])
        found = priced.spent(exits, [0, 1, 3])
        assert found.shape == (2, 3)
        for row in range(2):
            for sample in range(3):
                expected = by_hand(int(exits[row, sample]), [0, 1, 3], carries_state=True)
                assert found[row, sample].item() == pytest.approx(expected)

    @each("leading", [(), (2,), (4, 2)])
    def test_by_its_own_prices(self, leading: tuple[int, ...]) -> None:
        stage = 1 + torch.rand(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        zero = torch.zeros(4, dtype=torch.float64)
        priced = CostTable(stage, zero, zero, zero, stage.sum(1), False)
        exits = torch.randint(0, 4, (*leading, 5), generator=torch.Generator().manual_seed(1))
        found = priced.spent(exits).reshape(-1, 5)
        for row, chosen in enumerate(exits.reshape(-1, 5).tolist()):
            for sample, exit in enumerate(chosen):
                assert found[row, sample].item() == pytest.approx(sum(stage[sample, : exit + 1].tolist()))


class TestRelativeCost:
    def test_is_a_ratio_of_totals(self) -> None:
        # A short sample that goes all the way and a long one that leaves half-way.
        stage = double([[1.0, 1.0], [50.0, 50.0]])
        zero = torch.zeros(2, dtype=torch.float64)
        priced = CostTable(stage, zero, zero, zero, double([2.0, 100.0]), False)
        found = priced.relative_cost(torch.tensor([1, 0])).item()
        assert found == pytest.approx(52 / 102)
        assert found != pytest.approx((1 + 0.5) / 2)

    def test_shows_what_exits_cost(self) -> None:
        priced = table(carries_state=False)
        everyone_at_the_end = torch.full((7,), 3)
        assert priced.relative_cost(everyone_at_the_end).item() == pytest.approx(111.06 / 100.4)
        assert priced.relative_cost(everyone_at_the_end, [3]).item() == pytest.approx(104.4 / 100.4)

    def test_leading_axes(self) -> None:
        priced = table(carries_state=False)
        exits = torch.tensor([[0, 3], [1, 1], [3, 3]])
        found = priced.relative_cost(exits, [0, 1, 3])
        assert found.shape == (3,)
        for row, chosen in enumerate(exits.tolist()):
            paid = sum(by_hand(exit, [0, 1, 3], carries_state=False) for exit in chosen)
            assert found[row].item() == pytest.approx(paid / 200.8)


class TestRelativeCostAlone:
    """Nothing is carried and nothing decided: stages and one head."""

    @each("carries_state", [True, False])
    @each("count", [1, 7])
    def test_stages_and_a_head(self, carries_state: bool, count: int) -> None:
        priced = table(carries_state=carries_state)
        assert priced.relative_cost_alone(range(0, 2), count) == pytest.approx(30.2 / 100.4)
        assert priced.relative_cost_alone([1, 2], count) == pytest.approx(50.3 / 100.4)
        assert priced.relative_cost_alone(range(3, 4), count) == pytest.approx(40.4 / 100.4)

    def test_the_full_network_costs_itself(self) -> None:
        assert table(carries_state=True).relative_cost_alone(range(4), 5) == pytest.approx(1)

    def test_is_a_ratio_of_totals(self) -> None:
        # A short sample and a long one: the long one counts for more.
        stage = double([[1.0, 1.0, 8.0], [10.0, 20.0, 30.0]])
        answer = double([[0.5, 0.5, 1.0], [0.5, 0.25, 1.0]])
        zero = torch.zeros(3, dtype=torch.float64)
        priced = CostTable(stage, zero, answer, zero, double([9.0, 31.0]), False)
        assert priced.relative_cost_alone(range(0, 2), 2) == pytest.approx((2.5 + 30.25) / 40)

    def test_of_texts(self) -> None:
        found = quadratic().of(torch.tensor([1.0, 3.0, 5.0])).relative_cost_alone(range(0, 2), 3)
        assert found == pytest.approx(30.2 / 100.4)  # here all parts grow alike


FIELDS = ("stage", "carry", "answer", "decide", "full")


def quadratic(*, carries_state: bool = False) -> Costs:
    """Every number of `table` by 1, 10 and 100: a sample of size s pays 1 + 10 s + 100 s^2 times as much."""
    one = table(carries_state=carries_state)
    scaled = ({field: factor * getattr(one, field) for field in FIELDS} for factor in (1, 10, 100))
    return Costs(tuple(CostTable(**fields, carries_state=carries_state) for fields in scaled))


class TestCosts:
    @each("carries_state", [True, False])
    def test_of_samples_of_any_size(self, carries_state: bool) -> None:
        sizes = [1, 7, 0, 512]
        found = quadratic(carries_state=carries_state).of(torch.tensor(sizes))
        assert found.stage.shape == (4, 4)
        assert found.full.shape == (4,)
        assert found.carries_state == carries_state
        for sample, size in enumerate(sizes):
            factor = 1 + 10 * size + 100 * size**2
            assert found.full[sample].item() == pytest.approx(100.4 * factor, rel=1e-14)
            for exit in range(4):
                expected = by_hand(exit, [1, 3], carries_state=carries_state) * factor
                assert found.cumulative_costs([1, 3])[sample, exit].item() == pytest.approx(expected, rel=1e-14)

    def test_shares_are_those_of_totals(self) -> None:
        # The short text goes all the way, the long one leaves at once.
        found = quadratic().of(torch.tensor([1.0, 3.0])).relative_cost(torch.tensor([3, 0]), [0, 3])
        paid = 111 * 105.51 + 931 * 11.11
        assert found.item() == pytest.approx(paid / ((111 + 931) * 100.4))

    def test_average_is_the_mean_of_the_samples(self) -> None:
        sizes = torch.tensor([1, 7, 0, 512])
        costs = quadratic()
        found, each = costs.average(sizes), costs.of(sizes)
        for field in FIELDS:
            torch.testing.assert_close(getattr(found, field), getattr(each, field).mean(0), rtol=1e-14, atol=0)
        assert found.stage.shape == (4,)
        assert found.full.shape == ()
        # Not what the sample of mean size pays: squares count.
        assert found.full.item() == pytest.approx(100.4 * (1 + 10 * 130 + 100 * (1 + 49 + 512**2) / 4))
        assert not torch.allclose(found.full, costs.of(sizes.double().mean()[None]).full)

    def test_one_table_is_that_of_any_size(self) -> None:
        one = table(carries_state=True)
        sizes = torch.tensor([1.0, 9.0])
        assert Costs((one,)).of(sizes) is one
        for field in FIELDS:
            assert torch.equal(getattr(Costs((one,)).average(sizes), field), getattr(one, field))
        assert Costs((one,)).average(sizes).carries_state

    @each("dtype", [torch.float32, torch.long, torch.float16])
    def test_sizes_of_any_type(self, dtype: torch.dtype) -> None:
        found = quadratic().of(torch.tensor([2000], dtype=dtype))  # its square is past the largest of half precision
        assert found.full.item() == pytest.approx(100.4 * (1 + 10 * 2000 + 100 * 2000**2))
