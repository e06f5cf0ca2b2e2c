"""Cut many networks into stages, and check that the stages keep the backbone contract.

    python -m offramp_bench.architectures [--check] [--quick]

Weights are random, as the contract is about structure. For each network, `blocks` is the number of blocks that its
authors repeat, from its paper or configuration; the backbone must have at least as many stages. The lists of networks
that pass and that are refused go into docs/reference/networks.md through `python -m offramp_bench.evidence`.
"""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import offramp_bench.torchvision_ops  # noqa: F401 (before timm, torchvision and transformers are imported)
from offramp.backbone import CifarResNet
from offramp.backbone._backbone import Backbone
from offramp.backbone._classifier import call_network, logits_of
from offramp.backbone._hidden import Hidden
from offramp.backbone._splitting import split
from offramp.errors import OfframpError
from offramp.testing import check_backbone
from offramp_bench.backbones.t2t_vit import T2TViT
from offramp_bench.bars import Bar, parser, report, say

CLASSES = 7

TIMM = {
    "beit_base_patch16_224": 12,
    "cait_xxs24_224": 24,
    "coat_lite_tiny": 8,
    "convit_tiny": 12,
    "convmixer_768_32": 32,
    "convnext_atto": 12,
    "crossvit_tiny_240": 3,
    "cspresnet50": 13,
    "davit_tiny": 12,
    "densenet121": 58,
    "dla34": 12,
    "edgenext_xx_small": 12,
    "efficientformer_l1": 15,
    "efficientnet_b0": 16,
    "eva02_tiny_patch14_224": 12,
    "fastvit_t8": 10,
    "focalnet_tiny_srf": 12,
    "gcvit_xxtiny": 12,
    "ghostnet_100": 16,
    "hrnet_w18_small": 8,
    "inception_v3": 9,
    "levit_128s": 9,
    "maxvit_rmlp_pico_rw_256": 10,
    "mixer_s32_224": 8,
    "mobilenetv3_small_100": 11,
    "mobilevitv2_050": 9,
    "mvitv2_tiny": 10,
    "nest_tiny": 12,
    "pit_ti_224": 12,
    "poolformer_s12": 12,
    "pvt_v2_b0": 8,
    "regnetx_002": 13,
    "repvgg_a0": 22,
    "repvit_m0_9": 23,
    "res2net50_26w_4s": 16,
    "resnest14d": 4,
    "resnet18": 8,
    "rexnet_100": 16,
    "sequencer2d_s": 18,
    "skresnet18": 8,
    "swin_tiny_patch4_window7_224": 12,
    "swinv2_tiny_window8_256": 12,
    "tiny_vit_5m_224": 12,
    "twins_svt_small": 18,
    "vgg11": 8,
    "visformer_tiny": 15,
    "vit_tiny_patch16_224": 12,
    "volo_d1_224": 18,
    "xception41": 13,
    "xcit_nano_12_p16_224": 12,
}
"""Models of timm, mostly one per model file, with the number of their blocks; modules that occur once (the grid
reductions of Inception) are not counted."""

REFUSED = {
    "dla34": "its trees join values of several blocks: fewer cuts than blocks",
    "fnet": "has no mask: its answer depends on how far a text is padded",
    "gcvit_xxtiny": "its answer for a sample depends on the others in its batch",
    "nystromformer": "its landmarks depend on how far a text is padded",
}
"""Networks that are expected to fail, and the reasons."""

TORCHVISION = {
    "alexnet": 5,
    "convnext_tiny": 18,
    "densenet121": 58,
    "efficientnet_b0": 16,
    "googlenet": 9,
    "inception_v3": 9,
    "maxvit_t": 11,
    "mnasnet0_5": 16,
    "mobilenet_v2": 17,
    "mobilenet_v3_small": 11,
    "regnet_y_400mf": 16,
    "resnet18": 8,
    "shufflenet_v2_x0_5": 16,
    "squeezenet1_1": 8,
    "swin_t": 12,
    "vgg11": 8,
    "vit_b_32": 12,
}
"""Models of torchvision, one per family, with the number of their blocks."""

LAYERS = 4

