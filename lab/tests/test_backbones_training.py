"""Training of backbones: augmented images and graphs, the loop, and files of weights."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from offramp.backbone._backbone import Backbone
from offramp.errors import InputError
from offramp.features import ArraySource
from offramp.preprocessing import Preprocessing
from offramp_bench.backbones import graphs, images, minilm, training, weights
from offramp_bench.backbones.training import Recipe, accuracy, fit
from offramp_bench.texts import classifier_of, tokenizer
from tests.cases import each


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class TestImages:
    @pytest.fixture
    def pictures(self) -> Tensor:
        return torch.randint(0, 256, (8, 3, 32, 32), dtype=torch.uint8, generator=generator())

    def test_without_augmentation_they_are_preprocessed(
        self, pictures: Tensor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(images, "LARGEST_SHIFT", 0.0)
        monkeypatch.setattr(images, "LARGEST_GROWTH", 0.0)
        enlarged = Preprocessing(images.PREPROCESSING.steps[:2])(pictures.permute(0, 2, 3, 1).numpy())
        torch.testing.assert_close(images.augment(pictures, generator(), mirrored=False), enlarged, rtol=0, atol=1e-2)
        mirrored = images.augment(pictures, generator(), mirrored=True)
        pairs = list(zip(mirrored, enlarged, strict=True))
        flips = [torch.allclose(image, plain.flip(2), atol=1e-2) for image, plain in pairs]
        same = [torch.allclose(image, plain, atol=1e-2) for image, plain in pairs]
        assert [flip != stay for flip, stay in zip(flips, same, strict=True)] == [True] * 8
        assert 0 < sum(flips) < 8

    def test_each_image_moves_by_itself(self) -> None:
        # The slope of a ramp gives the stretch, its middle the shift.
        ramp = torch.arange(32.0).expand(200, 1, 32, 32)
        rows = images.augment(ramp, generator(), mirrored=False)[:, 0, 32, 16:48]
        slopes = (rows[:, -1] - rows[:, 0]) / 31 * 2
        middles = (rows[:, 15] + rows[:, 16]) / 2 - 15.5
        assert slopes.min() >= 0.8 - 1e-3
        assert slopes.max() <= 1.2 + 1e-3
        assert slopes.std() == pytest.approx(0.4 / math.sqrt(12), rel=0.1)
        assert middles.abs().max() <= 0.2 * 16 + 1e-3
        assert middles.std() == pytest.approx(6.4 / math.sqrt(12), rel=0.1)

    def test_batches(self, pictures: Tensor) -> None:
        source = ArraySource(pictures.permute(0, 2, 3, 1).numpy(), np.arange(8), name="noise")
        make_batch = images.batch_maker(source, mirrored=False)
        batch, labels = make_batch(torch.tensor([5, 1]), generator(3))
        assert labels.tolist() == [5, 1]
        expected = (images.augment(pictures[[5, 1]], generator(3), mirrored=False) - 127) / 128
        torch.testing.assert_close(batch, expected)


class TestGraphs:
    def test_a_graph_turns_as_a_whole(self) -> None:
        ends = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        before = torch.cat([ends, ends.mean(0)[None]]).repeat(300, 1)
        positions = graphs.move_nodes(before, torch.full((300,), 4), generator()).view(300, 4, 2)
        torch.testing.assert_close(positions[:, :3].mean(1), positions[:, 3])
        shift, first, second = positions[:, 0], positions[:, 1] - positions[:, 0], positions[:, 2] - positions[:, 0]
        assert 0.09 < shift.abs().max() <= 0.1
        angles = torch.atan2(first[:, 1], first[:, 0])
        assert math.pi / 16 * 0.8 < angles.abs().max() < math.pi / 16 * 1.3
        areas = (first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]).abs()
        assert 0.85**2 <= areas.min() < 0.8
        assert 1.25 < areas.max() <= 1.15**2

    @each("readout", ["mean", "add"])
    def test_the_backbone_is_the_network(self, readout: str) -> None:
        torch.manual_seed(0)
        network = graphs.GraphNetwork(3, 8, 4, 5, readout=readout)
        for parameter in network.parameters():
            nn.init.normal_(parameter, std=0.5)
        nodes = torch.tensor([3, 1, 5])
        ends = torch.tensor([[0, 1, 2, 4, 5, 8], [1, 2, 0, 5, 8, 7]])
        inputs = {"x": torch.randn(9, 3), "edge_index": ends, "nodes": nodes}
        backbone = graphs.backbone_of(network, network.state_dict(), name="small")
        assert backbone.num_exits == 4
        torch.testing.assert_close(backbone(backbone.prepare(inputs)), network(inputs))

        def layer(x: Tensor, number: int) -> Tensor:
            module = network.layers[number]
            neighbours = torch.zeros(9, 9)
            neighbours[ends[1], ends[0]] = 1
            mixed = (1 + module.get_submodule("conv").eps) * x + neighbours @ x  # type: ignore[operator]
            normed: Tensor = module.get_submodule("norm")(module.get_submodule("conv.nn")(mixed))
            return x + normed.clamp_min(0)

        x = network.embed(inputs["x"])
        for number in range(4):
            x = layer(x, number)
        pooled = torch.stack([part.mean(0) if readout == "mean" else part.sum(0) for part in x.split(nodes.tolist())])
        torch.testing.assert_close(network.head(pooled), network(inputs))


class TestFit:
    RECIPE = Recipe(epochs=6, batch_size=16, rate=0.05, weight_decay=0.0, smoothing=0.0)

    @staticmethod
    def blobs(count: int) -> tuple[Tensor, Tensor]:
        labels = torch.arange(count) % 3
        return torch.randn(count, 4, generator=generator()) + 3 * torch.eye(4)[labels], labels

    def fit_blobs(self, recipe: Recipe, capsys: pytest.CaptureFixture[str]) -> tuple[nn.Sequential, str]:
        x, y = self.blobs(100)
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
        network[0].requires_grad_(False)
        fit(network, lambda places, _: (x[places], y[places]), 100, recipe, name="blobs")
        return network, capsys.readouterr().err

    def test_learns_and_reports(self, capsys: pytest.CaptureFixture[str]) -> None:
        torch.manual_seed(0)
        frozen = nn.Linear(4, 4).weight.detach().clone()
        network, progress = self.fit_blobs(self.RECIPE, capsys)
        x, y = self.blobs(100)
        assert (network(x).argmax(1) == y).float().mean() > 0.9
        assert torch.equal(network.state_dict()["0.weight"], frozen)
        lines = progress.splitlines()
        assert [line.split(",")[0] for line in lines] == [f"blobs: epoch {epoch} of 6" for epoch in range(1, 7)]

    def test_the_seed_decides(self, capsys: pytest.CaptureFixture[str]) -> None:
        networks = [self.fit_blobs(self.RECIPE, capsys)[0] for _ in range(2)]
        assert torch.equal(networks[0].state_dict()["1.weight"], networks[1].state_dict()["1.weight"])
        other, _ = self.fit_blobs(Recipe(**{**vars(self.RECIPE), "seed": 1}), capsys)
        assert not torch.equal(networks[0].state_dict()["1.weight"], other.state_dict()["1.weight"])

    def test_the_rate_rises_and_falls(self) -> None:
        shares = [training._share(step, 100) for step in range(101)]
        assert shares[:8] == pytest.approx([(step + 1) / 8 for step in range(8)])
        assert shares[54] == pytest.approx(0.5)
        assert shares[100] == pytest.approx(0)
        assert shares[8:] == sorted(shares[8:], reverse=True)

    def test_accuracy_counts_every_row(self) -> None:
        backbone = Backbone("identity", [nn.Identity()], {0: nn.Identity()}, num_classes=3)
        labels = np.arange(7) % 3
        inputs = np.eye(3, dtype=np.float32)[labels]
        inputs[6] = inputs[6][::-1]
        source = ArraySource(inputs, labels, name="rows")
        assert accuracy(backbone, source, batch_size=3) == pytest.approx(6 / 7)


class TestWeights:
    def test_files_hold_half_precision_and_figures(self, tmp_path: Path) -> None:
        state = weights.to_half_precision({"weight": torch.tensor([1 / 3, 2.0]), "count": torch.tensor(7)})
        assert state["weight"].dtype == torch.float16
        weights.write("one", state, {"accuracy": 0.5}, folder=tmp_path)
        weights.write("two", state, {"accuracy": 0.7}, folder=tmp_path)
        state = weights.read("one", folder=tmp_path)
        assert state["weight"].tolist() == [torch.tensor(1 / 3).half().item(), 2.0]
        assert state["count"].item() == 7
        assert weights.figures("two", folder=tmp_path) == {"accuracy": 0.7}
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "figures.json",
            "one.safetensors",
            "two.safetensors",
        ]
        assert '"one": {\n    "accuracy": 0.5' in (tmp_path / "figures.json").read_text()

    def test_refuses_numbers_too_large_for_half_precision(self) -> None:
        with pytest.raises(InputError, match="larger ones in big"):
            weights.to_half_precision({"small": torch.ones(1), "big": torch.tensor([1e5])})

    def test_says_how_to_make_them(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"python -m offramp_bench\.backbones nobody"):
            weights.read("nobody", folder=tmp_path)


@pytest.mark.data
def test_an_encoder_is_rebuilt_from_its_low_rank_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned: list[nn.Module] = []

    def fit_and_keep(network: nn.Module, *arguments: Any, **options: Any) -> None:
        tuned.append(network)
        fit(network, *arguments, **options)

    monkeypatch.setattr(minilm, "fit", fit_and_keep)
    texts = np.array(["a red card", "a blue card", "my red card", "his blue card"] * 2, dtype=object)
    seen = ArraySource(texts, np.array([0, 1] * 4), name="cards")
    recipe = Recipe(epochs=2, batch_size=4, rate=1e-2, weight_decay=0.0, smoothing=0.0)
    deltas = minilm.tune_encoder(seen, recipe, num_classes=2, name="cards")
    tokens = dict(tokenizer()(["a red card", "another one"], padding=True, return_tensors="pt"))
    with torch.inference_mode():
        logits = tuned[0].eval()(tokens)
        rebuilt = classifier_of(deltas)(tokens["input_ids"], tokens["attention_mask"])
    assert logits.abs().max() > 0.01  # it learned something
    torch.testing.assert_close(rebuilt, logits, atol=1e-4, rtol=1e-3)
