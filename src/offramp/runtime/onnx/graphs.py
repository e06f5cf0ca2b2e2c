"""One function of tensors to one ONNX graph, checked against what torch computes."""

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from onnx_ir.passes import Sequential, common
from onnxscript.optimizer import fold_constants
from onnxscript.rewriter import rewrite
from onnxscript.rewriter.rules import common as rules
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from offramp.errors import InputError

__all__ = ["Called", "Graph", "Leaf", "called", "check_graph", "write_graph"]

TOLERANCE = 1e-4
"""How far a graph's numbers may be from torch's, as a share of the largest of them, or of 1 where all are smaller."""

LARGEST_GRAPH = 2**31 - 1
"""Bytes of a file at most: what its format can hold."""


@dataclass(frozen=True)
class Leaf:
    """A tensor that goes into a graph or comes out of it."""

    name: str
    """In the graph, and everywhere in the folder."""
    batch: int | None = 0
    """The axis of the samples; None where all of them share it."""
    lengths: tuple[int, ...] = ()
    """The axes that grow with the longest sample."""

    @property
    def free(self) -> dict[int, Any]:
        """The axes whose size a graph must not be bound to."""
        axes = self.lengths if self.batch is None else (self.batch, *self.lengths)
        return {axis: torch.export.Dim.DYNAMIC for axis in axes}


@dataclass(frozen=True)
class Graph:
    """What a written graph takes and gives, by name."""

    path: Path
    reads: tuple[str, ...]
    writes: tuple[str, ...]


class _Traced(nn.Module):
    """Some outputs of a function of tensors, with the modules whose weights it uses."""

    def __init__(self, function: Callable[..., Any], parts: Sequence[nn.Module], chosen: Sequence[int]) -> None:
        super().__init__()
        self.function, self.chosen = function, tuple(chosen)
        self.parts = nn.ModuleList(parts)
        self.eval()

    def forward(self, *leaves: Tensor) -> tuple[Tensor, ...]:
        # On copies: what a function writes into its inputs would be among the graph's outputs.
        made = pytree.tree_leaves(self.function(*[leaf.clone() for leaf in leaves]))
        given = [made[place] for place in self.chosen]
        # A tensor has one name: one that is given twice would take the second, and the first would be missing.
        return tuple(one.clone() if any(one is other for other in given[:at]) else one for at, one in enumerate(given))


@dataclass(frozen=True)
class Called:
    """What a function gave for some tensors."""

    outputs: list[Any]
    """The leaves of what it gave."""
    spec: pytree.TreeSpec
    """How they are put together."""
    passed: list[int | None]
    """Which of the inputs each of them is, handed on as it came; None where it was made or changed."""


def called(function: Callable[..., Any], values: Sequence[Tensor]) -> Called:
    """Call a function that may work in place on copies of its inputs.

    Args:
        function: Tensors to a tree of tensors.
        values: Its inputs; they stay as they are.

    Example:
        >>> called(lambda kept, changed: [changed.add_(1), kept, kept + 1], [torch.ones(1), torch.ones(1)]).passed
        [None, 0, None]
    """
    with torch.inference_mode(False):  # the tensors of that mode do not count how often they were written to
        copies = {id(value): value.clone() for value in values}
    given = [copies[id(value)] for value in values]
    versions = [copy._version for copy in given]
    outputs, spec = pytree.tree_flatten(function(*given))
    unchanged = {
        id(copy): place
        for place, (copy, version) in enumerate(zip(given, versions, strict=True))
        if copy._version == version
    }
    return Called(outputs, spec, [unchanged.get(id(output)) for output in outputs])


