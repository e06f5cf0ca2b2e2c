"""Answers as dictionaries and data frames."""

import math
from typing import Any

import pytest
import torch

import offramp
from offramp.model._answer import join_answers
from tests.backbone.adapters.folder_examples import NAMES, tiny_bert, tiny_tokenizer
from tests.cases import each


def answer(classes: tuple[str, ...] = ()) -> offramp.Answer:
    probabilities = torch.tensor([[0.25, 0.75], [0.625, 0.375]])
    sets = {0.1: torch.tensor([[False, True], [True, True]]), 0.05: torch.ones(2, 2, dtype=torch.bool)}
    return offramp.Answer(
        probabilities.argmax(1), probabilities, torch.tensor([0, 2]), torch.tensor([0.5, 1.0]), sets, classes
    )


def test_dictionaries_carry_names() -> None:
    first, second = answer(("no", "yes")).to_dicts()
    assert first == {
        "label": "yes",
        "confidence": 0.75,
        "exit": 0,
        "relative_cost": 0.5,
        "prediction_sets": {0.1: ["yes"], 0.05: ["no", "yes"]},
    }
    assert (second["label"], second["exit"]) == ("no", 2)
    assert answer(("no", "yes")).names == ("yes", "no")


def test_numbers_where_there_are_no_names() -> None:
    assert [row["label"] for row in answer().to_dicts()] == [1, 0]
    assert answer().names == ()


def test_a_data_frame_has_one_row_per_sample() -> None:
    frame = answer(("no", "yes")).to_pandas()
    assert list(frame.columns) == [
        "label",
        "confidence",
        "exit",
        "relative_cost",
        "prediction_set_0.1",
        "prediction_set_0.05",
        "error",
    ]
    assert frame["error"].tolist() == ["", ""]
    assert frame["label"].tolist() == ["yes", "no"]
    assert frame["prediction_set_0.1"].tolist() == [["yes"], ["no", "yes"]]


@each("classes", [(), ("no", "yes")])
def test_a_data_frame_has_the_same_columns_whatever_the_inputs_are(classes: tuple[str, ...]) -> None:
    expected = answer(classes).to_pandas()
    bad = torch.tensor([-1]), torch.full((1, 2), torch.nan), torch.tensor([-1]), torch.zeros(1)
    sets = {miscoverage: torch.zeros(1, 2, dtype=torch.bool) for miscoverage in (0.1, 0.05)}
    one_bad = offramp.Answer(*bad, sets, classes, {0: "empty"})
    for part in (one_bad, join_answers([answer(classes), one_bad])):
        frame = part.to_pandas()
        assert frame.dtypes.to_dict() == expected.dtypes.to_dict()
        row = frame.iloc[-1]
        assert [row["label"], row["exit"], row["prediction_set_0.1"], row["error"]] == [
            "" if classes else -1,
            -1,
            [],
            "empty",
        ]
        assert math.isnan(row["confidence"])
    nothing = torch.zeros(0, dtype=torch.long), torch.zeros(0, 2), torch.zeros(0, dtype=torch.long), torch.zeros(0)
    frame = offramp.Answer(*nothing, {level: rows[:0] for level, rows in sets.items()}, classes).to_pandas()
    assert len(frame) == 0
    assert frame.dtypes.to_dict() == expected.dtypes.to_dict()


class TestLikeAPipeline:
    def test_labels_and_scores(self) -> None:
        assert answer(("no", "yes")).to_pipeline() == [{"label": "yes", "score": 0.75}, {"label": "no", "score": 0.625}]
        assert [row["label"] for row in answer().to_pipeline()] == ["LABEL_1", "LABEL_0"]

    def test_a_bad_input(self) -> None:
        bad = torch.tensor([-1]), torch.full((1, 2), torch.nan), torch.tensor([-1]), torch.zeros(1)
        assert offramp.Answer(*bad, {}, (), {0: "empty"}).to_pipeline() == [{"error": "empty"}]

    def test_as_transformers_returns_them(self) -> None:
        from transformers import TextClassificationPipeline

        network, tokenizer = tiny_bert(), tiny_tokenizer()
        make: Any = TextClassificationPipeline  # untyped
        texts = ["w1 w2", "w3", "w9 w1 w4"]
        expected = make(model=network, tokenizer=tokenizer)(texts)
        with torch.inference_mode():
            logits = network(**tokenizer(texts, padding=True, return_tensors="pt")).logits
        probabilities = logits.softmax(-1)
        exits, costs = torch.zeros(3, dtype=torch.long), torch.ones(3)
        found = offramp.Answer(probabilities.argmax(1), probabilities, exits, costs, {}, NAMES).to_pipeline()
        assert [set(row) for row in found] == [set(row) for row in expected]
        assert [row["label"] for row in found] == [row["label"] for row in expected]
        assert [row["score"] for row in found] == pytest.approx([row["score"] for row in expected], abs=1e-5)


def test_the_short_form() -> None:
    shown = repr(answer(("no", "yes")))
    assert shown == "Answer(2 samples: yes, no; 1 at exit 0, 1 at exit 2; relative cost 0.75)"
    assert len(answer()) == 2


class TestInNotebooks:
    def test_one_row_per_input(self) -> None:
        shown = answer(("no", "<yes>"))._repr_html_()
        assert shown.count("<tr>") == 3
        assert "<tr><td>0</td><td>&lt;yes&gt;</td><td>0.750</td><td>0</td><td>0.500</td></tr>" in shown
        assert "<yes>" not in shown

    def test_the_first_ten(self) -> None:
        probabilities = torch.full((12, 2), 0.5)
        columns = torch.zeros(12, dtype=torch.long), probabilities, torch.zeros(12, dtype=torch.long), torch.ones(12)
        shown = offramp.Answer(*columns, {})._repr_html_()
        assert shown.count("<tr>") == 11
        assert shown.endswith("<p>2 more</p>")

    def test_a_bad_input_shows_its_message(self) -> None:
        bad = torch.tensor([-1]), torch.full((1, 2), torch.nan), torch.tensor([-1]), torch.zeros(1)
        shown = offramp.Answer(*bad, {}, ("no", "yes"), {0: "expected 3 <channels>"})._repr_html_()
        assert "<td>expected 3 &lt;channels&gt;</td>" in shown

    def test_without_inputs(self) -> None:
        nothing = offramp.Answer(
            torch.zeros(0, dtype=torch.long), torch.zeros(0, 2), torch.zeros(0, dtype=torch.long), torch.zeros(0), {}
        )
        assert nothing._repr_html_().count("<tr>") == 1
