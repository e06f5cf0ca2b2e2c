"""Networks of PyTorch Geometric, cut into stages, against the same networks run by PyTorch Geometric."""

import copy
import pickle
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as gnn
from torch import Tensor, nn
from torch_geometric.data import Batch, Data

import offramp
from offramp.backbone._cascading import cascade
from offramp.backbone._hidden import Hidden
from offramp.cost import count_backbone
from offramp.cost._mul_adds import count_mul_adds
from offramp.errors import InputError, UnknownNameError
from offramp.features import StoreSource, extract
from offramp.features._ids import stable_hash
from offramp.features._source import Rows
from offramp.methods._settings import DEFAULT
from offramp.pooling._pooling import AutoPooling, MeanPooling, Nodes
from offramp.preprocessing._row_hashes import hash_rows
from offramp.testing import check_backbone
from offramp_bench.backbones.graph_backbone import graph_backbone
from offramp_bench.backbones.graph_samples import GraphBackbone
from offramp_bench.graphs import tu_graphs
from tests.cases import each

NODES = (4, 0, 7, 1, 3, 0)
"""Numbers of nodes; some graphs are empty, the last one too, and one has no edges."""


def graphs(seed: int = 0, nodes: tuple[int, ...] = NODES) -> list[Data]:
    generator = torch.Generator().manual_seed(seed)
    made = []
    for count in nodes:
        edges = 3 * count if count > 1 else 0
        made.append(
            Data(
                x=torch.randn(count, 5, generator=generator),
                edge_index=torch.randint(0, max(1, count), (2, edges), generator=generator),
                edge_weight=torch.rand(edges, generator=generator),
                edge_attr=torch.randn(edges, 3, generator=generator),
            )
        )
    return made


DEGREES = torch.tensor([2, 3, 5, 4, 1])
NETWORKS: dict[str, dict[str, Any]] = {
    "gcn": {"kind": gnn.GCN},
    "gin": {"kind": gnn.GIN},
    "gat": {"kind": gnn.GAT, "heads": 2},
    "gat with edges": {"kind": gnn.GAT, "edge_dim": 3, "v2": True},
    "sage": {"kind": gnn.GraphSAGE},
    "pna": {"kind": gnn.PNA, "aggregators": ["mean", "max"], "scalers": ["identity", "amplification"], "deg": DEGREES},
    "edge": {"kind": gnn.EdgeCNN},
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "out": {"out_channels": 6, "dropout": 0.5},
    "batch norm": {"norm": "batch_norm"},
    "graph norm": {"norm": "graph_norm"},
    "activation first": {"norm": "batch_norm", "act_first": True, "act": "tanh"},
    "no activation": {"act": None},
    "last": {"jk": "last", "norm": "batch_norm"},
    "cat": {"jk": "cat"},
    "max": {"jk": "max", "norm": "batch_norm", "out_channels": 6},
    "lstm": {"jk": "lstm"},
}
NORM_INSIDE = ("gin", "edge")  # they have the norm inside their layers too


def build(kind: str = "gin", options: str = "plain") -> tuple[Any, nn.Module]:
    """Return a network with random running statistics, and a head."""
    torch.manual_seed(0)
    made = {**NETWORKS[kind], **OPTIONS[options]}
    network = made.pop("kind")(5, 8, num_layers=3, **made)
    for name, buffer in network.named_buffers():
        if "running" in name:
            buffer.uniform_(0.5, 1.5)
    return network.eval(), nn.Sequential(nn.Linear(network.out_channels, 8), nn.ReLU(), nn.Linear(8, 3))


def whole(network: Any, head: nn.Module, batch: Any, readout: Any = gnn.global_mean_pool) -> Tensor:
    """Return the logits that PyTorch Geometric computes."""
    convolution = network.convs[0]
    edge_attr = batch.edge_attr if getattr(convolution, "edge_dim", None) is not None else None
    x = network(batch.x, batch.edge_index, batch.edge_weight, edge_attr, batch.batch, len(batch))
    logits: Tensor = head(readout(x, batch.batch, len(batch)))
    return logits


