"""Backbones made by name: registered functions, `package.module:function`, and networks of other libraries."""

import json
import re
import reprlib
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from inspect import signature
from pathlib import Path
from typing import Any

from offramp._registry import Registry, import_trusted
from offramp.backbone._backbone import Backbone
from offramp.backbone._factory import Factory, count_towards_bounds, share_bounds, within_bounds
from offramp.backbone.adapters._llm import KEY_VARIABLE
from offramp.errors import InputError, MissingExtraError, SplitRefusedError, UntrustedNameError

__all__ = [
    "BACKBONES",
    "LIBRARIES",
    "build",
    "is_library_name",
    "make_backbone",
    "make_from_library",
    "name_to_trust",
    "parse_spec",
]

BACKBONES: Registry[Callable[..., Backbone]] = Registry("backbone")
"""Functions that make a backbone without trained weights; a saved model adds its own."""
BACKBONES.add("callable_model", "offramp.backbone.adapters._callable:callable_model")
BACKBONES.add("cascade", "offramp.backbone._cascading:cascade")
BACKBONES.add("cifar_resnet", "offramp.backbone._cifar_resnet:CifarResNet")
BACKBONES.add("encoder", "offramp.backbone.adapters._callable:encoder")
BACKBONES.add("llm", "offramp.backbone.adapters._llm:llm")
BACKBONES.add("merged", "offramp.backbone._merging:merge")
BACKBONES.add("timm", "offramp.backbone.adapters.timm:untrained_timm_backbone")
BACKBONES.add("torchvision", "offramp.backbone.adapters.torchvision:untrained_torchvision_backbone")
BACKBONES.add("transformers", "offramp.backbone.adapters.transformers:untrained_text_backbone")
BACKBONES.add("transformers_images", "offramp.backbone.adapters.transformers:untrained_image_backbone")

LIBRARIES: Registry[Callable[..., Backbone]] = Registry("library")
"""Functions that make a backbone with trained weights from a folder or a name, and options."""
LIBRARIES.add("hf", "offramp.backbone.adapters._transformers_folder:backbone_from_folder")
LIBRARIES.add("timm", "offramp.backbone.adapters.timm:pretrained_timm_backbone")
LIBRARIES.add("torchvision", "offramp.backbone.adapters.torchvision:pretrained_torchvision_backbone")

MOST_NETWORKS = 16
"""Maximum number of members of a cascade that a file asks for."""

_CONSTANTS = {"True": True, "False": False, "None": None}
"""Constants in Python's spelling; JSON's are understood too."""


def build(factory: Factory, *, trust: Collection[str] = ()) -> Backbone:
    """Make the backbone that a factory describes.

    Args:
        factory: The recipe.
        trust: Names `package.module:function` that may be imported and called; registered names need none.

    Example:
        >>> build(Factory("cifar_resnet", {"layers": 8})).name
        'cifar-resnet-8'
    """
    trust = (trust,) if isinstance(trust, str) else trust  # or parts of the string would be trusted too
    if factory.size > MOST_NETWORKS:
        raise InputError(expected=f"a cascade of at most {MOST_NETWORKS} networks", got=f"{factory.size}")
    with share_bounds():
        return _build(factory, trust)


def _build(factory: Factory, trust: Collection[str]) -> Backbone:
    if factory.members:
        if factory.name not in ("cascade", "merged") or (factory.name == "merged" and len(factory.members) > 1):
            raise InputError(
                expected="a 'cascade', or one network 'merged'", got=f"'{factory.name}' of {len(factory.members)}"
            )
        return _call(BACKBONES.get(factory.name), factory, *(_build(member, trust) for member in factory.members))
    needed = name_to_trust(factory.name, factory.options)
    if needed is not None and needed not in trust:
        danger = f"inputs and your key would be sent to '{needed}'" if factory.name == "llm" else ""
        raise UntrustedNameError(
            danger or f"'{needed}' is third-party code",
            hint=f"to allow it, pass trust=['{needed}'], or give the network yourself with backbone=...",
        )
    registered = ":" not in factory.name  # code that the caller trusts may use any amount of memory
    is_class = registered and isinstance(BACKBONES.get(factory.name), type)  # adapters bound what they make themselves
    with within_bounds() if is_class else nullcontext():
        backbone = make_backbone(factory.name, factory.options)
    if registered:
        count_towards_bounds(backbone)
    backbone.preprocessing = factory.preprocessing
    return backbone


