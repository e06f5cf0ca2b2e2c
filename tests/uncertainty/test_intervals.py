import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from offramp.errors import InputError
from offramp.uncertainty import _intervals as intervals
from offramp.uncertainty._intervals import bootstrap_ratio_interval, paired_interval, wilson_interval
from tests.cases import each


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows(num_rows: int = 2000) -> Tensor:
    """Three columns of other scales and shapes: correctness, loss, cost."""
    uniform = torch.rand(num_rows, 3, dtype=torch.float64, generator=generator(7))
    return torch.stack([(uniform[:, 0] < 0.9).double(), -uniform[:, 1].log(), 1e9 + 1e6 * uniform[:, 2]], dim=1)


def mean_interval(
    data: Tensor, *, confidence: float = 0.95, draws: int = 1000, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """That of the mean of each column: every sample costs 1."""
    return bootstrap_ratio_interval(
        data, torch.ones(len(data)), confidence=confidence, draws=draws, generator=generator
    )


class TestMeans:
    @each(("confidence", "deviations"), [(0.95, 1.95996), (0.8, 1.28155)])
    def test_agrees_with_the_normal_approximation(self, confidence: float, deviations: float) -> None:
        data = rows()
        lower, upper = mean_interval(data, confidence=confidence, draws=4000, generator=generator())
        error = data.std(0) / math.sqrt(len(data))
        # In units of the standard error; 4000 draws place a 2.5 % quantile to about .04 of one.
        torch.testing.assert_close(
            (lower - data.mean(0)) / error, torch.full_like(error, -deviations), rtol=0, atol=0.2
        )
        torch.testing.assert_close((upper - data.mean(0)) / error, torch.full_like(error, deviations), rtol=0, atol=0.2)

    def test_agrees_with_a_loop_in_numpy(self) -> None:
        data = rows(40).numpy()
        random = np.random.default_rng(0)
        means = np.stack([data[random.integers(0, 40, 40)].mean(0) for _ in range(8000)])
        lower, upper = mean_interval(torch.from_numpy(data), draws=8000, generator=generator())
        spread = means.std(0)
        assert np.abs((lower.numpy() - np.quantile(means, 0.025, axis=0)) / spread).max() < 0.15
        assert np.abs((upper.numpy() - np.quantile(means, 0.975, axis=0)) / spread).max() < 0.15

    def test_covers_the_true_mean_as_often_as_it_says(self) -> None:
        data = torch.rand(200, 60, 1, dtype=torch.float64, generator=generator(3)).square()
        ends = [mean_interval(one, confidence=0.9, draws=200, generator=generator(i)) for i, one in enumerate(data)]
        covered = sum(bool(lower <= 1 / 3 <= upper) for lower, upper in ends) / len(ends)
        assert 0.83 < covered < 0.95

    def test_one_row(self) -> None:
        lower, upper = mean_interval(torch.tensor([[0.3]]), generator=generator())
        assert lower.item() == upper.item() == pytest.approx(0.3)

    def test_columns_stay_paired(self) -> None:
        data = rows()[:, :1]
        lower, upper = mean_interval(torch.cat([data, 1 - data, 2 * data], dim=1), generator=generator())
        torch.testing.assert_close(lower[1], 1 - upper[0], rtol=0, atol=1e-12)
        torch.testing.assert_close(lower[2], 2 * lower[0], rtol=0, atol=1e-12)

    def test_memory_does_not_change_the_numbers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        data = rows(50)
        whole = mean_interval(data, draws=101, generator=generator())
        monkeypatch.setattr(intervals, "_CHUNK", 160)
        torch.testing.assert_close(mean_interval(data, draws=101, generator=generator()), whole)

    def test_quantiles_are_those_of_numpy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        sums = torch.randn(37, 3, dtype=torch.float64, generator=generator())
        sums[:, 2] = 1
        monkeypatch.setattr(intervals, "_resample_sums", lambda *_: sums)
        ends = mean_interval(torch.zeros(1, 2, dtype=torch.float64), confidence=0.7, draws=37, generator=generator())
        np.testing.assert_allclose(torch.stack(ends).numpy(), np.quantile(sums[:, :2].numpy(), [0.15, 0.85], axis=0))

    @each("dtype", [torch.bool, torch.int64, torch.float16, torch.float32, torch.float64])
    def test_dtypes(self, dtype: torch.dtype) -> None:
        ends = mean_interval(rows()[:, :1].to(dtype), draws=20, generator=generator())
        expected = mean_interval(rows()[:, :1], draws=20, generator=generator())
        for end, other in zip(ends, expected, strict=True):
            assert end.dtype == torch.promote_types(dtype, torch.float32)
            torch.testing.assert_close(end, other.to(end.dtype))

    def test_repeats_with_the_seed_and_leaves_the_global_one_alone(self) -> None:
        before = torch.get_rng_state()
        first, second, other = (mean_interval(rows(), draws=50, generator=generator(s))[0] for s in (0, 0, 1))
        assert torch.equal(first, second)
        assert not torch.equal(first, other)
        assert torch.equal(torch.get_rng_state(), before)

    def test_refuses(self) -> None:
        for data in (torch.zeros(0, 1), torch.zeros(3), torch.zeros(3, 0)):
            with pytest.raises(InputError, match="'N x S'"):
                mean_interval(data, generator=generator())
        with pytest.raises(InputError, match="finite numerator"):
            mean_interval(torch.tensor([[math.nan]]), generator=generator())
        for confidence in (0.0, 1.0, 95):
            with pytest.raises(InputError, match="confidence between 0 and 1"):
                mean_interval(torch.zeros(3, 1), confidence=confidence, generator=generator())
        with pytest.raises(InputError, match="draws of at least 1"):
            mean_interval(torch.zeros(3, 1), draws=0, generator=generator())


class TestRatio:
    def test_agrees_with_the_delta_method(self) -> None:
        full = 1 + torch.rand(3000, dtype=torch.float64, generator=generator())
        spent = full[:, None] * torch.rand(3000, 2, dtype=torch.float64, generator=generator(1))
        lower, upper = bootstrap_ratio_interval(spent, full, draws=4000, generator=generator())
        ratio = spent.sum(0) / full.sum()
        error = (spent - ratio * full[:, None]).std(0) / full.mean() / math.sqrt(3000)
        torch.testing.assert_close((lower - ratio) / error, torch.full_like(error, -1.95996), rtol=0, atol=0.2)
        torch.testing.assert_close((upper - ratio) / error, torch.full_like(error, 1.95996), rtol=0, atol=0.2)

    def test_is_the_ratio_of_totals(self) -> None:
        # Costs 1 of 1 and 0 of 9: the totals give .1, the mean of the samples' ratios would give .5.
        spent = torch.tensor([1.0, 0.0]).repeat(5000)[:, None]
        full = torch.tensor([1.0, 9.0]).repeat(5000)
        lower, upper = bootstrap_ratio_interval(spent, full, draws=200, generator=generator())
        assert 0.09 < lower.item() < 0.1 < upper.item() < 0.11

    def test_proportional_costs_are_certain(self) -> None:
        full = torch.rand(500, dtype=torch.float64, generator=generator()) + 0.1
        spent = full[:, None] * torch.tensor([0.25, 1.0, 3.0], dtype=torch.float64)
        for end in bootstrap_ratio_interval(spent, full, generator=generator()):
            torch.testing.assert_close(end, torch.tensor([0.25, 1.0, 3.0], dtype=torch.float64), rtol=1e-12, atol=0)

    def test_a_denominator_for_each_column(self) -> None:
        data = rows()
        both = bootstrap_ratio_interval(data[:, :2], data[:, 1:] + 1, draws=100, generator=generator())
        for column in range(2):
            one = bootstrap_ratio_interval(
                data[:, column, None], data[:, column + 1] + 1, draws=100, generator=generator()
            )
            torch.testing.assert_close((both[0][column], both[1][column]), (one[0][0], one[1][0]))

    def test_refuses(self) -> None:
        spent = torch.ones(4, 2)
        for full in (torch.ones(3), torch.ones(4, 3)):
            with pytest.raises(InputError, match="one value for each sample"):
                bootstrap_ratio_interval(spent, full, generator=generator())
        with pytest.raises(InputError, match="above 0, got 0"):
            bootstrap_ratio_interval(spent, torch.tensor([1.0, 1.0, 0.0, 1.0]), generator=generator())
        with pytest.raises(InputError, match="finite numerator"):
            bootstrap_ratio_interval(spent / 0, torch.ones(4), generator=generator())


@each(("hits", "count"), [(0, 1), (1, 1), (3, 10), (10, 10), (931, 1000)])
def test_wilson_agrees_with_scipy(hits: int, count: int) -> None:
    expected = stats.binomtest(hits, count).proportion_ci(method="wilson")
    assert wilson_interval(hits, count) == pytest.approx(tuple(expected), abs=1e-6)


@each(("up", "down"), [(0.1, 0.05), (0.02, 0.02), (0.3, 0.0), (0.0, 0.0), (0.0, 0.1), (0.9, 0.0)])
def test_paired_interval_covers_about_as_often_as_it_says(up: float, down: float) -> None:
    count, covered = 30, 0.0
    for gained, lost in itertools.product(range(count + 1), repeat=2):
        if gained + lost <= count:
            lower, upper = paired_interval(gained, lost, count)
            chance = stats.multinomial.pmf([gained, lost, count - gained - lost], count, [up, down, 1 - up - down])
            covered += chance * (lower <= up - down <= upper)
    assert 0.93 < covered <= 1


def test_paired_interval_holds_its_estimate_and_is_never_sure() -> None:
    for count in (1, 2, 5, 40):
        for gained, lost in itertools.product(range(count + 1), repeat=2):
            if gained + lost <= count:
                lower, upper = paired_interval(gained, lost, count)
                assert -1 <= lower <= (gained - lost) / count <= upper <= 1
                assert upper - lower > 1 / count
    assert paired_interval(4000, 4000, 100_000) == pytest.approx((-0.00175, 0.00175), abs=2e-5)  # Wald's


def test_no_samples_are_refused() -> None:
    with pytest.raises(InputError, match="at least one sample"):
        wilson_interval(0, 0)
    with pytest.raises(InputError, match="at least one sample"):
        paired_interval(0, 0, 0)
    with pytest.raises(InputError, match="5 and 6 of 10"):
        paired_interval(5, 6, 10)
