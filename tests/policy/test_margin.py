import torch

from offramp.functional import evidence
from offramp.policy import MarginPolicy, Observation
from offramp.policy.margin import lead
from tests.cases import each


class TestLead:
    def test_that_of_the_gates_evidence(self) -> None:
        rows = (3 * torch.randn(200, 10, generator=torch.Generator().manual_seed(0))).softmax(1)
        torch.testing.assert_close(lead(rows), evidence(rows.log())[:, 3], atol=1e-6, rtol=1e-5)

    def test_no_lead_where_two_share_the_first_place(self) -> None:
        assert float(lead(torch.tensor([0.4, 0.2, 0.4]))) == 0


class TestMarginPolicy:
    @each(("threshold", "expected"), [(0.0, [1, 1, 1]), (0.5, [0, 1, 1]), (0.9, [0, 0, 1]), (2.0, [0, 0, 0])])
    def test_leaves_where_the_lead_is_large(self, threshold: float, expected: list[int]) -> None:
        seen = Observation(margin=lead(torch.tensor([[0.5, 0.5, 0], [0.75, 0.125, 0.125], [1.0, 0, 0]])))
        leave, carry = MarginPolicy().step(seen, (), {"threshold": torch.tensor(threshold)})
        assert leave.tolist() == [bool(flag) for flag in expected]
        assert carry == ()
