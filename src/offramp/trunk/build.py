"""Trunks by name."""

import reprlib
from collections.abc import Callable, Collection
from importlib import import_module
from typing import Any

from offramp.errors import InputError, UntrustedNameError
from offramp.registry import Registry
from offramp.trunk.factory import Factory
from offramp.trunk.trunk import Trunk

__all__ = ["TRUNKS", "build"]

TRUNKS: Registry[Callable[..., Trunk]] = Registry("trunk")
TRUNKS.add("chain", "offramp.trunk.chain:chain")
TRUNKS.add("cifar_resnet", "offramp.trunk.cifar_resnet:CifarResNet")
TRUNKS.add("t2t_vit", "offramp.trunk.t2t_vit:T2TViT")

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
    if factory.links:
        if factory.name != "chain":
            raise InputError(f"only a 'chain' has links, got '{factory.name}' with {len(factory.links)}")
        return _call(TRUNKS.get("chain"), factory, *(build(link, trust=trust) for link in factory.links))
    if ":" not in factory.name:
        make = TRUNKS.get(factory.name)
    elif factory.name in trust:
        module, _, name = factory.name.partition(":")
        try:
            make = getattr(import_module(module), name)
        except Exception as error:  # whatever importing somebody's code ends with
            raise InputError(f"cannot import '{factory.name}': {error}; install what it is part of") from error
    else:
        raise UntrustedNameError(
            f"'{factory.name}' is code of somebody's; if you know it, allow it with trust=['{factory.name}'], or give "
            "the network yourself with trunk=..."
        )
    made = _call(make, factory)
    made.preprocessing = factory.preprocessing
    return made


def _call(make: Callable[..., Any], factory: Factory, *links: Trunk) -> Trunk:
    try:
        made = make(*links, **factory.options)
    except Exception as error:  # whatever somebody's code, or ours with somebody's options, ends with
        options = reprlib.repr(dict(factory.options))
        raise InputError(f"'{factory.name}' cannot make a trunk with {options}: {error}") from error
    if not isinstance(made, Trunk):
        raise InputError(f"expected '{factory.name}' to give a trunk, got {type(made).__name__}")
    return made
