"""A small text classifier that takes raw texts, with a tokenizer of its own."""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification

import offramp
from offramp.backbone._backbone import Backbone
from offramp.backbone.adapters.transformers import text_backbone
from offramp.model._model import EarlyExitModel
from tests.model.artifact_examples import FEW

WORDS = [f"word{number}" for number in range(26)]
CLASSES = ("good", "bad", "n/a")


def tokenizer() -> Tokenizer:
    numbers = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    made = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    added = [(name, numbers[name]) for name in ("[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=added)
    return made


def backbone(seed: int = 0) -> Backbone:
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {"num_hidden_layers": 2, "num_labels": 3, "hidden_size": 16, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 32, "vocab_size": 30, "max_position_embeddings": 40}
    model = BertForSequenceClassification(BertConfig(**sizes))  # type: ignore[no-untyped-call]
    return text_backbone(model, tokenizer=tokenizer(), longest=12, name="tiny-bert")


def sentences(count: int, *, seed: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Texts of four to eight words, too many for two splits to share one; their first word tells the class."""
    draw = np.random.default_rng(seed)
    rows = [draw.integers(0, 26, draw.integers(4, 9)) for _ in range(count)]
    texts = np.array([" ".join(WORDS[word] for word in row) for row in rows], dtype=object)
    return texts, np.array([row[0] % 3 for row in rows])


@cache
def fitted() -> EarlyExitModel:
    data = sentences(80, seed=1), sentences(60, seed=2)
    return offramp.fit(backbone(), *data, settings=FEW, classes=CLASSES, anyway=True, progress=False)


RAW = [*sentences(18, seed=3)[0].tolist(), "", "nothing known " * 20]
"""Texts to ask, an empty one and one that is too long among them."""
