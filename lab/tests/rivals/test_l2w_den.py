import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from offramp.exits import LinearExits
from offramp_bench.rivals import weighing
from offramp_bench.rivals.l2w_den import fit_l2w_den
from tests.cases import each
from tests.methods.examples import COSTS, QUICK, WIDTHS, clusters


def test_without_weights_it_is_plain_training_on_halves_of_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weighing, "SPREAD", 0.0)
    fit = clusters(96)
    actual = fit_l2w_den(fit, clusters(90, seed=1), COSTS, QUICK).exits.state_dict()
    torch.manual_seed(QUICK.seed)
    exits = LinearExits(WIDTHS, (0, 1), 3)
    rates = {stage: 0.01 * (2 - stage) for stage in (0, 1)}
    optimizers = {stage: torch.optim.Adam(exits.parameters_of(stage), lr=rate) for stage, rate in rates.items()}
    batches = [batch for epoch in (0, 1) for batch in fit.shuffled(batch_size=16, seed=QUICK.seed, epoch=epoch)]
    for index, batch in enumerate(batches):
        for rows in (slice(8), slice(8, 16)):
            for exit, optimizer in optimizers.items():
                optimizer.param_groups[0]["lr"] = rates[exit] * (1 + math.cos(math.pi * index / len(batches))) / 2
                optimizer.zero_grad()
                loss = F.cross_entropy(exits(batch.features[rows])[exit][0], batch.labels[rows])
                torch.autograd.backward(loss)
                optimizer.step()
    for key, value in exits.state_dict().items():
        torch.testing.assert_close(actual[key], value)
    monkeypatch.undo()
    weighed = fit_l2w_den(fit, clusters(90, seed=1), COSTS, QUICK).exits.state_dict()
    assert not torch.allclose(weighed["weights.0"], actual["weights.0"], atol=1e-4)


@each(("every", "learning"), [(1, 2), (2, 2), (3, 3), (4, 2), (10, 2)])
def test_each_half_is_judged_by_the_other(monkeypatch: pytest.MonkeyPatch, every: int, learning: int) -> None:
    monkeypatch.setattr("offramp_bench.rivals.l2w_den.EVERY", every)
    pairs: list[tuple[set[int], set[int]]] = []
    real = weighing.meta_loss

    def record_pair(exits: Any, network: Any, train_batch: Any, meta_batch: Any, *, rate: float) -> torch.Tensor:
        pairs.append((set(train_batch.ids.tolist()), set(meta_batch.ids.tolist())))
        return real(exits, network, train_batch, meta_batch, rate=rate)

    monkeypatch.setattr("offramp_bench.rivals.l2w_den.meta_loss", record_pair)
    fit_l2w_den(clusters(33), clusters(30, seed=1), COSTS, replace(QUICK, epochs=every - 1))
    # `every` epochs with batches of 16, 16 and 1 samples; a batch of one sample has no second half.
    assert len(pairs) == 2 * learning
    for first, second in zip(pairs[::2], pairs[1::2], strict=True):
        assert (first[0], first[1]) == (second[1], second[0])
        assert len(first[0]) == len(first[1]) == 8
        assert not first[0] & first[1]
