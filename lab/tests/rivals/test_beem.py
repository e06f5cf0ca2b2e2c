import torch

from lab.tests.rivals.examples import walk
from offramp.policy import Observation
from offramp_bench.rivals.beem import NEVER, POLICY
from tests.cases import each
from tests.model.candidates.examples import EXITS, answers, seen, tuning

COUNT = 300
every_choice_of_exits = each("active", [tuple(range(EXITS)), (1, 3, 4), (0, EXITS - 1)])


def first_exit(predictions: list[int], confidences: list[float], weights: list[float], threshold: float) -> int:
    """Return the first exit whose run of equal predictions adds up to the threshold; all exits if none does."""
    for exit in range(len(predictions)):
        start = exit
        while start and predictions[start - 1] == predictions[exit]:
            start -= 1
        if sum(weights[place] * confidences[place] for place in range(start, exit + 1)) >= threshold:
            return exit
    return len(predictions)


def test_by_runs_of_equal_predictions() -> None:
    draw = torch.Generator().manual_seed(0)
    predictions = torch.randint(2, (200, 6), generator=draw)
    confidence = torch.rand(200, 6, generator=draw)
    weight = torch.rand(6, generator=draw)
    for threshold in (0.2, 0.61, 1.03, 2.0):
        carry = POLICY.initial_carry(torch.zeros(200))
        left = torch.full((200,), 6)
        for exit in range(6):
            observation = Observation(confidence[:, exit], prediction=predictions[:, exit])
            here = {"weight": weight[exit], "threshold": torch.tensor(threshold)}
            leave, carry = POLICY.step(observation, carry, here)
            left = torch.where(leave & (left == 6), exit, left)
        expected = [
            first_exit(*row, weight.tolist(), threshold)
            for row in zip(predictions.tolist(), confidence.tolist(), strict=True)
        ]
        assert left.tolist() == expected


def test_a_batch_of_one_that_never_agrees_starts_again() -> None:
    carry = POLICY.initial_carry(torch.zeros(1))
    here = {"weight": torch.tensor(1.0), "threshold": torch.tensor(1.0)}
    for prediction in (0, 1, 0, 1):
        observation = Observation(torch.tensor([0.9]), prediction=torch.tensor([prediction]))
        leave, carry = POLICY.step(observation, carry, here)
        assert not leave.item()
        torch.testing.assert_close(carry[1], torch.tensor([0.9]))


@every_choice_of_exits
def test_candidates_go_from_the_first_exit_to_the_last(active: tuple[int, ...]) -> None:
    tune = seen(*answers(COUNT))
    points = POLICY.candidates(tuning(tune, active=active))
    exits = walk(POLICY, points, tune)
    assert len(points) <= 2 * 514
    for half in torch.split(exits, len(points) // 2):
        assert (half[0] == active[0]).all()
        assert (half[-1] == active[-1]).all()
        assert (half[:-1] <= half[1:]).all()  # a higher threshold never leaves earlier
        assert len(set(map(tuple, half.tolist()))) > 50


def test_weights_are_accuracies_and_costs() -> None:
    tune = seen(*answers(COUNT))
    points = POLICY.candidates(tuning(tune, active=(1, 3, 4)))
    accuracy = [sum(map(bool, tune.correct[0, :, exit])) / COUNT for exit in (1, 3)]
    torch.testing.assert_close(points[0].parameters["weight"], torch.tensor([0, accuracy[0], 0, accuracy[1], 0]))
    torch.testing.assert_close(points[-1].parameters["weight"], torch.tensor([0, 0.4, 0, 0.8, 0]))


def test_without_early_exits_all_stay() -> None:
    tune = seen(*answers(20))
    points = POLICY.candidates(tuning(tune, active=(EXITS - 1,)))
    assert [float(point.parameters["threshold"]) for point in points] == [0.0, NEVER] * 2
    assert (walk(POLICY, points, tune) == EXITS - 1).all()
