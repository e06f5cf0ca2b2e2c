"""What people hold, as sources: images, tables, texts and arrays, read by row range."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offramp.data.dataset import Dataset, Subset, sample
    from offramp.data.formats import FORMATS, open_data
    from offramp.data.torch_data import TorchSource

__all__ = ["FORMATS", "Dataset", "Subset", "TorchSource", "open_data", "sample"]

_HOMES = {"FORMATS": "formats", "TorchSource": "torch_data", "open_data": "formats"}
"""The module of each name that is not of `dataset`."""

if not TYPE_CHECKING:  # a type checker would take any name for one of this package

    def __getattr__(name: str) -> Any:
        """Import a name when it is first used: most of them need torch."""
        if name not in __all__:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        globals()[name] = value = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'dataset')}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
