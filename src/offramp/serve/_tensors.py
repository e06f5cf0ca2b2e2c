"""Requests and responses of the Open Inference Protocol, version 2: named tensors, and their form in JSON."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from offramp.errors import InputError
from offramp.model._answer import Answer
from offramp.model._model import EarlyExitModel
from offramp.policy import OperatingPoint
from offramp.serve._requests import (
    LONGEST_SHOWN,
    SETTINGS,
    Limits,
    Settings,
    describe_point,
    read_inputs,
    to_array,
)
from offramp.serve._served import input_tensor, takes_texts

__all__ = [
    "DTYPES",
    "describe_parameters",
    "describe_tensors",
    "list_outputs",
    "parse_json",
    "read_request",
    "read_tensors",
    "write_outputs",
]

DTYPES = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}
"""Types of numbers; texts and files are BYTES."""

MOST_TENSORS = 64
"""Tensors of a request at most."""

MOST_DIMENSIONS = 8
"""Dimensions of a tensor at most."""


def parse_json(body: bytes) -> dict[str, Any]:
    """Parse a request's JSON object; the words NaN and Infinity, which JSON does not have, are refused.

    Args:
        body: The JSON, in UTF-8.
    """
    try:
        content = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        got = f"other text: {str(error)[:200]}" if body.strip() else "nothing"
        raise InputError("the body", expected="a JSON object", got=got) from error
    if not isinstance(content, dict):
        raise InputError("the body", expected="a JSON object", got=type(content).__name__)
    return content


def read_request(
    body: bytes, header_length: int | None, model: EarlyExitModel, limits: Limits
) -> tuple[dict[str, Any], Any, dict[str, Any]]:
    """Read an inference request.

    Args:
        body: JSON, and after it the binary data of tensors that have a `binary_data_size`.
        header_length: Bytes of the JSON; None if there is no binary data.
        model: The model.
        limits: Limits of the server.

    Returns:
        The request, the inputs as `EarlyExitModel.predict` takes them, and the settings by name.
    """
    length = len(body) if header_length is None else header_length
    if not 0 <= length <= len(body):
        raise InputError("Inference-Header-Content-Length", expected=f"0 to {len(body)}", got=length)
    request = parse_json(body[:length])
    inputs = read_tensors(_attach_binary(request.get("inputs"), memoryview(body)[length:]), model, limits)
    parameters = request.get("parameters") or {}
    if not isinstance(parameters, Mapping):
        raise InputError("parameters", expected="a JSON object", got=type(parameters).__name__)
    # Clients send other parameters of their own, which are ignored.
    settings = {name: parameters[name] for name in SETTINGS if name in parameters}
    return request, inputs, settings


def read_tensors(entries: Sequence[Mapping[str, Any]], model: EarlyExitModel, limits: Limits) -> Any:
    """Return the tensors of a request as `EarlyExitModel.predict` takes them.

    Args:
        entries: The `name`, `datatype`, `shape` and `data` of each; the data as a list, or as binary data.
        model: The model.
        limits: Limits of the server.
    """
    if len(entries) > MOST_TENSORS:
        raise InputError("inputs", expected=f"at most {MOST_TENSORS} tensors", got=f"{len(entries)}")
    tensors: dict[str, npt.NDArray[Any] | list[Any]] = {}
    for entry in entries:
        name, shape, data = entry.get("name"), entry.get("shape"), entry.get("data")
        if not isinstance(name, str) or name in tensors:
            raise InputError("inputs", expected="tensors of different names", got=str(name)[:LONGEST_SHOWN])
        label = f"tensor '{name[:LONGEST_SHOWN]}'"
        if not isinstance(shape, list) or not 1 <= len(shape) <= MOST_DIMENSIONS or not all(map(_is_length, shape)):
            raise InputError(label, expected="a shape of whole numbers of at least 1", got=shape)
        if isinstance(data, bytes | memoryview):
            tensors[name] = _from_bytes(label, entry.get("datatype"), shape, data)
        else:
            tensors[name] = _from_list(label, entry.get("datatype"), shape, data)
    return _as_inputs(tensors, model, limits)


def list_outputs(
    answer: Answer, settings: Settings, wanted: Sequence[str]
) -> list[tuple[str, str, npt.NDArray[Any] | list[str]]]:
    """Return the name, the datatype and the values of each output: an array, or texts for BYTES.

    Args:
        answer: The answers.
        settings: The settings of the request: a miscoverage adds the prediction sets.
        wanted: Names of the outputs; all if empty.
    """
    outputs: dict[str, tuple[str, npt.NDArray[Any] | list[str]]] = {
        "label": ("BYTES", list(answer.names)) if answer.classes else ("INT64", answer.labels.numpy()),
        "probabilities": ("FP32", answer.probabilities.nan_to_num().numpy()),  # of bad inputs, which JSON cannot hold
        "exit": ("INT64", answer.exits.numpy()),
        "relative_cost": ("FP32", answer.relative_cost.numpy()),
    }
    if settings.sets is not None:
        outputs["prediction_set"] = ("BOOL", answer.prediction_sets[settings.sets].numpy())
    if answer.errors:
        outputs["error"] = ("BYTES", [answer.errors.get(place, "") for place in range(len(answer))])
    if unknown := [name for name in wanted if name not in (*outputs, "error")]:
        raise InputError("outputs", expected=f"some of {', '.join(outputs)}", got=f"'{unknown[0][:LONGEST_SHOWN]}'")
    return [(name, *output) for name, output in outputs.items() if not wanted or name in wanted or name == "error"]


def write_outputs(answer: Answer, settings: Settings, wanted: Sequence[str]) -> list[dict[str, Any]]:
    """Return answers as tensors in JSON; the arguments are those of `list_outputs`."""
    outputs = []
    for name, datatype, values in list_outputs(answer, settings, wanted):
        if isinstance(values, list):
            shape, data = [len(values)], values
        else:
            shape, data = list(values.shape), values.ravel().tolist()
        outputs.append({"name": name, "datatype": datatype, "shape": shape, "data": data})
    return outputs


def describe_parameters(point: OperatingPoint) -> dict[str, str | float]:
    """Return the parameters of a response: the policy, the cost and the guarantee of the operating point."""
    figures = describe_point(point)
    claim = {} if figures["guarantee"] is None else {"guarantee": figures["guarantee"]["claim"]}
    return {"policy": figures["policy"], "cost": figures["cost"], **claim}


def describe_tensors(model: EarlyExitModel) -> dict[str, list[dict[str, Any]]]:
    """Return the inputs and outputs of a model, as the protocol's metadata has them.

    Args:
        model: The model.
    """
    classes = model.backbone.num_classes
    outputs = [
        ("label", "BYTES" if model.classes else "INT64", [-1]),
        ("probabilities", "FP32", [-1, classes]),
        ("exit", "INT64", [-1]),
        ("relative_cost", "FP32", [-1]),
        ("prediction_set", "BOOL", [-1, classes]),
    ]
    named = {"inputs": [input_tensor(model)], "outputs": outputs}
    return {
        place: [{"name": name, "datatype": datatype, "shape": shape} for name, datatype, shape in tensors]
        for place, tensors in named.items()
    }


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _attach_binary(entries: Any, binary: memoryview) -> list[Mapping[str, Any]]:
    """Return the tensors of a request in JSON, those with a `binary_data_size` with their part of the binary data."""
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, Mapping) for entry in entries):
        raise InputError("inputs", expected="a list of at least one tensor", got=type(entries).__name__)
    tensors = []
    for entry in entries:
        parameters = entry.get("parameters")
        size = parameters.get("binary_data_size") if isinstance(parameters, Mapping) else None
        if size is None:
            tensors.append(entry)
            continue
        if not _is_length(size) or size > len(binary):
            raise InputError("inputs", expected="a binary_data_size within the body", got=size)
        tensors.append({**entry, "data": binary[:size]})
        binary = binary[size:]
    if len(binary):
        raise InputError("the body", expected="the binary data of the tensors", got=f"{len(binary)} bytes more")
    return tensors


def _is_length(value: Any) -> bool:
    return type(value) is int and 1 <= value < 2**31


def _dtype(label: str, datatype: Any) -> type[Any]:
    dtype = DTYPES.get(datatype) if isinstance(datatype, str) else None
    if dtype is None:
        raise InputError(label, expected=f"a datatype of BYTES, {', '.join(DTYPES)}", got=str(datatype)[:LONGEST_SHOWN])
    return dtype


def _from_list(label: str, datatype: Any, shape: list[int], data: Any) -> npt.NDArray[Any] | list[Any]:
    if not isinstance(data, list):
        raise InputError(label, expected="a list of its data", got=type(data).__name__)
    if datatype == "BYTES":
        values = [value for row in data for value in (row if isinstance(row, list) else [row])]
        if len(values) != math.prod(shape):
            raise InputError(label, expected=f"{math.prod(shape)} values", got=f"{len(values)}")
        return values
    dtype = _dtype(label, datatype)
    try:
        array = to_array(data)
        if array.dtype.kind == "f" and np.dtype(dtype).kind != "f":
            raise ValueError(f"values of type {array.dtype}")
        if array.size != math.prod(shape):
            raise ValueError(f"{array.size}")
        converted: npt.NDArray[Any] = array.astype(dtype).reshape(shape)
        if array.size and np.dtype(dtype).kind in "iu" and bool((converted.reshape(array.shape) != array).any()):
            raise ValueError("values out of range")
    except (ValueError, OverflowError, TypeError) as error:
        raise InputError(
            label, expected=f"{math.prod(shape)} numbers of type {datatype}", got=str(error)[:200]
        ) from error
    return converted


def _from_bytes(label: str, datatype: Any, shape: list[int], data: bytes | memoryview) -> npt.NDArray[Any] | list[Any]:
    if datatype == "BYTES":
        values, place = [], 0
        while place + 4 <= len(data):  # each has its length before it
            end = place + 4 + int.from_bytes(data[place : place + 4], "little")
            if end > len(data):
                break
            values.append(bytes(data[place + 4 : end]))
            place = end
        if place != len(data) or len(values) != math.prod(shape):
            raise InputError(label, expected=f"{math.prod(shape)} values with their lengths", got="others")
        return values
    dtype = np.dtype(_dtype(label, datatype)).newbyteorder("<")
    if len(data) != math.prod(shape) * dtype.itemsize:
        expected = f"{math.prod(shape) * dtype.itemsize} bytes"
        raise InputError(label, expected=expected, got=f"{len(data)}")
    return np.frombuffer(data, dtype).reshape(shape)


def _as_inputs(tensors: Mapping[str, npt.NDArray[Any] | list[Any]], model: EarlyExitModel, limits: Limits) -> Any:
    """Return tensors as `EarlyExitModel.predict` takes them: one of them is the inputs, several are its named parts."""
    if len(tensors) == 1 and "input_ids" not in tensors:
        (tensor,) = tensors.values()
        if isinstance(tensor, list):
            return read_inputs(tensor, model, limits)
        if takes_texts(model):
            raise InputError("inputs", expected="texts as BYTES, or input_ids and attention_mask", got="other numbers")
        _check_samples(tensor, limits)
        return tensor
    if not all(isinstance(tensor, np.ndarray) for tensor in tensors.values()):
        raise InputError("inputs", expected="one tensor of BYTES, or tensors of numbers", got=f"{len(tensors)} tensors")
    arrays = {name: np.asarray(tensor) for name, tensor in tensors.items()}
    for array in arrays.values():
        _check_samples(array, limits)
    if len({len(array) for array in arrays.values()}) != 1:
        raise InputError("inputs", expected="tensors of one number of samples", got="several")
    return arrays


def _check_samples(array: npt.NDArray[Any], limits: Limits) -> None:
    if not 1 <= len(array) <= limits.samples:
        raise InputError("inputs", expected=f"1 to {limits.samples} samples in one request", got=f"{len(array)}")
