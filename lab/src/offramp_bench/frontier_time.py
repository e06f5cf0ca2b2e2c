"""Cost of learning a whole frontier, in passes of the full network.

    python -m offramp_bench.frontier_time [--check] [--repeats 3]

ResNet-56 on CIFAR-10, 45,000 train samples; test images tune, calibrate and test. Times are from a store on disk to
measured points, checksums and evaluation included. They are divided by those of full float32 forward passes over the
same samples in the same run: a ninth of a pass before and after every fit. Figures are medians.
"""

import gc
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import torch

from offramp.features import StoreSource
from offramp.methods._settings import DEFAULT, PAPER, JointSettings
from offramp.model import fit_features
from offramp_bench.bars import Bar, parser, report, say
from offramp_bench.cifar import PREPROCESSING, cifar10, resnet, resnet_store, split_test

ROWS = 45_000
SHARE = 9
"""The full pass is timed on a ninth of the samples: every sample takes the same time."""
BATCH = 250

COSTS = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Requested relative costs of the measured points."""

# Without weight decay, which is too strong for raw channel means; all alternating epochs are run.
PAPER_16 = replace(PAPER, weight_decay=0.0, patience=PAPER.epochs)
CONFIGURATIONS: dict[str, tuple[JointSettings, str]] = {
    "weighted, 16 cost weights": (PAPER_16, "mean"),
    "weighted, 1 cost weight": (replace(PAPER_16, cost_weights=(0.3,)), "mean"),
    "plain, 16 cost weights": (replace(PAPER_16, classifier_loss="plain"), "mean"),
    "plain, 1 cost weight": (replace(PAPER_16, classifier_loss="plain", cost_weights=(0.3,)), "mean"),
    "default": (DEFAULT, "grid"),
}


def full_pass() -> Callable[[], None]:
    """Return a function that runs a forward pass over some of the samples, prepared beforehand."""
    backbone = resnet(56)
    images = PREPROCESSING(cifar10("train", rows=ROWS // SHARE).read(0, ROWS // SHARE).inputs)

    def run() -> None:
        with torch.inference_mode():
            for batch in torch.split(images, BATCH):
                backbone(batch)

    return run


def seconds(work: Callable[[], object]) -> float:
    """Return the wall time of a call."""
    gc.collect()
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def fit_and_evaluate(settings: JointSettings, pooling: str) -> None:
    """Fit exits on the store on disk, and measure points on test."""
    augmented = settings.exits == "ladder"
    train, held_out = resnet_store("train", pooling, augmented=augmented), resnet_store("test", pooling)
    fit = StoreSource(train, pooling=pooling, rows=np.arange(ROWS), views="all" if augmented else "first")
    parts = split_test(held_out.ids())
    tune, calibrate, test = (StoreSource(held_out, pooling=pooling, rows=part) for part in parts)
    example = PREPROCESSING(cifar10("test").read(0, 1).inputs)
    model = fit_features(
        resnet(56),
        fit,
        tune,
        calibrate,
        example=example,
        preprocessing=PREPROCESSING,
        pooling=pooling,
        settings=settings,
    )
    for policy in model.points:
        model.evaluate(test, points=[model.at(cost=cost, policy=policy).point for cost in COSTS])


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--repeats", type=int, default=3, help="how often everything is timed")
    arguments = options.parse_args()
    for split, pooling, augmented in (("test", "mean", False), ("test", "grid", False), ("train", "mean", False)):
        resnet_store(split, pooling, augmented=augmented)  # extracted now, if necessary, not while fits are timed
    resnet_store("train", "grid", augmented=True)
    full = full_pass()
    full()  # warm up
    passes: dict[str, list[float]] = {name: [] for name in CONFIGURATIONS}
    fits: dict[str, list[float]] = {name: [] for name in CONFIGURATIONS}
    for repeat in range(arguments.repeats):
        for name, (settings, pooling) in CONFIGURATIONS.items():
            before = seconds(full)
            fits[name].append(seconds(lambda s=settings, p=pooling: fit_and_evaluate(s, p)))  # type: ignore[misc]
            after = seconds(full)
            passes[name].append(SHARE * (before + after) / 2)
            ratio = fits[name][-1] / passes[name][-1]
            say(f"repeat {repeat + 1}: {name}: {fits[name][-1]:.1f} s, {ratio:.2f} of a pass")
    in_passes = {name: [fit / full for fit, full in zip(fits[name], passes[name], strict=True)] for name in fits}
    growth = {
        kind: [
            sixteen / single
            for sixteen, single in zip(
                in_passes[f"{kind}, 16 cost weights"], in_passes[f"{kind}, 1 cost weight"], strict=True
            )
        ]
        for kind in ("weighted", "plain")
    }
    figures: dict[str, Any] = {
        "rows": ROWS,
        "threads": torch.get_num_threads(),
        "seconds": fits,
        "pass_seconds": passes,
        "in_passes": in_passes,
        "sixteen_over_one": growth,
    }
    bars = [
        Bar("paper's exits, 16 cost weights: passes", median(in_passes["weighted, 16 cost weights"]), 0.5),
        Bar("weighted: time of 16 cost weights over 1", median(growth["weighted"]), 8.0),
        Bar("plain: time of 16 cost weights over 1", median(growth["plain"]), 2.5),
        Bar("default: passes", median(in_passes["default"]), 1.0),
    ]
    return report(figures, bars, check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
