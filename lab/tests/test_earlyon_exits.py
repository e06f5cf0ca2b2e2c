"""earlyon's exits on our networks: cached means replace maps, and every way to run a point gives the same answers."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import offramp_bench.torchvision_ops  # noqa: F401 (before earlyon imports torchvision)

pytest.importorskip("earlyon", reason="the rival is not installed: pip install --no-deps earlyon==0.3.0")
pytest.importorskip("onnxruntime")

from earlyon.models import custom_ee

from offramp_bench.cifar import PREPROCESSING, cifar10
from offramp_bench.earlyon_exits import Point, pareto_front, speeds_in_turns, speedup
from offramp_bench.earlyon_heads import SETS, Exits, InSequence, Loader, cached_model, outcomes, wrap_network
from tests.cases import each

HIDDEN = 5
TEMPERATURES = {"e0": 1.2, "e1": 0.8, "final": 1.0}


class Mean(nn.Module):
    def forward(self, maps: Tensor) -> Tensor:
        return maps.mean((2, 3))


def sequence(channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, channels, 3), nn.Conv2d(channels, channels, 3), nn.Sequential(Mean(), nn.Linear(channels, 10))
    )


def attach_exits(network: nn.Module, layers: list[str]) -> Any:
    wrapper = custom_ee(network, layers, 10, input_shape=(1, 3, 8, 8), hidden_dim=HIDDEN).eval()
    for head in wrapper.exit_heads.values():
        head.classifier[-1].weight.data *= 3  # so that confidence varies between images
    return wrapper


def point_of(wrapper: Any) -> Point:
    return Point("by hand", wrapper, accuracy=0, accuracy_of_batches=0, shares={}, compute=0)


@pytest.fixture
def images() -> Tensor:
    return 2 * torch.randn(40, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def wrapper() -> Any:
    torch.manual_seed(3)
    return attach_exits(sequence(4), ["0", "1"])


def sureness(logits: Tensor, policy: str, temperature: float) -> Tensor:
    """Return the largest probability, or the negative entropy."""
    probabilities = (logits / temperature).softmax(1)
    return probabilities.amax(1) if policy == "confidence" else torch.special.entr(probabilities).sum(1).neg()


def test_cached_means_replace_maps(wrapper: Any, images: Tensor) -> None:
    with torch.no_grad():
        first = wrapper.backbone[0](images)
        second = wrapper.backbone[1](first)
        rows = torch.cat([first.mean((2, 3)), second.mean((2, 3)), wrapper.backbone[2](second)], dim=1)
        model = cached_model(wrapper, Exits((0, 1), HIDDEN, (0.2, 0.3, 0.5)))
        for logits, expected in zip(model(rows, mode="training"), wrapper(images, mode="training"), strict=True):
            torch.testing.assert_close(logits, expected)
    assert model.config.loss_weights == [0.2, 0.3, 0.5]
    assert list(model.flops_estimate.fractions.values()) == list(wrapper.flops_estimate.fractions.values())


@each("policy", ["confidence", "entropy"])
def test_every_way_to_run_a_point_follows_the_rule(policy: str, wrapper: Any, images: Tensor) -> None:
    with torch.no_grad():
        outputs = wrapper(images, mode="training")
    sure = [sureness(outputs[0], policy, 1.2), sureness(outputs[1], policy, 0.8)]
    # Half of the images leave at the first exit, half of the others at the second.
    limits = [sure[0].sort().values[19:21].mean(), sure[1][sure[0] <= sure[0].median()].sort().values[9:11].mean()]
    config = wrapper.config
    config.routing_policy, config.temperatures = policy, TEMPERATURES
    setattr(config, f"{policy}_thresholds", [abs(float(limit)) for limit in limits])
    early = [values >= limit for values, limit in zip(sure, limits, strict=True)]
    assert (int(early[0].sum()), int((early[1] & ~early[0]).sum())) == (20, 10)
    expected = torch.where(early[0][:, None], outputs[0], torch.where(early[1][:, None], outputs[1], outputs[2]))
    point = point_of(wrapper)
    for run in (point.run_singly, point.run_staged, point.run_graphs):
        torch.testing.assert_close(run(images), expected)


def test_a_batch_leaves_where_all_of_it_may(wrapper: Any, images: Tensor) -> None:
    with torch.no_grad():
        outputs = wrapper(images, mode="training")
    least = float(outputs[1].softmax(1).amax(1).min())
    wrapper.config.confidence_thresholds = [1.0, least - 1e-4]
    torch.testing.assert_close(point_of(wrapper).run(images), outputs[1])
    wrapper.config.confidence_thresholds = [1.0, least + 1e-4]
    torch.testing.assert_close(point_of(wrapper).run(images), outputs[2])


@each("enabled", [[True, True], [False, True], [True, False], [False, False]])
def test_graphs_of_networks_in_a_row(enabled: list[bool], images: Tensor) -> None:
    torch.manual_seed(3)
    wrapper = attach_exits(InSequence(nn.Sequential(*list(sequence(4))[:2]), sequence(6)), ["first.0", "second.1"])
    with torch.no_grad():
        outputs = wrapper(images, mode="training")[:-1]
    wrapper.config.confidence_thresholds = [float(logits.softmax(1).amax(1).mean()) for logits in outputs]
    wrapper.config.enabled_exits = enabled
    point = point_of(wrapper)
    torch.testing.assert_close(point.run_graphs(images), point.run_singly(images))
    both = wrapper.flops_estimate.fractions
    assert 0 < both["first.0"] < both["second.1"] < 1


def test_pareto_front() -> None:
    good = {"cheap": (0.5, 0.009), "better": (0.7, 0.0)}
    worse = {"as good": (0.6, 0.009), "dear": (0.9, 0.0), "loses too much": (0.1, 0.1)}
    assert pareto_front(good | worse) == ["better", "cheap"]


def test_each_row_comes_once_in_a_random_view() -> None:
    rows = torch.stack([torch.arange(300.0), -torch.arange(300.0)], dim=1)[:, :, None]
    loader = Loader(rows, torch.arange(300), torch.Generator().manual_seed(0))
    epochs = []
    for _ in range(2):
        batches = list(loader)
        values, labels = (torch.cat(part) for part in zip(*batches, strict=True))
        assert torch.equal(values[:, 0].abs(), labels.float())
        assert torch.equal(labels.sort().values, torch.arange(300))
        assert 100 < (values < 0).sum() < 200
        epochs.append(labels)
    assert not torch.equal(*epochs)
    assert torch.equal(next(iter(Loader(rows, torch.arange(300))))[0][:, 0], torch.arange(128.0))


def test_speeds() -> None:
    calls: list[int] = []

    def run(batch: Tensor) -> Tensor:
        calls.append(len(batch))
        return batch

    speeds = speeds_in_turns({"one": run}, torch.zeros(5, 1), batch_size=2, repeats=2)
    assert calls == 3 * [2, 2, 1]
    assert len(speeds["one"]) == 2
    assert speedup({"a": [2, 8, 9], "b": [1, 2, 3]}, "a", "b") == 3


@pytest.mark.data
@pytest.mark.slow
@each("name", ["thirds", "cascade, late"])
def test_cached_means_are_of_our_networks(name: str) -> None:
    exits = SETS[name]
    wrapper = wrap_network(exits)
    rows, _, _ = outcomes("test", exits.stages)
    images = PREPROCESSING(cifar10("test").read(0, 20).inputs)
    with torch.no_grad():
        expected = wrapper(images, mode="training")
        outputs = cached_model(wrapper, exits)(rows[:20, 0], mode="training")
    for logits, other in zip(outputs, expected, strict=True):
        torch.testing.assert_close(logits, other, atol=2e-2, rtol=1e-2)  # the store keeps 16 bits
