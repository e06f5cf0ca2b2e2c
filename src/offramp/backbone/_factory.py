"""Factories, which name how a backbone is made, and bounds on the networks that a file may ask for."""

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

from offramp.errors import InputError, UnknownNameError
from offramp.preprocessing._preprocessing import AS_IS, Preprocessing

__all__ = [
    "Factory",
    "check_classes",
    "check_known",
    "check_side",
    "count_towards_bounds",
    "make_within_bounds",
    "share_bounds",
    "within_bounds",
]


MOST_CLASSES = 1_000_000
"""Maximum number of classes: a file must not ask for any amount of memory."""


def check_classes(num_classes: int) -> None:
    """Refuse a number of classes that no classifier has."""
    if type(num_classes) is not int or not 2 <= num_classes <= MOST_CLASSES:
        raise InputError(expected=f"2 to {MOST_CLASSES:,} classes", got=num_classes)


SIDES = range(16, 1025)
"""Sides of images, in pixels, that a file may ask for."""


def check_side(side: int) -> None:
    """Refuse a side of images that no image classifier takes."""
    if type(side) is not int or side not in SIDES:
        raise InputError(expected=f"images of {SIDES.start} to {SIDES.stop - 1} pixels per side", got=side)


def check_known(kind: str, name: Any, known: Collection[str]) -> None:
    """Refuse a name that a library does not have; suggest similar names, as there may be a thousand.

    Example:
        >>> check_known("fruit", "aple", ["pear", "apple"])
        Traceback (most recent call last):
        offramp.errors.UnknownNameError: unknown fruit 'aple'; did you mean 'apple'? There are 2
    """
    if isinstance(name, str) and name in known:
        return
    near = get_close_matches(str(name)[:100], known, n=3) or sorted(known)[:3]
    suggestions = " or ".join(f"'{suggestion}'" for suggestion in near)
    raise UnknownNameError(
        f"unknown {kind} {reprlib.repr(name)}", hint=f"did you mean {suggestions}? There are {len(known):,}"
    )


MOST_PARAMETERS = 10**9
"""Maximum size of a network that a file asks for, all members of a cascade together: 4 GB. The caller can give a larger
one."""

MOST_MODULES = 4_000
"""Maximum number of modules of such a network (the largest of timm have 1,800), as making them takes time."""

_MADE: ContextVar[tuple[int, int]] = ContextVar("made", default=(0, 0))
"""Parameters and modules of the members of a cascade made so far."""


@contextmanager
def share_bounds() -> Iterator[None]:
    """Bound the networks made in this context together; `count_towards_bounds` adds each."""
    token = _MADE.set((0, 0))
    try:
        yield
    finally:
        _MADE.reset(token)


def count_towards_bounds(network: nn.Module) -> None:
    """Lower the bounds of networks made later in the context of `share_bounds` by the size of this one."""
    parameters, modules = _MADE.get()
    tensors = [*network.parameters(), *network.buffers()]
    _MADE.set((parameters + sum(tensor.numel() for tensor in tensors), modules + sum(1 for _ in network.modules())))


@contextmanager
def within_bounds() -> Iterator[None]:
    """Raise as soon as a network made in this context exceeds the bounds."""
    parameters, modules = _MADE.get()
    thread, counts = threading.get_ident(), {"parameters": parameters, "modules": modules}
    parts: dict[int, Any] = {}  # by id, to count shared parts once; held, so that no id is used twice

    def count(_owner: nn.Module, _name: str, part: Any) -> None:
        if threading.get_ident() != thread or part is None or id(part) in parts:
            return
        parts[id(part)] = part
        counts["modules"] += isinstance(part, nn.Module)
        counts["parameters"] += part.numel() if isinstance(part, torch.Tensor) else 0
        if counts["parameters"] > MOST_PARAMETERS or counts["modules"] > MOST_MODULES:
            raise InputError(
                expected=f"a network of at most {MOST_PARAMETERS:,} parameters and {MOST_MODULES:,} modules",
                got=f"{counts['parameters']:,} and {counts['modules']:,} or more",
                hint="give it with backbone=...",
            )

    with ExitStack() as stack:
        for register in (
            registration.register_module_parameter_registration_hook,
            registration.register_module_buffer_registration_hook,
            registration.register_module_module_registration_hook,
        ):
            stack.enter_context(register(count))
        yield


def make_within_bounds(make: Callable[[], nn.Module]) -> nn.Module:
    """Make a network after a trial on the meta device, which takes no memory.

    Args:
        make: A function that makes the network on torch's default device.
    """
    with torch.device("meta"), within_bounds():
        make()
    return make()


@dataclass(frozen=True)
class Factory:
    """The name of the function that makes a backbone, and its options; weights are saved apart."""

    name: str
    """A registered name, or `package.module:function`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments: numbers, strings, lists of them."""
    preprocessing: Preprocessing = AS_IS
    """Preprocessing of the backbone."""
    members: tuple["Factory", ...] = ()
    """Factories of the members of a cascade."""

    @property
    def size(self) -> int:
        """Number of networks to make."""
        return sum(member.size for member in self.members) if self.members else 1
