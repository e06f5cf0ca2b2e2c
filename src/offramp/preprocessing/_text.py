"""Texts to tokens, by a tokenizer that is data: the JSON of the tokenizers library."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any

import torch
from torch import Tensor

from offramp.errors import InputError, MissingExtraError
from offramp.preprocessing._preprocessing import Attachment, Preprocessing
from offramp.preprocessing._raw import check_texts

__all__ = ["TOKEN_TYPES", "check_padding", "load_tokenizer", "match_token_types", "text_preprocessing", "tokenize"]

TOKEN_TYPES = "token_type_ids"
"""The input that says which sentence of a pair a token belongs to."""

Length = Annotated[int, range(1, 2**17 + 1)]
"""Maximum number of tokens of a text."""

TokenId = Annotated[int, range(2**24)]
"""Number of a token."""


def text_preprocessing(tokenizer: Any, *, longest: int) -> Preprocessing:
    """Prepare texts with a tokenizer, which is saved with the network.

    Args:
        tokenizer: A fast tokenizer of the transformers library, or a `tokenizers.Tokenizer`.
        longest: Maximum number of tokens; longer texts are cut.

    Returns:
        The preprocessing, from a list of texts to `input_ids` and `attention_mask`.

    Example:
        >>> from tokenizers import Tokenizer, models, pre_tokenizers
        >>> words = Tokenizer(models.WordLevel({"?": 0, "good": 1, "day": 2}, unk_token="?"))
        >>> words.pre_tokenizer = pre_tokenizers.Whitespace()
        >>> text_preprocessing(words, longest=8)(["good day", "night"])["input_ids"].tolist()
        [[1, 2], [0, 0]]
    """
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not hasattr(backend, "to_str") or not hasattr(backend, "encode_batch"):
        raise InputError(
            expected="a tokenizer that can be saved as JSON (a fast one of transformers, or of tokenizers)",
            got=type(tokenizer).__name__,
            hint="tokenize before, and give the backbone what it takes",
        )
    pad = getattr(tokenizer, "pad_token_id", None)
    if pad is None:
        pad = (backend.padding or {}).get("pad_id", 0)
    plain = _tokenizer_class().from_str(backend.to_str())
    plain.no_padding()  # the step sets padding and truncation, not the tokenizer's last use
    plain.no_truncation()
    content = Attachment(plain.to_str().encode())
    prepared = Preprocessing().then("tokenize", tokenizer=content, longest=longest, pad=pad)
    prepared.check()
    return prepared


def tokenize(
    inputs: Any, _generator: torch.Generator, /, *, tokenizer: Attachment, longest: Length, pad: TokenId
) -> dict[str, Tensor]:
    """Turn N texts into `N x T` token ids and an attention mask; T is the longest text's length, at most `longest`.

    A dictionary with `input_ids`, as a tokenizer returns it, is passed on.
    """
    if isinstance(inputs, Mapping) and "input_ids" in inputs:
        return dict(inputs)
    loaded, texts = load_tokenizer(tokenizer, longest), check_texts(inputs)
    try:
        encodings = loaded.encode_batch(texts)
    except BaseException as error:
        raise _as_input_error("cannot take these texts", error) from error
    rows = [encoding.ids for encoding in encodings]
    width = max(1, *map(len, rows)) if rows else 1
    padded = [row + [pad] * (width - len(row)) for row in rows]
    ids = torch.tensor(padded, dtype=torch.long).reshape(len(rows), width)
    lengths = torch.tensor([len(row) for row in rows])
    return {"input_ids": ids, "attention_mask": (torch.arange(width) < lengths[:, None]).long()}


@lru_cache(maxsize=8)
def load_tokenizer(tokenizer: Attachment, longest: int) -> Any:
    """Load the tokenizer of an attachment, truncating texts at `longest` tokens."""
    tokenizer_class = _tokenizer_class()
    try:
        loaded = tokenizer_class.from_str(tokenizer.content.decode())
        loaded.no_padding()  # a file could ask for any length
        loaded.enable_truncation(longest)
        added = loaded.num_special_tokens_to_add(False)
    except BaseException as error:
        raise _as_input_error("its JSON cannot be read", error) from error
    if added >= longest:  # the library would then truncate nothing
        raise InputError(
            expected=f"'longest' above {added}, the number of tokens this tokenizer adds to a text", got=f"{longest}"
        )
    return loaded


def match_token_types(inputs: Any, names: Any) -> Any:
    """Add `token_type_ids` of 0 if the network takes them and they are missing; drop them if it does not.

    Args:
        inputs: A tokenizer's output as a dictionary of tensors; anything else is returned unchanged.
        names: Names of the network's inputs, if it has any.

    Raises:
        InputError: If the network takes no `token_type_ids`, and they are not all 0.
    """
    if not isinstance(inputs, dict) or not isinstance(names, list) or "input_ids" not in inputs:
        return inputs
    if TOKEN_TYPES in names:
        return inputs if TOKEN_TYPES in inputs else {**inputs, TOKEN_TYPES: torch.zeros_like(inputs["input_ids"])}
    if TOKEN_TYPES not in inputs:
        return inputs
    if bool((inputs[TOKEN_TYPES] != 0).any()):
        raise InputError(
            expected=f"no {TOKEN_TYPES}, or zeros, as the network was captured without them",
            got="pairs of sentences",
            hint="if its forward takes them, split it with an example that holds them; if not, call the tokenizer with "
            "return_token_type_ids=False",
        )
    return {name: values for name, values in inputs.items() if name != TOKEN_TYPES}


def check_padding(mask: Tensor) -> None:
    """Refuse texts padded on the left: exits read the first token, and padding is trimmed on the right.

    Args:
        mask: `N x T`, 0 for padding.
    """
    if bool(mask[:, :1].all()):
        return
    left = (mask[:, :1] == 0).any(1) & (mask != 0).any(1)
    if bool(left.any()):
        raise InputError(
            expected="texts padded on the right",
            got=f"{int(left.sum())} of {len(mask)} that begin with padding",
            hint='set tokenizer.padding_side = "right" and tokenize again',
        )


def _as_input_error(problem: str, error: BaseException) -> BaseException:
    """Wrap an error of the tokenizers library, which is written in Rust: a panic is no Exception."""
    if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
        return error
    return InputError(
        f"the tokenizer: {problem}: {str(error)[:300]}", hint="give text, and the tokenizer as it was saved"
    )


def _tokenizer_class() -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingExtraError("texts need the tokenizers library", hint="pip install 'offramp[text]'") from error
    return Tokenizer
