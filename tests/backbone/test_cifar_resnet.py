from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from offramp.backbone import CifarResNet
from offramp.backbone._cifar_resnet import load_cifar_resnet
from offramp.errors import InputError
from offramp.preprocessing._images import image_preprocessing
from tests.cases import each

FILES = {20: "resnet20-12fca82f.th", 56: "resnet56-4bfd9763.th"}
ACCURACY = {20: 91.73, 56: 93.39}


def reference(state: dict[str, Tensor], images: Tensor) -> list[Tensor]:
    """The network by the keys of its checkpoint: the map after every block, then the logits."""

    def convolved(x: Tensor, conv: str, norm: str, stride: int = 1) -> Tensor:
        y = F.conv2d(x, state[f"{conv}.weight"], stride=stride, padding=1)
        mean, var = state[f"{norm}.running_mean"], state[f"{norm}.running_var"]
        scale = state[f"{norm}.weight"] / (var + 1e-5).sqrt()
        return (y - mean.view(1, -1, 1, 1)) * scale.view(1, -1, 1, 1) + state[f"{norm}.bias"].view(1, -1, 1, 1)

    x = convolved(images, "module.conv1", "module.bn1").clamp_min(0)
    maps = []
    for layer in (1, 2, 3):
        block = 0
        while f"module.layer{layer}.{block}.conv1.weight" in state:
            at = f"module.layer{layer}.{block}"
            stride = 2 if layer > 1 and block == 0 else 1
            y = convolved(x, f"{at}.conv1", f"{at}.bn1", stride).clamp_min(0)
            y = convolved(y, f"{at}.conv2", f"{at}.bn2")
            if stride == 2:
                half = torch.zeros(len(x), x.shape[1] // 2, x.shape[2] // 2, x.shape[3] // 2)
                x = torch.cat([half, x[:, :, ::2, ::2], half], dim=1)
            x = (x + y).clamp_min(0)
            maps.append(x)
            block += 1
    mean = x.flatten(2).sum(-1) / x[0, 0].numel()
    return [*maps, mean @ state["module.linear.weight"].T + state["module.linear.bias"]]


def random_checkpoint(layers: int, num_classes: int) -> dict[str, Tensor]:
    """Weights under the names the public checkpoints use."""
    generator = torch.Generator().manual_seed(layers)
    state: dict[str, Tensor] = {}

    def conv_and_norm(conv: str, norm: str, channels_in: int, channels_out: int) -> None:
        weight = torch.randn(channels_out, channels_in, 3, 3, generator=generator)
        state[f"{conv}.weight"] = weight / (9 * channels_in) ** 0.5
        state[f"{norm}.weight"] = 0.5 + torch.rand(channels_out, generator=generator)
        state[f"{norm}.bias"] = 0.2 * torch.randn(channels_out, generator=generator)
        state[f"{norm}.running_mean"] = 0.2 * torch.randn(channels_out, generator=generator)
        state[f"{norm}.running_var"] = 0.5 + torch.rand(channels_out, generator=generator)
        state[f"{norm}.num_batches_tracked"] = torch.tensor(7)

    conv_and_norm("module.conv1", "module.bn1", 3, 16)
    channels = 16
    for layer, width in enumerate((16, 32, 64), start=1):
        for block in range((layers - 2) // 6):
            at = f"module.layer{layer}.{block}"
            conv_and_norm(f"{at}.conv1", f"{at}.bn1", channels, width)
            conv_and_norm(f"{at}.conv2", f"{at}.bn2", width, width)
            channels = width
    state["module.linear.weight"] = torch.randn(num_classes, 64, generator=generator)
    state["module.linear.bias"] = torch.randn(num_classes, generator=generator)
    return state


class TestStructure:
    @each("layers", [8, 20, 32, 56])
    def test_stages(self, layers: int) -> None:
        backbone = CifarResNet(layers, num_classes=7)
        blocks = (layers - 2) // 6
        assert backbone.num_exits == 3 * blocks
        assert backbone.own_heads == (3 * blocks - 1,)
        hidden, shapes = torch.zeros(1, 3, 32, 32), []
        for index, stage in enumerate(backbone.stages):
            hidden = stage(hidden)
            assert backbone.representation(hidden, index) is hidden
            shapes.append(tuple(hidden.shape[1:]))
        assert shapes == [(16, 32, 32)] * blocks + [(32, 16, 16)] * blocks + [(64, 8, 8)] * blocks

    def test_parameters_of_the_original(self) -> None:
        # He et al. (2016): .27 M and .85 M; the exact numbers by hand, from 3 x 3 kernels, norms and the classifier.
        for layers, published in ((20, 0.27e6), (56, 0.85e6)):
            n = (layers - 2) // 6
            kernels = 3 * 16 + 2 * n * 16 * 16 + 16 * 32 + (2 * n - 1) * 32 * 32 + 32 * 64 + (2 * n - 1) * 64 * 64
            norms = 2 * (16 + 2 * n * (16 + 32 + 64))
            found = sum(parameter.numel() for parameter in CifarResNet(layers).parameters())
            assert found == 9 * kernels + norms + 64 * 10 + 10
            assert found == pytest.approx(published, rel=0.02)

    @each("layers", [-4, 0, 2, 18, 19, 21, 22, 55])
    def test_refuses_other_layers(self, layers: int) -> None:
        with pytest.raises(InputError, match=rf"6n \+ 2 layers .* got {layers}"):
            CifarResNet(layers)


class TestLoading:
    @each("layers", [8, 20])
    def test_any_checkpoint_of_that_naming(self, layers: int, tmp_path: Path) -> None:
        state = random_checkpoint(layers, num_classes=4)
        torch.save({"state_dict": state}, tmp_path / "weights.th")
        backbone = load_cifar_resnet(tmp_path / "weights.th", layers, num_classes=4)
        images = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
        *maps, logits = reference(state, images)
        hidden = images
        for stage, expected in zip(backbone.stages, maps, strict=True):
            hidden = stage(hidden)
            torch.testing.assert_close(hidden, expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(backbone(images), logits, rtol=1e-4, atol=1e-4)
        assert not backbone.training
        assert not any(parameter.requires_grad for parameter in backbone.parameters())

    def test_names_without_their_prefix(self, tmp_path: Path) -> None:
        state = random_checkpoint(8, num_classes=4)
        full = {key.removeprefix("module."): value for key, value in state.items()}
        torch.save({"state_dict": state}, tmp_path / "a.th")
        torch.save({"state_dict": full}, tmp_path / "b.th")
        first, second = (load_cifar_resnet(tmp_path / name, 8, num_classes=4) for name in ("a.th", "b.th"))
        assert first.fingerprint() == second.fingerprint()

    @each("missing", ["module.layer2.0.bn2.running_var", "module.linear.bias", "module.conv1.weight"])
    def test_refuses_a_checkpoint_with_holes(self, missing: str, tmp_path: Path) -> None:
        state = random_checkpoint(8, num_classes=4)
        del state[missing]
        torch.save({"state_dict": state}, tmp_path / "weights.th")
        with pytest.raises(RuntimeError, match="Missing key"):
            load_cifar_resnet(tmp_path / "weights.th", 8, num_classes=4)

    @each(("saved", "asked"), [(20, 8), (8, 20), (20, 32)])
    def test_refuses_a_checkpoint_of_other_depth(self, saved: int, asked: int, tmp_path: Path) -> None:
        torch.save({"state_dict": random_checkpoint(saved, num_classes=4)}, tmp_path / "weights.th")
        with pytest.raises(RuntimeError):
            load_cifar_resnet(tmp_path / "weights.th", asked, num_classes=4)


@pytest.fixture(scope="module")
def first_images(data_dir: Path) -> tuple[Tensor, Tensor]:
    """The first 1,000 test images of CIFAR-10, prepared, and their labels."""
    with Image.open(data_dir / "cifar10" / "test-00.webp") as sheet:
        tiles = np.asarray(sheet.convert("RGB")).reshape(50, 32, 50, 32, 3)
    images = tiles.transpose(0, 2, 1, 3, 4).reshape(2500, 32, 32, 3)[:1000]
    with np.load(data_dir / "cifar10" / "test-labels.npz", allow_pickle=False) as saved:
        labels = torch.from_numpy(saved["y"][:1000].astype(np.int64))
    prepare = image_preprocessing(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    return prepare(images), labels


@pytest.mark.data
@pytest.mark.parametrize("layers", [20, 56])
class TestRealWeights:
    def test_accuracy(self, layers: int, data_dir: Path, first_images: tuple[Tensor, Tensor]) -> None:
        backbone = load_cifar_resnet(data_dir / "resnet_cifar10" / FILES[layers], layers)
        images, labels = first_images
        with torch.inference_mode():
            answers = torch.cat([backbone(chunk).argmax(1) for chunk in torch.split(images, 250)])
        accuracy = 100 * (answers == labels).double().mean().item()
        assert accuracy == pytest.approx(ACCURACY[layers], abs=2.5)

    def test_logits(self, layers: int, data_dir: Path, first_images: tuple[Tensor, Tensor]) -> None:
        path = data_dir / "resnet_cifar10" / FILES[layers]
        state = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
        images = first_images[0][:32]
        with torch.inference_mode():
            found, expected = load_cifar_resnet(path, layers)(images), reference(state, images)[-1]
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)
