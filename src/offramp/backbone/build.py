"""Backbones by name."""

import reprlib
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from offramp.backbone.backbone import Backbone
from offramp.backbone.factory import Factory, count_towards_bounds, shared_bounds, within_bounds
from offramp.backbone.spec import is_library_name, make_from_library
from offramp.errors import InputError, MissingExtraError, SplitRefusedError, UntrustedNameError
from offramp.registry import Registry, import_trusted

__all__ = ["BACKBONES", "build", "make_backbone"]

BACKBONES: Registry[Callable[..., Backbone]] = Registry("backbone")
BACKBONES.add("cascade", "offramp.backbone.cascade:cascade")
BACKBONES.add("cifar_resnet", "offramp.backbone.cifar_resnet:CifarResNet")
BACKBONES.add("merged", "offramp.backbone.merged:merge")
BACKBONES.add("timm", "offramp.backbone.timm:timm_by_name")
BACKBONES.add("torchvision", "offramp.backbone.torchvision:torchvision_by_name")
BACKBONES.add("transformers", "offramp.backbone.transformers:text_by_config")
BACKBONES.add("transformers_images", "offramp.backbone.transformers_images:image_by_config")

MOST_NETWORKS = 16
"""In a cascade; a file must not ask for any amount of memory."""


def build(factory: Factory, *, trust: Collection[str] = ()) -> Backbone:
    """Make a backbone.

    Args:
        factory: What to make it with.
        trust: Names `package.module:function` that may be imported and called; registered names need none.

    Returns:
        The backbone.

    Example:
        >>> build(Factory("cifar_resnet", {"layers": 8})).name
        'cifar-resnet-8'
    """
    trust = (trust,) if isinstance(trust, str) else trust  # or parts of the text would be trusted too
    if factory.size > MOST_NETWORKS:
        raise InputError(f"expected a cascade of at most {MOST_NETWORKS} networks, got {factory.size}")
    with shared_bounds():
        return _build(factory, trust)


def _build(factory: Factory, trust: Collection[str]) -> Backbone:
    if factory.members:
        if factory.name not in ("cascade", "merged") or (factory.name == "merged" and len(factory.members) > 1):
            raise InputError(
                f"expected a 'cascade', or one network 'merged', got '{factory.name}' of {len(factory.members)}"
            )
        return _call(BACKBONES.get(factory.name), factory, *(_build(member, trust) for member in factory.members))
    if ":" in factory.name and factory.name not in trust:
        raise UntrustedNameError(
            f"'{factory.name}' is code of somebody's; if you know it, allow it with trust=['{factory.name}'], or give "
            "the network yourself with backbone=..."
        )
    registered = ":" not in factory.name  # else the caller trusts it with any amount of memory
    own = registered and isinstance(BACKBONES.get(factory.name), type)  # adapters of libraries bound what they make
    with within_bounds() if own else nullcontext():
        made = make_backbone(factory.name, factory.options)
    if registered:
        count_towards_bounds(made)
    made.preprocessing = factory.preprocessing
    return made


def make_backbone(name: str, options: Mapping[str, Any]) -> Backbone:
    """Make a backbone by name, whosever code that is; the backbone knows what it was made with.

    Args:
        name: A registered name, `package.module:function`, or `hf:FOLDER`, `timm:NAME`, `torchvision:NAME`.
        options: What to call it with.

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
            f"expected the name of a network, got the folder '{name}'; if save_pretrained wrote it, give hf:{name}"
        )
    else:
        make = BACKBONES.get(name)
    made = _call(make, Factory(name, options))
    if made.factory is None:
        made.factory = Factory(name, options, made.preprocessing)
    return made


def _call(make: Callable[..., Any], factory: Factory, *members: Backbone) -> Backbone:
    try:
        made = make(*members, **factory.options)
    except (MissingExtraError, SplitRefusedError):  # they say all there is to say
        raise
    except Exception as error:  # whatever somebody's code, or ours with somebody's options, ends with
        options = reprlib.repr(dict(factory.options))
        raise InputError(f"'{factory.name}' cannot make a backbone with {options}: {error}") from error
    if not isinstance(made, Backbone):
        raise InputError(
            f"expected '{factory.name}' to give a backbone, got {type(made).__name__}; let it end with `return "
            "offramp.split(model, example)`"
        )
    return made
