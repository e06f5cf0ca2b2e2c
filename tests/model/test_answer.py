"""Answers as dictionaries and data frames."""

import torch

import offramp


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
    ]
    assert frame["label"].tolist() == ["yes", "no"]
    assert frame["prediction_set_0.1"].tolist() == [["yes"], ["no", "yes"]]


def test_the_short_form() -> None:
    shown = repr(answer(("no", "yes")))
    assert shown == "Answer(2 samples: yes, no; 1 at exit 0, 1 at exit 2; relative cost 0.75)"
    assert len(answer()) == 2
