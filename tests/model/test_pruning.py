"""Networks of a cascade that pay for themselves and networks that do not, by hand and for real."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import offramp
from offramp.backbone import Axes, Cascade
from offramp.backbone._backbone import Backbone
from offramp.backbone._cascading import cascade
from offramp.backbone._hidden import Hidden
from offramp.backbone.adapters._callable import callable_model
from offramp.cost import count_backbone
from offramp.data import as_source
from offramp.features import ArraySource, StoreSource, extract, split_by_id
from offramp.features._batch import MemorySource
from offramp.model import fit_features
from offramp.model._fitting import Splits, prune_members
from offramp.model._frontier import Contribution
from offramp.model._model import EarlyExitModel
from offramp.model._outcomes import compute_outcomes
from offramp.policy import OperatingPoint
from offramp.pooling import POOLINGS, Tokens
from offramp.preprocessing import STEPS, Preprocessing
from tests.cases import each
from tests.model.cascade_examples import FEW, QUICK, K, check_predictions, fit, network, pair, vectors
from tests.model.examples import images


def plain(name: str, layers: int) -> Backbone:
    stages: list[nn.Module] = [nn.Linear(2, 2) for _ in range(layers)]
    return Backbone(name, stages, {layers - 1: nn.Linear(2, 2)}, num_classes=2)


class Fits:
    """Pretends to fit: a frontier whose area is what `worth` says of the cascade, and a note of what was asked."""

    def __init__(self, worth: dict[str, float]) -> None:
        self.worth = worth
        self.asked: list[tuple[str, tuple[int, ...]]] = []

    def __call__(self, backbone: Backbone, sources: Splits) -> EarlyExitModel:
        assert all(source is not None and source.widths == sources[1].widths for source in sources)
        assert sources[1].own_heads == backbone.own_heads
        self.asked.append((backbone.name, sources[1].widths))
        accuracy = self.worth[backbone.name]
        tune_metrics = {"cost": 0.05, "accuracy": accuracy}
        point = OperatingPoint(
            "threshold", {}, (backbone.num_exits - 1,), torch.ones(backbone.num_exits), tune_metrics=tune_metrics
        )
        nothing: Any = None
        return EarlyExitModel(
            backbone=backbone,
            preprocessing=backbone.preprocessing,
            pooling=nothing,
            exits=nothing,
            costs={},
            points={"threshold": [point]},
            temperatures=nothing,
            full_accuracy=0.9,
            contributions=[Contribution(str(exit), 0.0, kept=exit != 1) for exit in range(backbone.num_exits - 1)],
        )


def dropped(worth: dict[str, float], *members: Backbone) -> tuple[EarlyExitModel, list[tuple[str, tuple[int, ...]]]]:
    """The frontier that is kept, and what was fitted on the way."""
    backbone = cascade(*members) if len(members) > 1 else members[0]
    fits = Fits(worth)
    splits = sources(backbone)
    return prune_members(fits(backbone, splits), splits, fits), fits.asked


def sources(backbone: Backbone) -> Splits:
    """Stage s has s + 1 features, so that widths say which stages are there."""
    widths = tuple(range(1, backbone.num_exits + 1))
    own = {stage: torch.zeros(1, 2) for stage in backbone.own_heads}
    same = MemorySource(torch.zeros(1, sum(widths)), own, torch.tensor([0]), widths)
    return same, same, same


A, B, C = plain("a", 1), plain("b", 2), plain("c", 2)


class TestBookkeeping:
    def test_a_single_network_is_fitted_and_that_is_all(self) -> None:
        frontier, asked = dropped({"c": 0.5}, C)
        assert frontier.backbone is C
        assert asked == [("c", (1, 2))]
        assert told(frontier) == []

    def test_a_member_that_pays_is_kept(self) -> None:
        frontier, asked = dropped({"b+c": 0.8, "c": 0.7}, B, C)
        assert frontier.backbone.name == "b+c"
        assert asked == [("b+c", (1, 2, 3, 4)), ("c", (3, 4))]
        assert told(frontier) == [("b", 0.1, True)]

    @each("alone", [0.8, 0.85])
    def test_a_member_that_does_not_pay_is_dropped_also_on_a_tie(self, alone: float) -> None:
        frontier, asked = dropped({"b+c": 0.8, "c": alone}, B, C)
        assert frontier.backbone is C
        assert len(asked) == 2
        assert told(frontier) == [("b", 0.8 - alone, False)]

    def test_three_that_all_pay(self) -> None:
        frontier, asked = dropped({"a+b+c": 0.8, "b+c": 0.7, "a+c": 0.6}, A, B, C)
        assert frontier.backbone.name == "a+b+c"
        assert asked == [("a+b+c", (1, 2, 3, 4, 5)), ("b+c", (2, 3, 4, 5)), ("a+c", (1, 4, 5))]
        assert told(frontier) == [("a", 0.1, True), ("b", 0.2, True)]

    def test_one_of_three_goes_and_the_other_is_judged_without_it(self) -> None:
        # Beside b, a brings less than nothing, and b little; without a, b is worth a lot.
        worth = {"a+b+c": 0.8, "b+c": 0.82, "a+c": 0.79, "c": 0.6}
        frontier, asked = dropped(worth, A, B, C)
        assert frontier.backbone.name == "b+c"
        assert asked[3:] == [("c", (4, 5))]  # what has been fitted is not fitted again
        assert told(frontier) == [("a", -0.02, False), ("b", 0.22, True)]

    def test_a_member_that_seemed_not_to_pay_may_stay_once_another_is_gone(self) -> None:
        worth = {"a+b+c": 0.8, "b+c": 0.83, "a+c": 0.82, "c": 0.7}
        frontier, _ = dropped(worth, A, B, C)
        assert frontier.backbone.name == "b+c"
        assert told(frontier) == [("a", -0.03, False), ("b", 0.13, True)]

    def test_both_of_three_go(self) -> None:
        worth = {"a+b+c": 0.8, "b+c": 0.83, "a+c": 0.85, "c": 0.9}
        frontier, asked = dropped(worth, A, B, C)
        assert frontier.backbone is C
        assert told(frontier) == [("b", -0.05, False), ("a", -0.05, False)]
        assert [name for name, _ in asked] == ["a+b+c", "b+c", "a+c", "c"]
        assert asked[-1] == ("c", (4, 5))

    def test_what_cannot_be_fitted_without_a_member_keeps_it(self) -> None:
        last = callable_model(lambda inputs: inputs, 2, name="function", mul_adds=10)
        frontier, asked = dropped({"b+function": 0.5}, B, last)
        assert frontier.backbone.name == "b+function"
        assert [name for name, _ in asked] == ["b+function"]

    def test_the_table_tells(self) -> None:
        frontier, _ = dropped({"a+b+c": 0.8, "b+c": 0.82, "a+c": 0.79, "c": 0.6}, A, B, C)
        lines = str(frontier.frontier).splitlines()
        assert lines[0] == "frontier of b+c by threshold, all points, measured on the tune split"
        assert lines[-2] == "gain of each member, in points of mean accuracy: a -2.00 (dropped), b +22.00"
        assert lines[-1] == "exits dropped because they do not raise accuracy: 1"

    def test_a_long_name_stays_on_its_line(self) -> None:
        members = [plain(f"a-network-of-quite-a-long-name-{index}", 1) for index in range(4)]
        frontier = Fits({cascade(*members).name: 0.5})(cascade(*members), sources(cascade(*members)))
        assert str(frontier.frontier).splitlines()[0].startswith(f"frontier of {cascade(*members).name} by threshold")
        assert max(map(len, str(frontier.frontier).splitlines()[1:])) < 60

    def test_a_network_without_members_or_dropped_exits_ends_with_the_table(self) -> None:
        frontier, _ = dropped({"a": 0.5}, A)
        assert str(frontier.frontier).splitlines()[-1].startswith("└")


def told(frontier: EarlyExitModel) -> list[tuple[str, Any, bool]]:
    """Return name, gain and fate of the members, which come before the exits."""
    first = len(frontier.contributions) - (frontier.backbone.num_exits - 1)
    assert [one.name for one in frontier.contributions[first:]] == list(
        map(str, range(frontier.backbone.num_exits - 1))
    )
    return [(one.name, pytest.approx(one.gain), one.kept) for one in frontier.contributions[:first]]


@pytest.fixture(scope="module")
def together() -> EarlyExitModel:
    return fit(pair())


class TestFits:
    def test_a_cheap_network_that_knows_something_is_kept(self, together: EarlyExitModel, tmp_path: Path) -> None:
        assert together.backbone.name == "first+second"
        assert together.contributions[0].name == "first"
        assert together.contributions[0].gain > 0.02
        assert len(together.contributions) == 1 + 4
        assert together.exits.averaging.shares[1] > 0
        check_predictions(together, vectors(200, seed=7), tmp_path, costs=(0.1, 0.4, 0.8, 1.2))

    def test_a_network_that_sees_nothing_is_dropped(self, tmp_path: Path) -> None:
        blind, good = network("blind", width=300), network("second", width=400, layers=3)
        frontier = fit(cascade(blind, good))
        assert frontier.backbone is good
        assert [one.name for one in frontier.contributions] == ["blind", "0", "1"]
        assert frontier.contributions[0].gain < 0
        assert not frontier.contributions[0].kept
        assert frontier.exits.averaging.stages == ()
        check_predictions(frontier, vectors(200, seed=7), tmp_path, costs=(0.3, 0.6, 1.2))

    def test_a_network_that_sees_nothing_is_dropped_from_three(self, together: EarlyExitModel, tmp_path: Path) -> None:
        frontier = fit(cascade(network("blind", width=300), *cascade_members(together)))
        assert frontier.backbone.name == "first+second"
        assert [(one.name, one.kept) for one in frontier.contributions[:2]] == [("blind", False), ("first", True)]
        assert [one.name for one in frontier.contributions[1:]] == [one.name for one in together.contributions]
        check_predictions(frontier, vectors(200, seed=7), tmp_path, costs=(0.1, 0.6, 1.2))

    def test_changes_are_against_the_last_network_alone(self, together: EarlyExitModel, tmp_path: Path) -> None:
        inputs, labels = vectors(300, seed=7)
        source = ArraySource(inputs, labels, name="test")
        store = extract(together.backbone, source, tmp_path, poolings=("auto",), dtype=torch.float32, progress=False)
        rows = StoreSource(store, pooling="auto")
        assert isinstance(together.backbone, Cascade)
        last = float((together.backbone.members[-1](torch.tensor(inputs)).argmax(1).numpy() == labels).mean())
        everything = together.points["threshold"][-1]
        measured = together.evaluate(rows, points=[everything]).rows[0]
        assert measured.accuracy > last  # the average is better
        assert measured.change == pytest.approx(measured.accuracy - last)
        seen = compute_outcomes(together.exits, rows, together.temperatures)
        assert float(seen.full_correct.double().mean()) == pytest.approx(last)
        assert float(seen.correct[0, :, -1].double().mean()) > last

    def test_full_accuracy_and_full_cost_are_the_last_networks(self, tmp_path: Path) -> None:
        backbone = pair()
        inputs, labels = vectors(700, seed=3)
        store = extract(backbone, ArraySource(inputs, labels, name="all"), tmp_path, progress=False)
        rows = split_by_id(store.ids(), [350, 250, 100])
        parts = [StoreSource(store, pooling="rich", rows=part) for part in rows]
        frontier = fit_features(backbone, *parts, example=torch.tensor(inputs[:1]), settings=QUICK)
        answers = backbone.members[-1](torch.tensor(inputs[rows[1]])).argmax(1).numpy()
        assert frontier.full_accuracy == pytest.approx((answers == labels[rows[1]]).mean())
        full = count_backbone(backbone.members[-1], torch.tensor(inputs[:1]), POOLINGS.get("auto")).full
        assert all(costs.tables[0].full == full[0] for costs in frontier.costs.values())
        last = frontier.points["threshold"][-1].tune_metrics["accuracy"]
        assert last > frontier.full_accuracy
        assert f"{100 * (last - frontier.full_accuracy):+.2f}" in str(frontier.frontier)


def cascade_members(frontier: EarlyExitModel) -> tuple[Backbone, ...]:
    assert isinstance(frontier.backbone, Cascade)
    return frontier.backbone.members


PHOTOS = offramp.image_preprocessing(mean=(0.5,) * 3, std=(0.25,) * 3)


def coarse(size: int) -> Preprocessing:
    return Preprocessing((PHOTOS.steps[0], ("resize", {"size": size, "mode": "bilinear"}), *PHOTOS.steps[1:]))


def small_images(count: int, *, seed: int) -> tuple[Any, Any]:
    inputs, labels = images(count, seed=seed)
    return np.ascontiguousarray(inputs[:, ::4, ::4]), labels


def convolutions(name: str, channels: int, preprocessing: Preprocessing, *, blind: bool = False) -> Backbone:
    """Two random layers and a head on the centroids of what they give; a blind one looks at nothing."""
    torch.manual_seed(channels)
    stages: list[nn.Module] = [
        nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), nn.ReLU()),
        nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU()),
    ]
    linear = nn.Linear(channels, K)
    inputs, labels = small_images(200, seed=97)
    with torch.no_grad():
        if blind:
            next(stages[0].parameters()).zero_()
        pooled = nn.Sequential(*stages)(preprocessing(inputs)).mean((2, 3))
        centroids = torch.stack([pooled[torch.tensor(labels) == label].mean(0) for label in range(K)])
        apart = centroids - centroids.mean(0)
        linear.weight.copy_(4 * apart / apart.square().sum(1).mean().clamp_min(1e-6))
        linear.bias.copy_(-linear.weight @ centroids.mean(0))
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), linear)
    backbone = Backbone(name, stages, {1: head}, num_classes=K)
    backbone.preprocessing = preprocessing
    return backbone


def fit_images(backbone: Backbone, **options: Any) -> EarlyExitModel:
    train, validation = small_images(200, seed=1), small_images(200, seed=2)
    return offramp.fit(backbone, train, validation, settings=FEW, progress=False, **options)


class TestPreparations:
    def test_a_lower_resolution_first(self, tmp_path: Path) -> None:
        frontier = fit_images(cascade(convolutions("low", 4, coarse(4)), convolutions("high", 32, PHOTOS)))
        assert frontier.backbone.name == "low+high"
        assert frontier.preprocessing == Preprocessing()
        check_predictions(frontier, small_images(100, seed=5), tmp_path, costs=(0.1, 0.5, 1.2))

    def test_the_last_network_alone_prepares_raw_inputs_itself(self, tmp_path: Path) -> None:
        frontier = fit_images(cascade(convolutions("low", 48, coarse(6), blind=True), convolutions("high", 32, PHOTOS)))
        assert frontier.backbone.name == "high"
        assert frontier.preprocessing == PHOTOS
        check_predictions(frontier, small_images(100, seed=5), tmp_path, costs=(0.5, 1.2))

    def test_what_remains_of_three_prepares_raw_inputs_alike(self, tmp_path: Path) -> None:
        low = convolutions("low", 64, coarse(4), blind=True)
        frontier = fit_images(cascade(low, convolutions("first", 4, PHOTOS), convolutions("second", 32, PHOTOS)))
        assert frontier.backbone.name == "first+second"
        assert frontier.preprocessing == PHOTOS
        check_predictions(frontier, small_images(100, seed=5), tmp_path / "test", costs=(0.1, 1.2))

    def test_members_that_are_called_the_same_are_told_apart(self, tmp_path: Path) -> None:
        # One network at two resolutions before another: without either member, the names that remain are equal.
        def three() -> Cascade:
            return cascade(
                convolutions("low", 4, coarse(4)), convolutions("low", 4, coarse(6)), convolutions("high", 32, PHOTOS)
            )

        first = fit_images(three(), store=tmp_path)
        checkpoints = sorted(tmp_path.glob("fit-*.safetensors"))
        assert len(checkpoints) >= 3
        before = [path.stat().st_mtime_ns for path in checkpoints]
        second = fit_images(three(), store=tmp_path)
        assert sorted(tmp_path.glob("fit-*.safetensors")) == checkpoints
        assert [path.stat().st_mtime_ns for path in checkpoints] == before  # nothing was fitted again
        assert first.contributions == second.contributions
        assert [p.tune_metrics for p in first.points["gates"]] == [p.tune_metrics for p in second.points["gates"]]


WORDS = ["red green blue", "one two three four five six seven eight", "fox dog"]


def words(inputs: Any, generator: torch.Generator, /) -> dict[str, torch.Tensor]:
    """Texts as token ids, a word a token."""
    numbers = [[1 + sum(word.encode()) % 60 for word in str(text).split()] for text in inputs]
    ids = torch.zeros(len(numbers), max(map(len, numbers)), dtype=torch.long)
    for row, found in zip(ids, numbers, strict=True):
        row[: len(found)] = torch.tensor(found)
    return {"ids": ids, "mask": (ids > 0).float()}


STEPS.add("words of members", words)


def texts(count: int, *, seed: int) -> tuple[Any, Any]:
    """Texts of one to seven words, most of them of the class; an array of objects, as tables of texts are."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, K, count)
    made = np.empty(count, dtype=object)
    for row, label in enumerate(labels):
        subjects = np.where(draw.random(draw.integers(1, 8)) < 0.7, label, draw.integers(0, K))
        made[row] = " ".join(str(draw.choice(WORDS[subject].split())) for subject in subjects)
    return made, labels


