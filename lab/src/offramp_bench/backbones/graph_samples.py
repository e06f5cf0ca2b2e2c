"""Backbones whose samples are graphs: a batch has one table of nodes, and edges between its rows."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.errors import InputError
from offramp.pooling._pooling import Nodes

__all__ = ["GraphBackbone"]

STRUCTURE = ("nodes", "batch", "edge_index")


class GraphBackbone(Backbone):
    """A frozen network over graphs.

    Hidden states are dictionaries: `nodes` (`N` numbers of nodes per graph), `batch` (`M` graph of each node), `x`
    (`M x C`, the input of exits), `edge_index` (`2 x E` rows of nodes), and further values of the stages: one row per
    edge where the name starts with `edge_`, else one row per node.
    """

    def representation(self, hidden: Hidden, stage: int) -> Nodes:
        """Return the nodes after the stage."""
        return Nodes(hidden["x"], hidden["batch"], len(hidden["nodes"]))

    def prepare(self, inputs: Any) -> Hidden:
        """Return graphs as one hidden state.

        Args:
            inputs: A dictionary with `x`, `edge_index` and, for more than one graph, `nodes` (number of nodes per
                graph); `edge_weight` and `edge_attr` if there are any. Or a `Data` or `Batch` of PyTorch Geometric, or
                a list.
        """
        parts = [inputs] if hasattr(inputs, "keys") else list(inputs)
        return self.concatenate([self._numbered(part) for part in parts], 0)

    def _numbered(self, graphs: Any) -> Hidden:
        names = ("x", "edge_index", "edge_weight", "edge_attr", "nodes", "ptr")
        fields = {name: torch.as_tensor(graphs[name]) for name in names if name in graphs}
        if "x" not in fields or "edge_index" not in fields or ("batch" in graphs and not {"nodes", "ptr"} & {*fields}):
            raise InputError(
                f"graphs need x, edge_index and, where there is batch, nodes: the number of nodes of each graph, empty "
                f"ones too; got {', '.join(sorted(graphs.keys()))}; for nodes without features let x be ones or degrees"
            )
        hidden = super().prepare(fields)
        whole = torch.tensor([0, len(hidden["x"])], device=hidden["x"].device)
        nodes = hidden.get("nodes", hidden.pop("ptr", whole).diff()).long()
        if nodes.ndim != 1 or nodes.sum() != len(hidden["x"]) or (nodes < 0).any():
            raise InputError(f"expected nodes to sum to the {len(hidden['x'])} rows of x, got {nodes.tolist()[:10]}")
        batch, ends = _owners(nodes), hidden["edge_index"].long()
        inside = ends.ndim == 2 and len(ends) == 2 and bool(((ends >= 0) & (ends < len(batch))).all())
        if not inside or (batch[ends[0]] != batch[ends[1]]).any():
            raise InputError(
                f"expected edge_index as 2 x E rows of x, both ends in one graph; got shape {tuple(ends.shape)} and "
                "other rows; count them through the whole batch, not from 0 in each graph"
            )
        return {**hidden, "nodes": nodes, "edge_index": ends, "batch": batch}

    def sizes(self, inputs: Hidden) -> Tensor:
        """Return the `N` numbers of nodes per graph."""
        nodes: Tensor = inputs["nodes"]
        return nodes

    @property
    def varies_in_size(self) -> bool:
        """True: graphs differ in size."""
        return True

    def with_size(self, inputs: Hidden, size: int) -> Hidden:
        """Return one graph of `size` nodes with features of 0; edges per node as in the inputs, rounded."""
        degree = max(1, round(inputs["edge_index"].shape[1] / max(1, len(inputs["batch"]))))
        edges = torch.arange(size * degree, device=inputs["nodes"].device)
        rows = {name: len(edges) if name.startswith("edge_") else size for name in inputs}
        zeros = {name: value.new_zeros(rows[name], *value.shape[1:]) for name, value in inputs.items()}
        ends = torch.stack([edges % size, (edges + 1 + edges // size) % size])  # a ring, the next but one, ...
        return {**zeros, "edge_index": ends, "nodes": torch.full_like(edges[:1], size)}

    def batch_size(self, hidden: Hidden, depth: int) -> int:
        """Return the number of graphs."""
        return len(hidden["nodes"])

    def select(self, hidden: Hidden, keep: Tensor, depth: int) -> Hidden:
        """Return the graphs `keep` (indices or booleans), in that order, with their nodes renumbered."""
        nodes, ends = hidden["nodes"], hidden["edge_index"]
        if keep.dtype == torch.bool and len(keep) != len(nodes):
            raise InputError(f"expected {len(nodes)} booleans, one a graph, got {len(keep)}")
        keep = keep.nonzero().squeeze(1) if keep.dtype == torch.bool else keep
        owners = hidden["batch"][ends[0]]
        edges = torch.bincount(owners, minlength=len(nodes))
        kept, node_rows = nodes.index_select(0, keep), _rows(nodes, keep)
        # Edges need not be sorted by graph: layers may have appended some for all graphs.
        edge_rows = owners.argsort(stable=True)[_rows(edges, keep)]
        shifts = (_starts(kept) - _starts(nodes)[keep]).repeat_interleave(edges[keep])
        selection = {"nodes": kept, "batch": _owners(kept), "edge_index": ends[:, edge_rows] + shifts}
        for name in hidden.keys() - {*STRUCTURE}:
            rows, owner = (edge_rows, owners) if name.startswith("edge_") else (node_rows, hidden["batch"])
            if any(len(leaf) != len(owner) for leaf in pytree.tree_leaves(hidden[name])):
                raise InputError(
                    f"expected '{name}' with {len(owner)} rows, one {'an edge' if owner is owners else 'a node'}; what "
                    "belongs to edges has a name that starts with edge_, what belongs to graphs is for the head to make"
                )
            selection[name] = pytree.tree_map(lambda leaf, rows=rows: leaf.index_select(0, rows), hidden[name])
        return selection

    def concatenate(self, hiddens: Sequence[Hidden], depth: int) -> Hidden:
        """Join batches, with their nodes renumbered."""
        if not hiddens or any(hidden.keys() != hiddens[0].keys() for hidden in hiddens):
            fields = {", ".join(sorted(hidden)) for hidden in hiddens}
            raise InputError(f"expected graphs, all with the same fields, got {' and '.join(sorted(fields)) or 'none'}")
        first = _starts(torch.tensor([len(hidden["batch"]) for hidden in hiddens])).tolist()
        ends = [hidden["edge_index"] + start for hidden, start in zip(hiddens, first, strict=True)]
        rest = [{name: hidden[name] for name in hidden if name != "edge_index"} for hidden in hiddens]
        joined = pytree.tree_map(lambda *leaves: torch.cat(leaves), *rest)
        return {**joined, "edge_index": torch.cat(ends, dim=1), "batch": _owners(joined["nodes"])}


def _owners(counts: Tensor) -> Tensor:
    return torch.arange(len(counts), device=counts.device).repeat_interleave(counts)


def _starts(counts: Tensor) -> Tensor:
    return counts.cumsum(0) - counts


def _rows(counts: Tensor, keep: Tensor) -> Tensor:
    """Return the rows of the kept blocks, where block i has `counts[i]` rows."""
    kept = counts.index_select(0, keep)
    first = (_starts(counts)[keep] - _starts(kept)).repeat_interleave(kept)
    return first + torch.arange(len(first), device=first.device)
