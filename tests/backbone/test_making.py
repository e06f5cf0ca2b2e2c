"""Backbones by name: what makes them, what is refused, and whose code runs."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

import offramp
from offramp.backbone import CifarResNet, Factory
from offramp.backbone._backbone import Backbone
from offramp.backbone._cascading import cascade
from offramp.backbone._making import MOST_NETWORKS, build, is_library_name, parse_spec
from offramp.backbone._making import make_backbone as made_by_name
from offramp.errors import InputError, SplitRefusedError, UnknownNameError, UntrustedNameError
from offramp.preprocessing._images import image_preprocessing
from tests.cases import each

PREPARED = image_preprocessing(mean=(0.5,) * 3, std=(0.5,) * 3)
HERE = __name__
CALLS: list[Any] = []


def make_backbone(layers: int = 8) -> Backbone:
    return CifarResNet(layers)


def record(**options: Any) -> None:
    CALLS.append(options)


def fail(kind: str) -> Backbone:
    raise {"memory": MemoryError, "file": FileNotFoundError, "assert": AssertionError, "recursion": RecursionError}[
        kind
    ]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    CALLS.clear()
    monkeypatch.setitem(sys.modules, HERE, sys.modules[__name__])


@each(
    "backbone",
    [CifarResNet(14, num_classes=5), cascade(make_backbone(), make_backbone(14))],
)
def test_a_backbone_is_made_again_from_its_factory(backbone: Backbone) -> None:
    assert backbone.factory is not None
    again = build(backbone.factory)
    assert (type(again), again.name, again.num_classes) == (type(backbone), backbone.name, backbone.num_classes)
    assert again.factory == backbone.factory
    again.load_state_dict(backbone.state_dict())
    assert again.fingerprint() == backbone.fingerprint()


def test_a_cascade_keeps_its_name_and_what_its_members_prepare() -> None:
    members = [make_backbone(), make_backbone(14)]
    members[0].preprocessing = PREPARED
    backbone = cascade(*members, name="both")
    assert backbone.factory is not None
    again = build(backbone.factory)
    assert again.name == "both"
    assert str(again) == str(backbone)
    assert [member.preprocessing for member in again.members] == [PREPARED, members[1].preprocessing]  # type: ignore[union-attr]


def test_a_cascade_with_a_member_nobody_knows_has_no_factory() -> None:
    unknown = Backbone("own", [torch.nn.Flatten()], {0: torch.nn.Linear(3072, 10)}, 10)
    assert cascade(unknown, make_backbone()).factory is None


@each(
    ("name", "options"),
    [
        ("cifar_resnet", {}),
        ("cifar_resnet", {"layers": 10**9}),
        ("cifar_resnet", {"layers": 6 * 10**400 + 2}),
        ("cifar_resnet", {"layers": 9}),
        ("cifar_resnet", {"layers": -4}),
        ("cifar_resnet", {"layers": 8.0}),
        ("cifar_resnet", {"layers": "8"}),
        ("cifar_resnet", {"layers": True}),
        ("cifar_resnet", {"layers": None}),
        ("cifar_resnet", {"layers": [[8]]}),
        ("cifar_resnet", {"layers": 8, "num_classes": 10**9}),
        ("cifar_resnet", {"layers": 8, "num_classes": 0}),
        ("cifar_resnet", {"layers": 8, "num_classes": "10"}),
        ("cifar_resnet", {"layers": 8, "self": 1}),
        ("cifar_resnet", {"layers": 8, "weights": "x"}),
        ("cifar_resnet", {"layers": 8, "": 1}),
        ("cascade", {}),
        ("cascade", {"members": [1, 2]}),
        ("cascade", {"name": "x"}),
    ],
)
def test_options_that_make_no_backbone(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"'{name}' cannot make a backbone"):
        build(Factory(name, options))


@each("name", [["list"], 3])
def test_a_cascade_by_a_name_that_is_no_text(name: Any) -> None:
    member = Factory("cifar_resnet", {"layers": 8})
    with pytest.raises(InputError, match="'cascade' cannot make a backbone"):
        build(Factory("cascade", {"name": name}, members=(member, member)))


class TestMembers:
    def test_belong_to_cascades(self) -> None:
        member = Factory("cifar_resnet", {"layers": 8})
        with pytest.raises(InputError, match="expected a 'cascade', or one network 'merged'"):
            build(Factory("os:system", {}, members=(member, member)))

    def test_are_as_many_as_memory_holds(self) -> None:
        member = Factory("cifar_resnet", {"layers": 1202})
        for _ in range(5):
            member = Factory("cascade", members=(member, member))
        with pytest.raises(InputError, match=f"at most {MOST_NETWORKS} networks, got 32"):
            build(member)

    def test_are_trusted_one_by_one(self) -> None:
        members = (Factory("cifar_resnet", {"layers": 8}), Factory("os:system", {"command": "true"}))
        with pytest.raises(UntrustedNameError, match="os:system"):
            build(Factory("cascade", members=members), trust=[f"{HERE}:make_backbone"])


class TestTrust:
    @each(
        "name",
        [
            "os:system",
            "builtins:eval",
            "builtins:exec",
            "subprocess:Popen",
            "runpy:run_path",
            ":",
            "a:b:c",
            f"{HERE}:record",
        ],
    )
    def test_code_is_neither_imported_nor_called_unless_allowed(self, name: str) -> None:
        for trust in ((), ["other:name"], "x" + name, f"{name},{name}", {name + "x": 1}):
            with pytest.raises(UntrustedNameError, match="trust="):
                build(Factory(name, {"command": "true"}), trust=trust)
        assert not CALLS

    def test_an_untrusted_module_is_not_imported(self) -> None:
        code = (
            "import sys; from offramp.backbone import Factory; from offramp.backbone._making import build\n"
            "try: build(Factory('antigravity:fly'))\nexcept "
            "PermissionError: sys.exit('antigravity' in sys.modules)"
        )
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

    @each("trust", [[f"{HERE}:make_backbone"], {f"{HERE}:make_backbone"}, f"{HERE}:make_backbone"])
    def test_what_is_allowed_is_called(self, trust: Any) -> None:
        made = build(Factory(f"{HERE}:make_backbone", {"layers": 14}, PREPARED), trust=trust)
        assert made.name == "cifar-resnet-14"
        assert made.preprocessing == PREPARED

    def test_a_part_of_a_trusted_text_is_not(self) -> None:
        with pytest.raises(UntrustedNameError):
            build(Factory("s:s"), trust="os:system")

    @each(
        ("name", "options", "told"),
        [
            (f"{HERE}:record", {"a": 1}, "expected a backbone from .*, got NoneType"),
            ("builtins:dict", {"a": 1}, "expected a backbone from .*, got dict"),
            (f"{HERE}:gone", {}, "has no 'gone'"),
            ("no_such_module:make", {}, "cannot import"),
            (":make", {}, "cannot import"),
            (f"{HERE}:CALLS", {}, "cannot make a backbone"),
            (f"{HERE}:make_backbone", {"depth": 3}, "cannot make a backbone"),
            (f"{HERE}:fail", {"kind": "memory"}, "cannot make a backbone"),
            (f"{HERE}:fail", {"kind": "file"}, "cannot make a backbone"),
            (f"{HERE}:fail", {"kind": "assert"}, "cannot make a backbone"),
            (f"{HERE}:fail", {"kind": "recursion"}, "cannot make a backbone"),
        ],
    )
    def test_even_then_it_must_give_a_backbone(self, name: str, options: dict[str, Any], told: str) -> None:
        with pytest.raises(InputError, match=told):
            build(Factory(name, options), trust=[name])


def test_unknown_names_suggest_the_near_one() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'cifar_resnet'"):
        build(Factory("cifar_resnets"))


class Undecided(torch.nn.Module):
    """A network whose control flow depends on the inputs, so that it has no order of stages."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 3)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        mixed = self.one(inputs)
        scores: torch.Tensor = self.head(self.two(mixed) if mixed.sum() > 0 else mixed)
        return scores


