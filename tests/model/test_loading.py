"""Folders made up by somebody, every hash right: refused by file and field, or the same answers; nothing else."""

import hashlib
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import offramp
from offramp.errors import ArtifactError, InputError, OfframpError, UnknownNameError, UntrustedNameError
from offramp.model._model import EarlyExitModel
from tests.artifact_examples import assert_same, at, change_bytes, change_manifest, change_tensors, tensor_file
from tests.cases import each, refuses
from tests.model import text_examples
from tests.model.artifact_examples import PICTURES, VECTORS, averaged, linked, resnet
from tests.model.examples import LINEAR
from tests.model.text_examples import RAW


def saved(made: EarlyExitModel, folder: Path) -> tuple[EarlyExitModel, Path]:
    made.save(folder, weights=made.backbone.factory is not None)
    return made, folder


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> tuple[EarlyExitModel, Path]:
    return saved(resnet(), tmp_path_factory.mktemp("ladder"))


@pytest.fixture(scope="module")
def linear(tmp_path_factory: pytest.TempPathFactory) -> tuple[EarlyExitModel, Path]:
    return saved(resnet(LINEAR), tmp_path_factory.mktemp("linear"))


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> tuple[EarlyExitModel, Path]:
    return saved(linked(), tmp_path_factory.mktemp("cascade"))


@pytest.fixture(scope="module")
def average(tmp_path_factory: pytest.TempPathFactory) -> tuple[EarlyExitModel, Path]:
    return saved(averaged(), tmp_path_factory.mktemp("average"))


