"""Small models of timm with random weights, and their preparation against timm's own transforms."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from timm import data
from torch import nn

import offramp
from offramp.artifact._network import embed
from offramp.backbone import Factory
from offramp.backbone._making import build
from offramp.backbone._splitting import SplitBackbone
from offramp.backbone.adapters.timm import timm_backbone, timm_preprocessing, untrained_timm_backbone
from offramp.errors import InputError, MissingExtraError, SplitRefusedError, UnknownNameError
from offramp.pooling import Tokens
from offramp.testing import check_backbone
from tests.backbone.adapters.factory_examples import embedded
from tests.cases import each, refuses


def model(name: str = "test_resnet", **options: Any) -> Any:
    torch.manual_seed(0)
    return timm.create_model(name, pretrained=False, **{"num_classes": 5, **options})


def photo(height: int, width: int) -> npt.NDArray[np.uint8]:
    """Something smooth, as photographs are."""
    noise = np.random.default_rng(0).integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC))


@each(("name", "blocks"), [("test_resnet", 4), ("test_vit", 6), ("test_efficientnet", 5)])
def test_architectures(name: str, blocks: int) -> None:
    network = model(name)
    backbone = timm_backbone(network)
    assert backbone.num_exits >= blocks
    assert backbone.num_classes == 5
    assert backbone.name == name
    images = torch.randn(3, 3, 160, 160, generator=torch.Generator().manual_seed(1))
    check_backbone(backbone, images, images[:2], network=network, exact=backbone.captured_by == "torch.fx")
    prepared = backbone.prepare(backbone.preprocessing(photo(200, 300)[None]))
    assert backbone(prepared).shape == (1, 5)


def test_a_class_token_comes_before_the_patches() -> None:
    backbone: SplitBackbone = timm_backbone(model("test_vit"))
    hidden = torch.randn(2, 3, 160, 160)
    for stage in list(backbone.stages)[:3]:
        hidden = stage(hidden)
    shown = backbone.representation(hidden, 2)
    assert isinstance(shown, Tokens)
    assert shown.values.shape[1] == 101
    assert shown.prefix == 1


class TestByName:
    @each("name", ["test_resnet", "test_vit", "test_efficientnet"])
    def test_made_again_and_given_its_weights(self, name: str) -> None:
        backbone = timm_backbone(model(name))
        made = embedded(backbone)
        assert made.fingerprint() == backbone.fingerprint()
        assert made.preprocessing == backbone.preprocessing
        assert made.factory == backbone.factory
        images = torch.randn(2, 3, 160, 160, generator=torch.Generator().manual_seed(1))
        assert torch.equal(made(images), backbone(images))

    def test_in_half_precision(self) -> None:
        backbone = timm_backbone(model().bfloat16())
        made = embedded(backbone)
        assert made.fingerprint() == backbone.fingerprint()
        images = torch.randn(2, 3, 160, 160, generator=torch.Generator().manual_seed(1)).bfloat16()
        assert torch.equal(made(images), backbone(images))

    @each(
        "name",
        [
            "hf-hub:timm/resnet18.a1_in1k",
            "hf_hub:timm/resnet18.a1_in1k",
            "local-dir:/tmp",
            "timm/resnet18.a1_in1k",
            "test_resnet.r160_in1k",
            "test_*",
            "../test_resnet",
            "",
            ["test_resnet"],
            None,
        ],
    )
    def test_names_that_may_be_fetched_are_refused(self, name: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        def fetched(*_: object, **__: object) -> None:
            raise AssertionError("made, or fetched, what nobody may")

        monkeypatch.setattr(timm, "create_model", fetched)
        with pytest.raises(UnknownNameError, match="unknown timm model") as caught:
            untrained_timm_backbone(name, num_classes=5)
        assert len(str(caught.value)) < 300
        with pytest.raises(InputError, match="'timm' cannot make a backbone"):
            build(Factory("timm", {"model": name, "num_classes": 5}))

    def test_near_names_are_suggested(self) -> None:
        with pytest.raises(UnknownNameError, match="did you mean 'test_resnet'"):
            untrained_timm_backbone("test_resnets", num_classes=5)

    @each("classes", [0, 1, 10**9, "5", 5.0, True, None])
    def test_classes(self, classes: Any) -> None:
        with pytest.raises(InputError, match="expected 2 to 1,000,000 classes"):
            untrained_timm_backbone("test_resnet", num_classes=classes)

    @pytest.mark.timeout(60)
    def test_too_large_ones_take_no_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        created, devices = timm.create_model, []

        def watched(*arguments: Any, **options: Any) -> Any:
            devices.append(torch.empty(0).device.type)
            return created(*arguments, **options)

        monkeypatch.setattr(timm, "create_model", watched)
        with pytest.raises(InputError, match="at most 1,000,000,000 parameters"):
            untrained_timm_backbone("eva02_enormous_patch14_clip_224", num_classes=5)
        assert devices == ["meta"]

    def test_without_the_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "timm", None)
        with pytest.raises(MissingExtraError, match=r"pip install 'offramp\[timm\]'"):
            untrained_timm_backbone("test_resnet", num_classes=5)

    def test_other_embedded_weights_are_refused(self) -> None:
        backbone = timm_backbone(model())
        weights = dict(backbone.state_dict())
        name = next(iter(weights))
        for change in ({name: weights[name][:1]}, {name: weights[name].long()}, {"more": torch.zeros(1)}):
            with pytest.raises(InputError, match=r"tensor|weights do not fit the network 'test_resnet'"):
                embed(timm_backbone(model()), {**weights, **change})


class TestPreprocessing:
    @each(
        "options",
        [
            {},
            {"interpolation": "bilinear", "crop_pct": 0.875, "mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4)},
            {"input_size": (3, 224, 224), "crop_pct": 0.9},  # 248.9 pixels, which timm takes for 248
            {"crop_pct": None},
            {"crop_pct": 1.0},
            {"crop_mode": "squash"},
            {"crop_mode": "squash", "crop_pct": 1.0, "interpolation": "bilinear"},
        ],
    )
    @each(("height", "width"), [(300, 411), (411, 300), (233, 233), (120, 131)])
    def test_against_timm(self, options: dict[str, Any], height: int, width: int) -> None:
        network = model("test_efficientnet", pretrained_cfg_overlay=options)
        library: Any = data
        transform = library.create_transform(**library.resolve_data_config(network.pretrained_cfg))
        expected = transform(Image.fromarray(photo(height, width)))
        found = timm_preprocessing(network)(photo(height, width)[None])
        assert found.shape == (1, *expected.shape)
        # Pillow rounds to bytes after each direction: a few of 255 levels, in units of the standard deviation.
        distance = (found[0] - expected).abs() * torch.tensor(network.pretrained_cfg["std"])[:, None, None]
        assert float(distance.max()) < 4 / 255
        assert float(distance.mean()) < 0.5 / 255

    def test_is_data(self) -> None:
        steps = timm_preprocessing(model()).describe()
        assert json.loads(json.dumps(steps)) == steps
        assert [name for name, _ in steps] == ["channels_first", "resize", "center_crop", "normalize"]
        assert steps[1][1] == {"size": 168, "mode": "bilinear"}  # 160 / 0.95

    @each("options", [{"crop_mode": "border"}, {"input_size": (3, 160, 128)}])
    def test_refuses_what_it_cannot_express(self, options: dict[str, Any]) -> None:
        with pytest.raises(InputError, match="expected square images, cropped from the center or squashed"):
            timm_preprocessing(model(pretrained_cfg_overlay=options))


class TestRefusals:
    def test_other_networks(self) -> None:
        for function in (timm_backbone, timm_preprocessing):
            with refuses(InputError, expected="a timm model", got="Linear"):
                function(nn.Linear(3, 2))

    def test_no_classifier(self) -> None:
        with pytest.raises(SplitRefusedError, match="expected scores N x K"):
            timm_backbone(model(num_classes=0, global_pool=""))


class TestPretrained:
    def test_weights_of_a_file(self, tmp_path: Path) -> None:
        network = timm.create_model("test_vit", num_classes=7).eval()
        for name in ("w.pth", "w.safetensors"):
            if name.endswith("pth"):
                torch.save(network.state_dict(), tmp_path / name)
            else:
                save_file(network.state_dict(), tmp_path / name)
            backbone = offramp.split(f"timm:test_vit,weights={tmp_path / name}")
            images = torch.randn(2, 3, 160, 160)
            with torch.no_grad():
                torch.testing.assert_close(backbone(images), network(images))
            assert (backbone.num_classes, backbone.classes) == (7, ())
            assert embedded(backbone).fingerprint() == backbone.fingerprint()

    def test_weights_of_the_cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
        with pytest.raises(InputError, match="nothing is downloaded"):
            offramp.split("timm:test_vit")
        network: Any = timm.create_model("test_vit", pretrained=False).eval()
        repository = tmp_path / ("models--" + network.pretrained_cfg["hf_hub_id"].replace("/", "--"))
        (repository / "refs").mkdir(parents=True)
        (repository / "refs" / "main").write_text("c0ffee")
        (repository / "snapshots" / "c0ffee").mkdir(parents=True)
        save_file(network.state_dict(), repository / "snapshots" / "c0ffee" / "model.safetensors")
        backbone = offramp.split("timm:test_vit")
        images = torch.randn(2, 3, 160, 160)
        with torch.no_grad():
            torch.testing.assert_close(backbone(images), network(images))

    @each("spec", ["timm:test_vitt", "timm:test_vit,weights=gone.pth", "timm:test_vit,weights=other"])
    def test_refused(self, spec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "other")
        with pytest.raises((InputError, UnknownNameError), match=r"did you mean|nothing is downloaded|do not fit"):
            offramp.split(spec)
