"""Reading a model from an artifact."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch

from offramp._remote import is_address
from offramp.artifact._backend import read_backend
from offramp.artifact._exits import check_stages, read_exits
from offramp.artifact._format import LARGEST, Artifact, Field, read_artifact
from offramp.artifact._network import read_attachments, read_backbone, read_classes, read_preprocessing
from offramp.artifact._points import TEMPERATURES, read_chosen, read_costs, read_points
from offramp.artifact._tensors import Tensors
from offramp.backbone._backbone import Backbone
from offramp.cost._unit import CostUnit
from offramp.errors import ArtifactError, BudgetError, InputError, UnknownNameError
from offramp.exits import ExitSet
from offramp.features._ids import MOST_RANKS, IdSketch
from offramp.model._frontier import Contribution
from offramp.model._hub import HubAddress, download, is_hub_address
from offramp.model._model import EarlyExitModel
from offramp.model._predictor import SavedArtifact, mark_saved
from offramp.policy import POLICIES
from offramp.pooling import POOLINGS

__all__ = ["load"]

SPLITS = ("fit", "tune", "calibrate", "recalibrate")
"""Splits whose ids an artifact may have."""

REQUESTS = {"cost", "accuracy", "latency_ms", "max_drop", "confidence"}
"""Fields of a request that are numbers; loss, bound and policy are texts."""


def load(path: str | Path, *, backbone: Backbone | None = None, trust: Collection[str] = ()) -> EarlyExitModel:
    """Read a model that was saved.

    No code in the folder is run; graphs of a backend are run by ONNX Runtime. The network is made from a registered
    name, from a `package.module:function` the caller trusts, or given by the caller; it must be the one the exits were
    fitted for.

    Args:
        path: The folder; or `hf://owner/name` or `hf://owner/name@revision`, a repository of the Hugging Face Hub that
            `push_to_hub` has written (extra `hub`), which is downloaded into the cache of huggingface_hub.
        backbone: The network, if it is not to be made from its name. It is left as it is, weights included.
        trust: Names `package.module:name` of third-party code that may be imported: the network's factory, exits, a
            pooling, policies.

    Returns:
        The model, at the operating point it was saved at.

    Raises:
        ArtifactError: If anything in the folder is not as docs/reference/artifact.md says; it names file and field.
            If a repository cannot be read.
        UntrustedNameError: If the artifact names code that `trust` does not list.
        UnknownNameError: If the network's factory is not registered here.
        MissingExtraError: If a library that the network or its preprocessing needs is not installed.
    """
    if backbone is not None and not isinstance(backbone, Backbone):
        raise InputError(
            expected="a backbone", got=type(backbone).__name__, hint="split the network with offramp.split first"
        )
    address = None
    if is_hub_address(path):
        path = download(path)
        address = HubAddress.of_snapshot(path)  # with the commit: the branch may move on
    elif is_address(str(path)):
        raise InputError(
            expected="a folder or hf://owner/name", got=f"'{path}'", hint="copy the artifact to a folder first"
        )
    artifact = read_artifact(path)
    content = artifact.content
    # The exits first: they have a file of their own size, which bounds what the network's factory is asked for.
    exits = read_exits(artifact, trust)
    attachments = read_attachments(artifact)
    embedded = backbone is None and content.at("backbone").at("weights").flag()
    backbone = read_backbone(artifact, backbone, trust, attachments)
    check_stages(content.at("exits"), exits, backbone)
    tensors = Tensors(artifact, "points")
    costs = {
        policy: read_costs(field, policy, tensors, exits) for policy, field in content.at("costs").entries().items()
    }
    points = {
        policy: read_points(
            content.at("points").at(policy), content.at("calibration"), policy, tensors, exits, costs.get(policy)
        )
        for policy in _policies(content, trust)
    }
    if not points or not set(points) <= set(costs):
        raise content.at("points").wrong(f"at least one policy, each with costs ({', '.join(costs)})")
    tensors.check_all_read()
    pooling = content.at("pooling").check_own_name(content.at("pooling").look_up(POOLINGS, trust))
    view = read_backend(artifact, backbone, pooling, exits)
    model = EarlyExitModel(
        backbone=backbone,
        preprocessing=read_preprocessing(content.at("preprocessing"), attachments),
        pooling=pooling,
        exits=exits,
        costs=costs,
        unit=_unit(content.at("unit")),
        points=points,
        temperatures=_temperatures(artifact, exits, backbone),
        full_accuracy=content.at("full_accuracy").number(low=0, high=1),
        classes=read_classes(content.at("classes"), backbone.num_classes),
        contributions=[_contribution(field) for field in content.at("contributions").items()],
        provenance=_provenance(content.at("provenance")),
        splits=_splits(artifact),
        embedded=embedded,
        chosen=read_chosen(content.at("chosen"), points),
        backend=None if view is None else view.backend,
        tuned_on=view,
    )
    # Other machines have no such folder of the cache, so their processes are given the address.
    saved = SavedArtifact.at(path, artifact.sha256) if address is None else SavedArtifact(str(address), artifact.sha256)
    return mark_saved(_at_request(model, content.at("request")), saved)


def _unit(field: Field) -> CostUnit:
    full = field.at("full")
    return CostUnit(field.at("name").text(), None if full.value is None else full.number(low=1 / LARGEST))


def _policies(content: Field, trust: Collection[str]) -> list[str]:
    """Return the policies in their order, each registered or trusted."""
    stored = content.at("points").entries()
    for policy in stored:
        field = Field(content.file, f"points.{policy}", policy)
        field.check_own_name(field.look_up(POLICIES, trust))
    policies = [item.text() for item in content.at("policies").items()]
    if sorted(policies) != sorted(stored):
        raise content.at("policies").wrong(f"the policies that points are of, {', '.join(stored)}")
    return policies


def _temperatures(artifact: Artifact, exits: ExitSet, backbone: Backbone) -> torch.Tensor:
    shape = (exits.stacked, backbone.num_exits)
    return Tensors(artifact, "exits").read("temperatures", shape, within=TEMPERATURES)


def _at_request(model: EarlyExitModel, field: Field) -> EarlyExitModel:
    """Return the model at the point it was saved at."""
    entries = field.entries()
    request: dict[str, Any] = {
        name: entry.number() if name in REQUESTS else entry.text() for name, entry in entries.items()
    }
    if not request:
        return model
    try:
        return model.at(**request)
    except (TypeError, InputError, BudgetError, UnknownNameError) as error:
        raise ArtifactError(f"{field.file}, field '{field.place}': {str(error)[:500]}") from error


def _contribution(field: Field) -> Contribution:
    parts = field.items()
    if len(parts) != 3:
        raise field.wrong("a name, a gain, and true if it is kept")
    name, gain, kept = parts
    return Contribution(name.text(), gain.number(low=-1, high=1), kept.flag())


def _provenance(field: Field) -> dict[str, Any]:
    """Check the entries of provenance that are used; keep the rest as it is."""
    entries = field.entries()
    splits = list(entries["splits"].entries().values()) if "splits" in entries else []
    for split in [*splits, *([entries["recalibrated"]] if "recalibrated" in entries else [])]:
        split.at("samples").integer(high=10**15)
    if "latency" in entries:
        entries["latency"].at("backend").text()
    return {key: entry.value for key, entry in entries.items()}


def _splits(artifact: Artifact) -> dict[str, IdSketch]:
    """Return hashed ids of the samples that the model was fitted on, if they were saved."""
    if "splits" not in artifact.tensors:
        return {}
    tensors = Tensors(artifact, "splits")
    for name, tensor in tensors.named.items():
        if name not in SPLITS:
            raise tensors.wrong(name, expected=f"one of {', '.join(SPLITS)}", got=name)
        ranks = tensors.read(name, (tensor.numel(),), dtype=torch.int64)
        if not 1 <= len(ranks) <= MOST_RANKS or bool(ranks[0] < 0) or bool((ranks[1:] <= ranks[:-1]).any()):
            raise tensors.wrong(name, expected=f"1 to {MOST_RANKS} different numbers of at least 0 in ascending order")
    return {name: IdSketch(tensor.numpy()) for name, tensor in tensors.named.items()}
