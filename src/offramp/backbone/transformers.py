"""Text encoders of the transformers library (the BERT family) as backbones: the embeddings, then one stage a layer."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from offramp.backbone.factory import Factory, check_classes, check_named, made_within_bounds
from offramp.backbone.hidden import Axes
from offramp.backbone.split import SplitBackbone, split
from offramp.backbone.task import check_problem
from offramp.backbone.text import text_preprocessing
from offramp.backbone.tokens import TOKEN_TYPES
from offramp.errors import InputError, MissingExtraError, SplitRefusedError

__all__ = ["MeanClassifier", "text_backbone", "text_by_config"]

FETCHING = ("attn_implementation", "auto_map", "experts_implementation", "quantization_config", "use_kernels")
"""Entries of a configuration that the library may look up elsewhere, and run."""

LONGEST = 512
"""Tokens of a text at most, where neither tokenizer nor network says less."""

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


def text_backbone(
    model: nn.Module, *, tokenizer: Any = None, longest: int | None = None, name: str | None = None
) -> SplitBackbone:
    """Cut a text classifier into its embeddings and its layers.

    With a tokenizer, inputs are lists of texts, or what a tokenizer returns; without, what a tokenizer returns: a
    dictionary with `input_ids` and `attention_mask`, `N x T` each, padded on the right, and `token_type_ids` where the
    network tells sentences of a pair apart (zeros if left out). Columns behind the longest text are dropped; a text
    costs what its own tokens cost.

    Args:
        model: A `...ForSequenceClassification`, or an encoder inside a `MeanClassifier`.
        tokenizer: Its tokenizer, a fast one; it is saved with the network.
        longest: Tokens of a text at most; as many as tokenizer and network take if left out.
        name: Part of the fingerprint; the architecture's name if left out.

    Returns:
        The backbone.

    Example:
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> sizes = dict(hidden_size=32, num_hidden_layers=4, num_attention_heads=2, intermediate_size=64)
        >>> model = BertForSequenceClassification(BertConfig(**sizes, vocab_size=50, num_labels=3))
        >>> text_backbone(model).num_exits  # the embeddings and four layers
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
            "its encoder into offramp.backbone.transformers.MeanClassifier with a head of its own"
        )
    pad = getattr(config, "pad_token_id", None) or 0
    ids = torch.tensor([token for token in range(2 * EXAMPLE_LENGTH + 1) if token != pad][: 2 * EXAMPLE_LENGTH])
    example = {
        "input_ids": (ids % config.vocab_size).view(2, EXAMPLE_LENGTH),
        "attention_mask": torch.ones(2, EXAMPLE_LENGTH, dtype=torch.long),
    }
    axes = {"input_ids": Axes(lengths=(1,), pad=pad), "attention_mask": Axes(lengths=(1,))}
    takes_types = TOKEN_TYPES in signature(model.forward).parameters
    if takes_types and getattr(config, "type_vocab_size", 0) > 1:  # else there is nothing to tell apart
        example[TOKEN_TYPES] = torch.arange(2 * EXAMPLE_LENGTH).view(2, EXAMPLE_LENGTH) % 2
        axes[TOKEN_TYPES] = Axes(lengths=(1,))
    backbone = split(model, example, axes=axes, name=config.model_type if name is None else name)
    backbone.classes = class_names(config, backbone.num_classes)
    if tokenizer is not None:
        limits = [getattr(tokenizer, "model_max_length", None), _places(model)]
        longest = min(limit for limit in (*limits, LONGEST) if limit) if longest is None else longest
        backbone.preprocessing = text_preprocessing(tokenizer, longest=longest)
    options = {"config": extract_config(model), "num_classes": backbone.num_classes, "name": backbone.name}
    mean = isinstance(model, MeanClassifier)
    backbone.factory = Factory("transformers", {**options, "mean": mean}, backbone.preprocessing)
    return backbone


def text_by_config(*, config: Mapping[str, Any], num_classes: int, name: str, mean: bool) -> SplitBackbone:
    """A text classifier as the library makes it, without trained weights: a saved frontier puts its own into it.

    Args:
        config: The network's sizes as the library's configuration holds them, `model_type` among them.
        num_classes: K.
        name: Part of the fingerprint.
        mean: Whether it is a `MeanClassifier`, with a linear head.
    """
    try:
        from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification
        from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES as KNOWN
    except ImportError as error:
        raise MissingExtraError("text networks need the library: pip install 'offramp[transformers]'") from error
    check_classes(num_classes)
    check_named("kind of text classifier", config.get("model_type"), KNOWN)
    makers: tuple[Any, Any] = AutoModel, AutoModelForSequenceClassification  # untyped
    sizes = AutoConfig.for_model(**{**plain_config(config), "num_labels": num_classes})

    def mean_classifier() -> nn.Module:
        encoder = makers[0].from_config(sizes)
        head = nn.Linear(sizes.hidden_size, num_classes, dtype=next(encoder.parameters()).dtype)
        return MeanClassifier(encoder, head)

    return text_backbone(
        made_within_bounds(mean_classifier if mean else lambda: makers[1].from_config(sizes)), name=name
    )


def class_names(config: Any, num_classes: int) -> tuple[str, ...]:
    """Return the names in `config.id2label`, in the order of the outputs; none where they are only placeholders.

    Args:
        config: A configuration of the transformers library.
        num_classes: K; a mapping of another size says nothing.

    Example:
        >>> from types import SimpleNamespace
        >>> class_names(SimpleNamespace(id2label={1: "dog", 0: "cat"}), 2)
        ('cat', 'dog')
        >>> class_names(SimpleNamespace(id2label={0: "LABEL_0", 1: "LABEL_1"}), 2)
        ()
    """
    found = getattr(config, "id2label", None) or {}
    names = {int(number): str(name) for number, name in found.items()}
    ordered = tuple(names[number] for number in range(num_classes) if number in names)
    placeholders = tuple(f"LABEL_{number}" for number in range(num_classes))
    usable = len(set(ordered)) == len(names) == num_classes and ordered != placeholders and all(ordered)
    return ordered if usable else ()


def extract_config(model: nn.Module) -> dict[str, Any]:
    """Return what a saved frontier needs of a model's configuration to make it again, in the model's precision."""
    config: Any = model.config
    plain: dict[str, Any] = plain_config(config.to_diff_dict())
    return {**plain, **_precision(model)}


def _places(model: nn.Module) -> int | None:
    """Tokens that a network has places for; where padding has some of its own (RoBERTa), the rest."""
    places: int | None = getattr(model.config, "max_position_embeddings", None)
    for name, part in model.named_modules():
        if places and name.endswith("position_embeddings") and isinstance(part, nn.Embedding):
            return places if part.padding_idx is None else places - part.padding_idx - 1
    return places


def _precision(model: nn.Module) -> dict[str, str]:
    """The precision a network is in, whatever its configuration says: what it computes is captured with it."""
    found = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    return {"dtype": str(found.pop()).removeprefix("torch.")} if len(found) == 1 else {}


def plain_config(config: Any) -> Any:
    """Keep the entries that say what a network is made of, at any depth; others may name code or files to fetch."""
    if isinstance(config, list | tuple):
        return [plain_config(one) for one in config]
    if not isinstance(config, Mapping):
        return config
    kept = {key: value for key, value in config.items() if key not in FETCHING and not str(key).startswith("_")}
    return {str(key): plain_config(value) for key, value in kept.items()}  # as JSON has them: id2label's are numbers