def run(backbone: GraphBackbone, inputs: Hidden) -> list[Hidden]:
    """Return the hidden state at every depth, the inputs first."""
    states = [inputs]
    for stage in backbone.stages:
        states.append(stage(states[-1]))
    return states


def same(hidden: Hidden, expected: Hidden, *, rtol: float = 0, atol: float = 0) -> None:
    assert hidden.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(hidden[name], expected[name], rtol=rtol, atol=atol)


class TestComposition:
    @each("options", OPTIONS)
    @each("kind", NETWORKS)
    def test_pieces_are_the_network_bit_for_bit(self, kind: str, options: str) -> None:
        network, head = build(kind, options)
        if kind in NORM_INSIDE and options == "graph norm":
            with pytest.raises(InputError, match="GraphNorm that takes all graphs for one: use batch_norm"):
                graph_backbone(network, head)
            return
        backbone = graph_backbone(network, head)
        batch = Batch.from_data_list(graphs())
        inputs = backbone.prepare(batch)
        expected = whole(network, head, batch)
        assert expected.shape == (6, 3)
        assert torch.equal(backbone(inputs), expected)
        assert torch.equal(backbone.own_logits(run(backbone, inputs)[-1], 2), expected)
        assert backbone.num_exits == 3
        assert backbone.name == f"{type(network).__name__.lower()}-3"
        assert ("layers" in run(backbone, inputs)[-1]) == (options in ("cat", "max", "lstm"))

    @each(
        ("readout", "function"),
        [("mean", gnn.global_mean_pool), ("add", gnn.global_add_pool), ("max", gnn.global_max_pool)],
    )
    def test_readouts(self, readout: str, function: Any) -> None:
        network, head = build()
        batch = Batch.from_data_list(graphs())
        backbone = graph_backbone(network, head, readout=readout)
        assert torch.equal(backbone(backbone.prepare(batch)), whole(network, head, batch, function))

    def test_edges_are_used(self) -> None:
        for kind, name in (("gcn", "edge_weight"), ("gat with edges", "edge_attr")):
            backbone = graph_backbone(*build(kind))
            inputs = backbone.prepare(graphs())
            changed = {**inputs, name: inputs[name] + 1}
            assert not torch.allclose(backbone(inputs)[0], backbone(changed)[0])

    def test_a_sequential(self) -> None:
        torch.manual_seed(0)
        network = gnn.Sequential(
            "x, edge_index, edge_weight, batch",
            [
                (nn.Linear(5, 6), "x -> h"),
                (gnn.GCNConv(6, 8), "h, edge_index, edge_weight -> h"),
                (gnn.GraphNorm(8), "h, batch -> h"),
                nn.ReLU(inplace=True),
                (gnn.GCNConv(8, 8), "h, edge_index -> y"),
                nn.ReLU(inplace=True),
            ],
        )
        head, batch = nn.Linear(8, 3), Batch.from_data_list(graphs())
        nodes = network(batch.x, batch.edge_index, batch.edge_weight, batch.batch)
        backbone = graph_backbone(network, head, name="mine")
        assert (backbone.num_exits, backbone.name) == (2, "mine")
        assert torch.equal(backbone(backbone.prepare(batch)), head(gnn.global_mean_pool(nodes, batch.batch, 6)))

    def test_a_list_of_layers(self) -> None:
        torch.manual_seed(0)
        block = gnn.Sequential("x, edge_index", [(gnn.SAGEConv(8, 8), "x, edge_index -> x"), nn.ReLU()])
        layers = [gnn.GATConv(5, 8), gnn.LayerNorm(8), nn.Tanh(), gnn.GINEConv(nn.Linear(8, 8), edge_dim=3), block]
        head, batch = gnn.MLP([8, 8, 3]).eval(), Batch.from_data_list(graphs())
        backbone = graph_backbone(layers, head, readout="add")
        x = layers[2](layers[1](layers[0](batch.x, batch.edge_index), batch.batch, 6))
        x = block(layers[3](x, batch.edge_index, batch.edge_attr), batch.edge_index)
        assert (backbone.num_exits, backbone.num_classes) == (3, 3)
        assert torch.equal(backbone(backbone.prepare(batch)), head(gnn.global_add_pool(x, batch.batch, 6)))

    def test_exits_see_the_nodes(self) -> None:
        network, head = build("gcn")
        backbone = graph_backbone(network, head)
        batch = Batch.from_data_list(graphs())
        hidden = backbone.stages[0](backbone.prepare(batch))
        nodes = backbone.representation(hidden, 0)
        expected = network.convs[0](batch.x, batch.edge_index, batch.edge_weight).relu()
        assert isinstance(nodes, Nodes)
        assert torch.equal(nodes.values, expected)
        assert torch.equal(MeanPooling()(nodes), gnn.global_mean_pool(expected, batch.batch, 6))

    def test_copies_and_pickles_run_alike(self) -> None:
        backbone = graph_backbone(*build("gat", "cat"))
        inputs = backbone.prepare(graphs())
        for again in (copy.deepcopy(backbone), pickle.loads(pickle.dumps(backbone))):
            assert torch.equal(again(inputs), backbone(inputs))
            assert again.fingerprint() == backbone.fingerprint()

    def test_fingerprints_differ_by_readout_and_by_arguments_of_layers(self) -> None:
        network, head = build("gcn")
        layers = [network.convs[0], nn.ReLU()]
        sequential = gnn.Sequential("x, edge_index", [(layers[0], "x, edge_index -> x"), nn.ReLU()])
        backbones = [
            graph_backbone(each, head, readout=readout, name="a")
            for each in (layers, sequential)
            for readout in ("add", "max")
        ]
        assert len({backbone.fingerprint() for backbone in backbones}) == 4


