import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from offramp.functional import exit_distribution, gate_targets
from offramp.functional._leaving import first_exit, should_leave
from tests.cases import each

# A shared machine may stall for longer than hypothesis' deadline.
quick = settings(deadline=None, max_examples=80)

# Scores as gates give them, and the ends of the interval, where clamps and divisions go wrong.
score = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 1.0, 0.5, 1e-12]))
rows = st.lists(score, max_size=9).map(lambda row: [*row, 1.0])


def draws(num_samples: int, num_exits: int, *, power: float = 1.0, seed: int = 0) -> Tensor:
    """Random scores `N x L`, float64; a higher power means smaller scores, so that more exits are reached."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(num_samples, num_exits, dtype=torch.float64, generator=generator) ** power
    scores[:, -1] = 1
    return scores


def distribution_by_hand(row: list[float]) -> list[float]:
    """Eq. 8, one gate after the other: whoever is left takes its score, at most what is left."""
    left, probabilities = 1.0, []
    for score in row:
        taken = min(score, left)
        probabilities.append(taken)
        left = max(0.0, left - score)
    return probabilities


def if_reached_by_hand(row: list[float]) -> list[float]:
    """Eq. 4 solved for P(E), its product multiplied out; 1 where nobody arrives."""
    found: list[float] = []
    for probability in distribution_by_hand(row):
        arriving = 1.0
        for earlier in found:
            arriving *= 1 - earlier
        found.append(min(1.0, probability / arriving) if arriving > 1e-9 else 1.0)
    return found


class TestExitDistribution:
    @quick
    @given(row=rows)
    def test_is_a_distribution(self, row: list[float]) -> None:
        probability = exit_distribution(torch.tensor(row, dtype=torch.float64))
        assert (probability >= 0).all()
        assert (probability <= torch.tensor(row, dtype=torch.float64)).all()
        assert probability.sum().item() == pytest.approx(1, abs=1e-12)

    @quick
    @given(row=rows)
    def test_is_what_going_from_gate_to_gate_gives(self, row: list[float]) -> None:
        probability = exit_distribution(torch.tensor(row, dtype=torch.float64))
        assert probability.tolist() == pytest.approx(distribution_by_hand(row), abs=1e-12)

    def test_where_the_printed_equation_turns_negative(self) -> None:
        # Without the inner max: .7 .3 -.3 -.8.
        probability = exit_distribution(torch.tensor([0.7, 0.6, 0.5, 1.0], dtype=torch.float64))
        torch.testing.assert_close(probability, torch.tensor([0.7, 0.3, 0.0, 0.0], dtype=torch.float64))

    @each("leading", [(), (5,), (3, 5), (2, 3, 5)])
    def test_leading_axes(self, leading: tuple[int, ...]) -> None:
        flat = draws(30, 4)[: torch.Size(leading).numel()]
        expected = torch.tensor([distribution_by_hand(row) for row in flat.tolist()], dtype=torch.float64)
        found = exit_distribution(flat.reshape(*leading, 4))
        torch.testing.assert_close(found, expected.reshape(*leading, 4))

    def test_one_exit(self) -> None:
        certain = torch.ones(3, 1)
        assert torch.equal(exit_distribution(certain), certain)
        assert first_exit(should_leave(certain)).tolist() == [0, 0, 0]

    def test_single_precision(self) -> None:
        scores = draws(2000, 27, power=4)
        found = exit_distribution(scores.float())
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), exit_distribution(scores), rtol=0, atol=3e-6)
        torch.testing.assert_close(found.sum(-1), torch.ones(2000), rtol=0, atol=3e-6)

    def test_gates_equal_to_their_targets_choose_the_best_exit_for_certain(self) -> None:
        # The surrogate task's exactness: appendix "Surrogate task" of the paper.
        for num_exits in (1, 2, 7):
            best = torch.arange(num_exits)
            targets = gate_targets(1 - torch.eye(num_exits)).double()
            scores = torch.cat([targets, torch.ones(num_exits, 1, dtype=torch.float64)], dim=1)
            assert torch.equal(exit_distribution(scores), torch.eye(num_exits, dtype=torch.float64))
            assert torch.equal(first_exit(should_leave(scores)), best)


class TestLeaving:
    @each("num_exits", [2, 4, 7, 14])
    @each("power", [1.0, 3.0, 8.0])
    def test_closed_form_is_the_first_exit_with_even_odds(self, num_exits: int, power: float) -> None:
        scores = draws(3000, num_exits, power=power, seed=num_exits)
        tie = (2 * scores + (scores.cumsum(1) - scores) - 1).abs() < 1e-9
        scores = scores[~tie.any(1)]
        expected = []
        for row in scores.tolist():
            chances = if_reached_by_hand(row)
            expected.append(next(index for index, chance in enumerate(chances) if chance >= 0.5))
        assert first_exit(should_leave(scores)).tolist() == expected

    def test_is_not_a_score_of_one_half(self) -> None:
        # Two gates, uniform: both below one half and 2 g^2 + g^1 >= 1 is a triangle of area 1/16.
        two = draws(40_000, 3)
        differs = first_exit(should_leave(two)) != first_exit(two >= 0.5)
        assert differs.double().mean().item() == pytest.approx(1 / 16, abs=0.006)  # five standard errors
        many = draws(5000, 14, power=3)
        ours, halves = first_exit(should_leave(many)), first_exit(many >= 0.5)
        assert (ours <= halves).all()
        assert (ours != halves).double().mean() > 0.2

    @quick
    @given(row=rows)
    def test_someone_always_leaves(self, row: list[float]) -> None:
        assert should_leave(torch.tensor(row, dtype=torch.float64))[-1]

    @quick
    @given(leave=st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=8))
    def test_first_exit(self, leave: list[list[bool]]) -> None:
        expected = [[*row[:-1], True].index(True) for row in leave]
        assert first_exit(torch.tensor(leave)).tolist() == expected
        assert first_exit(torch.tensor([leave, leave])).tolist() == [expected, expected]
