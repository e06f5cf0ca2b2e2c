"""A frontier from an artifact, or a word on what is wrong with it."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch

from offramp.artifact import LARGEST, Artifact, Field, read_artifact
from offramp.backbone import POOLINGS, STEPS, Attachment, Backbone, Factory, Preprocessing, build
from offramp.backbone.factory import MOST_CLASSES
from offramp.errors import ArtifactError, InputError, SplitRefusedError, UnknownNameError, UntrustedNameError
from offramp.exits import EXITS, Averaging, ExitBank
from offramp.features import IdSketch
from offramp.features.sketch import MOST_RANKS
from offramp.frontier.contributions import Contribution
from offramp.frontier.embedding import embed
from offramp.frontier.frontier import Frontier
from offramp.frontier.saving import PRECISIONS
from offramp.frontier.stored_losses import read_losses
from offramp.frontier.stored_points import MOST, TEMPERATURES, read_costs, read_points
from offramp.frontier.tensors import Tensors
from offramp.policy import POLICIES
from offramp.registry import Registry, check_own_name

__all__ = ["load"]

T = TypeVar("T")

SPLITS = ("fit", "tune", "calibrate", "recalibrate")
"""Splits whose ids an artifact may have."""

MOST_EXITS = 10_000
"""Stages at most: sixteen of the deepest ResNets would have 9,600."""


def load(path: str | Path, *, backbone: Backbone | None = None, trust: Collection[str] = ()) -> Frontier:
    """Read a frontier that was saved.

    Nothing in the folder is run. The network is made from a registered name, from a `package.module:function` the
    caller trusts, or given by the caller; it must be the one the frontier was fitted for.

    Args:
        path: The folder.
        backbone: The network, where it is not to be made from its name. It is left as it is, weights included.
        trust: Names `package.module:name` of third-party code that may be imported: the network's factory, exits, a
            pooling, policies.

    Returns:
        The frontier.

    Raises:
        ArtifactError: If anything in the folder is not as docs/artifact.md says; it names the file and the field.
        UntrustedNameError: If the artifact names code that `trust` does not list.
        UnknownNameError: If the network's factory is not registered here.
        MissingExtraError: If a library that the network or its preprocessing needs is not installed.
    """
    if backbone is not None and not isinstance(backbone, Backbone):
        raise InputError(
            f"expected a backbone, got {type(backbone).__name__}; cut the network with offramp.split first"
        )
    artifact = read_artifact(path)
    content = artifact.content
    # The exits first: theirs is a file of its own size, which bounds what the network's factory is asked for.
    bank = _bank(artifact, trust)
    attached = _attachments(artifact)
    embedded = backbone is None and content.at("backbone").at("weights").flag()
    backbone = _backbone(artifact, backbone, trust, attached)
    _check_stages(content.at("exits"), bank, backbone)
    exits, points = Tensors(artifact, "exits"), Tensors(artifact, "points")
    costs = {policy: read_costs(field, policy, points, bank) for policy, field in content.at("costs").entries().items()}
    for policy in content.at("points").entries():
        place = Field(content.file, f"points.{policy}", policy)
        _check_own_name(_registered(place, POLICIES, trust), place)
    stored = content.at("points").entries()
    order = [item.text() for item in content.at("policies").items()]
    if sorted(order) != sorted(stored):
        raise content.at("policies").wrong(f"the policies that points are of, {', '.join(stored)}")
    listed = {policy: read_points(stored[policy], policy, points, bank, costs.get(policy)) for policy in order}
    if not listed or not set(listed) <= set(costs):
        raise content.at("points").wrong(f"at least one policy, each with costs ({', '.join(costs)})")
    listed = {policy: read_losses(content.at("calibration"), policy, own, points) for policy, own in listed.items()}
    points.check_all_read()
    return Frontier(
        backbone=backbone,
        preprocessing=_preprocessing(content.at("preprocessing"), attached),
        pooling=_check_own_name(_registered(content.at("pooling"), POOLINGS, trust), content.at("pooling")),
        bank=bank,
        costs=costs,
        full_ms=_full_ms(content.at("full_ms")),
        points=listed,
        temperatures=exits.read("temperatures", (bank.stacked, backbone.num_exits), within=TEMPERATURES),
        full_accuracy=content.at("full_accuracy").number(low=0, high=1),
        classes=_classes(content.at("classes"), backbone.num_classes),
        contributions=[_contribution(field) for field in content.at("contributions").items()],
        provenance=_provenance(content.at("provenance")),
        splits=_splits(artifact),
        embedded=embedded,
    )


def _splits(artifact: Artifact) -> dict[str, IdSketch]:
    """Hashed ids of the samples that the frontier was made from, where they were saved."""
    if "splits" not in artifact.tensors:
        return {}
    tensors = Tensors(artifact, "splits")
    for name, tensor in tensors.named.items():
        if name not in SPLITS:
            raise tensors.wrong(name, f"expected one of {', '.join(SPLITS)}")
        ranks = tensors.read(name, (tensor.numel(),), dtype=torch.int64)
        if not 1 <= len(ranks) <= MOST_RANKS or bool(ranks[0] < 0) or bool((ranks[1:] <= ranks[:-1]).any()):
            raise tensors.wrong(name, f"expected 1 to {MOST_RANKS} different numbers of at least 0 in ascending order")
    return {name: IdSketch(tensor.numpy()) for name, tensor in tensors.named.items()}


def _one_of(field: Field, known: Iterable[str]) -> str:
    if field.text() not in known:
        raise field.wrong(f"one of those registered here ({', '.join(known)})")
    return field.text()


def _registered(field: Field, known: Registry[T], trust: Collection[str]) -> T:
    """Return what a name of the manifest stands for; third-party code only where the caller trusts it."""
    if ":" not in field.text():
        return known.get(_one_of(field, known))
    try:
        return known.get(field.text(), trust=trust)
    except UntrustedNameError as error:
        raise UntrustedNameError(f"{field.file}, field '{field.place}': {error}") from error
    except InputError as error:
        raise ArtifactError(f"{field.file}, field '{field.place}': {error}") from error


def _check_own_name(entry: T, field: Field) -> T:
    """Refuse an object that has another name than the manifest gives it."""
    try:
        check_own_name(entry, field.text())
    except InputError as error:
        raise ArtifactError(f"{field.file}, field '{field.place}': {error}") from error
    return entry


def _contribution(field: Field) -> Contribution:
    parts = field.items()
    if len(parts) != 3:
        raise field.wrong("a name, a gain, and whether it is kept")
    name, gain, kept = parts
    return Contribution(name.text(), gain.number(low=-1, high=1), kept.flag())


def _classes(field: Field, count: int) -> tuple[str, ...]:
    names = tuple(item.text() for item in field.items())
    if len(names) not in (0, count):
        raise field.wrong(f"no names, or {count}, one a class")
    if len(set(names)) != len(names):
        raise field.wrong("different names")
    return names


def _provenance(field: Field) -> dict[str, Any]:
    """Check the entries of provenance that are used; keep the rest as it is."""
    entries = field.entries()
    splits = list(entries["splits"].entries().values()) if "splits" in entries else []
    for split in [*splits, *([entries["recalibrated"]] if "recalibrated" in entries else [])]:
        split.at("samples").integer(high=10**15)
    if "latency" in entries:
        entries["latency"].at("backend").text()
    return {key: entry.value for key, entry in entries.items()}


def _attachments(artifact: Artifact) -> dict[str, Attachment]:
    """Files that preprocessing steps need, by their hashes."""
    if "attachments" not in artifact.tensors:
        return {}
    tensors = Tensors(artifact, "attachments")
    found = {}
    for name, tensor in tensors.named.items():
        tensors.read(name, (tensor.numel(),), dtype=torch.uint8)
        found[name] = Attachment(tensor.numpy().tobytes())
        if found[name].sha256 != name:
            raise tensors.wrong(name, "expected content of the hash that is its name")
    return found


def _parameter(field: Field, attached: Mapping[str, Attachment]) -> Any:
    if not isinstance(field.value, dict):
        return field.value
    name = field.at("sha256").text()
    if name not in attached:
        raise field.wrong("the hash of a tensor of the file 'attachments'")
    return attached[name]


def _preprocessing(field: Field, attached: Mapping[str, Attachment]) -> Preprocessing:
    steps = []
    for step in field.items():
        parts = step.items()
        if len(parts) != 2:
            raise step.wrong("a step's name and its parameters")
        name, parameters = parts
        given = {key: _parameter(value, attached) for key, value in parameters.entries().items()}
        steps.append((_one_of(name, STEPS), given))
    made = Preprocessing(tuple(steps))
    try:
        made.check()
    except InputError as error:
        raise ArtifactError(f"{field.file}, field '{field.place}': {error}") from error
    return made


def _factory(field: Field, classes: int, attached: Mapping[str, Attachment]) -> Factory:
    name, options = field.at("name").text(), field.at("options").entries()
    if ":" not in name and "num_classes" in options:
        options["num_classes"].integer(low=classes, high=classes)
    members = tuple(_factory(member, classes, attached) for member in field.at("members").items())
    plain = {key: option.value for key, option in options.items()}
    return Factory(name, plain, _preprocessing(field.at("preprocessing"), attached), members)


def _backbone(
    artifact: Artifact, backbone: Backbone | None, trust: Collection[str], attached: Mapping[str, Attachment]
) -> Backbone:
    """The network the frontier was fitted for, and no other."""
    field = artifact.content.at("backbone")
    embedded = field.at("weights").flag()
    if backbone is None:
        backbone = _made(field, trust, attached)
        backbone.classes = _classes(artifact.content.at("classes"), backbone.num_classes) or backbone.classes
        if embedded:
            saved = Tensors(artifact, "backbone")
            try:
                embed(backbone, saved.named)
            except InputError as error:
                raise ArtifactError(f"{saved.file}: {error}; save the frontier again") from error
    for name in ("name", "num_classes", "num_exits"):
        if field.at(name).value != getattr(backbone, name):
            raise ArtifactError(
                f"{field.file}, field '{field.place}.{name}': the frontier was fitted for a network with {name} "
                f"{field.at(name).value!r}, this one has {getattr(backbone, name)!r}; give that network with "
                "backbone=..."
            )
    if backbone.fingerprint() != field.at("fingerprint").text():
        raise ArtifactError(
            f"{field.file}, field '{field.place}.fingerprint': the frontier was fitted for another network than this "
            f"'{backbone.name}', or for other weights of it; give that network with backbone=..., or fit again"
        )
    _check_classes(artifact.content.at("classes"), backbone)
    return backbone


def _check_classes(field: Field, backbone: Backbone) -> None:
    """Refuse a network that calls its classes otherwise than the frontier does."""
    names = _classes(field, backbone.num_classes)
    place = next((i for i, pair in enumerate(zip(names, backbone.classes, strict=False)) if pair[0] != pair[1]), None)
    if place is not None:
        raise field.wrong(
            f"the network's names: class {place} is '{backbone.classes[place]}' there, not '{names[place]}'"
        )


def _made(field: Field, trust: Collection[str], attached: Mapping[str, Attachment]) -> Backbone:
    where = f"{field.file}, field '{field.place}.factory'"
    if field.at("factory").value is None:
        raise ArtifactError(
            f"{where}: the network '{field.at('name').text()}' was saved without a name to make it by; give it with "
            "backbone=..."
        )
    factory = _factory(field.at("factory"), field.at("num_classes").integer(low=2, high=MOST_CLASSES), attached)
    try:
        return build(factory, trust=trust)
    except (UnknownNameError, UntrustedNameError) as error:
        raise type(error)(f"{where}: {error}") from error
    except (InputError, SplitRefusedError) as error:
        raise ArtifactError(f"{where}: {error}") from error


def _bank(artifact: Artifact, trust: Collection[str]) -> ExitBank:
    """The exits with the weights of the file: made without memory of their own, so that no number asks for any."""
    field, backbone = artifact.content.at("exits"), artifact.content.at("backbone")
    length = backbone.at("num_exits").integer(low=1, high=MOST_EXITS)
    classes = backbone.at("num_classes").integer(low=2, high=MOST_CLASSES)
    kind = _registered(field.at("kind"), EXITS, trust)
    if not (isinstance(kind, type) and issubclass(kind, ExitBank)):
        raise field.at("kind").wrong("a class of exits (offramp.exits.ExitBank)")
    precision = PRECISIONS[_one_of(field.at("precision"), PRECISIONS)]
    widths = field.at("widths").integers(low=1, high=MOST)
    if len(widths) != length:
        raise field.at("widths").wrong(f"{length} numbers, one a stage")
    stages, averaging = (field.at(name).integers(high=length - 1) for name in ("stages", "averaging"))
    options = _options(field.at("options"), trust)
    tensors = Tensors(artifact, "exits")
    state = {name: tensor for name, tensor in tensors.named.items() if name != "temperatures"}
    for name, tensor in state.items():
        tensors.read(name, tuple(tensor.shape), dtype=precision)
    try:
        with torch.device("meta"):
            bank = kind.make(widths, stages, classes, options)
            bank.averaging = Averaging(averaging, torch.zeros(len(averaging)), torch.ones(len(averaging)))
        bank.load_state_dict(state, assign=True)
    except (InputError, UnknownNameError, RuntimeError, TypeError, KeyError) as error:
        reason = str(error)[:500]
        raise ArtifactError(f"{tensors.file}: does not fit {field.file}, field '{field.place}': {reason}") from error
    return bank.eval()


def _options(field: Field, trust: Collection[str], depth: int = 2) -> dict[str, Any]:
    """Return options of exits: counts, names, and what exits that hold others say of those."""
    options: dict[str, Any] = {}
    for name, entry in field.entries().items():
        if isinstance(entry.value, dict) and depth:
            options[name] = _options(entry, trust, depth - 1)
        elif isinstance(entry.value, str):
            options[name] = entry.text()
            if name == "kind":  # of exits that these hold: known from here on, where the caller trusts it
                _registered(entry, EXITS, trust)
        else:
            options[name] = entry.integer(low=1, high=MOST)
    return options


def _check_stages(field: Field, bank: ExitBank, backbone: Backbone) -> None:
    """Every stage has one classifier, and averaging is of the network's own."""
    rest = tuple(stage for stage in range(backbone.num_exits) if stage not in backbone.own_heads)
    if bank.stages != rest:
        raise field.at("stages").wrong(f"the stages without a head of the network's own, {list(rest)}")
    averaging = bank.averaging
    if averaging.stages not in ((), backbone.own_heads):
        raise field.at("averaging").wrong(f"none, or the stages of the network's own heads, {list(backbone.own_heads)}")
    shares, temperatures = averaging.shares, averaging.temperatures
    low, high = TEMPERATURES
    outside = (shares < 0) | (shares >= 1) | (temperatures < low) | (temperatures > high)
    if bool(outside.any()) or bool(shares[:1].any()):
        raise field.at("averaging").wrong("shares from 0 to below 1, the first 0, and temperatures above 0")


def _full_ms(field: Field) -> float | None:
    """Milliseconds, or None where costs are in Mul-Adds."""
    return None if field.value is None else field.number(low=1 / LARGEST)
