"""Specs of networks: how they are read, and which of them name a library's files."""

from typing import Any

import pytest
import torch
from torch import nn

import offramp
from offramp.backbone import make_backbone
from offramp.backbone.spec import is_library_name, parse_spec
from offramp.errors import InputError
from tests.cases import each


class TestParsing:
    @each(
        ("spec", "expected"),
        [
            ("timm", ("timm", {})),
            ("a.b:c", ("a.b:c", {})),
            ("a:b,x=1", ("a:b", {"x": 1})),
            ("a:b, x=1 , y=2.5", ("a:b", {"x": 1, "y": 2.5})),
            ("a:b,x=[1,2],y=z", ("a:b", {"x": [1, 2], "y": "z"})),
            ("a:b,x=true,y=False,z=null,w=None", ("a:b", {"x": True, "y": False, "z": None, "w": None})),
            ("a:b,x=one,two", ("a:b", {"x": "one,two"})),
            ("a:b,x=", ("a:b", {"x": ""})),
            ("a:b,x=y=z", ("a:b", {"x": "y=z"})),
            ('a:b,x="1"', ("a:b", {"x": "1"})),
            ("hf:./my model,longest=64", ("hf:./my model", {"longest": 64})),
        ],
    )
    def test_names_and_values(self, spec: str, expected: tuple[str, dict[str, Any]]) -> None:
        name, options = parse_spec(spec)
        assert (name.strip(), {key: _stripped(value) for key, value in options.items()}) == expected

    @each("spec", ["", " ", ",", "a:b,", "a:b,depth", "a:b,=3", "a:b,3=x", ",x=1", "a:b,x,y=2"])
    def test_refused(self, spec: str) -> None:
        with pytest.raises(InputError, match=r"expected package:function.* KEY=VALUE after commas, got '"):
            parse_spec(spec)


def _stripped(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


def test_a_module_called_otherwise_is_no_library() -> None:
    assert [is_library_name(name) for name in ("hf:x", "timm:x", "torchvision:x")] == [True] * 3
    assert [is_library_name(name) for name in ("hfx:x", "timm", "hf", "models:make", "")] == [False] * 5


@each("spec", ["hf:", "timm:", "hf:x,depth=3", "torchvision:resnet18,weight=x"])
def test_unknown_options_are_told_with_the_known_ones(spec: str) -> None:
    name, options = parse_spec(spec)
    with pytest.raises(InputError, match=r"any of the options .*=\.\.\."):
        make_backbone(name, options)


class TestSplitting:
    @each("spec", ["./my-model", "bert-base-uncased", "models:make"])
    def test_other_names_are_refused_with_the_prefixes(self, spec: str) -> None:
        with pytest.raises(InputError, match="hf:FOLDER, timm:NAME"):
            offramp.split(spec)

    def test_a_name_brings_its_own_example(self) -> None:
        with pytest.raises(InputError, match="leave them out"):
            offramp.split("hf:x", torch.zeros(2, 3))

    def test_a_network_needs_an_example(self) -> None:
        with pytest.raises(InputError, match=r"offramp.split\(model, example\)"):
            offramp.split(nn.Linear(2, 2))
