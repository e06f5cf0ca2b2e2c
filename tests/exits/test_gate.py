import torch
from torch import nn

from offramp.exits._gate import Gates
from offramp.functional._statistics import EVIDENCE_SIZE
from tests.cases import each


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def made(num_exits: int, stacked: int) -> Gates:
    gates = Gates(num_exits, stacked=stacked).double()
    with torch.no_grad():
        gates.weight.copy_(torch.randn(gates.weight.shape, generator=generator(1)))
        gates.bias.copy_(torch.randn(gates.bias.shape, generator=generator(2)))
    return gates


class TestGates:
    @each("num_exits", [2, 7])
    @each("shared", [True, False])
    def test_a_linear_layer_an_exit(self, num_exits: int, shared: bool) -> None:
        gates = made(num_exits, 3)
        shape = (1 if shared else 3, 5, num_exits - 1, EVIDENCE_SIZE)
        evidence = torch.randn(shape, dtype=torch.float64, generator=generator())
        found = gates(evidence)
        assert found.shape == (3, 5, num_exits - 1)
        for w in range(3):
            for exit in range(num_exits - 1):
                layer = nn.Linear(EVIDENCE_SIZE, 1).double()
                with torch.no_grad():
                    layer.weight.copy_(gates.weight[w, exit][None])
                    layer.bias.copy_(gates.bias[w, exit][None])
                expected = layer(evidence[0 if shared else w, :, exit]).squeeze(-1)
                torch.testing.assert_close(found[w, :, exit], expected)

    def test_gradients_stay_with_their_cost_weight(self) -> None:
        gates = made(4, 3)
        evidence = torch.randn(1, 5, 3, EVIDENCE_SIZE, dtype=torch.float64, generator=generator())
        gates(evidence)[1].square().sum().backward()
        assert gates.weight.grad is not None
        assert gates.weight.grad[1].any()
        assert not gates.weight.grad[[0, 2]].any()

    def test_scores_end_with_1(self) -> None:
        logits = torch.randn(2, 5, 3, dtype=torch.float64, generator=generator())
        scores = Gates.scores(logits)
        assert scores.shape == (2, 5, 4)
        torch.testing.assert_close(scores[..., :-1], 1 / (1 + (-logits).exp()))
        assert (scores[..., -1] == 1).all()

    def test_one_exit_has_no_gate(self) -> None:
        gates = Gates(1, stacked=2)
        logits = gates(torch.zeros(2, 5, 0, EVIDENCE_SIZE))
        assert logits.shape == (2, 5, 0)
        assert torch.equal(Gates.scores(logits), torch.ones(2, 5, 1))
        assert sum(parameter.numel() for parameter in gates.parameters()) == 0

    def test_start_alike_for_every_cost_weight(self) -> None:
        torch.manual_seed(0)
        gates = Gates(200, stacked=3)
        assert torch.equal(gates.weight[0], gates.weight[2])
        assert torch.equal(gates.bias[0], gates.bias[1])
        # torch.nn.Linear(4, 1): uniform within 1/2.
        for parameter in gates.parameters():
            assert 0.45 < parameter.max() <= 0.5
            assert -0.5 <= parameter.min() < -0.45
