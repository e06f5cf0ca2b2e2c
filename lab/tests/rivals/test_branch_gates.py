import torch

from offramp.functional._leaving import first_exit, should_leave
from offramp.policy import Observation
from offramp.policy._gates import GatePolicy
from offramp_bench.rivals.branch_gates import BranchGatePolicy


def test_leaves_where_its_own_score_is_half_or_more() -> None:
    draw = torch.Generator().manual_seed(0)
    evidence, weight = torch.randn(500, 4, generator=draw), torch.randn(4, generator=draw)
    parameters = {"weight": weight, "bias": torch.tensor(0.3), "offset": torch.tensor(-0.5)}
    leave, carry = BranchGatePolicy().step(Observation(evidence=evidence), (), parameters)
    scores = 1 / (1 + torch.exp(-(evidence.double() @ weight.double() - 0.2)))
    assert torch.equal(leave, scores >= 0.5)
    assert carry == ()


def test_another_rule_than_the_papers() -> None:
    # Scores 0.4 and 0.3: the paper leaves at the second exit (2 x 0.3 + 0.4 = 1), gates by themselves at neither.
    scores = torch.tensor([[0.4, 0.3001, 1.0]])
    assert first_exit(should_leave(scores)).tolist() == [1]
    zero = torch.tensor(0.0)
    carries = {policy.name: policy.initial_carry(torch.zeros(1)) for policy in (GatePolicy(), BranchGatePolicy())}
    left: dict[str, list[bool]] = {name: [] for name in carries}
    for exit in range(2):
        parameters = {"weight": torch.zeros(4), "bias": scores[0, exit].logit(), "offset": zero}
        for policy in (GatePolicy(), BranchGatePolicy()):
            leave, carries[policy.name] = policy.step(
                Observation(evidence=torch.zeros(1, 4)), carries[policy.name], parameters
            )
            left[policy.name].append(bool(leave))
    assert left == {"gates": [False, True], "branch_gates": [False, False]}


def test_costs_what_the_papers_do() -> None:
    assert BranchGatePolicy().mul_adds(10) == 96
