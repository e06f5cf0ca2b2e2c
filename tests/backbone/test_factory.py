"""Bounds on networks that a file may ask for."""

import threading
from typing import Any

import pytest
import torch
from torch import nn

from offramp.backbone import Factory
from offramp.backbone._factory import MOST_MODULES, MOST_PARAMETERS, check_known, make_within_bounds, within_bounds
from offramp.errors import InputError, UnknownNameError
from tests.cases import each


class Holding(nn.Module):
    def __init__(self, *tensors: torch.Tensor) -> None:
        super().__init__()
        for index, tensor in enumerate(tensors):
            self.register_buffer(f"held{index}", tensor)


class Endless(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        while True:
            self.layers.append(nn.ReLU())


class TestBounds:
    def test_what_is_small_is_made_for_real(self) -> None:
        made = make_within_bounds(lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))
        assert {tensor.device.type for tensor in made.state_dict().values()} == {"cpu"}
        assert made(torch.ones(2, 3)).shape == (2, 4)

    @pytest.mark.timeout(60)
    @each(
        ("make", "told"),
        [
            (lambda: nn.Linear(10**8, 10**8), "got 10,000,000,000,000,000 and 0"),
            (lambda: nn.Sequential(*(nn.Linear(10**4, 10**4, bias=False) for _ in range(11))), "got 1,1"),
            (lambda: nn.Embedding(10**9, 2), "got 2,000,000,000 and 0"),
            (lambda: Holding(torch.ones(10**6, 10**6)), "got 1,000,000,000,000 and 0"),
            (Endless, f"and {MOST_MODULES + 1:,} or more"),
        ],
    )
    def test_what_is_huge_is_not(self, make: Any, told: str) -> None:
        with pytest.raises(
            InputError, match=f"at most {MOST_PARAMETERS:,} parameters .*{told}.*give it with backbone="
        ):
            make_within_bounds(make)

    def test_what_is_shared_counts_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("offramp.backbone._factory.MOST_PARAMETERS", 150)

        with pytest.raises(InputError, match="got 200 and"):
            make_within_bounds(lambda: nn.Sequential(*(nn.Linear(10, 10, bias=False) for _ in range(2))))

        def looped() -> nn.Module:
            layer = nn.Linear(10, 10, bias=False)
            return nn.Sequential(layer, nn.ReLU(), layer)

        assert len(list(make_within_bounds(looped).parameters())) == 1

    def test_nothing_is_counted_afterwards_or_elsewhere(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("offramp.backbone._factory.MOST_PARAMETERS", 10)
        made: list[nn.Module] = []
        with within_bounds():
            other = threading.Thread(target=lambda: made.append(nn.Linear(10, 10)))
            other.start()
            other.join()
        with pytest.raises(InputError), within_bounds():
            nn.Linear(10, 10)
        made.append(nn.Linear(10, 10))
        assert len(made) == 2


class TestNames:
    KNOWN = tuple(f"resnet{size}" for size in range(1000))

    def test_near_ones_are_told_and_not_all(self) -> None:
        check_known("model", "resnet18", self.KNOWN)
        with pytest.raises(UnknownNameError, match=r"unknown model 'resnets18'; did you mean 'resnet18' or .* 1,000"):
            check_known("model", "resnets18", self.KNOWN)

    @each("name", ["", "x" * 10_000, None, 3, ["resnet18"], {"a": 1}])
    def test_whatever_comes(self, name: Any) -> None:
        with pytest.raises(UnknownNameError, match="unknown model") as caught:
            check_known("model", name, self.KNOWN)
        assert len(str(caught.value)) < 200


def test_how_many_networks_there_are() -> None:
    one = Factory("a")
    assert one.size == 1
    assert Factory("cascade", members=(one, Factory("cascade", members=(one, one)))).size == 3
