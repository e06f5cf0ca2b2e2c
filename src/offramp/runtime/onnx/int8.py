"""Graphs in whole numbers of eight bits, calibrated on samples."""

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

from offramp.backbone import Backbone
from offramp.errors import InputError

__all__ = ["check_int8", "quantized"]

CONVOLUTIONAL = ("Conv", "Gemm", "MatMul", "Add", "Relu", "MaxPool", "GlobalAveragePool")
"""What is put into eight bits where there are convolutions: with additions, maps stay in them from one to the next."""

OTHERS = ("Gemm", "MatMul")
"""What is put into eight bits elsewhere, products with weights alone: added to attention is a mask of huge numbers."""

Batch = Mapping[str, npt.NDArray[Any]]


def check_int8(backbone: Backbone) -> None:
    """Refuse networks of texts: at points that were chosen in float32 they lost 3.5 points of accuracy in eight bits.

    Args:
        backbone: The network with exits.
    """
    if backbone.grows:
        raise InputError(
            f"expected a network of images for eight bits, got '{backbone.name}', whose samples differ in length, such "
            "as texts: its operating points were chosen in float32, and lose up to 3.5 points of accuracy in eight "
            "bits; export it in float32, without int8 (--int8)"
        )


def quantized(path: str | Path, out: str | Path, batches: Iterable[Batch]) -> None:
    """Write a graph whose products are computed in eight bits.

    Weights are rounded channel by channel, activations by the range that the batches show.

    Args:
        path: A graph in single precision; of a stage, or of a whole network.
        out: The file to write.
        batches: Inputs of the graph by name, such as it will see: some hundred samples are enough.
    """
    waiting = iter(batches)
    first = next(waiting, None)
    if first is None:
        raise InputError("expected at least one batch to calibrate with, got none; give some hundred samples")
    out = Path(out)
    # Batch norms have to be folded into convolutions before ranges are taken: the runtime does it and writes it down.
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
                _Reader(chain([first], waiting)),
                quant_format=QuantFormat.QDQ,
                op_types_to_quantize=list(CONVOLUTIONAL if convolutional else OTHERS),
                nodes_to_exclude=[
                    node.name for node in model.graph.node if node.op_type == "MatMul" and not weights & set(node.input)
                ],
                per_channel=True,
                # Bytes without a sign for activations: what the processor's products of whole numbers take.
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
            )
    finally:
        folded.unlink(missing_ok=True)


class _Reader(CalibrationDataReader):  # type: ignore[misc]
    """Hands batches over one by one, as the library asks for them."""

    def __init__(self, batches: Iterator[Batch]) -> None:
        self.batches = batches

    def get_next(self) -> dict[str, Any] | None:
        batch = next(self.batches, None)
        return None if batch is None else dict(batch)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the quantiser logs: advice to prepare graphs, which has been done."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
