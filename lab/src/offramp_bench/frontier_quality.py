"""Loss of accuracy by cost, calibration of the answers, and costs against budgets.

    python -m offramp_bench.frontier_quality [--check] [--rotations 5]

ResNet-56 on CIFAR-10. The network has memorised the 50,000 train images: classifiers and gates are fitted there. The
10,000 test images are split by id into tune (2,000), calibrate (3,000) and test (5,000), in five rotations; each
rotation is a fit of its own, since early stopping looks at tune. Figures are on test, means over the rotations with
their spread.
"""

import sys
from dataclasses import replace
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import torch

from offramp.features import BatchSource, StoreSource, split_by_id
from offramp.methods._settings import DEFAULT, PAPER, JointSettings
from offramp.model import fit_features
from offramp.model._model import EarlyExitModel
from offramp.model._outcomes import compute_outcomes, simulate
from offramp.uncertainty._calibration import calibration_floor
from offramp_bench.bars import Bar, parser, report, say
from offramp_bench.cifar import PREPROCESSING, cifar10, resnet, resnet_store
from offramp_bench.conformal_variants import PaperVariant, variant_thresholds

SIZES = (2_000, 3_000, 5_000)
BUDGETS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
ALPHAS = (0.05, 0.1)
CURVE = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)

PAPER_ON_MAPS = replace(PAPER, weight_decay=0.0)
"""The paper's settings without its L2 penalty. The penalty was chosen for layer-normed features; on raw channel means
it makes the late exits far worse. The rows "with L2" are the paper's settings unchanged."""


def rotation_splits(pooling: str, rotation: int) -> tuple[StoreSource, StoreSource, StoreSource]:
    """Return the tune, calibrate and test splits of one rotation."""
    store = resnet_store(56, "test", pooling)
    rows = split_by_id(store.ids(), SIZES, seed=0, rotation=rotation * SIZES[0])
    tune, calibrate, test = (StoreSource(store, pooling=pooling, rows=part) for part in rows)
    return tune, calibrate, test


def fit_rotation(
    settings: JointSettings, pooling: str, rotation: int, *, rows: int = 50_000
) -> tuple[EarlyExitModel, Any]:
    """Fit exits on one rotation; return the model, and the calibrate and test splits."""
    augmented = settings.exits == "ladder"
    train = resnet_store(56, "train", pooling, augmented=augmented)
    fit = StoreSource(train, pooling=pooling, rows=np.arange(rows), views="all" if augmented else "first")
    tune, calibrate, test = rotation_splits(pooling, rotation)
    example = PREPROCESSING(cifar10("test").read(0, 1).inputs)
    frontier = fit_features(
        resnet(56),
        fit,
        tune,
        calibrate,
        example=example,
        preprocessing=PREPROCESSING,
        pooling=pooling,
        settings=settings,
    )
    return frontier, (calibrate, test)


def at_costs(
    frontier: EarlyExitModel, test: BatchSource, costs: tuple[float, ...], policy: str | None
) -> list[dict[str, float]]:
    """Return the figures on test of the points that are chosen for some costs."""
    points = [frontier.at(cost=cost, policy=policy).point for cost in costs]
    measured = frontier.evaluate(test, points=points).rows
    return [
        {"asked": cost, "cost": row.relative_cost, "change": row.change, "ece": row.calibration_error}
        for cost, row in zip(costs, measured, strict=True)
    ]


def uncertainty(frontier: EarlyExitModel, calibrate: StoreSource, test: StoreSource) -> dict[str, Any]:
    """Return calibration errors above the floor, and coverage of prediction sets, at five points across the curve."""
    calibrate_outcomes = compute_outcomes(frontier.exits, calibrate, frontier.temperatures)
    outcomes = compute_outcomes(frontier.exits, test, frontier.temperatures)
    points = [frontier.at(cost=cost).point for cost in BUDGETS[:5]]
    rows = torch.arange(len(outcomes.labels))
    generator = torch.Generator().manual_seed(0)
    excess: list[float] = []
    variants: tuple[PaperVariant, ...] = ("general", "gated")
    covered: dict[tuple[PaperVariant, float], list[float]] = {(v, alpha): [] for v in variants for alpha in ALPHAS}
    measured = frontier.evaluate(test, points=points).rows
    for point, row, left, left_calibrate in zip(
        points, measured, simulate(points, outcomes), simulate(points, calibrate_outcomes), strict=True
    ):
        confidence = outcomes.confidence[point.classifier, rows, left].clamp_max(1)
        excess.append(row.calibration_error - float(calibration_floor(confidence, generator=generator)))
        scores = outcomes.conformal_scores[point.classifier, rows, left]
        for (variant, alpha), shares in covered.items():
            thresholds = variant_thresholds(
                variant, calibrate_outcomes.conformal_scores[point.classifier], left_calibrate, miscoverage=alpha
            )
            shares.append(float((scores <= thresholds[left]).double().mean()))
    return {"ece_above_floor": excess, "coverage": {f"{variant} {alpha}": s for (variant, alpha), s in covered.items()}}


