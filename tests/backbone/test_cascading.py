"""Cascades of networks against each network run alone: images, vectors, functions, texts."""

import copy
import pickle
import warnings
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

from offramp.backbone import Cascade
from offramp.backbone._backbone import Backbone
from offramp.backbone._cascading import cascade
from offramp.backbone._cifar_resnet import CifarResNet
from offramp.backbone._hidden import Hidden, batch_size
from offramp.backbone.adapters._callable import callable_model
from offramp.backbone.adapters.transformers import text_backbone
from offramp.cost import count_backbone
from offramp.cost._mul_adds import price
from offramp.errors import CallError, InputError
from offramp.exits import LinearExits
from offramp.exits._averaging import Averaging
from offramp.pooling._pooling import AutoPooling, MeanPooling
from offramp.preprocessing import STEPS, Preprocessing
from offramp.preprocessing._images import image_preprocessing
from offramp.testing import check_backbone
from tests.cases import each, refuses

K = 3
TEXTS = np.array(["a red fox", "two", "the sea is very blue today", "blue", "no rain in the hills", "red sky"])
PHOTOS = image_preprocessing(mean=(0.5,) * 3, std=(0.25,) * 3)
COARSE = Preprocessing((PHOTOS.steps[0], ("resize", {"size": 8, "mode": "bilinear"}), *PHOTOS.steps[1:]))


def words(inputs: Any, generator: torch.Generator, /) -> dict[str, Tensor]:
    """Texts as token ids, a word a token: a preparing step that a user may register."""
    numbers = [[1 + sum(word.encode()) % 40 for word in str(text).split()] for text in inputs]
    ids = torch.zeros(len(numbers), max(map(len, numbers)), dtype=torch.long)
    for row, found in zip(ids, numbers, strict=True):
        row[: len(found)] = torch.tensor(found)
    return {"input_ids": ids, "attention_mask": (ids > 0).long()}


def first_words(inputs: Any, generator: torch.Generator, /) -> dict[str, Tensor]:
    """The first half of every text."""
    return {name: leaf[:, : leaf.shape[1] // 2] for name, leaf in words(inputs, generator).items()}


STEPS.add("words", words)
STEPS.add("first_words", first_words)


def vectors(name: str, *widths: int, seed: int = 0) -> Backbone:
    """Layers from 4 numbers to the given widths, and a head."""
    torch.manual_seed(seed)
    stages = [nn.Sequential(nn.Linear(a, b), nn.Tanh()) for a, b in pairwise((4, *widths))]
    return Backbone(name, stages, {len(stages) - 1: nn.Linear(widths[-1], K)}, num_classes=K)


def convolutions(layers: int, preprocessing: Preprocessing) -> Backbone:
    torch.manual_seed(layers)
    channels = [3] + [4] * layers
    stages = [nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.ReLU()) for a, b in pairwise(channels)]
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, K))
    network = Backbone(f"conv-{layers}", stages, {layers - 1: head}, num_classes=K)
    network.preprocessing = preprocessing
    return network


def bytes_of(count: int, seed: int) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (count, 16, 16, 3), np.uint8)


def numbers(count: int, seed: int) -> Any:
    return np.random.default_rng(seed).normal(size=(count, 4)).astype(np.float32)


def tokens(count: int, seed: int) -> Any:
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 4 + seed, (count,), generator=draw)
    mask = (torch.arange(9) < lengths[:, None]).long()
    return {"input_ids": torch.randint(1, 40, (count, 9), generator=draw) * mask, "attention_mask": mask}


def texts(count: int, seed: int) -> Any:
    return TEXTS[(np.arange(count) + seed) % len(TEXTS)]


def pixels_pipeline() -> Any:
    """A scikit-learn pipeline on arrays of numbers."""
    labels = np.arange(60) % K
    return make_pipeline(StandardScaler(), LogisticRegression()).fit(numbers(60, 9) + labels[:, None], labels)


def words_pipeline() -> Any:
    """A scikit-learn pipeline on an array of texts."""
    return make_pipeline(CountVectorizer(), LogisticRegression()).fit(TEXTS, np.arange(len(TEXTS)) % K)


@cache
def bert(layers: int) -> Backbone:
    torch.manual_seed(layers)
    config = BertConfig(
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=24,
        num_hidden_layers=layers,
        vocab_size=50,
        max_position_embeddings=32,
    )
    config.num_labels = K
    network: Any = BertForSequenceClassification
    return text_backbone(network(config), name=f"bert-{layers}")


