"""Annotation from nothing to a bill and a guarantee: what is asked, what it costs, and how often it is wrong."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import offramp
from offramp.annotation._sampling import SetGuarantee
from offramp.calls import Price, Reply
from offramp.errors import BudgetError, CallError, InputError
from offramp.policy import Guarantee
from tests.annotation.examples import CLASSES, Expensive, embeddings, noisy_cascade
from tests.cases import each

QUICK: dict[str, Any] = {"label_budget": 200, "max_drop": 0.05, "progress": False}


def inputs(points: Any) -> dict[str, Any]:
    return {"embedding": points, "row": np.arange(len(points))}


@each("scope", ["inputs", "future"])
def test_most_inputs_are_answered_without_asking_and_few_answers_change(scope: Any) -> None:
    points, answers = embeddings(3000)
    expensive = Expensive(answers)
    job = offramp.annotate(inputs(points), noisy_cascade(expensive), scope=scope, **QUICK)
    assert (job.labels != answers).mean() <= 0.05
    assert job.names[:3] == [CLASSES[label] for label in job.labels[:3]]
    assert len(expensive.asked) == len(set(expensive.asked)) == job.bill.asked < 1200
    asked = np.zeros(3000, bool)
    asked[expensive.asked] = True
    assert (job.exits == np.where(asked, 1, 0)).all()
    assert (job.labels[asked] == answers[asked]).all()
    assert job.bill.spent == job.bill.asked
    assert (job.bill.full, job.bill.inputs, job.bill.currency) == (3000, 3000, "calls")
    assert isinstance(job.guarantee, SetGuarantee if scope == "inputs" else Guarantee)
    assert not job.failed.any()


def test_two_plain_functions() -> None:
    points, answers = embeddings(2000)

    def small(rows: Any) -> Any:
        distances = np.stack([((points[rows] - points[answers == k].mean(0)) ** 2).sum(1) for k in range(4)], axis=1)
        return -distances

    def large(rows: Any) -> Any:
        return answers[rows]

    job = offramp.annotate(np.arange(2000), [small, large], classes=CLASSES, **QUICK)
    assert (job.labels != answers).mean() <= 0.05
    assert job.bill.asked < 1000
    assert job.model.predict(np.arange(5)).labels.tolist() == job.model.predict(np.arange(5)).labels.tolist()


def test_the_model_goes_on_where_the_job_ended(tmp_path: Path) -> None:
    points, answers = embeddings(4000)
    expensive = Expensive(answers)
    old = slice(0, 2500)
    job = offramp.annotate(
        {"embedding": points[old], "row": np.arange(2500)}, noisy_cascade(expensive), scope="future", **QUICK
    )
    job.model.save(tmp_path / "model")
    loaded = offramp.load(tmp_path / "model", backbone=noisy_cascade(expensive))
    new = {"embedding": points[2500:], "row": np.arange(2500, 4000)}
    answer = loaded.predict(new)
    assert (answer.labels.numpy() != answers[2500:]).mean() <= 0.05
    assert loaded.point.guarantee == job.guarantee
    assert float(answer.relative_cost.mean()) == pytest.approx(float((answer.exits == 1).double().mean()))
    assert loaded.unit.name == "calls"


def test_a_job_that_is_run_again_asks_nothing(tmp_path: Path) -> None:
    points, answers = embeddings(2000)
    first, second = Expensive(answers), Expensive(answers)
    jobs = [
        offramp.annotate(inputs(points), noisy_cascade(model), store=tmp_path, **QUICK) for model in (first, second)
    ]
    assert second.asked == []
    assert (jobs[0].labels == jobs[1].labels).all()
    assert jobs[0].bill == jobs[1].bill
    assert jobs[0].guarantee == jobs[1].guarantee


def test_inputs_of_the_same_content_are_asked_once() -> None:
    points, answers = embeddings(1000)
    twice = np.concatenate([np.arange(1000), np.arange(1000)])
    expensive = Expensive(answers)
    doubled = {"embedding": points[twice], "row": twice}
    job = offramp.annotate(doubled, noisy_cascade(expensive), **QUICK)
    assert len(expensive.asked) == len(set(expensive.asked))
    assert (job.labels[:1000] == job.labels[1000:]).all()
    assert job.bill.inputs == 1000
    assert len(expensive.asked) == job.bill.asked


@each("scope", ["inputs", "future"])
def test_copies_of_a_wrong_answer_count_as_often_as_they_occur(scope: Any) -> None:
    points, answers = embeddings(3000, noise=0.4)
    expensive = Expensive(np.append(answers, (answers[0] + 1) % 4))
    copies = np.append(np.arange(3000), np.full(2000, 3000))  # row 3000 looks like row 0, and is of another class
    doubled = {"embedding": np.vstack([points, points[:1] + 1e-3])[copies], "row": copies}
    job = offramp.annotate(doubled, noisy_cascade(expensive), scope=scope, anyway=True, **QUICK)
    assert (job.labels != expensive.answers[copies]).mean() <= 0.05


def test_the_sample_does_not_come_from_the_pool_that_was_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offramp.annotation._job.POOL_ROWS", 400)
    points, answers = embeddings(4000, noise=1.1)
    expensive = Expensive(answers)
    broken = 0
    for seed in range(5):
        job = offramp.annotate(
            inputs(points), noisy_cascade(expensive), seed=seed, label_budget=300, max_drop=0.05, progress=False
        )
        broken += (job.labels != answers).mean() > 0.05
    assert broken == 0


def test_inputs_without_an_answer_are_not_covered() -> None:
    points, answers = embeddings(3000)
    expensive = Expensive(answers, fail=lambda row: row % 20 == 0)
    job = offramp.annotate(inputs(points), noisy_cascade(expensive), **QUICK)
    assert isinstance(job.guarantee, SetGuarantee)
    failed = int(job.failed.sum())
    assert failed
    assert job.guarantee.inputs == 3000 - failed
    assert job.guarantee.at_most == pytest.approx(0.05 * 3000 / (3000 - failed))


def test_a_model_that_never_answers() -> None:
    points, answers = embeddings(1000)
    silent = Expensive(answers, fail=lambda _: True)
    with pytest.raises(CallError, match="gave no answer to 70 inputs in a row"):
        offramp.annotate(inputs(points), noisy_cascade(silent), **QUICK)
    late = Expensive(answers, fail=lambda _: len(late.asked) <= 30)
    with pytest.raises(CallError, match="answered 20 of the first 50 inputs: there is nothing to learn from"):
        offramp.annotate(inputs(points), noisy_cascade(late), **{**QUICK, "label_budget": 100})


def test_the_path_of_a_file(tmp_path: Path) -> None:
    texts = [f"{number} {'x' * (number % 40)}" for number in range(1000)]
    (tmp_path / "texts.csv").write_text("\n".join(["text", *texts]))

    def embed(rows: Any) -> Any:
        return np.array([[len(text) % 2, 1.0] for text in rows], np.float32)

    def large(rows: Any) -> Any:
        return [len(text) % 2 for text in rows]

    members = [offramp.encoder(embed), offramp.callable_model(large, 2)]
    job = offramp.annotate(tmp_path / "texts.csv", members, **QUICK)
    assert (job.labels == [len(text) % 2 for text in texts]).mean() >= 0.95


def test_no_inputs() -> None:
    with pytest.raises(InputError, match="at least one"):
        offramp.annotate(
            {"embedding": np.zeros((0, 8)), "row": np.arange(0)}, noisy_cascade(Expensive(np.zeros(1, np.int64)))
        )


def test_a_spending_cap_ends_the_job_and_a_higher_one_continues_it(tmp_path: Path) -> None:
    points, answers = embeddings(2000)
    expensive = Expensive(answers)
    price = Price(per_call=0.5)
    options = {"store": tmp_path, **QUICK}
    with pytest.raises(CallError, match="spending cap"):
        offramp.annotate(inputs(points), noisy_cascade(expensive, price=price, batch_size=1), max_spend=30.0, **options)
    assert len(expensive.asked) == 60
    job = offramp.annotate(inputs(points), noisy_cascade(expensive, price=price, batch_size=1), **options)
    assert len(expensive.asked) == len(set(expensive.asked)) == job.bill.asked
    assert job.bill.spent == 0.5 * job.bill.asked
    assert job.bill.full == 0.5 * 2000


def test_prices_by_token_are_billed_as_reported() -> None:
    points, answers = embeddings(2000)
    texts = np.array([f"{row} " + "x" * (row % 50) for row in range(2000)], object)

    def billed(given: list[str]) -> list[Reply]:
        return [Reply(CLASSES[answers[int(text.split()[0])]], input_tokens=len(text)) for text in given]

    last = offramp.callable_model(billed, CLASSES, field="text", price=Price(per_input_token=0.01, currency="EUR"))
    cascade = offramp.cascade(offramp.encoder(field="embedding"), last)
    job = offramp.annotate({"embedding": points, "text": texts}, cascade, **QUICK)
    asked = [len(text) for text, exit in zip(texts, job.exits, strict=True) if exit == 1]
    assert job.bill.spent == pytest.approx(0.01 * sum(asked))
    assert job.bill.full == pytest.approx(0.01 * sum(map(len, texts)), rel=1e-6)
    assert job.bill.currency == "EUR"
    assert job.model.unit.name == "EUR"


@each("on_failure", ["cheap", "later"])
def test_inputs_that_are_never_answered_are_marked(on_failure: Any) -> None:
    points, answers = embeddings(2000)
    expensive = Expensive(answers, fail=lambda row: row % 10 == 3)
    cascade = noisy_cascade(expensive)
    job = offramp.annotate(inputs(points), cascade, on_failure=on_failure, **QUICK)
    failed = np.flatnonzero(job.failed)
    assert len(failed)
    assert (failed % 10 == 3).all()
    if on_failure == "later":
        assert (job.labels[failed] == -1).all()
        assert job.names[int(failed[0])] == ""
    else:
        assert (job.labels >= 0).all()
        assert (job.exits[failed] == 0).all()


def test_it_does_not_pay_where_the_cheap_members_know_nothing() -> None:
    generator = np.random.default_rng(0)
    points, answers = generator.normal(size=(1500, 8)).astype(np.float32), generator.integers(0, 4, 1500)
    expensive = Expensive(answers)
    with pytest.raises(BudgetError):
        offramp.annotate(inputs(points), noisy_cascade(expensive), **{**QUICK, "max_drop": 0.01})
    assert len(expensive.asked) <= 200  # nothing was spent on a guarantee that cannot be given
    job = offramp.annotate(inputs(points), noisy_cascade(expensive), anyway=True, **{**QUICK, "max_drop": 0.01})
    assert job.guarantee is None
    assert (job.labels == answers).all()


@each(
    "wrong",
    [
        {"label_budget": 99},
        {"label_budget": 500},
        {"max_drop": 0.0},
        {"max_drop": 1.0},
        {"confidence": 1.0},
        {"loss": "accuracy"},
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_asked(wrong: dict[str, Any]) -> None:
    points, answers = embeddings(400)
    expensive = Expensive(answers)
    with pytest.raises(InputError):
        offramp.annotate(inputs(points), noisy_cascade(expensive), **{**QUICK, **wrong})
    assert expensive.asked == []


def test_a_cascade_that_ends_in_a_network_is_refused() -> None:
    points, answers = embeddings(400)
    cascade = noisy_cascade(Expensive(answers))
    with pytest.raises(InputError):
        offramp.annotate(points, cascade.members[1], **QUICK)


def test_a_front_with_an_encoder_a_function_and_a_price() -> None:
    points, answers = embeddings(2500)

    def small(rows: Any) -> Any:
        return -np.stack([((points[rows] - points[answers == k].mean(0)) ** 2).sum(1) for k in range(4)], axis=1)

    middle = offramp.callable_model(small, CLASSES, name="small", field="row", price=Price(per_call=0.1))
    last = offramp.callable_model(Expensive(answers), CLASSES, name="large", field="row", price=Price(per_call=1.0))
    cascade = offramp.cascade(offramp.encoder(field="embedding"), middle, last)
    job = offramp.annotate(inputs(points), cascade, **QUICK)
    assert (job.labels != answers).mean() <= 0.05
    assert job.bill.spent == pytest.approx(job.bill.asked + 0.1 * 2500)


def test_another_seed_draws_another_sample() -> None:
    points, answers = embeddings(1500)
    asked = []
    for seed in (0, 1, 0):
        expensive = Expensive(answers)
        offramp.annotate(inputs(points), noisy_cascade(expensive), seed=seed, **QUICK)
        asked.append(sorted(expensive.asked))
    assert asked[0] == asked[2] != asked[1]


def test_the_bill_says_what_calls_were_for() -> None:
    points, answers = embeddings(1500)
    job = offramp.annotate(inputs(points), noisy_cascade(Expensive(answers)), **QUICK)
    bill = job.bill
    assert (bill.learning, bill.asked) == (200, bill.learning + bill.guarantee + bill.sent)
    assert str(replace(bill, spent=2.5, currency="USD")).endswith(f"2.5 USD instead of {bill.full:,.4g}")
