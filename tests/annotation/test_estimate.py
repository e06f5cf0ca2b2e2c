"""The bill that is estimated from a job's first answers, beside the job's own."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offramp
from offramp.annotation import estimate_bill
from offramp.calls import Price
from tests.annotation.examples import CLASSES, Expensive, embeddings, noisy_cascade
from tests.cases import each

OPTIONS: dict[str, Any] = {"label_budget": 300, "max_drop": 0.05, "progress": False}


def test_the_job_does_not_pay_for_it_again(tmp_path: Path) -> None:
    points, answers = embeddings(3000, noise=0.9)
    inputs = {"embedding": points, "row": np.arange(3000)}
    first, second = Expensive(answers), Expensive(answers)
    price = Price(per_call=0.5, currency="EUR")
    estimate = estimate_bill(inputs, noisy_cascade(first, price=price), store=tmp_path, **OPTIONS)
    assert (estimate.answers, len(first.asked), estimate.inputs) == (90, 90, 3000)
    job = offramp.annotate(inputs, noisy_cascade(second, price=price), store=tmp_path, **OPTIONS)
    assert not set(first.asked) & set(second.asked)
    assert job.bill.spent == 0.5 * job.bill.asked
    low, high = estimate.interval
    assert 300 <= low <= estimate.asked <= high <= 3000
    assert estimate.asked == pytest.approx(job.bill.asked, rel=0.5)
    assert (estimate.full, estimate.currency, estimate.price(100)) == (1500.0, "EUR", 50.0)


@each("good", [True, False])
def test_nothing_to_train(good: bool) -> None:
    points, answers = embeddings(3000, noise=0.5)

    def small(rows: Any) -> Any:
        centres = np.stack([points[answers == k].mean(0) for k in range(4)])
        distances = ((points[rows][:, None] - centres) ** 2).sum(2)
        return -3 * distances if good else np.zeros_like(distances)

    def large(rows: Any) -> Any:
        return answers[rows]

    estimate = estimate_bill(np.arange(3000), [small, large], classes=CLASSES, **OPTIONS)
    assert estimate.asked < 1500 if good else estimate.asked == 3000
