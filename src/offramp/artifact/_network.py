"""The network in an artifact: the factory that makes it again, its weights, and its preprocessing."""

import reprlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from offramp.artifact._format import SAVE_AGAIN, Artifact, Field, as_json
from offramp.artifact._tensors import Tensors
from offramp.backbone import Factory
from offramp.backbone._backbone import Backbone
from offramp.backbone._factory import MOST_CLASSES
from offramp.backbone._making import MOST_NETWORKS, build, name_to_trust
from offramp.errors import ArtifactError, InputError, SplitRefusedError, UnknownNameError, UntrustedNameError
from offramp.preprocessing import STEPS, Preprocessing
from offramp.preprocessing._preprocessing import Attachment

__all__ = [
    "attachment_tensors",
    "check_rebuilds",
    "embed",
    "factory_content",
    "factory_for",
    "is_of_libraries",
    "names_code",
    "read_attachments",
    "read_backbone",
    "read_classes",
    "read_preprocessing",
    "rebuilds",
    "weight_tensors",
]

LIBRARIES = ("timm", "torchvision", "transformers", "transformers_images")
"""Factories that make other libraries' networks."""

WITHOUT_WEIGHTS = ("callable_model", "encoder", "llm")
"""Factories that make members without weights."""

_FACTORY_HINT = "give factory=Factory('package.module:function'), or weights=False and load with backbone=..."


def factory_for(backbone: Backbone, factory: Factory | None = None) -> Factory | None:
    """Return the factory to save with a backbone, as it will be loaded again: JSON has texts for all keys."""
    factory = backbone.factory if factory is None else factory
    if factory is None:
        return None
    if not factory.members:  # the members of a cascade prepare their own inputs
        factory = replace(factory, preprocessing=backbone.preprocessing)
    return _as_loaded(factory)


def _as_loaded(factory: Factory) -> Factory:
    return replace(factory, options=as_json(factory.options), members=tuple(map(_as_loaded, factory.members)))


def is_of_libraries(factory: Factory) -> bool:
    """Tell whether other libraries make the network, or all members of it that have weights, without trained ones."""
    weighty = [member for member in factory.members if member.name not in WITHOUT_WEIGHTS]
    return all(map(is_of_libraries, weighty)) and bool(weighty) if factory.members else factory.name in LIBRARIES


def names_code(factory: Factory) -> bool:
    """Tell whether third-party code makes the network or a member of it."""
    needed = name_to_trust(factory.name, factory.options)
    return needed is not None or any(map(names_code, factory.members))


def rebuilds(backbone: Backbone) -> bool:
    """Tell whether a backbone's own factory makes it again, given its weights: an artifact then needs no code."""
    if backbone.factory is None or names_code(backbone.factory):
        return False
    try:
        check_rebuilds(backbone, backbone.factory)
    except InputError:
        return False
    return True


def check_rebuilds(backbone: Backbone, factory: Factory, weights: Mapping[str, Tensor] | None = None) -> None:
    """Refuse a factory that makes another network: better now than when the artifact is loaded.

    Args:
        backbone: The network.
        factory: The factory to check.
        weights: Weights of the network; read from it if left out.
    """
    weights = weight_tensors(backbone) if weights is None else weights
    try:
        with torch.random.fork_rng(devices=[]):  # the weights it is made with are thrown away
            rebuilt = build(factory)
        embed(rebuilt, weights)
        same = rebuilt.fingerprint() == backbone.fingerprint()
        reason = None if same else "it was made with other options or changed since"
    except (InputError, SplitRefusedError) as error:
        reason = str(error)
    if reason is not None:
        raise InputError(
            f"'{factory.name}' with {reprlib.repr(dict(factory.options))} does not make '{backbone.name}' again: "
            f"{reason}",
            hint=_FACTORY_HINT,
        )


def factory_content(factory: Factory) -> dict[str, Any]:
    """Return the manifest's entry of a factory."""
    if factory.size > MOST_NETWORKS:
        raise InputError(expected=f"a cascade of at most {MOST_NETWORKS} networks", got=f"{factory.size}")
    factory.preprocessing.check()
    return {
        "name": factory.name,
        "options": dict(factory.options),
        "preprocessing": factory.preprocessing.describe(),
        "members": [factory_content(member) for member in factory.members],
    }


def weight_tensors(backbone: Backbone) -> dict[str, Tensor]:
    """Return the weights of a network to embed."""
    state = backbone.state_dict()
    if any(not isinstance(value, Tensor) or value.is_quantized for value in state.values()):
        raise InputError(
            expected=f"weights of '{backbone.name}' that can be embedded",
            got="quantised ones",
            hint="save with weights=False and a factory that makes the network with its weights",
        )
    return state


def embed(backbone: Backbone, weights: Mapping[str, Tensor]) -> None:
    """Give a network just made the weights of an artifact, in their precision.

    Args:
        backbone: The network; changed.
        weights: Parameters and buffers by their names.
    """
    own = dict(backbone.named_parameters(remove_duplicate=False)) | dict(backbone.named_buffers(remove_duplicate=False))
    for name, tensor in weights.items():
        if name in own and own[name].is_floating_point() and tensor.is_floating_point():
            own[name].data = own[name].data.to(tensor.dtype)
        elif name in own and own[name].dtype != tensor.dtype:
            raise InputError(f"tensor '{name}'", expected=str(own[name].dtype), got=str(tensor.dtype))
    try:
        backbone.load_state_dict(dict(weights))
    except RuntimeError as error:
        raise InputError(f"weights do not fit the network '{backbone.name}': {str(error)[:500]}") from error


