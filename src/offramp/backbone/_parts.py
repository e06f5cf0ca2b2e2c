"""The parts of a captured graph between cuts, as graphs of their own."""

import hashlib
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import fx, nn

from offramp.backbone._liveness import Liveness
from offramp.errors import SplitRefusedError

__all__ = ["build_part", "carried_values", "hash_all", "is_convolution", "newest_value", "node_digests"]


def carried_values(
    liveness: Liveness, parts: Sequence[Sequence[fx.Node]], always: Sequence[fx.Node]
) -> list[list[fx.Node]]:
    """Return for each cut the values that later parts need from before it, in the order they are computed."""
    needed: set[fx.Node] = set(always)
    carried = []
    for index in range(len(parts) - 1, 0, -1):
        needed |= liveness.carried_for(parts[index])
        first = liveness.index[parts[index][0]]
        carried.append(sorted((n for n in needed if liveness.index[n] < first), key=lambda n: liveness.index[n]))
    return carried[::-1]


def build_part(
    liveness: Liveness, nodes: Sequence[fx.Node], before: Sequence[fx.Node], after: Sequence[fx.Node] | None
) -> fx.GraphModule:
    """Build the graph of one part: from the values in `before` to those in `after`, or to the class scores."""
    graph = fx.Graph()
    copies = {node: graph.placeholder(node.name) for node in before}

    def copy(node: fx.Node) -> Any:
        if node not in copies:
            if liveness.is_number(node) and node not in inside:
                try:
                    return _number(liveness, liveness.value(node).results, graph, copies, before)
                except SplitRefusedError:
                    # A product or sum of numbers that can be read off separately.
                    if not node.all_input_nodes or not all(map(liveness.is_number, node.all_input_nodes)):
                        raise
            copies[node] = graph.node_copy(node, copy)
        return copies[node]

    inside = set(nodes)
    for node in [*liveness.repeated_for(nodes), *nodes]:
        if node.op not in ("placeholder", "get_attr"):  # weights are copied with their users
            copy(node)
    if after is None:
        graph.output(copy(liveness.graph.logits))
    else:
        graph.output({node.name: copy(node) for node in after})
    return fx.GraphModule(liveness.graph.module, graph)


def _number(
    liveness: Liveness,
    results: Sequence[Any],
    graph: fx.Graph,
    copies: Mapping[fx.Node, fx.Node],
    before: Sequence[fx.Node],
) -> Any:
    """Return a number that was computed before the cut, read off the sizes of the values that cross it."""
    if all(type(result) is type(results[0]) and result == results[0] for result in results):
        return results[0]
    if isinstance(results[0], tuple | list):
        return tuple(_number(liveness, part, graph, copies, before) for part in zip(*results, strict=True))
    for node in before if isinstance(results[0], int) else ():
        for axis, sizes in enumerate(zip(*(liveness.value(node).shapes or ()), strict=True)):
            factor = results[0] // max(1, sizes[0])
            if len(set(sizes)) > 1 and [factor * size for size in sizes] == list(results):
                size = graph.call_method("size", (copies[node], axis))
                return size if factor == 1 else graph.call_function(operator.mul, (size, factor))
    raise SplitRefusedError(
        f"a number that changes with batch or length ({results[0]}) crosses a cut and cannot be read off the values "
        "that cross with it",
        hint="cut elsewhere (at=[...])",
    )


def newest_value(liveness: Liveness, nodes: Sequence[fx.Node]) -> fx.Node:
    """Return the value that exits see: the one computed last."""
    computed = [node for node in nodes if node.op != "placeholder" and liveness.value(node).real]
    return max(computed, key=lambda node: liveness.index[node])


def is_convolution(liveness: Liveness, node: fx.Node) -> bool:
    """True if a value of three axes comes from a 1-D convolution, so that channels precede positions."""
    while not liveness.value(node).mul_adds:
        target = str(getattr(node.target, "__name__", node.target))
        if any(word in target for word in ("permute", "transpose", "mT", "flatten", "reshape", "view")):
            return False
        sources = [source for source in node.all_input_nodes if liveness.value(source).real]
        if not sources:
            return False
        node = max(sources, key=lambda source: liveness.index[source])
    if node.op == "call_module":
        return isinstance(liveness.graph.module.get_submodule(str(node.target)), nn.Conv1d)
    return "conv1d" in str(node.target)


def node_digests(nodes: Sequence[fx.Node]) -> dict[fx.Node, str]:
    """Hash the operation of each node, but not its name: the order of nodes may differ between processes."""
    digests: dict[fx.Node, str] = {}
    for node in nodes:
        target: Any = node.target  # a name or a function; functions may print their address
        called = target if isinstance(target, str) else f"{target.__module__}.{target.__name__}"
        arguments = fx.map_arg((node.args, node.kwargs), digests.__getitem__)
        digests[node] = hash_all([f"{node.op} {called} {arguments}"])
    return digests


def hash_all(texts: Iterable[str]) -> str:
    """Hash texts, whatever their order."""
    return hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()[:16]