@pytest.fixture
def folder(ladder: tuple[EarlyExitModel, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(ladder[1], tmp_path / "copy"))


def refused(folder: Path, *told: str, **options: Any) -> None:
    with pytest.raises(OfframpError) as caught:
        offramp.load(folder, **options)
    message = str(caught.value)
    assert isinstance(caught.value, ArtifactError | UnknownNameError | UntrustedNameError)
    assert str(folder) in message
    for text in told:
        assert text in message
    assert len(message) < 1500


def put(path: str, value: Any) -> Callable[[dict[str, Any]], object]:
    def change(whole: dict[str, Any]) -> None:
        holder, key = at(whole, path)
        holder[key] = value

    return change


REMOVED = object()
POINT = "points.threshold.1"
FACTORY = "backbone.factory"
WRONG: dict[str, list[Any]] = {
    "backbone": [REMOVED, None, [], "cifar"],
    "backbone.factory": [REMOVED, [], "cifar_resnet", {}],
    "backbone.factory.name": [REMOVED, None, 3, "x" * 2000, "cifar-resnet", "", "cascade"],
    "backbone.factory.options": [REMOVED, None, [], {}, {"depth": 1}],
    "backbone.factory.options.layers": [10**9, "8", None, [[8]], 14, 8.0, True],
    "backbone.factory.options.num_classes": [10**9, 4, "3", None],
    "backbone.factory.options.self": [1],
    "backbone.factory.members": [REMOVED, None, {}, [1], [{}], "ab"],
    "backbone.factory.preprocessing": [REMOVED, None, 1, [["gone", {}]], [["normalize"]], [[1, {}]], [["resize", []]]],
    "backbone.fingerprint": [REMOVED, "", "0" * 64, 5],
    "backbone.num_classes": [REMOVED, 4, 10**9, 10**400, "3", 3.0, -1],
    "backbone.num_exits": [REMOVED, 4, 0, 10**9, None],
    "backbone.weights": [REMOVED, 1, "true", False],
    "preprocessing": [REMOVED, {}, [["eval", {"code": "1"}]], [["channels_first", {}, 1]], "none"],
    "preprocessing.1.1.scale": ["1", None, 10**400, [1], REMOVED],
    "preprocessing.1.1.mean": [[0.5], "0.5", [[0.5] * 3], [None] * 3, REMOVED, []],
    "preprocessing.1.1.std": [[0.0] * 3, [0.5] * 4],
    "preprocessing.1.1.device": ["cuda"],
    "pooling": [REMOVED, "", "os:system", 3, ["auto"]],
    "exits": [REMOVED, []],
    "exits.kind": [REMOVED, "linear", "cumulative", "pickle", 1],
    "exits.precision": [REMOVED, "float64", "float16", "int8", "O", 32],
    "exits.widths": [
        REMOVED,
        [],
        [256, 512],
        [10**9] * 3,
        [10**5] * 3,
        [256, 512, 1025],
        [-1, 512, 1024],
        "abc",
        [1.5] * 3,
    ],
    "exits.stages": [REMOVED, [], [1, 0], [0, 0], [0, 3], [0], [0, 1, 2], [-1, 0], [0, 1.0], ["0", "1"]],
    "exits.options": [REMOVED, {}, {"stacked": 1}, {"width": 8, "stacked": 1}, 8],
    "exits.options.width": [REMOVED, 0, 7, 10**5, 10**9, -8, "8", True, {"a": {"b": {"c": 1}}}],
    "exits.averaging": [REMOVED, [2], [0, 1], [5], None, [-1]],
    "backend": [REMOVED, 3, [], {}, {"kind": "magic", "made_from": ""}, {"kind": "os:system", "made_from": ""}],
    "costs": [REMOVED, [], {}, {"gates": 1}],
    "costs.threshold": [REMOVED, 0, 2, 3, 10**9, "1", None],
    "costs.other": [1],
    "points": [REMOVED, {}, [], {"magic": []}, {"sampled_gates": []}],
    "points.threshold": [REMOVED, [], {}, None, [1]],
    f"{POINT}": [None, {}, 7],
    f"{POINT}.active": [REMOVED, [], [0], [2, 1], [1, 1, 2], [0, 1, 2, 3], [0, 10**9], "012", [-1, 2]],
    f"{POINT}.classifier": [REMOVED, 1, -1, 10**9, 0.0, None],
    f"{POINT}.tune_metrics": [REMOVED, {}, {"cost": 0.5}, [], {"cost": "0.5", "accuracy": 0.5}],
    f"{POINT}.tune_metrics.cost": [REMOVED, -0.1, "low", None, 10**400, 10**9],
    f"{POINT}.tune_metrics.more": ["text", None, [1]],
    "full_accuracy": [REMOVED, None, "1", [1], 10**400],
    "calibration": [REMOVED, None, 3, [], {}, {"samples": 30, "losses": [], "assumes": ""}],
    "calibration.samples": [REMOVED, 0, -1, 29, 10**9, "30", 30.0, True, None],
    "calibration.losses": [REMOVED, None, ["accuracy"], ["accuracy"] * 3, ["magic"], [1], "accuracy", []],
    "chosen": [REMOVED, 3, [], {}, {"policy": "magic", "index": 0, "guarantee": None}],
    "unit": [REMOVED, None, "ms", []],
    "unit.name": [REMOVED, None, 3],
    "unit.full": [REMOVED, 0, -1.0, "1", True, [1], 10**400],
    "classes": [REMOVED, None, {}, "abc", ["a"], ["a", "b"], ["a"] * 4, [1, 2, 3], ["a", "b", None], ["a" * 1001] * 3],
    "contributions": [REMOVED, {}, [1], [[]], [["a", 0.1]], [["a", 0.1, True, 1]], [[1, 0.1, True]]],
    "contributions.0": [["a", "0.1", True], ["a", 0.1, 1], ["a", None, True], [0.1, "a", True], "abc"],
    "provenance": [REMOVED, [], None],
}
"""Fields of `content`, and what they must not be."""


@each(("path", "value"), [(path, value) for path, values in WRONG.items() for value in values])
def test_a_field_that_does_not_fit_is_refused_by_name(folder: Path, path: str, value: Any) -> None:
    def change(whole: dict[str, Any]) -> None:
        holder, key = at(whole["content"], path)
        if value is REMOVED:
            del holder[key]
        else:
            holder[key] = value

    change_manifest(folder, change)
    refused(folder)


def test_fields_nobody_knows_change_nothing(ladder: tuple[EarlyExitModel, Path], folder: Path) -> None:
    change_manifest(folder, lambda whole: whole["content"].update(more={"code": "import os"}))
    assert_same(ladder[0], offramp.load(folder), PICTURES)


@each("name", ["os:system", "builtins:eval", "builtins:__import__", "subprocess:run", "posix:system"])
def test_code_is_refused_without_trust_and_must_give_a_backbone_with_it(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_manifest(folder, put("content.backbone.factory.name", name))
    called: list[Any] = []
    monkeypatch.setattr("os.system", lambda *arguments, **options: called.append(options))
    with pytest.raises(UntrustedNameError, match=r"manifest\.json, field 'content\.backbone\.factory'.*trust="):
        offramp.load(folder)
    assert not called
    refused(folder, "content.backbone.factory", trust=[name])


def test_a_network_that_was_not_cut_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="expected a backbone, got Linear; split the network"):
        offramp.load(folder, backbone=torch.nn.Linear(2, 2))  # type: ignore[arg-type]


def test_a_name_that_is_not_registered_says_where(folder: Path) -> None:
    change_manifest(folder, put("content.backbone.factory.name", "cifar_resnets"))
    with pytest.raises(UnknownNameError, match=r"content\.backbone\.factory': .*did you mean 'cifar_resnet'"):
        offramp.load(folder)


def test_a_cascade_of_very_many_networks_is_not_made(members: tuple[EarlyExitModel, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(members[1], tmp_path / "copy"))
    assert_same(members[0], offramp.load(folder), PICTURES)

    def change(whole: dict[str, Any]) -> None:
        factory = whole["content"]["backbone"]["factory"]
        member = {**factory["members"][0], "options": {"layers": 1202, "num_classes": 3}}
        factory["members"] = [member] * 10_000

    change_manifest(folder, change)
    refused(folder, "content.backbone.factory", "at most 16 networks")


def test_a_cascade_with_a_member_of_somebodys(members: tuple[EarlyExitModel, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(members[1], tmp_path / "copy"))
    change_manifest(folder, put("content.backbone.factory.members.0.name", "os:system"))
    with pytest.raises(UntrustedNameError, match="os:system"):
        offramp.load(folder)


Tensors = dict[str, Tensor]
Change = Callable[[Tensors], object]


def to(key: str, change: Callable[[Tensor], Tensor], *, new: str | None = None) -> Change:
    """Another tensor in place of one, or beside it under a new name."""
    return lambda named: named.update({new or key: change(named[key]).clone()})


def every(change: Callable[[Tensor], Tensor]) -> Change:
    return lambda named: named.update({key: change(tensor) for key, tensor in named.items()})


def more(name: str) -> Change:
    return lambda named: named.update({name: torch.zeros(1)})


def filled(key: str, value: float) -> Change:
    return lambda named: named[key].fill_(value)


THRESHOLD, WEIGHT, SETS = "threshold.parameters.threshold", "gates.parameters.weight", "threshold.conformal.0.05"
STEM = "stages.0.0.conv1.weight"
LEVELS = ("0.050", "5e-2", "1.0", "0.0", "-0.1", "nan", "inf", "", "x", "1_0", "0.05 ")
CHANGED: dict[str, dict[str, Change]] = {
    "exits": {
        "empty": lambda named: named.clear(),
        "one less": lambda named: named.pop("mix"),
        "one more": more("more"),
        "no temperatures": lambda named: named.pop("temperatures"),
        "temperature 0": filled("temperatures", 0),
        "temperature infinite": filled("temperatures", math.inf),
        "temperature of another exit": to("temperatures", lambda _: torch.ones(1, 4)),
        "a weight NaN": filled("mix", math.nan),
        "a weight infinite": filled("head", -math.inf),
        "another shape": to("head", lambda head: head.mT.contiguous()),
        "one number": to("head", lambda head: head.sum()),
        "all double": every(Tensor.double),
        "one half": to("mix", Tensor.half),
        "all half": every(Tensor.half),
        "whole numbers": to("mix", Tensor.long),
        "complex": to("mix", lambda mix: mix.to(torch.complex64)),
        "booleans": to("mix", Tensor.bool),
    },
    "points": {
        "empty": lambda named: named.clear(),
        "one more": more("more"),
        "a policy more": more("magic.temperatures"),
        "a parameter more": more("threshold.parameters.more"),
        "no thresholds": lambda named: named.pop(THRESHOLD),
        "thresholds NaN": filled(THRESHOLD, math.nan),
        "a point less": to("threshold.temperatures", lambda rows: rows[1:]),
        "negative temperatures": to("threshold.temperatures", Tensor.neg),
        "gates of one number": to(WEIGHT, lambda weight: weight[..., :1].contiguous()),
        "gates deeper": to(WEIGHT, lambda weight: weight[..., None]),
        "costs in single": to("costs.gates.stage", Tensor.float),
        "costs infinite": filled("costs.gates.stage", math.inf),
        "costs NaN": filled("costs.threshold.full", math.nan),
        "no costs": lambda named: named.pop("costs.threshold.full"),
        "more powers": to("costs.threshold.full", lambda full: full.repeat(3)),
        "leaving in single": to("threshold.leaving", Tensor.float),
        "leaving of other sizes": to("threshold.leaving", lambda leaving: leaving.repeat(1, 9, 1)),
        "leaving NaN": filled("gates.leaving", math.nan),
        "leaving nobody": filled("gates.leaving", 0.0),
        "leaving twice": to("gates.leaving", lambda leaving: 2 * leaving),
        "leaving below": to("gates.leaving", lambda leaving: leaving + torch.tensor([-1.0, 0.0, 1.0])),
        "leaving without sizes": to("gates.leaving", lambda leaving: torch.cat([leaving, 0 * leaving], 1)),
        "leaving flat": to("gates.leaving", lambda leaving: leaving[:, 0]),
        "leaving of no power": to("gates.leaving", lambda leaving: leaving[:, :0]),
        "leaving of nobody's": more("magic.leaving"),
        "losses above": filled("threshold.losses.accuracy", 2),
        "losses below": filled("threshold.losses.disagreement", -1),
        "losses NaN": filled("gates.losses.brier", math.nan),
        "losses in single": to("gates.losses.brier", Tensor.float),
        "losses of fewer": to("gates.losses.brier", lambda losses: losses[:, 1:].contiguous()),
        "losses of nobody's": more("magic.losses.brier"),
        "no losses": lambda named: named.pop("threshold.losses.accuracy"),
        "variances 0": to("threshold.tuned.brier", lambda tuned: tuned * torch.tensor([1.0, 0.0])),
        "means above": to("threshold.tuned.brier", lambda tuned: tuned + 3),
        "conformal NaN": filled(SETS, math.nan),
        "conformal below": filled(SETS, -math.inf),
        "conformal double": to(SETS, Tensor.double),
        **{f"conformal at {level}": to(SETS, Tensor.clone, new=f"threshold.conformal.{level}") for level in LEVELS},
    },
    "backbone": {
        "empty": lambda named: named.clear(),
        "one less": lambda named: named.pop(STEM),
        "one more": more("more"),
        "another number": to(STEM, lambda weight: weight + 1),
        "all double": every(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor),
        "one half": to(STEM, Tensor.half),
        "whole numbers": to(STEM, Tensor.long),
        "complex": every(lambda tensor: tensor.to(torch.complex64)),
        "another shape": to(STEM, lambda weight: weight[:, :2].contiguous()),
    },
}
"""Changes of tensors that must be refused although all checksums match."""


@each(("file", "change"), [(file, change) for file, ways in CHANGED.items() for change in ways.values()])
def test_a_tensor_that_does_not_fit_is_refused_by_name(
    folder: Path, file: str, change: Callable[[Tensors], object]
) -> None:
    change_tensors(folder, file, change)
    named = f"{file}-" if file != "backbone" else ""  # other weights show in the fingerprint, which the manifest has
    refused(folder, named)


@each("file", ["exits", "points", "backbone"])
def test_a_file_the_manifest_does_not_list_is_missing(folder: Path, file: str) -> None:
    change_manifest(folder, lambda whole: whole["files"].pop(file))
    refused(folder, file)


def test_files_that_were_swapped(folder: Path) -> None:
    exits, points = tensor_file(folder, "exits"), tensor_file(folder, "points")
    first, second = exits.read_bytes(), points.read_bytes()
    exits.write_bytes(second)
    points.write_bytes(first)
    refused(folder, exits.name)
    change_bytes(folder, "exits", second)
    change_bytes(folder, "points", first)
    refused(folder, "exits-")


def test_conformal_thresholds_may_be_infinite(folder: Path) -> None:
    change_tensors(folder, "points", lambda named: named["threshold.conformal.0.05"].fill_(math.inf))
    answer = offramp.load(folder).at(cost=2, policy="threshold").predict(PICTURES)
    assert answer.prediction_sets[0.05].all()


def test_points_out_of_order_are_refused(folder: Path) -> None:
    change_manifest(folder, lambda whole: whole["content"]["points"]["threshold"].reverse())
    refused(folder, "content.points.threshold[1].tune_metrics", "no lower")


@each(("path", "value"), [("exits.options.stacked", 3), ("exits.options.width", 8), ("exits.kind", "cumulative")])
def test_linear_exits_of_other_sizes(
    linear: tuple[EarlyExitModel, Path], tmp_path: Path, path: str, value: Any
) -> None:
    folder = Path(shutil.copytree(linear[1], tmp_path / "copy"))
    change_manifest(folder, put(f"content.{path}", value))
    refused(folder)


def test_huge_exits_take_no_memory(linear: tuple[EarlyExitModel, Path], tmp_path: Path) -> None:
    """A hundred thousand features, sets and classes: 4e15 bytes, if anybody were to make room for them first."""
    folder = Path(shutil.copytree(linear[1], tmp_path / "copy"))

    def change(whole: dict[str, Any]) -> None:
        whole["content"]["exits"].update(widths=[100_000] * 3, options={"stacked": 100_000})
        whole["content"]["backbone"].update(num_classes=1_000_000)
        whole["content"]["backbone"]["factory"]["options"].update(num_classes=1_000_000)

    change_manifest(folder, change)
    refused(folder, "exits-")


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_very_many_exits_take_little_time(linear: tuple[EarlyExitModel, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(linear[1], tmp_path / "copy"))

    def change(whole: dict[str, Any]) -> None:
        whole["content"]["exits"].update(kind="cumulative", widths=[100_000] * 10_000, stages=list(range(9_999)))
        whole["content"]["backbone"].update(num_exits=10_000)

    change_manifest(folder, change)
    refused(folder, "exits-")
    change_manifest(folder, lambda whole: whole["content"]["backbone"].update(num_exits=10_001))
    refused(folder, "content.backbone.num_exits")


@each(
    ("change", "told"),
    [
        (lambda named: named["averaging.shares"].fill_(0.5), "the first 0"),
        (lambda named: named["averaging.shares"].mul_(20), "below 1"),
        (lambda named: named["averaging.shares"].neg_().sub_(torch.tensor([0.0, 0.1])), "from 0"),
        (lambda named: named["averaging.temperatures"].zero_(), "above 0"),
        (lambda named: named["averaging.temperatures"].fill_(math.nan), "averaging.temperatures"),
        (lambda named: named.update({"averaging.shares": torch.zeros(3)}), "averaging.shares"),
    ],
)
def test_averages_that_are_none(
    average: tuple[EarlyExitModel, Path], tmp_path: Path, change: Callable[[Tensors], object], told: str
) -> None:
    made, source = average
    folder = Path(shutil.copytree(source, tmp_path / "copy"))
    assert_same(made, offramp.load(folder, backbone=made.backbone), VECTORS)
    change_tensors(folder, "exits", change)
    refused(folder, told, backbone=made.backbone)


@pytest.fixture(scope="module")
def spoken(tmp_path_factory: pytest.TempPathFactory) -> tuple[EarlyExitModel, Path]:
    return saved(text_examples.fitted(), tmp_path_factory.mktemp("texts"))


@pytest.fixture
def texts(spoken: tuple[EarlyExitModel, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(spoken[1], tmp_path / "copy"))


def file_of(content: bytes) -> tuple[str, Tensor]:
    """A file as an artifact holds it: named by its hash."""
    return hashlib.sha256(content).hexdigest(), torch.tensor(list(content), dtype=torch.uint8)


class TestAttachments:
    """The files that preparation needs: what is wrong with them is told by file, and by field or tensor."""

    def hash_of(self, folder: Path) -> str:
        whole = json.loads((folder / "manifest.json").read_bytes())
        named: str = whole["content"]["preprocessing"][0][1]["tokenizer"]["sha256"]
        return named

    def exchange(self, folder: Path, content: bytes) -> None:
        """Put another file in place of the tokenizer, everything that vouches for it included."""
        name, tensor = file_of(content)
        change_tensors(folder, "attachments", Tensors.clear)
        change_tensors(folder, "attachments", lambda named: named.update({name: tensor}))
        for place in ("content", "content.backbone.factory"):
            change_manifest(folder, put(f"{place}.preprocessing.0.1.tokenizer.sha256", name))

    def test_untouched(self, spoken: tuple[EarlyExitModel, Path], texts: Path) -> None:
        assert_same(spoken[0], offramp.load(texts), RAW)

    @each("given", [False, True])
    def test_other_content_than_its_hash_says(
        self, spoken: tuple[EarlyExitModel, Path], texts: Path, given: bool
    ) -> None:
        name = self.hash_of(texts)
        change_tensors(texts, "attachments", lambda named: named[name][7].add_(1))
        refused(
            texts,
            f".safetensors, tensor '{name}': expected content of the hash that is its name",
            backbone=spoken[0].backbone if given else None,
        )

    @each(
        "change",
        [
            Tensor.float,
            Tensor.long,
            Tensor.char,
            Tensor.bool,
            lambda content: content[None],
            lambda content: content.view(-1, 1),
        ],
    )
    def test_what_are_no_bytes(self, texts: Path, change: Callable[[Tensor], Tensor]) -> None:
        name = self.hash_of(texts)
        change_tensors(texts, "attachments", to(name, change))
        refused(texts, "attachments-", f"tensor '{name}': expected torch.uint8 of shape")

    def test_a_tensor_that_is_missing(self, texts: Path) -> None:
        change_tensors(texts, "attachments", lambda named: named.clear())
        refused(texts, "manifest.json", "preprocessing[0][1].tokenizer'", "the hash of a tensor of the file")

    def test_a_file_that_is_missing(self, texts: Path) -> None:
        file = tensor_file(texts, "attachments")
        change_manifest(texts, lambda whole: whole["files"].pop("attachments"))
        refused(texts, "manifest.json", "preprocessing[0][1].tokenizer'", "the hash of a tensor of the file")
        file.unlink()
        refused(texts, "manifest.json", "preprocessing[0][1].tokenizer'")

    @each("place", ["content", "content.backbone.factory"])
    @each(
        ("value", "told"),
        [
            ({"sha256": "0" * 64}, "the hash of a tensor of the file"),
            ({"sha256": ""}, "the hash of a tensor of the file"),
            ({"sha256": 3}, "expected a text"),
            ({"sha256": ["a"]}, "expected a text"),
            ({"sha256": "a" * 5000}, "expected a text of at most"),
            ({}, "is missing"),
            ({"path": "/etc/passwd"}, "is missing"),
            ("/etc/passwd", "an attached file"),
            (None, "an attached file"),
        ],
    )
    def test_a_hash_of_nothing(
        self, spoken: tuple[EarlyExitModel, Path], texts: Path, place: str, value: Any, told: str
    ) -> None:
        change_manifest(texts, put(f"{place}.preprocessing.0.1.tokenizer", value))
        given = spoken[0].backbone if place == "content" else None  # the quicker way there
        refused(texts, "manifest.json", f"field '{place}.preprocessing", told, backbone=given)

    @each("content", [b"", b"{}", b"\x80\x04]", b"null", b'{"model": {"type": "Magic"}}', b"\xff" * 99, b"[" * 10_000])
    def test_what_is_no_tokenizer(self, texts: Path, content: bytes) -> None:
        self.exchange(texts, content)
        refused(texts, "manifest.json", "preprocessing'", "JSON cannot be read")

    @each(
        ("key", "value"),
        [
            *(("longest", value) for value in (0, -1, 2, 2**17 + 1, 10**400, "8", None, 8.0, True, REMOVED)),
            *(("pad", value) for value in (-1, 2**24, 10**400, "0", None, 0.0, REMOVED)),
            ("more", 1),
        ],
    )
    def test_parameters_of_the_step(
        self, spoken: tuple[EarlyExitModel, Path], texts: Path, key: str, value: Any
    ) -> None:
        def change(whole: dict[str, Any]) -> None:
            parameters = whole["content"]["preprocessing"][0][1]
            parameters.pop(key, None) if value is REMOVED else parameters.update({key: value})

        change_manifest(texts, change)
        refused(texts, "manifest.json", "field 'content.preprocessing'", backbone=spoken[0].backbone)

    def test_a_file_where_a_number_belongs(self, texts: Path) -> None:
        name = self.hash_of(texts)
        change_manifest(texts, put("content.preprocessing.0.1.longest", {"sha256": name}))
        refused(texts, "content.preprocessing'", "'longest'")

    def test_another_tokenizer_is_another_preparation_not_another_network(self, texts: Path) -> None:
        other = text_examples.tokenizer()
        other.enable_padding(length=10**9)  # no text may become that long
        self.exchange(texts, other.to_str().encode())
        assert offramp.load(texts).at(cost=2).predict(RAW).labels.shape == (len(RAW),)


@pytest.mark.slow
class TestTextNetworks:
    @pytest.mark.timeout(60)
    @each(
        "options",
        [
            {"hidden_size": 2**20},
            {"vocab_size": 10**12},
            {"num_hidden_layers": 10**9},
            {"max_position_embeddings": 10**12},
            {"model_type": "somebody/model"},
            {"model_type": None},
            {"hidden_size": "16"},
            {"num_attention_heads": 3},
            {"intermediate_size": 64},
            {"num_hidden_layers": 1},
            {"chunk_size_feed_forward": 1},
        ],
    )
    def test_of_other_sizes(self, texts: Path, options: dict[str, Any]) -> None:
        change_manifest(
            texts, lambda whole: whole["content"]["backbone"]["factory"]["options"]["config"].update(options)
        )
        refused(texts)

    @each(
        "banned",
        [
            {"attn_implementation": "somebody/kernel"},
            {"_attn_implementation_internal": "somebody/kernel"},
            {"auto_map": {"AutoModelForSequenceClassification": "somebody/code--modeling.Mine"}},
            {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}},
        ],
    )
    def test_what_may_be_fetched_changes_nothing(
        self, spoken: tuple[EarlyExitModel, Path], texts: Path, banned: dict[str, Any]
    ) -> None:
        change_manifest(
            texts, lambda whole: whole["content"]["backbone"]["factory"]["options"]["config"].update(banned)
        )
        assert_same(spoken[0], offramp.load(texts), RAW)

    @each("config", [None, [], "bert", {}, [["model_type", "bert"]]])
    def test_configurations_that_are_none(self, texts: Path, config: Any) -> None:
        change_manifest(texts, put("content.backbone.factory.options.config", config))
        refused(texts, "content.backbone.factory")


def test_inputs_of_another_size_are_refused_in_words(ladder: tuple[EarlyExitModel, Path], folder: Path) -> None:
    change_manifest(folder, put("content.pooling", "mean"))
    with pytest.raises(offramp.errors.InputError, match="exit after stage 0: expected 512 features per sample, got 16"):
        offramp.load(folder).at(cost=2).predict(PICTURES)


@each("address", ["s3://bucket/my-offramp", "file:///my-offramp", Path("s3://bucket/my-offramp")])
def test_an_address_is_no_folder(address: str | Path) -> None:
    with refuses(InputError, expected="a folder or hf://", got=f"'{address}'", hint="copy"):
        offramp.load(address)
