import pytest
import torch

from lab.tests.rivals.examples import walk
from offramp_bench.rivals import eenet
from offramp_bench.rivals.eenet import BUDGETS, POLICY, SHARES
from tests.cases import each
from tests.model.candidates.examples import EXITS, answers, costs, seen, tuning


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eenet, "EPOCHS", 40)


@pytest.mark.usefixtures("quick")
@each("active", [tuple(range(EXITS)), (1, 3, 4), (0, EXITS - 1)])
def test_geometric_shares_meet_their_budgets(active: tuple[int, ...]) -> None:
    tune = seen(*answers(1000))
    points = POLICY.candidates(tuning(tune, active=active))
    assert len(points) == BUDGETS + SHARES
    spent = costs().of(tune.sizes).relative_cost(walk(POLICY, points[BUDGETS:], tune))
    budgets = torch.linspace((active[0] + 1) / EXITS, 1, SHARES, dtype=torch.float64)
    # Parts of a sample stay, and samples of equal scores leave together.
    assert (spent - budgets).abs().max() < 0.02


def test_the_first_term_by_hand() -> None:
    draw = torch.Generator().manual_seed(0)
    scores, assignments = torch.rand(2, 3, 2, 5, generator=draw).double().clamp(0.01, 0.99)
    correct = (torch.rand(3, 1, 5, generator=draw) < 0.5).double()
    total = 0.0
    for exit in range(3):
        for budget in range(2):
            rows = zip(scores[exit, budget], assignments[exit, budget], correct[exit, 0], strict=True)
            terms = [(float(share), float(score if right else 1 - score)) for score, share, right in rows]
            mean = -sum(share * float(torch.tensor(chance).log()) for share, chance in terms)
            total += mean / sum(share for share, _ in terms) / 3
    assert eenet._score_loss(scores, correct, assignments).item() == pytest.approx(total, rel=1e-6)


def test_the_other_terms_by_hand() -> None:
    draw = torch.Generator().manual_seed(1)
    assignments = torch.rand(3, 2, 5, generator=draw).double().softmax(0)
    scores = torch.rand(3, 2, 5, generator=draw).double()
    prices, budgets = torch.tensor([0.2, 0.6, 1.0]).double(), torch.tensor([0.3, 0.9]).double()
    total = 0.0
    for budget in range(2):
        target = scores[:, budget] / scores[:, budget].sum(0)
        divergence = (target * (target / assignments[:, budget]).log()).sum() / 15
        cost = (assignments[:, budget].mean(1) * prices).sum()
        total += float(1e-3 * divergence + 1e-2 * (cost - budgets[budget]).abs() / budgets[budget])
    assert eenet._assignment_loss(assignments, scores, prices, budgets).item() == pytest.approx(total, rel=1e-9)


def test_the_fit_scores_as_the_policy_does(monkeypatch: pytest.MonkeyPatch) -> None:
    # With large steps, so that all weights count; shares of the fit and thresholds of the policy then agree.
    monkeypatch.setattr(eenet, "EPOCHS", 20)
    monkeypatch.setattr(eenet, "LEARNING_RATE", 1e-2)
    tune = seen(*answers(700))
    points = POLICY.candidates(tuning(tune))
    assert points[0].parameters["weight"][1:-1, 2].abs().min() > 1e-3
    left = walk(POLICY, points[-40:-39], tune)[0]
    shares = eenet._geometric_shares(torch.linspace(0.2, 1, EXITS, dtype=torch.float64))[-40]
    actual = torch.bincount(left, minlength=EXITS) / 700
    assert (actual - shares).abs().max() < 0.01


def test_scores_learn_which_exit_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eenet, "EPOCHS", 60)
    monkeypatch.setattr(eenet, "LEARNING_RATE", 1e-2)  # a hundred epochs at the published rate hardly move a weight
    logits, labels = answers(1000)
    weak = labels < 3
    logits[weak, :-1] = logits[weak, :-1].roll(1, dims=-1)  # early exits are wrong about half of the classes
    point = POLICY.candidates(tuning(seen(logits, labels)))[-1]
    by_class = point.parameters["class_weight"][1]
    assert by_class[1:4].max() < by_class[[0, 4, 5]].min()


@pytest.mark.usefixtures("quick")
def test_two_classes_and_few_samples() -> None:
    logits, labels = answers(7)
    tune = seen(logits[:, -2:, :2], labels % 2)
    points = POLICY.candidates(tuning(tune))
    exits = walk(POLICY, points, tune)
    assert exits.shape == (BUDGETS + SHARES, 7)
    assert (exits[BUDGETS] == 0).all()
    assert (exits[-1] == 1).all()


def test_without_early_exits_there_is_none() -> None:
    assert POLICY.candidates(tuning(seen(*answers(20)), active=(EXITS - 1,))) == []


def test_constants_are_the_published_ones() -> None:
    published = (3e-5, 1e-2, 512, 1000, 10, 1e-3, 1e-2, 0.5)
    names = ("LEARNING_RATE", "WEIGHT_DECAY", "BATCH", "EPOCHS", "PERIOD", "EVEN", "BUDGET", "HIDDEN")
    assert tuple(getattr(eenet, name) for name in names) == published
