"""Small classifiers of the transformers library, saved as their owners save them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

NAMES = ("refund", "card lost", "balance", "pin")
"""In no order but the network's own."""

WORDS = {"?": 0, "-": 1, **{f"w{number}": number + 2 for number in range(30)}}


def tiny_bert(names: Sequence[str] = NAMES, **options: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: number for number, name in enumerate(names)}}
    config = BertConfig(vocab_size=len(WORDS), pad_token_id=1, initializer_range=0.5, **{**sizes, **labels, **options})
    made: Any = BertForSequenceClassification  # untyped
    return made(config).eval()


def tiny_tokenizer() -> Any:
    words = Tokenizer(models.WordLevel(WORDS, unk_token="?"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    made: Any = PreTrainedTokenizerFast
    return made(tokenizer_object=words, unk_token="?", pad_token="-", model_max_length=32)


def save_text_folder(folder: Path, *, names: Sequence[str] = NAMES, **options: Any) -> Any:
    """Write model and tokenizer; return the model."""
    model = tiny_bert(names, **options)
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return model
