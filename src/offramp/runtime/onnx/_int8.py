"""Static int8 quantization of graphs, calibrated on samples."""

import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnx
import onnxruntime
from onnxruntime.quantization import QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.calibrate import CalibrationDataReader

from offramp.errors import InputError

__all__ = ["quantize_graph"]

CONVOLUTIONAL = ("Conv", "Gemm", "MatMul", "Add", "Relu", "MaxPool", "GlobalAveragePool")
"""Operators that are quantized in networks with convolutions; with `Add`, feature maps stay in int8 between layers."""

OTHERS = ("Gemm", "MatMul")
"""Operators that are quantized in other networks: not `Add`, as masks added to attention have huge numbers."""

Batch = Mapping[str, npt.NDArray[Any]]


def quantize_graph(path: str | Path, out: str | Path, batches: Iterable[Batch]) -> None:
    """Write a graph with products in int8: weights quantized per channel, activations by their range in the batches.

    Weights have 7 bits: with 8, sums would saturate on processors without instructions for products of bytes.

    Args:
        path: A float32 graph of a stage or of a whole network.
        out: The file to write.
        batches: Typical inputs of the graph, by name; a few hundred samples are enough.
    """
    remaining = iter(batches)
    first = next(remaining, None)
    if first is None:
        raise InputError("calibration", expected="at least one batch", got="none", hint="give a few hundred samples")
    out = Path(out)
    # Batch norms must be folded into convolutions before ranges are taken: the runtime does it and saves the result.
    folded = out.with_suffix(".folded.onnx")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folded)
    options.log_severity_level = 3
    try:
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        with warnings.catch_warnings(), _quiet():
            warnings.simplefilter("ignore")
            model = onnx.shape_inference.infer_shapes(onnx.load(folded))
            weights = {weight.name for weight in model.graph.initializer}
            convolutional = any(node.op_type == "Conv" for node in model.graph.node)
            quantize_static(
                model,
                out,
                _Reader(chain([first], remaining)),
                quant_format=QuantFormat.QDQ,
                op_types_to_quantize=list(CONVOLUTIONAL if convolutional else OTHERS),
                nodes_to_exclude=[
                    node.name for node in model.graph.node if node.op_type == "MatMul" and not weights & set(node.input)
                ],
                per_channel=True,
                # Some processors hold sums of two products in 16 bits, which 8-bit weights saturate; graphs must give
                # the same numbers on all of them.
                reduce_range=True,
                # Unsigned activations: the integer products of processors take them.
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
            )
    finally:
        folded.unlink(missing_ok=True)


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    """The batches in the interface of the quantizer."""

    def __init__(self, batches: Iterator[Batch]) -> None:
        self.batches = batches

    def get_next(self) -> dict[str, Any] | None:
        batch = next(self.batches, None)
        return None if batch is None else dict(batch)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the quantizer's advice to prepare graphs, which has been done."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
