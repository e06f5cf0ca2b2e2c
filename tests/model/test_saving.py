"""Saved models equal the loaded ones: every kind of exits, networks and costs, here and in another process."""

import json
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import BertConfig, BertForSequenceClassification

import offramp
from offramp.backbone import Cascade, CifarResNet, Factory
from offramp.backbone._backbone import Backbone
from offramp.backbone._cascading import cascade
from offramp.backbone.adapters.timm import timm_backbone
from offramp.backbone.adapters.transformers import text_backbone
from offramp.cost._unit import CostUnit
from offramp.errors import ArtifactError, InputError, UntrustedNameError
from offramp.exits import LadderExits
from offramp.model._model import EarlyExitModel
from offramp.policy import POLICIES, OperatingPoint
from offramp.preprocessing import Preprocessing
from offramp.preprocessing._preprocessing import Attachment
from offramp_bench.catalogue import frontier_of
from tests.artifact_examples import assert_same, change_manifest, tensor_file
from tests.cases import each
from tests.model import examples, text_examples
from tests.model.artifact_examples import (
    GIVEN,
    MADE_BY_NAME,
    PICTURES,
    TEXTS,
    bert,
    fitted,
    of_texts,
    resnet,
)
from tests.model.examples import PREPROCESSING
from tests.model.text_examples import CLASSES, RAW
from tests.model.timing_examples import table_of
from tests.policy.examples import drawn

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def frontier() -> EarlyExitModel:
    return resnet()


def test_points_of_every_policy(frontier: EarlyExitModel, tmp_path: Path) -> None:
    exits, classes = frontier.backbone.num_exits, frontier.backbone.num_classes
    points = {
        name: [
            OperatingPoint(
                name,
                {key: value[row] for key, value in drawn(name, 2, exits=exits, classes=classes).items()},
                tuple(range(exits)),
                frontier.temperatures[0],
                tune_metrics={"cost": 0.4 + row / 10, "accuracy": 0.5},
            )
            for row in range(2)
        ]
        for name in POLICIES
    }
    saved = replace(frontier, points=points, costs=dict.fromkeys(POLICIES, frontier.costs["threshold"]))
    saved.save(tmp_path)
    loaded = offramp.load(tmp_path, backbone=frontier.backbone)
    for name in POLICIES:
        for point, other in zip(points[name], loaded.points[name], strict=True):
            assert set(point.parameters) == set(other.parameters)
            assert all(torch.equal(value, other.parameters[key]) for key, value in point.parameters.items())
        answers = [one.at(cost=0.5, policy=name).predict(PICTURES) for one in (saved, loaded)]
        if "noise" not in POLICIES.get(name).reads:
            assert torch.equal(answers[0].exits, answers[1].exits)


@each("name", list(MADE_BY_NAME))
def test_a_network_with_a_factory_comes_back_by_itself(name: str, tmp_path: Path) -> None:
    make, inputs = MADE_BY_NAME[name]
    saved = make()
    assert isinstance(saved.backbone, Cascade) == name.startswith("cascade")
    saved.save(tmp_path, weights=True)
    loaded = offramp.load(tmp_path)
    assert loaded.backbone is not saved.backbone
    assert_same(saved, loaded, inputs)
    for one, other in zip(saved.backbone.parameters(), loaded.backbone.parameters(), strict=True):
        assert one.stride() == other.stride()  # the order in memory decides on speed, and on the last bit
    # Once more, from what was loaded: nothing is lost on the way, down to the byte.
    loaded.save(tmp_path / "again", weights=True)
    for file in (tmp_path / "again").iterdir():
        assert file.read_bytes() == (tmp_path / file.name).read_bytes()


@each("name", [*MADE_BY_NAME, *GIVEN])
def test_any_network_comes_back_when_it_is_given(name: str, tmp_path: Path) -> None:
    make, inputs = (MADE_BY_NAME | GIVEN)[name]
    saved = make()
    saved.save(tmp_path, weights=False)
    assert not [*tmp_path.glob("backbone*")]
    loaded = offramp.load(tmp_path, backbone=saved.backbone)
    assert loaded.backbone is saved.backbone
    assert_same(saved, loaded, inputs)


