"""Measure earlyon 0.3.0, an early-exit toolkit for PyTorch, on the same networks, images and splits as ours.

    python -m offramp_bench.earlyon_exits [--images 192] [--repeats 5]

This needs the package: pip install --no-deps earlyon==0.3.0 (its dependencies are installed). The choices, and their
reasons:

* Network: our ResNet-56, its weights untouched, through `custom_ee`. Its own `cifar_resnet_ee` has projections where
  our weights have padding, so "thirds" takes the exits of that preset: after each third, 64 hidden units, its loss
  weights. "late" and "every third block" have exits at better places and at more places, with the defaults of
  `custom_ee`. In "cascade" and "cascade, late" a ResNet-20 runs first: its documentation does not mention that, but
  its hooks allow it.
* Heads: its two-stage trainer with its defaults (20 epochs, Adam, batches of 128), on the train images and views of our
  exits. Its head begins with a mean over the map, so it is trained on cached means: the same numbers.
* Thresholds: its two calibrators on our tune images, both policies, its default grids; each head's temperature on our
  calibrate images, since it requires other images there. Of each set of exits, the points on the Pareto front of
  accuracy and its own estimate of compute are kept, measured on tune, if they lose at most 1 percentage point there.
* Running: one image goes through the wrapper; `staged_model` does the same for networks that are one sequence. For
  batches there is `forward_inference_batched`, where all images leave together once the hardest may: hardly ever at 64.
  The staged deployment that it documents, with one graph per stage in ONNX Runtime, is measured too. Users have to
  write the loop between the graphs, and it takes one image at a time. ONNX Runtime speeds up the full network as well,
  so the full network is also timed there. The single graph that `export_to_onnx` writes computes every exit for every
  image: never faster than the full network.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import Any

import offramp_bench.torchvision_ops  # noqa: F401 (before earlyon imports torchvision)

# isort: split
import torch
from earlyon.core import thresholds
from earlyon.staged import staged_model
from torch import Tensor

from offramp_bench.cifar import PREPROCESSING, cifar10, resnet, split_test
from offramp_bench.earlyon_graphs import Graphs
from offramp_bench.earlyon_heads import SETS, Exits, Loader, cached_model, load_or_train, outcomes, wrap_network

__all__ = ["Point", "full_runs", "pareto_front", "points", "speeds_in_turns", "speedup", "table"]

DROPS = (0.0, 0.0025, 0.005, 0.01)
"""Losses of accuracy that its first calibrator may accept; 0.01 is its default."""
BUDGETS = (0.8, 0.6, 0.4)
"""Shares of compute for its second calibrator; 0.8 is its default."""
LARGEST_DROP = 0.01
TOGETHER = 64

Run = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Point:
    """One calibrated wrapper, ready to run."""

    name: str
    wrapper: Any
    """earlyon's, with the thresholds of this point."""
    accuracy: float
    """Accuracy on test, with each image routed by itself."""
    accuracy_of_batches: float
    """Accuracy on test, with 64 images leaving together."""
    shares: Mapping[str, float]
    """Share of test images that leave at each exit when routed by themselves."""
    compute: float
    """Compute on test by earlyon's estimate, as a share of the network; for a cascade, of both members."""

    def run(self, images: Tensor) -> Tensor:
        """Return logits of prepared images `N x 3 x 32 x 32`, by earlyon's function for one image or for a batch."""
        output = self.wrapper(images) if len(images) == 1 else self.wrapper.forward_inference_batched(images)
        logits: Tensor = output.prediction if len(images) == 1 else output.predictions
        return logits

    def run_singly(self, images: Tensor) -> Tensor:
        """Return logits of images that are routed one by one."""
        return torch.cat([self.run(image) for image in torch.split(images, 1)])

    def run_staged(self, images: Tensor) -> Tensor:
        """Return the same logits by `staged_model`, for networks that are one sequence."""
        return torch.cat([self._staged.infer(image).prediction for image in torch.split(images, 1)])

    def run_graphs(self, images: Tensor) -> Tensor:
        """Return the same logits by ONNX Runtime, with one graph per stage."""
        return torch.cat([self._graphs.run(image) for image in torch.split(images, 1)])

    @cached_property
    def _staged(self) -> Any:
        return staged_model(self.wrapper)

    @cached_property
    def _graphs(self) -> Graphs:
        return Graphs(self.wrapper)


def points(names: Sequence[str] = tuple(SETS)) -> list[Point]:
    """Return calibrated operating points, in each set of exits the dearest first.

    Args:
        names: Names of sets of exits, in `SETS`.
    """
    return [point for name in names for point in _points_of(name, SETS[name])]