def measure_rotation(rotation: int) -> dict[str, Any]:
    """Return all figures of one rotation."""
    paper, (_, test) = fit_rotation(PAPER_ON_MAPS, "mean", rotation)
    result: dict[str, Any] = {
        "paper threshold": at_costs(paper, test, (0.83, *CURVE), "threshold"),
        "paper gates": at_costs(paper, test, (0.84, *CURVE), "gates"),
    }
    if rotation == 0:
        paper, (_, test) = fit_rotation(PAPER, "mean", rotation)
        result["paper threshold, with L2"] = at_costs(paper, test, CURVE, "threshold")
        result["paper gates, with L2"] = at_costs(paper, test, CURVE, "gates")
    default, (calibrate, test) = fit_rotation(DEFAULT, "grid", rotation)
    result |= {
        "preferred": default.policy,
        "default": at_costs(default, test, (0.57, 0.71, *CURVE), None),
        "default threshold": at_costs(default, test, CURVE, "threshold"),
        "default gates": at_costs(default, test, CURVE, "gates"),
        "budgets": at_costs(default, test, BUDGETS, None),
        "uncertainty": uncertainty(default, calibrate, test),
    }
    last = default.evaluate(test, points=[default.points["threshold"][-1]]).rows[0]
    result["full accuracy"] = last.accuracy - last.change
    return result


def spread(values: list[float]) -> dict[str, float]:
    """Return mean, standard deviation and range over rotations."""
    return {"mean": fmean(values), "sd": pstdev(values), "min": min(values), "max": max(values)}


def summary(rotations: list[dict[str, Any]]) -> dict[str, Any]:
    """Return every curve as means over rotations, with their spread."""
    curves = {}
    for name in (name for name, rows in rotations[0].items() if isinstance(rows, list)):
        curves[name] = [
            {
                "asked": rows[0]["asked"],
                **{key: spread([row[key] for row in rows]) for key in ("cost", "change", "ece")},
            }
            for rows in zip(*(rotation[name] for rotation in rotations if name in rotation), strict=True)
        ]
    return curves


def bars(curves: dict[str, Any], rotations: list[dict[str, Any]]) -> list[Bar]:
    """Return the bars."""
    all_bars = []
    for label, name, index, most_cost, most_loss in (
        ("paper's exits, global threshold", "paper threshold", 0, 0.84, 1.0),
        ("paper's exits, paper's gates", "paper gates", 0, 0.85, 1.5),
        ("default", "default", 0, 0.58, 1.0),
        ("default", "default", 1, 0.72, 0.2),
    ):
        row = curves[name][index]
        all_bars.append(Bar(f"{label}: relative cost", row["cost"]["mean"], most_cost))
        all_bars.append(Bar(f"{label}: points lost there", -100 * row["change"]["mean"], most_loss))
    excess = [rotation["uncertainty"]["ece_above_floor"] for rotation in rotations]
    for cost, values in zip(BUDGETS, zip(*excess, strict=True), strict=False):
        all_bars.append(Bar(f"default at {cost}: points of ECE above the floor", 100 * fmean(values), 1.0))
    for name in rotations[0]["uncertainty"]["coverage"]:
        shares = [share for rotation in rotations for share in rotation["uncertainty"]["coverage"][name]]
        level = 1 - float(name.split()[1])
        all_bars.append(Bar(f"{name} sets: points between coverage and {level}", 100 * abs(fmean(shares) - level), 1.0))
    for row in curves["budgets"]:
        all_bars.append(
            Bar(f"choose(cost={row['asked']}): spent beyond on test", row["cost"]["mean"] - row["asked"], 0.02)
        )
    return all_bars


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--rotations", type=int, default=5, help="how many of the five")
    arguments = options.parse_args()
    rotations = []
    for rotation in range(arguments.rotations):
        rotations.append(measure_rotation(rotation))
        say(f"rotation {rotation + 1} of {arguments.rotations} done")
    curves = summary(rotations)
    figures = {"curves": curves, "rotations": rotations}
    return report(figures, bars(curves, rotations), check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
