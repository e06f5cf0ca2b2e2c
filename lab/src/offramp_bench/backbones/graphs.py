"""A message-passing network over graphs with residual layers, fitted from random weights."""

import torch
import torch_geometric.nn as gnn
from torch import Tensor, nn

from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp_bench.backbones.graph_backbone import graph_backbone
from offramp_bench.backbones.training import BatchMaker, Recipe, fit
from offramp_bench.backbones.weights import State
from offramp_bench.graphs import Graphs

__all__ = ["GraphNetwork", "backbone_of", "fit_network"]


class Layer(nn.Module):
    """A graph isomorphism layer (Xu et al. 2019) with a residual connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, width))
        self.conv, self.norm = gnn.GINConv(inner, train_eps=True), nn.BatchNorm1d(width)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return the `M x C` nodes after the layer."""
        news: Tensor = self.norm(self.conv(x, edge_index))
        return x + news.relu()


class GraphNetwork(nn.Module):
    """A classifier of graphs.

    Args:
        features: Number of features per node.
        width: Numbers per node between layers.
        layers: Number of message-passing layers.
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
        """Return the `N x K` logits of graphs `{"x", "edge_index", "nodes"}`."""
        x = self.embed(inputs["x"])
        for layer in self.layers:
            x = layer(x, inputs["edge_index"])
        owners = torch.arange(len(inputs["nodes"])).repeat_interleave(inputs["nodes"])
        pool = {"mean": gnn.global_mean_pool, "add": gnn.global_add_pool, "max": gnn.global_max_pool}[self.readout]
        logits: Tensor = self.head(pool(x, owners, len(inputs["nodes"])))
        return logits


def backbone_of(network: GraphNetwork, state: State, *, name: str) -> Backbone:
    """Return the frozen network, one stage per layer.

    Args:
        network: The architecture; the weights are loaded into it.
        state: The weights, in any precision.
        name: Part of the fingerprint.
    """
    network.load_state_dict(state)
    network.eval()
    return graph_backbone([network.embed, *network.layers], network.head, readout=network.readout, name=name)


def fit_network(network: GraphNetwork, seen: Graphs, recipe: Recipe, *, has_positions: bool, name: str) -> State:
    """Fit a network to graphs.

    Args:
        network: The network with random weights.
        seen: The graphs.
        recipe: Settings of the training.
        has_positions: True if the last two features of a node are its position, so that graphs can be augmented.
        name: Name in the lines of progress.

    Returns:
        The weights.
    """
    network.train()
    fit(network, _batch_maker(seen, has_positions=has_positions), len(seen), recipe, name=name)
    return network.state_dict()


def _batch_maker(source: Graphs, *, has_positions: bool) -> BatchMaker:
    def make_batch(places: Tensor, generator: torch.Generator) -> tuple[Hidden, Tensor]:
        rows = source.at(places.numpy())
        inputs = {key: torch.as_tensor(value) for key, value in rows.inputs.items()}
        if has_positions:
            positions = move_nodes(inputs["x"][:, -2:], inputs["nodes"], generator)
            inputs["x"] = torch.cat([inputs["x"][:, :-2], positions], dim=1)
        return inputs, torch.as_tensor(rows.labels)

    return make_batch


def move_nodes(positions: Tensor, nodes: Tensor, generator: torch.Generator) -> Tensor:
    """Turn each graph by up to an eighth of a right angle, stretch it by up to 15 %, and shift it.

    Args:
        positions: `M x 2` positions of nodes, from -1 to 1.
        nodes: `N` numbers of nodes per graph.
        generator: Source of randomness.
    """
    angle, growth_1, growth_2, *shift = (
        2 * torch.rand(len(nodes), generator=generator).repeat_interleave(nodes) - 1 for _ in range(5)
    )
    cosine, sine = (torch.pi / 16 * angle).cos(), (torch.pi / 16 * angle).sin()
    first = (1 + 0.15 * growth_1) * (cosine * positions[:, 0] - sine * positions[:, 1]) + 0.1 * shift[0]
    second = (1 + 0.15 * growth_2) * (sine * positions[:, 0] + cosine * positions[:, 1]) + 0.1 * shift[1]
    return torch.stack([first, second], dim=1)
