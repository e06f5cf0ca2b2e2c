"""Folded exits are the exits."""

from typing import Any

import torch

from offramp.exits import Averaging, LadderExits
from offramp.runtime.folded import FoldedAveraging, FoldedLadder


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
            found, other = folded.step(stage, features, other, answer=True)
            assert found is not None
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(other, one, atol=1e-4, rtol=1e-4)


def test_averages_are_the_same() -> None:
    averaging = Averaging((1, 3, 4, 6), torch.tensor([0.0, 0.3, 0.0, 0.6]), torch.tensor([1.5, 0.7, 1.0, 2.0]))
    folded = FoldedAveraging(averaging)
    assert folded.read == averaging.read == {1, 4}
    draw = torch.Generator().manual_seed(0)
    one: Any = ()
    other: Any = ()
    for stage in (1, 3, 4, 6):
        logits = 3 * torch.randn(5, 4, generator=draw)
        expected, one = averaging.step(stage, logits, one)
        found, other = folded.step(stage, logits, other)
        torch.testing.assert_close(found, expected)
    narrow = logits.bfloat16()
    assert folded.step(6, narrow, other)[0].dtype == torch.float32
