"""Inputs of every form to every function that takes some: an answer, or an InputError that names the next step."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import transformers
from torch import Tensor, nn

import offramp
from offramp.backbone._backbone import Backbone
from offramp.backbone.adapters.transformers import text_backbone
from offramp.errors import InputError, OfframpError
from offramp.model._estimation import estimate
from offramp.preprocessing._preprocessing import AS_IS
from tests.cases import each
from tests.model import text_examples
from tests.model.artifact_examples import FEW
from tests.model.examples import PREPROCESSING, backbone, images

LIBRARY: Any = transformers


class Convolutions(nn.Module):
    """A network that would take one image without a batch axis, and answer nonsense."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.Sequential(*(nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()) for _ in range(3)))
        self.head = nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(self.blocks(self.stem(inputs)).mean((-2, -1)))
        return logits


def floats(count: int, *, seed: int) -> tuple[Tensor, npt.NDArray[np.int64]]:
    pixels, labels = images(count, seed=seed)
    return torch.from_numpy(pixels).permute(0, 3, 1, 2)[:, :, :8, :8].float() / 64 - 2, labels


def vectors(count: int, *, seed: int) -> tuple[Tensor, npt.NDArray[np.int64]]:
    inputs, labels = floats(count, seed=seed)
    return inputs.mean((2, 3)), labels


@cache
def tokenizer() -> Any:
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return LIBRARY.PreTrainedTokenizerFast(tokenizer_object=text_examples.tokenizer(), **names)


def encoded(texts: Any, **options: Any) -> Any:
    return tokenizer()(list(texts), return_token_type_ids=True, **{"return_tensors": "pt", "padding": True, **options})


def sentences(count: int, *, seed: int) -> tuple[list[str], npt.NDArray[np.int64]]:
    texts, labels = text_examples.sentences(count, seed=seed)
    return texts.tolist(), labels


def encodings(count: int, *, seed: int) -> tuple[Any, npt.NDArray[np.int64]]:
    texts, labels = sentences(count, seed=seed)
    return encoded(texts), labels


@cache
def text_networks() -> tuple[Backbone, Backbone]:
    """The same network with a tokenizer of its own, and without."""
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 2, "num_labels": 3, "hidden_size": 16, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 32, "vocab_size": 30, "max_position_embeddings": 40}
    model = LIBRARY.BertForSequenceClassification(LIBRARY.BertConfig(**sizes))
    return text_backbone(model, tokenizer=tokenizer(), longest=12), text_backbone(model)


def by_hand() -> Backbone:
    torch.manual_seed(0)
    return Backbone("by-hand", [nn.Linear(3, 8), nn.Linear(8, 8)], {1: nn.Linear(8, 3)}, num_classes=3)


def convolutions() -> Backbone:
    torch.manual_seed(0)
    return offramp.split(Convolutions(), floats(2, seed=0)[0])


NETWORKS: Mapping[str, tuple[Callable[[], Backbone], Callable[..., Any]]] = {
    "byte images": (backbone, images),
    "split": (convolutions, floats),
    "by hand": (by_hand, vectors),
    "texts": (lambda: text_networks()[0], sentences),
    "tokens": (lambda: text_networks()[1], encodings),
}


@cache
def network(name: str) -> offramp.EarlyExitModel:
    make, data = NETWORKS[name]
    made = make()
    preparing = PREPROCESSING if name == "byte images" else made.preprocessing
    frontier = offramp.fit(
        made, data(60, seed=1), data(40, seed=2), preprocessing=preparing, settings=FEW, anyway=True, progress=False
    )
    return frontier.at(cost=1.1)


