"""Backbones from a folder that `save_pretrained` of the transformers library wrote; nothing is downloaded."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import isclose
from pathlib import Path
from typing import Any, Literal

from torch import nn

from offramp.backbone._splitting import SplitBackbone
from offramp.backbone.adapters.transformers import image_backbone, load_library, plain_config, text_backbone
from offramp.errors import InputError, SplitRefusedError
from offramp.preprocessing import Preprocessing, photo_preprocessing

__all__ = ["backbone_from_folder", "image_processor_preprocessing"]

MOST_BYTES = 10_000_000
"""Maximum size of a JSON file; a configuration with 10,000 class names has half a megabyte."""

MODES = {2: "bilinear", 3: "bicubic"}
"""Interpolation modes by Pillow's numbers."""

UNSUPPORTED = ("LevitImageProcessor", "PoolFormerImageProcessor")
"""Processors whose `size` has another meaning than that of all others."""

CONVNEXT_SQUASH_SIDE = 384
"""Pixels from which `ConvNextImageProcessor` resizes both sides and does not crop."""

Kind = Literal["texts", "images"]


def backbone_from_folder(folder: str, *, longest: int | None = None) -> SplitBackbone:
    """Make the backbone of a classifier from a folder that `save_pretrained` wrote.

    Nothing is downloaded, and no code in the folder is run. Class names are those of `config.id2label`.

    Args:
        folder: A folder with `config.json`, weights as safetensors, and `tokenizer.json` (texts) or
            `preprocessor_config.json` (images).
        longest: Maximum number of tokens of a text; the limit of tokenizer and network by default.

    Returns:
        The backbone, with its weights, class names and preprocessing.
    """
    path = Path(folder).expanduser()
    config = _read_config(path)
    kind = _kind(path, config)
    if kind == "texts":
        tokenizer = _load_tokenizer(path)
        return text_backbone(_load_model(path, config, kind), tokenizer=tokenizer, longest=longest)
    if longest is not None:
        raise InputError(
            "longest", expected="a text classifier", got=f"an image classifier, {path}", hint="leave it out"
        )
    file = path / "preprocessor_config.json"
    if not file.is_file():
        raise InputError(
            expected=f"{file}, which describes the preprocessing of images",
            got="none",
            hint="save it with AutoImageProcessor.from_pretrained(...).save_pretrained(folder)",
        )
    preprocessing, side = image_processor_preprocessing(_read_json(file))
    return image_backbone(_load_model(path, config, kind), side=side, preprocessing=preprocessing)


def image_processor_preprocessing(content: Mapping[str, Any]) -> tuple[Preprocessing, int]:
    """Turn the content of a preprocessor_config.json into preprocessing of byte images, and their side in pixels.

    Raises:
        InputError: If the processor does what no step can do.
    """
    kind = str(content.get("image_processor_type", content.get("feature_extractor_type", ""))).removesuffix("Fast")
    try:
        if kind.replace("FeatureExtractor", "ImageProcessor") not in UNSUPPORTED:
            preparation = _image_preprocessing(content)
            if preparation is not None:
                return preparation
        cause = None
    except (TypeError, ValueError, ZeroDivisionError) as error:
        cause = error
    keys = ("image_processor_type", "size", "crop_size", "do_center_crop", "do_pad", "resample", "rescale_factor")
    raise InputError(
        expected="a preprocessor_config.json that resizes to a square, or crops one, and normalises",
        got=str({key: content[key] for key in (*keys, "image_mean", "image_std") if key in content}),
        hint="in Python: backbone = offramp.split(model, example), then set backbone.preprocessing",
    ) from cause


def _image_preprocessing(content: Mapping[str, Any]) -> tuple[Preprocessing, int] | None:
    size, crop = _side(content.get("size")), _side(content.get("crop_size"))
    steps = ("do_resize", "do_rescale", "do_normalize")
    usual = all(content.get(step, True) for step in steps) and not content.get("do_pad", False)
    mode = MODES.get(content.get("resample", 2))
    of_bytes = isclose(content.get("rescale_factor", 1 / 255), 1 / 255, rel_tol=1e-6)
    if size is None or mode is None or not usual or not of_bytes:
        return None
    side, squash = size
    resized = side
    if content.get("do_center_crop", False):
        if crop is None or not crop[1] or crop[0] > side:
            return None
        side = crop[0]
    elif not squash and "crop_pct" in content:  # ConvNeXt: `size` is that of the crop
        squash = side >= CONVNEXT_SQUASH_SIDE
        resized = side if squash else int(side / content["crop_pct"])
    elif not squash:
        return None  # images of several shapes do not form a batch
    mean, std = content.get("image_mean"), content.get("image_std")
    if not isinstance(mean, list | tuple) or not isinstance(std, list | tuple):
        return None
    return photo_preprocessing(side, resized=resized, mode=mode, mean=mean, std=std, squash=squash), side


