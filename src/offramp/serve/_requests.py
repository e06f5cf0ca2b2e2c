"""Requests as JSON: the inputs in the form that the model takes, and the settings of each request."""

import base64
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from offramp._registry import unknown_name
from offramp.data._images import decode_image
from offramp.errors import InputError, OfframpError
from offramp.model._answer import Answer
from offramp.model._model import EarlyExitModel
from offramp.policy import OperatingPoint
from offramp.serve._scheduler import Scheduler, Ticket
from offramp.serve._served import takes_texts

__all__ = [
    "BUSY",
    "LARGE_BYTES",
    "LONGEST_SHOWN",
    "READERS",
    "RECEIVED",
    "SETTINGS",
    "Limits",
    "Settings",
    "check_sets",
    "describe_answer",
    "describe_briefly",
    "describe_error",
    "describe_point",
    "read_inputs",
    "read_settings",
    "submit",
    "submit_each",
    "to_array",
]

LONGEST_SHOWN = 100
"""Characters of a value in a message at most."""

RECEIVED = "received"
"""Key in the state of an HTTP request: the time from which on it waits for the server, and not for its client."""

BUSY = "busy"
"""Key in the state of an HTTP request: True if the server has too many requests to read this one."""

LARGE_BYTES = 64 * 2**10
"""Requests above this size are read in another thread, so that small ones need not wait for them."""

READERS = 4
"""Requests that are read in other threads at once: a body of 16 MiB may take 400 MB until its numbers are arrays."""

IMAGE_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "WEBP")
"""Formats of image files; not TIFF, whose tiles may be larger than the image."""


@dataclass(frozen=True)
class Limits:
    """Largest requests that a server takes."""

    body_bytes: int = 16 * 2**20
    """Bytes of a request."""
    bodies_bytes: int = 256 * 2**20
    """Bytes of the requests together that are being read; the first 64 KiB of each do not count."""
    connections: int = 1024
    """Connections at once."""
    samples: int = 256
    """Inputs of a request."""
    characters: int = 100_000
    """Characters of a text."""
    pixels: int = 16_000_000
    """Pixels of the images of a request together."""
    body_s: float = 10.0
    """Seconds within which a request must have arrived."""
    deadline_ms: float = 60_000.0
    """Milliseconds until a request is given up, for requests that name no earlier deadline."""


@dataclass(frozen=True)
class Settings:
    """Settings of one request."""

    budget: float | None = None
    """Share of the full network's cost to spend at most."""
    max_drop: float | None = None
    """Loss against the full network at most, guaranteed."""
    sets: float | None = None
    """Miscoverage of the prediction sets to return, such as 0.05; none if left out."""
    deadline_ms: float | None = None
    """Milliseconds after which the answer is of no use."""


SETTINGS = tuple(field.name for field in fields(Settings))
"""Names of the settings."""


def read_settings(values: Mapping[str, Any], limits: Limits) -> Settings:
    """Check the settings of a request.

    Args:
        values: Settings by name, as JSON gave them; None stands for a setting left out.
        limits: Limits of the server.
    """
    for name, value in values.items():
        if name not in SETTINGS:
            raise InputError(str(unknown_name("setting", name[:LONGEST_SHOWN], ("inputs", *SETTINGS))))
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
            shown = value[:LONGEST_SHOWN] if isinstance(value, str) else value
            raise InputError(name, expected="a finite number", got=shown)
    given = {name: float(value) for name, value in values.items() if value is not None}
    given["deadline_ms"] = min(given.get("deadline_ms", limits.deadline_ms), limits.deadline_ms)
    return Settings(**given)


def submit(scheduler: Scheduler, inputs: Any, settings: Settings, waited_s: float = 0.0) -> Ticket:
    """Put a request into the queue of a scheduler.

    Args:
        scheduler: The scheduler.
        inputs: The inputs, as `EarlyExitModel.predict` takes them.
        settings: The settings of the request.
        waited_s: As for `Scheduler.submit`.
    """
    check_sets(settings, scheduler.model.point)
    return scheduler.submit(
        inputs,
        budget=settings.budget,
        max_drop=settings.max_drop,
        deadline_ms=settings.deadline_ms,
        waited_s=waited_s,
    )


