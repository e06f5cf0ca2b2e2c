"""The public names of the library, as its modules export them, and what their docstrings say."""

import ast
import importlib
import inspect
import itertools
import pkgutil
import sys

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
"""Modules without public names: the command line is documented in docs/reference/cli.md."""


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


def docstring(module: str, name: str) -> str:
    """Return a name's docstring, or the string under a value; empty if there is none."""
    imported = importlib.import_module(module)
    value = getattr(imported, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        return inspect.getdoc(value) or ""
    for home in [imported, *(loaded for path, loaded in sorted(sys.modules.items()) if path.startswith("offramp."))]:
        if vars(home).get(name) is value:
            statements = ast.parse(inspect.getsource(home)).body
            for statement, below in itertools.pairwise(statements):
                if _assigns(statement, name) and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                    return str(below.value.value)
    return ""


def _assigns(statement: ast.stmt, name: str) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)
