import torch
from hypothesis import given
from hypothesis import strategies as st

from offramp.uncertainty.conformal.sharing import pooled
from tests.cases import each
from tests.uncertainty.conformal.examples import quick


class TestPooled:
    def test_the_rare_share_and_the_others_do_not(self) -> None:
        found = pooled(torch.tensor([[15, 300, 8, 40]]), 20)[0]
        assert found.int().tolist() == [[1, 0, 1, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]]

    def test_the_least_used_of_the_others_joins_too_few(self) -> None:
        # 3 + 8 samples and the one to be predicted are not 21: exit 3 joins, and has no threshold of its own.
        found = pooled(torch.tensor([[3, 300, 8, 40]]), 20)[0]
        assert found.int().tolist() == [[1, 0, 1, 1], [0, 1, 0, 0], [1, 0, 1, 1], [1, 0, 1, 1]]

    def test_an_exit_nobody_left_at(self) -> None:
        # Nobody is rare until the one to be predicted leaves there.
        found = pooled(torch.tensor([[0, 300, 40]]), 20)[0]
        assert found.int().tolist() == [[1, 0, 1], [0, 1, 0], [0, 0, 1]]

    def test_on_the_brink(self) -> None:
        # With one more sample exit 0 has 21 and is not rare; for a sample of exit 1 it has 20 and is.
        found = pooled(torch.tensor([[20, 5, 17, 300]]), 20)[0]
        assert found.int().tolist() == [[1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0], [0, 0, 0, 1]]

    @each("counts", [[0], [1], [500]])
    def test_one_exit(self, counts: list[int]) -> None:
        assert pooled(torch.tensor([counts]), 20).all()

    def test_no_minimum_leaves_each_exit_alone(self) -> None:
        assert torch.equal(pooled(torch.tensor([[0, 1, 50]]), 0)[0], torch.eye(3, dtype=torch.bool))

    @quick
    @given(st.lists(st.lists(st.integers(0, 60), min_size=4, max_size=4), min_size=1, max_size=5), st.integers(0, 30))
    def test_groups_do_not_meddle(self, counts: list[list[int]], minimum: int) -> None:
        together = pooled(torch.tensor(counts), minimum)
        for row, own in zip(counts, together, strict=True):
            assert torch.equal(pooled(torch.tensor([row]), minimum)[0], own)
            assert own.diagonal().all()
            for exit in range(4):
                behind = torch.tensor(row)[own[exit]].sum()
                assert behind >= min(minimum, sum(row))