def _side(value: Any) -> tuple[int, bool] | None:
    """Return the pixels of a side, and True if both sides have as many; None if a size is not square."""
    if type(value) is int:
        return value, True
    if not isinstance(value, Mapping):
        return None
    sides = [value.get(key) for key in ("height", "width")]
    if type(sides[0]) is int and sides[0] == sides[1]:
        return sides[0], True
    shortest = value.get("shortest_edge")
    return (shortest, False) if type(shortest) is int and len(value) == 1 else None


def _read_config(path: Path) -> dict[str, Any]:
    """Read config.json, after a check that the folder holds a complete model."""
    hint = "model.save_pretrained(folder) and tokenizer.save_pretrained(folder) write it"
    if not path.is_dir():
        raise InputError(
            expected="a folder on this machine", got=f"none at {path}, and nothing is downloaded", hint=hint
        )
    if not (path / "config.json").is_file():
        if (path / "adapter_config.json").is_file():
            raise InputError(
                f"{path} holds an adapter without its model",
                hint="merge them: model.merge_and_unload().save_pretrained(folder)",
            )
        raise InputError(expected="a folder that save_pretrained wrote", got=f"no config.json in {path}", hint=hint)
    config = _read_json(path / "config.json")
    if config.get("quantization_config"):
        raise SplitRefusedError(
            f"{path} holds quantised weights, which cannot be split", hint="save the model in float32"
        )
    if not any((path / name).is_file() for name in ("model.safetensors", "model.safetensors.index.json")):
        raise InputError(
            expected=f"the weights as safetensors (model.safetensors) in {path}",
            got="none; other formats can hold code and are not read",
            hint="load the model and save it again with model.save_pretrained(folder)",
        )
    return config


def _kind(path: Path, config: dict[str, Any]) -> Kind:
    """Tell text from image classifiers by the architecture that the configuration names."""
    names = config.get("architectures") or [None]
    modeling_auto = load_library().models.auto.modeling_auto
    known: dict[Kind, Any] = {
        "texts": modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
        "images": modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
    }
    for kind, architectures in known.items():
        for entry in architectures.values():
            if names[0] in ((entry,) if isinstance(entry, str) else entry):
                return kind
    raise InputError(
        f"{path}",
        expected="a ...ForSequenceClassification or ...ForImageClassification of the transformers library",
        got=f"{names[0] or 'a model without a name'}",
        hint="save the classifier with its head; for other networks use offramp.split(model, example) in Python, for "
        "those of timm timm:NAME,weights=FILE",
    )


def _load_model(path: Path, config: dict[str, Any], kind: Kind) -> nn.Module:
    """Load the classifier; refuse one whose weights are not all in the folder."""
    library = load_library()
    maker = library.AutoModelForSequenceClassification if kind == "texts" else library.AutoModelForImageClassification
    with _silence_library():
        try:
            sizes = library.AutoConfig.for_model(**plain_config(config))
            model, info = maker.from_pretrained(
                str(path),
                config=sizes,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                output_loading_info=True,
            )
        except ImportError as error:
            raise InputError(
                f"transformers cannot import the classes of {path}: {_root_cause(error)}",
                hint="the folder is not at fault: mend that package, such as a torchvision that does not fit torch, "
                "or uninstall it",
            ) from error
        except Exception as error:  # the library may raise anything
            raise InputError(
                f"{path}: the model cannot be loaded: {str(error)[:300]}",
                hint="save it again with model.save_pretrained(folder)",
            ) from error
    missing = sorted({*map(str, info["missing_keys"]), *map(str, info["mismatched_keys"])})
    if missing:
        raise InputError(
            f"{path}",
            expected=f"all weights of {type(model).__name__}",
            got=f"none, or other shapes, of {', '.join(missing[:5])}{', ...' if len(missing) > 5 else ''}, which would "
            "be random",
            hint="save the trained classifier with its head",
        )
    network: nn.Module = model
    return network


def _root_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error)[:300]


def _load_tokenizer(path: Path) -> Any:
    if not (path / "tokenizer.json").is_file():
        raise InputError(
            expected=f"a fast tokenizer in {path} (tokenizer.json)",
            got="none",
            hint="save it there with tokenizer.save_pretrained(folder)",
        )
    with _silence_library():
        try:
            return load_library().AutoTokenizer.from_pretrained(
                str(path), local_files_only=True, trust_remote_code=False
            )
        except Exception as error:  # the library may raise anything
            raise InputError(
                f"{path}: the tokenizer cannot be read: {str(error)[:300]}",
                hint="save it again with tokenizer.save_pretrained(folder)",
            ) from error


def _read_json(file: Path) -> dict[str, Any]:
    hint = "save the folder again"
    try:
        size = file.stat().st_size
        content = json.loads(file.read_text("utf-8")) if size <= MOST_BYTES else None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file} cannot be read as JSON: {error}", hint=hint) from error
    if size > MOST_BYTES:
        raise InputError(f"{file}", expected=f"at most {MOST_BYTES:,} bytes", got=f"{size:,}", hint=hint)
    if not isinstance(content, dict):
        raise InputError(f"{file}", expected="a JSON object", got=type(content).__name__, hint=hint)
    return content


@contextmanager
def _silence_library() -> Iterator[None]:
    """Silence the library's progress bars and reports; errors are raised here."""
    logging = load_library().utils.logging
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
