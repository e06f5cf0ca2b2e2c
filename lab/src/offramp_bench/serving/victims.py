"""Small models to attack: images of three colours, and texts of made-up words."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification

import offramp
from offramp.backbone import CifarResNet
from offramp.backbone.adapters.transformers import text_backbone
from offramp.preprocessing._images import photo_preprocessing

__all__ = ["save_images", "save_texts"]

SETTINGS = offramp.JointSettings(cost_weights=(0.1, 1.0), warmup_epochs=2, epochs=1, batch_size=50)
WORDS = [f"word{number}" for number in range(26)]
QUESTION = ["where", "is", "my", "card", "?"]
"""Words of the examples in docs/how-to/serve.md."""


def save_images(folder: Path) -> list[Any]:
    """Save a model of small images.

    Args:
        folder: Folder of the artifact.

    Returns:
        Inputs for requests.
    """
    torch.manual_seed(0)
    prepare = photo_preprocessing(32, resized=32, mode="bilinear", mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    network = CifarResNet(8, num_classes=3)
    data = _images(150, seed=1), _images(100, seed=2)
    model = offramp.fit(
        network, *data, preprocessing=prepare, classes=("a", "b", "c"), settings=SETTINGS, anyway=True, progress=False
    )
    model.save(folder, weights=True)
    return list(_images(20, seed=3)[0])


def save_texts(folder: Path) -> list[Any]:
    """Save a model of short texts; arguments and result are those of `save_images`."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"num_hidden_layers": 2, "num_labels": 3, "hidden_size": 16, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 32, "vocab_size": 35, "max_position_embeddings": 40}
    network = BertForSequenceClassification(BertConfig(**sizes))  # type: ignore[no-untyped-call]
    backbone = text_backbone(network, tokenizer=_tokenizer(), longest=12, name="tiny-bert")
    data = _texts(120, seed=1), _texts(80, seed=2)
    model = offramp.fit(backbone, *data, classes=("good", "bad", "n/a"), settings=SETTINGS, anyway=True, progress=False)
    model.save(folder)
    return [str(text) for text in _texts(20, seed=3)[0]]


def _images(count: int, *, seed: int) -> tuple[Any, Any]:
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 3, count)
    noise = draw.normal(size=(count, 32, 32, 3)) * draw.choice([10, 60], (count, 1, 1, 1))
    return np.clip(np.eye(3)[labels][:, None, None] * 60 + 90 + noise, 0, 255).astype(np.uint8), labels


def _tokenizer() -> Tokenizer:
    numbers = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS, *QUESTION])}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special_tokens = [(name, numbers[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=special_tokens)
    return tokenizer


def _texts(count: int, *, seed: int) -> tuple[Any, Any]:
    """Return texts of four to eight words, and their classes, which follow from the first word."""
    draw = np.random.default_rng(seed)
    rows = [draw.integers(0, 26, draw.integers(4, 9)) for _ in range(count)]
    texts = np.array([" ".join(WORDS[word] for word in row) for row in rows], dtype=object)
    return texts, np.array([row[0] % 3 for row in rows])
