"""Networks as the command line names them."""

import sys
import traceback
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from offramp.artifact import read_artifact
from offramp.backbone import Backbone, Factory, cascade, make_backbone
from offramp.backbone.spec import is_library_name, parse_spec
from offramp.errors import ArtifactError, InputError, OfframpError, UntrustedNameError
from offramp.frontier import Frontier, load, made_again
from offramp.frontier.saving import check_made_again

__all__ = ["find_modules_here", "make_network", "open_artifact", "trusting"]

_NOT_THEIRS = (str(Path(__file__).parents[1]), "site-packages", "<frozen")
"""What files are called that are not of whoever wrote a function: ours, libraries', Python's own."""


def make_network(specs: Sequence[str], *, to_save: bool = False) -> Backbone:
    """The network that `--model` names; a cascade where it is given several times.

    Args:
        specs: What was typed.
        to_save: Whether it is going to be saved. A network of a library that its name alone would not make again, since
            somebody's function made it with options of its own, is then named by that function.
    """
    find_modules_here()
    members = []
    for name, options in map(parse_spec, specs):
        member = _make(name, options)
        if to_save and is_library_name(name):
            check_made_again(member)
        elif to_save and ":" in name and not made_again(member):
            member.factory = Factory(name, options, member.preprocessing)
        members.append(member)
    return members[0] if len(members) == 1 else cascade(*members)


def trusting(frontier: Frontier) -> str:
    """Return the `--trust` options that loading a frontier needs; empty where it needs none."""
    parts = (frontier.bank.kind, frontier.pooling.name, *frontier.points)
    names = dict.fromkeys((*_names(frontier.backbone.factory), *(name for name in parts if ":" in name)))
    return "".join(f" --trust {name}" for name in names)


def _names(factory: Factory | None) -> Iterator[str]:
    if factory is not None:
        yield from (factory.name,) if ":" in factory.name else ()
        for member in factory.members:
            yield from _names(member)


def check_trusted(names: Sequence[str], trust: Sequence[str]) -> None:
    """Refuse names of third-party code that `--trust` does not list, all at once."""
    untrusted = [name for name in names if ":" in name and name not in trust]
    if untrusted:
        allowed = " ".join(f"--trust {name}" for name in untrusted)
        raise UntrustedNameError(f"{', '.join(untrusted)}: third-party code; to run it, add {allowed}")


def open_artifact(path: Path, trust: Sequence[str] | None) -> Frontier:
    """The frontier that was saved in a folder."""
    find_modules_here()
    try:
        return load(path, trust=trust or ())
    except UntrustedNameError as error:
        unknown = [name for name in dict.fromkeys(_code_of(path)) if name not in (trust or ())]
        allowed = " ".join(f"--trust {name}" for name in unknown)
        raise UntrustedNameError(
            f"{path} needs third-party code that is not part of the artifact, {', '.join(unknown)}; if you know "
            f"that code, allow it to run: {allowed}"
        ) from error
    except ArtifactError as error:
        shown = str(error).replace("with backbone=...", "in Python: offramp.load(path, backbone=...)")
        raise ArtifactError(shown) from error


def _make(name: str, options: dict[str, Any]) -> Backbone:
    try:
        return make_backbone(name, options)
    except SystemExit as error:  # a script that was never meant to be imported
        raise InputError(
            f"'{name}' ended the program while it was imported or called; put what it does as a script under "
            "`if __name__ == '__main__':`"
        ) from error
    except InputError as error:
        cause = error.__cause__
        if cause is None or isinstance(cause, OfframpError):
            raise
        raise InputError(_explained(name, str(error), cause)) from error


def _explained(name: str, message: str, cause: BaseException) -> str:
    """A message on code of somebody's, with what its author needs to mend it."""
    module, _, function = name.partition(":")
    if isinstance(cause, ModuleNotFoundError) and cause.name in (module, module.partition(".")[0]):
        return (
            f"there is no module '{module}' in {Path.cwd()} or on Python's path; --model takes package:function, such "
            "as models:make for the function make in models.py"
        )
    if isinstance(cause, AttributeError) and module in sys.modules and not hasattr(sys.modules[module], function):
        return f"module '{module}' has no '{function}'; {_functions(sys.modules[module], function)}"
    places = traceback.extract_tb(cause.__traceback__)
    theirs = [place for place in places if not any(part in place.filename for part in _NOT_THEIRS)]
    where = f", {Path(theirs[-1].filename).name} line {theirs[-1].lineno}" if theirs else ""
    return f"{message} ({type(cause).__name__}{where}); --debug shows the whole traceback"


def _functions(module: ModuleType, wanted: str) -> str:
    names = sorted(
        name
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    )
    if not names:
        return "it has no functions; write one that returns offramp.split(model, example)"
    near = get_close_matches(wanted, names, n=1)
    return f"did you mean '{near[0]}'?" if near else f"it has {', '.join(names)}"


def _code_of(path: Path) -> Iterator[str]:
    """Yield the names of third-party code that an artifact needs."""
    content = read_artifact(path).content
    parts = (content.at("exits").at("kind").text(), content.at("pooling").text(), *content.at("points").entries())
    yield from (name for name in parts if ":" in name)
    waiting = [content.at("backbone").at("factory")]
    while waiting:
        factory = waiting.pop(0)
        if factory.value is None:  # the network is to be given
            continue
        name = factory.at("name").text()
        if ":" in name:
            yield name
        waiting += factory.at("members").items()


def find_modules_here() -> None:
    """Let `package:function` be in the folder where the command runs, as `python -m` does."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
