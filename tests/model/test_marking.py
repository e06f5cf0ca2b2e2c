"""Bad inputs are marked, and the others of their batch get the answers that they would get without them."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

import offramp
from offramp.errors import BudgetError, InputError, MissingExtraError, StoreError
from offramp.model._answer import join_answers
from offramp.model._marking import is_input_error
from offramp.preprocessing import Preprocessing
from tests.cases import each
from tests.model.examples import LINEAR, PREPROCESSING, backbone, images


@cache
def model() -> offramp.EarlyExitModel:
    data = images(200, seed=1), images(120, seed=2)
    fitted = offramp.fit(backbone(), *data, preprocessing=PREPROCESSING, settings=LINEAR, progress=False)
    return fitted.at(cost=0.8, policy="threshold")


def raw() -> offramp.EarlyExitModel:
    return replace(model(), preprocessing=Preprocessing())


def test_a_sample_that_is_not_finite() -> None:
    inputs = torch.randn(9, 3, 32, 32)
    inputs[4, 0, 3, 3] = torch.nan
    answer, others = raw().predict(inputs, on_error="mark"), torch.arange(9) != 4
    expected = raw().predict(inputs[others])
    assert torch.equal(answer.labels[others], expected.labels)
    assert torch.equal(answer.exits[others], expected.exits)
    assert answer.labels[4] == -1
    assert list(answer.errors) == [4]
    assert "NaN" in answer.errors[4]
    assert not answer.prediction_sets[0.1][4].any()
    rows = answer.to_dicts()
    assert rows[4] == {"error": answer.errors[4]}
    assert rows[5]["label"] == int(expected.labels[4])
    assert "1 bad" in repr(answer)
    frame = answer.to_pandas()
    assert frame["error"].tolist() == [answer.errors.get(row, "") for row in range(9)]
    assert frame["label"].tolist() == answer.labels.tolist()


def test_samples_that_the_network_cannot_take() -> None:
    good = images(6, seed=3)[0]
    inputs: list[Any] = [*good[:2], "a text", *good[2:], None]
    answer = model().predict(inputs, on_error="mark")
    expected = model().predict(good)
    assert sorted(answer.errors) == [2, 7]
    assert answer.exits[[2, 7]].tolist() == [-1, -1]
    kept = [0, 1, 3, 4, 5, 6]
    assert torch.equal(answer.labels[kept], expected.labels)
    torch.testing.assert_close(answer.relative_cost[kept], expected.relative_cost)
    with pytest.raises(InputError):
        model().predict(inputs)


def test_all_bad_and_none() -> None:
    inputs = torch.full((3, 3, 32, 32), torch.nan)
    assert sorted(raw().predict(inputs, on_error="mark").errors) == [0, 1, 2]
    assert len(model().predict(["a", "b"], on_error="mark").errors) == 2
    assert raw().predict(torch.randn(2, 3, 32, 32), on_error="mark").errors == {}
    assert len(raw().predict(torch.empty(0, 3, 32, 32), on_error="mark")) == 0


def test_budgets_stay_with_their_samples() -> None:
    given, inputs = model(), images(6, seed=3)[0]
    budgets = torch.linspace(given.dial.cheapest, given.dial.most_expensive, 6)
    expected = given.predict(inputs, budget=budgets)
    mixed: list[Any] = [*inputs[:3], None, *inputs[3:]]
    answer = given.predict(mixed, budget=[*budgets[:3].tolist(), 1.0, *budgets[3:].tolist()], on_error="mark")
    kept = [0, 1, 2, 4, 5, 6]
    assert torch.equal(answer.exits[kept], expected.exits)


@each(
    "given", [MemoryError("full"), torch.OutOfMemoryError("full"), StoreError("gone"), MissingExtraError("tokenizers")]
)
def test_an_error_that_is_no_inputs_fault(monkeypatch: pytest.MonkeyPatch, given: Exception) -> None:
    def fail(*arguments: Any) -> None:
        raise given

    monkeypatch.setattr(offramp.EarlyExitModel, "prepare", fail)
    with pytest.raises(type(given)):
        model().predict(images(3, seed=3)[0], on_error="mark")


def test_errors_that_inputs_may_cause() -> None:
    assert all(map(is_input_error, [InputError("a text"), ValueError(), RuntimeError("mat1 and mat2"), KeyError(1)]))
    assert not is_input_error(torch.AcceleratorError("device lost"))
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50)
    assert not is_input_error(caught.value)


def test_a_wrong_word_is_refused() -> None:
    with pytest.raises(InputError, match="raise or mark"):
        model().predict(images(2, seed=3)[0], on_error="Mark")  # type: ignore[arg-type]


def test_a_wrong_budget_is_no_inputs_fault() -> None:
    with pytest.raises(BudgetError):
        model().predict(images(2, seed=3)[0], budget=1e-6, on_error="mark")


def test_answers_are_taken_apart_and_joined() -> None:
    inputs = torch.randn(5, 3, 32, 32)
    inputs[2] = torch.nan
    answer = raw().predict(inputs, on_error="mark")
    joined = join_answers([answer[row] for row in range(5)])
    assert torch.equal(joined.labels, answer.labels)
    assert joined.errors == answer.errors
    assert [len(answer[row]) for row in range(5)] == [1] * 5
    assert answer[-1].labels == answer.labels[-1]
    with pytest.raises(IndexError):
        answer[5]
