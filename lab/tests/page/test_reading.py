import json
from pathlib import Path
from typing import Any

import pytest

from lab.tests.page.examples import content, write
from offramp.errors import InputError
from offramp_bench.page import parse_results, read_results
from tests.cases import each


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    return content("cifar10", "cifar10-cascade")


def test_everything_is_read(told: dict[str, Any]) -> None:
    found = parse_results(told)
    task, row = found.tasks["cifar10"], told["tasks"]["cifar10"]["contestants"]["JEI-DNN"]
    assert (task.kind, task.alone, task.samples, task.axis_from) == ("image", None, 6000, 0.12)
    one = task.contestants["JEI-DNN"]
    assert (one.kind, one.area, one.below_default) == ("paper", row["area"], row["below default"])
    assert list(one.interval) == row["interval"]
    assert one.cost_at_half == row["cost at full - .5"]
    point = one.curve[3]
    columns = [point.cost, point.accuracy, point.ece, point.set_size, point.coverage, point.early]
    assert columns == row["curve"][3]
    assert task.contestants["ResNet-20"].curve[0].ece is None
    shown = told["tasks"]["cifar10"]["decomposition"][1]
    assert task.decomposition[1].exits[2].leave == shown["exits"][2]["leave"]
    assert task.decomposition[1].covered["gated"] == tuple(shown["covered"]["gated"])
    assert task.priced_losses["weighted"][0] == pytest.approx(0.95)  # .5 + .4, and as much + .1
    assert len(task.priced_losses["full"]) == 10
    assert found.tasks["cifar10-cascade"].alone == "cifar10"
    assert found.tasks["cifar10-cascade"].decomposition == ()
    assert [bar.held for bar in found.bars] == [True, False]
    joint = found.observations["1. Joint training"]
    stored = told["observations"][0]
    assert (joint.claim, joint.verdict, joint.why) == (stored["claim"], stored["verdict"], stored["why"])
    assert joint.figures[0].by_task["cifar10"].figure == stored["figures"][0]["by_task"]["cifar10"]["figure"]


def test_what_may_be_missing(told: dict[str, Any]) -> None:
    full = json.loads(json.dumps(told))
    del full["observations"], full["tasks"]["cifar10"]["decomposition"], full["tasks"]["cifar10"]["epochs"]
    full["bars"][0]["figure"] = float("nan")
    full["tasks"]["cifar10"]["contestants"] = {}
    found = parse_results(full)
    assert found.observations == {}
    assert found.tasks["cifar10"].decomposition == ()
    assert found.bars[0].figure is None


@each(
    ("broken", "message"),
    [
        ([], "something else"),
        ({"tasks": {}}, "'bars'"),
        ({"tasks": {"a": {}}, "bars": []}, "'kind'"),
        ({"tasks": {"a": 3}, "bars": []}, "something else"),
        ({"tasks": {}, "bars": [{"name": "b", "figure": 1, "at_most": "2", "held": True}]}, "a number, got '2'"),
        ({"tasks": {}, "bars": [], "observations": [{"name": "n", "claim": "c", "figures": []}]}, "'verdict'"),
        (
            {
                "tasks": {},
                "bars": [],
                "observations": [{"name": "n", "claim": "c", "figures": [], "verdict": "true", "why": ""}],
            },
            "got 'true'",
        ),
    ],
)
def test_other_content_is_refused(broken: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        parse_results(broken)
    (tmp_path / "r.json").write_text(json.dumps(broken))
    with pytest.raises(InputError, match=r"r\.json does not read: .*; give the file that"):
        read_results(tmp_path / "r.json")


def test_a_curve_of_something_else_is_refused(told: dict[str, Any]) -> None:
    broken = json.loads(json.dumps(told))
    broken["tasks"]["cifar10"]["contestants"]["JEI-DNN"]["curve"][0][1] = float("inf")
    with pytest.raises(InputError, match="expected a number, got inf"):
        parse_results(broken)


@each("text", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_files_that_are_no_json(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_bytes(text)
    with pytest.raises(InputError, match="does not read"):
        read_results(tmp_path / "r.json")


def test_a_file(told: dict[str, Any], tmp_path: Path) -> None:
    assert read_results(write(tmp_path / "r.json", "cifar10", "cifar10-cascade")) == parse_results(told)
