from itertools import pairwise

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offramp.policy import Observation
from offramp_bench.rivals.patience import PatiencePolicy
from tests.cases import each


def first_exit(row: list[int], patience: int) -> int | None:
    """Return the first exit at which the last `patience` + 1 labels are equal."""
    for exit in range(patience, len(row)):
        if len(set(row[exit - patience : exit + 1])) == 1:
            return exit
    return None


class TestPatiencePolicy:
    @settings(deadline=None, max_examples=60)
    @given(row=st.lists(st.integers(0, 2), min_size=1, max_size=9), patience=st.integers(0, 5))
    def test_the_last_labels_agree(self, row: list[int], patience: int) -> None:
        policy, parameters = PatiencePolicy(), {"patience": torch.tensor(float(patience))}
        carry, left = policy.initial_carry(torch.zeros(1)), None
        for exit, label in enumerate(row):
            leave, carry = policy.step(Observation(prediction=torch.tensor([label])), carry, parameters)
            if bool(leave):
                left = exit
                break
        assert left == first_exit(row, patience)

    def test_more_patience_leaves_later(self) -> None:
        rows = torch.randint(2, (200, 8), generator=torch.Generator().manual_seed(0))
        policy = PatiencePolicy()
        exits = []
        for patience in range(4):
            carry = policy.initial_carry(torch.zeros(200))
            left = torch.full((200,), 8)
            for exit in range(8):
                observation = Observation(prediction=rows[:, exit])
                leave, carry = policy.step(observation, carry, {"patience": torch.tensor(float(patience))})
                left = torch.where(leave & (left == 8), exit, left)
            exits.append(left)
        assert (exits[0] == 0).all()
        for earlier, later in pairwise(exits):
            assert (earlier < later).logical_or(later == 8).all()

    @each("classes", [2, 150])
    def test_needs_no_softmax(self, classes: int) -> None:
        assert PatiencePolicy().mul_adds(classes) == classes
