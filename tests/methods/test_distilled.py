from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from offramp.features import MemorySource
from offramp.methods import fit_distilled
from offramp.methods.distilled import distillation_loss, raised_temperature
from tests.methods.examples import COSTS, QUICK, WIDTHS, clusters


def test_the_loss_is_that_of_torch() -> None:
    draw = torch.Generator().manual_seed(0)
    logits, teacher = torch.randn(1, 7, 2, 5, generator=draw), torch.randn(7, 5, generator=draw)
    labels = torch.randint(0, 5, (7,), generator=draw)
    expected = 0.0
    for exit in range(2):
        said = logits[0, :, exit]
        soft = F.kl_div((said / 3).log_softmax(1), (teacher / 3).log_softmax(1), reduction="batchmean", log_target=True)
        expected += 0.5 * float(F.cross_entropy(said, labels)) + 0.5 * 9 * float(soft)
    assert float(distillation_loss(logits, teacher, labels, 3.0)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("num_classes", [2, 10, 1000])
def test_the_temperature_rises_until_the_teacher_is_half_sure(num_classes: int) -> None:
    teacher = 20 * F.one_hot(torch.arange(16) % num_classes, num_classes).float()
    temperature, before = 1.0, 0.0
    while temperature != before:
        before, temperature = temperature, raised_temperature(teacher, temperature)
    confidence = float((teacher / temperature).softmax(1).amax(1).mean())
    assert 0.9 * (0.5 + 0.5 / num_classes) < confidence <= 0.5 + 0.5 / num_classes


def test_what_the_network_says_is_learned_where_labels_say_nothing() -> None:
    # Labels at random, a teacher that knows the class: exits learn the class from it.
    known = next(clusters(1000).in_order(batch_size=1000))
    labels = torch.randint(0, 3, (1000,), generator=torch.Generator().manual_seed(1))
    source = MemorySource(known.features, {2: 4 * F.one_hot(known.labels, 3).float()}, labels, WIDTHS)
    settings = replace(QUICK, epochs=10, batch_size=50, scale_rates_by_depth=False)
    bank = fit_distilled(source, source, COSTS, settings).bank
    with torch.no_grad():
        second = bank(known.features)[1][0]
    assert (second.argmax(1) == known.labels).double().mean() > 0.8
