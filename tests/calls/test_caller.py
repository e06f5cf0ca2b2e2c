"""Calls: nothing is asked twice, failures are retried, and a cap holds."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from offramp.calls import Price, Reply
from offramp.calls._answers import Usage
from offramp.calls._caller import Caller
from offramp.calls._price import CALLS
from offramp.errors import CallError, InputError
from tests.calls.conftest import Opener
from tests.cases import each

TEXTS = [f"text {number}" for number in range(20)]


class Model:
    """The parity of the number in a text; it counts what it is asked."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def __call__(self, texts: list[str]) -> list[int]:
        self.calls.append(list(texts))
        return [int(text.split()[1]) % 2 for text in texts]

    @property
    def asked(self) -> list[str]:
        return [text for texts in self.calls for text in texts]


def caller(function: Callable[[Any], Any], **options: Any) -> Caller:
    return Caller(function, 2, **{"name": "parity", "price": CALLS, **options})


def labels(scores: Any) -> list[int]:
    return [int(label) for label in scores.argmax(1)]


@each(("batch_size", "concurrency"), [(None, 1), (1, 1), (3, 1), (3, 4), (1, 8), (50, 4)])
def test_answers_come_in_the_order_of_the_inputs(batch_size: int | None, concurrency: int) -> None:
    model = Model()
    asking = caller(model, batch_size=batch_size, concurrency=concurrency)
    assert labels(asking.ask(TEXTS)) == [number % 2 for number in range(20)]
    assert sorted(model.asked) == sorted(TEXTS)
    assert max(map(len, model.calls)) <= (batch_size or 20)
    assert asking.usage == Usage(replies=20, spent=20.0)


@each("inputs", [np.arange(6.0).reshape(3, 2), torch.arange(6.0).reshape(3, 2)])
def test_arrays_stay_arrays(inputs: Any) -> None:
    seen: list[Any] = []

    def function(rows: Any) -> Any:
        seen.append(rows)
        return rows

    assert labels(caller(function).ask(inputs)) == [1, 1, 1]
    assert type(seen[0]) is type(inputs)


def test_a_dictionary_of_texts_and_numbers(tmp_path: Path, open_store: Opener) -> None:
    inputs = {"text": np.array(["a", "b", "a"], object), "size": np.array([1, 2, 3])}
    asking = caller(lambda rows: [size % 2 for size in rows["size"]])
    with asking.keeping(open_store(tmp_path / "answers.sqlite")):
        assert labels(asking.ask(inputs)) == [1, 0, 1]
        assert asking.usage.replies == 3  # the same text, but another number


def test_nothing_that_is_kept_is_asked_again(tmp_path: Path, open_store: Opener) -> None:
    model = Model()
    for _ in range(2):
        asking = caller(model, batch_size=4)
        with asking.keeping(open_store(tmp_path / "answers.sqlite")):
            assert labels(asking.ask(TEXTS[:10])) == [number % 2 for number in range(10)]
            assert labels(asking.ask([*TEXTS[5:15], *TEXTS[5:15]])) == [number % 2 for number in range(5, 15)] * 2
    assert sorted(model.asked) == sorted(TEXTS[:15])


def test_another_version_of_a_model_is_asked_anew(tmp_path: Path, open_store: Opener) -> None:
    model = Model()
    store = open_store(tmp_path / "answers.sqlite")
    for name in ("parity 1", "parity 2"):
        asking = caller(model, name=name)
        with asking.keeping(store):
            asking.ask(TEXTS[:3])
    assert len(model.asked) == 6


def test_kept_answers_of_other_classes_are_not_taken(tmp_path: Path, open_store: Opener) -> None:
    store = open_store(tmp_path / "answers.sqlite")
    for classes in (("cat", "dog"), ("dog", "cat")):
        one = Caller(lambda texts: ["cat"] * len(texts), 2, name="same", price=CALLS, classes=classes)
        with one.keeping(store):
            assert one.ask(TEXTS[:1]).argmax(1).tolist() == [classes.index("cat")]


