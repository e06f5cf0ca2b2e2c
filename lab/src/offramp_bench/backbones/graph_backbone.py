"""PyTorch Geometric networks that classify graphs: one stage per message-passing layer."""

from collections.abc import Iterable, Iterator, Sequence
from inspect import signature
from itertools import pairwise, takewhile
from typing import Any

import torch_geometric.nn as gnn
from torch import nn
from torch_geometric.nn.models.basic_gnn import BasicGNN

from offramp._registry import unknown_name
from offramp.backbone._hidden import Hidden
from offramp.errors import InputError
from offramp_bench.backbones.graph_samples import GraphBackbone

__all__ = ["graph_backbone"]

READOUTS = {"add": gnn.SumAggregation, "max": gnn.MaxAggregation, "mean": gnn.MeanAggregation}
DEFAULT_POLICIES = ("edge_index", "edge_weight", "edge_attr", "batch", "batch_size")
_Call = tuple[Any, tuple[str, ...]]  # a module, and the names of its arguments after x


class _Layer(nn.Module):
    """Modules from x to x, run in order; if layers jump, their results are kept for the head."""

    def __init__(self, calls: Sequence[_Call], jumps: bool) -> None:
        super().__init__()
        self.calls, self.reads = nn.ModuleList(call for call, _ in calls), [reads for _, reads in calls]
        self.jumps = jumps

    def extra_repr(self) -> str:
        return f"reads={self.reads}, jumps={self.jumps}"

    def forward(self, hidden: Hidden) -> Hidden:
        values, x = {**hidden, "batch_size": len(hidden["nodes"])}, hidden["x"]
        for call, reads in zip(self.calls, self.reads, strict=True):
            x = call(x, *map(values.get, reads))
        return {**hidden, "x": x} | ({"layers": [*hidden.get("layers", ()), x]} if self.jumps else {})


