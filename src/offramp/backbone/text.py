"""Texts to tokens, by a tokenizer that is data: the JSON of the tokenizers library."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any

import torch
from torch import Tensor

from offramp.backbone.attachment import Attachment
from offramp.backbone.preprocessing import Preprocessing
from offramp.backbone.raw import texts_of
from offramp.errors import InputError, MissingExtraError

__all__ = ["text_preprocessing", "tokenize"]

Length = Annotated[int, range(1, 2**17 + 1)]
"""Tokens of a text at most."""

Token = Annotated[int, range(2**24)]
"""Number of a token."""


def tokenize(
    inputs: Any, generator: torch.Generator, /, *, tokenizer: Attachment, longest: Length, pad: Token
) -> dict[str, Tensor]:
    """N texts to `N x T` token numbers and marks of real tokens; T is the longest text's, at most `longest`.

    What a tokenizer returned, a dictionary with `input_ids`, is passed on.
    """
    if isinstance(inputs, Mapping) and "input_ids" in inputs:
        return dict(inputs)
    engine, texts = parsed(tokenizer, longest), list(texts_of(inputs))
    try:
        encoded = engine.encode_batch(texts)
    except BaseException as error:
        raise _refused("cannot take these texts", error) from error
    width = max((len(one.ids) for one in encoded), default=0)
    ids = torch.full((len(encoded), max(1, width)), pad)
    mask = torch.zeros_like(ids)
    for row, one in enumerate(encoded):
        ids[row, : len(one.ids)] = torch.tensor(one.ids, dtype=torch.long)
        mask[row, : len(one.ids)] = 1
    return {"input_ids": ids, "attention_mask": mask}


def text_preprocessing(tokenizer: Any, *, longest: int) -> Preprocessing:
    """Prepare texts as a tokenizer does, saved with the network.

    Args:
        tokenizer: A fast tokenizer of the transformers library, or a `tokenizers.Tokenizer`.
        longest: Tokens of a text at most; longer texts are cut.

    Returns:
        The preparation, from a list of texts to `input_ids` and `attention_mask`.

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
            f"expected a tokenizer that can be written down as JSON (a fast one of transformers, or of tokenizers), "
            f"got {type(tokenizer).__name__}; tokenize before, and give the backbone what it takes"
        )
    pad = getattr(tokenizer, "pad_token_id", None)
    if pad is None:
        pad = (backend.padding or {}).get("pad_id", 0)
    plain = _engine().from_str(backend.to_str())
    plain.no_padding()  # both are said by the step, not by what the tokenizer was last used with
    plain.no_truncation()
    content = Attachment(plain.to_str().encode())
    prepared = Preprocessing().then("tokenize", tokenizer=content, longest=longest, pad=pad)
    prepared.check()
    return prepared


@lru_cache(maxsize=8)
def parsed(tokenizer: Attachment, longest: int) -> Any:
    """The tokenizer of an attachment, cutting texts at `longest` tokens."""
    engine = _engine()
    try:
        made = engine.from_str(tokenizer.content.decode())
        made.no_padding()  # or a file could ask for any length
        made.enable_truncation(longest)
        added = made.num_special_tokens_to_add(False)
    except BaseException as error:
        raise _refused("its JSON cannot be read", error) from error
    if added >= longest:  # the engine would then cut nothing
        raise InputError(f"expected 'longest' above {added}, the tokens this tokenizer adds to a text, got {longest}")
    return made


def _refused(what: str, error: BaseException) -> BaseException:
    """The error to raise; what the engine, written in Rust, stumbles over need not be an Exception."""
    if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
        return error
    return InputError(f"the tokenizer: {what}: {str(error)[:300]}; give text, and the tokenizer as it was saved")


def _engine() -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise MissingExtraError("texts need the tokenizers library: pip install 'offramp[text]'") from error
    return Tokenizer
