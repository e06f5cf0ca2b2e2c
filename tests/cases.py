"""Many cases in one test, as hundreds of collected items say no more than a loop; errors known by their fields."""

import doctest
import inspect
import shutil
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import pytest

from offramp.errors import OfframpError

__all__ = ["check_examples", "each", "refuses"]

Test = Callable[..., None]
E = TypeVar("E", bound=OfframpError)

FRESH = ("folder", "path", "texts", "tmp_path")
"""Fixtures that are folders or files to write to: every case gets a copy of its own."""


def each(names: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test for each of some values, as one item; the case that fails is named.

    Args:
        names: Names of the arguments that differ, as `pytest.mark.parametrize` takes them.
        values: One value, or a tuple of as many as names, per case.
    """
    split = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    cases = [dict(zip(split, value if len(split) > 1 else (value,), strict=True)) for value in values]
    assert cases, "a test without cases cannot fail"

    def decorate(test: Test) -> Test:
        def run_all(*arguments: Any, **fixtures: Any) -> None:
            for number, case in enumerate(cases):
                given = {name: _copied(value, number) if name in FRESH else value for name, value in fixtures.items()}
                try:
                    with pytest.MonkeyPatch.context() as patch:
                        given |= {"monkeypatch": patch} if "monkeypatch" in fixtures else {}
                        test(*arguments, **given, **case)
                except pytest.skip.Exception as error:
                    raise AssertionError(f"a case of `each` may not skip: {case!r}") from error
                except BaseException as error:
                    error.add_note(f"case: {case!r}"[:500])
                    raise

        signature = inspect.signature(test)
        rest = [parameter for name, parameter in signature.parameters.items() if name not in split]
        run_all.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        for name in ("__name__", "__qualname__", "__doc__", "__module__"):
            setattr(run_all, name, getattr(test, name))
        run_all.pytestmark = list(getattr(test, "pytestmark", []))  # type: ignore[attr-defined]
        return run_all

    return decorate


def check_examples(root: Path, *files: Path) -> None:
    """Run the examples in the docstrings of modules, all of them, and fail if one does not give what it says.

    Args:
        root: Where names of modules begin, such as `src`.
        *files: The modules.
    """
    failed = []
    for file in files:
        parts = file.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found = doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        failed += [name] * bool(found.failed)  # what was expected and what came is printed
    assert not failed


def refuses(error: type[E], **fields: str) -> pytest.RaisesExc[E]:
    """Expect an error by its type and by words in its fields, so that a message may be improved without a test.

    Args:
        error: Its type.
        **fields: `problem`, `expected`, `got` or `hint`, each with words that the field holds.
    """
    return pytest.raises(
        error, check=lambda raised: all(words in getattr(raised, name) for name, words in fields.items())
    )


def _copied(original: Path, number: int) -> Path:
    place = original.with_name(f"{original.name}-case-{number}")
    if original.is_dir():
        earlier = shutil.ignore_patterns("*-case-*")  # one of these folders may lie in another
        return Path(shutil.copytree(original, place, symlinks=True, ignore=earlier))
    place.mkdir()
    if original.exists():
        shutil.copy(original, place)
    return place / original.name