def raw_bert(layers: int = 2) -> Backbone:
    """The same from raw texts."""
    backbone = copy.copy(bert(layers))
    backbone.preprocessing = Preprocessing().then("words")
    return backbone


def rounded() -> Backbone:
    """The second of two networks in bfloat16, as a function: the cheap twin of a network."""
    half = vectors("exact", 6, 5, seed=1).bfloat16()
    return callable_model(lambda inputs: half(half.prepare(inputs)), K, name="rounded", mul_adds=10)


def eight_bits(weight: Tensor) -> Tensor:
    with warnings.catch_warnings(
        action="ignore"
    ):  # torch is about to give these tensors up; networks of today have them
        return torch.quantize_per_tensor(weight, float(weight.abs().max()) / 127, 0, torch.qint8)


class Quantised(nn.Module):
    """A linear layer with its weight in 8 bits, kept where torch's quantised modules keep theirs: beside tensors."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.packed = eight_bits(linear.weight.detach()), linear.bias.detach()

    def get_extra_state(self) -> Any:
        return self.packed, torch.qint8

    def set_extra_state(self, state: Any) -> None:
        self.packed = state[0]

    def forward(self, inputs: Tensor) -> Tensor:
        weight, bias = self.packed
        return nn.functional.linear(torch.as_tensor(inputs), weight.dequantize(), bias)


def quantised() -> Backbone:
    """A network with its layers in 8 bits."""
    exact = vectors("exact", 6, 5, seed=1)
    layers = [part for stage in exact.stages for part in stage.children()] + [exact.heads["1"]]
    made = nn.Sequential(*(Quantised(one) if isinstance(one, nn.Linear) else one for one in layers))
    return callable_model(made, K, name="quantised", mul_adds=20)


Build = Callable[[], Cascade]
CASES: dict[str, tuple[Build, Callable[[int, int], Any]]] = {
    "alike": (lambda: cascade(convolutions(2, PHOTOS), convolutions(3, PHOTOS)), bytes_of),
    "coarse first": (lambda: cascade(convolutions(2, COARSE), convolutions(3, PHOTOS)), bytes_of),
    "same network coarse first": (lambda: cascade(convolutions(2, COARSE), convolutions(2, PHOTOS)), bytes_of),
    "three": (lambda: cascade(vectors("a", 3), vectors("b", 6, 5), vectors("c", 8, 8, 7)), numbers),
    "three, two of them alike": (
        lambda: cascade(convolutions(2, COARSE), convolutions(2, PHOTOS), convolutions(3, PHOTOS)),
        bytes_of,
    ),
    "a cascade as a member": (lambda: cascade(vectors("a", 3), cascade(vectors("b", 6, 5), vectors("c", 8))), numbers),
    "a function of numbers": (
        lambda: cascade(
            callable_model(pixels_pipeline().decision_function, K, name="logistic", mul_adds=10), vectors("b", 6, 5)
        ),
        numbers,
    ),
    "a function last": (
        lambda: cascade(
            vectors("b", 6, 5), callable_model(pixels_pipeline().predict_log_proba, K, name="logistic", mul_adds=10)
        ),
        numbers,
    ),
    "a function of texts": (
        lambda: cascade(callable_model(words_pipeline().decision_function, K, name="words", mul_adds=30), raw_bert()),
        texts,
    ),
    "two functions of texts": (
        lambda: cascade(
            callable_model(words_pipeline().decision_function, K, name="words", mul_adds=10),
            callable_model(words_pipeline().predict_log_proba, K, name="more words", mul_adds=10),
        ),
        texts,
    ),
    "half precision first": (lambda: cascade(rounded(), vectors("exact", 6, 5, seed=1)), numbers),
    "quantised first": (lambda: cascade(quantised(), vectors("exact", 6, 5, seed=1)), numbers),
    "texts": (lambda: cascade(bert(1), bert(2)), tokens),
}


def run(backbone: Backbone, inputs: Hidden) -> list[Hidden]:
    """The hidden state at every depth, the inputs first."""
    found = [inputs]
    for stage in backbone.stages:
        found.append(stage(found[-1]))
    return found


def alone(member: Backbone, raw: Any) -> list[Hidden]:
    return run(member, member.prepare(member.preprocessing(raw)))


class TestContract:
    @each("name", CASES)
    def test_of_every_backbone(self, name: str) -> None:
        build, inputs = CASES[name]
        both = build()
        first, second = (both.prepare(both.preprocessing(inputs(count, seed))) for count, seed in ((5, 1), (2, 4)))
        last = both.members[-1]
        plain = not isinstance(last, Cascade) and not last.declared_mul_adds
        prepared = both.inputs_of_members
        network = (lambda given: last(prepared(given)[-1])) if plain else None
        check_backbone(both, first, second, network=network)

    @each("name", CASES)
    def test_pieces_are_each_network_run_alone(self, name: str) -> None:
        build, inputs = CASES[name]
        both = build()
        raw = inputs(4, 2)
        states = run(both, both.prepare(both.preprocessing(raw)))
        pooling = AutoPooling()
        # Bit for bit; but a function may compute otherwise on tensors than on arrays.
        rounding = 1e-5 if "logistic" in both.name else 0
        for member, stages in zip(both.members, both.stages_of_members, strict=True):
            for (stage, hidden), expected in zip(
                ((stage, states[stage + 1]) for stage in stages), alone(member, raw)[1:], strict=True
            ):
                local = stage - stages.start
                found, wanted = both.representation(hidden, stage), member.representation(expected, local)
                torch.testing.assert_close(pooling(found), pooling(wanted), rtol=rounding, atol=rounding)
                if local in member.own_heads:
                    logits, own = both.own_logits(hidden, stage), member.own_logits(expected, local)
                    torch.testing.assert_close(logits, own, rtol=rounding, atol=rounding)

    @each("name", CASES)
    def test_inputs_ride_along_until_the_last_network_has_started(self, name: str) -> None:
        build, inputs = CASES[name]
        both = build()
        given = both.prepare(both.preprocessing(inputs(3, 0)))
        last = both.stages_of_members[-1].start
        for depth, hidden in enumerate(run(both, given)[1:], start=1):
            assert ("inputs" in hidden) == (depth <= last)
            assert hidden.get("inputs", given) is given

    @each("name", CASES)
    def test_picking_keeps_every_leaf_in_step(self, name: str) -> None:
        build, inputs = CASES[name]
        both = build()
        states = run(both, both.prepare(both.preprocessing(inputs(5, 3))))
        for depth, hidden in enumerate(states):
            for keep in (torch.tensor([4, 1]), torch.tensor([False, True, False, False, True])):
                picked = both.select(hidden, keep, depth)
                assert both.batch_size(picked, depth) == 2
                assert both.batch_size(both.concatenate([picked, hidden, picked], depth), depth) == 9
                if depth and "inputs" in picked:
                    assert both.batch_size(picked["inputs"], 0) == 2
            assert both.batch_size(both.select(hidden, torch.tensor([], dtype=torch.long), depth), depth) == 0

    @each("name", ["alike", "coarse first", "three", "a function of texts", "texts"])
    def test_declared_axes_fit_every_hidden_state(self, name: str) -> None:
        build, inputs = CASES[name]
        both = build()
        for depth, hidden in enumerate(run(both, both.prepare(both.preprocessing(inputs(3, 0))))):
            assert batch_size(hidden, both.axes(depth)) == 3

    def test_copies_run_alike(self) -> None:
        both = CASES["coarse first"][0]()
        given = both.prepare(both.preprocessing(bytes_of(2, 0)))
        for again in (copy.deepcopy(both), pickle.loads(pickle.dumps(both))):
            assert torch.equal(again(given), both(given))
            assert again.fingerprint() == both.fingerprint()

    def test_is_frozen(self) -> None:
        both = cascade(vectors("a", 3), vectors("b", 6, 5))
        assert not both.train().training
        assert not any(parameter.requires_grad for parameter in both.parameters())
        assert len(list(both.parameters())) == sum(len(list(member.parameters())) for member in both.members)


class TestShape:
    def test_stages_heads_and_the_full_network(self) -> None:
        three = CASES["three"][0]()
        assert three.num_exits == 6
        assert three.own_heads == (0, 2, 5)
        assert three.full_stages == range(3, 6)
        assert three.stages_of_members == (range(0, 1), range(1, 3), range(3, 6))
        assert three.name == "a+b+c"
        assert three.num_classes == K
        assert cascade(*three.members, name="mine").name == "mine"

    def test_heads_in_the_middle_of_a_member_stay(self) -> None:
        stages = [nn.Linear(4, 4) for _ in range(3)]
        member = Backbone("two-heads", stages, {0: nn.Linear(4, K), 2: nn.Linear(4, K)}, num_classes=K)
        both = cascade(vectors("a", 3), member)
        assert both.own_heads == (0, 1, 3)
        assert both.full_stages == range(1, 4)

    def test_of_a_cascade_as_the_last_member_the_last_network_is_the_full_one(self) -> None:
        nested = CASES["a cascade as a member"][0]()
        assert nested.own_heads == (0, 2, 3)
        assert nested.full_stages == range(3, 4)

    def test_where_members_prepare_alike_it_is_done_once(self) -> None:
        both, apart = CASES["alike"][0](), CASES["coarse first"][0]()
        assert (both.alike, both.preprocessing) == (True, PHOTOS)
        assert (apart.alike, apart.preprocessing) == (False, Preprocessing())
        states = run(apart, apart.prepare(bytes_of(2, 0)))
        assert states[0].dtype == torch.uint8
        assert states[1]["hidden"].shape[-2:] == (8, 8)
        assert states[3]["hidden"].shape[-2:] == (16, 16)

    def test_without_one_of_three(self) -> None:
        three = CASES["three"][0]()
        raw = numbers(3, 0)
        for dropped, kept in ((0, "b+c"), (1, "a+c"), (2, "a+b")):
            shorter = three.without_member(dropped)
            assert shorter.name == kept
            expected = alone(three.members[1 if dropped == 2 else 2], raw)[-1]
            member = three.members[1 if dropped == 2 else 2]
            assert torch.equal(shorter(shorter.prepare(raw)), member.own_logits(expected, member.num_exits - 1))

    def test_without_one_of_two_is_the_other(self) -> None:
        both = CASES["alike"][0]()
        assert both.without_member(0) is both.members[1]
        assert both.without_member(1) is both.members[0]

    def test_what_remains_of_three_may_be_alike(self) -> None:
        three = CASES["three, two of them alike"][0]()
        shorter = three.without_member(0)
        assert isinstance(shorter, Cascade)
        assert not three.alike
        assert (shorter.alike, shorter.preprocessing) == (True, PHOTOS)

    def test_fingerprints_tell_cascades_apart(self) -> None:
        made = [
            cascade(convolutions(2, COARSE), convolutions(2, PHOTOS)),
            cascade(convolutions(2, PHOTOS), convolutions(2, COARSE)),
            cascade(convolutions(2, COARSE.then("resize", size=4, mode="bilinear")), convolutions(2, PHOTOS)),
            cascade(convolutions(2, PHOTOS), convolutions(2, PHOTOS)),
            cascade(convolutions(2, PHOTOS), convolutions(2, PHOTOS), convolutions(2, PHOTOS)),
            cascade(convolutions(2, PHOTOS), convolutions(2, PHOTOS), name="other"),
        ]
        assert len({one.fingerprint() for one in made}) == len(made)
        assert made[0].fingerprint() == cascade(convolutions(2, COARSE), convolutions(2, PHOTOS)).fingerprint()


class TestFunctions:
    def test_arrays_and_tensors_of_any_precision_become_logits(self) -> None:
        for function in (
            lambda inputs: np.asarray(inputs)[:, :K],
            lambda inputs: np.asarray(inputs)[:, :K].astype(np.float64),
            lambda inputs: torch.as_tensor(inputs)[:, :K].bfloat16().float(),
        ):
            member = callable_model(function, K, name="first", mul_adds=10)
            answer = member(numbers(2, 0))
            assert answer.dtype == torch.float32
            torch.testing.assert_close(answer, torch.tensor(numbers(2, 0)[:, :K]), rtol=0.01, atol=0.01)

    def test_a_pipeline_sees_the_texts_themselves(self) -> None:
        seen: list[Any] = []

        def spy(inputs: Any) -> Any:
            seen.append(inputs)
            return np.zeros((len(inputs), K))

        both = cascade(callable_model(spy, K, name="spy", mul_adds=10), raw_bert())
        hidden = both.select(both.prepare(both.preprocessing(TEXTS)), torch.tensor([3, 0]), 0)
        both.stages[0](hidden)
        assert seen[0] == ["blue", "a red fox"]

    def test_texts_of_different_lengths_join(self) -> None:
        both = CASES["two functions of texts"][0]()
        parts = [both.prepare(np.array(part)) for part in (["blue"], ["the sea is very blue"], ["red"])]
        for depth in (0, 1):
            states = [run(both, part)[depth] for part in parts]
            joined = both.concatenate(states, depth)
            riding = joined["inputs"] if depth else joined
            assert riding.tolist() == ["blue", "the sea is very blue", "red"]
            picked = both.select(joined, torch.tensor([1]), depth)
            assert (picked["inputs"] if depth else picked).tolist() == ["the sea is very blue"]

    def test_texts_as_objects(self) -> None:
        both = CASES["two functions of texts"][0]()
        check_backbone(both, both.prepare(TEXTS.astype(object)))
        assert torch.equal(both(TEXTS.astype(object)), both(TEXTS))

    def test_a_module_as_a_function_is_frozen_and_known_by_its_weights(self) -> None:
        member = callable_model(nn.Sequential(nn.Linear(4, K), nn.Dropout(0.5)), K, name="module", mul_adds=10)
        assert not any(parameter.requires_grad for parameter in member.parameters())
        given = torch.randn(2, 4)
        assert torch.equal(member(given), member(given))
        other = callable_model(nn.Sequential(nn.Linear(4, K), nn.Dropout(0.5)), K, name="module", mul_adds=10)
        assert member.fingerprint() != other.fingerprint()

    @each("name", ["half precision first", "quantised first"])
    def test_a_coarser_twin_answers_nearly_alike(self, name: str) -> None:
        both = CASES[name][0]()
        states = run(both, both.prepare(numbers(20, 0)))
        cheap, exact = both.own_logits(states[1], 0), both.own_logits(states[3], 2)
        assert cheap.dtype == exact.dtype == torch.float32
        torch.testing.assert_close(cheap, exact, rtol=0.05, atol=0.05)
        assert not torch.equal(cheap, exact)

    def test_quantised_weights_are_part_of_the_fingerprint(self) -> None:
        member, other = quantised(), quantised()
        assert member.fingerprint() == other.fingerprint()
        layer = next(module for module in other.modules() if isinstance(module, Quantised))
        layer.packed = eight_bits(-layer.packed[0].dequantize()), layer.packed[1]
        assert member.fingerprint() != other.fingerprint()


class TestCosts:
    def test_are_relative_to_the_last_network(self) -> None:
        both = CASES["alike"][0]()
        example = both.prepare(both.preprocessing(bytes_of(1, 0)))
        found = count_backbone(both, example, MeanPooling())
        each = [count_backbone(member, example, MeanPooling()) for member in both.members]
        assert torch.equal(found.full, each[1].full)
        for name in ("stage", "pooling", "head"):
            assert torch.equal(getattr(found, name), torch.cat([getattr(one, name) for one in each], dim=1)), name
        stages = tuple(stage for stage in range(both.num_exits) if stage not in both.own_heads)
        table = price(found, LinearExits((4,) * both.num_exits, stages, K), decision=0).tables[0]
        assert table.full == each[1].full[0]
        first = float(each[0].full / each[1].full)
        assert table.relative_cost(torch.tensor([1]), (1, 4)) == pytest.approx(first)
        assert table.relative_cost(torch.tensor([4]), (1, 4)) == pytest.approx(first + 1)

    def test_a_lower_resolution_costs_less(self) -> None:
        both = CASES["same network coarse first"][0]()
        found = count_backbone(both, both.prepare(bytes_of(2, 0)), MeanPooling())
        assert torch.equal(4 * found.stage[0, :2], found.stage[0, 2:])
        assert found.full == found.stage[0, 2:].sum() + found.head[0, -1]

    @each("count", [1, 3])
    def test_what_a_function_declares_is_counted(self, count: int) -> None:
        for place in (0, 1):
            function = callable_model(lambda inputs: torch.as_tensor(inputs)[:, :K], K, name="first", mul_adds=17)
            members = [vectors("a", 6), vectors("b", 6)]
            members.insert(place, function)
            found = count_backbone(cascade(*members), torch.tensor(numbers(count, 0)), MeanPooling())
            assert found.stage[0].tolist() == [17 if stage == place else 24 for stage in range(3)]
            assert found.full.tolist() == [24 + 6 * K]

    def test_a_function_last_is_what_costs_are_relative_to(self) -> None:
        function = callable_model(lambda inputs: torch.as_tensor(inputs)[:, :K], K, name="first", mul_adds=100)
        found = count_backbone(cascade(vectors("a", 6), function), torch.tensor(numbers(1, 0)), MeanPooling())
        assert found.full.tolist() == [100]

    def test_grow_with_the_sample(self) -> None:
        build, inputs = CASES["texts"]
        both = build()
        example = both.prepare(inputs(3, 2))
        found = count_backbone(both, example, MeanPooling())
        each = [count_backbone(member, example, MeanPooling()) for member in both.members]
        assert found.stage.shape == (3, both.num_exits)
        assert torch.equal(found.stage, torch.cat([one.stage for one in each], dim=1))
        assert torch.equal(found.full, each[-1].full)
        assert both.varies_in_size

    def test_of_raw_texts_grow_with_what_the_last_network_sees(self) -> None:
        both, last = CASES["a function of texts"][0](), raw_bert()
        alone = count_backbone(last, last.prepare(last.preprocessing(TEXTS[:1])), MeanPooling())
        for first in (TEXTS[:1], TEXTS[2:3]):  # whichever text they are counted on
            found = count_backbone(both, both.prepare(first), MeanPooling())
            assert torch.equal(found.full, alone.full)
            assert found.stage[:, 0].tolist() == [30, 0, 0]
            assert torch.equal(found.stage[:, 1:], alone.stage)
        assert both.sizes(both.prepare(TEXTS)).tolist() == [3, 1, 6, 1, 5, 2]

    def test_a_member_that_sees_half_of_a_text_costs_what_half_a_text_costs(self) -> None:
        half = copy.copy(bert(2))
        half.preprocessing = Preprocessing().then("first_words")
        both = cascade(half, raw_bert())
        found = count_backbone(both, both.prepare(TEXTS[2:3]), MeanPooling())
        stages = half.num_exits
        factors = torch.tensor([1, 0.5, 0.25], dtype=torch.float64)
        assert torch.equal(found.stage[:, :stages], found.stage[:, stages:] * factors[:, None])

    def test_a_head_that_a_later_one_averages_with_is_always_paid(self) -> None:
        found = count_backbone(cascade(vectors("a", 6, 6), vectors("b", 6, 6)), torch.zeros(1, 4), MeanPooling())
        exits = LinearExits((6,) * 4, (0, 2), K)
        alone = price(found, exits, decision=5).tables[0]
        exits.averaging = Averaging((1, 3), torch.tensor([0, 0.5]), torch.ones(2))
        together = price(found, exits, decision=5).tables[0]
        assert torch.equal(alone.cumulative_costs(), together.cumulative_costs())
        for asked in ((0, 3), (3,)):
            assert (together.cumulative_costs(asked) - alone.cumulative_costs(asked)).tolist() == [0, 18, 18, 18]
        assert together.full == alone.full


class TestRefusals:
    def test_one_network(self) -> None:
        with pytest.raises(InputError, match="at least two members, got 1"):
            cascade(vectors("a", 3))
        with pytest.raises(InputError, match="at least two members, got 0"):
            cascade()

    def test_different_classes(self) -> None:
        for name in ("a", "b"):  # members may be called the same
            other = Backbone(name, [nn.Identity()], {0: nn.Linear(4, K + 1)}, num_classes=K + 1)
            with refuses(InputError, got=f"a with 3, {name} with 4"):
                cascade(vectors("a", 3), other)

    @each(
        ("shape", "error"), [((2,), CallError), ((2, K + 1), InputError), ((2, K, 1), CallError), ((3, K), InputError)]
    )
    def test_a_function_that_gives_no_class_scores(self, shape: tuple[int, ...], error: type[Exception]) -> None:
        member = callable_model(lambda inputs: np.zeros(shape), K, name="wrong", mul_adds=10)
        with pytest.raises(error):
            member(numbers(2, 0))


class TestClasses:
    def test_of_the_members_that_know_them(self) -> None:
        first, second, third = CifarResNet(8), CifarResNet(8), CifarResNet(14)
        assert cascade(first, third).classes == ()
        second.classes = third.classes = tuple("jihgfedcba")
        assert cascade(first, second, third).classes == third.classes
        assert cascade(first, second, third).without_member(1).classes == third.classes

    def test_members_that_differ_are_refused(self) -> None:
        first, second = CifarResNet(8), CifarResNet(14)
        first.classes, second.classes = tuple("abcdefghij"), tuple("abcdfeghij")
        with pytest.raises(InputError, match=r"class 4 as 'e' of 'cifar-resnet-8' and 'f' of 'cifar-resnet-14'"):
            cascade(first, second)
