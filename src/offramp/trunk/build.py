"""Trunks by name."""

import reprlib
from collections.abc import Callable, Collection, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from offramp.errors import InputError, MissingExtraError, SplitRefusedError, UntrustedNameError
from offramp.registry import Registry, import_trusted
from offramp.trunk.factory import Factory, count_towards_bounds, shared_bounds, within_bounds
from offramp.trunk.spec import is_library_name, make_from_library
from offramp.trunk.trunk import Trunk

__all__ = ["TRUNKS", "build", "make_trunk"]

TRUNKS: Registry[Callable[..., Trunk]] = Registry("trunk")
TRUNKS.add("chain", "offramp.trunk.chain:chain")
TRUNKS.add("cifar_resnet", "offramp.trunk.cifar_resnet:CifarResNet")
TRUNKS.add("merged", "offramp.trunk.merged:merge")
TRUNKS.add("timm", "offramp.trunk.timm:timm_by_name")
TRUNKS.add("torchvision", "offramp.trunk.torchvision:torchvision_by_name")
TRUNKS.add("transformers", "offramp.trunk.transformers:text_by_config")
TRUNKS.add("transformers_images", "offramp.trunk.transformers_images:image_by_config")

MOST_NETWORKS = 16
"""In a chain; a file must not ask for any amount of memory."""


def build(factory: Factory, *, trust: Collection[str] = ()) -> Trunk:
    """Make a trunk.

    Args:
        factory: What to make it with.
        trust: Names `package.module:function` that may be imported and called; registered names need none.

    Returns:
        The trunk.

    Example:
        >>> build(Factory("cifar_resnet", {"layers": 8})).name
        'cifar-resnet-8'
    """
    trust = (trust,) if isinstance(trust, str) else trust  # or parts of the text would be trusted too
    if factory.size > MOST_NETWORKS:
        raise InputError(f"expected a chain of at most {MOST_NETWORKS} networks, got {factory.size}")
    with shared_bounds():
        return _build(factory, trust)


def _build(factory: Factory, trust: Collection[str]) -> Trunk:
    if factory.links:
        if factory.name not in ("chain", "merged") or (factory.name == "merged" and len(factory.links) > 1):
            raise InputError(
                f"expected a 'chain', or one network 'merged', got '{factory.name}' of {len(factory.links)}"
            )
        return _call(TRUNKS.get(factory.name), factory, *(_build(link, trust) for link in factory.links))
    if ":" in factory.name and factory.name not in trust:
        raise UntrustedNameError(
            f"'{factory.name}' is code of somebody's; if you know it, allow it with trust=['{factory.name}'], or give "
            "the network yourself with trunk=..."
        )
    registered = ":" not in factory.name  # else the caller trusts it with any amount of memory
    own = registered and isinstance(TRUNKS.get(factory.name), type)  # adapters of libraries bound what they make
    with within_bounds() if own else nullcontext():
        made = make_trunk(factory.name, factory.options)
    if registered:
        count_towards_bounds(made)
    made.preprocessing = factory.preprocessing
    return made


def make_trunk(name: str, options: Mapping[str, Any]) -> Trunk:
    """Make a trunk by name, whosever code that is; the trunk knows what it was made with.

    Args:
        name: A registered name, `package.module:function`, or `hf:FOLDER`, `timm:NAME`, `torchvision:NAME`.
        options: What to call it with.

    Example:
        >>> make_trunk("cifar_resnet", {"layers": 8}).factory.name
        'cifar_resnet'
    """
    if is_library_name(name):
        return make_from_library(name, options)
    if ":" in name:
        make = import_trusted(name, (name,))
    elif name not in TRUNKS and Path(name).is_dir():
        raise InputError(
            f"expected the name of a network, got the folder '{name}'; if save_pretrained wrote it, give hf:{name}"
        )
    else:
        make = TRUNKS.get(name)
    made = _call(make, Factory(name, options))
    if made.factory is None:
        made.factory = Factory(name, options, made.preprocessing)
    return made


def _call(make: Callable[..., Any], factory: Factory, *links: Trunk) -> Trunk:
    try:
        made = make(*links, **factory.options)
    except (MissingExtraError, SplitRefusedError):  # they say all there is to say
        raise
    except Exception as error:  # whatever somebody's code, or ours with somebody's options, ends with
        options = reprlib.repr(dict(factory.options))
        raise InputError(f"'{factory.name}' cannot make a trunk with {options}: {error}") from error
    if not isinstance(made, Trunk):
        raise InputError(
            f"expected '{factory.name}' to give a trunk, got {type(made).__name__}; let it end with `return "
            "offramp.split(model, example)`"
        )
    return made
