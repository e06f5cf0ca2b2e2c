import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp.functional import gate_targets, imbalance_weights
from offramp.functional._objective import best_exit, priced_losses
from tests.cases import each

quick = settings(deadline=None, max_examples=60)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class TestPricedLosses:
    @each("shared", [True, False])
    @each("per_sample", [True, False])
    def test_entry_by_entry(self, shared: bool, per_sample: bool) -> None:
        losses = torch.rand(*([] if shared else [3]), 5, 4, dtype=torch.float64, generator=generator())
        costs = torch.rand(*([5] if per_sample else []), 4, dtype=torch.float64, generator=generator(1))
        weights = torch.tensor([0.0, 0.5, 10.0], dtype=torch.float64)
        found = priced_losses(losses, costs, weights)
        assert found.shape == (3, 5, 4)
        for w in range(3):
            for sample in range(5):
                for exit in range(4):
                    loss = losses[sample, exit] if shared else losses[w, sample, exit]
                    cost = costs[sample, exit] if per_sample else costs[exit]
                    assert found[w, sample, exit].item() == pytest.approx((loss + weights[w] * cost).item())


class TestBestExit:
    @quick
    @given(rows=st.lists(st.lists(st.integers(0, 3), min_size=5, max_size=5), min_size=1, max_size=6))
    def test_is_the_earliest_of_the_cheapest(self, rows: list[list[int]]) -> None:
        # Small integers: most rows tie.
        expected = [row.index(min(row)) for row in rows]
        assert best_exit(torch.tensor(rows, dtype=torch.float32)).tolist() == expected
        assert best_exit(torch.tensor([rows, rows], dtype=torch.float32)).tolist() == [expected, expected]

    @each("num_exits", [1, 2, 9, 33, 200])
    def test_all_alike(self, num_exits: int) -> None:
        assert best_exit(torch.full((64, num_exits), 0.3)).eq(0).all()

    def test_the_final_exit_is_among_them(self) -> None:
        assert best_exit(torch.tensor([3.0, 2.0, 1.0])).item() == 2

    def test_dearer_computation_never_means_a_later_exit(self) -> None:
        losses = torch.rand(500, 6, generator=generator())
        costs = torch.arange(1, 7) / 6
        best = best_exit(priced_losses(losses, costs, torch.linspace(0, 8, 20)))
        assert (best.diff(dim=0) <= 0).all()
        assert best[0].float().mean() > 2
        assert (best[-1] == 0).all()


def priced_with_best(best: list[int], num_exits: int) -> torch.Tensor:
    """Priced losses that are least at the given exits and rise from there on, so that both targets differ."""
    exits = torch.arange(num_exits)
    return (exits - torch.tensor(best)[:, None]).abs().float()


class TestGateTargets:
    @quick
    @given(rows=st.lists(st.lists(st.integers(0, 3), min_size=6, max_size=6), min_size=1, max_size=8))
    def test_both_kinds_by_the_papers_cases(self, rows: list[list[int]]) -> None:
        priced = torch.tensor(rows, dtype=torch.float32)
        subsequent, if_min = gate_targets(priced).tolist(), gate_targets(priced, kind="exit_if_min").tolist()
        for row, losses in enumerate(rows):
            best = losses.index(min(losses))
            assert subsequent[row] == [gate >= best for gate in range(5)]
            assert if_min[row] == [
                gate == best or (gate > best and all(losses[gate] < later for later in losses[gate + 1 :]))
                for gate in range(5)
            ]

    def test_exit_if_min_opens_later_exits_that_no_exit_after_them_beats(self) -> None:
        priced = torch.tensor([[9.0, 8.0, 1.0, 7.0, 2.0, 3.0, 4.0]])
        assert gate_targets(priced, kind="exit_if_min").int().tolist() == [[0, 0, 1, 0, 1, 1]]

    def test_shapes(self) -> None:
        assert gate_targets(torch.zeros(2, 3, 4)).shape == (2, 3, 3)
        assert gate_targets(torch.zeros(3, 1)).shape == (3, 0)
        assert gate_targets(torch.zeros(3, 1), kind="exit_if_min").shape == (3, 0)
        assert gate_targets(torch.zeros(3, 4)).dtype == torch.bool


class TestImbalanceWeights:
    @quick
    @given(best=st.lists(st.integers(0, 4), min_size=1, max_size=60))
    def test_a_direct_count_on_cumulative_targets(self, best: list[int]) -> None:
        positives = gate_targets(priced_with_best(best, 5)).sum(0)
        expected = []
        for gate in range(4):
            leaving = sum(1 for chosen in best if chosen <= gate)
            staying = len(best) - leaving
            expected.append(min(5.0, max(staying, 1) / max(leaving, 1)))
        found = imbalance_weights(positives, len(best))
        assert found.tolist() == pytest.approx(expected)

    def test_edge_counts_and_the_clip(self) -> None:
        found = imbalance_weights(torch.tensor([[0, 1, 2, 3, 15, 18]]), 18)
        assert found[0].tolist() == pytest.approx([5, 5, 5, 5, 0.2, 1 / 18])

    def test_is_not_what_the_released_code_counts(self) -> None:
        # Targets that make the late gates mostly positive: the count of l* == l would still weigh their positives up.
        best = [0] * 1 + [1] * 2 + [2] * 17
        cumulative = imbalance_weights(gate_targets(priced_with_best(best, 4)).sum(0), 20)
        single = imbalance_weights(torch.bincount(torch.tensor(best), minlength=3), 20)
        assert cumulative.tolist() == pytest.approx([5, 5, 1 / 20])
        assert single.tolist() == pytest.approx([5, 5, 3 / 17])