TEXT: dict[str, dict[str, Any]] = {
    "albert": {"embedding_size": 32},
    "bert": {},
    "camembert": {},
    "convbert": {"embedding_size": 32, "head_ratio": 2},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "distilbert": {"dim": 64, "n_layers": LAYERS, "n_heads": 4, "hidden_dim": 128},
    "electra": {"embedding_size": 32},
    "fnet": {},
    "ibert": {},
    "megatron-bert": {},
    "mobilebert": {"embedding_size": 32, "intra_bottleneck_size": 32},
    "modernbert": {"pad_token_id": 0, "cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2},
    "mpnet": {},
    "nystromformer": {},
    "roberta": {},
    "roformer": {"embedding_size": 64},
    "xlm": {"emb_dim": 64, "n_layers": LAYERS, "n_heads": 4},
    "xlm-roberta": {},
}
"""Small architectures of transformers, four layers of width 64, with their options."""

QUICK = (
    "resnet18",
    "vit_tiny_patch16_224",
    "convnext_atto",
    "densenet121",
    "mobilenet_v2",
    "bert",
    "deberta-v2",
    "GIN",
)


@dataclass(frozen=True)
class Network:
    """A network to cut."""

    library: str
    name: str
    blocks: int
    make: Callable[[], tuple[Backbone, Callable[[Hidden], Tensor] | None, Hidden, Hidden]]
    """Function that returns its backbone, the network itself, and two batches."""


@dataclass(frozen=True)
class Outcome:
    """The result for one network."""

    library: str
    name: str
    blocks: int
    stages: int
    captured_by: str
    largest_share: float
    passed: bool
    reason: str
    """The refusal, or the part of the contract that does not hold; empty if it passed."""


def networks() -> Iterator[Network]:
    """Yield all networks."""
    for name, blocks in TIMM.items():
        yield Network("timm", name, blocks, partial(_timm, name))
    for name, blocks in TORCHVISION.items():
        yield Network("torchvision", name, blocks, partial(_torchvision, name))
    for name in TEXT:
        yield Network("transformers", name, LAYERS, partial(_text, name))
    for name in ("GCN", "GIN"):
        yield Network("torch_geometric", name, 4, partial(_graph, name))
    yield Network("offramp", "t2t-vit-7", 7, lambda: _own(T2TViT(7, num_classes=CLASSES), 224))
    yield Network("offramp", "cifar-resnet-20", 9, lambda: _own(CifarResNet(20, num_classes=CLASSES), 32))
    yield Network("by hand", "skip and dictionary", 3, _by_hand)


def _images(side: int, count: int = 3) -> Tensor:
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(0))


def _split(network: nn.Module, example: Hidden, others: Hidden) -> Any:
    return split(network, example), lambda inputs: logits_of(call_network(network, inputs)), example, others


def _timm(name: str) -> Any:
    import timm

    network: Any = timm.create_model(name, num_classes=CLASSES)
    for parameter in network.parameters():
        if not parameter.any():  # heads of zeros would hide differences
            nn.init.normal_(parameter, std=0.02)
    side = network.pretrained_cfg["input_size"][-1]
    return _split(network, _images(side), _images(side, 2))


def _torchvision(name: str) -> Any:
    import torchvision

    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    network = torchvision.models.get_model(name, weights=None, num_classes=CLASSES, **options)
    side = 299 if name == "inception_v3" else 224
    return _split(network, _images(side), _images(side, 2))


def _text(name: str) -> Any:
    from transformers import AutoConfig, AutoModelForSequenceClassification

    from offramp.backbone.adapters.transformers import text_backbone

    sizes = {
        "vocab_size": 200,
        "hidden_size": 64,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "max_position_embeddings": 64,
        "num_labels": CLASSES,
    }
    config = AutoConfig.for_model(name, **{**sizes, **TEXT[name]})
    factory: Any = AutoModelForSequenceClassification
    network = factory.from_config(config)
    backbone = text_backbone(network)
    pad = config.pad_token_id or 0
    batches = []
    for length, shorter in ((12, 5), (9, 7)):
        ids = torch.randint(3, 200, (3, length), generator=torch.Generator().manual_seed(length))
        mask = torch.ones_like(ids)
        ids[1, shorter:], mask[1, shorter:] = pad, 0
        batches.append({"input_ids": ids, "attention_mask": mask})
    return backbone, lambda inputs: network(**inputs).logits, *batches


