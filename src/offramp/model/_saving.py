"""Writing a model as an artifact."""

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from offramp.artifact._backend import backend_content, backend_tensors
from offramp.artifact._exits import exits_content
from offramp.artifact._format import write_artifact
from offramp.artifact._network import (
    attachment_tensors,
    check_rebuilds,
    factory_content,
    factory_for,
    is_of_libraries,
    names_code,
    weight_tensors,
)
from offramp.artifact._points import check_single, chosen_content, loss_content, point_content, point_tensors
from offramp.backbone import Factory
from offramp.errors import InputError

if TYPE_CHECKING:
    from offramp.model._model import EarlyExitModel

__all__ = ["save"]


def save(model: "EarlyExitModel", path: str | Path, *, factory: Factory | None, weights: bool | None) -> str:
    """Write a model into a folder; `EarlyExitModel.save` describes the arguments.

    Returns:
        The hash of the manifest.
    """
    backbone = model.backbone
    model.preprocessing.check()
    if isinstance(factory, str):
        raise InputError("factory", expected="a Factory", got=f"'{factory}'", hint=f"give Factory('{factory}')")
    factory = factory_for(backbone, factory)
    if weights is None:
        weights = model.embedded or (factory is not None and is_of_libraries(factory))
    if weights and factory is None:
        raise InputError(
            expected=f"a factory that makes '{backbone.name}', into which embedded weights are loaded",
            got="none",
            hint="give factory=Factory('package.module:function'), or weights=False and load with backbone=...",
        )
    embedded = weight_tensors(backbone) if weights else {}
    if weights and factory is not None and not names_code(factory):
        check_rebuilds(backbone, factory, embedded)
    calibration = loss_content(model.points)
    content = {
        "backbone": {
            "factory": None if factory is None else factory_content(factory),
            "name": backbone.name,
            "fingerprint": backbone.fingerprint(),
            "num_classes": backbone.num_classes,
            "num_exits": backbone.num_exits,
            "weights": weights,
        },
        "preprocessing": model.preprocessing.describe(),
        "pooling": model.pooling.name,
        "exits": exits_content(model.exits),
        "backend": backend_content(model.tuned_on),
        "costs": {policy: len(costs.tables) for policy, costs in model.costs.items()},
        "unit": {"name": model.unit.name, "full": model.unit.full},
        "policies": list(model.points),
        "points": {policy: [point_content(point) for point in points] for policy, points in model.points.items()},
        "calibration": calibration,
        "request": model.request.describe(),
        # Without a request, `fit` leaves the choice to the first use; `annotate` makes it by a test of its own.
        "chosen": None
        if model.chosen is None or model.request.describe()
        else chosen_content(model.points[model.chosen.policy], model.chosen),
        "full_accuracy": model.full_accuracy,
        "classes": list(model.classes),
        "contributions": [[part.name, part.gain, part.kept] for part in model.contributions],
        "provenance": dict(model.provenance),
    }
    tensors = {
        "exits": {**model.exits.state_dict(), "temperatures": check_single("temperatures", model.temperatures)},
        "points": point_tensors(model.points, model.costs, calibration),
        **backend_tensors(model.tuned_on),
    }
    if weights:
        tensors["backbone"] = embedded
    if model.splits:
        tensors["splits"] = {name: torch.from_numpy(sketch.ranks) for name, sketch in model.splits.items()}
    attachments = attachment_tensors(model.preprocessing, factory)
    if attachments:
        tensors["attachments"] = attachments
    return write_artifact(path, content, tensors)
