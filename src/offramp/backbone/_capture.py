"""Capture of a network as a flat graph of operations, with the shape, cost and module of every value.

torch.fx keeps the network's own modules as nodes; torch.export is the fallback where torch.fx fails. Batch and length
axes are found by running the graph at several batch sizes and lengths.
"""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode

from offramp.backbone._classifier import agree, call_network, check_end, check_logits, logits_of
from offramp.backbone._hidden import Hidden, batch_size, leaf_axes, lengths_of, select, with_length
from offramp.errors import InputError, SplitRefusedError

__all__ = ["Call", "Captured", "Value", "capture"]


@dataclass(frozen=True)
class Call:
    """One call of one module."""

    path: str
    """Its path in the network, with `@n` appended from the second call on."""
    kind: str
    """The name of its class."""


@dataclass(frozen=True)
class Value:
    """Properties of a node's result."""

    shapes: tuple[tuple[int, ...], ...] | None
    """The shape in each probe; None if the result is no tensor."""
    results: tuple[Any, ...]
    """The result in each probe, if it is no tensor."""
    real: bool
    """True for a tensor of floats."""
    mul_adds: int
    """Mul-Adds to compute it, in the first probe."""
    own: bool
    """True if it shares no memory with an input or a weight."""


@dataclass(frozen=True)
class Captured:
    """The graph of a network."""

    module: fx.GraphModule
    """The graph, with the modules and weights it uses."""
    by: Literal["torch.fx", "torch.export"]
    """The library that captured it."""
    nodes: tuple[fx.Node, ...]
    """All nodes except the output, in the order of execution."""
    inputs: tuple[fx.Node, ...]
    """The nodes of the inputs, one per leaf."""
    logits: fx.Node
    """The node of the class scores."""
    stacks: tuple[tuple[Call, ...], ...]
    """For each node, the module calls around it, outermost first."""
    values: tuple[Value, ...]
    """For each node, the properties of its result."""
    batches: tuple[int, ...]
    """Number of samples in each probe."""
    lengths: tuple[int, ...]
    """Length of the samples in each probe; 0 if they have none."""


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        # Transformers of torch.nn are to be cut, so they are no leaves.
        whole = isinstance(m, nn.TransformerEncoder | nn.TransformerDecoder | nn.Transformer)
        return not whole and super().is_leaf_module(m, module_qualified_name)


