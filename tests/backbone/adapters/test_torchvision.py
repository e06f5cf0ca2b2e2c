"""Small models of torchvision with random weights, and their preparation against torchvision's own transforms."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import models

import offramp
from offramp.backbone import Factory
from offramp.backbone._making import build
from offramp.backbone.adapters.torchvision import (
    torchvision_backbone,
    torchvision_preprocessing,
    untrained_torchvision_backbone,
)
from offramp.errors import InputError, MissingExtraError, SplitRefusedError, UnknownNameError
from offramp.preprocessing._preprocessing import AS_IS
from offramp.testing import check_backbone
from tests.backbone.adapters.factory_examples import embedded
from tests.cases import each, refuses


def model(name: str = "resnet18") -> Any:
    torch.manual_seed(0)
    return models.get_model(name, weights=None, num_classes=5)


@each(
    ("name", "blocks"), [("resnet18", 8), ("mobilenet_v3_small", 11), ("squeezenet1_1", 8), ("shufflenet_v2_x0_5", 16)]
)
def test_architectures(name: str, blocks: int) -> None:
    network = model(name)
    backbone = torchvision_backbone(network, side=64)
    assert backbone.num_exits >= blocks
    assert backbone.num_classes == 5
    assert backbone.captured_by == "torch.fx"
    assert backbone.preprocessing == AS_IS
    images = torch.randn(3, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    check_backbone(backbone, images, images[:2], network=network)


def test_weights_say_how_images_are_prepared() -> None:
    weights = models.MobileNet_V3_Small_Weights.DEFAULT  # named, not downloaded
    backbone = torchvision_backbone(model("mobilenet_v3_small"), weights=weights)
    assert backbone.preprocessing == torchvision_preprocessing(weights)
    photos = np.random.default_rng(0).integers(0, 256, (2, 240, 300, 3), dtype=np.uint8)
    assert backbone(backbone.prepare(backbone.preprocessing(photos))).shape == (2, 5)


class TestByName:
    @each("name", ["resnet18", "mobilenet_v3_small", "regnet_y_400mf"])
    def test_made_again_and_given_its_weights(self, name: str) -> None:
        backbone = torchvision_backbone(model(name), side=64, name=name)
        made = embedded(backbone)
        assert made.fingerprint() == backbone.fingerprint()
        assert made.factory == backbone.factory
        images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
        assert torch.equal(made(images), backbone(images))

    def test_with_the_preparation_of_its_weights(self) -> None:
        weights = models.MobileNet_V3_Small_Weights.DEFAULT
        backbone = torchvision_backbone(model("mobilenet_v3_small").half(), weights=weights, name="mobilenet_v3_small")
        made = embedded(backbone)
        assert made.fingerprint() == backbone.fingerprint()
        assert made.preprocessing == torchvision_preprocessing(weights)

    def test_only_who_says_the_name_has_a_factory(self) -> None:
        assert torchvision_backbone(model(), side=64).factory is None

    @each(
        "name",
        ["resnet", "quantized_resnet18", "fcn_resnet50", "retinanet_resnet50_fpn", "os:system", "", ["resnet18"], 3],
    )
    def test_names_of_other_things(self, name: Any) -> None:
        with pytest.raises(UnknownNameError, match="unknown torchvision model"):
            untrained_torchvision_backbone(name, num_classes=5)
        with pytest.raises(InputError, match="'torchvision' cannot make a backbone"):
            build(Factory("torchvision", {"model": name, "num_classes": 5, "side": 64}))

    @each("side", [0, 15, 1025, 10**9, "64", 64.0, True, None])
    def test_sides(self, side: Any) -> None:
        with refuses(InputError, expected="16 to 1024 pixels"):
            untrained_torchvision_backbone("resnet18", num_classes=5, side=side)

    @each("classes", [1, 10**9, "5", None])
    def test_classes(self, classes: Any) -> None:
        with pytest.raises(InputError, match="expected 2 to 1,000,000 classes"):
            untrained_torchvision_backbone("resnet18", num_classes=classes)

    def test_images_too_small_for_it(self) -> None:
        with pytest.raises(SplitRefusedError, match="AlexNet fails on 3 samples"):
            build(Factory("torchvision", {"model": "alexnet", "num_classes": 5, "side": 16}))

    def test_the_largest_head_takes_no_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("offramp.backbone._factory.MOST_PARAMETERS", 10**8)
        with pytest.raises(InputError, match=r"at most 100,000,000 parameters .* got 5.*give it with backbone="):
            untrained_torchvision_backbone("resnet18", num_classes=10**6, side=64)

    def test_without_the_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "torchvision", None)
        with pytest.raises(MissingExtraError, match="pip install torchvision"):
            untrained_torchvision_backbone("resnet18", num_classes=5)


class TestPreprocessing:
    @each(
        "weights",
        [
            models.ResNet18_Weights.DEFAULT,
            models.ResNet50_Weights.IMAGENET1K_V2,
            models.EfficientNet_B0_Weights.DEFAULT,
            models.EfficientNet_B1_Weights.IMAGENET1K_V2,
            models.Swin_T_Weights.DEFAULT,
            models.ViT_B_16_Weights.IMAGENET1K_SWAG_E2E_V1,
        ],
    )
    @each(("height", "width"), [(400, 517), (517, 400), (301, 301), (120, 131)])
    def test_against_torchvision(self, weights: Any, height: int, width: int) -> None:
        noise = np.random.default_rng(0).integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
        photo = Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)
        expected = weights.transforms()(photo)
        found = torchvision_preprocessing(weights)(np.asarray(photo)[None])
        assert found.shape == (1, *expected.shape)
        # Pillow rounds to bytes after each direction: a few of 255 levels, in units of the standard deviation.
        distance = (found[0] - expected).abs() * torch.tensor(weights.transforms().std)[:, None, None]
        assert float(distance.max()) < 4 / 255
        assert float(distance.mean()) < 0.5 / 255

    def test_is_data(self) -> None:
        steps = torchvision_preprocessing(models.ResNet50_Weights.IMAGENET1K_V2).describe()
        assert json.loads(json.dumps(steps)) == steps
        assert steps[1:3] == [["resize", {"size": 232, "mode": "bilinear"}], ["center_crop", {"size": 224}]]

    @each("weights", ["DEFAULT", models.segmentation.FCN_ResNet50_Weights.DEFAULT, models.ResNet18_Weights])
    def test_refuses_what_is_no_classifier(self, weights: Any) -> None:
        with pytest.raises(InputError, match=r"expected an entry of torchvision's weights of a classifier"):
            torchvision_preprocessing(weights)
        with pytest.raises(InputError, match=r"expected an entry of torchvision's weights of a classifier"):
            torchvision_backbone(model(), weights=weights)


class TestPretrained:
    @each("name", ["mobilenet_v3_small", "squeezenet1_1"])
    def test_weights_of_a_file(self, name: str, tmp_path: Path) -> None:
        network = model(name).eval()
        torch.save(network.state_dict(), tmp_path / "w.pth")
        backbone = offramp.split(f"torchvision:{name},weights={tmp_path / 'w.pth'}")
        images = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(1))
        with torch.no_grad():
            torch.testing.assert_close(backbone(images), network(images))
        assert (backbone.num_classes, backbone.classes) == (5, ())
        assert backbone.preprocessing == torchvision_preprocessing(models.get_model_weights(name).DEFAULT)
        assert embedded(backbone).fingerprint() == backbone.fingerprint()

    def test_the_librarys_own_file_brings_its_classes(self, tmp_path: Path) -> None:
        weights = models.MobileNet_V3_Small_Weights.DEFAULT
        file = tmp_path / weights.url.rpartition("/")[2]
        torch.save(models.mobilenet_v3_small().state_dict(), file)
        backbone = offramp.split(f"torchvision:mobilenet_v3_small,weights={file}")
        assert backbone.classes == tuple(weights.meta["categories"])
        other = tmp_path / "other.pth"
        file.rename(other)
        assert offramp.split(f"torchvision:mobilenet_v3_small,weights={other}").classes == ()

    @each("name", ["resnet18", "resnet1"])
    def test_refused(self, name: str, tmp_path: Path) -> None:
        torch.save(model("squeezenet1_1").state_dict(), tmp_path / "w.pth")
        with pytest.raises((InputError, UnknownNameError), match=r"name the architecture|did you mean"):
            offramp.split(f"torchvision:{name},weights={tmp_path / 'w.pth'}")
