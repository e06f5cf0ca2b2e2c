"""Factories: the name and options a backbone was made with, so that a saved frontier can name it."""

import reprlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as registration

from offramp.backbone.preprocessing import AS_IS, Preprocessing
from offramp.errors import InputError, UnknownNameError

__all__ = [
    "Factory",
    "check_classes",
    "check_named",
    "count_towards_bounds",
    "made_within_bounds",
    "shared_bounds",
    "within_bounds",
]


MOST_CLASSES = 1_000_000
"""Classes at most: a number from a file must not ask for any amount of memory."""


def check_classes(num_classes: int) -> None:
    """Refuse a number of classes that no classifier has."""
    if type(num_classes) is not int or not 2 <= num_classes <= MOST_CLASSES:
        raise InputError(f"expected 2 to {MOST_CLASSES:,} classes, got {num_classes!r}")


def check_named(kind: str, name: Any, known: Collection[str]) -> None:
    """Refuse what is not among the names of a library; it may have a thousand, so that only some are told.

    Example:
        >>> check_named("fruit", "aple", ["pear", "apple"])
        Traceback (most recent call last):
        offramp.errors.UnknownNameError: unknown fruit 'aple'; did you mean 'apple'? There are 2
    """
    if isinstance(name, str) and name in known:
        return
    near = get_close_matches(str(name)[:100], known, n=3) or sorted(known)[:3]
    told = " or ".join(f"'{one}'" for one in near)
    raise UnknownNameError(f"unknown {kind} {reprlib.repr(name)}; did you mean {told}? There are {len(known):,}")


MOST_PARAMETERS = 10**9
"""Of a network that is made by what a file says, of a cascade all its networks: 4 GB. A larger one is given by the
caller."""


MOST_MODULES = 4_000
"""Of the same: the largest of timm have 1,800. Layers without end would take no memory, but all the time there is."""

_MADE: ContextVar[tuple[int, int]] = ContextVar("made", default=(0, 0))
"""Parameters and modules of the networks of a cascade that have been made."""


@contextmanager
def shared_bounds() -> Iterator[None]:
    """Bound the networks that are made inside together, as far as each is counted by `count_towards_bounds`."""
    token = _MADE.set((0, 0))
    try:
        yield
    finally:
        _MADE.reset(token)


def count_towards_bounds(network: nn.Module) -> None:
    """Let the bounds of networks made later inside `shared_bounds` be lower by this one."""
    parameters, modules = _MADE.get()
    tensors = [*network.parameters(), *network.buffers()]
    _MADE.set((parameters + sum(tensor.numel() for tensor in tensors), modules + sum(1 for _ in network.modules())))


@contextmanager
def within_bounds() -> Iterator[None]:
    """Stop whatever makes a network inside as soon as it has become larger than a file may ask for."""
    parameters, modules = _MADE.get()
    thread, found = threading.get_ident(), {"parameters": parameters, "modules": modules}
    seen: dict[int, Any] = {}  # kept, or another could take the place of one that is gone; some are shared

    def count(owner: nn.Module, name: str, part: Any) -> None:
        if threading.get_ident() != thread or part is None or id(part) in seen:
            return
        seen[id(part)] = part
        found["modules"] += isinstance(part, nn.Module)
        found["parameters"] += part.numel() if isinstance(part, torch.Tensor) else 0
        if found["parameters"] > MOST_PARAMETERS or found["modules"] > MOST_MODULES:
            raise InputError(
                f"expected a network of at most {MOST_PARAMETERS:,} parameters and {MOST_MODULES:,} modules, got "
                f"{found['parameters']:,} and {found['modules']:,} or more; give it with backbone=..."
            )

    with ExitStack() as stack:
        for register in (
            registration.register_module_parameter_registration_hook,
            registration.register_module_buffer_registration_hook,
            registration.register_module_module_registration_hook,
        ):
            stack.enter_context(register(count))
        yield


def made_within_bounds(make: Callable[[], nn.Module]) -> nn.Module:
    """Make a network, once it is known how much memory that takes.

    Args:
        make: Makes the network, on whatever torch's default device is.
    """
    with torch.device("meta"), within_bounds():
        make()
    return make()


@dataclass(frozen=True)
class Factory:
    """Name of the function that makes a backbone, and the options to call it with."""

    name: str
    """A registered name, or `package.module:function`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments: numbers, texts, lists of them."""
    preprocessing: Preprocessing = AS_IS
    """Preprocessing of raw inputs by the backbone."""
    members: tuple["Factory", ...] = ()
    """Of a cascade, its networks'."""

    @property
    def size(self) -> int:
        """How many networks there are to make."""
        return sum(member.size for member in self.members) if self.members else 1
