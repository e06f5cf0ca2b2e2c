"""The folded ladder is the ladder."""

import torch

from offramp.exits import LadderExits
from offramp.runtime.ladder import FoldedLadder


def test_folding_changes_nothing() -> None:
    torch.manual_seed(0)
    bank = LadderExits((6, 4, 5), (0, 2), 3, width=8).eval()
    bank.standardize(3 + 5 * torch.randn(50, 15))
    for parameter in bank.parameters():
        torch.nn.init.normal_(parameter)
    folded = FoldedLadder(bank)
    one = other = bank.initial_state(7)
    with torch.no_grad():
        for stage in (0, 2):
            features = 3 + 5 * torch.randn(7, bank.widths[stage])
            expected, one = bank.step(stage, features, one, None)
            found, other = folded.step(stage, features, other, None)
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(other, one, atol=1e-4, rtol=1e-4)
