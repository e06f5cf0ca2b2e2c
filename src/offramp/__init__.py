"""Off-ramps for neural networks: early exits for a frozen classifier, at the budget its owner names."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offramp.backbone import Backbone, cascade, image_preprocessing, split
    from offramp.frontier import Frontier, estimate, fit, load, recalibrated, save
    from offramp.methods import DEFAULT, PAPER, JointSettings
    from offramp.network import Answer, EarlyExitNetwork

__all__ = [
    "DEFAULT",
    "PAPER",
    "Answer",
    "Backbone",
    "EarlyExitNetwork",
    "Frontier",
    "JointSettings",
    "cascade",
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
    "backbone": ("Backbone", "cascade", "image_preprocessing", "split"),
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