class _Logits(nn.Module):
    """A network in the form torch.export takes: one argument, class scores alone."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Hidden) -> Any:
        return logits_of(call_network(self.network, inputs))


@torch.no_grad()
def capture(network: nn.Module, example: Hidden, axes: Any) -> Captured:
    """Capture a network's graph by torch.fx, or by torch.export if that fails.

    Args:
        network: The network, in evaluation mode.
        example: A batch of inputs: a tensor, a tuple of arguments or a dictionary of named ones.
        axes: `Axes` of the inputs' leaves.

    Returns:
        The graph, with the properties of its values.
    """
    probes, batches, lengths = _probes(example, axes)
    expected = []
    for probe, length in zip(probes, lengths, strict=True):
        try:
            expected.append(logits_of(call_network(network, probe)))
        except (IndexError, RuntimeError, TypeError, ValueError) as error:
            raise SplitRefusedError(
                f"{type(network).__name__} fails on {batches[len(expected)]} samples"
                f"{f' of length {length}' if length else ''}: {error}",
                hint="if no axis of the inputs is a length, pass axes=Axes()" if length else "",
            ) from error
    check_logits(expected[1])
    batches_of_rows = [([0, 1, 2], expected[1][:3])]
    for rows in ([0, 1], [1, 2], [2, 0]):
        batches_of_rows.append((rows, logits_of(call_network(network, select(probes[0], torch.tensor(rows), axes)))))
    if not all(agree(logits, expected[0][rows], rtol=1e-3, atol=1e-4) for rows, logits in batches_of_rows):
        raise SplitRefusedError(
            f"the output of {type(network).__name__} for a sample depends on the others in its batch, so samples that "
            "leave would change the predictions of those that stay"
        )
    reasons = {}
    tracers: dict[Literal["torch.fx", "torch.export"], Callable[[], fx.GraphModule]] = {
        "torch.fx": lambda: _trace(network, probes[0]),
        "torch.export": lambda: _export(network, probes[0], axes),
    }
    for by, trace in tracers.items():
        try:
            module = trace()
            values, logits_of_probes = _observe(module, probes)
        except Exception as error:  # tracing a network may raise anything
            reasons[by] = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
            continue
        if not all(map(agree, logits_of_probes, expected)):
            reasons[by] = "the captured graph differs from the network at other batch sizes or lengths"
            continue
        nodes = tuple(node for node in module.graph.nodes if node.op != "output")
        inputs = tuple(node for node in nodes if node.op == "placeholder")
        logits = logits_of(next(iter(reversed(module.graph.nodes))).args[0])
        check_end(module, logits)
        stacks = tuple(_stack(node) for node in nodes)
        return Captured(module, by, nodes, inputs, logits, stacks, values, batches, lengths)
    raise SplitRefusedError(
        f"neither torch.fx nor torch.export can capture {type(network).__name__}: "
        + "; ".join(f"{by}: {reason}" for by, reason in reasons.items()),
        hint="give the stages by hand: offramp.Backbone(name, stages, heads, num_classes)",
    )


def _probes(example: Hidden, axes: Any) -> tuple[list[Hidden], tuple[int, ...], tuple[int, ...]]:
    """Return the example at several batch sizes and lengths, the batch sizes, and the lengths."""
    lengths = lengths_of(example, axes)
    if len(lengths) > 1:
        raise InputError(expected="one length in all inputs that have one", got=sorted(lengths))
    has_length = bool(lengths)
    length = max(4, *lengths) if has_length else 0
    # 3 and 5 samples: a size that changes from 3 to 5 is the batch size, one from 6 to 10 a multiple of it.
    shapes = [(3, length), (5, length)]
    if has_length:
        shapes += [(3, length - 1)]
    probes = []
    for batch, size in shapes:
        rows = torch.arange(batch) % batch_size(example, axes)
        probe = pytree.tree_map(partial(_vary_repeats, count=batch_size(example, axes)), select(example, rows, axes))
        probes.append(with_length(probe, size, axes) if has_length else probe)
    return probes, tuple(batch for batch, _ in shapes), tuple(size for _, size in shapes)


def _vary_repeats(leaf: Tensor, count: int) -> Tensor:
    """Scale floats of samples that repeat the first `count` ones, so that all samples differ."""
    if not leaf.is_floating_point() or leaf.ndim < 2:
        return leaf
    rounds = torch.arange(len(leaf), device=leaf.device) // count
    return leaf * (1 + rounds / 8).to(leaf.dtype).view(-1, *[1] * (leaf.ndim - 1))


def _trace(network: nn.Module, example: Hidden) -> fx.GraphModule:
    """Capture a network by torch.fx."""
    parameters = inspect.signature(network.forward).parameters
    if isinstance(example, Mapping):
        names = [str(name) for name in example]
    else:
        names = list(parameters)[: len(example) if isinstance(example, tuple | list) else 1]
    defaults = {name: p.default for name, p in parameters.items() if name not in names and p.default is not p.empty}
    graph = _Tracer().trace(network, concrete_args=defaults)
    placeholders = {str(node.target): node for node in graph.nodes if node.op == "placeholder"}
    for name, node in placeholders.items():
        if name not in names:  # an argument at its default: traced as a constant, with checks that it is
            _erase(graph, node)
    for name in reversed(names):
        placeholders[name].args = ()  # no default, which must not precede an argument without one
        next(iter(graph.nodes)).prepend(placeholders[name])
    _use_in_place_results(graph)
    return fx.GraphModule(network, graph)


def _use_in_place_results(graph: fx.Graph) -> None:
    """Let nodes after `mask.masked_fill_(...)` read its result, so that a recomputed mask includes the change."""
    before: set[fx.Node] = set()
    for node in graph.nodes:
        before.add(node)
        if node.op == "call_method" and str(node.target).endswith("_") and not str(node.target).endswith("__"):
            node.args[0].replace_all_uses_with(node, delete_user_cb=lambda user: user not in before)


def _erase(graph: fx.Graph, node: fx.Node) -> None:
    """Erase a node and everything that uses it."""
    for user in list(node.users):
        _erase(graph, user)
    graph.erase_node(node)


def _export(network: nn.Module, example: Hidden, axes: Any) -> fx.GraphModule:
    """Capture a network by torch.export."""
    spec = pytree.tree_structure(example)
    free = [
        {axis: torch.export.Dim.AUTO for axis in (ax.batch, *ax.lengths) if axis is not None}
        for ax in leaf_axes(example, axes)
    ]
    dynamic = pytree.tree_unflatten(free, spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the exporter's internals
        program = torch.export.export(_Logits(network), (example,), dynamic_shapes=(dynamic,), strict=False)
        module = program.module(check_guards=False)
    assert isinstance(module, fx.GraphModule)
    for node in list(module.graph.nodes):  # assertions on shapes; the probes check these
        if node.op == "call_function" and "assert" in str(node.target) and not node.users:
            module.graph.erase_node(node)
    return fx.GraphModule(module, module.graph)


class _Observer(fx.Interpreter):
    """An interpreter that records the result and the cost of every node."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.counter = FlopCounterMode(display=False)
        self.foreign: set[int] = set()
        self.records: list[tuple[Any, int, bool]] = []

    def run_node(self, n: fx.Node) -> Any:
        before = self.counter.get_total_flops()
        result = super().run_node(n)
        if n.op != "output":
            memory = result.untyped_storage().data_ptr() if isinstance(result, Tensor) else None
            if memory is not None and n.op in ("placeholder", "get_attr"):
                self.foreign.add(memory)
            record = (
                ("tensor", tuple(result.shape), result.is_floating_point()) if isinstance(result, Tensor) else result
            )
            if isinstance(result, tuple | list) and any(isinstance(part, Tensor) for part in result):
                record = "tensors"
            mul_adds = (self.counter.get_total_flops() - before) // 2
            self.records.append((record, mul_adds, memory not in self.foreign))
        return result


