import torch

from offramp.model._outcomes import simulate
from tests.cases import each
from tests.model.candidates.examples import EXITS, answers, candidates, seen, tuning

COUNT = 2000


@each("active", [tuple(range(EXITS)), (0, 3, EXITS - 1)])
def test_shares_are_a_geometric_series(active: tuple[int, ...]) -> None:
    tune = seen(*answers(COUNT))
    points = candidates("exit_thresholds", tuning(tune, active=active))
    assert len(points) == 39
    for step, row in enumerate(simulate(points, tune), start=1):
        counts = torch.bincount(row, minlength=EXITS)[list(active)]
        ratio = step / 20
        total = sum(ratio**power for power in range(1, len(active) + 1))
        expected = [COUNT * ratio**power / total for power in range(1, len(active) + 1)]
        # Fractions of a sample stay, and leave at the last exit.
        for actual, target in zip(counts[:-1].tolist(), expected, strict=False):
            assert target - 1 <= actual <= target + 2e-3
        assert expected[-1] - 0.01 <= counts[-1] <= expected[-1] + len(active)


def test_equal_shares_in_the_middle() -> None:
    tune = seen(*answers(COUNT))
    exits = simulate(candidates("exit_thresholds", tuning(tune))[19:20], tune)[0]
    assert torch.bincount(exits).tolist() == [COUNT // EXITS] * EXITS
