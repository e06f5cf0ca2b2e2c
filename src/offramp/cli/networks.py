"""Networks by what `--model` says, artifacts by their folder, and the code they may run."""

import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from offramp.artifact._format import read_artifact
from offramp.artifact._network import check_rebuilds, rebuilds
from offramp.backbone import Factory
from offramp.backbone._backbone import Backbone
from offramp.backbone._cascading import cascade
from offramp.backbone._making import is_library_name, make_backbone, name_to_trust, parse_spec
from offramp.errors import ArtifactError, InputError, OfframpError, UntrustedNameError
from offramp.model._loading import load
from offramp.model._model import EarlyExitModel
from offramp.model._networks import check_device, names_to_trust

__all__ = ["check_trusted", "find_modules_here", "make_network", "open_artifact", "trust_options"]

_LIBRARY_PATHS = (str(Path(__file__).parents[1]), "site-packages", "<frozen")
"""Parts of the names of files that are not the user's: ours, other libraries', Python's own."""


def make_network(specs: Sequence[str], *, to_save: bool = False, device: str | None = None) -> Backbone:
    """Make the network that `--model` names; a cascade if it is given several times.

    Args:
        specs: Values of `--model`.
        to_save: True if the network is going to be saved. A network that a user's function made from a library with
            options of its own is then named by that function.
        device: Device to move the network to; the CPU if left out.
    """
    check_device(device)
    find_modules_here()
    members = []
    for name, options in map(parse_spec, specs):
        member = _make(name, options)
        if to_save and is_library_name(name):
            assert member.factory is not None
            check_rebuilds(member, member.factory)
        elif to_save and ":" in name and not rebuilds(member):
            member.factory = Factory(name, options, member.preprocessing)
        members.append(member)
    network = members[0] if len(members) == 1 else cascade(*members)
    return network if device is None else network.to(device)


def trust_options(model: EarlyExitModel) -> str:
    """Return the `--trust` options that loading a saved model needs; empty if it needs none."""
    return "".join(f" --trust {name}" for name in names_to_trust(model, model.backbone.factory))


def check_trusted(names: Sequence[str], trust: Sequence[str]) -> None:
    """Refuse names of third-party code that `--trust` does not list, all at once."""
    untrusted = [name for name in names if ":" in name and name not in trust]
    if untrusted:
        raise UntrustedNameError(f"{', '.join(untrusted)}: third-party code", hint=_trust_hint(untrusted))


def _trust_hint(names: Sequence[str]) -> str:
    return f"to run it, add {' '.join(f'--trust {name}' for name in names)}"


def open_artifact(path: Path, trust: Sequence[str] | None, *, device: str | None = None) -> EarlyExitModel:
    """Load the model that was saved in a folder, its network on a device."""
    check_device(device)
    find_modules_here()
    try:
        model = load(path, trust=trust or ())
    except UntrustedNameError as error:
        unknown = [name for name in dict.fromkeys(_code_of(path)) if name not in (trust or ())]
        raise UntrustedNameError(
            f"{path} needs third-party code, {', '.join(unknown)}", hint=_trust_hint(unknown)
        ) from error
    except ArtifactError as error:
        if "backbone=" not in error.hint:
            raise
        hint = "load it in Python and give that network: offramp.load(path, backbone=...)"
        raise ArtifactError(error.problem, expected=error.expected, got=error.got, hint=hint) from error
    if device is not None and model.tuned_on is not None:
        raise InputError(
            expected=f"no --device for {path}, which was tuned on the backend '{model.tuned_on.kind}' of the CPU",
            got=device,
            hint="leave --device out",
        )
    if device is not None:
        model.backbone.to(device)
    return model


def _make(name: str, options: dict[str, Any]) -> Backbone:
    try:
        return make_backbone(name, options)
    except SystemExit as error:  # a script that was never meant to be imported
        raise InputError(
            f"'{name}' ended the program while it was imported or called",
            hint="put what it does as a script under `if __name__ == '__main__':`",
        ) from error
    except InputError as error:
        cause = error.__cause__
        if cause is None or isinstance(cause, OfframpError):
            raise
        raise _with_place(name, error, cause) from error


def _with_place(name: str, error: InputError, cause: BaseException) -> InputError:
    """Return an error of a user's function with the place in their code, for them to mend it."""
    module, _, function = name.partition(":")
    if isinstance(cause, ModuleNotFoundError) and cause.name in (module, module.partition(".")[0]):
        return InputError(
            f"there is no module '{module}' in {Path.cwd()} or on Python's path",
            hint="--model takes package:function, such as models:make for the function make in models.py",
        )
    if isinstance(cause, AttributeError) and module in sys.modules and not hasattr(sys.modules[module], function):
        return error
    frames = traceback.extract_tb(cause.__traceback__)
    own = [frame for frame in frames if not any(part in frame.filename for part in _LIBRARY_PATHS)]
    place = f", {Path(own[-1].filename).name} line {own[-1].lineno}" if own else ""
    return InputError(f"{error} ({type(cause).__name__}{place})", hint="--debug shows the whole traceback")


def _code_of(path: Path) -> Iterator[str]:
    """Yield the names of third-party code that an artifact needs."""
    content = read_artifact(path).content
    parts = (content.at("exits").at("kind").text(), content.at("pooling").text(), *content.at("points").entries())
    yield from (name for name in parts if ":" in name)
    waiting = [content.at("backbone").at("factory")]
    while waiting:
        factory = waiting.pop(0)
        if factory.value is None:  # the caller gives the network
            continue
        options = {name: entry.value for name, entry in factory.at("options").entries().items()}
        needed = name_to_trust(factory.at("name").text(), options)
        if needed is not None:
            yield needed
        waiting += factory.at("members").items()


def find_modules_here() -> None:
    """Let `package:function` be in the folder where the command runs, as `python -m` does."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
