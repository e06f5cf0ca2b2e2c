"""The registry of named parts, with suggestions for unknown names, and imports of third-party code by name."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points
from traceback import extract_tb
from types import ModuleType
from typing import Any, Generic, TypeVar, cast

from offramp.errors import DuplicateNameError, InputError, OfframpError, UnknownNameError, UntrustedNameError

__all__ = ["Registry", "check_own_name", "import_trusted", "run_third_party", "unknown_name"]

T = TypeVar("T")


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """Make the error for an unknown name, with the nearest known name and the list of all.

    Args:
        kind: A noun for what the names stand for.
        name: The unknown name.
        known: The known names.

    Example:
        >>> unknown_name("fruit", "aple", ["pear", "apple"])
        UnknownNameError("unknown fruit 'aple'; did you mean 'apple'? Known: apple, pear")
    """
    names = sorted(known)
    near = get_close_matches(name, names, n=1)
    suggestion = f"did you mean '{near[0]}'? " if near else ""
    return UnknownNameError(f"unknown {kind} '{name}'", hint=f"{suggestion}Known: {', '.join(names)}")


def import_trusted(name: str, trust: Collection[str] | str) -> Any:
    """Import third-party code by name, if the caller allows it.

    Args:
        name: `"package.module:name"`.
        trust: The names that may be imported.

    Raises:
        UntrustedNameError: If `trust` does not list the name.
        InputError: If it cannot be imported.

    Example:
        >>> import_trusted("math:tau", ["math:tau"])
        6.283185307179586
    """
    allowed = (trust,) if isinstance(trust, str) else trust  # `in` would accept parts of a text
    if name not in allowed:
        raise UntrustedNameError(f"'{name}' is third-party code", hint=f"to run it, pass trust=['{name}']")
    module, _, attribute = name.partition(":")
    try:
        imported = import_module(module)
    except Exception as error:  # third-party code may raise anything while it is imported
        package = module.partition(".")[0]
        raise InputError(
            f"cannot import '{name}': {error}", hint=f"run where '{package}' can be imported, or install it"
        ) from error
    try:
        return getattr(imported, attribute)
    except AttributeError as error:
        raise InputError(f"module '{module}' has no '{attribute}'", hint=_suggest(imported, attribute)) from error


def _suggest(module: ModuleType, attribute: str) -> str:
    """Name the nearest function or class that a module defines, or else all of them."""
    names = sorted(
        name
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    )
    if not names:
        return "it defines no functions; write one"
    near = get_close_matches(attribute, names, n=1)
    return f"did you mean '{module.__name__}:{near[0]}'?" if near else f"it has {', '.join(names)}"


@contextmanager
def run_third_party(function: Any, what: str, hint: str) -> Iterator[None]:
    """Turn any error of third-party code into an `InputError` with its line; errors of this library pass unchanged.

    Args:
        function: The function that is run.
        what: Its name in the message: "method 'mine:fit'".
        hint: The next step for its author.
    """
    try:
        yield
    except OfframpError:
        raise
    except Exception as error:
        if getattr(function, "__module__", "").partition(".")[0] == "offramp":
            raise
        code = getattr(function, "__code__", None)
        lines = [
            frame.lineno for frame in extract_tb(error.__traceback__) if code and frame.filename == code.co_filename
        ]
        place = f" in line {lines[-1]} of {code.co_filename}" if code and lines else ""
        raise InputError(f"{what} failed with {type(error).__name__}: {error}{place}", hint=hint) from error


def check_own_name(entry: Any, name: str) -> None:
    """Refuse an object whose `name` is not the one it is registered under; points and artifacts record the former.

    Args:
        entry: A policy or a pooling.
        name: The name it was looked up by.

    Raises:
        InputError: If it is a class, or its `name` is another.
    """
    if isinstance(entry, type) or getattr(entry, "name", None) != name:
        raise InputError(
            expected=f"an object with name = '{name}'",
            got=entry,
            hint="set its name, and give an instance, not its class",
        )


class Registry(Generic[T]):
    """Names of one kind of part, resolved on first use.

    An entry is the object itself or a lazy target `"package.module:name"`, imported on first use. Other packages add
    entries through the entry-point group `offramp.<kind>`. A name `"package.module:name"` that the caller trusts needs
    no entry.

    Args:
        kind: A noun for what the names stand for, used in messages: "pooling", "policy", ...

    Example:
        >>> shapes = Registry[type]("shape")
        >>> shapes.add("number", "numbers:Number")
        >>> shapes.get("number").__name__
        'Number'
        >>> shapes.get("nunber")
        Traceback (most recent call last):
        offramp.errors.UnknownNameError: unknown shape 'nunber'; did you mean 'number'? Known: number
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T | str] = {}
        self._trusted: dict[str, T] = {}  # imported by a name that the caller trusts
        self._discovered = False

    def add(self, name: str, entry: T | str) -> None:
        """Register `entry`, an object or a lazy `"package.module:name"`, under `name`."""
        if name in self._entries:
            raise DuplicateNameError(f"{self.kind} '{name}' is registered already", hint="choose another name")
        self._entries[name] = entry

    def get(self, name: str, *, trust: Collection[str] | str = ()) -> T:
        """Return the entry registered under `name`, or import it.

        Args:
            name: A registered name, or `"package.module:name"`.
            trust: Names of the second kind that may be imported. Once imported, a name stays known in this process.
        """
        self._discover()
        if name not in self._entries and ":" in name:
            if name not in self._trusted:
                self._trusted[name] = cast(T, import_trusted(name, trust))
            return self._trusted[name]
        if name not in self._entries:
            raise unknown_name(self.kind, name, self._entries)
        entry = self._entries[name]
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            entry = cast(T, getattr(import_module(module), attribute))
            self._entries[name] = entry
        return entry

    def name_of(self, entry: T) -> str:
        """Return the name that an object is registered under, or `package.module:name` of its definition."""
        self._discover()
        place = f"{entry.__module__}:{getattr(entry, '__qualname__', type(entry).__qualname__)}"
        names = (name for name in sorted(self._entries) if self._entries[name] is entry or self._entries[name] == place)
        return next(names, place)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the registered names, sorted."""
        self._discover()
        return iter(sorted(self._entries))

    def _discover(self) -> None:
        # On first use, so that importing offramp never reads the metadata of other packages.
        if not self._discovered:
            self._discovered = True
            for point in entry_points(group=f"offramp.{self.kind.replace(' ', '_')}"):
                self.add(point.name, point.value)
