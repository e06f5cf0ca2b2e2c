"""The one registry: names to objects, with suggestions for names that are not there."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points
from traceback import extract_tb
from typing import Any, Generic, TypeVar, cast

from offramp.errors import DuplicateNameError, InputError, OfframpError, UnknownNameError, UntrustedNameError

__all__ = ["Registry", "check_own_name", "import_trusted", "run_third_party", "unknown_name"]

T = TypeVar("T")


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """The error for a name that is not there: it suggests the nearest, and lists all.

    Args:
        kind: What the names stand for.
        name: What was asked for.
        known: What there is.

    Example:
        >>> unknown_name("fruit", "aple", ["pear", "apple"])
        UnknownNameError("unknown fruit 'aple'; did you mean 'apple'? Known: apple, pear")
    """
    names = sorted(known)
    near = get_close_matches(name, names, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ";"
    return UnknownNameError(f"unknown {kind} '{name}'{hint} Known: {', '.join(names)}")


def import_trusted(name: str, trust: Collection[str] | str) -> Any:
    """Import third-party code by its name, where the caller allows it.

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
    allowed = (trust,) if isinstance(trust, str) else trust  # or parts of the text would be trusted too
    if name not in allowed:
        raise UntrustedNameError(f"'{name}' is third-party code; to run it, pass trust=['{name}']")
    module, _, attribute = name.partition(":")
    try:
        imported = import_module(module)
    except Exception as error:  # whatever importing third-party code ends with
        raise InputError(
            f"cannot import '{name}': {error}; run where '{module.partition('.')[0]}' can be imported, or install it"
        ) from error
    try:
        return getattr(imported, attribute)
    except AttributeError as error:
        near = get_close_matches(attribute, dir(imported), n=1)
        hint = f"; did you mean '{module}:{near[0]}'?" if near else ""
        raise InputError(f"expected '{name}', but module '{module}' has no '{attribute}'{hint}") from error


@contextmanager
def run_third_party(function: Any, what: str, hint: str) -> Iterator[None]:
    """Turn whatever third-party code ends with into an error that names it and its line; ours pass unchanged.

    Args:
        function: The function that is run.
        what: What it is, as it reads in the message: "method 'mine:fit'".
        hint: What may mend it.
    """
    try:
        yield
    except OfframpError:
        raise
    except Exception as error:
        if getattr(function, "__module__", "").partition(".")[0] in ("offramp", "offramp_bench"):
            raise
        frames = [frame for frame in extract_tb(error.__traceback__) if frame.filename == _file(function)]
        place = f" in line {frames[-1].lineno} of {frames[-1].filename}" if frames else ""
        raise InputError(f"{what} failed with {type(error).__name__}: {error}{place}; {hint}") from error


def _file(function: Any) -> str | None:
    return getattr(getattr(function, "__code__", None), "co_filename", None)


def check_own_name(entry: Any, name: str) -> None:
    """Refuse an object that has another name than it was asked for by: points and artifacts know it by its own.

    Args:
        entry: A policy or a pooling.
        name: The name it was asked for by.

    Raises:
        InputError: If it is a class, or its `name` is another.
    """
    if isinstance(entry, type) or getattr(entry, "name", None) != name:
        raise InputError(
            f"expected an object with name = '{name}', got {entry!r}; set its name, and give an instance, not its class"
        )


class Registry(Generic[T]):
    """Names of one kind of thing, resolved on first use.

    An entry is the object itself or a lazy target `"package.module:name"`, imported when asked for. Other packages add
    entries through the entry-point group `offramp.<kind>`; a name `"package.module:name"` that the caller trusts needs
    no entry.

    Args:
        kind: What the names stand for, as it reads in messages: "pooling", "policy", ...

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
        self._trusted: dict[str, T] = {}  # what was imported by a name the caller trusts
        self._discovered = False

    def add(self, name: str, entry: T | str) -> None:
        """Register `entry`, an object or a lazy `"package.module:name"`, under `name`."""
        if name in self._entries:
            raise DuplicateNameError(f"{self.kind} '{name}' is registered already; choose another name")
        self._entries[name] = entry

    def get(self, name: str, *, trust: Collection[str] | str = ()) -> T:
        """Return what is registered under `name`, or what `name` says to import.

        Args:
            name: A registered name, or `"package.module:name"`.
            trust: Names of the second kind that may be imported. One that was is known from then on, in this process.
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
        """Return the name that an object is registered under, or `package.module:name` of where it is defined.

        Args:
            entry: The object.
        """
        self._discover()
        place = f"{entry.__module__}:{getattr(entry, '__qualname__', type(entry).__qualname__)}"
        names = (name for name in sorted(self._entries) if self._entries[name] is entry or self._entries[name] == place)
        return next(names, place)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the registered names, sorted."""
        self._discover()
        return iter(sorted(self._entries))

    def _discover(self) -> None:
        # Scanned on first use, so that importing offramp never reads other packages' metadata.
        if not self._discovered:
            self._discovered = True
            for point in entry_points(group=f"offramp.{self.kind.replace(' ', '_')}"):
                self.add(point.name, point.value)
