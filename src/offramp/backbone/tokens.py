"""What tokenizers return, as a captured network takes it."""

from typing import Any

import torch
from torch import Tensor

from offramp.backbone.hidden import Hidden
from offramp.errors import InputError

__all__ = ["TOKEN_TYPES", "check_padding", "with_token_types"]

TOKEN_TYPES = "token_type_ids"
"""The entry that says which sentence of a pair a token belongs to."""


def with_token_types(inputs: Hidden, entries: Any) -> Hidden:
    """Return inputs with `token_type_ids` where the network takes them, and without where it does not.

    Args:
        inputs: What a tokenizer returned, as a dictionary of tensors; anything else is returned as it is.
        entries: The names of the network's inputs, if it has any.

    Raises:
        InputError: If the network takes no `token_type_ids`, and they are not all 0.

    Example:
        >>> with_token_types({"input_ids": torch.tensor([[5, 6]])}, ["input_ids", TOKEN_TYPES])[TOKEN_TYPES]
        tensor([[0, 0]])
    """
    if not isinstance(inputs, dict) or not isinstance(entries, list) or "input_ids" not in inputs:
        return inputs
    if TOKEN_TYPES in entries:
        return inputs if TOKEN_TYPES in inputs else {**inputs, TOKEN_TYPES: torch.zeros_like(inputs["input_ids"])}
    if TOKEN_TYPES not in inputs:
        return inputs
    if bool((inputs[TOKEN_TYPES] != 0).any()):
        raise InputError(
            f"expected no {TOKEN_TYPES}, or zeros, got pairs of sentences, and the network was captured without "
            f"{TOKEN_TYPES}. If its forward takes them, split it with an example that holds them; if not, call the "
            "tokenizer with return_token_type_ids=False"
        )
    return {name: values for name, values in inputs.items() if name != TOKEN_TYPES}


def check_padding(mask: Tensor) -> None:
    """Refuse texts that are padded on the left: exits read the first token, and padding is cut off on the right.

    Args:
        mask: `N x T` marks of real tokens.
    """
    left = (mask[:, :1] == 0).any(1) & (mask != 0).any(1)
    if bool(left.any()):
        raise InputError(
            f"expected texts padded on the right, got {int(left.sum())} of {len(mask)} that begin with padding; set "
            'tokenizer.padding_side = "right" and tokenize again'
        )