def test_replies_that_do_not_fit_name_the_model() -> None:
    with pytest.raises(InputError, match="replies of 'parity': expected one per input, 20, got 1"):
        caller(lambda _: [0]).ask(TEXTS)


def test_a_model_that_answers_nothing_any_more_ends_the_work() -> None:
    silent = caller(lambda texts: [None] * len(texts), batch_size=1)
    with pytest.raises(CallError, match="gave no answer to 50 inputs in a row"):
        silent.ask([str(number) for number in range(200)])


class Flaky(Model):
    """Fails at some of its calls."""

    def __init__(self, failures: list[Any]) -> None:
        super().__init__()
        self.failures = failures

    def __call__(self, texts: list[str]) -> list[int]:
        found = super().__call__(texts)
        failure = self.failures.pop(0) if self.failures else None
        if isinstance(failure, Exception):
            raise failure
        return found if failure is None else [failure if place == 0 else label for place, label in enumerate(found)]


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offramp.calls._retries.FIRST_WAIT_S", 0.001)
    monkeypatch.setattr("offramp.calls._retries.LONGEST_WAIT_S", 0.002)


@each("failure", [RuntimeError("down"), TimeoutError(), CallError("busy"), "no class", None])
def test_failed_and_malformed_calls_are_tried_again(failure: Any) -> None:
    model = Flaky([failure, failure])
    asking = caller(model, attempts=4, batch_size=5)
    assert labels(asking.ask(TEXTS)) == [number % 2 for number in range(20)]
    expected = {"no class": (2, 0), None: (0, 0)}.get(failure if not isinstance(failure, Exception) else "x", (0, 2))
    assert (asking.usage.malformed, asking.usage.failures) == expected


def test_only_the_malformed_replies_of_a_batch_are_asked_again() -> None:
    model = Flaky(["no class"])
    caller(model, attempts=2).ask(TEXTS[:5])
    assert model.calls == [TEXTS[:5], TEXTS[:1]]


def test_an_input_whose_attempts_are_used_up_has_no_scores_and_the_others_have(
    tmp_path: Path, open_store: Opener
) -> None:
    model = Flaky(["no class"] * 9)
    asking = caller(model, attempts=3)
    with asking.keeping(open_store(tmp_path / "answers.sqlite")):
        scores = asking.ask(TEXTS[:4])
        (place,) = np.flatnonzero(np.isnan(scores).all(1)).tolist()
        assert all(np.isnan(row).any() or row.argmax() == number % 2 for number, row in enumerate(scores))
        model.failures.clear()
        assert labels(asking.ask(TEXTS[:4])) == [0, 1, 0, 1]  # asked again by the next run
    assert [model.asked.count(text) for text in TEXTS[:4]] == [4 if number == place else 1 for number in range(4)]


def test_an_error_of_a_function_that_is_not_retried_comes_through() -> None:
    with pytest.raises(CallError) as raised:
        caller(Flaky([RuntimeError("a bug")])).ask(TEXTS[:2])
    assert isinstance(raised.value.__cause__, RuntimeError)


def test_a_failure_that_no_attempt_can_mend_ends_at_once() -> None:
    model = Flaky([CallError("no key", temporary=False)])
    with pytest.raises(CallError):
        caller(model, attempts=5).ask(TEXTS[:2])
    assert len(model.calls) == 1


def test_a_rate_limit_holds_all_calls() -> None:
    times: list[float] = []
    lock = threading.Lock()

    def function(texts: list[str]) -> list[int]:
        with lock:
            times.append(time.monotonic())
            first = len(times) == 1
        if first:
            raise CallError("slow down", retry_after_s=0.3)
        time.sleep(0.05)
        return [0] * len(texts)

    caller(function, attempts=3, batch_size=1, concurrency=2).ask(TEXTS)
    waited = [later - times[0] for later in times[1:]]
    assert len(times) == 21
    # The other thread may have begun one call before the limit was known.
    assert sum(seconds < 0.29 for seconds in waited) <= 2


