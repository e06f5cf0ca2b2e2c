"""Text and image classifiers of the transformers library as backbones."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from offramp.backbone._classifier import check_problem_type
from offramp.backbone._factory import Factory, check_classes, check_known, check_side, make_within_bounds
from offramp.backbone._hidden import Axes
from offramp.backbone._splitting import SplitBackbone, split
from offramp.errors import InputError, MissingExtraError, SplitRefusedError
from offramp.preprocessing import Preprocessing, text_preprocessing
from offramp.preprocessing._preprocessing import AS_IS
from offramp.preprocessing._text import TOKEN_TYPES

__all__ = ["image_backbone", "text_backbone"]

FETCHING = ("attn_implementation", "auto_map", "experts_implementation", "quantization_config", "use_kernels")
"""Entries of a configuration that may make the library fetch and run code."""

LONGEST = 512
"""Maximum number of tokens of a text, unless the tokenizer or the network has a lower limit."""

EXAMPLE_LENGTH = 8
"""Tokens of the example that a network is captured with; the length stays free."""


class MeanClassifier(nn.Module):
    """An encoder with a classifier on the mean of its last hidden states, as sentence encoders are trained.

    Args:
        encoder: A module that returns `last_hidden_state`, `N x T x C`.
        head: A module from `N x C` to `N x K` logits.
    """

    def __init__(self, encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head
        self.config: Any = encoder.config

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Return `N x K` logits for `N x T` token ids and their mask."""
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        weights = attention_mask[..., None].to(hidden.dtype)
        logits: Tensor = self.head((hidden * weights).sum(1) / weights.sum(1).clamp_min(1))
        return logits