STRANGE: Mapping[str, Any] = {
    "0-d tensor": torch.tensor(1.0),
    "0-d array": np.array(1),
    "number": 3,
    "1-d tensor": torch.ones(7),
    "1-d integers": torch.ones(7, dtype=torch.long),
    "1-d of the width": torch.ones(3),
    "2-d of another width": torch.ones(2, 5),
    "image": torch.ones(3, 8, 8),
    "image of another size": torch.ones(3, 32, 32),
    "image, channels last": np.zeros((32, 32, 3), np.uint8),
    "grey images": np.zeros((4, 32, 32), np.uint8),
    "other channels": torch.ones(2, 5, 8, 8),
    "other channels, last": np.zeros((2, 32, 32, 5), np.uint8),
    "bytes for floats": torch.ones(2, 3, 8, 8, dtype=torch.uint8),
    "booleans": torch.ones(2, 3, 8, 8, dtype=torch.bool),
    "complex": torch.ones(2, 3, 8, 8, dtype=torch.complex64),
    "tiny": torch.ones(2, 3, 1, 1),
    "no pixels": torch.ones(2, 3, 0, 0),
    "videos": torch.ones(2, 3, 4, 8, 8),
    "many axes": torch.ones([1] * 60),
    "no samples": torch.ones(0, 3, 8, 8),
    "no vectors": torch.ones(0, 3),
    "no list": [],
    "no tuple": (),
    "no entries": {},
    "nan": torch.full((2, 3, 8, 8), torch.nan),
    "nan vectors": torch.full((2, 3), torch.nan),
    "infinite": torch.full((2, 3, 8, 8), torch.inf),
    "objects": np.array([object(), None], dtype=object),
    "objects, 2-d": np.array([["a", 1], [None, 2]], dtype=object),
    "nothings": [None, None],
    "nested lists": [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]],
    "ragged lists": [[1.0, 2.0], [3.0]],
    "list of tensors": [torch.ones(3, 8, 8), torch.ones(3, 8, 8)],
    "tuple of tensors": (torch.ones(2, 3), torch.ones(2, 3)),
    "text": "word1 word2",
    "texts": ["word1", "word2 word3"],
    "tuple of texts": ("word1", "word2 word3"),
    "array of texts": np.array(["word1", "word2 word3"]),
    "texts and numbers": ["word1", 2],
    "None": None,
    "bytes": b"word1",
    "set": {1, 2},
    "generator": (number for number in range(3)),
    "dates": np.array(["2020-01-01"], dtype="datetime64[D]"),
    "dictionary": {"inputs": torch.ones(2, 3)},
    "token ids alone": {"input_ids": torch.ones(2, 4, dtype=torch.long)},
    "1-d tokens": {"input_ids": torch.ones(4, dtype=torch.long), "attention_mask": torch.ones(4, dtype=torch.long)},
    "ragged tokens": {"input_ids": [[2, 3], [2, 4, 3]], "attention_mask": [[1, 1], [1, 1, 1]]},
    "real tokens": {"input_ids": torch.ones(2, 4), "attention_mask": torch.ones(2, 4)},
    "unknown tokens": {"input_ids": torch.full((2, 4), 10**6), "attention_mask": torch.ones(2, 4, dtype=torch.long)},
    "negative tokens": {"input_ids": torch.full((2, 4), -9), "attention_mask": torch.ones(2, 4, dtype=torch.long)},
    "unlike lengths": {
        "input_ids": torch.ones(2, 4, dtype=torch.long),
        "attention_mask": torch.ones(2, 3, dtype=torch.long),
    },
    "unlike counts": {
        "input_ids": torch.ones(2, 4, dtype=torch.long),
        "attention_mask": torch.ones(3, 4, dtype=torch.long),
    },
    "too long": {
        "input_ids": torch.ones(1, 99, dtype=torch.long),
        "attention_mask": torch.ones(1, 99, dtype=torch.long),
    },
}


