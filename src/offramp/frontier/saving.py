"""A frontier as an artifact."""

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from offramp.artifact import as_json, write_artifact
from offramp.backbone import Attachment, Backbone, Factory, build
from offramp.backbone.build import MOST_NETWORKS
from offramp.cost import Costs
from offramp.errors import InputError, SplitRefusedError
from offramp.exits import ExitBank
from offramp.frontier.embedding import embed
from offramp.frontier.frontier import Frontier
from offramp.frontier.stored_losses import loss_content, loss_tensors
from offramp.policy import OperatingPoint

__all__ = ["COSTS", "PRECISIONS", "check_made_again", "made_again", "save"]

LIBRARIES = ("timm", "torchvision", "transformers", "transformers_images")
"""Factories that make other libraries' networks."""

COSTS = ("stage", "carry", "answer", "decide", "full")
"""The columns of a cost table."""

PRECISIONS = {
    str(dtype).removeprefix("torch."): dtype for dtype in (torch.bfloat16, torch.half, torch.float, torch.double)
}
"""What the exits' weights may be in."""


def save(frontier: Frontier, path: str | Path, *, factory: Factory | None = None, weights: bool | None = None) -> None:
    """Write a frontier into a folder: exits, temperatures, thresholds, costs, all points, and where they came from.

    Args:
        frontier: What to save.
        path: The folder.
        factory: What makes the backbone, as `offramp.load` will look it up: `Factory("package.module:function",
            options)`; a registered backbone knows its own.
        weights: Embed the network's weights, so that what the factory makes need not have them; if left out, where the
            network is of timm, torchvision or transformers, whose names alone make none, or where the artifact that the
            frontier was loaded from had them.
    """
    if not isinstance(frontier, Frontier):
        raise InputError(
            f"expected a frontier, got {type(frontier).__name__}; save what offramp.fit gave, all points of it"
        )
    backbone, bank = frontier.backbone, frontier.bank
    frontier.preprocessing.check()
    factory = backbone.factory if factory is None else factory
    if weights is None:
        weights = frontier.embedded or (factory is not None and _of_libraries(factory))
    if factory is not None and not factory.members:  # the members of a cascade prepare inputs, each as it says
        factory = replace(factory, preprocessing=backbone.preprocessing)
    factory = None if factory is None else _as_loaded(factory)
    if weights and factory is None:
        raise InputError(
            f"weights of '{backbone.name}' would be of no use without a name to make the network by; give "
            "factory=Factory('package.module:function'), or weights=False and load with backbone=..."
        )
    embedded = _weights(backbone) if weights else {}
    if weights and factory is not None and not _names_code(factory):
        _check_made_again(backbone, factory, embedded)
    calibration = loss_content(frontier.points)
    content = {
        "backbone": {
            "factory": None if factory is None else _factory_content(factory),
            "name": backbone.name,
            "fingerprint": backbone.fingerprint(),
            "num_classes": backbone.num_classes,
            "num_exits": backbone.num_exits,
            "weights": weights,
        },
        "preprocessing": frontier.preprocessing.describe(),
        "pooling": frontier.pooling.name,
        "exits": _bank_content(bank),
        "costs": {policy: len(costs.tables) for policy, costs in frontier.costs.items()},
        "full_ms": frontier.full_ms,
        "policies": list(frontier.points),
        "points": {policy: [_point_content(point) for point in points] for policy, points in frontier.points.items()},
        "calibration": calibration,
        "full_accuracy": frontier.full_accuracy,
        "classes": list(frontier.classes),
        "contributions": [[one.name, one.gain, one.kept] for one in frontier.contributions],
        "provenance": dict(frontier.provenance),
    }
    tensors = {
        "exits": {**bank.state_dict(), "temperatures": _checked("temperatures", frontier.temperatures, torch.float32)},
        "points": {
            **_cost_tensors(frontier.costs),
            **_point_tensors(frontier.points),
            **_leaving_tensors(frontier.points),
            **loss_tensors(frontier.points, calibration),
        },
    }
    if weights:
        tensors["backbone"] = embedded
    if frontier.splits:
        tensors["splits"] = {name: torch.from_numpy(known.ranks) for name, known in frontier.splits.items()}
    attached = [*frontier.preprocessing.attachments(), *([] if factory is None else _attachments(factory))]
    if attached:
        tensors["attachments"] = {one.sha256: _bytes(one) for one in attached}
    write_artifact(path, content, tensors)


def made_again(backbone: Backbone) -> bool:
    """Tell whether a backbone's own factory makes it again, given its weights: an artifact then needs no code."""
    if backbone.factory is None or _names_code(backbone.factory):
        return False
    try:
        check_made_again(backbone)
    except InputError:
        return False
    return True


def check_made_again(backbone: Backbone) -> None:
    """Refuse a backbone that its factory, given the weights, does not make again: better before exits are fitted."""
    assert backbone.factory is not None
    _check_made_again(backbone, backbone.factory, _weights(backbone))


