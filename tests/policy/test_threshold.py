import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp.policy import Observation
from offramp.policy._observation import top_two_margin
from offramp.policy._threshold import MarginPolicy, ThresholdPolicy
from tests.cases import each

quick = settings(deadline=None, max_examples=50)
confidence = st.floats(0, 1, width=32)


class TestThresholdPolicy:
    @quick
    @given(row=st.lists(confidence, min_size=1, max_size=9), threshold=st.floats(0, 2, width=32))
    def test_first_exit_that_is_sure_enough(self, row: list[float], threshold: float) -> None:
        policy, parameters = ThresholdPolicy(), {"threshold": torch.tensor(threshold)}
        carry: object = 0.0
        left = None
        for exit, value in enumerate(row):
            leave, carry = policy.step(Observation(confidence=torch.tensor([value])), carry, parameters)
            if leave.item():
                left = exit
                break
        assert left == next((exit for exit, value in enumerate(row) if value >= threshold), None)

    def test_above_1_nobody_leaves(self) -> None:
        certain = Observation(confidence=torch.ones(5))
        above = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))
        assert not ThresholdPolicy().step(certain, 0.0, {"threshold": above})[0].any()
        assert ThresholdPolicy().step(certain, 0.0, {"threshold": torch.tensor(1.0)})[0].all()

    def test_at_0_everybody_leaves(self) -> None:
        observation = Observation(confidence=torch.zeros(5))
        assert ThresholdPolicy().step(observation, 0.0, {"threshold": torch.tensor(0.0)})[0].all()

    @each("num_classes", [2, 10, 1000])
    def test_costs_a_softmax(self, num_classes: int) -> None:
        assert ThresholdPolicy().mul_adds(num_classes) == 3 * num_classes


class TestMarginPolicy:
    @each(("threshold", "expected"), [(0.0, [1, 1, 1]), (0.5, [0, 1, 1]), (0.9, [0, 0, 1]), (2.0, [0, 0, 0])])
    def test_leaves_where_the_lead_is_large(self, threshold: float, expected: list[int]) -> None:
        observation = Observation(
            margin=top_two_margin(torch.tensor([[0.5, 0.5, 0], [0.75, 0.125, 0.125], [1.0, 0, 0]]))
        )
        leave, carry = MarginPolicy().step(observation, (), {"threshold": torch.tensor(threshold)})
        assert leave.tolist() == [bool(flag) for flag in expected]
        assert carry == ()
