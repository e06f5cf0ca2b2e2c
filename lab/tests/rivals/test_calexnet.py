from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from offramp.exits import LinearExits
from offramp_bench.rivals.calexnet import TEMPERATURE, aligned_loss, fit_calexnet, survival_weights
from tests.cases import each
from tests.methods.examples import COSTS, QUICK, clusters, costs, weights_of


class TestSurvivalWeights:
    def test_are_the_share_of_thresholds_that_a_sample_survives(self) -> None:
        confidence = torch.rand(7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        thresholds = (torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000
        shares = torch.ones(7, 4, dtype=torch.float64)
        for exit in range(1, 4):
            passed = (confidence[:, :exit, None] < thresholds).all(1)
            shares[:, exit] = passed.double().mean(1)
        torch.testing.assert_close(survival_weights(confidence), shares / shares.mean(0), atol=1e-3, rtol=1e-3)

    def test_have_mean_one_at_every_exit(self) -> None:
        torch.testing.assert_close(survival_weights(torch.rand(50, 26) * 0.999).mean(0), torch.ones(26))

    def test_of_one_exit_and_of_one_sample(self) -> None:
        assert survival_weights(torch.rand(5, 1)).tolist() == [[1.0]] * 5
        torch.testing.assert_close(survival_weights(torch.rand(1, 3)), torch.ones(1, 3))

    def test_of_an_exit_that_no_sample_reaches(self) -> None:
        assert survival_weights(torch.ones(2, 3)).tolist() == [[1.0, 0.0, 0.0]] * 2


@each("classes", [2, 5])
def test_the_loss_by_hand(classes: int) -> None:
    draw = torch.Generator().manual_seed(1)
    logits = 2 * torch.randn(6, 3, classes, dtype=torch.float64, generator=draw)
    teacher = 3 * torch.randn(6, classes, dtype=torch.float64, generator=draw)
    weights = survival_weights(logits.softmax(-1).amax(-1))
    total = 0.0
    for sample in range(6):
        target = (teacher[sample] / TEMPERATURE).softmax(0)
        for exit in range(3):
            answer = (logits[sample, exit] / TEMPERATURE).softmax(0)
            divergence = float((target * (target / answer).log()).sum())
            total += float(weights[sample, exit]) * divergence * TEMPERATURE**2 / 6
    assert aligned_loss(logits, teacher).item() == pytest.approx(total, rel=1e-9)


def test_weights_are_constants_of_the_gradient() -> None:
    logits = torch.randn(4, 3, 3, dtype=torch.float64, requires_grad=True)
    teacher = torch.randn(4, 3, dtype=torch.float64)
    (actual,) = torch.autograd.grad(aligned_loss(logits, teacher), [logits])
    weights = survival_weights(logits.detach().softmax(-1).amax(-1))[..., None]
    errors = (logits.detach() / TEMPERATURE).softmax(-1) - (teacher / TEMPERATURE).softmax(-1)[:, None]
    torch.testing.assert_close(actual, weights * TEMPERATURE * errors / 4)


def test_learns_the_networks_answers_without_labels() -> None:
    settings = replace(QUICK, epochs=20, batch_size=50, scale_rates_by_depth=False)
    fit, tune = clusters(400), clusters(90, seed=1)
    fitted = fit_calexnet(fit, tune, COSTS, settings)
    assert isinstance(fitted.exits, LinearExits)
    assert fitted.gates is None
    batch = next(fit.in_order(batch_size=400))
    with torch.no_grad():
        answers = [answer[0].argmax(-1) for answer in fitted.exits(batch.features)]
    agreement = [float((answer == batch.own_logits[2].argmax(-1)).double().mean()) for answer in answers]
    assert agreement[1] > 0.85
    assert agreement[1] > agreement[0] > 0.5


def test_settings_are_obeyed() -> None:
    fit, tune = clusters(), clusters(90, seed=1)
    base = weights_of(fit_calexnet(fit, tune, COSTS, QUICK))
    again = weights_of(fit_calexnet(fit, tune, COSTS, replace(QUICK, warmup_epochs=2, epochs=0)))
    assert all(torch.equal(value, again[key]) for key, value in base.items())  # two epochs in all, as before
    for change in (
        {"epochs": 2},
        {"warmup_learning_rate": 0.02},
        {"weight_decay": 0.1},
        {"batch_size": 32},
        {"seed": 4},
    ):
        other = weights_of(fit_calexnet(fit, tune, COSTS, replace(QUICK, **change)))
        assert not torch.allclose(other["weights.0"], base["weights.0"], atol=1e-4), change


def test_one_early_exit_and_two_classes() -> None:
    fit = clusters(120, widths=(4, 6), num_classes=2)
    exits = fit_calexnet(fit, fit, costs(2), QUICK).exits
    torch.manual_seed(QUICK.seed)
    start = LinearExits((4, 6), (0,), 2).state_dict()
    # The first exit sees every sample: plain distillation.
    batch = next(fit.in_order(batch_size=120))
    target = (batch.own_logits[1] / TEMPERATURE).softmax(-1)

    def divergence(weight: torch.Tensor, bias: torch.Tensor) -> float:
        logits = F.linear(batch.features[:, :4], weight[:, 0], bias[:, 0])
        return float(F.kl_div((logits / TEMPERATURE).log_softmax(-1), target, reduction="batchmean"))

    actual = exits.state_dict()
    assert divergence(actual["weights.0"], actual["biases.0"]) < divergence(start["weights.0"], start["biases.0"])
