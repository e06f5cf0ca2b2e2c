"""The exits in an artifact."""

from collections.abc import Collection
from typing import Any

import torch

from offramp.artifact._format import Artifact, Field
from offramp.artifact._points import TEMPERATURES
from offramp.artifact._tensors import Tensors
from offramp.backbone._backbone import Backbone
from offramp.backbone._factory import MOST_CLASSES
from offramp.errors import ArtifactError, InputError, UnknownNameError
from offramp.exits import EXITS, ExitSet
from offramp.exits._averaging import Averaging

__all__ = ["check_stages", "exits_content", "read_exits"]

PRECISIONS = {
    str(dtype).removeprefix("torch."): dtype for dtype in (torch.bfloat16, torch.half, torch.float, torch.double)
}
"""Types that the weights of exits may have."""

MOST_EXITS = 10_000
"""Largest number of stages: sixteen of the deepest ResNets would have 9,600."""

MOST_FEATURES = 100_000
"""Largest number of features of a stage, and of any option of exits."""


def exits_content(exits: ExitSet) -> dict[str, Any]:
    """Return the manifest's entry of the exits."""
    precisions = {str(value.dtype).removeprefix("torch.") for value in exits.state_dict().values()}
    if len(precisions) != 1 or not precisions <= set(PRECISIONS):
        raise InputError(
            expected=f"exits in one precision of {', '.join(PRECISIONS)}",
            got=f"{type(exits).__name__} in {', '.join(sorted(precisions))}",
            hint="convert them before saving",
        )
    return {
        "kind": exits.kind,
        "options": exits.options(),
        "precision": precisions.pop(),
        "widths": list(exits.widths),
        "stages": list(exits.stages),
        "averaging": list(exits.averaging.stages),
    }


def read_exits(artifact: Artifact, trust: Collection[str]) -> ExitSet:
    """Read the exits; they are made without memory of their own, so that no number in the file asks for any."""
    field, backbone = artifact.content.at("exits"), artifact.content.at("backbone")
    length = backbone.at("num_exits").integer(low=1, high=MOST_EXITS)
    classes = backbone.at("num_classes").integer(low=2, high=MOST_CLASSES)
    kind = field.at("kind").look_up(EXITS, trust)
    if not (isinstance(kind, type) and issubclass(kind, ExitSet)):
        raise field.at("kind").wrong("a class of exits (offramp.exits.ExitSet)")
    precision = PRECISIONS[field.at("precision").one_of(PRECISIONS)]
    widths = field.at("widths").integers(low=1, high=MOST_FEATURES)
    if len(widths) != length:
        raise field.at("widths").wrong(f"{length} numbers, one per stage")
    stages, averaging = (field.at(name).integers(high=length - 1) for name in ("stages", "averaging"))
    options = _read_options(field.at("options"), trust)
    tensors = Tensors(artifact, "exits")
    state = {name: tensor for name, tensor in tensors.named.items() if name != "temperatures"}
    for name, tensor in state.items():
        tensors.read(name, tuple(tensor.shape), dtype=precision)
    try:
        with torch.device("meta"):
            exits = kind.make(widths, stages, classes, options)
            exits.averaging = Averaging(averaging, torch.zeros(len(averaging)), torch.ones(len(averaging)))
        exits.load_state_dict(state, assign=True)
    except (InputError, UnknownNameError, RuntimeError, TypeError, KeyError) as error:
        reason = str(error)[:500]
        raise ArtifactError(f"{tensors.file}: does not fit {field.file}, field '{field.place}': {reason}") from error
    return exits.eval()


def _read_options(field: Field, trust: Collection[str], depth: int = 2) -> dict[str, Any]:
    """Read options of exits: counts, names, and the options of exits that they hold."""
    options: dict[str, Any] = {}
    for name, entry in field.entries().items():
        if isinstance(entry.value, dict) and depth:
            options[name] = _read_options(entry, trust, depth - 1)
        elif isinstance(entry.value, str):
            options[name] = entry.text()
            if name == "kind":  # of exits that these hold: registered from here on, if the caller trusts it
                entry.look_up(EXITS, trust)
        else:
            options[name] = entry.integer(low=1, high=MOST_FEATURES)
    return options


def check_stages(field: Field, exits: ExitSet, backbone: Backbone) -> None:
    """Refuse exits or an averaging that do not match the network: exits follow stages without a head of their own."""
    rest = tuple(stage for stage in range(backbone.num_exits) if stage not in backbone.own_heads)
    if exits.stages != rest:
        raise field.at("stages").wrong(f"the stages without a head of the network's own, {list(rest)}")
    averaging = exits.averaging
    if averaging.stages not in ((), backbone.own_heads):
        raise field.at("averaging").wrong(f"none, or the stages of the network's own heads, {list(backbone.own_heads)}")
    shares, temperatures = averaging.shares, averaging.temperatures
    low, high = TEMPERATURES
    outside = (shares < 0) | (shares >= 1) | (temperatures < low) | (temperatures > high)
    if bool(outside.any()) or bool(shares[:1].any()):
        raise field.at("averaging").wrong("shares from 0 to below 1, the first 0, and temperatures above 0")