def _points_of(name: str, exits: Exits) -> list[Point]:
    wrapper = load_or_train(exits)
    model = cached_model(wrapper, exits)
    rows, labels, ids = outcomes("test", exits.stages)
    parts = [torch.from_numpy(part) for part in split_test(ids)]
    tune, calibrate, test = (Loader(rows[part], labels[part]) for part in parts)
    configs, figures = {}, {}
    for policy in ("confidence", "entropy"):
        model.config.routing_policy = policy
        targets = {f"drop {drop:g}": (thresholds.calibrate_thresholds, drop) for drop in DROPS}
        targets |= {f"budget {budget:g}": (thresholds.calibrate_thresholds_for_budget, budget) for budget in BUDGETS}
        for target, (calibrator, value) in targets.items():
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*is unattainable")
                calibration = calibrator(model, tune, value, fit_temperature=True, temperature_loader=calibrate)
            key = f"{name}: {policy}, {target}"
            configs[key] = replace(model.config)  # a copy, as the calibrators replace its lists
            figures[key] = calibration.avg_computation_used, calibration.accuracy_delta
    head_logits = thresholds.collect_head_logits(model, test, "cpu")
    return [_point(key, configs[key], exits, wrapper, model, head_logits, test) for key in pareto_front(figures)]


def _point(key: str, config: Any, exits: Exits, wrapper: Any, model: Any, head_logits: Any, test: Loader) -> Point:
    model.config = config
    alone = thresholds.simulate_policy(head_logits, model)
    batches = [model.forward_inference_batched(rows).predictions for rows in torch.split(test.rows[:, 0], TOGETHER)]
    own = wrap_network(exits)
    own.exit_heads.load_state_dict(wrapper.exit_heads.state_dict())
    own.config = replace(config, exit_points=own.config.exit_points)
    own._flops_estimate = wrapper.flops_estimate  # otherwise the first image would wait for it
    return Point(
        key,
        own,
        accuracy=alone.accuracy,
        accuracy_of_batches=float((torch.cat(batches).argmax(1) == test.labels).double().mean()),
        shares=alone.exit_distribution,
        compute=alone.avg_flops_fraction,
    )


def pareto_front(figures: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return the names of the points that no other beats in both compute and lost accuracy, the dearest first."""
    kept: list[str] = []
    for name in sorted(figures, key=lambda name: figures[name]):
        lost = figures[name][1]
        if lost <= LARGEST_DROP and (not kept or lost < figures[kept[-1]][1]):
            kept.append(name)
    return kept[::-1]


def speeds_in_turns(
    runs: Mapping[str, Run], images: Tensor, *, batch_size: int, repeats: int
) -> dict[str, list[float]]:
    """Return the images per second of each run in each turn; a turn times all runs one after the other.

    Seconds are processor time, for runs on one thread, so that other work on the machine hardly shows.

    Args:
        runs: The functions to time.
        images: `N x 3 x 32 x 32`, prepared.
        batch_size: Number of images per call.
        repeats: Number of turns, after one to warm up.
    """
    batches = torch.split(images, batch_size)
    speeds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats + 1):
        for name, run in runs.items():
            began = time.process_time()
            for batch in batches:
                run(batch)
            speeds[name].append(len(images) / (time.process_time() - began))
    return {name: own[1:] for name, own in speeds.items()}


def speedup(speeds: Mapping[str, Sequence[float]], name: str, over: str) -> float:
    """Return the speed of a run as a multiple of another's: the median over the turns."""
    return median(speed / other for speed, other in zip(speeds[name], speeds[over], strict=True))


def full_runs() -> dict[str, Run]:
    """Return functions that run ResNet-56 alone, in PyTorch and in ONNX Runtime."""
    backbone = resnet(56)
    graph = Graphs(wrap_network(SETS["thirds"]), exits=False)
    return {"full": torch.inference_mode()(backbone.forward), "full graph": graph.run}


def table(operating_points: Sequence[Point], images: Tensor, repeats: int) -> Iterator[str]:
    """Yield a line per point: its speed as a multiple of full ResNet-56's.

    Unless the heading says otherwise, both have the same batch size and engine. "One by one beside batches of 64" is
    the speed when 64 images wait and each is routed by itself.
    """
    yield (
        "point | accuracy alone, in batches | leave at each exit | one by one | in batches of 64 | "
        "one by one beside batches of 64 | graphs one by one | beside PyTorch one by one | beside PyTorch in batches"
    )
    runs = full_runs()
    full = {"full": runs["full"]}
    for point in operating_points:
        alone = speeds_in_turns(
            {**runs, "one": point.run, "graphs": point.run_graphs}, images, batch_size=1, repeats=repeats
        )
        batched = speeds_in_turns({**full, "batches": point.run}, images, batch_size=TOGETHER, repeats=repeats)
        figures = [
            point.name,
            f"{point.accuracy:.4f} {point.accuracy_of_batches:.4f}",
            " ".join(f"{share:.3f}" for share in point.shares.values()),
            f"{speedup(alone, 'one', 'full'):.2f}",
            f"{speedup(batched, 'batches', 'full'):.2f}",
            f"{median(alone['one']) / median(batched['full']):.2f}",
            f"{speedup(alone, 'graphs', 'full graph'):.2f}",
            f"{speedup(alone, 'graphs', 'full'):.2f}",
            f"{median(alone['graphs']) / median(batched['full']):.2f}",
        ]
        yield " | ".join(figures)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--images", type=int, default=192, help="how many are timed")
    options.add_argument("--repeats", type=int, default=5, help="how often")
    options.add_argument("--exits", nargs="*", choices=SETS, default=list(SETS), help="which sets of exits")
    arguments = options.parse_args()
    torch.set_num_threads(1)
    images = PREPROCESSING(cifar10("test").read(0, arguments.images).inputs)
    for line in table(points(arguments.exits), images, arguments.repeats):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