@each("condition", ["cost", "max_drop"])
def test_a_point_chosen_by_a_number_of_numpy(frontier: EarlyExitModel, tmp_path: Path, condition: str) -> None:
    number: Any = np.float32(0.875)
    chosen = frontier.at(**{condition: number})
    chosen.save(tmp_path, weights=True)
    assert offramp.load(tmp_path).point.tune_metrics == chosen.point.tune_metrics


def test_cascades_come_back_as_cascades_that_average() -> None:
    saved = GIVEN["averaged"][0]()
    assert isinstance(saved.backbone, Cascade)
    assert saved.exits.averaging.stages == saved.backbone.own_heads  # or the round trip above shows little
    assert saved.exits.averaging.shares.any()


@pytest.mark.slow
def test_a_function_that_is_trusted_makes_the_network(tmp_path: Path) -> None:
    saved = of_texts()
    assert len(saved.costs["threshold"].tables) == 3  # texts cost what their tokens cost
    name = "tests.model.artifact_examples:bert"
    saved.save(tmp_path, factory=Factory(name, {"seed": 0}))
    with pytest.raises(UntrustedNameError, match=r"manifest\.json, field 'content\.backbone\.factory': .*trust="):
        offramp.load(tmp_path)
    assert_same(saved, offramp.load(tmp_path, trust=[name]), TEXTS)
    # Made with other weights it is another network, unless the weights are in the artifact.
    other = Factory(name, {"seed": 1})
    saved.save(tmp_path, factory=other)
    with pytest.raises(ArtifactError, match="got another"):
        offramp.load(tmp_path, trust=[name])
    saved.save(tmp_path, factory=other, weights=True)
    assert_same(saved, offramp.load(tmp_path, trust=[name]), TEXTS)


def test_weights_that_were_in_an_artifact_are_saved_again(frontier: EarlyExitModel, tmp_path: Path) -> None:
    frontier.save(tmp_path / "one", weights=True)
    offramp.load(tmp_path / "one").save(tmp_path / "other")
    assert_same(frontier, offramp.load(tmp_path / "other"), PICTURES)
    given = offramp.load(tmp_path / "one", backbone=frontier.backbone)  # the network is somebody else's to keep
    assert not given.embedded
    given.save(tmp_path / "full")
    assert not [*(tmp_path / "full").glob("backbone*")]
    offramp.load(tmp_path / "one").save(tmp_path / "full", weights=False)
    assert not [*(tmp_path / "full").glob("backbone*")]


