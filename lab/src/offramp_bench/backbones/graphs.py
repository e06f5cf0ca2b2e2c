"""Message passing over graphs, fitted from random weights: layers that each add to what the nodes know."""

import torch
import torch_geometric.nn as gnn
from torch import Tensor, nn

from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp_bench.backbones.graph_backbone import graph_backbone
from offramp_bench.backbones.training import Deal, Recipe, fit
from offramp_bench.backbones.weights import State
from offramp_bench.graphs import Graphs

__all__ = ["GraphNetwork", "backbone_of", "fitted"]


class Layer(nn.Module):
    """A graph isomorphism layer (Xu et al. 2019) beside a way past it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width))
        self.conv, self.norm = gnn.GINConv(inner, train_eps=True), nn.BatchNorm1d(width)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """`M x C` nodes to nodes."""
        news: Tensor = self.norm(self.conv(x, edge_index))
        return x + news.relu()


class GraphNetwork(nn.Module):
    """From graphs to classes.

    Args:
        features: Of a node.
        width: Of a node inside.
        layers: How often messages pass.
        num_classes: K.
        readout: "mean", "add" or "max" over the nodes of a graph.
    """

    def __init__(self, features: int, width: int, layers: int, num_classes: int, *, readout: str) -> None:
        super().__init__()
        self.embed = nn.Linear(features, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, num_classes))
        self.readout = readout

    def forward(self, inputs: Hidden) -> Tensor:
        """`N x K` logits of graphs `{"x", "edge_index", "nodes"}`."""
        x = self.embed(inputs["x"])
        for layer in self.layers:
            x = layer(x, inputs["edge_index"])
        owners = torch.arange(len(inputs["nodes"])).repeat_interleave(inputs["nodes"])
        pool = {"mean": gnn.global_mean_pool, "add": gnn.global_add_pool, "max": gnn.global_max_pool}[self.readout]
        logits: Tensor = self.head(pool(x, owners, len(inputs["nodes"])))
        return logits


def backbone_of(network: GraphNetwork, state: State, *, name: str) -> Backbone:
    """The frozen network, one stage a layer.

    Args:
        network: As it is to be; given its weights here.
        state: They, in any precision.
        name: Part of the fingerprint.
    """
    network.load_state_dict(state)
    network.eval()
    return graph_backbone([network.embed, *network.layers], network.head, readout=network.readout, name=name)


def fitted(network: GraphNetwork, seen: Graphs, recipe: Recipe, *, placed: bool, name: str) -> State:
    """Fit a network to graphs.

    Args:
        network: With random weights.
        seen: The graphs.
        recipe: How.
        placed: Whether the last two features of a node say where it is, so that graphs may be turned and moved.
        name: What progress is told under.

    Returns:
        Its weights.
    """
    network.train()
    fit(network, _dealt(seen, placed=placed), len(seen), recipe, name=name)
    return network.state_dict()


def _dealt(source: Graphs, *, placed: bool) -> Deal:
    def deal(places: Tensor, generator: torch.Generator) -> tuple[Hidden, Tensor]:
        rows = source.at(places.numpy())
        inputs = {key: torch.as_tensor(value) for key, value in rows.inputs.items()}
        if placed:
            spots = turned(inputs["x"][:, -2:], inputs["nodes"], generator)
            inputs["x"] = torch.cat([inputs["x"][:, :-2], spots], dim=1)
        return inputs, torch.as_tensor(rows.labels)

    return deal


def turned(spots: Tensor, nodes: Tensor, generator: torch.Generator) -> Tensor:
    """Places of nodes, each graph turned by up to an eighth of a right angle, stretched by up to 15 %, and shifted.

    Args:
        spots: `M x 2`, from -1 to 1.
        nodes: `N` nodes of each graph.
        generator: All that is random comes from it.
    """
    angle, growth_1, growth_2, *shift = (
        2 * torch.rand(len(nodes), generator=generator).repeat_interleave(nodes) - 1 for _ in range(5)
    )
    cosine, sine = (torch.pi / 16 * angle).cos(), (torch.pi / 16 * angle).sin()
    first = (1 + 0.15 * growth_1) * (cosine * spots[:, 0] - sine * spots[:, 1]) + 0.1 * shift[0]
    second = (1 + 0.15 * growth_2) * (sine * spots[:, 0] + cosine * spots[:, 1]) + 0.1 * shift[1]
    return torch.stack([first, second], dim=1)
