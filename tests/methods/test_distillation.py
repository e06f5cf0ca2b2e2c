from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from offramp.features._batch import MemorySource
from offramp.methods import _joint
from offramp.methods._distillation import RISE, distillation_loss, raise_temperature
from offramp.methods._joint import fit_classifiers
from tests.cases import each
from tests.methods.examples import COSTS, QUICK, WIDTHS, clusters, costs


def test_the_loss_is_that_of_torch() -> None:
    draw = torch.Generator().manual_seed(0)
    logits, teacher = torch.randn(2, 7, 2, 5, generator=draw), torch.randn(7, 5, generator=draw)
    labels = torch.randint(0, 5, (7,), generator=draw)
    expected = torch.zeros(2)
    for point in range(2):
        for exit in range(2):
            said, goal = logits[point, :, exit], (teacher / 3).log_softmax(1)
            soft = F.kl_div((said / 3).log_softmax(1), goal, reduction="batchmean", log_target=True)
            expected[point] += 0.5 * F.cross_entropy(said, labels) + 0.5 * 9 * soft
    torch.testing.assert_close(
        distillation_loss(logits, teacher, labels, temperature=torch.tensor(3.0), share=0.5), expected
    )


def test_a_class_that_the_teacher_rules_out() -> None:
    teacher = torch.tensor([[0.0, -torch.inf, 0.0]])
    temperature = torch.tensor(2.0)
    loss = distillation_loss(torch.zeros(1, 1, 1, 3), teacher, torch.tensor([0]), temperature=temperature, share=0.5)
    assert loss.isfinite()


@each("num_classes", [2, 10, 1000])
def test_the_temperature_rises_until_the_teacher_is_half_sure(num_classes: int) -> None:
    teacher = 20 * F.one_hot(torch.arange(16) % num_classes, num_classes).float()
    temperature, before = torch.tensor(1.0), torch.tensor(0.0)
    while temperature != before:
        before, temperature = temperature, raise_temperature(teacher, temperature)

    def confidence(temperature: Tensor) -> float:
        return float((teacher / temperature).softmax(1).amax(1).mean())

    assert confidence(temperature) <= 0.5 + 0.5 / num_classes < confidence(temperature / RISE)


def test_the_temperature_is_carried_from_step_to_step(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    def spy(logits: Tensor, teacher: Tensor, labels: Tensor, *, temperature: Tensor, share: float) -> Tensor:
        seen.append(float(temperature))
        return distillation_loss(logits, teacher, labels, temperature=temperature, share=share)

    monkeypatch.setattr(_joint, "distillation_loss", spy)
    settings = replace(QUICK, distillation=0.5)
    fit_classifiers(clusters(64), clusters(30, seed=1), COSTS, settings)  # two epochs of four steps
    assert seen == pytest.approx([RISE**step for step in range(8)])


def test_what_the_last_head_says_is_learned_where_labels_say_nothing() -> None:
    # Labels at random, a last head that knows the class and one before it that is always wrong: exits learn the class.
    known = next(clusters(1000).in_order(batch_size=1000))
    labels = torch.randint(0, 3, (1000,), generator=torch.Generator().manual_seed(1))
    heads = {1: 4 * F.one_hot((known.labels + 1) % 3, 3).float(), 2: 4 * F.one_hot(known.labels, 3).float()}
    source = MemorySource(known.features, heads, labels, WIDTHS)
    settings = replace(QUICK, epochs=10, batch_size=50, scale_rates_by_depth=False, distillation=0.5)
    exits = fit_classifiers(source, source, costs(3), settings).exits
    with torch.no_grad():
        (first,) = exits(known.features)
    agrees = (first[0].argmax(1) == known.labels).double().mean()
    assert agrees > 0.55  # chance is a third, and what the features tell about two thirds