def test_a_new_process_gives_the_same_answers(frontier: EarlyExitModel, tmp_path: Path) -> None:
    frontier.save(tmp_path / "saved", weights=True)
    torch.save(torch.from_numpy(PICTURES), tmp_path / "inputs.pt")
    code = """
import json, sys, torch, offramp
torch.set_num_threads(1)
answer = offramp.load(sys.argv[1]).at(cost=0.9).predict(torch.load(sys.argv[2]))
print(json.dumps([answer.probabilities.tolist(), answer.exits.tolist(), answer.relative_cost.tolist()]))
"""
    command = [sys.executable, "-c", code, str(tmp_path / "saved"), str(tmp_path / "inputs.pt")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        answer = frontier.at(cost=0.9).predict(PICTURES)
    finally:
        torch.set_num_threads(threads)
    expected = [answer.probabilities.tolist(), answer.exits.tolist(), answer.relative_cost.tolist()]
    assert json.loads(done.stdout) == expected


class TestWhichNetwork:
    def test_another_one_is_refused(self, frontier: EarlyExitModel, tmp_path: Path) -> None:
        frontier.save(tmp_path)
        with pytest.raises(ArtifactError, match=r"content\.backbone\.fingerprint.*got another"):
            offramp.load(tmp_path, backbone=CifarResNet(8, num_classes=3))
        with pytest.raises(ArtifactError, match=r"content\.backbone\.name"):
            offramp.load(tmp_path, backbone=CifarResNet(14, num_classes=3))
        with pytest.raises(ArtifactError, match=r"content\.backbone\.num_classes"):
            offramp.load(tmp_path, backbone=CifarResNet(8))

    def test_without_its_weights_the_factory_alone_is_not_enough(
        self, frontier: EarlyExitModel, tmp_path: Path
    ) -> None:
        frontier.save(tmp_path)
        with pytest.raises(ArtifactError, match="other weights of it"):
            offramp.load(tmp_path)

    def test_without_a_factory_it_must_be_given(self, frontier: EarlyExitModel, tmp_path: Path) -> None:
        frontier.backbone.factory, kept = None, frontier.backbone.factory
        try:
            with pytest.raises(InputError, match="expected a factory that makes"):
                frontier.save(tmp_path, weights=True)
            frontier.save(tmp_path)
        finally:
            frontier.backbone.factory = kept
        with pytest.raises(ArtifactError, match=r"saved without a factory; give the network with backbone="):
            offramp.load(tmp_path)
        offramp.load(tmp_path, backbone=frontier.backbone)

    def test_what_the_caller_gives_is_left_as_it_is(self, frontier: EarlyExitModel, tmp_path: Path) -> None:
        frontier.save(tmp_path, weights=True)
        given = CifarResNet(8, num_classes=3)
        before = given.fingerprint()
        with pytest.raises(ArtifactError, match="the network that the exits were fitted for"):
            offramp.load(tmp_path, backbone=given)
        assert given.fingerprint() == before

    def test_trusting_it_is_not_enough_for_another_one(self, tmp_path: Path) -> None:
        of_texts().save(tmp_path, factory=Factory("offramp.backbone:CifarResNet", {"layers": 8, "num_classes": 3}))
        with pytest.raises(ArtifactError, match=r"content\.backbone\.name"):
            offramp.load(tmp_path, trust=["offramp.backbone:CifarResNet"])


@pytest.fixture(scope="module")
def spoken() -> EarlyExitModel:
    """A frontier that takes texts as they are."""
    return text_examples.fitted()


class TestTexts:
    def test_tokenizer_and_weights_come_back_with_it(self, spoken: EarlyExitModel, tmp_path: Path) -> None:
        spoken.save(tmp_path / "one", weights=True)
        loaded = offramp.load(tmp_path / "one")
        assert loaded.preprocessing == spoken.preprocessing
        assert loaded.backbone.preprocessing == spoken.preprocessing
        assert_same(spoken, loaded, RAW)
        # Once more, from what was loaded, down to the byte.
        loaded.save(tmp_path / "other", weights=True)
        files = sorted(file.name for file in (tmp_path / "one").iterdir())
        names = [file.partition("-")[0] for file in files]
        assert names == [".lock", "attachments", "backbone", "exits", "manifest.json", "points", "splits"]
        for file in files:
            assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "other" / file).read_bytes()

    def test_the_tokenizer_comes_along_without_the_weights(self, spoken: EarlyExitModel, tmp_path: Path) -> None:
        spoken.save(tmp_path, weights=False)
        assert not [*tmp_path.glob("backbone*")]
        given = text_examples.backbone()
        given.preprocessing = Preprocessing()
        assert_same(spoken, offramp.load(tmp_path, backbone=given), RAW)

    def test_one_tensor_a_file_named_by_its_hash(self, spoken: EarlyExitModel, tmp_path: Path) -> None:
        spoken.save(tmp_path, weights=True)
        (attached,) = spoken.preprocessing.attachments()  # of the backbone as well, which is the same file
        tensors = load_file(tensor_file(tmp_path, "attachments"))
        assert list(tensors) == [attached.sha256]
        assert tensors[attached.sha256].numpy().tobytes() == attached.content
        assert json.loads(attached.content)["model"]["vocab"]["word0"] == 4

    def test_nothing_attached_no_file(self, frontier: EarlyExitModel, tmp_path: Path) -> None:
        frontier.save(tmp_path)
        assert not [*tmp_path.glob("attachments*")]

    def test_answers_are_those_of_the_tokens(self, spoken: EarlyExitModel) -> None:
        network = spoken.at(cost=0.9)
        tokens = network.preprocessing(RAW)
        plain = replace(network, preprocessing=Preprocessing()).predict(tokens)
        assert torch.equal(network.predict(RAW).probabilities, plain.probabilities)

    def test_a_tokenizer_that_is_broken_is_not_saved(self, spoken: EarlyExitModel, tmp_path: Path) -> None:
        broken = Preprocessing().then("tokenize", tokenizer=Attachment(b"{}"), longest=8, pad=0)
        with pytest.raises(InputError, match="JSON cannot be read"):
            replace(spoken, preprocessing=broken).save(tmp_path)
        assert not list(tmp_path.iterdir())


