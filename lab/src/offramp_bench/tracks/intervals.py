"""Simultaneous intervals of the differences between the default and every other contestant of a track."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from offramp_bench.tracks.yardstick import Curve, figures_of, is_cost

__all__ = ["SEEDS", "Lead", "bootstrap_figures", "compare"]

Floats = npt.NDArray[np.float64]

SEEDS = 5
"""Seeds of every contestant in committed results."""

DRAWS = 1000

LEVEL = 0.95


@dataclass(frozen=True)
class Lead:
    """Lead of the default over a contestant in one figure; negative where it is behind."""

    figure: str
    """One of the yardstick's figures."""
    lead: float
    """Difference, positive where the default is better: a smaller cost or a larger accuracy."""
    low: float
    """Lower end of the simultaneous 95 % interval."""
    high: float
    """Upper end."""

    @property
    def is_behind(self) -> bool:
        """True if the default is behind beyond the interval."""
        return self.high < 0

    @property
    def is_ahead(self) -> bool:
        """True if the default is ahead beyond the interval."""
        return self.low > 0


def bootstrap_figures(
    curves: Mapping[str, Sequence[Curve]], start: float, *, draws: int = DRAWS, seed: int = 0
) -> tuple[dict[str, dict[str, Floats]], dict[str, dict[str, float]]]:
    """Return the figures of every contestant on hierarchical draws, and on the samples themselves.

    A draw takes seeds with replacement and, for all seeds alike, test samples with replacement: the seeds of a task
    share their test samples. The same draw serves every contestant, so that differences are paired.

    Args:
        curves: One curve per seed, by contestant.
        start: Relative cost where the mean accuracy begins.
        draws: B.
        seed: Seed of the draws.

    Returns:
        `B` numbers, and one number, for each contestant and figure; figures are means over seeds.
    """
    generator = np.random.default_rng(seed)
    first = next(iter(curves.values()))
    samples, seeds = len(first[0].full), len(first)
    weights = generator.multinomial(samples, np.full(samples, 1 / samples), size=draws).astype(np.float32)
    seed_draws = generator.integers(seeds, size=(draws, seeds))
    figures_on_draws: dict[str, dict[str, Floats]] = {}
    figures_on_samples: dict[str, dict[str, float]] = {}
    for name, seed_curves in curves.items():
        draw_figures = [figures_of(curve, start, weights) for curve in seed_curves]
        sample_figures = [figures_of(curve, start) for curve in seed_curves]
        figures_on_draws[name] = {
            figure: np.take_along_axis(np.stack([row[figure] for row in draw_figures], 1), seed_draws, axis=1).mean(1)
            for figure in draw_figures[0]
        }
        figures_on_samples[name] = {
            figure: float(np.mean([row[figure][0] for row in sample_figures])) for figure in sample_figures[0]
        }
    return figures_on_draws, figures_on_samples


def compare(
    figures_on_draws: Mapping[str, Mapping[str, Floats]],
    figures_on_samples: Mapping[str, Mapping[str, float]],
    footings: Mapping[str, Sequence[str]],
    figures: Mapping[str, Sequence[str]],
) -> dict[str, dict[str, list[Lead]]]:
    r"""Return the lead of the default over every other contestant on its footing, with simultaneous intervals.

    The intervals are $d \pm q\,s$, with $s$ the standard deviation of a difference over draws and $q$ the 95 % quantile
    of the largest $|d_b - d| / s$ over all footings, contestants and figures of the task: together they hold with 95 %.

    Args:
        figures_on_draws: `B` numbers by contestant and figure, as `bootstrap_figures` gives them.
        figures_on_samples: The figures on the samples themselves.
        footings: Names of the contestants that each default is compared with.
        figures: Figures of each contestant; two are compared at those that both have.

    Returns:
        One lead per figure, by default and contestant.
    """
    largest = np.zeros(len(next(iter(next(iter(figures_on_draws.values())).values()))))
    differences: list[tuple[str, str, str, float, float]] = []
    for default, names in footings.items():
        for name in (name for name in names if name != default):
            for figure in (figure for figure in figures[name] if figure in figures[default]):
                sign = -1.0 if is_cost(figure) else 1.0
                lead = sign * (figures_on_samples[default][figure] - figures_on_samples[name][figure])
                spread = sign * (figures_on_draws[default][figure] - figures_on_draws[name][figure])
                deviation = float(spread.std())
                differences.append((default, name, figure, lead, deviation))
                if deviation > 1e-12:
                    largest = np.maximum(largest, np.abs(spread - lead) / deviation)
    times = float(np.quantile(largest, LEVEL))
    leads: dict[str, dict[str, list[Lead]]] = {default: {} for default in footings}
    for default, name, figure, lead, deviation in differences:
        width = times * deviation
        leads[default].setdefault(name, []).append(Lead(figure, lead, lead - width, lead + width))
    return leads