def refused() -> Backbone:
    return offramp.split(Undecided(), torch.zeros(2, 4))


class TestMakeBackbone:
    def test_by_a_registered_name(self) -> None:
        made = made_by_name("cifar_resnet", {"layers": 14, "num_classes": 5})
        assert (made.name, made.num_classes) == ("cifar-resnet-14", 5)
        assert made.factory is not None
        assert made.factory.options == {"layers": 14, "num_classes": 5}

    def test_by_somebodys_code_it_knows_what_it_was_made_with(self) -> None:
        made = made_by_name(f"{HERE}:unknown", {"width": 4})
        assert made.factory == Factory(f"{HERE}:unknown", {"width": 4}, made.preprocessing)
        assert made.preprocessing == PREPARED
        again = build(made.factory, trust=[f"{HERE}:unknown"])
        assert again.preprocessing == PREPARED
        again.load_state_dict(made.state_dict())
        assert again.fingerprint() == made.fingerprint()

    def test_what_a_backbone_knows_already_stays(self) -> None:
        made = made_by_name(f"{HERE}:make_backbone", {"layers": 14})
        assert made.factory is not None
        assert made.factory.name == "cifar_resnet"

    def test_a_network_that_cannot_be_cut_says_why(self) -> None:
        with pytest.raises(SplitRefusedError) as raised:
            made_by_name(f"{HERE}:refused", {})
        assert "cannot make a backbone" not in str(raised.value)

    @each(
        ("name", "options", "told"),
        [
            ("cifar_resnet", {"layers": 9}, "'cifar_resnet' cannot make a backbone"),
            (
                f"{HERE}:record",
                {},
                "expected a backbone from .*, got NoneType; let it end with `return offramp.split",
            ),
            (f"{HERE}:gone", {}, "has no 'gone'"),
            ("no_such_module:make", {}, "cannot import 'no_such_module:make': No module named 'no_such_module'"),
        ],
    )
    def test_refused(self, name: str, options: dict[str, Any], told: str) -> None:
        with pytest.raises(InputError, match=told) as raised:
            made_by_name(name, options)
        assert (raised.value.__cause__ is None) == (name.endswith("record"))

    def test_unknown_names_suggest_the_near_one(self) -> None:
        with pytest.raises(UnknownNameError, match="did you mean 'cifar_resnet'"):
            made_by_name("cifar_resnett", {})


def unknown(width: int) -> Backbone:
    torch.manual_seed(0)
    stages = [torch.nn.Flatten(), torch.nn.Linear(3 * width * width, 8)]
    backbone = Backbone("own", stages, {1: torch.nn.Linear(8, 10)}, 10)
    backbone.preprocessing = PREPARED
    return backbone


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
        made_by_name(name, options)


class TestSplitting:
    @each("spec", ["./my-model", "bert-base-uncased", "models:make"])
    def test_other_names_are_refused_with_the_prefixes(self, spec: str) -> None:
        with pytest.raises(InputError, match="hf:FOLDER, timm:NAME"):
            offramp.split(spec)

    def test_a_name_brings_its_own_example(self) -> None:
        with pytest.raises(InputError, match="remove them"):
            offramp.split("hf:x", torch.zeros(2, 3))

    def test_a_network_needs_an_example(self) -> None:
        with pytest.raises(InputError, match=r"offramp.split\(model, example\)"):
            offramp.split(nn.Linear(2, 2))