def submit_each(
    scheduler: Scheduler, values: Any, settings: Settings, limits: Limits, waited_s: float = 0.0
) -> list[Ticket | str]:
    """Put the inputs of a request into the queue: together, or one by one if some of them are bad.

    Args:
        scheduler: The scheduler.
        values: The inputs, as `read_inputs` takes them.
        settings: The settings of the request.
        limits: Limits of the server.
        waited_s: As for `Scheduler.submit`.

    Returns:
        One ticket for all inputs; or, for each, its ticket or the reason why there is none.

    Raises:
        InputError: If no input is good.
    """
    try:
        return [submit(scheduler, read_inputs(values, scheduler.model, limits), settings, waited_s)]
    except InputError:
        if not isinstance(values, list) or not 2 <= len(values) <= limits.samples:
            raise
        parts: list[Ticket | str] = []
        try:
            for place, value in enumerate(values):
                try:
                    inputs = read_inputs([value], scheduler.model, limits)
                    if isinstance(value, str) and not isinstance(inputs[0], str):  # an image file
                        limits = replace(limits, pixels=limits.pixels - inputs[0].shape[0] * inputs[0].shape[1])
                    parts.append(submit(scheduler, inputs, settings, waited_s))
                except InputError as error:
                    parts.append(describe_error(error).replace("input 0", f"input {place}", 1))
        except OfframpError:  # such as a queue that is full
            for part in parts:
                if isinstance(part, Ticket):
                    part.cancel()
            raise
        if all(isinstance(part, str) for part in parts):
            raise
        return parts


def read_inputs(values: Any, model: EarlyExitModel, limits: Limits) -> Any:
    """Return the inputs of a request as `EarlyExitModel.predict` takes them.

    Args:
        values: N texts; N images, each an image file as base64 or bytes; or nested lists of numbers, N of them.
        model: The model, which takes texts if its preprocessing has a tokenizer.
        limits: Limits of the server.
    """
    if not isinstance(values, list) or not values:
        given = "none" if values is None else "an empty list" if values == [] else f"a {type(values).__name__}"
        raise InputError("'inputs'", expected="a list of at least one input", got=given)
    if len(values) > limits.samples:
        raise InputError("inputs", expected=f"at most {limits.samples} in one request", got=f"{len(values)}")
    if takes_texts(model):
        return [_check_text(value, place, limits) for place, value in enumerate(values)]
    if all(isinstance(value, str | bytes) for value in values):
        return _read_images(values, limits)
    return _read_numbers(values, whole=bool(model.preprocessing.steps))


def describe_answer(answer: Answer, settings: Settings) -> list[dict[str, Any]]:
    """Return one JSON object per input: an answer, or the error of a bad input.

    Args:
        answer: The answers.
        settings: The settings of the request: a miscoverage adds the prediction sets.
    """
    level = settings.sets
    wanted = {} if level is None else {level: answer.prediction_sets[level]}
    objects = replace(answer, prediction_sets=wanted).to_dicts()
    for entry in objects:
        sets = entry.pop("prediction_sets", None)
        if sets:
            entry["prediction_set"] = sets[level]
    return objects


def describe_error(error: OfframpError) -> str:
    """Return the message of an error without its hint, which speaks of calls in Python.

    Args:
        error: The error.

    Example:
        >>> describe_error(InputError("inputs", expected="images", got="texts", hint="call model.at(...)"))
        'inputs: expected images, got texts'
    """
    return str(error).removesuffix(f"; {error.hint}")


def check_sets(settings: Settings, point: OperatingPoint) -> None:
    """Refuse a miscoverage that was not calibrated.

    Args:
        settings: The settings of a request.
        point: The operating point of its samples.
    """
    if settings.sets is not None and settings.sets not in point.conformal_thresholds:
        levels = ", ".join(map(str, sorted(point.conformal_thresholds))) or "none"
        raise InputError("sets", expected=f"a miscoverage that was calibrated ({levels})", got=f"{settings.sets:g}")


