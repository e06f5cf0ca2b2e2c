import re
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import offramp._registry
from offramp._registry import Registry
from offramp.errors import DuplicateNameError, UnknownNameError, UntrustedNameError
from offramp.exits import EXITS
from offramp.methods import METHODS
from offramp.policy import POLICIES
from offramp.pooling import POOLINGS
from offramp.preprocessing import STEPS
from tests.cases import each

every_registry = each("registry", [EXITS, METHODS, POLICIES, POOLINGS, STEPS])


def offer(monkeypatch: pytest.MonkeyPatch, *points: EntryPoint) -> list[str]:
    """Let other packages offer entries; returns the groups asked for, as they are asked for."""
    asked: list[str] = []

    def entry_points(*, group: str) -> list[EntryPoint]:
        asked.append(group)
        return [point for point in points if point.group == group]

    monkeypatch.setattr(offramp._registry, "entry_points", entry_points)
    return asked


class TestEntries:
    def test_objects(self) -> None:
        things: Registry[object] = Registry("thing")
        first, second = object(), object()
        things.add("b", first)
        things.add("a", second)
        assert things.get("b") is first
        assert things.get("a") is second
        assert list(things) == ["a", "b"]

    def test_nothing(self) -> None:
        empty: Registry[object] = Registry("thing")
        assert list(empty) == []
        with pytest.raises(UnknownNameError, match="unknown thing 'x'"):
            empty.get("x")

    def test_registries_are_apart(self) -> None:
        one: Registry[int] = Registry("one")
        other: Registry[int] = Registry("other")
        one.add("a", 1)
        assert list(other) == []

    def test_lazy_targets_are_imported_when_asked_for(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "offramp_lazy_target.py").write_text("class Thing: pass\n")
        monkeypatch.syspath_prepend(tmp_path)
        things: Registry[Any] = Registry("thing")
        things.add("lazy", "offramp_lazy_target:Thing")
        assert list(things) == ["lazy"]
        assert "offramp_lazy_target" not in sys.modules
        found = things.get("lazy")
        assert found.__name__ == "Thing"
        del sys.modules["offramp_lazy_target"]
        assert things.get("lazy") is found  # resolved once

    @each(("target", "error"), [("offramp_no_such_module:Thing", ImportError), ("math:no_such_name", AttributeError)])
    def test_a_target_that_is_not_there(self, target: str, error: type[Exception]) -> None:
        things: Registry[object] = Registry("thing")
        things.add("lazy", target)
        with pytest.raises(error):
            things.get("lazy")

    def test_duplicates(self) -> None:
        things: Registry[int] = Registry("thing")
        things.add("a", 1)
        with pytest.raises(DuplicateNameError, match="thing 'a' is registered already"):
            things.add("a", 2)
        assert things.get("a") == 1


class TestUnknownNames:
    @each(("asked", "meant"), [("threshhold", "threshold"), ("gate", "gates"), ("tresold", "threshold")])
    def test_near_ones_are_suggested(self, asked: str, meant: str) -> None:
        things: Registry[int] = Registry("thing")
        for name in ("gates", "threshold", "unlike"):
            things.add(name, 0)
        with pytest.raises(UnknownNameError, match=rf"unknown thing '{asked}'; did you mean '{meant}'\?") as caught:
            things.get(asked)
        assert "Known: gates, threshold, unlike" in str(caught.value)

    def test_none_is_near(self) -> None:
        things: Registry[int] = Registry("thing")
        things.add("threshold", 0)
        with pytest.raises(UnknownNameError, match="unknown thing 'qqq'; Known: threshold"):
            things.get("qqq")


def test_trusted_names_are_remembered_but_not_listed() -> None:
    things: Registry[float] = Registry("thing")
    things.add("mine", 1.0)
    with pytest.raises(UntrustedNameError, match="pass trust="):
        things.get("math:e")
    assert things.get("math:e", trust=["math:e"]) == things.get("math:e") == pytest.approx(2.71828, abs=1e-5)
    assert list(things) == ["mine"]


class TestOtherPackages:
    def test_offer_entries(self, monkeypatch: pytest.MonkeyPatch) -> None:
        point = EntryPoint(name="offered", value="math:pi", group="offramp.thing")
        elsewhere = EntryPoint(name="elsewhere", value="math:e", group="offramp.other")
        asked = offer(monkeypatch, point, elsewhere)
        things: Registry[float] = Registry("thing")
        things.add("mine", 1.0)
        assert asked == []  # nothing is looked for until somebody asks
        assert list(things) == ["mine", "offered"]
        assert things.get("offered") == pytest.approx(3.14159, abs=1e-5)
        assert things.get("mine") == 1.0
        assert asked == ["offramp.thing"]

    def test_may_not_take_a_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        offer(monkeypatch, EntryPoint(name="mine", value="math:pi", group="offramp.thing"))
        things: Registry[float] = Registry("thing")
        things.add("mine", 1.0)
        with pytest.raises(DuplicateNameError, match="'mine'"):
            things.get("mine")

    @each("registry", [EXITS, METHODS, POLICIES, POOLINGS, STEPS])
    def test_the_group_is_one_that_packaging_allows(
        self, registry: Registry[Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # The entry points specification: letters, digits and underscores, in parts separated by dots.
        asked = offer(monkeypatch)
        list(Registry[Any](registry.kind))
        assert re.fullmatch(r"\w+(\.\w+)*", asked[0])


@every_registry
def test_everything_registered_is_there(registry: Registry[Any]) -> None:
    names = list(registry)
    assert names
    assert names == sorted(set(names))
    for name in names:
        assert callable(registry.get(name)) or registry.get(name).name == name