of_every_kind = each(("kind", "options"), product(("gcn", "gat with edges", "pna"), ("plain", "graph norm", "cat")))


class TestGraphsApart:
    @of_every_kind
    def test_choosing_commutes_with_running(self, kind: str, options: str) -> None:
        backbone = graph_backbone(*build(kind, options))
        states = run(backbone, backbone.prepare(graphs()))
        for keep in (torch.tensor([4, 0, 1, 3]), torch.tensor([2, 2]), torch.tensor([5]), torch.tensor(NODES) > 1):
            for depth in range(backbone.num_exits):
                chosen = backbone.stages[depth](backbone.select(states[depth], keep, depth))
                same(chosen, backbone.select(states[depth + 1], keep, depth + 1), rtol=1e-4, atol=1e-5)

    @of_every_kind
    def test_joined_batches_are_batches_run_together(self, kind: str, options: str) -> None:
        backbone = graph_backbone(*build(kind, options))
        first, second = (
            run(backbone, backbone.prepare(graphs(seed, nodes))) for seed, nodes in ((0, NODES), (1, (2, 0, 5)))
        )
        together = run(backbone, backbone.prepare(graphs(0) + graphs(1, (2, 0, 5))))
        for depth in range(backbone.num_exits + 1):
            joined = backbone.concatenate([first[depth], second[depth]], depth)
            assert backbone.batch_size(joined, depth) == 9
            same(joined, together[depth], rtol=1e-4, atol=1e-5)


