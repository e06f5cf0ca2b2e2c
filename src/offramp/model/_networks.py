"""Conversion of a user's network to a backbone."""

import reprlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import nn

from offramp.artifact._format import LONGEST
from offramp.backbone import Cascade, Factory
from offramp.backbone._backbone import Backbone
from offramp.backbone._cascading import cascade
from offramp.backbone._making import name_to_trust
from offramp.backbone._splitting import split
from offramp.data._labelled import check_same_classes
from offramp.errors import InputError
from offramp.preprocessing import Preprocessing

if TYPE_CHECKING:
    from offramp.model._model import EarlyExitModel

__all__ = [
    "Network",
    "as_backbone",
    "check_device",
    "check_names",
    "check_stages",
    "names_to_trust",
    "preprocessing_of_part",
]

Network: TypeAlias = "Backbone | nn.Module | str | Sequence[Any] | Any"
"""A backbone; a torch module; "hf:FOLDER", "timm:NAME" or "torchvision:NAME,weights=FILE"; a `transformers` pipeline;
or a list of these, cheap to strong, for a cascade."""


def as_backbone(network: Network, example: Callable[[], Any], classes: Sequence[str] = ()) -> Backbone:
    """Return a network as a backbone: split into stages where it is not one yet.

    Args:
        network: The network.
        example: Function that returns a few inputs as a module takes them; called if a module has to be split.
        classes: Class names, if the members of a cascade do not know them.
    """
    if isinstance(network, Backbone):
        return network
    if isinstance(network, str):
        return split(network)
    if isinstance(network, list | tuple):
        return cascade(
            *(member if _is_function(member) else as_backbone(member, example) for member in network), classes=classes
        )
    if isinstance(network, nn.Module):
        return _from_module(network, example())
    model = getattr(network, "model", None)
    if isinstance(model, nn.Module):  # a pipeline of transformers
        return _from_pipeline(network, model)
    raise InputError(
        expected="a torch module, a backbone, 'hf:FOLDER', a transformers pipeline, or a list of these",
        got=f"a {type(network).__name__}",
    )


def _is_function(member: Any) -> bool:
    """Tell a plain function from networks and pipelines, which can be called too."""
    return callable(member) and not isinstance(member, nn.Module | type) and not hasattr(member, "model")


def _from_module(module: nn.Module, example: Any) -> Backbone:
    if isinstance(example, np.ndarray) and example.dtype == object:
        raise InputError(
            expected=f"inputs as {type(module).__name__} takes them, to split it on",
            got="texts or images",
            hint="give a transformers pipeline, 'hf:FOLDER' or preprocessing=..., which convert them",
        )
    if hasattr(getattr(module, "config", None), "vocab_size"):
        from offramp.backbone.adapters.transformers import text_backbone

        return text_backbone(module)
    return split(module, example)


def _from_pipeline(pipeline: Any, model: nn.Module) -> Backbone:
    if getattr(pipeline, "tokenizer", None) is not None:
        from offramp.backbone.adapters.transformers import text_backbone

        return text_backbone(model, tokenizer=pipeline.tokenizer)
    if getattr(pipeline, "image_processor", None) is not None:
        from offramp.backbone.adapters._transformers_folder import image_processor_preprocessing
        from offramp.backbone.adapters.transformers import image_backbone

        preprocessing, side = image_processor_preprocessing(pipeline.image_processor.to_dict())
        return image_backbone(model, side=side, preprocessing=preprocessing)
    raise InputError(
        expected="a pipeline with a tokenizer or an image processor",
        got=f"a {type(pipeline).__name__} without",
        hint="give its model: offramp.split(pipeline.model, example)",
    )


def check_stages(backbone: Backbone) -> None:
    """Refuse a network of one stage: its only exit is its own head, so that no sample could leave early."""
    if backbone.num_exits == 1:
        raise InputError(
            f"'{backbone.name}'",
            expected="at least two stages",
            got="one, from which no sample can leave early",
            hint="split it after named modules (offramp.split(model, example, at=[...])), give the stages by hand "
            "(offramp.Backbone), or put a cheaper network in front (offramp.cascade)",
        )


def check_names(classes: Sequence[str], backbone: Backbone) -> tuple[str, ...]:
    """Return class names as a tuple; refuse them if they are not one per class, or not those of the backbone."""
    names = [] if isinstance(classes, str) else [str(name) if isinstance(name, str) else name for name in classes]
    good = all(isinstance(name, str) and 0 < len(name) <= LONGEST for name in names)
    if not good or len(names) != backbone.num_classes or len(set(names)) != len(names):
        raise InputError(
            expected=f"{backbone.num_classes} different names, one per class of '{backbone.name}', each of 1 to "
            f"{LONGEST} characters",
            got=reprlib.repr(classes),
        )
    check_same_classes(names, backbone.classes, f"classes={reprlib.repr(classes)}")
    return tuple(names)


def preprocessing_of_part(part: Backbone, backbone: Backbone, preprocessing: Preprocessing) -> Preprocessing:
    """Return the preprocessing for some members of a cascade.

    Args:
        part: The members that remain.
        backbone: The cascade, or any other backbone.
        preprocessing: Its preprocessing.
    """
    # Members that remain of a cascade whose networks prepare inputs each in its own way have to do so themselves.
    apart = isinstance(backbone, Cascade) and not backbone.alike
    return preprocessing.followed_by(part.preprocessing) if apart and part is not backbone else preprocessing


def check_device(device: str | torch.device | None) -> None:
    """Refuse a device that torch does not know or cannot use on this machine."""
    try:
        torch.zeros(1, device=device).tolist()  # on a device without memory, such as meta, this fails too
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            "device",
            expected="one that PyTorch can use on this machine",
            got=f"'{device}' ({str(error).splitlines()[0]})",
            hint="leave it out to use the CPU, or give cuda where torch.cuda.is_available() is true",
        ) from error


def names_to_trust(model: "EarlyExitModel", factory: Factory | None) -> list[str]:
    """Return the names of third-party code that `trust=` must list when a saved model is loaded.

    Args:
        model: The model.
        factory: The factory it is saved with; None if the caller of `load` gives the network.
    """
    parts = (model.exits.kind, model.pooling.name, *model.points)
    return list(dict.fromkeys((*_names_of_code(factory), *(name for name in parts if ":" in name))))


def _names_of_code(factory: Factory | None) -> Iterator[str]:
    if factory is not None:
        needed = name_to_trust(factory.name, factory.options)
        yield from () if needed is None else (needed,)
        for member in factory.members:
            yield from _names_of_code(member)
