"""Preprocessing as data: named steps and their parameters, never code."""

import hashlib
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Annotated, Any, Literal, get_args, get_origin

import torch
from torch import Tensor

from offramp._registry import Registry
from offramp.errors import InputError, OfframpError
from offramp.preprocessing._raw import are_long, describe_inputs, differ_in_size, raw_batch

__all__ = ["AS_IS", "STEPS", "Attachment", "Preprocessing", "Step"]

Step = Callable[..., Any]
"""One named step: (inputs, generator, **parameters) to inputs; random steps draw from `generator` alone."""

STEPS: Registry[Step] = Registry("preprocessing step")
"""The preprocessing steps, by name."""
STEPS.add("center_crop", "offramp.preprocessing._images:center_crop")
STEPS.add("channels_first", "offramp.preprocessing._images:channels_first")
STEPS.add("normalize", "offramp.preprocessing._images:normalize")
STEPS.add("resize", "offramp.preprocessing._images:resize")
STEPS.add("shift_and_flip", "offramp.preprocessing._images:shift_and_flip")
STEPS.add("tokenize", "offramp.preprocessing._text:tokenize")

MOST_STEPS = 64
MOST_CHANNELS = 4096


@dataclass(frozen=True)
class Attachment:
    """A file that a step needs, such as a tokenizer's vocabulary, identified by its hash."""

    content: bytes = field(repr=False)
    """The file's content."""

    @property
    def sha256(self) -> str:
        """Hash of the content."""
        return hashlib.sha256(self.content).hexdigest()

    def describe(self) -> dict[str, str]:
        """Return the hash, as JSON holds it; the content is saved separately."""
        return {"sha256": self.sha256}


@dataclass(frozen=True)
class Preprocessing:
    """Named steps applied in order.

    Example:
        >>> import numpy as np
        >>> prepare = Preprocessing().then("channels_first").then("resize", size=4, mode="bilinear")
        >>> prepare(np.zeros((1, 8, 8, 3), np.uint8)).shape
        torch.Size([1, 3, 4, 4])
    """

    steps: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """Registered step names with their parameters (numbers, strings, lists of them, attachments)."""

    def __call__(self, inputs: Any, *, seed: int = 0) -> Any:
        """Apply every step.

        Args:
            inputs: Arrays or tensors; or a list of texts, or of images (Pillow, or bytes `H x W x C`). Images may
                differ in size if the steps bring them to one size.
            seed: Seed of random steps.
        """
        resizes = any(name == "resize" for name, _ in self.steps)
        if differ_in_size(inputs) or (resizes and are_long(inputs)):
            return _join([self([image], seed=seed + index) for index, image in enumerate(inputs)])
        inputs = raw_batch(inputs)
        generator = torch.Generator().manual_seed(seed)
        for name, parameters in self.steps:
            step = STEPS.get(name)
            try:
                inputs = step(inputs, generator, **parameters)
            except OfframpError:
                raise
            except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
                raise InputError(f"step '{name}' cannot take {describe_inputs(inputs)}: {str(error)[:300]}") from error
        return inputs

    def then(self, name: str, **parameters: Any) -> "Preprocessing":
        """Return the same steps and one more."""
        return Preprocessing((*self.steps, (name, parameters)))

    def followed_by(self, other: "Preprocessing") -> "Preprocessing":
        """Return these steps, then those of another."""
        return Preprocessing((*self.steps, *other.steps))

    def check(self) -> None:
        """Refuse unknown steps, and parameters that a step does not take.

        Example:
            >>> Preprocessing().then("center_crop", size=10**9).check()
            Traceback (most recent call last):
            offramp.errors.InputError: step 'center_crop', parameter 'size': expected 1 to 4096, got 1000000000
        """
        if len(self.steps) > MOST_STEPS:
            raise InputError("preprocessing", expected=f"at most {MOST_STEPS} steps", got=f"{len(self.steps)}")
        for name, parameters in self.steps:
            _check_step(name, parameters)

    def describe(self) -> list[Any]:
        """Return the steps as JSON would hold them."""
        return [
            [
                name,
                {
                    key: value.describe() if isinstance(value, Attachment) else value
                    for key, value in parameters.items()
                },
            ]
            for name, parameters in self.steps
        ]

    def attachments(self) -> list[Attachment]:
        """Return the files that steps need; `describe` has their hashes only."""
        return [value for _, parameters in self.steps for value in parameters.values() if isinstance(value, Attachment)]


AS_IS = Preprocessing()
"""No steps: inputs unchanged."""


def _check_step(name: str, parameters: Mapping[str, Any]) -> None:
    """Check parameters against the annotations in the step's signature."""
    accepted = {
        parameter.name: parameter
        for parameter in signature(STEPS.get(name)).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    needed = [key for key, parameter in accepted.items() if parameter.default is parameter.empty]
    if not set(needed) <= set(parameters) <= set(accepted):
        names = ", ".join(accepted) or "none"
        raise InputError(f"step '{name}'", expected=f"the parameters {names}", got=list(parameters))
    for key, value in parameters.items():
        expected = _violation(value, accepted[key].annotation)
        if expected:
            raise InputError(f"step '{name}', parameter '{key}'", expected=expected, got=reprlib.repr(value))
    if name == "normalize" and (len(parameters["mean"]) != len(parameters["std"]) or 0 in parameters["std"]):
        raise InputError(
            "step 'normalize'",
            expected="one mean and one std other than 0 per channel",
            got=f"{parameters['mean']} and {parameters['std']}",
        )
    if name == "tokenize":
        from offramp.preprocessing._text import load_tokenizer

        load_tokenizer(parameters["tokenizer"], parameters["longest"])


def _violation(value: Any, annotation: Any) -> str | None:
    """Return the expectation that a value does not meet, or None; annotations not listed here accept anything."""
    if get_origin(annotation) is Annotated:
        kind, bounds = get_args(annotation)
        return _violation(value, kind) or (None if value in bounds else f"{bounds.start} to {bounds.stop - 1}")
    if get_origin(annotation) is Literal:
        choices = get_args(annotation)
        return None if isinstance(value, str) and value in choices else f"one of {', '.join(choices)}"
    if annotation == Sequence[float]:
        is_list = isinstance(value, list | tuple) and 0 < len(value) <= MOST_CHANNELS
        return None if is_list and not any(_violation(number, float) for number in value) else "a list of numbers"
    if annotation is float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= 1e30
        return None if is_number else "a number"
    if annotation is Attachment:
        return None if isinstance(value, Attachment) else "an attached file"
    return (
        None
        if annotation not in (bool, int, str) or type(value) is annotation
        else f"a value of type {annotation.__name__}"
    )


def _join(images: Sequence[Any]) -> Tensor:
    """Join images that were prepared one by one."""
    shapes = sorted({describe_inputs(image) for image in images})
    if len(shapes) > 1 or not isinstance(images[0], Tensor):
        raise InputError(
            expected="images of one size after preprocessing",
            got=", ".join(shapes[:3]),
            hint="resize them, as offramp.preprocessing.photo_preprocessing does",
        )
    return torch.cat(list(images))
