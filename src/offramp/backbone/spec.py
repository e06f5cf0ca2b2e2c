"""Networks of libraries by one line of text: `hf:FOLDER`, `timm:NAME`, `torchvision:NAME`."""

import json
import re
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

from offramp.backbone.backbone import Backbone
from offramp.errors import InputError
from offramp.registry import Registry

__all__ = ["LIBRARIES", "is_library_name", "make_from_library", "parse_spec"]

LIBRARIES: Registry[Callable[..., Backbone]] = Registry("library")
"""Functions from what stands after the colon, and options, to a backbone with its trained weights."""
LIBRARIES.add("hf", "offramp.backbone.transformers_folder:backbone_from_folder")
LIBRARIES.add("timm", "offramp.backbone.timm:pretrained_timm_backbone")
LIBRARIES.add("torchvision", "offramp.backbone.torchvision:pretrained_torchvision_backbone")

_WORDS = {"True": True, "False": False, "None": None}
"""Python's names of constants; JSON's own are understood too."""


def parse_spec(spec: str) -> tuple[str, dict[str, Any]]:
    """Split a spec into a name and its options: numbers and lists as JSON writes them, anything else a text.

    Example:
        >>> parse_spec("models:make,depth=12,task=clinc150,widths=[8,16]")
        ('models:make', {'depth': 12, 'task': 'clinc150', 'widths': [8, 16]})
    """
    name, *pairs = re.split(r",(?=\s*[A-Za-z_]\w*=)", spec)
    options = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        try:
            options[key.strip()] = _WORDS[value] if value in _WORDS else json.loads(value)
        except ValueError:
            options[key.strip()] = value
    if "," in name or not name.strip():
        raise InputError(
            f"expected package:function, hf:FOLDER, timm:NAME, torchvision:NAME or a registered name, then KEY=VALUE "
            f"after commas, got '{spec}'"
        )
    return name.strip(), options


def is_library_name(name: str) -> bool:
    """Tell `hf:./my-model` from `package:function` and from registered names.

    Example:
        >>> is_library_name("hf:./my-model"), is_library_name("models:make"), is_library_name("timm")
        (True, False, False)
    """
    library, colon, _ = name.partition(":")
    return bool(colon) and library in LIBRARIES


def make_from_library(name: str, options: Mapping[str, Any]) -> Backbone:
    """Make a backbone with trained weights from a library's files on this machine; nothing is downloaded.

    Args:
        name: `hf:FOLDER`, `timm:NAME` or `torchvision:NAME`.
        options: Keyword arguments of the library's function.

    Raises:
        InputError: The files are not there, or are not what the library writes; the message says what to do.
        MissingExtraError: The library is not installed.
    """
    library, _, place = name.partition(":")
    make = LIBRARIES.get(library)
    parameters = list(signature(make).parameters.values())[1:]
    unknown = [key for key in options if key not in {parameter.name for parameter in parameters}]
    needed = [parameter.name for parameter in parameters if parameter.default is parameter.empty]
    missing = [key for key in needed if key not in options]
    if unknown or missing or not place:
        raise InputError(
            f"expected {library}:{'FOLDER' if library == 'hf' else 'NAME'}, and after commas any of the options "
            f"{', '.join(f'{parameter.name}=...' for parameter in parameters)}; got '{name}'"
            + "".join(f" with {key}={options[key]}" for key in unknown)
            + "".join(f" without {key}=..." for key in missing)
        )
    return make(place, **options)