class TestSamples:
    @pytest.fixture
    def backbone(self) -> GraphBackbone:
        return graph_backbone(*build("gcn"))

    def test_chosen_graphs_are_those_graphs(self, backbone: GraphBackbone) -> None:
        whole, keep = backbone.prepare(graphs()), [4, 1, 2, 4]
        same(backbone.select(whole, torch.tensor(keep), 0), backbone.prepare([graphs()[index] for index in keep]))
        mask = torch.tensor([True, False, False, True, False, True])
        same(backbone.select(whole, mask, 0), backbone.prepare([graphs()[index] for index in (0, 3, 5)]))

    def test_edges_need_not_lie_graph_by_graph(self, backbone: GraphBackbone) -> None:
        inputs = backbone.prepare(graphs())
        order = torch.randperm(inputs["edge_index"].shape[1], generator=torch.Generator().manual_seed(0))
        mixed = {**inputs, "edge_index": inputs["edge_index"][:, order], "edge_weight": inputs["edge_weight"][order]}
        mixed["edge_attr"] = inputs["edge_attr"][order]
        keep = torch.tensor([2, 0])
        torch.testing.assert_close(backbone(backbone.select(mixed, keep, 0)), backbone(mixed)[keep])

    def test_nobody_left(self, backbone: GraphBackbone) -> None:
        hidden = backbone.stages[0](backbone.prepare(graphs()))
        nobody = backbone.select(hidden, torch.zeros(6, dtype=torch.bool), 1)
        assert backbone.batch_size(nobody, 1) == 0
        again = backbone.concatenate([nobody, hidden], 1)
        same(again, hidden)

    def test_empty_graphs_are_counted(self, backbone: GraphBackbone) -> None:
        inputs = backbone.prepare(graphs())
        assert backbone.sizes(inputs).tolist() == list(NODES)
        assert backbone.batch_size(inputs, 0) == 6
        assert backbone.varies_in_size
        empty = backbone.prepare(graphs(nodes=(0,)))
        assert backbone(empty).shape == (1, 3)
        for hidden in run(backbone, inputs)[1:]:
            assert AutoPooling()(backbone.representation(hidden, 0)).isfinite().all()

    def test_a_graph_without_edges(self, backbone: GraphBackbone) -> None:
        alone = [Data(x=torch.ones(3, 5), edge_index=torch.zeros(2, 0, dtype=torch.long))]
        batch = Batch.from_data_list(alone)
        network, head = build("gcn")
        expected = head(gnn.global_mean_pool(network(batch.x, batch.edge_index), batch.batch, 1))
        assert torch.equal(backbone(backbone.prepare(alone)), expected)

    def test_accepted_inputs(self, backbone: GraphBackbone) -> None:
        expected = backbone.prepare(graphs())
        for inputs in (Batch.from_data_list(graphs()), tuple(graphs()), expected, [expected]):
            same(backbone.prepare(inputs), expected)
        plain = {name: value.numpy() for name, value in expected.items() if name != "batch"}
        plain |= {"nodes": plain["nodes"].astype("int32"), "edge_index": plain["edge_index"].astype("int16")}
        plain["x"] = plain["x"].astype("float64")
        same(backbone.prepare(plain), expected)
        graph = graphs()[0]
        same(backbone.prepare(graph), backbone.prepare([graph]))
        same(
            backbone.prepare({"x": graph.x, "edge_index": graph.edge_index}),
            backbone.prepare([Data(graph.x, graph.edge_index)]),
        )

    def test_refused_inputs(self, backbone: GraphBackbone) -> None:
        x, ends = torch.ones(3, 5), torch.tensor([[0, 1], [1, 2]])
        refused: list[tuple[Any, str]] = [
            ([], "expected graphs"),
            (Data(edge_index=ends, num_nodes=3), "got edge_index, num_nodes; for nodes without features let x be ones"),
            ({"x": x, "nodes": [3]}, "graphs need x, edge_index"),
            ({"x": x, "edge_index": ends, "batch": [0, 0, 1]}, "where there is batch, nodes"),
            ({"x": x, "edge_index": ends, "nodes": [2]}, r"sum to the 3 rows of x, got \[2\]"),
            ({"x": x, "edge_index": ends, "nodes": [4, -1]}, "sum to the 3 rows"),
            ({"x": x, "edge_index": ends, "nodes": [2, 1]}, "both ends in one graph"),
            ({"x": x, "edge_index": ends + 1}, "both ends in one graph"),
            ({"x": x, "edge_index": ends.mT[:1]}, r"shape \(1, 2\)"),
            ([graphs()[0], Data(x, ends)], "the same fields"),
        ]
        for inputs, message in refused:
            with pytest.raises(InputError, match=message):
                backbone.prepare(inputs)

    def test_choosing_refuses_other_lengths(self, backbone: GraphBackbone) -> None:
        inputs = backbone.prepare(graphs())
        with pytest.raises(InputError, match="expected 6 booleans, one a graph, got 2"):
            backbone.select(inputs, torch.tensor([True, False]), 0)
        with pytest.raises(InputError, match="'context' with 15 rows, one a node"):
            backbone.select({**inputs, "context": torch.ones(6, 2)}, torch.tensor([0]), 0)
        with pytest.raises(InputError, match="expected 'edge_kind' with 42 rows, one an edge"):
            backbone.select({**inputs, "edge_kind": torch.ones(6, 2)}, torch.tensor([0]), 0)