@each("classes", [11, 1000])
def test_a_text_classifier_with_names_of_classes_under_integer_keys(tmp_path: Path, classes: int) -> None:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 30}
    sizes |= {"num_hidden_layers": 1, "num_labels": classes}
    config = BertConfig(**sizes)
    config.id2label = {number: f"intent {classes - number}" for number in range(classes)}
    config.label2id = {name: number for number, name in config.id2label.items()}
    model = BertForSequenceClassification(config)  # type: ignore[no-untyped-call]
    saved = frontier_of(text_backbone(model), TEXTS, random.Random(0))
    assert saved.backbone.factory is not None
    assert len(saved.backbone.factory.options["config"]["id2label"]) == classes
    saved.save(tmp_path, weights=True)
    loaded = offramp.load(tmp_path)
    assert loaded.backbone.factory == saved.backbone.factory
    assert_same(saved, loaded, TEXTS)


class TestClasses:
    def test_come_back(self, spoken: EarlyExitModel, frontier: EarlyExitModel, tmp_path: Path) -> None:
        assert spoken.classes == CLASSES
        assert frontier.classes == ()
        for saved in (spoken, frontier, replace(frontier, classes=("ä\N{SNOWMAN}", "", "b" * 900))):
            saved.save(tmp_path)
            assert offramp.load(tmp_path, backbone=saved.backbone).classes == saved.classes

    @each("classes", [("one",), ("one", "two"), ("a", "b", "c", "d"), "abc", ("a", "a", "b"), ("a", "b", "c" * 1001)])
    def test_as_many_as_the_network_has(self, classes: Any) -> None:
        with pytest.raises(InputError, match="expected 3 different names, one per class of 'cifar-resnet-8'"):
            fitted(examples.backbone(), preprocessing=PREPROCESSING, classes=classes)


class Other(nn.Module):
    """Twice the first."""

    def __init__(self, first: nn.Module) -> None:
        super().__init__()
        self.first = first

    def forward(self, x: torch.Tensor) -> Any:
        return 2 * self.first(x)


@pytest.mark.slow
class TestFactoriesThatMakeAnotherNetwork:
    """With its weights in it an artifact is to come back by itself: better refused when saved than when loaded."""

    def of_timm(self, **options: Any) -> EarlyExitModel:
        torch.manual_seed(0)
        return fitted(timm_backbone(timm.create_model("test_resnet", pretrained=False, num_classes=3, **options)))

    def test_of_timm_as_the_library_makes_it(self, tmp_path: Path) -> None:
        saved = self.of_timm()
        saved.save(tmp_path, weights=True)
        assert_same(saved, offramp.load(tmp_path), list(PICTURES[:4]))

    @each("options", [{"global_pool": "max"}, {"channels": (16, 32, 32, 64)}])
    def test_of_timm_with_other_options(self, options: Any, tmp_path: Path) -> None:
        saved = self.of_timm(**options)
        with pytest.raises(
            InputError,
            match=r"(?s)'timm' with .* does not make 'test_resnet' again: .*; give factory=",
        ):
            saved.save(tmp_path, weights=True)
        assert not list(tmp_path.iterdir())
        saved.save(tmp_path, weights=False)  # to be given when it is loaded
        offramp.load(tmp_path, backbone=saved.backbone)

    @each(
        "change",
        [
            lambda backbone: setattr(backbone.stages, "1", Other(backbone.stages[1])),
            lambda backbone: backbone.stages[0].append(nn.ReLU()),
            lambda backbone: backbone.register_buffer("more", torch.zeros(1)),
            lambda backbone: setattr(backbone, "name", "mine"),
        ],
    )
    def test_a_layer_changed_since(
        self, frontier: EarlyExitModel, tmp_path: Path, change: Callable[[Any], None]
    ) -> None:
        other: Any = examples.backbone()
        change(other)
        with pytest.raises(
            InputError,
            match=r"does not make .* again: (it was made with other options or changed since|weights do not fit)",
        ):
            replace(frontier, backbone=other).save(tmp_path, weights=True)

    def test_a_factory_of_another_size(self, frontier: EarlyExitModel, tmp_path: Path) -> None:
        for factory in (
            Factory("cifar_resnet", {"layers": 14, "num_classes": 3}),
            Factory("cifar_resnet", {"layers": 8, "num_classes": 4}),
            Factory("cifar_resnet", {"layers": 9}),
            Factory("timm", {"model": "test_resnet", "num_classes": 3}),
        ):
            with pytest.raises(InputError, match="does not make 'cifar-resnet-8' again"):
                frontier.save(tmp_path, factory=factory, weights=True)

    def test_weights_of_another_precision_are_the_same_network(self, tmp_path: Path) -> None:
        backbone = examples.backbone().double()
        saved = replace(resnet(), backbone=backbone)
        saved.save(tmp_path, weights=True)
        assert {parameter.dtype for parameter in offramp.load(tmp_path).backbone.parameters()} == {torch.float64}

    def test_saving_draws_no_random_numbers(self, frontier: EarlyExitModel, tmp_path: Path) -> None:
        state = torch.get_rng_state()
        frontier.save(tmp_path, weights=True)
        assert torch.equal(torch.get_rng_state(), state)

    def test_code_is_not_run_to_find_out(self, tmp_path: Path) -> None:
        """Of a cascade with a member that somebody's code makes, only who loads it can say that it may run."""
        name = f"{__name__}:second"
        torch.manual_seed(1)
        first, last = CifarResNet(8, num_classes=3), second()
        last.factory = Factory(name)
        saved = fitted(
            cascade(first, last), preprocessing=PREPROCESSING, fitting=offramp.FittingOptions(pooling="auto")
        )
        assert isinstance(saved.backbone, Cascade)  # or nothing is shown
        saved.save(tmp_path, weights=True)
        with pytest.raises(UntrustedNameError, match=name):
            offramp.load(tmp_path)
        assert_same(saved, offramp.load(tmp_path, trust=[name]), PICTURES)


