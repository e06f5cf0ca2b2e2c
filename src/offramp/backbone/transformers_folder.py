"""Backbones from a folder that `save_pretrained` of the transformers library wrote; nothing is downloaded."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from torch import nn

from offramp.backbone.split import SplitBackbone
from offramp.backbone.transformers import plain_config, text_backbone
from offramp.backbone.transformers_images import image_backbone, image_preparation
from offramp.errors import InputError, MissingExtraError, SplitRefusedError

__all__ = ["backbone_from_folder"]

MOST_BYTES = 10_000_000
"""Of a JSON file at most: configurations have some kilobytes, one with 10,000 class names half a megabyte."""

Kind = Literal["texts", "images"]


def backbone_from_folder(folder: str, *, longest: int | None = None) -> SplitBackbone:
    """Make the backbone of a classifier from a folder that `save_pretrained` wrote.

    Nothing is downloaded, and no code of the folder is run. Class names are those of `config.id2label`.

    Args:
        folder: Holds `config.json` and the weights as safetensors; of a text classifier also `tokenizer.json`, of an
            image classifier `preprocessor_config.json`.
        longest: Tokens of a text at most; as many as tokenizer and network take if left out.

    Returns:
        The backbone, with its weights, class names and preprocessing.
    """
    place = Path(folder).expanduser()
    config = _read_config(place)
    kind = _kind(place, config)
    if kind == "texts":
        tokenizer = _load_tokenizer(place)
        return text_backbone(_load_model(place, config, kind), tokenizer=tokenizer, longest=longest)
    if longest is not None:
        raise InputError(f"expected longest=... for a text classifier, {place} is an image classifier; leave it out")
    needed = place / "preprocessor_config.json"
    if not needed.is_file():
        raise InputError(
            f"expected {needed}, which says how images are prepared, got none; save it with "
            "AutoImageProcessor.from_pretrained(...).save_pretrained(folder)"
        )
    preprocessing, side = image_preparation(_read_json(needed))
    return image_backbone(_load_model(place, config, kind), side=side, preprocessing=preprocessing)


def _read_config(place: Path) -> dict[str, Any]:
    """Read config.json, once it is clear that the folder is one that can be taken."""
    how = "model.save_pretrained(folder) and tokenizer.save_pretrained(folder) write it"
    if not place.is_dir():
        raise InputError(
            f"expected a folder on this machine, found none at {place}; nothing is downloaded: {how}, for a model of "
            "the hub after from_pretrained"
        )
    if not (place / "config.json").is_file():
        if (place / "adapter_config.json").is_file():
            raise InputError(
                f"{place} holds an adapter without its model; merge them: "
                "model.merge_and_unload().save_pretrained(folder)"
            )
        raise InputError(f"expected a folder that save_pretrained wrote, found no config.json in {place}; {how}")
    config = _read_json(place / "config.json")
    if config.get("quantization_config"):
        raise SplitRefusedError(f"{place} holds quantised weights, which cannot be cut; save the model in float32")
    if not any((place / name).is_file() for name in ("model.safetensors", "model.safetensors.index.json")):
        raise InputError(
            f"expected the weights as safetensors (model.safetensors) in {place}, found none; other formats can hold "
            "code and are not read: load the model and save it again with model.save_pretrained(folder)"
        )
    return config


def _kind(place: Path, config: dict[str, Any]) -> Kind:
    """Tell text from image classifiers by the architecture that the configuration names."""
    names = config.get("architectures") or [None]
    known = _architectures()
    for kind, architectures in known.items():
        if names[0] in architectures:
            return kind
    raise InputError(
        f"expected a ...ForSequenceClassification or ...ForImageClassification of the transformers library, {place} "
        f"holds {names[0] or 'a model without a name'}; save the classifier, head included. Other networks: "
        "offramp.split(model, example) in Python; of timm: timm:NAME,weights=FILE"
    )


def _architectures() -> dict[Kind, set[str]]:
    try:
        from transformers.models.auto import modeling_auto as known
    except ImportError as error:
        raise MissingExtraError(
            "hf: folders need the transformers library: pip install 'offramp[transformers]'"
        ) from error
    names: dict[Kind, Any] = {
        "texts": known.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
        "images": known.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
    }
    found: dict[Kind, set[str]] = {"texts": set(), "images": set()}
    for kind in found:
        for entry in names[kind].values():
            found[kind].update((entry,) if isinstance(entry, str) else entry)
    return found


def _load_model(place: Path, config: dict[str, Any], kind: Kind) -> nn.Module:
    """Load the classifier; refuse one whose weights are not all in the folder."""
    import transformers

    library: Any = transformers
    maker = library.AutoModelForSequenceClassification if kind == "texts" else library.AutoModelForImageClassification
    with _quiet():
        try:
            # Only what says what the network is made of: other entries may name code or files to fetch.
            sizes = library.AutoConfig.for_model(**plain_config(config))
            model, info = maker.from_pretrained(
                str(place),
                config=sizes,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
        except Exception as error:  # whatever the library ends with
            raise InputError(
                f"{place}: the model cannot be loaded: {str(error)[:300]}; save it again with "
                "model.save_pretrained(folder)"
            ) from error
    missing = sorted({*map(str, info["missing_keys"]), *map(str, info["mismatched_keys"])})
    if missing:
        raise InputError(
            f"{place} lacks weights of {type(model).__name__}, or has them in other shapes: {', '.join(missing[:5])}"
            f"{', ...' if len(missing) > 5 else ''}; they would be random. Save the trained classifier, head included"
        )
    made: nn.Module = model
    return made


def _load_tokenizer(place: Path) -> Any:
    if not (place / "tokenizer.json").is_file():
        raise InputError(
            f"expected the tokenizer in {place} (tokenizer.json, of a fast one), found none; save it there with "
            "tokenizer.save_pretrained(folder)"
        )
    import transformers

    library: Any = transformers
    with _quiet():
        try:
            return library.AutoTokenizer.from_pretrained(str(place), local_files_only=True, trust_remote_code=False)
        except Exception as error:  # whatever the library ends with
            raise InputError(
                f"{place}: the tokenizer cannot be read: {str(error)[:300]}; save it again with "
                "tokenizer.save_pretrained(folder)"
            ) from error


def _read_json(file: Path) -> dict[str, Any]:
    try:
        if file.stat().st_size > MOST_BYTES:
            raise InputError(f"expected at most {MOST_BYTES:,} bytes in {file}, got {file.stat().st_size:,}")
        content = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{file} cannot be read as JSON: {error}; save the folder again") from error
    if not isinstance(content, dict):
        raise InputError(f"expected {file} to hold an object, got {type(content).__name__}; save the folder again")
    return content


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the library's progress bars and reports: what is wrong is told by the errors here."""
    from transformers.utils import logging

    library: Any = logging
    level, bars = library.get_verbosity(), library.is_progress_bar_enabled()
    library.set_verbosity_error()
    library.disable_progress_bar()
    try:
        yield
    finally:
        library.set_verbosity(level)
        if bars:
            library.enable_progress_bar()
