"""The benchmark of architectures on a few small networks, and on networks that fail."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from offramp.backbone._splitting import split
from offramp_bench.architectures import Network, networks, try_network
from tests.cases import each

SMALL = ["cifar-resnet-20", "skip and dictionary", "GIN", "distilbert"]


@pytest.fixture(scope="module")
def by_name() -> dict[str, Network]:
    return {network.name: network for network in networks()}


@each("name", SMALL)
def test_small_networks_pass(name: str, by_name: dict[str, Network]) -> None:
    outcome = try_network(by_name[name])
    assert outcome.passed, outcome.reason
    assert outcome.reason == ""
    assert outcome.stages >= outcome.blocks
    assert 0 < outcome.largest_share <= 0.5
    assert outcome.captured_by == {"skip and dictionary": "torch.fx", "distilbert": "torch.export"}.get(name, "")


def test_too_few_stages_do_not_pass(by_name: dict[str, Network]) -> None:
    outcome = try_network(replace(by_name["skip and dictionary"], blocks=9))
    assert not outcome.passed
    assert outcome.reason == "4 stages for 9 blocks"


def test_refusals_and_broken_contracts_are_reported() -> None:
    def refused() -> Any:
        return split(nn.Linear(4, 1), torch.randn(2, 4)), None, None, None

    def broken() -> Any:
        network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
        backbone = split(network, torch.randn(2, 4), at=["0"])
        return backbone, lambda inputs: network(inputs) + 1, torch.randn(2, 4), torch.randn(2, 4)

    make = partial(Network, "by hand", "bad", 1)
    outcome = try_network(make(refused))
    assert not outcome.passed
    assert "single output" in outcome.reason
    assert outcome.stages == 0
    outcome = try_network(make(broken))
    assert not outcome.passed
    assert outcome.reason.startswith("stages differ from the network by")
    assert outcome.stages == 1
