"""A network as a flat graph of operations, with what is known of every value: shape, cost, who computed it.

Two ways to get there: torch.fx, which keeps the network's own modules as nodes, and torch.export, which follows what
torch.fx cannot. What happens to batch and length is found by running the graph at several of them.
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

from offramp.backbone.hidden import Hidden, at_length, batch_size, leaf_axes, lengths_of, select
from offramp.backbone.task import agree, call_network, check_end, check_task, logits_of
from offramp.errors import InputError, SplitRefusedError

__all__ = ["Call", "Captured", "Value", "capture"]


@dataclass(frozen=True)
class Call:
    """One call of one module."""

    path: str
    """Its place in the network, `@n` behind it from the second call on."""
    kind: str
    """The name of its class."""


@dataclass(frozen=True)
class Value:
    """What is known of a node's result."""

    shapes: tuple[tuple[int, ...], ...] | None
    """Of a tensor: its shape in each probe."""
    results: tuple[Any, ...]
    """Of anything else: the result itself in each probe."""
    real: bool
    """Whether it is a tensor of real numbers."""
    mul_adds: int
    """What computing it costs, in the first probe."""
    own: bool
    """Whether its memory is its own: not, even in part, that of an input or a weight."""


@dataclass(frozen=True)
class Captured:
    """A network's graph."""

    module: fx.GraphModule
    """The graph, with the modules and weights it uses."""
    by: Literal["torch.fx", "torch.export"]
    """Who captured it."""
    nodes: tuple[fx.Node, ...]
    """Every node but the output, in the order of execution."""
    inputs: tuple[fx.Node, ...]
    """The nodes of the inputs' leaves."""
    logits: fx.Node
    """The node of the class scores."""
    stacks: tuple[tuple[Call, ...], ...]
    """For each node, the calls it was made in, outermost first."""
    values: tuple[Value, ...]
    """For each node, what is known of its result."""
    batches: tuple[int, ...]
    """Samples in each probe."""
    lengths: tuple[int, ...]
    """Length of the samples in each probe; the same number where they have none."""


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        # Whole transformers of torch.nn are what should be cut.
        whole = isinstance(m, nn.TransformerEncoder | nn.TransformerDecoder | nn.Transformer)
        return not whole and super().is_leaf_module(m, module_qualified_name)


