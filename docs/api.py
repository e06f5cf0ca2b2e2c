"""Writes docs/api.md: every public name with the first line of what it says of itself."""

import importlib
import inspect
import pkgutil
from pathlib import Path

import offramp

ADAPTERS = [
    *(f"offramp.backbone.{library}" for library in ("timm", "torchvision", "transformers")),
    "offramp.runtime.onnx",
    "offramp_onnx",
]
"""Modules that are imported by their own path, for those who have the library."""


def documented(module: str, name: str, value: object) -> str:
    """The first line of a name's docstring, or of what it stands for."""
    if inspect.isclass(value) or inspect.isfunction(value):
        return (inspect.getdoc(value) or "").splitlines()[0]
    kind = type(value).__name__
    return f"`{value!r}`" if isinstance(value, int | float | str) else f"a `{kind}`"


def page() -> str:
    """The whole page."""
    lines = [
        "# Every public name",
        "",
        "Written by `scripts/api` from the docstrings, which have the arguments, shapes and examples.",
        "",
    ]
    packages = [f"offramp.{info.name}" for info in pkgutil.iter_modules(offramp.__path__)]
    for module in ["offramp", *packages, *ADAPTERS]:
        imported = importlib.import_module(module)
        lines += [f"## {module}", (inspect.getdoc(imported) or "").splitlines()[0], "", "| name | what |", "|---|---|"]
        for name in imported.__all__:
            value = getattr(imported, name)
            lines.append(f"| `{module}.{name}` | {documented(module, name, value)} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    (Path(__file__).parent / "api.md").write_text(page())