@pytest.mark.slow
@each("name", NETWORKS)
def test_any_input_is_answered_or_refused(name: str) -> None:
    given = network(name)
    answered = set()
    for kind, inputs in STRANGE.items():
        for many in (False, True):
            try:
                answer = given.predict_many([inputs]) if many else given.predict(inputs)
            except InputError:
                continue
            except Exception as error:
                pytest.fail(f"{kind}: {type(error).__name__}: {error}")
            else:
                assert answer.probabilities.isfinite().all(), kind
                answered.add(kind)
    expected = {
        "byte images": set[str](),
        "split": {"no samples"},
        "by hand": {"nested lists", "no vectors"},
        "texts": {"texts", "tuple of texts", "array of texts"},
        "tokens": set[str](),
    }[name]
    assert expected <= answered
    assert not answered & {"image", "image, channels last", "1-d tokens", "text", "None", "bytes", "nan", "many axes"}


UNBATCHED: Mapping[str, tuple[Any, str]] = {
    "byte images": (images(1, seed=3)[0][0].astype(np.int64), r"batch axis is missing; add it with inputs\[None\]"),
    "split": (floats(1, seed=3)[0][0], r"batch axis is missing; add it with inputs\[None\]"),
    "by hand": (torch.tensor(1.0), r"batch axis is missing; add it with inputs\[None\]"),
    "texts": ("word1 word2", r"batch axis is missing; put it into a list: \[text\]"),
    "tokens": (
        {key: values[0] for key, values in encoded(["word1 word2"]).items()},
        r"batch axis is missing; add it with \{name: values\[None\] for name, values in inputs.items\(\)\}",
    ),
}


@each("name", NETWORKS)
def test_one_sample_without_a_batch_axis(name: str) -> None:
    inputs, told = UNBATCHED[name]
    given = network(name)
    with pytest.raises(InputError, match=told):
        given.predict(inputs)
    with pytest.raises(InputError, match=told):
        given.predict_many([inputs])


def test_a_pillow_image_and_its_bytes_without_a_list() -> None:
    with pytest.raises(InputError, match=r"put it into a list: \[image\]"):
        network("byte images").predict(images(1, seed=3)[0][0])


@each(
    ("model", "example"),
    [
        (Convolutions(), torch.ones(3, 8, 8)),
        (nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)), torch.ones(4)),
        (nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), torch.tensor(1.0)),
    ],
)
def test_an_example_without_a_batch_axis(model: nn.Module, example: Tensor) -> None:
    with pytest.raises(InputError, match=r"batch axis is missing; add it with (example|inputs)\[None\]"):
        offramp.split(model, example)


def test_tokens_without_a_batch_axis_as_an_example() -> None:
    model = LIBRARY.AutoModelForSequenceClassification.from_config(
        LIBRARY.BertConfig(num_hidden_layers=1, hidden_size=16, num_attention_heads=2, vocab_size=30)
    )
    with pytest.raises(InputError, match="batch axis is missing; add it with"):
        offramp.split(model, {key: values[0] for key, values in encoded(["word1 word2 word3"]).items()})
    for texts in ("word1", ["word1", "word2"]):
        with pytest.raises(InputError, match="text_backbone"):
            offramp.split(model, texts)


FORMS: Mapping[str, Callable[[list[str]], Any]] = {
    "batch encoding": encoded,
    "arrays": lambda texts: encoded(texts, return_tensors="np"),
    "lists of one length": lambda texts: encoded(texts, return_tensors=None),
    "dictionary": lambda texts: dict(encoded(texts)),
    "without token types": lambda texts: {
        key: values for key, values in encoded(texts).items() if key != "token_type_ids"
    },
    "tuple of texts": tuple,
    "list of texts": list,
    "array of texts": lambda texts: np.array(texts, dtype=object),
}