class _Logits(nn.Module):
    """A network as torch.export takes it: one argument, class scores alone."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Hidden) -> Any:
        return logits_of(call_network(self.network, inputs))


@torch.no_grad()
def capture(network: nn.Module, example: Hidden, axes: Any) -> Captured:
    """Capture a network's graph, by torch.fx where it can, else by torch.export.

    Args:
        network: In evaluation mode.
        example: A batch of inputs: a tensor, a tuple of arguments or a dictionary of named ones.
        axes: `Axes` of the inputs' leaves.

    Returns:
        The graph, and what is known of its values.
    """
    probes, batches, lengths = _probes(example, axes)
    expected = []
    for probe, length in zip(probes, lengths, strict=True):
        try:
            expected.append(logits_of(call_network(network, probe)))
        except (IndexError, RuntimeError, TypeError, ValueError) as error:
            told = (
                f" of length {length}; if no axis of the inputs is a length, say so with axes=Axes()" if length else ""
            )
            raise SplitRefusedError(
                f"{type(network).__name__} fails on {batches[len(expected)]} samples{told}: {error}"
            ) from error
    check_task(expected[1])
    company = [([0, 1, 2], expected[1][:3])]
    for rows in ([0, 1], [1, 2], [2, 0]):
        company.append((rows, logits_of(call_network(network, select(probes[0], torch.tensor(rows), axes)))))
    if not all(agree(found, expected[0][rows], rtol=1e-3, atol=1e-4) for rows, found in company):
        raise SplitRefusedError(
            f"the answer of {type(network).__name__} for a sample depends on the others in its batch; samples that "
            "leave would change the answers of those that stay"
        )
    reasons = {}
    ways: dict[Literal["torch.fx", "torch.export"], Callable[..., fx.GraphModule]] = {
        "torch.fx": _by_fx,
        "torch.export": _by_export,
    }
    for by, way in ways.items():
        try:
            module = way(network, probes[0], axes)
            values, found = _observe(module, probes)
        except Exception as error:  # whatever a network does to a tracer
            reasons[by] = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
            continue
        if not all(map(agree, found, expected)):
            reasons[by] = "what it captured does not compute what the network computes at other batch sizes or lengths"
            continue
        nodes = tuple(node for node in module.graph.nodes if node.op != "output")
        inputs = tuple(node for node in nodes if node.op == "placeholder")
        logits = logits_of(next(iter(reversed(module.graph.nodes))).args[0])
        check_end(module, logits)
        stacks = tuple(_stack(node) for node in nodes)
        return Captured(module, by, nodes, inputs, logits, stacks, values, batches, lengths)
    raise SplitRefusedError(
        f"neither torch.fx nor torch.export can capture {type(network).__name__}: "
        + "; ".join(f"{by}: {reason}" for by, reason in reasons.items())
        + ". Give the stages by hand: offramp.Backbone(name, stages, heads, num_classes)"
    )


def _probes(example: Hidden, axes: Any) -> tuple[list[Hidden], tuple[int, ...], tuple[int, ...]]:
    """The example at several numbers of samples and lengths."""
    lengths = lengths_of(example, axes)
    if len(lengths) > 1:
        raise InputError(f"expected one length in all inputs that have one, found {sorted(lengths)}")
    growing = bool(lengths)
    length = max(4, *lengths) if growing else 0
    # Three and five samples: a number that changes from 3 to 5 is a number of samples, one from 6 to 10 a multiple.
    shapes = [(3, length), (5, length)]
    if growing:
        shapes += [(3, length - 1)]
    probes = []
    for batch, size in shapes:
        rows = torch.arange(batch) % batch_size(example, axes)
        probe = pytree.tree_map(partial(_told_apart, given=batch_size(example, axes)), select(example, rows, axes))
        probes.append(at_length(probe, size, axes) if growing else probe)
    return probes, tuple(batch for batch, _ in shapes), tuple(size for _, size in shapes)


def _told_apart(leaf: Tensor, given: int) -> Tensor:
    """Samples that repeat the example's, made to differ: of real numbers, each further round is a little larger."""
    if not leaf.is_floating_point() or leaf.ndim < 2:
        return leaf
    rounds = torch.arange(len(leaf), device=leaf.device) // given
    return leaf * (1 + rounds / 8).to(leaf.dtype).view(-1, *[1] * (leaf.ndim - 1))


def _by_fx(network: nn.Module, example: Hidden, axes: Any) -> fx.GraphModule:
    parameters = inspect.signature(network.forward).parameters
    if isinstance(example, Mapping):
        given = [str(name) for name in example]
    else:
        given = list(parameters)[: len(example) if isinstance(example, tuple | list) else 1]
    left = {name: p.default for name, p in parameters.items() if name not in given and p.default is not p.empty}
    graph = _Tracer().trace(network, concrete_args=left)
    placed = {str(node.target): node for node in graph.nodes if node.op == "placeholder"}
    for name, node in placed.items():
        if name not in given:  # an argument left at its default: traced as a constant, with checks that it is
            _erase(graph, node)
    for name in reversed(given):
        placed[name].args = ()  # given: its default, if it has one, must not stand before what has none
        next(iter(graph.nodes)).prepend(placed[name])
    _name_changes(graph)
    return fx.GraphModule(network, graph)


