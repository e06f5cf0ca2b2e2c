"""What earlyon 0.3.0, an early-exit toolkit for PyTorch, makes of the same networks, images and splits as ours.

    python -m offramp_bench.earlyon_exits [--rotation 0] [--images 192] [--repeats 5]

Needs the package: pip install --no-deps earlyon==0.3.0 (what it depends on is there). What was chosen, and why:

* Network. Our ResNet-56, its weights untouched, through `custom_ee`. Its own `cifar_resnet_ee` has projections where
  our weights have padding, so "thirds" takes over what that preset says of exits: after each third, 64 hidden units,
  its loss weights. "late" and "every third block" are better and more places, with the defaults of `custom_ee`. In
  "cascade" and "cascade, late" a ResNet-20 runs first, as in offramp_bench.cascade: its documentation does not think of
  that, its hooks allow it.
* Heads. Its two-stage trainer with its defaults (20 epochs, Adam, batches of 128) on the train images and views that
  our exits get. Its head begins with a mean over the map, so it is trained on cached means: the same numbers.
* Thresholds. Its two calibrators on our tune images, both policies, its default grids; each head's temperature on our
  calibrate images, since it asks for other images there. Of the points of one set of exits, those stay that no other
  beats on tune in both accuracy and its own estimate of compute, and that lose at most 1 point there.
* Running. One image goes through the wrapper; `staged_model` does the same for networks that are one sequence. For
  batches there is `forward_inference_batched`, where all leave together once the hardest may: hardly ever at 64. The
  staged deployment it documents, a graph a stage in ONNX Runtime, is here too: users have to write the loop between the
  graphs, it takes one image at a time, and the full network gains from that engine as well, so it is timed there, too.
  The single graph that `export_to_onnx` writes computes every exit for every image: never faster than the full network.
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

from offramp.features import split_by_id
from offramp_bench.cifar import PREPROCESSING, cifar10, resnet
from offramp_bench.earlyon_graphs import Graphs
from offramp_bench.earlyon_heads import SETS, Exits, Loader, outcomes, standing_in, trained, wrapped
from offramp_bench.frontier_quality import SIZES

__all__ = ["Point", "full_runs", "points", "speedup", "table", "turns", "undominated"]

DROPS = (0.0, 0.0025, 0.005, 0.01)
"""Of accuracy, asked of its first calibrator; 0.01 is its default."""
BUDGETS = (0.8, 0.6, 0.4)
"""Of compute, asked of its second one; 0.8 is its default."""
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
    """On test, each image routed by itself."""
    accuracy_of_batches: float
    """On test, 64 images leaving together."""
    shares: Mapping[str, float]
    """Of test images that leave at each exit by themselves."""
    compute: float
    """On test, by earlyon's estimate, as a share of the network; of a cascade, of both its networks."""

    def run(self, images: Tensor) -> Tensor:
        """Logits of prepared images `N x 3 x 32 x 32`, the way earlyon has for one image or for a batch."""
        found = self.wrapper(images) if len(images) == 1 else self.wrapper.forward_inference_batched(images)
        logits: Tensor = found.prediction if len(images) == 1 else found.predictions
        return logits

    def run_singly(self, images: Tensor) -> Tensor:
        """Logits of images that are routed one after another."""
        return torch.cat([self.run(image) for image in torch.split(images, 1)])

    def run_staged(self, images: Tensor) -> Tensor:
        """The same by `staged_model`, which takes a network that is one sequence."""
        return torch.cat([self._staged.infer(image).prediction for image in torch.split(images, 1)])

    def run_graphs(self, images: Tensor) -> Tensor:
        """The same by ONNX Runtime, a graph a stage."""
        return torch.cat([self._graphs.run(image) for image in torch.split(images, 1)])

    @cached_property
    def _staged(self) -> Any:
        return staged_model(self.wrapper)

    @cached_property
    def _graphs(self) -> Graphs:
        return Graphs(self.wrapper)


def points(names: Sequence[str] = tuple(SETS), *, rotation: int = 0) -> list[Point]:
    """Calibrated operating points, in each set of exits the dearest first.

    Args:
        names: Of `SETS`.
        rotation: Which of the five splits of the test images into tune, calibrate and test.
    """
    return [point for name in names for point in _points_of(name, SETS[name], rotation)]


