"""A network as a flat graph of operations, with what is known of every value: shape, cost, who computed it.

Two ways to get there: torch.fx, which keeps the network's own modules as nodes, and torch.export, which follows what
torch.fx cannot. What happens to batch and length is found by running the graph at several of them.
"""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode

from offramp.errors import InputError, OfframpError
from offramp.trunk.hidden import Hidden, at_length, leaf_axes, select

__all__ = ["Call", "Captured", "SplitRefusedError", "Value", "call_network", "capture", "logits_of"]


class SplitRefusedError(OfframpError, ValueError):
    """A network that cannot be cut into stages, with the reason and what to try."""


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


def call_network(network: nn.Module, inputs: Hidden) -> Any:
    """Call a network with a tensor, a tuple of arguments or a dictionary of named ones."""
    if isinstance(inputs, Mapping):
        return network(**inputs)
    return network(*inputs) if isinstance(inputs, tuple | list) else network(inputs)


def logits_of(outputs: Any) -> Any:
    """The class scores among a network's outputs: the tensor itself, the entry `logits`, or the first of a tuple."""
    if isinstance(outputs, Tensor | fx.Node):
        return outputs
    if isinstance(outputs, Mapping) and "logits" in outputs:
        return outputs["logits"]
    if isinstance(outputs, tuple | list) and outputs:
        return logits_of(outputs[0])
    raise SplitRefusedError(
        f"expected the network to return class scores, or a dictionary with 'logits', got {type(outputs).__name__}; "
        "wrap it in a module that returns the scores alone"
    )


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
    expected = [logits_of(call_network(network, probe)) for probe in probes]
    _check_task(expected[1])
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
        if any(
            not torch.allclose(one, other, rtol=1e-4, atol=1e-5) for one, other in zip(found, expected, strict=True)
        ):
            reasons[by] = "what it captured does not compute what the network computes at other batch sizes or lengths"
            continue
        nodes = tuple(node for node in module.graph.nodes if node.op != "output")
        inputs = tuple(node for node in nodes if node.op == "placeholder")
        logits = logits_of(next(iter(reversed(module.graph.nodes))).args[0])
        _check_end(module, logits)
        stacks = tuple(_stack(node) for node in nodes)
        return Captured(module, by, nodes, inputs, logits, stacks, values, batches, lengths)
    raise SplitRefusedError(
        f"neither torch.fx nor torch.export can capture {type(network).__name__}: "
        + "; ".join(f"{by}: {reason}" for by, reason in reasons.items())
        + ". Give the stages by hand: offramp.Trunk(name, stages, heads, num_classes)"
    )


def _probes(example: Hidden, axes: Any) -> tuple[list[Hidden], tuple[int, ...], tuple[int, ...]]:
    """The example at several numbers of samples and lengths."""
    lengths = {
        leaf.shape[axis]
        for leaf, ax in zip(pytree.tree_leaves(example), leaf_axes(example, axes), strict=True)
        for axis in ax.lengths
    }
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
        rows = torch.arange(batch) % pytree.tree_leaves(example)[0].shape[0]
        probe = select(example, rows, axes)
        probes.append(at_length(probe, size, axes) if growing else probe)
    return probes, tuple(batch for batch, _ in shapes), tuple(size for _, size in shapes)


def _check_task(logits: Any) -> None:
    """Refuse what is not single-label classification."""
    if not isinstance(logits, Tensor) or not logits.is_floating_point():
        raise SplitRefusedError(f"expected class scores as a real tensor, got {type(logits).__name__}")
    shape = tuple(logits.shape)
    if logits.ndim == 3:
        raise SplitRefusedError(
            f"the network labels every token or position (scores of shape {shape}); offramp takes networks that give "
            "one label a sample, scores N x K"
        )
    if logits.ndim != 2:
        raise SplitRefusedError(f"expected scores N x K, one row a sample, got shape {shape}")
    if shape[1] < 2:
        raise SplitRefusedError(
            "the network has a single output: a regression, or two classes as one score; offramp takes networks with "
            "K >= 2 scores a sample. For two classes, wrap it so that it returns (0, score)"
        )
    if bool((logits >= 0).all()) and torch.allclose(logits.sum(1), torch.ones_like(logits[:, 0]), atol=1e-4):
        raise SplitRefusedError(
            "the network returns probabilities that sum to 1; leave the softmax at its end out, so that it returns "
            "logits"
        )


def _check_end(module: fx.GraphModule, logits: fx.Node) -> None:
    """Refuse networks whose last step is a sigmoid."""
    last = type(module.get_submodule(str(logits.target))).__name__ if logits.op == "call_module" else str(logits.target)
    if "sigmoid" in last.lower():
        raise SplitRefusedError(
            "the network ends in a sigmoid, as in multi-label classification; offramp takes networks that give one "
            "label a sample. If it is one, leave the sigmoid out"
        )


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
        next(iter(graph.nodes)).prepend(placed[name])
    return fx.GraphModule(network, graph)


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
        self.seen: list[tuple[Any, int]] = []

    def run_node(self, n: fx.Node) -> Any:
        before = self.counter.get_total_flops()
        result = super().run_node(n)
        if n.op != "output":
            kept = ("tensor", tuple(result.shape), result.is_floating_point()) if isinstance(result, Tensor) else result
            if isinstance(result, tuple | list) and any(isinstance(part, Tensor) for part in result):
                kept = "tensors"
            self.seen.append((kept, (self.counter.get_total_flops() - before) // 2))
        return result


def _observe(module: fx.GraphModule, probes: Sequence[Hidden]) -> tuple[tuple[Value, ...], list[Tensor]]:
    """Every node's value over the probes, and the class scores of each."""
    runs, logits = [], []
    for probe in probes:
        observer = _Observer(module)
        with observer.counter:
            logits.append(logits_of(observer.run(*pytree.tree_leaves(probe))))
        runs.append(observer.seen)
    values = []
    for columns in zip(*runs, strict=True):
        results = tuple(result for result, _ in columns)
        is_tensor = isinstance(results[0], tuple) and results[0][:1] == ("tensor",)
        shapes = tuple(result[1] for result in results) if is_tensor else None
        values.append(Value(shapes, () if is_tensor else results, is_tensor and results[0][2], columns[0][1]))
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