class _Head(nn.Module):
    def __init__(self, jump: nn.Module | None, nodes: nn.Module, readout: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.jump, self.nodes, self.readout, self.head = jump, nodes, readout, head

    def forward(self, hidden: Hidden) -> Any:
        x = self.nodes(hidden["x"] if self.jump is None else self.jump(hidden["layers"]))
        return self.head(self.readout(x, hidden["batch"], dim_size=len(hidden["nodes"])))


def graph_backbone(
    network: Any, head: nn.Module, *, readout: str = "mean", num_classes: int | None = None, name: str | None = None
) -> GraphBackbone:
    """Cut a graph classifier into stages, one per message-passing layer; its modules are frozen, not copied.

    Args:
        network: A network from node features to node features: a `BasicGNN` (`GCN`, `GIN`, `GAT`, ...), a `Sequential`
            of PyTorch Geometric without branches, or a list of modules. Each module of a list takes x, then those of
            edge_index, edge_weight, edge_attr, batch and batch_size that follow x in its forward.
        head: A module from pooled graphs to `N x K` logits.
        readout: "mean", "add" or "max" over the nodes of a graph.
        num_classes: K, if no linear module in the head shows it.
        name: Name of the architecture; class and depth if left out.

    Example:
        >>> backbone = graph_backbone(gnn.GIN(7, 16, num_layers=3), nn.Linear(16, 2), readout="add")
        >>> backbone.name, backbone.num_exits, backbone.num_classes
        ('gin-3', 3, 2)
    """
    if readout not in READOUTS:
        raise unknown_name("readout", readout, READOUTS)
    widths = [getattr(module, "out_features", getattr(module, "out_channels", None)) for module in head.modules()]
    classes = num_classes or ([0] + [width for width in widths if width])[-1]
    if classes < 2:
        got = classes or "no linear module that tells"
        raise InputError(f"expected a head with an output a class, 2 or more, found {got}; give one, or num_classes=")
    calls, kind = list(_calls(network)), type(network).__name__
    for call, reads in calls:
        if problem := _problem(call, reads):
            raise InputError(f"{getattr(call, '__name__', type(call).__name__)} in {kind} {problem}")
    starts = [index for index, (call, _) in enumerate(calls) if _passes_messages(call)]
    if not starts:
        raise InputError(f"expected layers that pass messages, {kind} has none; make an offramp.Backbone of its stages")
    layers = [calls[start:stop] for start, stop in pairwise([0, *starts[1:], len(calls)])]
    jump, linear = (getattr(network, part, None) if isinstance(network, BasicGNN) else None for part in ("jk", "lin"))
    stages = [_Layer(layer, jump is not None) for layer in layers]
    last = _Head(jump, linear or nn.Identity(), READOUTS[readout](), head)
    return GraphBackbone(name or f"{kind.lower()}-{len(layers)}", stages, {len(layers) - 1: last}, classes)


def _calls(network: Any) -> Iterator[_Call]:
    """Yield the modules of a network in the order they run."""
    if isinstance(network, list | tuple | nn.ModuleList):
        yield from ((call, _argument_names(call, DEFAULT_POLICIES)) for call in network)
    elif isinstance(network, gnn.Sequential):
        results = [["x"], *(child.return_names for child in network._children)]
        for before, (name, (x, *reads), returns) in zip(results, network._children, strict=False):
            if [x] != before or len(returns) > 1 or not {*DEFAULT_POLICIES}.issuperset(reads):
                step = f"{', '.join([x, *reads])} -> {', '.join(returns)}"
                raise InputError(f"expected modules that follow one another, got '{step}'; put branches into a module")
            yield getattr(network, name), tuple(reads)
    elif isinstance(network, BasicGNN) and type(network).forward is BasicGNN.forward:
        available = [name for name in DEFAULT_POLICIES if getattr(network, f"supports_{name}", True)]
        for index, (conv, norm) in enumerate(zip(network.convs, network.norms, strict=True)):
            inner = index + 1 < network.num_layers or network.jk_mode is not None
            after = (network.act, norm) if network.act_first else (norm, network.act)
            ordered = [conv, *(call for call in after if inner and call is not None)]
            yield from ((call, _argument_names(call, available)) for call in ordered)
    else:
        got = f"{type(network).__name__}{' with a forward of its own' * isinstance(network, BasicGNN)}"
        raise InputError(f"expected a BasicGNN, a PyTorch Geometric Sequential or a list, got {got}; list its layers")


def _argument_names(call: Any, available: Iterable[str]) -> tuple[str, ...]:
    """Return the available arguments that follow x in a module's forward, up to the first that is not available."""
    names = signature(call.forward).parameters if isinstance(call, nn.Module) else ()
    names = call.signature.param_dict if isinstance(call, gnn.Sequential) else names
    # Built without edge_dim, a layer cannot take edge features, though its forward names them.
    known = {*available} - ({"edge_attr"} if getattr(call, "edge_dim", 0) is None else set())
    return tuple(takewhile(known.__contains__, [*names][1:]))


def _problem(call: Any, reads: Sequence[str]) -> str | None:
    """Return why a module cannot be part of a layer, if so: it must not mix graphs, as some leave a batch early."""
    if not isinstance(call, nn.Module) or isinstance(call, gnn.Aggregation):
        return "is no module from nodes to nodes: give it in one, the readout as readout=, what follows as head"
    if _passes_messages(call) and not reads:
        return "names no edge_index next to x in its forward: wrap it in a module that does"
    for module in call.modules():
        norm = type(module).__module__.startswith("torch_geometric.nn.norm") and getattr(module, "mode", "") != "node"
        if norm and "batch" not in reads and "batch" in signature(module.forward).parameters:
            return f"has a {type(module).__name__} that takes all graphs for one: use batch_norm, or pass it batch"
        if getattr(module, "cached", False):
            return "keeps the edges of the first batch it sees: make it with cached=False"
    return None


def _passes_messages(call: Any) -> bool:
    return isinstance(call, nn.Module) and any(isinstance(module, gnn.MessagePassing) for module in call.modules())