def second() -> Backbone:
    return examples.backbone()


class TestFolders:
    def test_saved_twice(self, frontier: EarlyExitModel, tmp_path: Path) -> None:
        frontier.save(tmp_path, weights=True)
        first = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
        frontier.save(tmp_path, weights=True)
        assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == first
        assert_same(frontier, offramp.load(str(tmp_path)), PICTURES)

    def test_another_frontier_takes_the_place_of_the_first(self, frontier: EarlyExitModel, tmp_path: Path) -> None:
        frontier.save(tmp_path, weights=True)
        fewer = replace(frontier, points={"threshold": frontier.points["threshold"][:2]})
        fewer.save(tmp_path)
        assert_same(fewer, offramp.load(tmp_path, backbone=frontier.backbone), PICTURES)

    def test_interrupted_and_empty_ones_are_refused(self, frontier: EarlyExitModel, tmp_path: Path) -> None:
        frontier.save(tmp_path)
        (tmp_path / "manifest.json").unlink()
        for folder in (tmp_path, tmp_path / "nowhere"):
            with pytest.raises(ArtifactError, match=r"manifest\.json is not there.*interrupted"):
                offramp.load(folder, backbone=frontier.backbone)

    def test_one_that_cannot_be_written(self, frontier: EarlyExitModel, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("in the way")
        with pytest.raises(ArtifactError, match=r"cannot write .*file"):
            frontier.save(tmp_path / "file")

    def test_another_version_is_refused(self, frontier: EarlyExitModel, tmp_path: Path) -> None:
        frontier.save(tmp_path)
        for version in (2, 5):
            change_manifest(tmp_path, lambda whole, version=version: whole.update(version=version))  # type: ignore[misc]
            with pytest.raises(
                ArtifactError, match=rf"expected version 1 of the format, got version {version}; install"
            ):
                offramp.load(tmp_path, backbone=frontier.backbone)

    def test_who_leaves_where_comes_back(self, frontier: EarlyExitModel, tmp_path: Path) -> None:
        frontier.save(tmp_path)
        loaded = offramp.load(tmp_path, backbone=frontier.backbone)
        for policy, points in frontier.points.items():
            for one, other in zip(points, loaded.points[policy], strict=True):
                assert one.leaving is not None
                assert other.leaving is not None
                assert torch.equal(one.leaving, other.leaving)

    def test_milliseconds_come_back(self, frontier: EarlyExitModel, tmp_path: Path) -> None:
        timed = frontier.with_latency(table_of(frontier))
        timed.save(tmp_path)
        loaded = offramp.load(tmp_path, backbone=frontier.backbone)
        assert_same(timed, loaded, PICTURES)
        assert loaded.unit == timed.unit == CostUnit("ms", 10.0)
        assert loaded.at(latency_ms=9.0).point.tune_metrics == timed.at(latency_ms=9.0).point.tune_metrics

    def test_milliseconds_of_one_size_of_texts_come_back(self, tmp_path: Path) -> None:
        texts = of_texts()
        timed = texts.with_latency(table_of(texts))
        assert [len(timed.costs[policy].tables) for policy in timed.points] == [1, 1, 1]
        timed.save(tmp_path)
        loaded = offramp.load(tmp_path, backbone=texts.backbone)
        assert loaded.unit == timed.unit == CostUnit("ms", 10.0)
        # All that was counted is kept: times of several sizes price it still.
        several = replace(table_of(texts, size=8.0), others=(table_of(texts, size=2.0, full=(4.0,)),))
        for policy, points in timed.with_latency(several).points.items():
            again = loaded.with_latency(several).points[policy]
            # Sums of the same numbers may differ in the last bit.
            assert [point.tune_metrics for point in again] == [pytest.approx(point.tune_metrics) for point in points]


class Mine(LadderExits):
    """Exits of third-party code."""


def test_exits_of_third_party_code_need_trust(frontier: EarlyExitModel, tmp_path: Path) -> None:
    exits = Mine(frontier.exits.widths, frontier.exits.stages, 3, width=8)
    replace(frontier, exits=exits).save(tmp_path)
    kind = f"{Mine.__module__}:Mine"
    with pytest.raises(UntrustedNameError, match=f"field 'content.exits.kind': '{kind}' is third-party code"):
        offramp.load(tmp_path, backbone=frontier.backbone)
    assert type(offramp.load(tmp_path, backbone=frontier.backbone, trust=[kind]).exits).__name__ == "Mine"


class TestWhatCannotBeSaved:
    def test_exits_in_two_precisions(self, frontier: EarlyExitModel, tmp_path: Path) -> None:
        exits = LadderExits(frontier.exits.widths, frontier.exits.stages, 3, width=8)
        exits.head.data = exits.head.data.half()
        with pytest.raises(InputError, match="one precision of"):
            replace(frontier, exits=exits).save(tmp_path)

    def test_options_that_json_does_not_hold(self, frontier: EarlyExitModel, tmp_path: Path) -> None:
        with pytest.raises(ArtifactError, match="options must be numbers, texts, or lists"):
            frontier.save(tmp_path, factory=Factory("a:b", {"module": nn.Linear(1, 1)}))

    def test_preprocessing_that_would_be_refused(self, frontier: EarlyExitModel, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="parameter 'size': expected 1 to 4096"):
            replace(frontier, preprocessing=Preprocessing().then("center_crop", size=0)).save(tmp_path)

    def test_thresholds_in_another_precision(self, frontier: EarlyExitModel, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"temperatures: expected torch\.float32, got torch\.float64"):
            replace(frontier, temperatures=frontier.temperatures.double()).save(tmp_path)

    def test_weights_that_are_quantised(self, frontier: EarlyExitModel, tmp_path: Path) -> None:
        class Packed(CifarResNet):
            def state_dict(self, *_: Any, **__: Any) -> Any:
                return {"packed": (torch.ones(1), None)}

        with pytest.raises(InputError, match="can be embedded, got quantised ones"):
            replace(frontier, backbone=Packed(8, num_classes=3)).save(tmp_path, weights=True)


def test_exits_may_be_in_half_precision(frontier: EarlyExitModel, tmp_path: Path) -> None:
    frontier.save(tmp_path, weights=True)
    halved = offramp.load(tmp_path)
    halved.exits.half()
    halved.save(tmp_path / "half", weights=True)
    assert_same(halved, offramp.load(tmp_path / "half"), PICTURES)


def test_bert_is_the_same_every_time() -> None:
    assert bert().fingerprint() == of_texts().backbone.fingerprint()