def text_backbone(
    model: nn.Module, *, tokenizer: Any = None, longest: int | None = None, name: str | None = None
) -> SplitBackbone:
    """Split a text classifier into its embeddings and its layers.

    Inputs are lists of texts (with a tokenizer), or a tokenizer's output: a dictionary with `input_ids` and
    `attention_mask`, `N x T` each, padded on the right, and `token_type_ids` if the network distinguishes sentences of
    a pair (zeros if left out). Padding after the longest text is dropped; a text costs what its own tokens cost.

    Args:
        model: A `...ForSequenceClassification`, or an encoder inside a `MeanClassifier`.
        tokenizer: Its fast tokenizer, which is saved with the network.
        longest: Maximum number of tokens; the limit of tokenizer and network by default.
        name: Part of the fingerprint; the architecture's name by default.

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
            expected="a text classifier of the transformers library, with config.vocab_size",
            got=type(model).__name__,
            hint="use offramp.split for other networks",
        )
    check_problem_type(model)
    if getattr(config, "is_encoder_decoder", False):
        raise SplitRefusedError(
            f"{type(model).__name__} has an encoder and a decoder, and classifies only at the end of the decoder",
            hint="put its encoder into offramp.backbone.adapters.transformers.MeanClassifier with a head of its own",
        )
    pad = getattr(config, "pad_token_id", None) or 0
    ids = torch.tensor([token for token in range(2 * EXAMPLE_LENGTH + 1) if token != pad][: 2 * EXAMPLE_LENGTH])
    example = {
        "input_ids": (ids % config.vocab_size).view(2, EXAMPLE_LENGTH),
        "attention_mask": torch.ones(2, EXAMPLE_LENGTH, dtype=torch.long),
    }
    axes = {"input_ids": Axes(lengths=(1,), pad=pad), "attention_mask": Axes(lengths=(1,))}
    takes_types = TOKEN_TYPES in signature(model.forward).parameters
    if takes_types and getattr(config, "type_vocab_size", 0) > 1:
        example[TOKEN_TYPES] = torch.arange(2 * EXAMPLE_LENGTH).view(2, EXAMPLE_LENGTH) % 2
        axes[TOKEN_TYPES] = Axes(lengths=(1,))
    backbone = split(model, example, axes=axes, name=config.model_type if name is None else name)
    backbone.classes = _class_names(config, backbone.num_classes)
    if tokenizer is not None:
        limits = [getattr(tokenizer, "model_max_length", None), _num_positions(model)]
        longest = min(limit for limit in (*limits, LONGEST) if limit) if longest is None else longest
        backbone.preprocessing = text_preprocessing(tokenizer, longest=longest)
    options = {"config": _saved_config(model), "num_classes": backbone.num_classes, "name": backbone.name}
    mean = isinstance(model, MeanClassifier)
    backbone.factory = Factory("transformers", {**options, "mean": mean}, backbone.preprocessing)
    return backbone


def image_backbone(
    model: nn.Module, *, side: int, preprocessing: Preprocessing = AS_IS, name: str | None = None
) -> SplitBackbone:
    """Split an image classifier into its layers.

    Args:
        model: A `...ForImageClassification`.
        side: Pixels of its images' sides.
        preprocessing: From raw images to what the model takes, `N x 3 x side x side`.
        name: Part of the fingerprint; the architecture's name by default.
    """
    check_side(side)
    config: Any = model.config
    example = torch.randn(3, 3, side, side, generator=torch.Generator().manual_seed(0))
    example = example.to(next(model.parameters()).dtype)
    backbone = split(model, example, name=config.model_type if name is None else name)
    backbone.classes = _class_names(config, backbone.num_classes)
    backbone.preprocessing = preprocessing
    options = {"config": _saved_config(model), "num_classes": backbone.num_classes, "name": backbone.name, "side": side}
    backbone.factory = Factory("transformers_images", options, preprocessing)
    return backbone


def untrained_text_backbone(*, config: Mapping[str, Any], num_classes: int, name: str, mean: bool) -> SplitBackbone:
    """Make a text classifier without trained weights; a saved model adds its own.

    Args:
        config: The library's configuration of the network, with `model_type`.
        num_classes: K.
        name: Part of the fingerprint.
        mean: True for a `MeanClassifier` with a linear head.
    """
    library = load_library()
    sizes = _model_config(library, "text", config, num_classes)

    def mean_classifier() -> nn.Module:
        encoder = library.AutoModel.from_config(sizes)
        head = nn.Linear(sizes.hidden_size, num_classes, dtype=next(encoder.parameters()).dtype)
        return MeanClassifier(encoder, head)

    def classifier() -> nn.Module:
        network: nn.Module = library.AutoModelForSequenceClassification.from_config(sizes)
        return network

    return text_backbone(make_within_bounds(mean_classifier if mean else classifier), name=name)


def untrained_image_backbone(*, config: Mapping[str, Any], num_classes: int, name: str, side: int) -> SplitBackbone:
    """Make an image classifier without trained weights; a saved model adds its own.

    Args:
        config: The library's configuration of the network, with `model_type`.
        num_classes: K.
        name: Part of the fingerprint.
        side: Pixels of its images' sides.
    """
    library = load_library()
    sizes = _model_config(library, "image", config, num_classes)
    network = make_within_bounds(lambda: library.AutoModelForImageClassification.from_config(sizes))
    return image_backbone(network, side=side, name=name)


def load_library() -> Any:
    """Import the transformers library, untyped."""
    try:
        import transformers
    except ImportError as error:
        raise MissingExtraError(
            "networks of transformers need the library", hint="pip install 'offramp[transformers]'"
        ) from error
    return transformers


def plain_config(config: Any) -> Any:
    """Keep the entries that describe the network, at any depth; others may name code or files to fetch."""
    if isinstance(config, list | tuple):
        return [plain_config(entry) for entry in config]
    if not isinstance(config, Mapping):
        return config
    entries = {key: value for key, value in config.items() if key not in FETCHING and not str(key).startswith("_")}
    return {str(key): plain_config(value) for key, value in entries.items()}  # JSON has no numbers as keys


def _model_config(library: Any, kind: str, config: Mapping[str, Any], num_classes: int) -> Any:
    """Return the library's configuration object of a known architecture."""
    modeling_auto = library.models.auto.modeling_auto
    known = {
        "text": modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
        "image": modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
    }
    check_classes(num_classes)
    check_known(f"kind of {kind} classifier", config.get("model_type"), known[kind])
    return library.AutoConfig.for_model(**{**plain_config(config), "num_labels": num_classes})


def _saved_config(model: nn.Module) -> dict[str, Any]:
    """Return the configuration that a saved model needs, with the precision the network is really in."""
    config: Any = model.config
    precisions = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    dtype = {"dtype": str(precisions.pop()).removeprefix("torch.")} if len(precisions) == 1 else {}
    return {**plain_config(config.to_diff_dict()), **dtype}


def _class_names(config: Any, num_classes: int) -> tuple[str, ...]:
    """Return the names in `config.id2label` in the order of the outputs; empty if they are placeholders."""
    id2label = getattr(config, "id2label", None) or {}
    names = {int(number): str(name) for number, name in id2label.items()}
    ordered = tuple(names[number] for number in range(num_classes) if number in names)
    placeholders = tuple(f"LABEL_{number}" for number in range(num_classes))
    usable = len(set(ordered)) == len(names) == num_classes and ordered != placeholders and all(ordered)
    return ordered if usable else ()


def _num_positions(model: nn.Module) -> int | None:
    """Return the number of tokens that a network has positions for, without those reserved for padding (RoBERTa)."""
    positions: int | None = getattr(model.config, "max_position_embeddings", None)
    for name, module in model.named_modules():
        if positions and name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            return positions if module.padding_idx is None else positions - module.padding_idx - 1
    return positions
