"""Text encoders of the transformers library (the BERT family) as trunks: the embeddings, then one stage a layer."""

from typing import Any

import torch
from torch import Tensor, nn

from offramp.errors import InputError, SplitRefusedError
from offramp.trunk.hidden import Axes
from offramp.trunk.split import SplitTrunk, split
from offramp.trunk.task import check_problem

__all__ = ["MeanClassifier", "text_trunk"]

EXAMPLE_LENGTH = 8
"""Tokens of the example a network is captured with; its length stays free."""


class MeanClassifier(nn.Module):
    """An encoder with a classifier on the mean of its last hidden states: how sentence encoders are tuned.

    Args:
        encoder: Gives `last_hidden_state`, `N x T x C`.
        head: `N x C` to `N x K` logits.
    """

    def __init__(self, encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head
        self.config: Any = encoder.config

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Class scores of texts: `N x T` token ids and `N x T` marks of real tokens to `N x K`."""
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weights = attention_mask[..., None].to(hidden.dtype)
        logits: Tensor = self.head((hidden * weights).sum(1) / weights.sum(1).clamp_min(1))
        return logits


def text_trunk(model: nn.Module, *, name: str | None = None) -> SplitTrunk:
    """Cut a text classifier into its embeddings and its layers.

    Inputs are dictionaries with `input_ids` and `attention_mask`, `N x T` each, padded on the right, as tokenizers give
    them when called with `return_token_type_ids=False`. Columns behind the longest text are dropped; a text costs what
    its own tokens cost.

    Args:
        model: A `...ForSequenceClassification`, or an encoder inside a `MeanClassifier`.
        name: Part of the fingerprint; the architecture's name if left out.

    Returns:
        The trunk.

    Example:
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> sizes = dict(hidden_size=32, num_hidden_layers=4, num_attention_heads=2, intermediate_size=64)
        >>> model = BertForSequenceClassification(BertConfig(**sizes, vocab_size=50, num_labels=3))
        >>> text_trunk(model).num_exits  # the embeddings and four layers
        5
    """
    config = getattr(model, "config", None)
    if config is None or not hasattr(config, "vocab_size"):
        raise InputError(
            f"expected a text classifier of the transformers library, got {type(model).__name__}, which has no "
            "config.vocab_size; use offramp.split for other networks"
        )
    check_problem(model)
    if getattr(config, "is_encoder_decoder", False):
        raise SplitRefusedError(
            f"{type(model).__name__} has an encoder and a decoder, and answers at the end of the decoder alone; put "
            "its encoder into offramp.trunk.transformers.MeanClassifier with a head of its own"
        )
    pad = getattr(config, "pad_token_id", None) or 0
    ids = torch.tensor([token for token in range(2 * EXAMPLE_LENGTH + 1) if token != pad][: 2 * EXAMPLE_LENGTH])
    example = {
        "input_ids": (ids % config.vocab_size).view(2, EXAMPLE_LENGTH),
        "attention_mask": torch.ones(2, EXAMPLE_LENGTH, dtype=torch.long),
    }
    axes = {"input_ids": Axes(lengths=(1,), pad=pad), "attention_mask": Axes(lengths=(1,))}
    return split(model, example, axes=axes, name=config.model_type if name is None else name)
