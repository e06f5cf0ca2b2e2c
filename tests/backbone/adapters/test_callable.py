"""Functions as members of a cascade: what they take, what is refused, and what is saved."""

from typing import Any

import numpy as np
import pytest
import torch

import offramp
from offramp.backbone._making import build
from offramp.calls import Price
from offramp.errors import CallError, InputError, UntrustedNameError
from tests.cases import each

CLASSES = ("no", "yes")


def is_long(texts: Any) -> list[str]:
    return ["yes" if len(text) > 3 else "no" for text in texts]


def lengths(texts: Any) -> Any:
    return np.array([[len(text), 1.0] for text in texts])


@each("classes", [CLASSES, 2])
def test_labels_become_scores(classes: Any) -> None:
    member = offramp.callable_model(lambda texts: [int(len(text) > 3) for text in texts], classes, name="numbers")
    assert member(["a", "long", "longer"]).argmax(1).tolist() == [0, 1, 1]
    assert (member.num_exits, member.num_classes, member.classes) == (1, 2, () if classes == 2 else CLASSES)


def test_one_entry_of_a_dictionary() -> None:
    member = offramp.callable_model(is_long, CLASSES, field="text")
    inputs = {"text": ["a", "long"], "other": np.zeros(2)}
    assert member(inputs).argmax(1).tolist() == [0, 1]
    with pytest.raises(InputError, match="a dictionary with the entry 'text', got entries \\['other'\\]"):
        member({"other": np.zeros(2)})


def test_an_input_without_an_answer_is_an_error() -> None:
    member = offramp.callable_model(lambda texts: [None for _ in texts], CLASSES, name="silent")
    with pytest.raises(CallError, match="'silent' gave no answer to 2 of 2 inputs"):
        member(["a", "b"])


def test_a_function_of_a_module_is_made_again_if_it_is_trusted() -> None:
    member = offramp.callable_model(is_long, CLASSES, price=Price(per_call=0.5, currency="EUR"), version="2")
    assert member.factory is not None
    name = f"{__name__}:is_long"
    with pytest.raises(UntrustedNameError, match="is_long"):
        build(member.factory, trust=())
    again = build(member.factory, trust=(name,))
    assert again(["a", "long"]).argmax(1).tolist() == [0, 1]
    assert (again.name, again.classes, again.price) == ("is_long 2", CLASSES, member.price)


def test_other_functions_cannot_be_made_again() -> None:
    assert offramp.callable_model(lambda texts: texts, CLASSES).factory is None
    varies = Price(per_input=lambda text: len(text))
    assert offramp.callable_model(is_long, CLASSES, price=varies).factory is None


def test_two_functions_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="functions of different names, got two or more of '<lambda>'"):
        offramp.cascade(lambda texts: texts, lambda texts: texts, classes=CLASSES)


def test_functions_need_classes() -> None:
    with pytest.raises(InputError, match="the classes that the functions of a cascade answer with"):
        offramp.cascade(lengths, is_long)


class TestEncoders:
    def test_embeddings_of_a_function(self) -> None:
        front = offramp.encoder(lengths)
        assert front.own_heads == ()
        assert front.stages[0](["abc"]).tolist() == [[3.0, 1.0]]

    def test_embeddings_as_they_are(self) -> None:
        front = offramp.encoder(field="row")
        assert front.stages[0]({"row": np.eye(2)}).dtype == torch.float32

    def test_what_is_no_embedding(self) -> None:
        with pytest.raises(InputError, match=r"N x D numbers, got shape \(1,\)"):
            offramp.encoder(lambda texts: np.zeros(len(texts)), name="flat").stages[0](["a"])

    def test_it_is_made_again_if_it_is_trusted(self) -> None:
        front = offramp.encoder(lengths)
        assert front.factory is not None
        with pytest.raises(UntrustedNameError, match="lengths"):
            build(front.factory, trust=())
        again = build(front.factory, trust=(f"{__name__}:lengths",))
        assert again.stages[0](["abc"]).tolist() == [[3.0, 1.0]]