def write_graph(
    path: Path,
    function: Callable[..., Any],
    parts: Sequence[nn.Module],
    given: Sequence[tuple[Leaf, Tensor]],
    outputs: Mapping[int, str],
    *,
    what: str,
) -> Graph:
    """Write a function as a graph whose batch and lengths are free.

    Args:
        path: The file to write.
        function: Tensors to a tree of tensors; it may work in place.
        parts: Modules whose weights it uses.
        given: Its inputs, of at least two samples.
        outputs: Which of its outputs the graph gives, and their names.
        what: What it computes, for messages.

    Returns:
        The graph; inputs that do not matter to any output are not among those it reads.
    """
    leaves = [leaf for leaf, _ in given]
    try:
        with _quiet():
            program = torch.onnx.export(
                _captured(_Traced(function, parts, tuple(outputs)), given),
                dynamo=True,
                input_names=[leaf.name for leaf in leaves],
                output_names=list(outputs.values()),
                verbose=False,
                optimize=False,
            )
            assert program is not None
            _simplify(program.model)
    except Exception as error:  # torch raises what it likes here
        reason = str(error).strip().partition("\n")[0][:300]
        raise InputError(
            f"{what} cannot be written as an ONNX graph ({type(error).__name__}: {reason}); run this network with "
            "another backend, or write that part with operations that torch.export can follow"
        ) from error
    proto = program.model_proto
    used = {name for node in proto.graph.node for name in node.input} | {out.name for out in proto.graph.output}
    for value in [value for value in proto.graph.input if value.name not in used]:
        proto.graph.input.remove(value)
    _forget_origins(proto)
    size = proto.ByteSize()
    if size > LARGEST_GRAPH:
        raise InputError(f"{what} has {size:,} bytes, and a graph holds 2 GB at most; cut the network into more stages")
    path.write_bytes(proto.SerializeToString(deterministic=True))
    return Graph(path, tuple(value.name for value in proto.graph.input), tuple(outputs.values()))


def check_graph(found: Sequence[Any], expected: Sequence[Tensor], *, what: str) -> None:
    """Refuse a graph that does not compute what torch computes.

    Args:
        found: Arrays that the graph gave.
        expected: The tensors that torch gave for the same inputs.
        what: What was computed, for messages.
    """
    for array, tensor in zip(found, expected, strict=True):
        if tuple(array.shape) != tuple(tensor.shape):
            raise InputError(
                f"{what}: its ONNX graph gives shape {tuple(array.shape)} where torch gives {tuple(tensor.shape)}; it "
                "is bound to the example's size: run this network with another backend"
            )
        wide = tensor.to(torch.float64)
        distance = float((torch.from_numpy(array).to(torch.float64) - wide).abs().max()) if tensor.numel() else 0.0
        scale = max(1.0, float(wide.abs().max())) if tensor.numel() else 1.0
        if not distance <= TOLERANCE * scale:
            raise InputError(
                f"{what}: its ONNX graph differs from torch by {distance:.3g} in numbers up to {scale:.3g}, for a "
                f"batch of shape {tuple(tensor.shape)}; run this network with another backend, and report it, please"
            )


def _captured(traced: nn.Module, given: Sequence[tuple[Leaf, Tensor]]) -> torch.export.ExportedProgram:
    """The function as torch sees it, by either of its two ways to look: len(x) binds one of them to the example."""
    values = tuple(value for _, value in given)
    free = (tuple(leaf.free for leaf, _ in given),)
    try:
        return torch.export.export(traced, values, dynamic_shapes=free, strict=False)
    except Exception:  # torch raises what it likes here
        return torch.export.export(traced, values, dynamic_shapes=free, strict=True)


def _simplify(model: Any) -> None:
    """Fold constants, and batch norms into convolutions, and drop what nobody reads.

    Not as the exporter would by itself: its rules take an addition of 1e-8, which keeps a quotient finite, for one of
    nothing.
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


def _forget_origins(proto: Any) -> None:
    """Drop stack traces and paths of this machine: a tenth of a small file, and nobody else's business."""
    del proto.metadata_props[:]
    del proto.graph.metadata_props[:]
    for part in (*proto.graph.node, *proto.graph.input, *proto.graph.output, *proto.graph.initializer):
        del part.metadata_props[:]
    del proto.graph.value_info[:]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what exporting says on its way: of versions, of decompositions, of its own deprecations."""
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
