import math
from collections.abc import Callable, Iterable, Iterator

import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import minimize_scalar
from torch import Tensor

from offramp.errors import InputError
from offramp.uncertainty._temperature import fit_temperatures, scale_logits
from tests.cases import each

Batches = Callable[[], Iterable[tuple[Tensor, Tensor]]]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def labels_drawn_from(logits: Tensor, seed: int = 1) -> Tensor:
    """One label for each row of `N x K` logits."""
    return torch.multinomial(logits.double().softmax(-1), 1, generator=generator(seed)).squeeze(1)


def problem(num_samples: int = 300, num_classes: int = 10, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Logits `W x N x L x K` of 2 cost weights and 3 exits, of many scales, each telling something of the label."""
    truth = 2 * torch.randn(num_samples, num_classes, dtype=torch.float64, generator=generator())
    noise = torch.randn(2, num_samples, 3, num_classes, dtype=torch.float64, generator=generator(2))
    scales = torch.tensor([[0.2, 1.0, 5.0], [0.5, 2.0, 12.0]], dtype=torch.float64)
    logits = (truth[:, None] + noise) * scales[:, None, :, None]
    return logits.to(dtype), labels_drawn_from(truth)


def once(logits: Tensor, labels: Tensor) -> Batches:
    return lambda: [(logits, labels)]


def loss(logits: Tensor, labels: Tensor, temperature: float) -> float:
    return F.cross_entropy(logits.double() / temperature, labels).item()


def temperature_by_scipy(logits: Tensor, labels: Tensor) -> float:
    bounds = (math.log(1 / 100), math.log(100))
    found = minimize_scalar(
        lambda log_t: loss(logits, labels, math.exp(log_t)), bounds=bounds, method="bounded", options={"xatol": 1e-10}
    )
    return math.exp(found.x)


def temperature_by_lbfgs(logits: Tensor, labels: Tensor) -> float:
    log_temperature = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [log_temperature], max_iter=200, tolerance_grad=1e-12, tolerance_change=1e-14, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = F.cross_entropy(logits.double() / log_temperature.exp(), labels)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    return log_temperature.exp().item()


class TestFit:
    @each("solver", [temperature_by_scipy, temperature_by_lbfgs])
    def test_every_problem_agrees_with_a_solver_of_its_own(self, solver: Callable[[Tensor, Tensor], float]) -> None:
        logits, labels = problem()
        fitted = fit_temperatures(once(logits, labels))
        expected = [[solver(logits[w, :, exit], labels) for exit in range(3)] for w in range(2)]
        assert fitted.shape == (2, 3)
        torch.testing.assert_close(fitted, torch.tensor(expected, dtype=torch.float64), rtol=2e-6, atol=0)

    @each("num_classes", [2, 1000])
    def test_few_and_many_classes(self, num_classes: int) -> None:
        logits, labels = problem(100, num_classes)
        fitted = fit_temperatures(once(logits[0], labels))
        expected = [temperature_by_scipy(logits[0, :, exit], labels) for exit in range(3)]
        torch.testing.assert_close(fitted, torch.tensor(expected, dtype=torch.float64), rtol=2e-6, atol=0)

    def test_gradient_vanishes_at_the_optimum(self) -> None:
        logits, labels = problem()
        inverse = fit_temperatures(once(logits, labels)).reciprocal().requires_grad_()
        losses = F.cross_entropy(
            (logits * inverse[:, None, :, None]).flatten(0, 2), labels[None, :, None].expand(2, -1, 3).flatten()
        )
        (gradient,) = torch.autograd.grad(losses, inverse)
        assert gradient.abs().max() < 1e-9

    def test_closed_form(self) -> None:
        # Margin m and a share q of right answers: sigmoid(m / T) = q.
        labels = torch.tensor([0] * 9 + [1])
        margins = torch.tensor([0.01, 0.5, 4.0, 150.0], dtype=torch.float64)
        logits = torch.stack([margins, torch.zeros(4, dtype=torch.float64)], dim=-1).expand(10, 4, 2)
        expected = margins / math.log(9)
        expected[0] = 1 / 100  # the optimum, 0.0046, lies beyond the bound
        torch.testing.assert_close(fit_temperatures(once(logits, labels)), expected)

    @each("true_temperature", [0.3, 1.0, 2.5])
    def test_recovers_the_temperature_the_labels_were_drawn_with(self, true_temperature: float) -> None:
        logits = 2 * torch.randn(20_000, 5, generator=generator())
        labels = labels_drawn_from(logits / true_temperature)
        fitted = fit_temperatures(once(logits[:, None], labels))
        assert fitted.item() == pytest.approx(true_temperature, rel=0.04)

    def test_all_at_once_is_one_by_one(self) -> None:
        logits, labels = problem()
        at_once = fit_temperatures(once(logits, labels))
        for w in range(2):
            for exit in range(3):
                alone = fit_temperatures(once(logits[w, :, exit, None], labels))
                torch.testing.assert_close(at_once[w, exit], alone[0], rtol=1e-10, atol=0)

    @each("chunk", [1, 7, 23])
    def test_chunks_do_not_matter(self, chunk: int) -> None:
        logits, labels = problem(24, dtype=torch.float32)

        def batches() -> Iterator[tuple[Tensor, Tensor]]:
            yield logits[:, :0], labels[:0]
            for start in range(0, len(labels), chunk):
                yield logits[:, start : start + chunk], labels[start : start + chunk]

        torch.testing.assert_close(fit_temperatures(batches), fit_temperatures(once(logits, labels)), rtol=1e-6, atol=0)

    def test_takes_few_passes(self) -> None:
        logits, labels = problem()
        passes = 0

        def batches() -> list[tuple[Tensor, Tensor]]:
            nonlocal passes
            passes += 1
            return [(logits, labels)]

        fit_temperatures(batches)
        assert passes <= 10

    @each("seed", range(5))
    def test_samples_of_every_scale_in_one_problem(self, seed: int) -> None:
        # Sums of kinks at scales from .001 to 10: far from the parabola Newton would like.
        logits, labels = problem()
        scales = 10 ** (4 * torch.rand(300, 1, 1, dtype=torch.float64, generator=generator(seed)) - 3)
        fitted = fit_temperatures(once(logits[0] * scales, labels))
        expected = [temperature_by_scipy(logits[0, :, exit] * scales[:, 0], labels) for exit in range(3)]
        assert 0.02 < fitted.min() < fitted.max() < 90
        torch.testing.assert_close(fitted, torch.tensor(expected, dtype=torch.float64), rtol=1e-5, atol=0)

    def test_an_optimum_far_down_an_exponential_tail(self) -> None:
        # A thousand right by 1 and one wrong by d: 1000 sigmoid(-b) = d / 2. Newton alone walks there in steps of 1.
        wrong_by = 1e-30
        logits = torch.zeros(1001, 1, 2, dtype=torch.float64)
        logits[:1000, 0, 0] = 1
        logits[1000, 0, 1] = wrong_by
        fitted = fit_temperatures(once(logits, torch.zeros(1001, dtype=torch.long)))
        assert fitted.item() == pytest.approx(1 / math.log(2000 / wrong_by), rel=1e-9)

    def test_bounds(self) -> None:
        useful = F.one_hot(torch.arange(3)).double()
        logits = torch.stack([useful, 5 * useful, -useful, torch.full_like(useful, 7.0)], dim=1)
        fitted = fit_temperatures(once(logits, torch.arange(3)))
        torch.testing.assert_close(fitted, torch.tensor([0.01, 0.01, 100.0, 1.0], dtype=torch.float64))

    @each(
        ("given", "returned"),
        [
            (torch.float64, torch.float64),
            (torch.float32, torch.float32),
            (torch.float16, torch.float32),
            (torch.bfloat16, torch.float32),
        ],
    )
    def test_dtypes(self, given: torch.dtype, returned: torch.dtype) -> None:
        logits, labels = problem(dtype=given)
        fitted = fit_temperatures(once(logits, labels.int()))
        assert fitted.dtype == returned
        # What rounding the logits changes is kept out: the reference sees the rounded ones.
        expected = fit_temperatures(once(logits.double(), labels))
        torch.testing.assert_close(fitted.double(), expected, rtol=1e-6, atol=0)

    def test_needs_no_gradient_and_changes_nothing(self) -> None:
        logits, labels = problem()
        kept = logits.clone()
        fitted = fit_temperatures(once(logits.requires_grad_(), labels))
        assert not fitted.requires_grad
        assert torch.equal(logits, kept)


class TestFitRefuses:
    @each("batches", [list, once(torch.zeros(2, 0, 3, 4), torch.zeros(0, dtype=torch.long))])
    def test_no_data(self, batches: Batches) -> None:
        with pytest.raises(InputError, match="at least one labelled sample"):
            fit_temperatures(batches)

    @each("value", [math.nan, math.inf, -math.inf])
    def test_logits_that_are_not_finite(self, value: float) -> None:
        logits, labels = problem(20)
        logits[1, 3, 2, 0] = value
        with pytest.raises(InputError, match="finite logits"):
            fit_temperatures(once(logits, labels))

    @each("label", [-1, 4])
    def test_labels_that_are_no_classes(self, label: int) -> None:
        with pytest.raises(InputError, match=r"labels in 0 to 3"):
            fit_temperatures(once(torch.zeros(2, 1, 4), torch.tensor([0, label])))

    @each(
        ("logits", "labels"),
        [
            (torch.zeros(2, 4), torch.zeros(2, dtype=torch.long)),
            (torch.zeros(2, 1, 4), torch.zeros(3, dtype=torch.long)),
            (torch.zeros(3, 2, 1, 4), torch.zeros(3, dtype=torch.long)),
            (torch.zeros(2, 1, 4, dtype=torch.long), torch.zeros(2, dtype=torch.long)),
            (torch.zeros(2, 1, 4), torch.zeros(2)),
        ],
    )
    def test_shapes_and_dtypes(self, logits: Tensor, labels: Tensor) -> None:
        with pytest.raises(InputError, match="expected"):
            fit_temperatures(once(logits, labels))

    def test_chunks_of_different_exits(self) -> None:
        label = torch.tensor([0])
        with pytest.raises(InputError, match="alike but for N"):
            fit_temperatures(lambda: [(torch.zeros(1, 2, 4), label), (torch.zeros(1, 3, 4), label)])

    def test_data_that_cannot_be_read_twice(self) -> None:
        logits, labels = problem(20)
        chunks = iter([(logits, labels)] * 3)
        with pytest.raises(InputError, match="at least one labelled sample"):
            fit_temperatures(lambda: chunks)
        calls = iter([20, 10])
        with pytest.raises(InputError, match="the same 20 samples"):
            fit_temperatures(lambda: [(logits[:, : (n := next(calls))], labels[:n])])


class TestScale:
    def test_divides_each_exit_of_each_cost_weight(self) -> None:
        logits, _ = problem(dtype=torch.float32)
        temperatures = torch.tensor([[0.5, 1.0, 2.0], [3.0, 4.0, 5.0]])
        scaled = scale_logits(logits, temperatures)
        for w in range(2):
            for exit in range(3):
                assert torch.equal(scaled[w, :, exit], logits[w, :, exit] / temperatures[w, exit])
        # Logits shared by all cost weights.
        assert torch.equal(scale_logits(logits[0], temperatures)[1], scale_logits(logits[0], temperatures[1]))

    def test_lowers_the_loss(self) -> None:
        logits, labels = problem()
        scaled = scale_logits(logits, fit_temperatures(once(logits, labels)))
        for w in range(2):
            for exit in range(3):
                best = loss(scaled[w, :, exit], labels, 1)
                assert best < loss(logits[w, :, exit], labels, 1)
                assert best < min(loss(scaled[w, :, exit], labels, 1.01), loss(scaled[w, :, exit], labels, 0.99))

    @each("dtype", [torch.float16, torch.float32, torch.float64])
    def test_dtypes(self, dtype: torch.dtype) -> None:
        scaled = scale_logits(torch.ones(1, 1, 2, dtype=dtype), torch.tensor([3.0], dtype=torch.float64))
        assert scaled.dtype == torch.promote_types(dtype, torch.float32)
        torch.testing.assert_close(scaled, torch.full_like(scaled, 1 / 3))

    def test_refuses(self) -> None:
        with pytest.raises(InputError, match="one temperature for each exit"):
            scale_logits(torch.zeros(5, 3, 2), torch.ones(2))
        with pytest.raises(InputError, match="above 0, got 0"):
            scale_logits(torch.zeros(5, 2, 2), torch.tensor([1.0, 0.0]))