class TestCosts:
    @each("options", ["plain", "out", "cat", "max"])
    @each("kind", NETWORKS)
    def test_stages_sum_to_the_network(self, kind: str, options: str) -> None:
        network, head = build(kind, options)
        backbone = graph_backbone(network, head)
        # 2 edges per node on average, so that the cost of a graph of any size follows the polynomial.
        inputs = backbone.prepare(graphs(nodes=(6, 1, 2)))
        mul_adds = count_backbone(backbone, inputs, AutoPooling())
        ring = backbone.with_size(inputs, 11)
        powers = torch.tensor([1.0, 11.0, 121.0], dtype=torch.float64)
        assert float(powers @ mul_adds.full) == count_mul_adds(backbone, ring)[0]
        summed = mul_adds.stage.sum(1) + mul_adds.head.sum(1)
        assert torch.equal(summed, mul_adds.full)
        assert (powers @ mul_adds.stage > 0).all()
        assert mul_adds.full[2] == 0  # no attention over all pairs

    def test_gin_in_closed_form(self) -> None:
        mul_adds = count_backbone(graph_backbone(*build()), graph_backbone(*build()).prepare(graphs()), MeanPooling())
        # Two linear modules per layer, for each node; the head once.
        assert mul_adds.stage.tolist() == [[0, 0, 0], [5 * 8 + 8 * 8, 2 * 8 * 8, 2 * 8 * 8], [0, 0, 0]]
        assert mul_adds.head.tolist() == [[0, 0, 8 * 8 + 8 * 3], [0, 0, 0], [0, 0, 0]]
        assert mul_adds.pooling.tolist() == [[0, 0, 0], [8, 8, 8], [0, 0, 0]]

    def test_a_ring_has_the_degree_of_the_graphs(self) -> None:
        backbone = graph_backbone(*build("gat with edges"))
        ring = backbone.with_size(backbone.prepare(graphs()), 5)  # 42 edges on 15 nodes
        assert backbone.sizes(ring).tolist() == [5]
        assert torch.bincount(ring["edge_index"][0]).tolist() == [3] * 5
        assert torch.bincount(ring["edge_index"][1]).tolist() == [3] * 5
        assert ring["edge_attr"].shape == (15, 3)
        assert backbone(ring).shape == (1, 3)
        same(backbone.prepare(ring), ring)


class Custom(gnn.GCN):  # type: ignore[misc]
    def forward(self, *arguments: Any) -> Any:
        return super().forward(*arguments)


