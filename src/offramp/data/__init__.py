"""Data in common formats as sources: images, tables, texts and arrays, read by row range."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offramp.data._dataset import sample
    from offramp.data._formats import FORMATS, open_data
    from offramp.data._labelled import as_source

__all__ = ["FORMATS", "as_source", "open_data", "sample"]

_HOMES = {"FORMATS": "_formats", "as_source": "_labelled", "open_data": "_formats", "sample": "_dataset"}
"""The module of each name."""

if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        """Import a name on first use: most of them need torch."""
        if name not in _HOMES:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        globals()[name] = value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