def _check_made_again(backbone: Backbone, factory: Factory, weights: Mapping[str, Tensor]) -> None:
    """Refuse a factory that makes another network: better now than when the artifact is loaded."""
    try:
        with torch.random.fork_rng(devices=[]):  # the weights it is made with are thrown away
            made = build(factory)
        embed(made, weights)
        reason = (
            None if made.fingerprint() == backbone.fingerprint() else "it was made with other options or changed since"
        )
    except (InputError, SplitRefusedError) as error:
        reason = str(error)
    if reason is not None:
        raise InputError(
            f"'{factory.name}' with {reprlib.repr(dict(factory.options))} does not make '{backbone.name}' again: "
            f"{reason}; give factory=Factory('package.module:function'), or weights=False and load with backbone=..."
        )


def _as_loaded(factory: Factory) -> Factory:
    """Return the factory as `load` will have it: its options have been JSON, where all keys are texts."""
    return replace(factory, options=as_json(factory.options), members=tuple(map(_as_loaded, factory.members)))


def _of_libraries(factory: Factory) -> bool:
    """Tell whether libraries make the network, all of its members: by its name, without trained weights."""
    return all(map(_of_libraries, factory.members)) if factory.members else factory.name in LIBRARIES


def _names_code(factory: Factory) -> bool:
    """Whether somebody's code makes the network, or a member of it: only who loads it can say that it may run."""
    return ":" in factory.name or any(map(_names_code, factory.members))


def _attachments(factory: Factory) -> list[Attachment]:
    return [*factory.preprocessing.attachments(), *(one for member in factory.members for one in _attachments(member))]


def _bytes(attachment: Attachment) -> Tensor:
    return torch.frombuffer(bytearray(attachment.content), dtype=torch.uint8)


def _factory_content(factory: Factory) -> dict[str, Any]:
    if factory.size > MOST_NETWORKS:
        raise InputError(f"a cascade of {factory.size} networks cannot be saved, {MOST_NETWORKS} at most")
    factory.preprocessing.check()
    return {
        "name": factory.name,
        "options": dict(factory.options),
        "preprocessing": factory.preprocessing.describe(),
        "members": [_factory_content(member) for member in factory.members],
    }


def _bank_content(bank: ExitBank) -> dict[str, Any]:
    precisions = {str(value.dtype).removeprefix("torch.") for value in bank.state_dict().values()}
    if len(precisions) != 1 or not precisions <= set(PRECISIONS):
        raise InputError(
            f"expected exits in one precision of {', '.join(PRECISIONS)}, got {type(bank).__name__} in "
            f"{', '.join(sorted(precisions))}; convert them before saving"
        )
    return {
        "kind": bank.kind,
        "options": bank.options(),
        "precision": precisions.pop(),
        "widths": list(bank.widths),
        "stages": list(bank.stages),
        "averaging": list(bank.averaging.stages),
    }


def _weights(backbone: Backbone) -> dict[str, Tensor]:
    state = backbone.state_dict()
    if any(not isinstance(value, Tensor) or value.is_quantized for value in state.values()):
        raise InputError(
            f"the weights of '{backbone.name}' are quantised and cannot be embedded; save with weights=False and a "
            "factory that makes the network with its weights"
        )
    return state


def _cost_tensors(costs: Mapping[str, Costs]) -> dict[str, Tensor]:
    return {
        f"costs.{policy}.{column}": torch.stack([getattr(table, column) for table in priced.tables]).double()
        for policy, priced in costs.items()
        for column in COSTS
    }


def _leaving_tensors(points: Mapping[str, Sequence[OperatingPoint]]) -> dict[str, Tensor]:
    """Who leaves where, of the policies whose points all know it."""
    tensors = {}
    for policy, listed in points.items():
        known = [point.leaving for point in listed if point.leaving is not None]
        if len(known) == len(listed):
            tensors[f"{policy}.leaving"] = torch.stack(known).double()
    return tensors


def _point_content(point: OperatingPoint) -> dict[str, Any]:
    return {"active": list(point.active), "classifier": point.classifier, "promised": dict(point.promised)}


def _point_tensors(points: Mapping[str, Sequence[OperatingPoint]]) -> dict[str, Tensor]:
    """Every number of the points, stacked: thousands of small tensors would take longer to open than to use."""
    tensors = {}
    for policy, listed in points.items():
        tensors[f"{policy}.temperatures"] = torch.stack([point.temperatures for point in listed])
        for name in listed[0].parameters:
            tensors[f"{policy}.parameters.{name}"] = torch.stack([point.parameters[name] for point in listed])
        for miscoverage in listed[0].conformal_thresholds:
            columns = [point.conformal_thresholds[miscoverage] for point in listed]
            tensors[f"{policy}.conformal.{miscoverage!r}"] = torch.stack(columns)
    return {name: _checked(name, tensor, torch.float32) for name, tensor in tensors.items()}


def _checked(name: str, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    if tensor.dtype != dtype:
        raise InputError(f"expected {name} in {dtype}, got {tensor.dtype}; convert it before saving")
    return tensor