def describe_briefly(point: OperatingPoint) -> str:
    """Describe an operating point in a sentence or two: its figures on the tune split, and its guarantee.

    Args:
        point: The operating point.
    """
    figures = point.tune_metrics
    text = f"{point.policy}, relative cost {figures['cost']:.3f}, accuracy {100 * figures['accuracy']:.2f} %"
    return f"{text}, without a guarantee." if point.guarantee is None else f"{text}. Guarantee: {point.guarantee}."


def describe_point(point: OperatingPoint) -> dict[str, Any]:
    """Return the figures of an operating point on the tune split, and its guarantee if there is one."""
    guarantee = None if point.guarantee is None else {**vars(point.guarantee), "claim": str(point.guarantee)}
    return {"policy": point.policy, **point.tune_metrics, "guarantee": guarantee}


def _check_text(value: Any, place: int, limits: Limits) -> str:
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError as error:
            raise InputError(f"input {place}", expected="text in UTF-8", got="other bytes") from error
    if not isinstance(value, str):
        raise InputError(f"input {place}", expected="a text", got=type(value).__name__)
    if len(value) > limits.characters:
        raise InputError(f"input {place}", expected=f"at most {limits.characters:,} characters", got=f"{len(value):,}")
    return value


def _read_images(values: list[str | bytes], limits: Limits) -> list[npt.NDArray[np.uint8]]:
    """Decode image files, base64 or bytes, as long as all of them together have few enough pixels."""
    images: list[npt.NDArray[np.uint8]] = []
    pixels = limits.pixels
    for place, value in enumerate(values):
        name = f"input {place}"
        if isinstance(value, str):
            try:
                content = base64.b64decode(value, validate=True)
            except ValueError as error:
                got = (
                    "a data: address; leave out what is before the comma" if value.startswith("data:") else "other text"
                )
                raise InputError(name, expected="an image file as base64", got=got) from error
        else:
            content = value
        images.append(decode_image(content, place=name, most_pixels=pixels, formats=IMAGE_FORMATS))
        pixels -= images[-1].shape[0] * images[-1].shape[1]
    return images


def _read_numbers(values: list[Any], *, whole: bool) -> npt.NDArray[Any]:
    """Return nested lists as an array: of bytes for images that are still to be prepared, else of float32."""
    array = to_array(values)
    if array.dtype.kind == "b":
        raise InputError("inputs", expected="lists of numbers", got="true or false in them")
    if not whole:
        return array.astype(np.float32)  # 1.0 is written as 1 by some clients
    if array.dtype.kind == "f" or array.min(initial=0) < 0 or array.max(initial=0) > 255:
        raise InputError("inputs", expected="pixels as whole numbers in 0 to 255", got="other numbers")
    return array.astype(np.uint8)


def to_array(values: list[Any]) -> npt.NDArray[Any]:
    """Return nested lists of numbers as an array.

    Args:
        values: The lists; anything but numbers in them is refused, as an array of texts may need a million times their
            memory.
    """
    several = InputError("inputs", expected="lists of numbers, all of one shape", got="several shapes")
    shape, level = [len(values)], values
    while (kinds := set(map(type, level))) == {list}:  # one depth after the other, as loops over numbers are slow
        widths = set(map(len, level))
        if len(widths) > 1:
            raise several
        shape += widths
        level = list(chain.from_iterable(level))
    others = kinds - {list, int, float, bool}
    if others:
        raise InputError("inputs", expected="lists of numbers", got=f"a {others.pop().__name__} in them")
    if list in kinds:
        raise several
    try:
        array = np.array(level).reshape(shape)
    except (ValueError, OverflowError) as error:
        raise several from error
    if array.dtype.kind not in "biuf":
        raise InputError("inputs", expected="numbers of at most 64 bits", got="larger ones")
    return array
