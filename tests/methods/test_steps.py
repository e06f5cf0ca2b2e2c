import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.optim import SGD

from offramp.errors import InputError
from offramp.exits import LadderExits, LinearExits
from offramp.methods._steps import batches_of, check_finite, classifier_optimizer, cosine_step, remember_rates, seeded
from tests.cases import each
from tests.methods.examples import QUICK, clusters


def test_batches_know_how_far_training_has_come() -> None:
    source = clusters(40)  # 16, 16 and 8
    told, seen = [], []
    for epoch in (2, 3):
        for progress, batch in batches_of(source, QUICK, epoch, first_epoch=2, epochs=2):
            told.append(progress)
            seen.append(batch.ids.tolist())
    assert told == pytest.approx([step / 6 for step in range(6)])
    expected = [batch.ids.tolist() for epoch in (2, 3) for batch in source.shuffled(batch_size=16, seed=3, epoch=epoch)]
    assert seen == expected


def test_steps_follow_a_cosine() -> None:
    weight = nn.Parameter(torch.zeros(1))
    optimizer = SGD([weight], lr=2.0)
    remember_rates([optimizer])
    for progress in (0.0, 0.25, 1.0):
        before = weight.item()
        cosine_step(optimizer, weight.sum(), progress)
        assert before - weight.item() == pytest.approx(1 + math.cos(math.pi * progress), abs=1e-6)


@each("scaled", [True, False])
def test_early_linear_exits_learn_faster(scaled: bool) -> None:
    settings = replace(QUICK, warmup_learning_rate=0.02, scale_rates_by_depth=scaled)
    optimizer = classifier_optimizer(LinearExits((2, 2, 2, 2), (0, 2), 3), settings)
    assert [group["peak"] for group in optimizer.param_groups] == pytest.approx([0.06, 0.02] if scaled else [0.02] * 2)
    ladder = classifier_optimizer(LadderExits((2, 2), (0,), 3, width=8), settings)
    assert [group["peak"] for group in ladder.param_groups] == [0.02]


def test_one_seed_inside_the_callers_outside() -> None:
    torch.manual_seed(7)
    expected = torch.rand(2)
    torch.manual_seed(7)
    drawn = []
    for _ in range(2):
        with seeded(1):
            drawn.append(torch.rand(3))
    assert torch.equal(*drawn)
    assert torch.equal(torch.rand(2), expected)


@each("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_refused(loss: float) -> None:
    check_finite(1e30, 1)
    with pytest.raises(InputError, match="in epoch 4; lower the learning rates"):
        check_finite(loss, 4)