class _Embed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(61, 32, padding_idx=0)

    def forward(self, hidden: Hidden) -> Hidden:
        return {"states": self.table(hidden["ids"]), "mask": hidden["mask"]}


class _Mix(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide, self.back = nn.Linear(32, 200), nn.Linear(200, 32)

    def forward(self, hidden: Hidden) -> Hidden:
        return {**hidden, "states": hidden["states"] + self.back(torch.tanh(self.wide(hidden["states"])))}


class _MeanHead(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(32, K)

    def forward(self, hidden: Hidden) -> torch.Tensor:
        weights = hidden["mask"] / hidden["mask"].sum(1, keepdim=True)
        logits: torch.Tensor = self.linear((hidden["states"] * weights[..., None]).sum(1))
        return logits


class TextBackbone(Backbone):
    """Words, each by itself: what a text costs grows with its words."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__("words", [_Embed(), _Mix(), _Mix()], {2: _MeanHead()}, num_classes=K)
        self.preprocessing = Preprocessing().then("words of members")

    def axes(self, depth: int) -> Axes:
        return Axes(lengths=(1,))

    def sizes(self, inputs: Hidden) -> torch.Tensor:
        sizes: torch.Tensor = inputs["mask"].sum(1)
        return sizes

    def representation(self, hidden: Hidden, stage: int) -> Tokens:
        return Tokens(hidden["states"], mask=hidden["mask"].bool())


def by_hand(inputs: Any) -> Any:
    """Log-probabilities from a count of each class's words: any function may be a member."""
    counts = [[sum(word in subject.split() for word in str(text).split()) for subject in WORDS] for text in inputs]
    return np.log((np.array(counts) + 0.3) / (np.array(counts) + 0.3).sum(1, keepdims=True))


class TestTexts:
    def test_a_function_of_texts_before_a_network(self, tmp_path: Path) -> None:
        backbone = cascade(callable_model(by_hand, K, name="counts", mul_adds=50), TextBackbone())

        def run() -> EarlyExitModel:
            # Short texts of few words repeat themselves: ids say that these are different samples.
            train, validation = (
                ArraySource(*texts(300, seed=seed), name=name, ids=np.arange(300) + 300 * seed)
                for seed, name in ((1, "train"), (2, "validation"))
            )
            return offramp.fit(
                backbone, train, validation, settings=FEW, store=tmp_path / "store", anyway=True, progress=False
            )

        frontier = run()
        assert frontier.backbone is backbone
        kept = frontier.contributions[0]
        assert (kept.name, kept.kept) == ("counts", True)
        inputs, labels = texts(150, seed=5)
        check_predictions(frontier, (inputs, labels), tmp_path / "test", costs=(0.3, 1.2))
        # Those who go to the end pay for their words, and the function the same for all.
        answer = frontier.at(cost=1.2, policy="threshold").predict(inputs)
        words_of = torch.tensor([len(text.split()) for text in inputs])
        ended = answer.exits == 3
        table = frontier.costs["threshold"].of(words_of)
        torch.testing.assert_close(table.full, 2.0 * 2 * 32 * 200 * words_of + 32 * K, check_dtype=False)
        assert len({*words_of[ended].tolist()}) > 2
        assert (table.stage[:, 0] == 50).all()
        assert [p.tune_metrics for p in run().points["gates"]] == [p.tune_metrics for p in frontier.points["gates"]]

    def test_texts_are_known_by_what_they_say(self) -> None:
        def named(*said: str, kind: Any = object) -> str:
            # Made anew each time, so that they lie elsewhere in memory.
            return as_source((np.array(["".join(text) for text in said], dtype=kind), np.arange(len(said))), "t").name

        assert named("ab", "cde") == named("ab", "cde")
        assert len({named("ab", "cde"), named("ab", "cdf"), named("ab", "cde", kind="U"), named("ab", "cde", "f")}) == 4
