"""Split networks, held to the contract of a backbone, and fitted."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import offramp
from offramp.backbone import Axes
from offramp.backbone._classifier import call_network, logits_of
from offramp.backbone._hidden import Hidden
from offramp.backbone._splitting import SplitBackbone, split
from offramp.cost._mul_adds import count_mul_adds
from offramp.errors import InputError, SplitRefusedError, UnknownNameError
from offramp.features import ArraySource, StoreSource, extract
from offramp.model._outcomes import compute_outcomes, simulate
from offramp.pooling import POOLINGS, Tokens
from offramp.testing import check_backbone
from tests.backbone.examples import (
    CLASSES,
    TEXT_AXES,
    VOCABULARY,
    WIDTH,
    Block,
    Branching,
    Ending,
    Layered,
    Maps,
    Skipping,
    Words,
    images,
    texts,
    vectors,
)
from tests.cases import each, refuses


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def hold(network: nn.Module, inputs: Hidden, others: Hidden, **options: Any) -> SplitBackbone:
    """Split a network and hold its backbone to the contract."""
    backbone = split(network, inputs, **options)
    exact = backbone.captured_by == "torch.fx"
    check_backbone(backbone, inputs, others, network=lambda given: logits_of(call_network(network, given)), exact=exact)
    return backbone


class Encoder(nn.Module):
    """A transformer of torch.nn on token numbers."""

    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.encoder(self.embed(ids), src_key_padding_mask=mask == 0)
        shown = mask[..., None].to(x.dtype)
        logits: Tensor = self.head((x * shown).sum(1) / shown.sum(1))
        return logits


class Patches(nn.Module):
    """Patches of an image as tokens, a class token before them."""

    def __init__(self, prefix: int = 1) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 2, stride=2)
        self.prefix = nn.Parameter(torch.randn(1, prefix, WIDTH))
        self.blocks = nn.ModuleList([Block() for _ in range(4)])
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.stem(pictures).flatten(2).mT
        x = torch.cat([self.prefix.expand(x.shape[0], -1, -1), x], dim=1)
        for block in self.blocks:
            x = block(x) + x.mean(1, keepdim=True)
        logits: Tensor = self.head(x[:, 0])
        return logits


class ChannelsLast(Maps):
    """Maps whose channels come last between blocks."""

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.stem(pictures).permute(0, 2, 3, 1)
        for block in self.blocks:
            x = block(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        logits: Tensor = self.head(x.mean((1, 2)))
        return logits


class Named(Layered):
    """Two inputs by name."""

    def forward(self, left: Tensor, right: Tensor) -> Any:  # type: ignore[override]
        x = self.read(left)
        for block in self.blocks:
            x = block(x) * right.mean(1, keepdim=True)
        return {"logits": self.head(x)}


class TestContract:
    @each("kind", [Layered, Branching, Skipping])
    def test_vectors(self, kind: Any) -> None:
        backbone = hold(kind(), vectors(4), vectors(2, seed=1))
        assert backbone.num_exits == 5
        assert backbone.captured_by == ("torch.export" if kind is Branching else "torch.fx")
        assert backbone.own_heads == (4,)

    def test_residual_maps_that_work_in_place(self) -> None:
        backbone = hold(Maps(), images(3), images(2, seed=1))
        assert backbone.num_exits == 4

    def test_a_transformer_of_torch(self) -> None:
        backbone = hold(Encoder(), texts(3, 6, shortest=2), texts(2, 9, shortest=4, seed=1), mask="mask")
        assert backbone.num_exits == 5
        assert backbone.captured_by == "torch.export"

    def test_words_of_different_lengths(self) -> None:
        backbone = hold(Words(), texts(3, 6, shortest=2), texts(2, 9, shortest=4, seed=1), mask="mask")
        assert backbone.num_exits == 5

    @each("kind", [Patches, ChannelsLast])
    def test_other_images(self, kind: Any) -> None:
        assert hold(kind(), images(3, 16), images(2, 16, seed=1)).num_exits >= 4

    def test_a_dictionary(self) -> None:
        batches = [{"right": vectors(n, seed=n), "left": vectors(n)} for n in (4, 2)]
        backbone = hold(Named(), *batches)
        swapped = dict(reversed(batches[0].items()))
        assert list(swapped) != list(batches[0])
        assert torch.equal(backbone(swapped), backbone(batches[0]))

    def test_a_tuple(self) -> None:
        batches = [(vectors(n, seed=n), vectors(n)) for n in (4, 2)]
        assert hold(Named(), *batches).num_exits == 5

    @each("blocks", [1, 2])
    def test_few_blocks(self, blocks: int) -> None:
        assert hold(Layered(blocks), vectors(4), vectors(2, seed=1)).num_exits > blocks

    @each("classes", [2, 1000])
    def test_few_and_many_classes(self, classes: int) -> None:
        backbone = hold(Layered(classes=classes), vectors(4), vectors(2, seed=1))
        assert backbone.num_classes == classes

    def test_an_example_of_one_sample(self) -> None:
        network = Words()
        backbone = split(network, texts(1, 5), mask="mask")
        check_backbone(
            backbone, texts(3, 6, shortest=2), texts(1, 2, seed=1), network=lambda given: network(**given)["logits"]
        )

    def test_named_cuts(self) -> None:
        backbone = hold(Layered(), vectors(4), vectors(2), at=["blocks.2", "blocks.0.upper"])
        assert backbone.num_exits == 2
        with pytest.raises(UnknownNameError, match=r"did you mean 'blocks\.0'"):
            split(Layered(), vectors(), at=["block.0"])

    def test_samples_second(self) -> None:
        class Turned(Layered):
            def forward(self, x: Tensor) -> Any:
                return super().forward(x.mT)

        assert hold(Turned(), vectors(4).mT, vectors(2).mT, axes=Axes(batch=1)).num_exits == 5

    def test_a_number_for_all_samples(self) -> None:
        class Scaled(Layered):
            def forward(self, x: Tensor, scale: Tensor) -> Any:  # type: ignore[override]
                return super().forward(x * scale)

        backbone = hold(Scaled(), (vectors(4), torch.tensor(0.5)), (vectors(2), torch.tensor(0.5)))
        assert backbone.axes(0)[1] == Axes(batch=None)


class TestHalfPrecision:
    @each(("network", "inputs"), [(Layered(), vectors(4)), (Maps(), images(3)), (Branching(), vectors(4))])
    def test_stages_are_the_network(self, network: nn.Module, inputs: Tensor) -> None:
        network = network.bfloat16()
        backbone = split(network, inputs.bfloat16())
        prepared = backbone.prepare(inputs.numpy())
        assert prepared.dtype == torch.bfloat16
        assert torch.equal(backbone(prepared), network(inputs.bfloat16()))

    def test_a_transformer(self) -> None:
        network = Encoder(layers=2).bfloat16()
        backbone = split(network, texts(), mask="mask")  # torch.nn takes other ways than its exported self
        inputs = texts(3, 9, shortest=4, seed=1)
        torch.testing.assert_close(backbone(inputs), network(**inputs), atol=0.05, rtol=0)


class TestMasks:
    """However a mask is made, nobody may see padding."""

    @each("way", ["masked_fill_", "index", "subtract"])
    def test_changed_in_place(self, way: str) -> None:
        class Changed(Words):
            def bias(self, mask: Tensor) -> Tensor:
                bias = torch.zeros_like(mask, dtype=torch.float32)
                if way == "masked_fill_":
                    bias.masked_fill_(mask == 0, -1e9)
                elif way == "index":
                    bias[mask == 0] = -1e9
                else:
                    bias -= 1e9 * (mask == 0)
                return bias

        hold(Changed(), texts(3, 6, shortest=2), texts(2, 9, shortest=4, seed=1), mask="mask")

    def test_what_was_read_before_a_change_is_read_before_it_again(self) -> None:
        class Careful(Words):
            def bias(self, mask: Tensor) -> Tensor:
                bias = torch.zeros_like(mask, dtype=torch.float32)
                untouched = (bias == 0).float()
                bias.masked_fill_(mask == 0, -1e9)
                return bias * untouched

        hold(Careful(), texts(3, 6, shortest=2), texts(2, 9, shortest=4, seed=1), mask="mask")

    def test_what_cannot_be_computed_again_is_refused_not_lost(self) -> None:
        class Patched(Words):
            def bias(self, mask: Tensor) -> Tensor:
                shown = torch.ones_like(mask)
                shown[:, 1:] = mask[:, 1:]  # a change through a part of the tensor
                return -1e9 * (1 - shown.float())

        # The example itself has no padding.
        with pytest.raises(SplitRefusedError, match=r"differ from the network by up to .*; cut elsewhere \(at="):
            split(Patched(), texts(3, 6), mask="mask")

    def test_padding_of_another_number(self) -> None:
        class Marked(Words):
            def forward(self, ids: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
                return super().forward(ids, (ids != 1).long())

        def ids(count: int, length: int, shortest: int) -> Tensor:
            made = texts(count, length, seed=length)["ids"].clamp_min(2)
            made[0, shortest:] = 1
            return made

        # No input marks padding, so exits would look at it: what is joined must still be padded with what it knows.
        backbone = split(Marked(), ids(3, 6, 2), axes=Axes(lengths=(1,), pad=1))
        short, long = ids(3, 6, 2), ids(2, 9, 4)
        together = backbone(backbone.concatenate([short, long], 0))
        torch.testing.assert_close(together, torch.cat([backbone(short), backbone(long)]), rtol=1e-4, atol=1e-5)
        joined = backbone.concatenate([ids(1, 2, 2), ids(1, 4, 4)], 0)
        assert joined[0, 2:].tolist() == [1, 1]


class TestRepresentations:
    def shown(self, backbone: SplitBackbone, inputs: Hidden, stage: int = 1) -> Any:
        hidden = inputs
        for part in list(backbone.stages)[: stage + 1]:
            hidden = part(hidden)
        return backbone.representation(hidden, stage)

    def test_vectors(self) -> None:
        found = self.shown(split(Skipping(), vectors()), vectors())
        assert found.shape == (4, WIDTH)

    def test_maps(self) -> None:
        network = Maps()
        found = self.shown(split(network, images()), images())
        assert torch.equal(found, network.blocks[:2](network.stem(images())))

    def test_maps_whose_channels_come_last(self) -> None:
        network = ChannelsLast()
        found = self.shown(split(network, images(3, 16)), images(3, 16))
        assert torch.equal(found, network.blocks[:2](network.stem(images(3, 16))))

    @each("prefix", [0, 1, 2])
    def test_patches(self, prefix: int) -> None:
        network = Patches(prefix)
        found = self.shown(split(network, images(3, 16)), images(3, 16))
        assert isinstance(found, Tokens)
        assert found.values.shape == (3, 64 + prefix, WIDTH)
        assert found.prefix == prefix
        assert found.mask is None

    def test_rows_that_are_no_patches(self) -> None:
        found = self.shown(split(Patches(9), images(3, 16)), images(3, 16))
        assert found.values.shape == (3, 73, WIDTH)
        assert found.prefix == 0  # more than any network puts before its patches

    @each("mask", ["mask", None])
    def test_words(self, mask: str | None) -> None:
        inputs = texts(3, 6, shortest=2)
        found = self.shown(split(Words(), inputs, mask=mask), inputs)  # the one input called a mask is found
        assert isinstance(found, Tokens)
        assert found.values.shape == (3, 6, WIDTH)
        assert found.prefix == 0
        assert found.mask is not None
        assert torch.equal(found.mask, inputs["mask"])

    def test_words_that_nothing_marks_are_all_there(self) -> None:
        class Unmarked(Words):
            def forward(self, ids: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
                return super().forward(ids, torch.ones_like(ids))

        found = self.shown(split(Unmarked(), texts()["ids"]), texts()["ids"])
        assert found.mask.all()
        # Nine words would make a square of patches: the width must not depend on the length.
        widths = {
            POOLINGS.get("auto")(self.shown(split(Unmarked(), texts()["ids"]), texts(3, n)["ids"])).shape[1]
            for n in (8, 9)
        }
        assert len(widths) == 1

    def test_a_convolution_along_one_axis(self) -> None:
        body = [nn.Sequential(nn.Conv1d(8, 8, 3, padding=1), nn.ReLU()) for _ in range(5)]
        network = nn.Sequential(
            nn.Conv1d(2, 8, 3, padding=1), *body, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 3)
        )
        signals = torch.randn(3, 2, 16)
        found = self.shown(split(network, signals), signals)
        assert isinstance(found, Tensor)
        assert found.shape == (3, 8, 16)  # channels, then positions: averaged over positions

    def test_the_mask_is_there_after_every_stage_even_if_nobody_needs_it(self) -> None:
        class Forgetful(Words):
            def forward(self, ids: Tensor, mask: Tensor) -> dict[str, Tensor]:
                x = self.embed(ids) * mask[..., None]
                for block in self.blocks:
                    x = block(x, torch.zeros_like(ids, dtype=torch.float32))
                return {"logits": self.head(x[:, 0])}

        backbone = split(Forgetful(), texts(), mask="mask")
        for stage in range(backbone.num_exits):
            assert torch.equal(self.shown(backbone, texts(), stage).mask, texts()["mask"])


class TestSizes:
    def test_tokens_of_each_sample(self) -> None:
        backbone = split(Words(), texts(), mask="mask")
        assert backbone.varies_in_size
        assert backbone.sizes(texts(3, 6, shortest=2)).tolist() == [2, 6, 6]

    def test_one_length_where_there_is_no_mask(self) -> None:
        class Unmarked(Words):
            def forward(self, ids: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
                return super().forward(ids, torch.ones_like(ids))

        backbone = split(Unmarked(), texts()["ids"])
        assert backbone.varies_in_size
        assert backbone.sizes(texts(3, 6)["ids"]).tolist() == [6, 6, 6]

    def test_nothing_grows(self) -> None:
        backbone = split(Layered(), vectors())
        assert not backbone.varies_in_size
        assert backbone.sizes(vectors(3)).tolist() == [1, 1, 1]

    @each("size", [1, 4, 17])
    def test_resized(self, size: int) -> None:
        backbone = split(Words(), texts(), mask="mask")
        found = backbone.with_size(texts(3, 6), size)
        assert found["ids"].shape == found["mask"].shape == (1, size)
        assert backbone.sizes(found).tolist() == [size]
        assert found["ids"][0, :6].tolist() == texts(3, 6)["ids"][0, :size].tolist()
        assert backbone(found).shape == (1, CLASSES)

    def test_costs_grow_with_the_square_of_the_length(self) -> None:
        network = Words()
        backbone = split(network, texts(), mask="mask")
        for length in (3, 12):
            counted, _ = count_mul_adds(backbone, backbone.with_size(texts(), length))
            linear, square = 4 * 2 * WIDTH * WIDTH, 4 * 2 * WIDTH
            assert counted == linear * length + square * length**2 + WIDTH * CLASSES


class TestFingerprints:
    def made(self, seed: int = 0, **options: Any) -> str:
        torch.manual_seed(seed)
        return split(Layered(), vectors(), **options).fingerprint()

    def test_of_the_same_network(self) -> None:
        assert self.made() == self.made()
        torch.manual_seed(0)
        assert split(Layered(), vectors(1, seed=3)).fingerprint() == self.made()  # whatever the example

    def test_of_others(self) -> None:
        made = [self.made(), self.made(seed=1), self.made(at=["read"]), self.made(at=["blocks.0"]), self.made(name="x")]
        assert len(set(made)) == 5

    def test_of_another_computation_with_the_same_weights(self) -> None:
        class Doubling(Layered):
            def forward(self, x: Tensor) -> Any:
                return super().forward(x * 2)

        torch.manual_seed(0)
        assert split(Doubling(), vectors(), name="layered").fingerprint() != self.made()


class TestInputs:
    @each(
        "inputs",
        [
            vectors(),
            (vectors(), vectors()),
            {"left": vectors()},
            {"left": vectors(), "write": vectors()},
            {"left": vectors(), "right": vectors(), "more": vectors()},
        ],
    )
    def test_another_structure(self, inputs: Any) -> None:
        backbone = split(Named(), {"left": vectors(), "right": vectors()})
        for use in (backbone, backbone.prepare):
            with pytest.raises(InputError, match=r"like the example the network was split with \(left, right\)"):
                use(inputs)

    def test_prepared(self) -> None:
        backbone = split(Words(), texts(), mask="mask")
        padded = {name: np.pad(leaf.numpy(), ((0, 0), (0, 4))) for name, leaf in texts(3, 6).items()}
        prepared = backbone.prepare(padded)
        assert torch.equal(prepared["ids"], texts(3, 6)["ids"])  # without the columns that are padding alone
        assert torch.equal(prepared["mask"], texts(3, 6)["mask"])
        other: Mapping[str, Any] = MappingProxyType(texts(3, 6))  # what tokenizers give is a mapping of their own
        assert torch.equal(backbone.prepare(other)["ids"], prepared["ids"])
        nothing = backbone.prepare({"ids": texts(2, 3)["ids"], "mask": torch.zeros(2, 3, dtype=torch.long)})
        assert nothing["ids"].shape == (2, 1)

    def test_examples(self) -> None:
        torch.manual_seed(0)
        given = split(Layered(), vectors().double().numpy())
        assert given(vectors()).dtype == torch.float32
        wrong: Any
        for wrong in ("a text", ["two", "texts"], [], {}):
            with pytest.raises(InputError, match=r"example of tensors or arrays.*text_backbone"):
                split(Layered(), wrong)
        with pytest.raises(InputError, match=r"expected an example.*offramp\.split\(model, example\)"):
            split(Layered())
        with pytest.raises(InputError, match="at least one sample"):
            split(Layered(), vectors(0))
        with refuses(InputError, got="'attention'", hint="as a dictionary"):
            split(Words(), texts(), mask="attention")
        with refuses(InputError, got="'mask'"):
            split(Layered(), vectors(), mask="mask")

    def test_the_usual_name_of_a_mask(self) -> None:
        class Usual(Words):
            def forward(self, ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
                return super().forward(ids, attention_mask)

        inputs = texts(3, 6, shortest=2)
        backbone = split(Usual(), {"ids": inputs["ids"], "attention_mask": inputs["mask"]})
        assert backbone.sizes({"ids": inputs["ids"], "attention_mask": inputs["mask"]}).tolist() == [2, 6, 6]

    def test_axes_by_name(self) -> None:
        backbone = split(Words(), texts(), axes={**TEXT_AXES, "ids": Axes(lengths=(1,), pad=5)}, mask="mask")
        joined = backbone.concatenate([texts(1, 2), texts(1, 4)], 0)
        assert joined["ids"][0, 2:].tolist() == [5, 5]
        assert joined["mask"][0].tolist() == [1, 1, 0, 0]


def distinct(network: nn.Module) -> int:
    """Count the parameters of a network, shared ones once."""
    return sum(tensor.numel() for tensor in {*network.parameters(), *network.buffers()})


class TestWeights:
    """A stage has the weights it uses, and no others: what is saved is as large as the network."""

    @each(
        ("network", "example", "by"),
        [
            (Layered(), vectors(), "torch.fx"),
            (Branching(), vectors(), "torch.export"),
            (Skipping(), vectors(), "torch.fx"),
            (Maps(), images(), "torch.fx"),
            (Patches(), images(3, 16), "torch.fx"),
            (Words(), texts(), "torch.fx"),
            (Encoder(), texts(), "torch.export"),
        ],
    )
    def test_none_is_held_twice(self, network: nn.Module, example: Hidden, by: str) -> None:
        backbone = split(network, example)
        assert backbone.captured_by == by
        saved = backbone.state_dict()
        assert sum(tensor.numel() for tensor in saved.values()) == distinct(network) == distinct(backbone)
        assert len({tensor.data_ptr() for tensor in saved.values()}) == len(saved)

    @each("kind", [Layered, Branching, Encoder])
    def test_each_stage_has_its_own(self, kind: Any) -> None:
        network = kind()
        backbone = split(network, texts() if kind is Encoder else vectors())
        held = [{tensor.data_ptr() for tensor in stage.state_dict().values()} for stage in backbone.stages]
        assert all(held)
        assert len(set.union(*held)) == sum(map(len, held))
        head = {tensor.data_ptr() for tensor in network.head.state_dict().values()}
        assert {tensor.data_ptr() for tensor in backbone.heads.state_dict().values()} == head

    @each("branching", [False, True])
    def test_what_two_stages_use_both_have(self, branching: bool) -> None:
        class Tied(Branching if branching else Layered):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                for block in self.blocks:
                    block.lower.weight = self.blocks[0].lower.weight

        network = Tied()
        backbone = hold(network, vectors(4), vectors(2, seed=1))
        assert distinct(backbone) == distinct(network)
        assert sum(tensor.numel() for tensor in backbone.state_dict().values()) == distinct(network) + 3 * WIDTH * WIDTH

    def test_what_nothing_uses_is_not_held(self) -> None:
        network = Branching()
        network.register_buffer("unused", torch.zeros(1000))
        assert distinct(split(network, vectors())) == distinct(network) - 1000


class TestModel:
    def test_frozen_not_copied(self) -> None:
        network = Ending(nn.Dropout(0.5)).train()
        backbone = split(network, vectors())
        assert not network.training
        assert not any(parameter.requires_grad for parameter in network.parameters())
        with torch.no_grad():
            network.head.bias.add_(1)
        assert torch.equal(backbone(vectors()), network(vectors()))

    def test_names(self) -> None:
        assert split(Layered(), vectors()).name == "layered"
        assert split(Layered(), vectors(), name="mine").name == "mine"

    def test_numbers_that_cannot_be_read_off(self) -> None:
        class Counting(Layered):
            def forward(self, x: Tensor) -> Any:
                fewer = x[1:].size(0)
                return super().forward(x) + fewer - fewer

        with pytest.raises(SplitRefusedError, match=r"a number that changes with batch or length \(2\) crosses a cut"):
            split(Counting(), vectors())

    def test_numbers_made_of_numbers(self) -> None:
        class Counting(Layered):
            def forward(self, x: Tensor) -> Any:
                more = x.size(0) * x.size(0) + 1
                return super().forward(x) + more - more

        hold(Counting(), vectors(4), vectors(2))


@each("kind", ["maps", "texts"])
def test_fitted_and_chosen(kind: str, tmp_path: Path) -> None:
    """Exits on a network that was split: the simulator and the network that runs agree on who leaves where."""
    lengths = np.random.default_rng(0).integers(2, 17, 500)
    if kind == "maps":
        backbone = split(Maps(channels=16), images())
        inputs: Any = images(500).numpy()
    else:
        backbone = split(Words(width=64), texts(), mask="mask")
        mask = (np.arange(16) < lengths[:, None]).astype(np.int64)
        inputs = {"ids": texts(500, 16)["ids"].numpy() * mask, "mask": mask}
    labels = backbone(backbone.prepare(inputs)).argmax(1).numpy()

    def rows(start: int, stop: int) -> Any:
        return pytree.tree_map(lambda leaf: leaf[start:stop], inputs), labels[start:stop]

    settings = replace(offramp.DEFAULT, warmup_epochs=1, epochs=1, batch_size=50)
    frontier = offramp.fit(backbone, rows(0, 250), rows(250, 400), settings=settings, progress=False)
    test = ArraySource(*rows(400, 500), name="test")
    store = extract(backbone, test, tmp_path, dtype=torch.float32, progress=False)
    seen = compute_outcomes(frontier.exits, StoreSource(store, pooling="rich"), frontier.temperatures)
    spread = []
    for policy, points in frontier.points.items():
        for point in points[:: max(1, len(points) // 4)]:
            network = frontier.at(cost=point.tune_metrics["cost"], policy=policy)
            answer = network.predict(rows(400, 500)[0])
            exits = simulate([network.point], seen)[0]
            assert (answer.exits != exits).sum() <= 1  # a sample on the very boundary may fall either way
            spread.append(len(set(exits.tolist())))
            for exit in set(answer.exits.tolist()):  # at the same exit, longer texts cost more
                left = answer.exits == exit
                sizes = lengths[400:][left.numpy()] if kind == "texts" else np.ones(int(left.sum()))
                assert len(set(answer.relative_cost[left].tolist())) == len(set(sizes.tolist()))
    assert max(spread) > 1


class Ordered(nn.Module):
    """Layers that read two values, computed in either order, as networks do that iterate over a set."""

    def __init__(self, order: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.head = nn.Linear(6, 3)
        self.order = order

    def forward(self, x: Tensor) -> Tensor:
        computed = {name: {"s": torch.sin, "c": torch.cos}[name](x) for name in self.order}
        for layer in self.layers:
            x = layer(x) * computed["s"] - computed.get("c", 0)
        logits: Tensor = self.head(x)
        return logits


def test_the_order_of_computing_changes_no_fingerprint_but_what_is_computed_does() -> None:
    one, other = (split(Ordered(order).eval(), vectors()) for order in ("sc", "cs"))
    assert one.fingerprint() == other.fingerprint()
    assert one.fingerprint() != split(Ordered("ss").eval(), vectors()).fingerprint()
