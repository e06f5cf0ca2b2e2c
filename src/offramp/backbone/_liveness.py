"""Liveness: the values that must cross a cut through a captured graph."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import fx

from offramp.backbone._capture import Captured, Value
from offramp.backbone._hidden import Axes

__all__ = ["Liveness"]


@dataclass(frozen=True)
class Liveness:
    """The values of a graph that cross each cut.

    A cut at position p comes before node p. Three kinds of values do not cross. Weights are fetched again. Numbers (a
    batch size, a shape) are read off the values that cross. Values computed from the inputs without weights, above all
    attention masks, are recomputed: the input crosses instead, so that selecting and padding act on the input.
    """

    graph: Captured
    """The graph."""

    @cached_property
    def index(self) -> dict[fx.Node, int]:
        """The position of each node."""
        return {node: position for position, node in enumerate(self.graph.nodes)}

    def value(self, node: fx.Node) -> Value:
        """Return the properties of a node's result."""
        return self.graph.values[self.index[node]]

    @cached_property
    def light(self) -> frozenset[fx.Node]:
        """Nodes that can be recomputed: neither they nor their sources use weights."""
        light: set[fx.Node] = set()
        for node in self.graph.nodes:
            if node.op == "placeholder" or self.value(node).mul_adds or not self._can_repeat(node):
                continue
            sources = [source for source in node.all_input_nodes if not self.is_number(source)]
            if all(source in light or source.op == "placeholder" for source in sources):
                light.add(node)
        return frozenset(light)

    @cached_property
    def _weights(self) -> frozenset[str]:
        """The paths of all weights."""
        return frozenset(name for name, _ in self.graph.module.named_parameters())

    def _can_repeat(self, node: fx.Node) -> bool:
        """True if a node may run twice: it has no weights, and changes no input or weight in place."""
        if node.op == "get_attr":
            return str(node.target) not in self._weights
        if node.op == "call_module":
            called = self.graph.module.get_submodule(str(node.target))
            return not called.state_dict() and (self.value(node).own or not getattr(called, "inplace", False))
        name = str(getattr(node.target, "__name__", node.target)).partition(".")[0]
        in_place = node.kwargs.get("inplace") or (name.endswith("_") and not name.startswith("__"))
        return self.value(node).own or not in_place

    def is_number(self, node: fx.Node) -> bool:
        """Return True if a node's result is no tensor: a size, a shape, a flag."""
        value = self.value(node)
        return value.shapes is None and node.op != "placeholder" and value.results[0] != "tensors"

    def carried_for(self, nodes: Sequence[fx.Node]) -> set[fx.Node]:
        """Return the values that `nodes` need from before them."""
        return {node for node in self._sources(nodes) - self.light if node.op != "get_attr"}

    def repeated_for(self, nodes: Sequence[fx.Node]) -> list[fx.Node]:
        """Return the nodes to recompute from those values, in order, as some work in place."""
        return sorted(self._sources(nodes) & self.light, key=lambda node: self.index[node])

    def _sources(self, nodes: Sequence[fx.Node]) -> set[fx.Node]:
        """Return the earlier nodes that `nodes` depend on, back to the first nodes that are too costly to recompute."""
        inside = set(nodes)
        todo = [source for node in nodes for source in node.all_input_nodes]
        sources: set[fx.Node] = set()
        while todo:
            node = todo.pop()
            if node in inside or node in sources or self.is_number(node):
                continue
            sources.add(node)
            if node in self.light:
                todo.extend(node.all_input_nodes)
        return sources

    @cached_property
    def crossing(self) -> tuple[frozenset[fx.Node], ...]:
        """For each position, the values computed with weights that cross a cut there; inputs are left out."""
        last_use: dict[fx.Node, int] = {}
        for position, node in enumerate(self.graph.nodes):
            for source in node.all_input_nodes:
                last_use[source] = position
        last_use[self.graph.logits] = len(self.graph.nodes)
        live: set[fx.Node] = set()
        crossing = []
        for position, node in enumerate(self.graph.nodes):
            live = {value for value in live if last_use.get(value, -1) >= position}
            crossing.append(frozenset(live))
            heavy = node.op not in ("placeholder", "get_attr") and node not in self.light and not self.is_number(node)
            if heavy:
                live.add(node)
        return (*crossing, frozenset({self.graph.logits}))

    def axes(self, node: fx.Node, pad: float = 0.0) -> Axes | None:
        """Return the batch and length axes of a value; None if they are merged with other axes."""
        shapes = self.value(node).shapes
        if shapes is None or len({len(shape) for shape in shapes}) > 1:
            return None
        batch: int | None = None
        lengths = []
        for axis, sizes in enumerate(zip(*shapes, strict=True)):
            if len(set(sizes)) == 1:
                continue
            if sizes == self.graph.batches and batch is None:
                batch = axis
            elif sizes == self.graph.lengths:
                lengths.append(axis)
            else:
                return None
        return Axes(batch, tuple(lengths), pad)