class TestRefusals:
    @each(
        ("network", "message"),
        [
            (nn.Linear(5, 8), "or a list, got Linear; list its layers"),
            (Custom(5, 8, 2), "got Custom with a forward of its own"),
            ([nn.Linear(5, 8), nn.ReLU()], "expected layers that pass messages, list has none"),
            ([gnn.GCNConv(5, 8), torch.relu], "relu in list is no module from nodes to nodes"),
            ([gnn.GCNConv(5, 8), gnn.MeanAggregation()], "MeanAggregation in list .* the readout as readout="),
            ([gnn.DeepGCNLayer(gnn.GCNConv(5, 5))], "DeepGCNLayer in list names no edge_index"),
            (gnn.GCN(5, 8, 2, cached=True), "GCNConv in GCN keeps the edges of the first batch"),
            (gnn.GIN(5, 8, 2, norm="layer_norm"), "has a LayerNorm that takes all graphs for one"),
        ],
    )
    def test_networks(self, network: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            graph_backbone(network, nn.Linear(8, 3))

    def test_a_norm_that_looks_at_single_nodes_is_fine(self) -> None:
        network = gnn.GIN(5, 8, 2, norm="layer_norm", norm_kwargs={"mode": "node"})
        assert graph_backbone(network, nn.Linear(8, 3)).num_exits == 2

    @each(
        ("steps", "message"),
        [
            (["x, edge_index -> x1", "x, edge_index -> x2"], "got 'x, edge_index -> x2'; put branches into a module"),
            (["x, edge_index -> x, alpha", "x, edge_index -> x"], "got 'x, edge_index -> x, alpha'"),
            (["x, pos -> x"], "got 'x, pos -> x'"),
        ],
    )
    def test_sequentials_that_branch(self, steps: list[str], message: str) -> None:
        network = gnn.Sequential("x, edge_index, pos", [(gnn.GCNConv(5, 5), step) for step in steps])
        with pytest.raises(InputError, match=message):
            graph_backbone(network, nn.Linear(5, 3))

    def test_a_readout_inside_a_sequential(self) -> None:
        calls = [(gnn.GCNConv(5, 8), "x, edge_index -> x"), (gnn.global_mean_pool, "x, batch -> x")]
        with pytest.raises(InputError, match="global_mean_pool in Sequential is no module from nodes to nodes"):
            graph_backbone(gnn.Sequential("x, edge_index, batch", calls), nn.Linear(8, 3))

    def test_heads(self) -> None:
        network, _ = build()
        with pytest.raises(InputError, match="an output a class, 2 or more, found 1"):
            graph_backbone(network, nn.Linear(8, 1))
        with pytest.raises(InputError, match="found no linear module that tells; give one, or num_classes="):
            graph_backbone(network, nn.Identity())
        assert graph_backbone(network, nn.Identity(), num_classes=8).num_classes == 8

    def test_readouts(self) -> None:
        with pytest.raises(UnknownNameError, match="unknown readout 'sum'; Known: add, max, mean"):
            graph_backbone(*build(), readout="sum")


def test_a_cascade_of_two_is_each_run_alone() -> None:
    torch.manual_seed(0)
    both = cascade(*(graph_backbone(gnn.GIN(5, 8, num_layers=layers), nn.Linear(8, 3)) for layers in (2, 3)))
    first, second = (both.prepare(graphs(seed, nodes)) for seed, nodes in ((1, (2, 3, 4, 1, 2)), (4, (1, 2))))
    check_backbone(both, first, second, network=lambda inputs: both.members[-1](both.inputs_of_members(inputs)[-1]))
    mul_adds = count_backbone(both, first, MeanPooling())
    each = [count_backbone(member, first, MeanPooling()) for member in both.members]
    assert torch.equal(mul_adds.stage, torch.cat([member.stage for member in each], dim=1))
    assert torch.equal(mul_adds.full, each[-1].full)
    assert both.varies_in_size


class Rings:
    """Rings of 4 to 12 nodes with as many chords as the class; features of nodes hardly show it."""

    def __init__(self, count: int, name: str) -> None:
        self.name, self._labels = name, np.arange(count) % 2
        self._nodes = 4 + np.arange(count) * 7 % 9

    def __len__(self) -> int:
        return len(self._labels)

    def read(self, start: int, stop: int) -> Rows:
        made = []
        for row in range(start, stop):
            nodes, label = int(self._nodes[row]), int(self._labels[row])
            around = torch.arange(nodes)
            ends = torch.cat([torch.stack([around, (around + step) % nodes]) for step in range(1, 2 + label)], dim=1)
            seed = stable_hash(f"{self.name}/{row}")
            features = torch.randn(nodes, 5, generator=torch.Generator().manual_seed(seed))
            made.append(Data(x=features + 0.5, edge_index=ends))
        ids = hash_rows([{"x": graph.x, "edge_index": graph.edge_index} for graph in made])
        return Rows(made, self._labels[start:stop], ids)


def test_from_lists_of_graphs_to_a_chosen_network() -> None:
    torch.manual_seed(0)
    backbone = graph_backbone(gnn.GIN(5, 32, num_layers=3, jk="cat"), nn.Linear(32, 2))
    settings = replace(DEFAULT, ladder_width=8)
    frontier = offramp.fit(
        backbone, Rings(400, "train"), Rings(200, "validation"), settings=settings, anyway=True, progress=False
    )
    rows = Rings(100, "test").read(0, 100)
    for cost in (0.6, 0.9):
        network = frontier.at(cost=cost)
        answer = network.predict(rows.inputs)
        alone = [network.predict([graph]) for graph in rows.inputs[:10]]
        assert torch.equal(answer.exits[:10], torch.cat([part.exits for part in alone]))
        torch.testing.assert_close(answer.probabilities[:10], torch.cat([part.probabilities for part in alone]))
        # The network itself is untrained: answers of its own head are guesses.
        assert (answer.labels.numpy() == rows.labels).mean() > (0.7 if cost == 0.6 else 0.5)


@pytest.fixture(scope="module")
def small_gin() -> GraphBackbone:
    """A GIN after some steps on the first folds of NCI1."""
    torch.manual_seed(0)
    source = tu_graphs("NCI1", folds=range(6))
    rows = source.read(0, len(source))
    network, head = gnn.GIN(37, 32, num_layers=3, norm="batch_norm"), nn.Linear(32, 2)
    reader = graph_backbone(*build())
    inputs, labels = reader.prepare(rows.inputs), torch.from_numpy(rows.labels)
    optimizer = torch.optim.Adam([*network.parameters(), *head.parameters()], lr=0.01)
    for _ in range(80):
        chosen = torch.randperm(len(labels))[:128]
        part = reader.select(inputs, chosen, 0)
        logits = head(gnn.global_mean_pool(network(part["x"], part["edge_index"]), part["batch"], 128))
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits, labels[chosen]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return graph_backbone(network, head)


@pytest.mark.data
class TestNci1:
    def test_the_source(self) -> None:
        everything, part = tu_graphs("NCI1"), tu_graphs("NCI1", folds=[3, 7])
        assert len(everything) == 4110
        rows, chosen = everything.read(0, 4110), part.read(5, 8)
        places = [rows.ids.tolist().index(each) for each in chosen.ids.tolist()]
        assert rows.labels[places].tolist() == chosen.labels.tolist()
        backbone = graph_backbone(gnn.GIN(37, 4, num_layers=1), nn.Linear(4, 2))
        same(backbone.prepare(chosen.inputs), backbone.select(backbone.prepare(rows.inputs), torch.tensor(places), 0))
        assert rows.inputs["nodes"].sum() == 122747
        assert (rows.inputs["x"].sum(1) == 1).all()
        with pytest.raises(InputError, match=r"no graphs 'NCI2' .* there are ENZYMES"):
            tu_graphs("NCI2")

    def test_extraction(self, small_gin: GraphBackbone, tmp_path: Path) -> None:
        source = tu_graphs("NCI1", folds=[9])
        store = extract(small_gin, source, tmp_path, dtype=torch.float32, batch_size=100, progress=False)
        assert store.widths("rich") == (96, 96, 96)
        assert (
            StoreSource(store, pooling=store.poolings[0]).sizes().tolist()
            == source.read(0, len(source)).inputs["nodes"].tolist()
        )

    def test_from_graphs_to_a_chosen_network(self, small_gin: GraphBackbone) -> None:
        train, validation, test = (tu_graphs("NCI1", folds=folds) for folds in (range(6), (6, 7), (8, 9)))
        frontier = offramp.fit(small_gin, train, validation, progress=False)
        rows = test.read(0, len(test))
        labels = torch.from_numpy(rows.labels)
        full = small_gin(small_gin.prepare(rows.inputs)).argmax(1)
        accuracy = float((full == labels).double().mean())
        answer = frontier.at(cost=0.8).predict(rows.inputs)
        assert accuracy > 0.62
        assert len(set(answer.exits.tolist())) > 1
        assert float(answer.relative_cost.mean()) < 0.9
        assert float((answer.labels == labels).double().mean()) > accuracy - 0.03
