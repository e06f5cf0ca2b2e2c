from dataclasses import replace

import torch

from offramp.exits import LinearExits
from offramp.features._batch import MemorySource
from offramp_bench.rivals.branching import fit_diff_branch, fit_pteenet
from tests.methods.examples import COSTS, QUICK, clusters, weights_of


def test_many_cost_weights_at_once_equal_separate_fits() -> None:
    fit, tune = clusters(), clusters(90, seed=1)
    settings = replace(QUICK, epochs=3)
    together = fit_diff_branch(fit, tune, COSTS, settings)
    assert isinstance(together.exits, LinearExits)
    for index, cost_weight in enumerate(settings.cost_weights):
        alone = fit_diff_branch(fit, tune, COSTS, replace(settings, cost_weights=(cost_weight,)))
        state = together.exits.take(index).state_dict()
        for key, value in alone.exits.state_dict().items():
            torch.testing.assert_close(state[key], value, atol=1e-4, rtol=1e-3)
        torch.testing.assert_close(
            together.trained_gates.weight[index], alone.trained_gates.weight[0], atol=1e-4, rtol=1e-3
        )


def test_classifiers_and_gates_both_learn() -> None:
    fit, tune = clusters(), clusters(90, seed=1)
    start, end = (weights_of(fit_diff_branch(fit, tune, COSTS, replace(QUICK, epochs=count))) for count in (0, 2))
    assert set(start) == set(end)
    for key in start:
        if not key.startswith("averaging"):
            assert not torch.allclose(start[key], end[key], atol=1e-4)


def test_without_labels_labels_do_not_matter() -> None:
    fit, tune = clusters(), clusters(90, seed=1)

    def mislabelled(source: MemorySource) -> MemorySource:
        batch = next(source.in_order(batch_size=source.num_samples))
        return MemorySource(batch.features, batch.own_logits, (batch.labels + 1) % 3, source.widths)

    weights = weights_of(fit_pteenet(mislabelled(fit), mislabelled(tune), COSTS, QUICK))
    for key, value in weights_of(fit_pteenet(fit, tune, COSTS, QUICK)).items():
        assert torch.equal(weights[key], value)
    labelled = weights_of(fit_diff_branch(mislabelled(fit), mislabelled(tune), COSTS, QUICK))
    assert not torch.allclose(labelled["weights.0"], weights["weights.0"], atol=1e-2)