def name_to_trust(name: str, options: Mapping[str, Any]) -> str | None:
    """Return what the caller must trust before a factory of a file is used, if anything.

    Args:
        name: Name of the factory.
        options: Its options.

    Returns:
        Third-party code `package.module:function`, or the address that a language model sends inputs to ("openai": the
        client's own), with the variable of the key unless it is the usual one.

    Example:
        >>> name_to_trust("llm", {"base_url": "http://127.0.0.1:8000/v1"}), name_to_trust("cifar_resnet", {})
        ('http://127.0.0.1:8000/v1', None)
    """
    if ":" in name:
        return name
    if name == "llm":
        variable = options.get("key_variable", KEY_VARIABLE)
        return str(options.get("base_url") or "openai") + ("" if variable == KEY_VARIABLE else f" with {variable}")
    value = options.get("function") if name in ("callable_model", "encoder") else None
    return None if value is None else str(value)


def make_backbone(name: str, options: Mapping[str, Any]) -> Backbone:
    """Make a backbone by name, without a check of trust, and record its factory.

    Args:
        name: A registered name, `package.module:function`, or `hf:FOLDER`, `timm:NAME`, `torchvision:NAME`.
        options: Keyword arguments.

    Example:
        >>> make_backbone("cifar_resnet", {"layers": 8}).factory.name
        'cifar_resnet'
    """
    if is_library_name(name):
        return make_from_library(name, options)
    if ":" in name:
        make = import_trusted(name, (name,))
    elif name not in BACKBONES and Path(name).is_dir():
        raise InputError(
            expected="the name of a network",
            got=f"the folder '{name}'",
            hint=f"if save_pretrained wrote it, give hf:{name}",
        )
    else:
        make = BACKBONES.get(name)
    backbone = _call(make, Factory(name, options))
    if backbone.factory is None:
        backbone.factory = Factory(name, options, backbone.preprocessing)
    return backbone


def _call(make: Callable[..., Any], factory: Factory, *members: Backbone) -> Backbone:
    try:
        backbone = make(*members, **factory.options)
    except (MissingExtraError, SplitRefusedError):  # these need no further explanation
        raise
    except Exception as error:  # of any kind: third-party code, or ours with options from a file
        options = reprlib.repr(dict(factory.options))
        raise InputError(f"'{factory.name}' cannot make a backbone with {options}: {error}") from error
    if not isinstance(backbone, Backbone):
        raise InputError(
            expected=f"a backbone from '{factory.name}'",
            got=type(backbone).__name__,
            hint="let it end with `return offramp.split(model, example)`",
        )
    return backbone


def parse_spec(spec: str) -> tuple[str, dict[str, Any]]:
    """Split a command-line spec into a name and options; values are JSON, or else strings.

    Example:
        >>> parse_spec("models:make,depth=12,task=clinc150,widths=[8,16]")
        ('models:make', {'depth': 12, 'task': 'clinc150', 'widths': [8, 16]})
    """
    name, *pairs = re.split(r",(?=\s*[A-Za-z_]\w*=)", spec)
    options = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        try:
            options[key.strip()] = _CONSTANTS[value] if value in _CONSTANTS else json.loads(value)
        except ValueError:
            options[key.strip()] = value
    if "," in name or not name.strip():
        raise InputError(
            expected="package:function, hf:FOLDER, timm:NAME, torchvision:NAME or a registered name, then KEY=VALUE "
            "after commas",
            got=f"'{spec}'",
        )
    return name.strip(), options


def is_library_name(name: str) -> bool:
    """Return True for names such as `hf:./my-model`; False for `package:function` and registered names."""
    library, colon, _ = name.partition(":")
    return bool(colon) and library in LIBRARIES


def make_from_library(name: str, options: Mapping[str, Any]) -> Backbone:
    """Make a backbone with trained weights from files on this machine; nothing is downloaded.

    Args:
        name: `hf:FOLDER`, `timm:NAME` or `torchvision:NAME`.
        options: Keyword arguments of the library's function.

    Raises:
        InputError: If the files are missing, or are not what the library writes.
        MissingExtraError: If the library is not installed.
    """
    library, _, place = name.partition(":")
    make = LIBRARIES.get(library)
    parameters = list(signature(make).parameters.values())[1:]
    unknown = [key for key in options if key not in {parameter.name for parameter in parameters}]
    needed = [parameter.name for parameter in parameters if parameter.default is parameter.empty]
    missing = [key for key in needed if key not in options]
    if unknown or missing or not place:
        accepted = ", ".join(f"{parameter.name}=..." for parameter in parameters)
        raise InputError(
            expected=f"{library}:{'FOLDER' if library == 'hf' else 'NAME'}, and after commas any of the options "
            f"{accepted}",
            got=f"'{name}'"
            + "".join(f" with {key}={options[key]}" for key in unknown)
            + "".join(f" without {key}=..." for key in missing),
        )
    return make(place, **options)
