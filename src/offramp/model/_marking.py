"""Bad inputs: refused with their batch, or marked while the others are answered."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from offramp.errors import InputError, OfframpError
from offramp.model._answer import Answer, join_answers

if TYPE_CHECKING:
    from offramp.model._model import EarlyExitModel

__all__ = ["OnError", "is_input_error", "mark_inputs", "predict_marking", "refuse_errors"]

OnError = Literal["raise", "mark"]
"""Treatment of bad inputs."""

_MACHINE_ERRORS = (MemoryError, torch.OutOfMemoryError, torch.AcceleratorError)
"""Too little memory, or a lost device."""

_CPU_MEMORY = "DefaultCPUAllocator"
"""Name in the message of the plain `RuntimeError` that torch raises when the CPU's memory is full."""


def is_input_error(error: Exception) -> bool:
    """Return whether an error may be due to an input: a network may raise anything for one that it cannot take.

    A lack of memory, a lost device, and errors of offramp other than `InputError` are not: the same input may be
    answered later or elsewhere.

    Args:
        error: The error.
    """
    if isinstance(error, OfframpError):
        return isinstance(error, InputError)
    return not isinstance(error, _MACHINE_ERRORS) and _CPU_MEMORY not in str(error)


def refuse_errors(answer: Answer) -> Answer:
    """Return the answers if every input has one.

    Args:
        answer: The answers.

    Raises:
        InputError: If an input has none.
    """
    if answer.errors:
        raise InputError(
            f"{len(answer.errors)} of {len(answer)} inputs have no finite answer, the first is input "
            f"{min(answer.errors)}",
            hint="check it for NaN or infinite numbers, or answer the others with predict(..., on_error='mark')",
        )
    return answer


def predict_marking(
    model: "EarlyExitModel",
    inputs: Any,
    budget: float | Sequence[float] | Tensor | None,
    generator: torch.Generator | None,
) -> Answer:
    """Classify a batch of raw inputs and mark the bad ones; `EarlyExitModel.predict` describes the arguments."""
    count = len(next(iter(inputs.values()), ())) if isinstance(inputs, Mapping) else len(inputs)
    return _predict_part(model, inputs, model.pick_rows(budget, count), slice(0, count), generator)


def _predict_part(
    model: "EarlyExitModel", inputs: Any, rows: Tensor | None, part: slice, generator: torch.Generator | None
) -> Answer:
    """Classify a part of the inputs; halve it while it fails, until only bad inputs are marked."""
    try:
        hidden, sizes = model.prepare(_take(inputs, part))
        own = None if rows is None else rows[part]
        return model.answer(*model.engine.run(hidden, point=own, generator=generator), sizes, own)
    except Exception as error:
        count = part.stop - part.start
        if not count or not is_input_error(error):
            raise
        if count == 1:
            return mark_inputs(model, [str(error)])
    middle = part.start + count // 2
    halves = slice(part.start, middle), slice(middle, part.stop)
    return join_answers([_predict_part(model, inputs, rows, half, generator) for half in halves])


def _take(inputs: Any, part: slice) -> Any:
    """Return a part of raw inputs."""
    return {name: values[part] for name, values in inputs.items()} if isinstance(inputs, Mapping) else inputs[part]


def mark_inputs(model: "EarlyExitModel", messages: Sequence[str]) -> Answer:
    """Return the answers to bad inputs that the network could not take.

    Args:
        model: The model.
        messages: The reason for each input.
    """
    count = len(messages)
    missing, empty = torch.full((count,), -1), torch.zeros(count, model.backbone.num_classes, dtype=torch.bool)
    sets = dict.fromkeys(model.point.conformal_thresholds, empty)
    probabilities = torch.full(empty.shape, torch.nan)
    return Answer(missing, probabilities, missing, torch.zeros(count), sets, model.classes, dict(enumerate(messages)))
