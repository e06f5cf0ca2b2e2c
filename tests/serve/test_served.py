"""A model replaced while requests run: each request is answered by the model that prepared it."""

import threading
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import offramp
from offramp.errors import BudgetError, InputError
from offramp.preprocessing import Preprocessing
from offramp.serve import Scheduler
from offramp.serve._served import input_tensor, takes_texts
from tests.cases import each
from tests.model.examples import LINEAR, PREPROCESSING, backbone, images
from tests.serve.examples import model
from tests.serve.test_overload import DROP, dear
from tests.serve.test_scheduler import Watching, same


@cache
def retrained() -> offramp.EarlyExitModel:
    """The same network with exits of other samples."""
    data = images(200, seed=11), images(120, seed=12)
    fitted = offramp.fit(
        backbone(), *data, preprocessing=PREPROCESSING, classes=("a", "b", "c"), settings=LINEAR, progress=False
    )
    return fitted.at(max_drop=0.5, policy="threshold")


class TestReplace:
    def test_requests_run_on_the_model_that_prepared_them(self) -> None:
        batches: list[tuple[str, int]] = []

        def watch(given: offramp.EarlyExitModel, name: str) -> offramp.EarlyExitModel:
            def before_stage(index: int, count: int) -> None:
                if index == 0:
                    batches.append((name, count))

            return replace(given, backend=Watching(given, before_stage))

        old, new = watch(model(), "old"), watch(retrained(), "new")
        inputs = images(9, seed=3)[0]
        scheduler = Scheduler(old)
        before = [scheduler.submit(inputs[:2], deadline_ms=90_000), scheduler.submit(inputs[2:5])]
        scheduler.replace(new)
        assert scheduler.model is new
        after = [scheduler.submit(inputs[5:8], deadline_ms=60_000), scheduler.submit(inputs[8:])]
        assert [scheduler.run_batch() for _ in range(3)] == [4, 5, 0]  # by deadline, and never both models
        assert batches == [("new", 4), ("old", 5)]
        same(before[0].result(timeout=0), model().predict(inputs[:2]))
        same(before[1].result(timeout=0), model().predict(inputs[2:5]))
        same(after[0].result(timeout=0), retrained().predict(inputs[5:8]))
        same(after[1].result(timeout=0), retrained().predict(inputs[8:]))
        assert after[0].point is new.point
        assert before[0].point is old.point

    def test_no_request_fails_while_models_change(self) -> None:
        inputs = images(40, seed=3)[0]
        expected = [given.predict(inputs) for given in (model(), retrained())]
        found: dict[int, offramp.Answer] = {}

        def call(rows: range) -> None:
            for row in rows:
                found[row] = scheduler.submit(inputs[row : row + 1], max_drop=0.5).result(timeout=60)

        with Scheduler(model(), max_batch=4) as scheduler:
            callers = [threading.Thread(target=call, args=(range(start, 40, 4),)) for start in range(4)]
            for caller in callers:
                caller.start()
            while any(caller.is_alive() for caller in callers):
                scheduler.replace(retrained())
                scheduler.replace(model())
            for caller in callers:
                caller.join()
        assert len(found) == 40
        for row, answer in found.items():
            assert any(bool((answer.probabilities - other[row].probabilities).abs().max() < 1e-4) for other in expected)

    @each(
        ("change", "words"),
        [
            ({"classes": ("a", "b", "d")}, "such as 'd'"),
            ({"classes": ()}, "the same 3"),
            ({"preprocessing": Preprocessing()}, "takes the same inputs"),
            ({"preprocessing": Preprocessing((("tokenize", {}),))}, "takes the same inputs"),
        ],
    )
    def test_another_kind_of_model_is_refused(self, change: dict[str, Any], words: str) -> None:
        scheduler = Scheduler(model())
        with pytest.raises(InputError, match=words):
            scheduler.replace(replace(model(), **change))
        assert scheduler.model is model()

    def test_prediction_sets_must_stay(self) -> None:
        scheduler = Scheduler(model())
        without = replace(model(), chosen=replace(model().point, conformal_thresholds={}))
        with pytest.raises(InputError, match="prediction sets"):
            scheduler.replace(without)

    def test_the_floor_of_overload_must_hold_for_the_new_model(self) -> None:
        scheduler = Scheduler(dear(), overload_drop=DROP)
        with pytest.raises(BudgetError, match="cheaper than"):
            scheduler.replace(dear().at(max_drop=DROP, policy="threshold"))
        assert scheduler.level == 0


def test_inputs_of_models() -> None:
    texts = replace(model(), preprocessing=Preprocessing((("tokenize", {}),)))
    assert takes_texts(texts)
    assert not takes_texts(model())
    arrays = replace(model(), preprocessing=Preprocessing())
    assert [input_tensor(given)[0] for given in (texts, model(), arrays)] == ["text", "image", "input"]
