"""The conversion of one function of tensors to one ONNX graph, checked against torch."""

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from inspect import getattr_static
from pathlib import Path
from typing import Any

import numpy as np
import torch
from onnx_ir.passes import Sequential, common
from onnxscript.optimizer import fold_constants
from onnxscript.rewriter import rewrite
from onnxscript.rewriter.rules import common as rules
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from offramp.errors import InputError
from offramp_onnx import open_session

__all__ = ["CallResult", "GraphFunction", "Leaf", "call", "write_checked", "write_graph"]

TOLERANCE = 1e-4
"""Largest difference between graph and torch, relative to the largest number, or to 1 if all are smaller."""

LARGEST_GRAPH = 2**31 - 1
"""Most bytes of a file: the limit of its format."""

_OTHER_BACKEND = "run this network with another backend"


@dataclass(frozen=True)
class Leaf:
    """A tensor that goes into a graph or comes out of it."""

    name: str
    """Its name in all graphs of a folder."""
    batch: int | None = 0
    """The axis of the samples; None if all samples share the tensor."""
    lengths: tuple[int, ...] = ()
    """The axes that grow with the longest sample."""

    @property
    def dynamic(self) -> dict[int, Any]:
        """The axes whose size may differ from the example's."""
        axes = self.lengths if self.batch is None else (self.batch, *self.lengths)
        return {axis: torch.export.Dim.DYNAMIC for axis in axes}


@dataclass(frozen=True)
class GraphFunction:
    """A function to be written as a graph."""

    name: str
    """Its name in messages."""
    run: Callable[..., Any]
    """Tensors to a tree of tensors; it may work in place."""
    leaves: Sequence[Leaf]
    """Its inputs."""
    modules: Sequence[nn.Module] = ()
    """The modules whose weights it uses."""


@dataclass(frozen=True)
class CallResult:
    """The result of a function of tensors."""

    outputs: list[Any]
    """The leaves of the result."""
    spec: pytree.TreeSpec
    """The tree of the leaves."""
    passed: list[int | None]
    """For each output, the index of the input it is, unchanged; None if it is new or changed."""


def call(function: Callable[..., Any], values: Sequence[Tensor]) -> CallResult:
    """Call a function that may work in place, on copies of its inputs.

    Example:
        >>> call(lambda kept, changed: [changed.add_(1), kept, kept + 1], [torch.ones(1), torch.ones(1)]).passed
        [None, 0, None]
    """
    with torch.inference_mode(False):  # tensors of inference mode have no version counter
        copies = {id(value): value.clone() for value in values}
    inputs = [copies[id(value)] for value in values]
    versions = [copy._version for copy in inputs]
    outputs, spec = pytree.tree_flatten(function(*inputs))
    unchanged = {
        id(copy): place
        for place, (copy, version) in enumerate(zip(inputs, versions, strict=True))
        if copy._version == version
    }
    return CallResult(outputs, spec, [unchanged.get(id(output)) for output in outputs])


def write_checked(
    path: Path,
    function: GraphFunction,
    batches: Sequence[Sequence[Tensor]],
    expected: Sequence[Sequence[Any]],
    names: Sequence[str],
    *,
    traced: int,
) -> dict[str, Any]:
    """Write a function as a graph and compare it with torch on several batches.

    Args:
        path: The file to write.
        function: The function.
        batches: Inputs of several batch sizes.
        expected: The outputs of torch for each of them.
        names: Names of the outputs. An output named like an input is that input, and not part of the graph.
        traced: Index of the batch to trace; it has at least two samples.

    Returns:
        The entry of the manifest; its file is None if every output is an input.
    """
    inputs = {leaf.name for leaf in function.leaves}
    new = {place: name for place, name in enumerate(names) if name not in inputs}
    if not new:
        return {"file": None, "reads": [], "writes": []}
    reads = write_graph(path, function, batches[traced], new)
    session = open_session(path)
    for values, outputs in zip(batches, expected, strict=True):
        arrays = {leaf.name: value.numpy() for leaf, value in zip(function.leaves, values, strict=True)}
        results = session.run(list(new.values()), {name: np.ascontiguousarray(arrays[name]) for name in reads})
        _check_equal(results, [outputs[place] for place in new], function.name)
    return {"file": path.name, "reads": reads, "writes": list(new.values())}


def write_graph(path: Path, function: GraphFunction, values: Sequence[Tensor], outputs: Mapping[int, str]) -> list[str]:
    """Write a function as a graph with dynamic batch size and lengths.

    Args:
        path: The file to write.
        function: The function.
        values: Its inputs, of at least two samples.
        outputs: Indices of the outputs that the graph computes, and their names.

    Returns:
        Names of the inputs that the graph reads: those that any of the outputs depends on.
    """
    module = _TracedModule(function, tuple(outputs))
    try:
        with _quiet(), _one_table():
            program = torch.onnx.export(
                _capture(module, function.leaves, values),
                dynamo=True,
                input_names=[leaf.name for leaf in function.leaves],
                output_names=list(outputs.values()),
                verbose=False,
                optimize=False,
            )
            assert program is not None
            _simplify(program.model)
    except Exception as error:  # torch raises errors of any type here
        reason = str(error).strip().partition("\n")[0][:300]
        raise InputError(
            f"{function.name} cannot be written as an ONNX graph ({type(error).__name__}: {reason})",
            hint=f"{_OTHER_BACKEND}, or write that part with operations that torch.export can follow",
        ) from error
    proto = program.model_proto
    used = {name for node in proto.graph.node for name in node.input} | {out.name for out in proto.graph.output}
    for value in [value for value in proto.graph.input if value.name not in used]:
        proto.graph.input.remove(value)
    _remove_origins(proto)
    size = proto.ByteSize()
    if size > LARGEST_GRAPH:
        raise InputError(
            function.name,
            expected="a graph of at most 2 GB",
            got=f"{size:,} bytes",
            hint="split the network into more stages",
        )
    path.write_bytes(proto.SerializeToString(deterministic=True))
    return [value.name for value in proto.graph.input]


