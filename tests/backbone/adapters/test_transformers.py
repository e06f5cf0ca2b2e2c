"""Small text classifiers of the transformers library with random weights, and one that was trained."""

import sys
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor, nn

from offramp.backbone import Axes, Factory
from offramp.backbone._factory import MOST_MODULES
from offramp.backbone._hidden import Hidden
from offramp.backbone._making import build
from offramp.backbone._splitting import SplitBackbone
from offramp.backbone.adapters.transformers import MeanClassifier, text_backbone, untrained_text_backbone
from offramp.errors import InputError, MissingExtraError, SplitRefusedError, UnknownNameError
from offramp.pooling import Tokens
from offramp.preprocessing._preprocessing import AS_IS
from offramp.testing import check_backbone
from tests.backbone.adapters.factory_examples import embedded
from tests.cases import each, refuses

LIBRARY: Any = transformers
VOCABULARY = 60
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
    "num_labels": 3,
}


def config(kind: str, **options: Any) -> Any:
    return LIBRARY.AutoConfig.for_model(kind, **{**SIZES, **options})


def classifier(kind: str, **options: Any) -> Any:
    torch.manual_seed(0)
    return LIBRARY.AutoModelForSequenceClassification.from_config(config(kind, **options))


def texts(count: int, length: int, *, pad: int) -> dict[str, Tensor]:
    """Texts as a tokenizer gives them, the second one shorter."""
    ids = torch.randint(3, VOCABULARY, (count, length), generator=torch.Generator().manual_seed(length))
    mask = torch.ones_like(ids)
    ids[1, length // 2 :], mask[1, length // 2 :] = pad, 0
    return {"input_ids": ids, "attention_mask": mask}


def logits_of(network: Any) -> Any:
    return lambda inputs: network(**inputs).logits


@pytest.fixture(scope="module")
def bert() -> tuple[Any, SplitBackbone]:
    network = classifier("bert")
    return network, text_backbone(network)


@pytest.fixture(scope="module")
def shallow() -> Any:
    """A network of one layer, where only what goes in matters."""
    return classifier("bert", num_hidden_layers=1)


@pytest.fixture(scope="module")
def roberta() -> tuple[Any, SplitBackbone]:
    network = classifier("roberta")
    return network, text_backbone(network)


class TestBert:
    def test_the_embeddings_and_four_layers(self, bert: tuple[Any, SplitBackbone]) -> None:
        network, backbone = bert
        assert backbone.num_exits == 5
        assert backbone.name == "bert"
        inputs = texts(2, 6, pad=0)
        embedded = backbone.stages[0](inputs)
        shown = backbone.representation(embedded, 0)
        assert isinstance(shown, Tokens)
        torch.testing.assert_close(shown.values, network.bert.embeddings(inputs["input_ids"]))
        assert shown.mask is not None
        assert torch.equal(shown.mask, inputs["attention_mask"])

    def test_after_each_layer_comes_its_hidden_state(self, bert: tuple[Any, SplitBackbone]) -> None:
        network, backbone = bert
        inputs = texts(3, 7, pad=0)
        states = network(**inputs, output_hidden_states=True).hidden_states
        hidden: Hidden = inputs
        for index, stage in enumerate(backbone.stages):
            hidden = stage(hidden)
            shown = backbone.representation(hidden, index)
            assert isinstance(shown, Tokens)
            torch.testing.assert_close(shown.values, states[index], rtol=1e-4, atol=1e-5)

    def test_contract(self, bert: tuple[Any, SplitBackbone]) -> None:
        network, backbone = bert
        both = backbone.prepare(texts(3, 12, pad=0)), backbone.prepare(texts(2, 5, pad=0))
        check_backbone(backbone, *both, network=logits_of(network), exact=False)

    def test_what_tokenizers_give(self, bert: tuple[Any, SplitBackbone]) -> None:
        network, backbone = bert
        inputs = texts(3, 9, pad=0)
        padded = {name: np.pad(leaf.numpy(), ((0, 0), (0, 20))) for name, leaf in inputs.items()}
        prepared = backbone.prepare(LIBRARY.BatchEncoding(padded))
        assert prepared["input_ids"].shape == (3, 9)
        torch.testing.assert_close(backbone(prepared), network(**inputs).logits, rtol=1e-4, atol=1e-5)
        assert backbone.sizes(prepared).tolist() == [9, 4, 9]
        with pytest.raises(InputError, match=r"got attention_mask; add input_ids"):
            backbone.prepare({"attention_mask": padded["attention_mask"]})
        with pytest.raises(InputError, match="remove special_tokens_mask"):
            backbone.prepare({**padded, "special_tokens_mask": padded["input_ids"]})

    def test_pairs_of_sentences(self) -> None:
        network = classifier("bert", num_hidden_layers=1, initializer_range=0.3)
        backbone = text_backbone(network)
        inputs = texts(3, 9, pad=0)
        types = torch.tensor([[0] * 4 + [1] * 5] * 3) * inputs["attention_mask"]
        given = {**inputs, "token_type_ids": types}
        expected = network(**given).logits
        assert not torch.allclose(expected, network(**inputs).logits, atol=1e-3)
        torch.testing.assert_close(backbone(backbone.prepare(given)), expected, rtol=1e-4, atol=1e-5)
        first = backbone.prepare(inputs)
        assert not first["token_type_ids"].any()
        torch.testing.assert_close(backbone(first), network(**inputs).logits, rtol=1e-4, atol=1e-5)
        check_backbone(backbone, backbone.prepare(given), first, network=logits_of(network), exact=False)

    def test_padding_on_the_left(self, bert: tuple[Any, SplitBackbone]) -> None:
        flipped = {name: leaf.flip(1) for name, leaf in texts(3, 9, pad=0).items()}
        with pytest.raises(InputError, match=r"1 of 3 that begin with padding; set tokenizer.padding_side = \"right\""):
            bert[1].prepare(flipped)


class TestRoberta:
    """Its padding is 1, and it counts positions by what is no padding."""

    def test_padding(self, roberta: tuple[Any, SplitBackbone]) -> None:
        network, backbone = roberta
        assert network.config.pad_token_id == 1
        assert backbone.axes(0)["input_ids"] == Axes(lengths=(1,), pad=1)
        joined = backbone.concatenate([backbone.prepare(texts(2, 4, pad=1)), backbone.prepare(texts(2, 6, pad=1))], 0)
        assert joined["input_ids"][0, 4:].tolist() == [1, 1]
        assert joined["attention_mask"][0, 4:].tolist() == [0, 0]

    def test_contract(self, roberta: tuple[Any, SplitBackbone]) -> None:
        network, backbone = roberta
        assert backbone.num_exits == 5
        both = backbone.prepare(texts(3, 9, pad=1)), backbone.prepare(texts(2, 12, pad=1))
        check_backbone(backbone, *both, network=logits_of(network), exact=False)


def test_an_encoder_with_a_head_on_its_mean() -> None:
    torch.manual_seed(0)
    sizes = {"dim": 32, "n_layers": 4, "n_heads": 2, "hidden_dim": 64}
    encoder = LIBRARY.AutoModel.from_config(config("distilbert", **sizes))
    network = MeanClassifier(encoder, nn.Linear(32, 4))
    backbone = text_backbone(network, name="mine")
    assert backbone.num_exits == 5
    assert backbone.num_classes == 4
    assert backbone.name == "mine"
    inputs = texts(3, 9, pad=0)
    check_backbone(backbone, inputs, texts(2, 12, pad=0), network=lambda given: network(**given), exact=False)
    hidden = encoder(**inputs).last_hidden_state
    expected = torch.stack([hidden[0].mean(0), hidden[1, :4].mean(0), hidden[2].mean(0)])
    torch.testing.assert_close(backbone(inputs), network.head(expected), rtol=1e-4, atol=1e-5)


def test_networks_that_tell_no_sentences_apart_drop_zeros_and_refuse_others() -> None:
    backbone = text_backbone(classifier("bert", num_hidden_layers=1, type_vocab_size=1))
    inputs = texts(2, 6, pad=0)
    zeros = torch.zeros_like(inputs["input_ids"])
    assert sorted(backbone.prepare({**inputs, "token_type_ids": zeros})) == ["attention_mask", "input_ids"]
    with pytest.raises(InputError, match="split it with an example that holds them"):
        backbone.prepare({**inputs, "token_type_ids": zeros + inputs["attention_mask"]})


def words(**options: Any) -> Any:
    """A tokenizer of the library with as many words as the networks know."""
    vocabulary = {"[PAD]": 0, "[UNK]": 1, **{f"word{token}": token for token in range(2, VOCABULARY)}}
    engine = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    engine.pre_tokenizer = pre_tokenizers.Whitespace()
    return LIBRARY.PreTrainedTokenizerFast(tokenizer_object=engine, pad_token="[PAD]", unk_token="[UNK]", **options)


@pytest.mark.slow
class TestTokenizers:
    def test_texts_in_answers_out(self, shallow: Any) -> None:
        tokenizer = words()
        backbone = text_backbone(shallow, tokenizer=tokenizer)
        sentences = ["word3 word4 strange", "word5", "word6 " * 60]
        found = backbone(backbone.prepare(backbone.preprocessing(sentences)))
        encoded = tokenizer(sentences, padding=True, truncation=True, max_length=40, return_tensors="pt")
        expected = shallow(**{name: encoded[name] for name in ("input_ids", "attention_mask")}).logits
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        assert backbone.factory is not None
        assert backbone.factory.preprocessing == backbone.preprocessing
        for sentences in ([""], ["", "word3 word4"]):  # an empty text has an answer
            assert backbone(backbone.prepare(backbone.preprocessing(sentences))).isfinite().all()

    @each(
        ("options", "asked", "expected"),
        [({}, None, 40), ({"model_max_length": 7}, None, 7), ({"model_max_length": 7}, 12, 12), ({}, 5, 5)],
    )
    def test_as_long_as_both_take(
        self, shallow: Any, options: dict[str, int], asked: int | None, expected: int
    ) -> None:
        backbone = text_backbone(shallow, tokenizer=words(**options), longest=asked)
        assert backbone.preprocessing.describe()[0][1]["longest"] == expected
        assert backbone.prepare(backbone.preprocessing(["word3 " * 99]))["input_ids"].shape == (1, expected)

    def test_positions_that_begin_after_the_padding(self, roberta: tuple[Any, SplitBackbone]) -> None:
        backbone = text_backbone(roberta[0], tokenizer=words())  # of its 40 places, two are for padding
        prepared = backbone.prepare(backbone.preprocessing(["word3 " * 99]))
        assert prepared["input_ids"].shape == (1, 38)
        assert backbone(prepared).isfinite().all()

    def test_a_slow_one_is_refused(self, shallow: Any) -> None:
        with pytest.raises(InputError, match="a fast one of transformers"):
            text_backbone(shallow, tokenizer="bert-base-uncased")


def distilbert() -> Any:
    torch.manual_seed(0)
    sizes = {"dim": 32, "n_layers": 1, "n_heads": 2, "hidden_dim": 64}
    return LIBRARY.AutoModel.from_config(config("distilbert", **sizes))


SMALL = {**SIZES, "num_hidden_layers": 1}
LABELS = {"id2label": {0: "no", 1: "_", 2: "n/a"}, "label2id": {"no": 0, "_": 1, "n/a": 2}}


@pytest.mark.slow
class TestByConfig:
    @each(
        ("kind", "options", "pad"),
        [
            ("bert", {"hidden_act": "relu", "classifier_dropout": 0.3, "type_vocab_size": 1, **LABELS}, 0),
            ("roberta", {}, 1),
            ("electra", {"embedding_size": 16}, 0),
            ("albert", {"embedding_size": 16}, 0),
        ],
    )
    def test_made_again_and_given_its_weights(self, kind: str, options: dict[str, Any], pad: int) -> None:
        backbone = text_backbone(classifier(kind, **{"num_hidden_layers": 1, **options}), tokenizer=words())
        made = embedded(backbone)
        assert made.fingerprint() == backbone.fingerprint()
        assert made.preprocessing == backbone.preprocessing != AS_IS
        inputs = texts(3, 9, pad=pad)
        assert torch.equal(made(inputs), backbone(inputs))

    def test_a_classifier_on_the_mean(self) -> None:
        backbone = text_backbone(MeanClassifier(distilbert(), nn.Linear(32, 4)), name="mine")
        made = embedded(backbone)
        assert made.fingerprint() == backbone.fingerprint()
        assert (made.name, made.num_classes) == ("mine", 4)
        assert torch.equal(made(texts(3, 9, pad=0)), backbone(texts(3, 9, pad=0)))

    @each(("mean", "named"), [(False, True), (True, False)])  # as its configuration says, and by its weights alone
    def test_in_half_precision(self, mean: bool, named: bool) -> None:
        given = MeanClassifier(distilbert(), nn.Linear(32, 3)) if mean else classifier("bert", num_hidden_layers=1)
        if named:  # as a checkpoint's does
            given.config.dtype = torch.bfloat16
        backbone = text_backbone(given.bfloat16())
        made = embedded(backbone)
        assert made.fingerprint() == backbone.fingerprint()
        assert torch.equal(made(texts(3, 9, pad=0)), backbone(texts(3, 9, pad=0)))

    @each(
        "banned",
        [
            {"attn_implementation": "somebody/kernel"},
            {"_attn_implementation": "somebody/kernel"},
            {"_attn_implementation_internal": "somebody/kernel"},
            {"experts_implementation": "somebody/kernel"},
            {"auto_map": {"AutoModelForSequenceClassification": "somebody/code--modeling.Mine"}},
            {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}},
            {"use_kernels": True},
            {"_name_or_path": "somebody/model", "_commit_hash": "0"},
        ],
    )
    def test_what_may_be_fetched_is_dropped(self, banned: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
        given, asked = LIBRARY.AutoConfig.for_model, []

        def watched(*arguments: Any, **options: Any) -> Any:
            asked.append(options)
            return given(*arguments, **options)

        monkeypatch.setattr(LIBRARY.AutoConfig, "for_model", watched)
        monkeypatch.setattr("offramp.backbone.adapters.transformers.text_backbone", lambda model, **_: model)
        entries = {"model_type": "bert", **SMALL}
        nested = {"text_config": {**banned, "hidden_size": 8}, "listed": [banned, {"kept": 1}]}
        made: Any = untrained_text_backbone(config={**entries, **banned, **nested}, num_classes=3, name="x", mean=False)
        assert asked == [{**entries, "text_config": {"hidden_size": 8}, "listed": [{}, {"kept": 1}]}]
        assert type(made) is LIBRARY.BertForSequenceClassification
        assert "/" not in str(made.config._attn_implementation)

    def test_a_network_does_not_say_them_either(self) -> None:
        network = classifier("bert", num_hidden_layers=1, attn_implementation="eager")
        network.config.auto_map = {"AutoModel": "somebody/code--modeling.Mine"}
        factory = text_backbone(network).factory
        assert factory is not None
        said = factory.options["config"]
        assert said["hidden_size"] == 32
        assert not [key for key in said if key.startswith("_") or key in ("auto_map", "attn_implementation")]

    @each("kind", ["vit", "somebody/model", "", "x" * 5000, None, 3, ["bert"]])
    def test_other_kinds(self, kind: Any) -> None:
        options: dict[str, Any] = {
            "config": {**SMALL, "model_type": kind},
            "num_classes": 3,
            "name": "x",
            "mean": False,
        }
        with pytest.raises(InputError, match="'transformers' cannot make a backbone"):
            build(Factory("transformers", options))
        with pytest.raises(UnknownNameError, match="unknown kind of text classifier") as caught:
            untrained_text_backbone(**options)
        assert len(str(caught.value)) < 200

    @pytest.mark.timeout(60)
    @each("mean", [False, True])
    @each(
        ("huge", "told"),
        [
            ({"hidden_size": 2**20, "num_attention_heads": 2**10}, "parameters"),
            ({"vocab_size": 10**9}, "parameters"),
            ({"vocab_size": 10**15}, "parameters"),
            ({"intermediate_size": 10**12}, "parameters"),
            ({"max_position_embeddings": 10**12}, "parameters"),
            ({"num_hidden_layers": 10**9}, "modules"),
        ],
    )
    def test_huge_ones_take_neither_memory_nor_time(
        self, huge: dict[str, int], told: str, mean: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made: list[Tensor] = []
        first = nn.Parameter.__new__

        def watched(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
            made.append(data)
            return first(cls, data, requires_grad)

        monkeypatch.setattr(nn.Parameter, "__new__", watched)
        with pytest.raises(InputError, match=f"at most 1,000,000,000 parameters and {MOST_MODULES:,} modules, got"):
            untrained_text_backbone(config={"model_type": "bert", **SMALL, **huge}, num_classes=3, name="x", mean=mean)
        assert made
        assert {tensor.device.type for tensor in made} == {"meta"}
        if told == "modules":
            assert sum(tensor.numel() for tensor in made) < 10**8

    @each(
        "wrong",
        [
            {"hidden_size": "32"},
            {"hidden_size": -1},
            {"hidden_act": "eval"},
            {"num_attention_heads": 5},
            {"vocab_size": None},
            {"num_hidden_layers": [2]},
            {"problem_type": "regression"},
        ],
    )
    def test_sizes_that_are_none(self, wrong: dict[str, Any]) -> None:
        options = {"config": {"model_type": "bert", **SMALL, **wrong}, "num_classes": 3, "name": "x"}
        with pytest.raises(
            (InputError, SplitRefusedError),
            match=r"cannot make a backbone|expected (a network|scores|at least 2)",
        ):
            build(Factory("transformers", {**options, "mean": False}))

    @each("classes", [1, 10**9, "3", None])
    def test_classes(self, classes: Any) -> None:
        with pytest.raises(InputError, match="expected 2 to 1,000,000 classes"):
            untrained_text_backbone(config={"model_type": "bert"}, num_classes=classes, name="x", mean=False)

    def test_without_the_library(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "transformers", None)
        with pytest.raises(MissingExtraError, match=r"pip install 'offramp\[transformers\]'"):
            untrained_text_backbone(config={"model_type": "bert"}, num_classes=3, name="x", mean=False)


class TestRefusals:
    def test_other_networks(self) -> None:
        images = LIBRARY.ViTConfig(num_hidden_layers=1, hidden_size=32, num_attention_heads=2, intermediate_size=32)
        for network in (nn.Linear(3, 2), LIBRARY.ViTModel(images)):
            with refuses(InputError, expected="config.vocab_size", got=type(network).__name__):
                text_backbone(network)

    @each("problem", ["multi_label_classification", "regression"])
    def test_other_tasks(self, problem: str) -> None:
        with refuses(SplitRefusedError, got=problem.replace("_", " ")):
            text_backbone(classifier("bert", problem_type=problem))

    def test_one_score(self) -> None:
        with pytest.raises(SplitRefusedError, match="single output"):
            text_backbone(classifier("bert", num_labels=1))

    def test_encoders_with_decoders(self) -> None:
        sizes = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
        network = classifier("bart", **sizes, encoder_attention_heads=2, decoder_attention_heads=2)
        with pytest.raises(SplitRefusedError, match=r"has an encoder and a decoder, .*MeanClassifier"):
            text_backbone(network)

    def test_token_labels(self) -> None:
        with pytest.raises(SplitRefusedError, match="one label per token"):
            text_backbone(LIBRARY.AutoModelForTokenClassification.from_config(config("bert")))


@pytest.mark.data
def test_minilm_on_intents() -> None:
    from offramp_bench.texts import intents, minilm

    backbone = minilm("clinc150")
    assert backbone.num_exits == 7
    assert backbone.num_classes == 150
    rows = intents("clinc150", "test").read(0, 300)
    with torch.inference_mode():
        answers = backbone(backbone.prepare(backbone.preprocessing(rows.inputs))).argmax(1)
    assert (answers.numpy() == rows.labels).mean() >= 0.9
