"""Writes docs/api.md: every public name with its arguments and the first line of its docstring."""

import ast
import dataclasses
import importlib
import inspect
import itertools
import pkgutil
import sys
from pathlib import Path
from types import ModuleType

import offramp

BY_PATH = (
    "offramp.backbone.adapters.timm",
    "offramp.backbone.adapters.torchvision",
    "offramp.backbone.adapters.transformers",
    "offramp.runtime.onnx",
    "offramp_onnx",
)
"""Modules that are imported by their own path, if the library they need is installed."""

INTERNAL = ("offramp.cli",)
"""Modules without public names: the command line is documented in docs/cli.md."""


WITH_METHODS = ("Answer", "EarlyExitModel", "Frontier")
"""Classes whose methods users call."""

LONGEST = 60
"""Characters of a default; a longer one is shown as `...`."""


def public_names() -> dict[str, list[str]]:
    """Return the public names by module; a name that two modules export is listed in the first."""
    packages = [f"offramp.{info.name}" for info in pkgutil.iter_modules(offramp.__path__) if info.name[0] != "_"]
    names: dict[str, list[str]] = {}
    seen: set[int] = set()
    for module in ["offramp", *packages, *BY_PATH]:
        if module in INTERNAL:
            continue
        imported = importlib.import_module(module)
        names[module] = [name for name in imported.__all__ if id(getattr(imported, name)) not in seen]
        seen |= {id(getattr(imported, name)) for name in imported.__all__}
    return names


def page() -> str:
    """Return the whole page."""
    lines = [
        "# Every public name",
        "",
        "Written by `scripts/api`. Docstrings say more: `help(offramp.fit)`.",
        "Names in modules that start with an underscore are internal and may change.",
        "",
    ]
    for module, names in public_names().items():
        imported = importlib.import_module(module)
        if names:
            lines += [f"## {module}", "", first_line(imported), ""]
            for name in names:
                value = getattr(imported, name)
                lines.append(f"* `{name}{arguments(value)}`: {meaning(imported, name)}")
                if name in WITH_METHODS:
                    lines += methods(value)
            lines.append("")
    return "\n".join(lines)


def methods(value: type) -> list[str]:
    """Return one line per public method of a class."""
    functions = {name: function for name, function in vars(value).items() if inspect.isfunction(function)}
    return [
        f"  * `.{name}{arguments(function)}`: {first_line(function)}"
        for name, function in functions.items()
        if name[0] != "_"
    ]


def arguments(value: object) -> str:
    """Return the arguments of a function or a class with their defaults; nothing for values, protocols and errors."""
    if not (inspect.isclass(value) or inspect.isfunction(value)) or getattr(value, "_is_protocol", False):
        return ""
    if inspect.isclass(value) and issubclass(value, Exception) and "__init__" not in vars(value):
        return ""
    signature = inspect.signature(value)
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty, default=_Shown.of(parameter.default))
        for parameter in signature.parameters.values()
        if parameter.name != "self"
    ]
    return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


@dataclasses.dataclass(frozen=True)
class _Shown:
    """A default value as the page shows it."""

    text: str

    @classmethod
    def of(cls, default: object) -> object:
        """Return a default that prints as a reader would write it, or `...` if that is long."""
        if default is inspect.Parameter.empty:
            return default
        for name in offramp.__all__:
            if getattr(offramp, name) is default:
                return cls(f"offramp.{name}")
        if dataclasses.is_dataclass(default) and not isinstance(default, type):
            return cls(f"{type(default).__name__}()")
        text = repr(tuple(map(cls.of, default)) if isinstance(default, tuple) else default)
        return cls(text if len(text) <= LONGEST and "<" not in text else "...")

    def __repr__(self) -> str:
        return self.text


def meaning(module: ModuleType, name: str) -> str:
    """Return the first line of a name's docstring, or of the string under a value."""
    value = getattr(module, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        return first_line(value)
    for home in [module, *(loaded for path, loaded in sorted(sys.modules.items()) if path.startswith("offramp."))]:
        if vars(home).get(name) is value:
            statements = ast.parse(inspect.getsource(home)).body
            for statement, below in itertools.pairwise(statements):
                if _assigns(statement, name) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                    return str(below.value.value).splitlines()[0]
    return ""


def first_line(value: object) -> str:
    """Return the first line of a docstring, empty if there is none."""
    return ((inspect.getdoc(value) or "").splitlines() or [""])[0]


def _assigns(statement: ast.stmt, name: str) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


if __name__ == "__main__":
    (Path(__file__).parent / "api.md").write_text(page())