def test_a_call_that_takes_too_long_counts_as_failed() -> None:
    waits = iter([0.5, 0.0])

    def function(texts: list[str]) -> list[int]:
        time.sleep(next(waits))
        return [1] * len(texts)

    asking = caller(function, attempts=2, timeout_s=0.1)
    assert labels(asking.ask(TEXTS[:2])) == [1, 1]
    assert asking.usage.failures == 1


@each("concurrency", [1, 4])
def test_the_cap_is_passed_by_what_is_under_way_at_most(tmp_path: Path, open_store: Opener, concurrency: int) -> None:
    model, store = Model(), open_store(tmp_path / "answers.sqlite")
    asking = caller(model, batch_size=1, concurrency=concurrency)
    with asking.keeping(store, max_spend=7.0), pytest.raises(CallError, match="spending cap"):
        asking.ask(TEXTS)
    spent = store.usage(asking.identity).spent
    assert 7 <= spent <= 7 + concurrency - 1
    again = caller(model, batch_size=1)
    with again.keeping(store, max_spend=7.0), pytest.raises(CallError, match="spending cap"):
        again.ask(TEXTS)  # what an earlier run spent counts
    assert store.usage(asking.identity).spent == spent
    with again.keeping(store, max_spend=100.0):
        assert labels(again.ask(TEXTS)) == [number % 2 for number in range(20)]
    assert sorted(model.asked) == sorted(TEXTS)


def test_malformed_replies_are_paid_for() -> None:
    asking = caller(Flaky(["no class", "no class"]), attempts=3)
    asking.ask(TEXTS[:4])
    assert asking.usage.spent == 6.0


class TestPrices:
    def test_of_tokens_are_learned_as_a_line_in_the_characters(self) -> None:
        price = Price(per_call=0.5, per_input_token=0.01)
        asking = caller(lambda texts: [Reply(0, input_tokens=2 * len(text) + 3) for text in texts], price=price)
        with pytest.raises(InputError):
            _ = asking.price_line
        asking.ask(["x" * size for size in range(1, 40)])
        assert asking.price_line == pytest.approx((0.53, 0.02))
        assert asking.mean_size == pytest.approx(20.0)
        assert asking.sizes(["abc", ""]).tolist() == [3.0, 0.0]

    def test_of_a_function_of_the_input(self) -> None:
        asking = caller(lambda texts: [0] * len(texts), price=Price(per_call=1, per_input=lambda text: len(text) / 10))
        asking.ask(["four", "sixsix"])
        assert asking.usage.spent == pytest.approx(2 + 1)
        assert asking.sizes(["four"]).tolist() == [0.4]
        assert asking.price_line == (1, 1.0)

    def test_that_do_not_vary(self) -> None:
        asking = caller(Model())
        assert asking.price_line == (1.0, 0.0)
        assert asking.sizes(TEXTS).tolist() == [1.0] * 20

    def test_are_learned_from_kept_answers_too(self, tmp_path: Path, open_store: Opener) -> None:
        price = Price(per_input_token=1.0)
        store = open_store(tmp_path / "answers.sqlite")
        for _ in range(2):
            asking = caller(lambda texts: [Reply(0, len(text)) for text in texts], price=price)
            with asking.keeping(store):
                asking.ask(["a", "bb", "cccc"])
            assert asking.price_line == pytest.approx((0.0, 1.0), abs=1e-9)


@each("option", ["batch_size", "concurrency", "attempts"])
def test_options_below_1_are_refused(option: str) -> None:
    with pytest.raises(InputError):
        caller(Model(), **{option: 0})


def test_no_inputs_are_no_calls() -> None:
    model = Model()
    assert caller(model).ask([]).shape == (0, 2)
    assert model.calls == []