class _TracedModule(nn.Module):
    """Some outputs of a function of tensors, with the modules whose weights it uses."""

    def __init__(self, function: GraphFunction, places: Sequence[int]) -> None:
        super().__init__()
        self.run, self.places = function.run, tuple(places)
        self.parts = nn.ModuleList(function.modules)
        self.eval()

    def forward(self, *leaves: Tensor) -> tuple[Tensor, ...]:
        # On copies: inputs that the function writes to would become outputs of the graph.
        results = pytree.tree_leaves(self.run(*[leaf.clone() for leaf in leaves]))
        outputs = [results[place] for place in self.places]
        # A tensor has one name: if it is an output twice, the first name would be missing.
        return tuple(
            output.clone() if any(output is other for other in outputs[:place]) else output
            for place, output in enumerate(outputs)
        )


def _check_equal(arrays: Sequence[Any], expected: Sequence[Tensor], name: str) -> None:
    """Refuse a graph whose outputs differ from torch's."""
    for array, tensor in zip(arrays, expected, strict=True):
        if tuple(array.shape) != tuple(tensor.shape):
            raise InputError(
                f"the ONNX graph of {name}",
                expected=f"shape {tuple(tensor.shape)}, as from torch",
                got=f"{tuple(array.shape)}",
                hint=f"{_OTHER_BACKEND}: this one depends on the size of the example",
            )
        if not tensor.numel():
            continue
        wide = tensor.to(torch.float64)
        distance = float((torch.from_numpy(array).to(torch.float64) - wide).abs().max())
        scale = max(1.0, float(wide.abs().max()))
        if not distance <= TOLERANCE * scale:
            raise InputError(
                f"the ONNX graph of {name}",
                expected=f"the numbers of torch, up to {TOLERANCE * scale:.3g}",
                got=f"a difference of {distance:.3g} for shape {tuple(tensor.shape)}",
                hint=f"{_OTHER_BACKEND}, and please report it",
            )


def _capture(module: nn.Module, leaves: Sequence[Leaf], values: Sequence[Tensor]) -> torch.export.ExportedProgram:
    """Export with either of torch's two tracers: `len(x)` fixes the batch size in one of them."""
    shapes = (tuple(leaf.dynamic for leaf in leaves),)
    try:
        return torch.export.export(module, tuple(values), dynamic_shapes=shapes, strict=False)
    except Exception:  # torch raises errors of any type here
        return torch.export.export(module, tuple(values), dynamic_shapes=shapes, strict=True)


def _simplify(model: Any) -> None:
    """Fold constants, fold batch norms into convolutions, and remove unused nodes.

    The exporter's own optimisation is not used: it removes the addition of 1e-8 that keeps a quotient finite.
    """
    common.InlinePass()(model)
    fold_constants(model)
    rewrite(model, [rules.fuse_batchnorm_into_conv_rule, rules.fuse_batchnorm_into_gemm_rule])
    Sequential(
        common.RemoveUnusedNodesPass(),
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        common.DeduplicateInitializersPass(),
        common.CommonSubexpressionEliminationPass(),
        common.RemoveUnusedNodesPass(),
        common.OutputFixPass(),
        common.NameFixPass(),
    )(model)


def _remove_origins(proto: Any) -> None:
    """Remove stack traces and paths of this machine: private, and a tenth of a small file."""
    del proto.metadata_props[:]
    del proto.graph.metadata_props[:]
    for part in (*proto.graph.node, *proto.graph.input, *proto.graph.output, *proto.graph.initializer):
        del part.metadata_props[:]
    del proto.graph.value_info[:]


@contextmanager
def _one_table() -> Iterator[None]:
    """Let the exporter use one table of operators for all graphs; it builds one for each, in half of its time."""
    try:
        registry: Any = import_module("torch.onnx._internal.exporter._registration").ONNXRegistry
        build, method = registry.from_torchlib, getattr_static(registry, "from_torchlib")
    except (ImportError, AttributeError):  # a torch that keeps it elsewhere: exports take longer
        yield
        return
    registry.from_torchlib = staticmethod(partial(_build_table, build))
    try:
        yield
    finally:
        registry.from_torchlib = method


@cache
def _build_table(build: Callable[..., Any], **options: Any) -> Any:
    return build(**options)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's messages about versions, decompositions and its own deprecations."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