def _graph(name: str) -> Any:
    import torch_geometric as pyg

    from offramp_bench.backbones.graph_backbone import graph_backbone

    network = getattr(pyg.nn.models, name)(5, 16, 4)
    head = nn.Linear(16, CLASSES)
    generator = torch.Generator().manual_seed(0)
    graphs = []
    for count in (4, 9, 2, 6):
        edges = torch.randint(0, count, (2, 3 * count), generator=generator)
        graphs.append(pyg.data.Data(x=torch.randn(count, 5, generator=generator), edge_index=edges))
    backbone = graph_backbone(network, head)

    def whole(inputs: Hidden) -> Tensor:
        nodes = network(inputs["x"], inputs["edge_index"])
        logits: Tensor = head(pyg.nn.global_mean_pool(nodes, inputs["batch"], backbone.batch_size(inputs, 0)))
        return logits

    return backbone, whole, backbone.prepare(graphs[:3]), backbone.prepare(graphs[2:])


def _own(backbone: Backbone, side: int) -> Any:
    return backbone, backbone, _images(side), _images(side, 2)


class _Skipping(nn.Module):
    """Two inputs by name, and a skip connection from the first block to the last."""

    def __init__(self) -> None:
        super().__init__()
        self.read = nn.Linear(6, 16)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16)) for _ in range(3)])
        self.head = nn.Linear(16, CLASSES)

    def forward(self, left: Tensor, right: Tensor) -> dict[str, Tensor]:
        first = x = self.read(torch.cat([left, right], dim=1))
        for block in self.blocks:
            x = x + block(x) * right.mean(1, keepdim=True)
        return {"logits": self.head(x + first)}


def _by_hand() -> Any:
    network = _Skipping()
    batches = [{"left": torch.randn(n, 4), "right": torch.randn(n, 2)} for n in (3, 2)]
    return _split(network, *batches)


def try_network(network: Network) -> Outcome:
    """Cut a network into stages, and check the contract."""
    torch.manual_seed(0)
    stages, captured_by, share, reason = 0, "", 0.0, ""
    try:
        backbone, whole, inputs, others = network.make()
        stages, captured_by = backbone.num_exits, getattr(backbone, "captured_by", "")
        share = _largest_share(backbone, inputs)
        check_backbone(backbone, inputs, others, network=whole, exact=captured_by != "torch.export")
        if stages < network.blocks:
            reason = f"{stages} stages for {network.blocks} blocks"
    except (OfframpError, AssertionError) as error:
        reason = str(error).splitlines()[0]
    passed = not reason
    return Outcome(network.library, network.name, network.blocks, stages, captured_by, share, passed, reason)


def _largest_share(backbone: Backbone, inputs: Hidden) -> float:
    from offramp.cost import count_backbone
    from offramp.pooling import POOLINGS

    costs = count_backbone(backbone, backbone.select(inputs, torch.tensor([0]), 0), POOLINGS.get("auto"))
    return float((costs.stage.sum(0) / costs.full.sum()).max())


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--quick", action="store_true", help="a few of them")
    options.add_argument("--only", nargs="*", help="networks by name")
    arguments = options.parse_args()
    names = arguments.only or (QUICK if arguments.quick else None)
    outcomes = []
    for network in networks():
        if names is not None and network.name not in names:
            continue
        began = time.monotonic()
        outcome = try_network(network)
        outcomes.append(outcome)
        seconds = time.monotonic() - began
        say(
            f"{'passes ' if outcome.passed else 'REFUSED'} {outcome.library} {outcome.name}: {outcome.stages} stages "
            f"for {outcome.blocks} blocks, largest {outcome.largest_share:.2f}, {outcome.captured_by}, {seconds:.0f} s "
            f"{outcome.reason}"
        )
    passing = {
        library: sum(outcome.passed for outcome in outcomes if outcome.library == library)
        for library in sorted({outcome.library for outcome in outcomes})
    }
    fewest = {"timm": 25, "torchvision": 10, "transformers": 8, "torch_geometric": 2, "offramp": 2, "by hand": 1}
    bars = [Bar(f"{lib}: networks missing of {fewest[lib]}", fewest[lib] - count, 0) for lib, count in passing.items()]
    unexpected = [outcome.name for outcome in outcomes if outcome.passed == (outcome.name in REFUSED)]
    bars = [Bar("networks that pass or fail against expectation", len(unexpected), 0), *(bars if not names else [])]
    return report({"networks": [asdict(outcome) for outcome in outcomes]}, bars, check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
