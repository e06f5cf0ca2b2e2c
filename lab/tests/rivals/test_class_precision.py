import torch
from torch import Tensor

from lab.tests.rivals.examples import walk
from offramp.policy import Observation
from offramp_bench.rivals.class_precision import NEVER, POLICY, TARGETS, precision_thresholds
from tests.cases import each
from tests.model.candidates.examples import CLASSES, EXITS, answers, seen, tuning


def by_hand(confidence: Tensor, predictions: Tensor, correct: Tensor, target: float, classes: int) -> list[float]:
    """Return the thresholds, found by trying every confidence of a class."""
    thresholds = []
    for label in range(classes):
        rows = [row for row in range(len(confidence)) if predictions[row] == label]
        reached = [NEVER]
        for row in rows:
            above = [bool(correct[other]) for other in rows if confidence[other] >= confidence[row]]
            if sum(above) / len(above) >= target:
                reached.append(float(confidence[row]))
        thresholds.append(min(reached))
    return thresholds


@each("target", [0.0, 0.5, 0.8, 1.0, NEVER])
@each("count", [0, 1, 150])
def test_the_smallest_threshold_that_reaches_the_target(count: int, target: float) -> None:
    draw = torch.Generator().manual_seed(0)
    confidence = (20 * torch.rand(count, generator=draw)).ceil() / 20  # with many ties
    predictions = torch.randint(4, (count,), generator=draw)
    correct = torch.rand(count, generator=draw) < confidence
    actual = precision_thresholds(confidence, predictions, correct, target, 5)
    assert actual.tolist() == by_hand(confidence, predictions, correct, target, 5)
    assert actual[4] == NEVER  # never predicted


def test_a_class_leaves_by_its_own_threshold() -> None:
    probabilities = torch.tensor([[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.2, 0.1, 0.7]])
    here = {"threshold": torch.tensor([0.7, 0.71, NEVER])}
    leave, carry = POLICY.step(Observation(probabilities=probabilities), (), here)
    assert leave.tolist() == [True, False, False]
    assert carry == ()
    several = {"threshold": torch.stack([here["threshold"], torch.zeros(3)])[:, None]}  # P x 1 x K
    assert POLICY.step(Observation(probabilities=probabilities), (), several)[0].tolist() == [
        [True, False, False],
        [True, True, True],
    ]


@each("active", [tuple(range(EXITS)), (1, 3, 4), (0, EXITS - 1)])
def test_precision_among_survivors_reaches_the_target(active: tuple[int, ...]) -> None:
    tune = seen(*answers(800))
    points = POLICY.candidates(tuning(tune, active=active))
    exits = walk(POLICY, points, tune)
    assert len(points) == len(TARGETS) + 1
    assert (exits[0] == active[0]).all()
    assert (exits[-1] == active[-1]).all()
    for target, row in zip(TARGETS.tolist(), exits, strict=False):
        for exit in active[:-1]:
            for label in range(CLASSES):
                leaving = (row == exit) & (tune.predictions[0, :, exit] == label)
                if leaving.any():
                    assert tune.correct[0, leaving, exit].double().mean() >= target


def test_only_survivors_are_counted() -> None:
    # At the first exit two samples leave as class 0. The second predicts 0 for all four: half of the survivors are of
    # that class, but three quarters of all.
    labels = torch.tensor([0, 0, 0, 1])
    sure, unsure, other = (torch.tensor(row).log() for row in ([0.9, 0.1], [0.6, 0.4], [0.4, 0.6]))
    second = torch.stack([unsure] * 4)
    tune = seen(torch.stack([torch.stack([sure, sure, other, other]), second, second], dim=1), labels)
    place = int((TARGETS > 0.7).nonzero()[0])
    assert TARGETS[place] < 0.75
    thresholds = POLICY.candidates(tuning(tune))[place].parameters["threshold"]
    torch.testing.assert_close(thresholds, torch.tensor([[0.9, NEVER], [NEVER, NEVER], [NEVER, NEVER]]))


def test_two_classes_of_which_one_is_never_seen() -> None:
    logits, labels = answers(50)
    logits = logits[..., :2].clone()
    logits[..., 0] += 100
    tune = seen(logits, torch.zeros_like(labels))
    points = POLICY.candidates(tuning(tune))
    assert all((point.parameters["threshold"][:, 1] == NEVER).all() for point in points)
    assert (walk(POLICY, points[:-1], tune) == 0).all()  # always right


def test_without_early_exits_all_stay() -> None:
    tune = seen(*answers(20))
    points = POLICY.candidates(tuning(tune, active=(EXITS - 1,)))
    assert (walk(POLICY, points, tune) == EXITS - 1).all()
