"""T2T-ViT against closed forms, against fvcore, and against the network written out from a checkpoint's own keys."""

import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fvcore.nn import FlopCountAnalysis
from torch import Tensor

from offramp.backbone import Factory
from offramp.backbone._making import build, make_backbone
from offramp.cost import count_backbone
from offramp.cost._mul_adds import count_mul_adds
from offramp.errors import InputError
from offramp.pooling import Tokens
from offramp.pooling._pooling import FirstPooling
from offramp.testing import check_backbone
from offramp_bench.backbones.t2t_vit import T2TViT, load_t2t_vit
from tests.cases import each

SHAPES = {7: (256, 4, 2), 14: (384, 6, 3)}
"""Width, heads, MLP ratio."""


def performer_mul_adds(tokens: int, width_in: int) -> int:
    """Return the Mul-Adds of a performer with 64 numbers per token, 32 random features, and 5 per element of a norm."""
    norms = 5 * tokens * (width_in + 64)
    linears = tokens * (width_in * 192 + 64 * 64 + 2 * 64 * 64)
    features, products, sums = 2 * tokens * 64 * 32, 2 * tokens * 64 * 32, tokens * 32
    return norms + linears + features + products + sums


def stem_mul_adds(side: int, width: int) -> int:
    first, second, patches = (side // 4) ** 2, (side // 8) ** 2, (side // 16) ** 2
    return performer_mul_adds(first, 147) + performer_mul_adds(second, 576) + patches * 576 * width


def block_mul_adds(tokens: int, width: int, ratio: int) -> int:
    return 4 * tokens * width**2 + 2 * tokens * width**2 * ratio + 2 * tokens**2 * width + 10 * tokens * width


class TestCosts:
    @each("depth", SHAPES)
    @each("side", [32, 224])
    @each("batch", [1, 2])
    def test_closed_form(self, depth: int, side: int, batch: int) -> None:
        width, _, ratio = SHAPES[depth]
        tokens = (side // 16) ** 2 + 1
        backbone = T2TViT(depth, num_classes=10, image_side=side)
        mul_adds = count_backbone(backbone, torch.zeros(batch, 3, side, side), FirstPooling(), layer_norms=True)
        block, norm = block_mul_adds(tokens, width, ratio), 5 * tokens * width
        assert mul_adds.stage.tolist() == [[stem_mul_adds(side, width) + block, *[block] * (depth - 1)]]
        # Every exit applies the final norm; the network's own head contains it.
        assert mul_adds.pooling.tolist() == [[norm] * depth]
        assert mul_adds.head.tolist() == [[0] * (depth - 1) + [norm + 10 * width]]
        assert mul_adds.full.tolist() == [stem_mul_adds(side, width) + depth * block + norm + 10 * width]

    @each(("depth", "published"), [(7, 1146.61e6), (14, 4783.08e6)])
    def test_without_norms(self, depth: int, published: float) -> None:
        mul_adds = count_backbone(T2TViT(depth), torch.zeros(1, 3, 224, 224), FirstPooling())
        assert mul_adds.stage.sum().item() == pytest.approx(published, abs=5e3)
        assert not mul_adds.pooling.any()

    @each("depth", SHAPES)
    def test_against_fvcore(self, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
        def attention(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            return (queries @ keys.mT / math.sqrt(queries.shape[-1])).softmax(-1) @ values

        # fvcore has no rule for fused attention; written out, it counts the two products.
        monkeypatch.setattr(F, "scaled_dot_product_attention", attention)
        backbone, images = T2TViT(depth), torch.zeros(1, 3, 224, 224)
        analysis = FlopCountAnalysis(backbone, images)
        analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
        mul_adds = count_backbone(backbone, images, FirstPooling(), layer_norms=True)
        by_module = analysis.by_module()
        assert mul_adds.full.item() == analysis.total()
        for stage, count in enumerate(mul_adds.stage[0].tolist()):
            assert count == by_module[f"stages.{stage}"]
        assert mul_adds.head[0, -1] == by_module[f"heads.{depth - 1}"]
        assert mul_adds.pooling[0, 0] == by_module[f"heads.{depth - 1}.norm"]


class TestStructure:
    @each(("depth", "published"), [(7, 4_310_222), (14, 21_545_550)])
    def test_parameters(self, depth: int, published: int) -> None:
        backbone = T2TViT(depth)
        assert sum(parameter.numel() for parameter in backbone.parameters()) == published
        assert not list(backbone.buffers())
        # Positions and random features are never trained, and counted all the same.
        fixed = {
            name: value.numel() for name, value in backbone.named_parameters() if name.endswith((".w", "pos_embed"))
        }
        assert sorted(fixed.values()) == [2048, 2048, 197 * SHAPES[depth][0]]

    @each(("depth", "width"), [(7, 256), (14, 384)])
    def test_the_default_width_is_the_published_one(self, depth: int, width: int) -> None:
        shapes = [
            {name: value.shape for name, value in backbone.state_dict().items()}
            for backbone in (T2TViT(depth, num_classes=5), T2TViT(depth, num_classes=5, width=width))
        ]
        assert shapes[0] == shapes[1]

    def test_another_width(self) -> None:
        backbone = T2TViT(7, num_classes=5, image_side=32, width=128)
        mul_adds = count_backbone(backbone, torch.zeros(1, 3, 32, 32), FirstPooling(), layer_norms=True)
        assert mul_adds.stage[0, 1:].tolist() == [block_mul_adds(5, 128, 2)] * 6
        state = backbone.state_dict()
        assert state["stages.0.0.attention2.kqv.weight"].shape == (3 * 32, 9 * 32)
        assert state["stages.0.0.attention2.w"].shape == (16, 32)
        assert backbone.get_submodule("stages.3").heads == 2
        assert backbone.factory is not None
        again = make_backbone(backbone.factory.name, backbone.factory.options)
        again.load_state_dict(state)
        assert again.fingerprint() == backbone.fingerprint()

    @each("width", [0, 100, 4096, 128.0, True])
    def test_refuses_widths_without_whole_heads(self, width: Any) -> None:
        with pytest.raises(InputError, match="a multiple of 64 up to 2048"):
            T2TViT(7, width=width)

    def test_positions(self) -> None:
        positions = T2TViT(7, image_side=48).state_dict()["stages.0.0.pos_embed"]
        assert positions.shape == (1, 10, 256)
        for place in range(10):
            for column in range(256):
                angle = place / 10_000 ** (2 * (column // 2) / 256)
                expected = math.cos(angle) if column % 2 else math.sin(angle)
                assert positions[0, place, column].item() == pytest.approx(expected, abs=1e-7)

    def test_random_features_are_orthogonal(self) -> None:
        for layer in ("attention1", "attention2"):
            w = T2TViT(7).state_dict()[f"stages.0.0.{layer}.w"]
            torch.testing.assert_close(w @ w.T, 32 * torch.eye(32), rtol=0, atol=1e-4)

    @each(("depth", "side"), [(10, 224), (0, 224), (7, 30), (7, 0), (7, -16)])
    def test_refuses_unknown_depths_and_sides(self, depth: int, side: int) -> None:
        with pytest.raises(InputError, match="7 or 14 and a multiple of 16"):
            T2TViT(depth, image_side=side)


def official(depth: int, *, num_classes: int, side: int, seed: int = 0) -> dict[str, Tensor]:
    """Random weights under the names, and in the shapes, of the official checkpoints."""
    width, _, ratio = SHAPES[depth]
    shapes: dict[str, tuple[int, ...]] = {"cls_token": (1, 1, width), "pos_embed": (1, (side // 16) ** 2 + 1, width)}

    def linear(name: str, width_in: int, width_out: int, *, bias: bool = True) -> None:
        shapes[f"{name}.weight"] = (width_out, width_in)
        if bias:
            shapes[f"{name}.bias"] = (width_out,)

    def norm(name: str, size: int) -> None:
        shapes[f"{name}.weight"] = shapes[f"{name}.bias"] = (size,)

    for layer, width_in in (("attention1", 147), ("attention2", 576)):
        name = f"tokens_to_token.{layer}"
        shapes[f"{name}.w"] = (32, 64)
        linear(f"{name}.kqv", width_in, 192)
        linear(f"{name}.proj", 64, 64)
        norm(f"{name}.norm1", width_in)
        norm(f"{name}.norm2", 64)
        linear(f"{name}.mlp.0", 64, 64)
        linear(f"{name}.mlp.2", 64, 64)
    linear("tokens_to_token.project", 576, width)
    for block in range(depth):
        name = f"blocks.{block}"
        norm(f"{name}.norm1", width)
        linear(f"{name}.attn.qkv", width, 3 * width, bias=False)
        linear(f"{name}.attn.proj", width, width)
        norm(f"{name}.norm2", width)
        linear(f"{name}.mlp.fc1", width, ratio * width)
        linear(f"{name}.mlp.fc2", ratio * width, width)
    norm("norm", width)
    linear("head", width, num_classes)
    draw = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=draw) / shape[-1] ** 0.5 for name, shape in shapes.items()}


def reference(state: dict[str, Tensor], images: Tensor, depth: int) -> list[Tensor]:
    """Return the tokens after every block, then the logits, computed step by step."""
    width, heads, _ = SHAPES[depth]
    state = {name: value.double() for name, value in state.items()}

    def linear(name: str, x: Tensor) -> Tensor:
        bias = state.get(f"{name}.bias")
        return x @ state[f"{name}.weight"].T + (0 if bias is None else bias)

    def norm(name: str, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        spread = (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return centred / spread * state[f"{name}.weight"] + state[f"{name}.bias"]

    def gelu(x: Tensor) -> Tensor:
        return x * (1 + torch.erf(x / math.sqrt(2))) / 2

    def windows(maps: Tensor, size: int, step: int, border: int) -> Tensor:
        """Return the windows one after the other, channels outermost within each."""
        padded = F.pad(maps, (border,) * 4)
        starts = range(0, padded.shape[-1] - size + 1, step)
        cut = [padded[:, :, row : row + size, column : column + size].flatten(1) for row in starts for column in starts]
        return torch.stack(cut, dim=1)

    def performer(name: str, tokens: Tensor) -> Tensor:
        keys, queries, values = linear(f"{name}.kqv", norm(f"{name}.norm1", tokens)).split(64, dim=-1)  # type: ignore[no-untyped-call]
        w = state[f"{name}.w"]
        rows = []
        for sample in range(len(tokens)):
            for query in queries[sample]:
                # phi(q) . phi(k) for every key: the attention that the network computes in linear time.
                shares = torch.stack(
                    [
                        torch.dot(
                            (w @ query - query.dot(query) / 2).exp() / math.sqrt(32),
                            (w @ key - key.dot(key) / 2).exp() / math.sqrt(32),
                        )
                        for key in keys[sample]
                    ]
                )
                rows.append(shares @ values[sample] / (shares.sum() + 1e-8))
        x: Tensor = values + linear(f"{name}.proj", torch.stack(rows).view_as(values))
        return x + linear(f"{name}.mlp.2", gelu(linear(f"{name}.mlp.0", norm(f"{name}.norm2", x))))

    def square(tokens: Tensor) -> Tensor:
        return tokens.permute(0, 2, 1).reshape(len(tokens), tokens.shape[2], math.isqrt(tokens.shape[1]), -1)

    x = performer("tokens_to_token.attention1", windows(images.double(), 7, 4, 2))
    x = performer("tokens_to_token.attention2", windows(square(x), 3, 2, 1))
    x = linear("tokens_to_token.project", windows(square(x), 3, 2, 1))
    x = torch.cat([state["cls_token"].repeat(len(x), 1, 1), x], dim=1) + state["pos_embed"]
    outputs = []
    for block in range(depth):
        name = f"blocks.{block}"
        qkv = linear(f"{name}.attn.qkv", norm(f"{name}.norm1", x))
        mixed = []
        for head in range(heads):
            size = width // heads
            q, k, v = (qkv[..., part * width + head * size : part * width + (head + 1) * size] for part in range(3))
            mixed.append((q @ k.mT / math.sqrt(size)).softmax(-1) @ v)
        x = x + linear(f"{name}.attn.proj", torch.cat(mixed, dim=-1))
        x = x + linear(f"{name}.mlp.fc2", gelu(linear(f"{name}.mlp.fc1", norm(f"{name}.norm2", x))))
        outputs.append(x)
    return [*outputs, linear("head", norm("norm", x)[:, 0])]


def pictures(count: int, side: int = 32, *, seed: int = 0) -> Tensor:
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(seed))


WRAPPINGS: dict[str, Any] = {
    "plain": lambda state: state,
    "averaged": lambda state: {
        "state_dict_ema": state,
        "state_dict": {name: torch.zeros_like(value) for name, value in state.items()},
        "epoch": 3,
    },
    "in training": lambda state: {"state_dict": state, "arch": "t2t_vit"},
    "fine-tuned": lambda state: {"net": {f"module.{name}": value for name, value in state.items()}, "acc": 98.1},
}


class TestLoading:
    @each("depth", SHAPES)
    def test_the_network_is_the_one_the_keys_name(self, depth: int, tmp_path: Path) -> None:
        state = official(depth, num_classes=5, side=32)
        torch.save(state, tmp_path / "weights.pth")
        backbone = load_t2t_vit(tmp_path / "weights.pth", depth, num_classes=5, image_side=32)
        hidden: Any = pictures(2)
        *tokens, logits = reference(state, hidden, depth)
        torch.testing.assert_close(backbone(hidden).double(), logits, rtol=1e-4, atol=1e-4)
        for stage, expected in zip(backbone.stages, tokens, strict=True):
            hidden = stage(hidden)
            torch.testing.assert_close(hidden.double(), expected, rtol=1e-4, atol=1e-4)

    @each("wrapping", WRAPPINGS)
    def test_all_wrappings_of_weights(self, wrapping: str, tmp_path: Path) -> None:
        state = official(7, num_classes=5, side=32)
        torch.save(WRAPPINGS[wrapping](state), tmp_path / "weights.pth")
        backbone = load_t2t_vit(tmp_path / "weights.pth", 7, num_classes=5, image_side=32)
        sums = sorted(value.double().sum().item() for value in backbone.state_dict().values())
        assert sums == sorted(value.double().sum().item() for value in state.values())
        assert not any(parameter.requires_grad for parameter in backbone.parameters())

    def test_refuses_another_network(self, tmp_path: Path) -> None:
        state = official(7, num_classes=5, side=32)
        path = tmp_path / "weights.pth"
        torch.save(state, path)
        with pytest.raises(InputError, match="does not fit a T2T-ViT-14"):
            load_t2t_vit(path, 14, num_classes=5, image_side=32)
        with pytest.raises(InputError, match=r"head\.weight"):
            load_t2t_vit(path, 7, image_side=32)
        with pytest.raises(InputError, match="pos_embed"):
            load_t2t_vit(path, 7, num_classes=5)
        for changed in (
            {**state, "surplus": torch.zeros(1)},
            {key: value for key, value in state.items() if key[:2] != "no"},
        ):
            torch.save(changed, path)
            with pytest.raises(InputError, match="does not fit"):
                load_t2t_vit(path, 7, num_classes=5, image_side=32)

    def test_runs_no_code_of_a_file(self, tmp_path: Path) -> None:
        torch.save({"state_dict_ema": Path}, tmp_path / "weights.pth")
        with pytest.raises(pickle.UnpicklingError):
            load_t2t_vit(tmp_path / "weights.pth", 7)


@pytest.fixture(scope="module")
def backbone() -> T2TViT:
    torch.manual_seed(0)
    return T2TViT(7, num_classes=5, image_side=32)


class TestBackbone:
    def test_holds_to_the_contract(self, backbone: T2TViT) -> None:
        check_backbone(backbone, pictures(4), pictures(2))

    def test_is_made_again_from_its_factory(self, backbone: T2TViT) -> None:
        assert backbone.factory is not None
        again = build(backbone.factory)
        again.load_state_dict(backbone.state_dict())
        assert again.factory == backbone.factory
        assert again.fingerprint() == backbone.fingerprint()

    @each(
        "options",
        [
            {"depth": 8},
            {"depth": 7.0},
            {"depth": [7]},
            {"depth": 7, "image_side": 10**9 * 16},
            {"depth": 7, "image_side": 0},
            {"depth": 7, "image_side": "32"},
            {"depth": 7, "num_classes": 10**9},
        ],
    )
    def test_invalid_options(self, options: dict[str, Any]) -> None:
        with pytest.raises(InputError, match="'t2t_vit' cannot make a backbone"):
            build(Factory("t2t_vit", options))

    def test_stages_composed_are_the_network(self, backbone: T2TViT) -> None:
        hidden: Any = pictures(3)
        for stage in backbone.stages:
            hidden = stage(hidden)
            assert hidden.shape == (3, 5, 256)
        assert torch.equal(backbone.own_logits(hidden, 6), backbone(pictures(3)))
        assert backbone.own_heads == (6,)

    def test_exits_see_the_normed_class_token(self, backbone: T2TViT) -> None:
        hidden: Any = pictures(3)
        for index, stage in enumerate(backbone.stages):
            hidden = stage(hidden)
            tokens = backbone.representation(hidden, index)
            assert isinstance(tokens, Tokens)
            assert tokens.prefix == 1
            assert tokens.mask is None
            state = backbone.state_dict()
            expected = F.layer_norm(hidden, (256,), state["heads.6.norm.weight"], state["heads.6.norm.bias"])
            torch.testing.assert_close(tokens.values, expected)
        # The network's own head is a linear layer on the input of an exit after the last stage.
        linear = F.linear(FirstPooling()(tokens), state["heads.6.head.weight"], state["heads.6.head.bias"])
        torch.testing.assert_close(linear, backbone(pictures(3)))

    def test_a_batch_of_one_and_of_none(self, backbone: T2TViT) -> None:
        images = pictures(4)
        together = backbone(images)
        for row in range(4):
            torch.testing.assert_close(backbone(images[[row]]), together[[row]], rtol=1e-4, atol=1e-5)
        assert backbone(images[:0]).shape == (0, 5)

    def test_another_side(self) -> None:
        backbone = T2TViT(7, num_classes=5, image_side=64)
        assert backbone.stages[0](pictures(2, 64)).shape == (2, 17, 256)

    def test_half_precision(self, backbone: T2TViT) -> None:
        torch.manual_seed(0)
        half = T2TViT(7, num_classes=5, image_side=32).bfloat16()
        logits = half(pictures(3).bfloat16())
        assert logits.dtype == torch.bfloat16
        torch.testing.assert_close(logits.float(), backbone(pictures(3)), rtol=0.1, atol=0.1)

    def test_performers_of_long_keys_in_half_precision(self) -> None:
        # The longer the keys, the smaller their features; with 1e-8 rounded to nothing this would be 0 / 0.
        performer = T2TViT(7, image_side=32).half().get_submodule("stages.0.0.attention2")
        performer.get_parameter("kqv.weight").mul_(8)
        tokens = performer(torch.randn(1, 16, 576, generator=torch.Generator().manual_seed(0)).half())
        assert torch.isfinite(tokens).all()

    def test_linear_time(self) -> None:
        performer = T2TViT(7).get_submodule("stages.0.0.attention1")
        counts = [count_mul_adds(performer, torch.zeros(1, tokens, 147))[0] for tokens in (10, 20, 40)]
        assert counts[1] == 2 * counts[0]
        assert counts[2] == 4 * counts[0]