@each("form", FORMS)
def test_whatever_a_tokenizer_returns_is_answered_alike(form: str) -> None:
    texts = sentences(20, seed=5)[0]
    with_tokenizer = network("texts")
    without = replace(with_tokenizer, preprocessing=AS_IS)
    expected, inputs = with_tokenizer.predict(texts), FORMS[form](texts)
    for given in (with_tokenizer,) if "texts" in form else (with_tokenizer, without):
        for answer in (given.predict(inputs), given.predict_many([inputs, inputs])):
            assert torch.equal(answer.labels[: len(texts)], expected.labels)
            torch.testing.assert_close(answer.probabilities[:20], expected.probabilities, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@each("form", ["batch encoding", "lists of one length", "without token types", "array of texts"])
def test_whatever_a_tokenizer_returns_is_fitted_alike(form: str) -> None:
    make = FORMS[form]
    data = [(make(texts), labels) for texts, labels in (sentences(60, seed=1), sentences(40, seed=2))]
    made = text_networks()[0 if "texts" in form else 1]
    frontier = offramp.fit(made, *data, settings=FEW, anyway=True, progress=False)
    texts, labels = sentences(50, seed=6)
    for again in (
        frontier.recalibrate(make(texts), progress=False),
        frontier.recalibrate((make(texts), labels), labelled=True, progress=False),
    ):
        assert len(again.points["threshold"][0].losses["disagreement"].samples) == 50
    assert estimate(made, (make(texts), labels), folds=2, settings=FEW, anyway=True, progress=False).samples == 50


@each("form", ["batch encoding", "arrays", "lists of one length", "dictionary"])
def test_a_tokenizers_output_is_an_example(form: str) -> None:
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "vocab_size": 30}
    model = LIBRARY.BertForSequenceClassification(LIBRARY.BertConfig(**sizes)).eval()
    inputs = FORMS[form](["word1 word2", "word3"])
    cut = offramp.split(model, inputs)
    tensors = {key: torch.as_tensor(values) for key, values in inputs.items()}
    torch.testing.assert_close(cut(cut.prepare(inputs)), model(**tensors).logits, rtol=1e-4, atol=1e-5)


@each("name", ["texts", "tokens"])
def test_texts_that_were_not_padded(name: str) -> None:
    ragged = encoded(["word1", "word2 word3"], return_tensors=None, padding=False)
    with pytest.raises(InputError, match='return_tensors="pt", padding=True'):
        network(name).predict(ragged)
    with pytest.raises(InputError, match='return_tensors="pt", padding=True'):
        offramp.fit(text_networks()[1], (ragged, [0, 1]), (ragged, [0, 1]), settings=FEW, anyway=True, progress=False)


def test_texts_padded_on_the_left() -> None:
    flipped = {key: values.flip(1) for key, values in encoded(["word1", "word2 word3"]).items()}
    for name in ("texts", "tokens"):
        with pytest.raises(InputError, match=r'set tokenizer.padding_side = "right"'):
            network(name).predict(flipped)


@each("data", [("word1", "word2"), ("word1", "word2", "word3"), (["word1"],), ["word1"], None])
def test_texts_without_labels_cannot_be_fitted(data: Any) -> None:
    with pytest.raises(InputError, match=r"\(inputs, labels\)|list of texts or images"):
        offramp.fit(text_networks()[0], data, data, settings=FEW, anyway=True, progress=False)


def test_a_network_that_cannot_be_cut() -> None:
    data = vectors(60, seed=1), vectors(60, seed=2)
    with pytest.warns(UserWarning, match=r"at=\[\.\.\.\].*offramp\.Backbone.*offramp\.cascade"):
        whole = offramp.split(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3)), data[0][0])
    assert whole.num_exits == 1
    told = r"no sample can leave early; .*at=\[\.\.\.\].*offramp\.Backbone.*offramp\.cascade"
    for use in (lambda: offramp.fit(whole, *data, settings=FEW, progress=False), lambda: estimate(whole, data[0])):
        with pytest.raises(InputError, match=told):
            use()
    cascade = offramp.fit(offramp.cascade(by_hand(), whole), *data, settings=FEW, anyway=True, progress=False)
    assert len(cascade.at(accuracy=0.01).predict(data[0][0]).labels) == 60


def test_every_refusal_is_an_error_of_ours() -> None:
    assert issubclass(InputError, OfframpError)
    assert issubclass(InputError, ValueError)
