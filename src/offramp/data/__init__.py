"""What people have on disk or in object stores, as sources: images, tables, texts and arrays, read by row range."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from offramp.data.location import Location, locate

if TYPE_CHECKING:
    from offramp.data.dataset import Dataset
    from offramp.data.formats import FORMATS, open_data
    from offramp.data.subset import Subset, sample

__all__ = ["FORMATS", "Dataset", "Location", "Subset", "locate", "open_data", "sample"]

_HOMES = {"FORMATS": "formats", "Dataset": "dataset", "Subset": "subset", "open_data": "formats", "sample": "subset"}
"""The module of each name that needs torch; the command line names places without it."""

if not TYPE_CHECKING:  # a type checker would take any name for one of this package

    def __getattr__(name: str) -> Any:
        """Import a name when it is first used."""
        if name not in _HOMES:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        globals()[name] = value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
