"""Cost of learning a whole frontier, in passes of the full network.

    python -m offramp_bench.frontier_time [--check] [--repeats 3]

ResNet-56 on CIFAR-10, 45,000 train samples, the configurations of `offramp_bench.frontier_quality`. Times are from a
store on disk to measured points, checksums and evaluation included. They are divided by those of full float32 forward
passes over the same samples in the same run: a ninth of a pass before and after every fit. Figures are medians.
"""

import gc
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import torch

from offramp.methods._settings import DEFAULT, JointSettings
from offramp_bench.bars import Bar, parser, report, say
from offramp_bench.cifar import PREPROCESSING, cifar10, resnet, resnet_store
from offramp_bench.frontier_quality import CURVE, PAPER_ON_MAPS, at_costs, fit_rotation

ROWS = 45_000
SHARE = 9
"""The full pass is timed on a ninth of the samples: every sample takes the same time."""
BATCH = 250

# All alternating epochs are run, without early stopping.
PAPER_16 = replace(PAPER_ON_MAPS, patience=PAPER_ON_MAPS.epochs)
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
    frontier, (_, test) = fit_rotation(settings, pooling, 0, rows=ROWS)
    for policy in frontier.points:
        at_costs(frontier, test, CURVE, policy)


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--repeats", type=int, default=3, help="how often everything is timed")
    arguments = options.parse_args()
    for split, pooling, augmented in (("test", "mean", False), ("test", "grid", False), ("train", "mean", False)):
        resnet_store(56, split, pooling, augmented=augmented)  # extracted now, if necessary, not while fits are timed
    resnet_store(56, "train", "grid", augmented=True)
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
