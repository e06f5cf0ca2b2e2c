"""Off-ramps for neural networks: early exits for a frozen classifier, at the budget its owner names."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offramp.frontier import Frontier, estimate, fit, load, recalibrated, save
    from offramp.methods import DEFAULT, PAPER, JointSettings
    from offramp.network import Answer, EarlyExitNetwork
    from offramp.trunk import Trunk, chain, image_preprocessing, split

__all__ = [
    "DEFAULT",
    "PAPER",
    "Answer",
    "EarlyExitNetwork",
    "Frontier",
    "JointSettings",
    "Trunk",
    "chain",
    "estimate",
    "fit",
    "image_preprocessing",
    "load",
    "recalibrated",
    "save",
    "split",
]

_HOMES = {
    "frontier": ("Frontier", "estimate", "fit", "load", "recalibrated", "save"),
    "methods": ("DEFAULT", "PAPER", "JointSettings"),
    "network": ("Answer", "EarlyExitNetwork"),
    "trunk": ("Trunk", "chain", "image_preprocessing", "split"),
}
"""The module of each public name."""

if not TYPE_CHECKING:  # a type checker would take any name for one of offramp's

    def __getattr__(name: str) -> Any:
        """Import a public name or a submodule when it is first used: importing torch takes seconds."""
        home = next((home for home, names in _HOMES.items() if name in names), None)
        if home is not None:
            globals()[name] = value = getattr(import_module(f"offramp.{home}"), name)
            return value
        try:
            return import_module(f"offramp.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"offramp.{name}":
                raise
            raise AttributeError(f"module 'offramp' has no attribute '{name}'") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