def _observe(module: fx.GraphModule, probes: Sequence[Hidden]) -> tuple[tuple[Value, ...], list[Tensor]]:
    """Return every node's value over the probes, and the class scores of each probe."""
    runs, logits = [], []
    for probe in probes:
        observer = _Observer(module)
        with sdpa_kernel(SDPBackend.MATH), observer.counter:  # fused attention would count nothing on CPUs
            logits.append(logits_of(observer.run(*pytree.tree_leaves(probe))))
        runs.append(observer.records)
    values = []
    for columns in zip(*runs, strict=True):
        results = tuple(result for result, _, _ in columns)
        is_tensor = isinstance(results[0], tuple) and results[0][:1] == ("tensor",)
        shapes = tuple(result[1] for result in results) if is_tensor else None
        real = is_tensor and results[0][2]
        values.append(Value(shapes, () if is_tensor else results, real, columns[0][1], columns[0][2]))
    return tuple(values), logits


def _stack(node: fx.Node) -> tuple[Call, ...]:
    """Return the module calls around a node, with the network's own names."""
    calls = []
    for key, (path, kind) in (node.meta.get("nn_module_stack") or {}).items():
        name = path.removeprefix("L['self'].").removeprefix("network").removeprefix(".")
        if not name or name.startswith("_empty"):  # the network itself, or an internal name of torch.export
            continue
        again = key.rpartition("@")[2] if "@" in key else ""
        calls.append(
            Call(
                f"{name}@{again}" if again else name,
                kind.rpartition(".")[2] if isinstance(kind, str) else kind.__name__,
            )
        )
    return tuple(calls)