def attachment_tensors(preprocessing: Preprocessing, factory: Factory | None) -> dict[str, Tensor]:
    """Return the files that preprocessing needs, by their hashes."""
    attachments = [*preprocessing.attachments(), *([] if factory is None else _attachments(factory))]
    return {
        attachment.sha256: torch.frombuffer(bytearray(attachment.content), dtype=torch.uint8)
        for attachment in attachments
    }


def _attachments(factory: Factory) -> list[Attachment]:
    members = [attachment for member in factory.members for attachment in _attachments(member)]
    return [*factory.preprocessing.attachments(), *members]


def read_attachments(artifact: Artifact) -> dict[str, Attachment]:
    """Read the files that preprocessing needs, by their hashes."""
    if "attachments" not in artifact.tensors:
        return {}
    tensors = Tensors(artifact, "attachments")
    attachments = {}
    for name, tensor in tensors.named.items():
        tensors.read(name, (tensor.numel(),), dtype=torch.uint8)
        attachments[name] = Attachment(tensor.numpy().tobytes())
        if attachments[name].sha256 != name:
            raise tensors.wrong(name, expected="content of the hash that is its name", got=attachments[name].sha256)
    return attachments


def read_preprocessing(field: Field, attachments: Mapping[str, Attachment]) -> Preprocessing:
    """Read the steps of a preprocessing."""
    steps = []
    for step in field.items():
        parts = step.items()
        if len(parts) != 2:
            raise step.wrong("a step's name and its parameters")
        name, parameters = parts
        values = {key: _read_parameter(value, attachments) for key, value in parameters.entries().items()}
        steps.append((name.one_of(STEPS), values))
    preprocessing = Preprocessing(tuple(steps))
    try:
        preprocessing.check()
    except InputError as error:
        raise ArtifactError(f"{field.file}, field '{field.place}': {error}") from error
    return preprocessing


def _read_parameter(field: Field, attachments: Mapping[str, Attachment]) -> Any:
    if not isinstance(field.value, dict):
        return field.value
    name = field.at("sha256").text()
    if name not in attachments:
        raise field.wrong("the hash of a tensor of the file 'attachments'")
    return attachments[name]


def read_classes(field: Field, count: int) -> tuple[str, ...]:
    """Read class names: none, or one per class."""
    names = tuple(item.text() for item in field.items())
    if len(names) not in (0, count):
        raise field.wrong(f"no names, or {count}, one per class")
    if len(set(names)) != len(names):
        raise field.wrong("different names")
    return names


def read_backbone(
    artifact: Artifact, backbone: Backbone | None, trust: Collection[str], attachments: Mapping[str, Attachment]
) -> Backbone:
    """Return the network that the exits were fitted for, and no other.

    Args:
        artifact: The artifact.
        backbone: The network, if the caller gives it; made by its factory otherwise.
        trust: Names of third-party code that may be imported.
        attachments: Files that preprocessing needs.
    """
    field = artifact.content.at("backbone")
    embedded = field.at("weights").flag()
    if backbone is None:
        backbone = _build(field, trust, attachments)
        backbone.classes = read_classes(artifact.content.at("classes"), backbone.num_classes) or backbone.classes
        if embedded:
            weights = Tensors(artifact, "backbone")
            try:
                embed(backbone, weights.named)
            except InputError as error:
                raise ArtifactError(f"{weights.file}: {error}", hint=SAVE_AGAIN) from error
    for name in ("name", "num_classes", "num_exits"):
        if field.at(name).value != getattr(backbone, name):
            raise ArtifactError(
                f"{field.file}, field '{field.place}.{name}'",
                expected=f"the network that the exits were fitted for, with {name} {field.at(name).value!r}",
                got=f"one with {getattr(backbone, name)!r}",
                hint="give that network with backbone=...",
            )
    if backbone.fingerprint() != field.at("fingerprint").text():
        raise ArtifactError(
            f"{field.file}, field '{field.place}.fingerprint'",
            expected="the network that the exits were fitted for",
            got=f"another '{backbone.name}', or other weights of it",
            hint="give that network with backbone=..., or fit again",
        )
    _check_classes(artifact.content.at("classes"), backbone)
    return backbone


def _check_classes(field: Field, backbone: Backbone) -> None:
    """Refuse a network whose class names are not the model's."""
    names = read_classes(field, backbone.num_classes)
    place = next((i for i, pair in enumerate(zip(names, backbone.classes, strict=False)) if pair[0] != pair[1]), None)
    if place is not None:
        raise field.wrong(
            f"the network's names: class {place} is '{backbone.classes[place]}' there, not '{names[place]}'"
        )


def _build(field: Field, trust: Collection[str], attachments: Mapping[str, Attachment]) -> Backbone:
    """Make the network by its factory."""
    place = f"{field.file}, field '{field.place}.factory'"
    if field.at("factory").value is None:
        raise ArtifactError(
            f"{place}: the network '{field.at('name').text()}' was saved without a factory",
            hint="give the network with backbone=...",
        )
    classes = field.at("num_classes").integer(low=2, high=MOST_CLASSES)
    factory = _read_factory(field.at("factory"), classes, attachments)
    try:
        return build(factory, trust=trust)
    except (UnknownNameError, UntrustedNameError) as error:
        raise type(error)(f"{place}: {error}") from error
    except (InputError, SplitRefusedError) as error:
        raise ArtifactError(f"{place}: {error}") from error


def _read_factory(field: Field, classes: int, attachments: Mapping[str, Attachment]) -> Factory:
    name, options = field.at("name").text(), field.at("options").entries()
    if ":" not in name and "num_classes" in options:
        options["num_classes"].integer(low=classes, high=classes)
    members = tuple(_read_factory(member, classes, attachments) for member in field.at("members").items())
    values = {key: option.value for key, option in options.items()}
    return Factory(name, values, read_preprocessing(field.at("preprocessing"), attachments), members)
