"""Gain from fewer exits: a cascade with an exit at the end of each network and few between.

    python -m offramp_bench.few_exits [--check] [--rotations 5]

ResNet-20 before ResNet-56 with four exits instead of 36, on the same features, data and rotations as
offramp_bench.cascade, whose results it is compared with. A removed exit saves time, which Mul-Adds hardly show.
"""

import json
import sys
from statistics import fmean
from typing import Any

from offramp.backbone._merging import merge
from offramp.features._batch import StageView
from offramp.model import fit_features
from offramp.model._model import EarlyExitModel
from offramp_bench import places
from offramp_bench.bars import Bar, parser, report, say
from offramp_bench.cascade import images_cascade, images_sources
from offramp_bench.cifar import PREPROCESSING, cifar10
from offramp_bench.frontier_quality import at_costs, summary

ENDS = (8, 17, 26, 35)
"""Stages that keep their exits: the end of ResNet-20, and thirds of ResNet-56."""

COSTS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Requested relative costs; no sample leaves before the end of ResNet-20, at a third of the cost."""


def fit_few(rotation: int) -> tuple[EarlyExitModel, StageView]:
    """Fit the cascade on one rotation; return it and the test split."""
    backbone = images_cascade()
    *sources, test = (StageView(source, ENDS) for source in images_sources(backbone, rotation))
    example = PREPROCESSING(cifar10("test").read(0, 1).inputs)
    return fit_features(
        merge(backbone, ENDS), *sources, example=example, preprocessing=PREPROCESSING, pooling="auto"
    ), test


def measure_rotation(rotation: int) -> dict[str, Any]:
    """Return the curve of one rotation."""
    frontier, test = fit_few(rotation)
    return {"few exits": at_costs(frontier, test, COSTS, None)}


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rotations", type=int, default=5, help="how many of the five")
    arguments = options.parse_args()
    rotations = []
    for rotation in range(arguments.rotations):
        rotations.append(measure_rotation(rotation))
        say(f"rotation {rotation + 1} of {arguments.rotations} done")
    curves = summary(rotations)
    cascade = json.loads((places.RESULTS / "cascade.json").read_text())["curves"]["cascade"]
    all_exits = {row["asked"]: row["change"]["mean"] for row in cascade}
    behind = fmean(all_exits[row["asked"]] - row["change"]["mean"] for row in curves["few exits"])
    dearer = max(row["cost"]["mean"] - row["asked"] for row in curves["few exits"])
    bars = [
        Bar("few exits below all exits, points, mean over the costs asked", 100 * behind, 0.1),
        Bar("few exits spend more than asked", dearer, 0.02),
    ]
    return report({"curves": curves, "rotations": rotations}, bars, check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