def _points_of(name: str, exits: Exits, rotation: int) -> list[Point]:
    wrapper = trained(exits)
    model = standing_in(wrapper, exits)
    rows, labels, ids = outcomes("test", exits.stages)
    parts = [torch.from_numpy(part) for part in split_by_id(ids, SIZES, seed=0, rotation=rotation * SIZES[0])]
    tune, calibrate, test = (Loader(rows[part], labels[part]) for part in parts)
    configs, figures = {}, {}
    for policy in ("confidence", "entropy"):
        model.config.routing_policy = policy
        asked = {f"drop {drop:g}": (thresholds.calibrate_thresholds, drop) for drop in DROPS}
        asked |= {f"budget {budget:g}": (thresholds.calibrate_thresholds_for_budget, budget) for budget in BUDGETS}
        for target, (calibrated, value) in asked.items():
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*is unattainable")
                found = calibrated(model, tune, value, fit_temperature=True, temperature_loader=calibrate)
            key = f"{name}: {policy}, {target}"
            configs[key] = replace(model.config)  # a copy: the calibrators put new lists in place of the old
            figures[key] = found.avg_computation_used, found.accuracy_delta
    seen = thresholds.collect_head_logits(model, test, "cpu")
    return [_point(key, configs[key], exits, wrapper, model, seen, test) for key in undominated(figures)]


def _point(key: str, config: Any, exits: Exits, wrapper: Any, model: Any, seen: Any, test: Loader) -> Point:
    model.config = config
    alone = thresholds.simulate_policy(seen, model)
    batches = [model.forward_inference_batched(rows).predictions for rows in torch.split(test.rows[:, 0], TOGETHER)]
    own = wrapped(exits)
    own.exit_heads.load_state_dict(wrapper.exit_heads.state_dict())
    own.config = replace(config, exit_points=own.config.exit_points)
    own._flops_estimate = wrapper.flops_estimate  # or the first image would have to wait for it
    return Point(
        key,
        own,
        accuracy=alone.accuracy,
        accuracy_of_batches=float((torch.cat(batches).argmax(1) == test.labels).double().mean()),
        shares=alone.exit_distribution,
        compute=alone.avg_flops_fraction,
    )


def undominated(figures: Mapping[str, tuple[float, float]]) -> list[str]:
    """Which points to keep, by their compute and the accuracy they lose: those that no other beats in both."""
    kept: list[str] = []
    for name in sorted(figures, key=lambda name: figures[name]):
        lost = figures[name][1]
        if lost <= LARGEST_DROP and (not kept or lost < figures[kept[-1]][1]):
            kept.append(name)
    return kept[::-1]


def turns(runs: Mapping[str, Run], images: Tensor, *, batch_size: int, repeats: int) -> dict[str, list[float]]:
    """Images a second of each run in each turn; within a turn they follow one another.

    Seconds of the processor, for runs on one thread: work of others on the same machine hardly shows.

    Args:
        runs: What to time.
        images: `N x 3 x 32 x 32`, prepared.
        batch_size: Images of a call.
        repeats: Turns, after one to warm up.
    """
    batches = torch.split(images, batch_size)
    found: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats + 1):
        for name, run in runs.items():
            began = time.process_time()
            for batch in batches:
                run(batch)
            found[name].append(len(images) / (time.process_time() - began))
    return {name: speeds[1:] for name, speeds in found.items()}


def speedup(found: Mapping[str, Sequence[float]], name: str, over: str) -> float:
    """How many times as fast one run is as another: the median over the turns."""
    return median(one / other for one, other in zip(found[name], found[over], strict=True))


def full_runs() -> dict[str, Run]:
    """ResNet-56 alone, in PyTorch and in ONNX Runtime."""
    backbone = resnet(56)
    graph = Graphs(wrapped(SETS["thirds"]), exits=False)
    return {"full": torch.inference_mode()(backbone.forward), "full graph": graph.run}


def table(made: Sequence[Point], images: Tensor, repeats: int) -> Iterator[str]:
    """A line for each point: how many times as fast as full ResNet-56, fed alike and on the same engine where not said.

    One by one beside the full network in batches: what is left where 64 images wait and each is routed by itself.
    """
    yield (
        "point | accuracy alone, in batches | leave at each exit | one by one | in batches of 64 | "
        "one by one beside batches of 64 | graphs one by one | beside PyTorch one by one | beside PyTorch in batches"
    )
    runs = full_runs()
    full = {"full": runs["full"]}
    for point in made:
        alone = turns({**runs, "one": point.run, "graphs": point.run_graphs}, images, batch_size=1, repeats=repeats)
        batched = turns({**full, "batches": point.run}, images, batch_size=TOGETHER, repeats=repeats)
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
    options.add_argument("--rotation", type=int, default=0, help="which of the five splits")
    options.add_argument("--images", type=int, default=192, help="how many are timed")
    options.add_argument("--repeats", type=int, default=5, help="how often")
    options.add_argument("--exits", nargs="*", choices=SETS, default=list(SETS), help="which sets of exits")
    arguments = options.parse_args()
    torch.set_num_threads(1)
    images = PREPROCESSING(cifar10("test").read(0, arguments.images).inputs)
    for line in table(points(arguments.exits, rotation=arguments.rotation), images, arguments.repeats):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
