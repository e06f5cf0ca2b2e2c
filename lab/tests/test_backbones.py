"""Every backbone: frozen, its stages compose to the network, as accurate as the figures beside its weights say."""

import json
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("torch_geometric")
pytest.importorskip("efficientnet_lite_pytorch", reason="not installed: scripts/setup installs it")

from offramp.backbone._backbone import Backbone
from offramp.cost import count_backbone
from offramp.features import Source
from offramp.pooling import POOLINGS
from offramp.testing import check_backbone
from offramp_bench.backbones import BACKBONES, lite0, weights
from offramp_bench.backbones.__main__ import main
from offramp_bench.backbones.training import accuracy
from tests.cases import each

FITTED = [name for name, backbone in BACKBONES.items() if backbone.train is not None]

STAGES = {
    "lite0-cifar100": 16,
    "lite0-cifar100lt": 16,
    "lite0-svhn": 16,
    "t2t-cifar10": 7,
    "gnn-superpixels": 6,
    "gnn-nci1": 6,
    "minilm-agnews": 7,
    "minilm-sst2": 7,
}

ACCURACY = {"lite0-cifar100": 0.689}
"""Test accuracy of weights that come with the data; files of weights hold the others."""


class First:
    """The first rows of a source."""

    def __init__(self, source: Source, rows: int) -> None:
        self.name, self._source, self._rows = source.name, source, rows

    def __len__(self) -> int:
        return min(self._rows, len(self._source))

    def read(self, start: int, stop: int) -> Any:
        return self._source.read(start, stop)


@cache
def loaded(name: str) -> Backbone:
    return BACKBONES[name].backbone()


def batch(backbone: Backbone, source: Source, start: int, stop: int) -> Any:
    return backbone.prepare(backbone.preprocessing(source.read(start, stop).inputs))


@pytest.mark.data
class TestBackbones:
    @each("name", BACKBONES)
    def test_keep_the_contract(self, name: str) -> None:
        backbone = loaded(name)
        source = BACKBONES[name].unseen()
        assert backbone.num_exits == STAGES[name]
        assert not backbone.training
        assert not any(parameter.requires_grad for parameter in backbone.parameters())
        assert {parameter.dtype for parameter in backbone.parameters()} == {torch.float32}
        check_backbone(backbone, batch(backbone, source, 0, 3), batch(backbone, source, 3, 5))

    @each("name", BACKBONES)
    def test_costs_rise_from_stage_to_stage(self, name: str) -> None:
        backbone = loaded(name)
        costs = count_backbone(backbone, batch(backbone, BACKBONES[name].test(), 0, 1), POOLINGS.get("auto"))
        free = 1 if name.startswith("minilm") else 0  # embeddings are looked up
        assert (costs.stage.sum(0)[free:] > 0).all()
        # An exit after the first stage is worth looking at: much of the network is still to come.
        assert costs.stage.sum(0)[0] < 0.5 * costs.full.sum()

    @pytest.mark.slow
    @pytest.mark.parametrize("name", BACKBONES)
    def test_accuracy_is_what_is_written(self, name: str) -> None:
        backbone = loaded(name)
        rows = First(BACKBONES[name].test(), 400)
        written = ACCURACY[name] if name in ACCURACY else weights.figures(name)["accuracy"]["test"]
        spread = (written * (1 - written) / len(rows)) ** 0.5
        allowed = 1e-9 if len(BACKBONES[name].test()) == len(rows) else 3.5 * spread
        assert accuracy(backbone, rows) == pytest.approx(written, abs=allowed)

    @pytest.mark.slow
    @pytest.mark.parametrize("name", BACKBONES)
    def test_unseen_rows_are_harder(self, name: str) -> None:
        backbone = loaded(name)
        seen, unseen = (
            accuracy(backbone, First(rows(), 300)) for rows in (BACKBONES[name].seen, BACKBONES[name].unseen)
        )
        assert unseen < seen + (0.02 if name.startswith("minilm") else 0)  # tuned lightly: about as hard


class TestWeights:
    def test_are_small_and_listed(self) -> None:
        sizes = {path.stem: path.stat().st_size for path in weights.FOLDER.glob("*.safetensors")}
        assert sorted(sizes) == sorted(FITTED)
        assert max(sizes.values()) < 12e6
        assert sum(sizes.values()) < 40e6
        all_figures = json.loads((weights.FOLDER / "figures.json").read_text())
        assert all_figures == {name: weights.figures(name) for name in sorted(FITTED)}
        for figures in all_figures.values():
            assert {"accuracy", "seed", "epochs", "seconds"} <= set(figures)
            assert {"test", "unseen"} <= set(figures["accuracy"])

    @each("name", FITTED)
    def test_are_of_half_precision(self, name: str) -> None:
        assert {value.dtype for value in weights.read(name).values()} <= {torch.float16, torch.int64}

    def test_existing_weights_are_not_fitted_again(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for name in FITTED:
            again = replace(BACKBONES[name], train=lambda: pytest.fail("fitted again"))
            monkeypatch.setitem(BACKBONES, name, again)
        monkeypatch.setattr("sys.argv", ["backbones"])
        main()
        assert capsys.readouterr().err.splitlines() == [f"{name}: there already" for name in FITTED]
        monkeypatch.setattr("sys.argv", ["backbones", "lite0-cifar100"])
        with pytest.raises(SystemExit):
            main()


class TestLite0:
    @each("name", ["lite0-cifar100lt", "lite0-svhn"])
    def test_the_first_blocks_are_as_pretrained(self, name: str) -> None:
        kept, before = weights.read(name), weights.to_half_precision(lite0.read_imagenet_weights(10))
        frozen = ("_conv_stem.", "_bn0.", *(f"_blocks.{block}." for block in range(lite0.FROZEN_BLOCKS)))
        for key, value in before.items():
            if key.endswith((".weight", "running_mean", "running_var")) and key != "_fc.weight":
                assert torch.equal(kept[key], value) == key.startswith(frozen), key

    def test_stages_make_the_network(self) -> None:
        state = weights.read("lite0-svhn")
        backbone, network = lite0.backbone_of(state, name="any"), lite0.network_of(state)
        images: Tensor = torch.randn(3, 3, 64, 64, generator=torch.Generator().manual_seed(0))
        with torch.no_grad():
            torch.testing.assert_close(backbone(images), network(images))
