"""Off-ramps for neural networks: early exits for a frozen classifier, at the budget its owner names."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from offramp.annotation._annotate import annotate
    from offramp.backbone._backbone import Backbone
    from offramp.backbone._cascading import cascade
    from offramp.backbone._splitting import split
    from offramp.backbone.adapters._callable import callable_model, encoder
    from offramp.backbone.adapters._llm import llm
    from offramp.methods._settings import DEFAULT, PAPER, JointSettings
    from offramp.model._answer import Answer
    from offramp.model._estimation import estimate
    from offramp.model._fitting import fit
    from offramp.model._frontier import Frontier
    from offramp.model._loading import load
    from offramp.model._model import EarlyExitModel
    from offramp.model._options import CalibrationOptions, CostOptions, FittingOptions
    from offramp.preprocessing._images import image_preprocessing

__all__ = [
    "DEFAULT",
    "PAPER",
    "Answer",
    "Backbone",
    "CalibrationOptions",
    "CostOptions",
    "EarlyExitModel",
    "FittingOptions",
    "Frontier",
    "JointSettings",
    "annotate",
    "callable_model",
    "cascade",
    "encoder",
    "estimate",
    "fit",
    "image_preprocessing",
    "llm",
    "load",
    "split",
]

_HOMES = {
    "DEFAULT": "methods._settings",
    "PAPER": "methods._settings",
    "Answer": "model._answer",
    "Backbone": "backbone._backbone",
    "CalibrationOptions": "model._options",
    "CostOptions": "model._options",
    "EarlyExitModel": "model._model",
    "FittingOptions": "model._options",
    "Frontier": "model._frontier",
    "JointSettings": "methods._settings",
    "annotate": "annotation._annotate",
    "callable_model": "backbone.adapters._callable",
    "cascade": "backbone._cascading",
    "encoder": "backbone.adapters._callable",
    "estimate": "model._estimation",
    "fit": "model._fitting",
    "image_preprocessing": "preprocessing._images",
    "llm": "backbone.adapters._llm",
    "load": "model._loading",
    "split": "backbone._splitting",
}
"""The module of each public name."""

if not TYPE_CHECKING:  # a type checker would take any name for one of offramp's

    def __getattr__(name: str) -> Any:
        """Import a public name or a submodule when it is first used: importing torch takes seconds."""
        if name in _HOMES:
            globals()[name] = value = getattr(import_module(f"offramp.{_HOMES[name]}"), name)
            return value
        try:
            return import_module(f"offramp.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"offramp.{name}":
                raise
            raise AttributeError(f"module 'offramp' has no attribute '{name}'") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
