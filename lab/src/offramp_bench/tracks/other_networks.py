"""Other networks for the samples of a task, beside the cost and the answers of the task's own network."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from offramp.errors import InputError
from offramp.features import BatchSource
from offramp_bench.paper.tasks import TASKS, Task
from offramp_bench.rivals.agreement import AgreementSweep, cascade_by_agreement
from offramp_bench.tracks.choosing import choose_points
from offramp_bench.tracks.samples import open_splits, prices_of
from offramp_bench.tracks.yardstick import Curve

__all__ = ["measure_agreement", "with_full_network_of"]

Ints = npt.NDArray[np.int64]

TIERS = (((0, 1), (3,)), ((0, 2), (3,)), ((1, 2), (3,)), ((0, 1, 2), (3,)), ((0, 1), (2, 3)))
"""Tiers of ResNet-20, 32, 44 and 56 that are tried, cheap to strong; the points are chosen among all of them."""


def with_full_network_of(curve: Curve, task: Task, test: BatchSource, seed: int) -> Curve:
    """Return the curve of other networks with cost and answers of the task's own network as the full network.

    Args:
        curve: The curve of the other networks.
        task: The task.
        test: The test samples of the other networks.
        seed: Seed of the splits.
    """
    (answers, _), labels = _all_answers([open_splits(task, "means", seed).test, test])
    return replace(curve, full=np.full(len(labels), _full_cost(task), np.float32), full_correct=answers == labels)


def measure_agreement(task: Task, seed: int, budgets: npt.NDArray[np.float64]) -> Curve:
    """Return the curve of agreement-based cascading, the tiers and the share of votes of each point chosen on tune.

    Args:
        task: A task with three smaller networks.
        seed: Seed of the splits.
        budgets: Relative costs that points are chosen for.
    """
    members = [TASKS[f"{task.name}-resnet{layers}"] for layers in (20, 32, 44)] + [task]
    costs = np.array([_full_cost(member) for member in members])
    splits = [open_splits(member, "means", seed) for member in members]
    tune, tune_labels = _all_answers([split.tune for split in splits])
    test, test_labels = _all_answers([split.test for split in splits])
    tune_sweeps = [cascade_by_agreement(tune, costs, tiers) for tiers in TIERS]
    tune_costs = np.concatenate([sweep.costs for sweep in tune_sweeps]).mean(1) / costs[-1]
    tune_correct = np.concatenate([sweep.answers for sweep in tune_sweeps]) == tune_labels
    indices = choose_points(tune_costs.tolist(), tune_correct.mean(1).tolist(), budgets, samples=len(tune_labels))
    # The same shares of votes as on tune, whichever occur on test.
    test_sweeps = [
        cascade_by_agreement(test, costs, tiers, thresholds=sweep.thresholds.tolist())
        for tiers, sweep in zip(TIERS, tune_sweeps, strict=True)
    ]
    return Curve(
        _join_field(test_sweeps, "costs")[indices].astype(np.float32),
        _join_field(test_sweeps, "answers")[indices] == test_labels,
        np.full(len(test_labels), costs[-1], np.float32),
        test[-1] == test_labels,
    )


def _join_field(sweeps: list[AgreementSweep], name: str) -> npt.NDArray[np.generic]:
    """Return one field of several sweeps, one row per tiers and threshold."""
    return np.concatenate([getattr(sweep, name) for sweep in sweeps])


def _all_answers(sources: list[BatchSource]) -> tuple[Ints, Ints]:
    """Return `M x N` answers of M networks to the same samples, and the labels."""
    answers, labels = [], np.zeros(0, np.int64)
    for source in sources:
        if not np.array_equal(source.ids(), sources[0].ids()):
            raise InputError("networks that are compared", expected="the same samples in the same order", got="others")
        batches = list(source.in_order(batch_size=2000))
        answers.append(torch.cat([batch.own_logits[source.own_heads[-1]].argmax(1) for batch in batches]).numpy())
        labels = torch.cat([batch.labels for batch in batches]).numpy()
    return np.stack(answers), labels


def _full_cost(task: Task) -> float:
    """Return the Mul-Adds of a network whose samples are all of one size."""
    (full,) = prices_of(task.name, "means", 1).full.tolist()
    return float(full)