def _name_changes(graph: fx.Graph) -> None:
    """Let what comes after `mask.masked_fill_(...)` read its result: else the mask computed again would lack it."""
    before: set[fx.Node] = set()
    for node in graph.nodes:
        before.add(node)
        if node.op == "call_method" and str(node.target).endswith("_") and not str(node.target).endswith("__"):
            node.args[0].replace_all_uses_with(node, delete_user_cb=lambda user: user not in before)


def _erase(graph: fx.Graph, node: fx.Node) -> None:
    """Erase a node and all that hangs on it."""
    for user in list(node.users):
        _erase(graph, user)
    graph.erase_node(node)


def _by_export(network: nn.Module, example: Hidden, axes: Any) -> fx.GraphModule:
    spec = pytree.tree_structure(example)
    free = [
        {axis: torch.export.Dim.AUTO for axis in (ax.batch, *ax.lengths) if axis is not None}
        for ax in leaf_axes(example, axes)
    ]
    dynamic = pytree.tree_unflatten(free, spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter's own workings
        program = torch.export.export(_Logits(network), (example,), dynamic_shapes=(dynamic,), strict=False)
        module = program.module(check_guards=False)
    assert isinstance(module, fx.GraphModule)
    for node in list(module.graph.nodes):  # checks of shapes that were assumed; ours run at shapes of their own
        if node.op == "call_function" and "assert" in str(node.target) and not node.users:
            module.graph.erase_node(node)
    return fx.GraphModule(module, module.graph)


class _Observer(fx.Interpreter):
    """Runs a graph and keeps what came out of every node, and what it cost."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.counter = FlopCounterMode(display=False)
        self.given: set[int] = set()
        self.seen: list[tuple[Any, int, bool]] = []

    def run_node(self, n: fx.Node) -> Any:
        before = self.counter.get_total_flops()
        result = super().run_node(n)
        if n.op != "output":
            memory = result.untyped_storage().data_ptr() if isinstance(result, Tensor) else None
            if memory is not None and n.op in ("placeholder", "get_attr"):
                self.given.add(memory)
            kept = ("tensor", tuple(result.shape), result.is_floating_point()) if isinstance(result, Tensor) else result
            if isinstance(result, tuple | list) and any(isinstance(part, Tensor) for part in result):
                kept = "tensors"
            mul_adds = (self.counter.get_total_flops() - before) // 2
            self.seen.append((kept, mul_adds, memory not in self.given))
        return result


def _observe(module: fx.GraphModule, probes: Sequence[Hidden]) -> tuple[tuple[Value, ...], list[Tensor]]:
    """Every node's value over the probes, and the class scores of each."""
    runs, logits = [], []
    for probe in probes:
        observer = _Observer(module)
        with sdpa_kernel(SDPBackend.MATH), observer.counter:  # fused attention would count nothing on CPUs
            logits.append(logits_of(observer.run(*pytree.tree_leaves(probe))))
        runs.append(observer.seen)
    values = []
    for columns in zip(*runs, strict=True):
        results = tuple(result for result, _, _ in columns)
        is_tensor = isinstance(results[0], tuple) and results[0][:1] == ("tensor",)
        shapes = tuple(result[1] for result in results) if is_tensor else None
        real = is_tensor and results[0][2]
        values.append(Value(shapes, () if is_tensor else results, real, columns[0][1], columns[0][2]))
    return tuple(values), logits


def _stack(node: fx.Node) -> tuple[Call, ...]:
    """The calls a node was made in, in the network's own names."""
    calls = []
    for key, (path, kind) in (node.meta.get("nn_module_stack") or {}).items():
        name = path.removeprefix("L['self'].").removeprefix("network").removeprefix(".")
        if not name or name.startswith("_empty"):  # the network itself; torch.export's own bookkeeping
            continue
        again = key.rpartition("@")[2] if "@" in key else ""
        calls.append(
            Call(
                f"{name}@{again}" if again else name,
                kind.rpartition(".")[2] if isinstance(kind, str) else kind.__name__,
            )
        )
    return tuple(calls)
