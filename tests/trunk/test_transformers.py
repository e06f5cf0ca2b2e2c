"""Small text classifiers of the transformers library with random weights, and one that was trained."""

from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn

from offramp.errors import InputError, SplitRefusedError
from offramp.testing import check_trunk
from offramp.trunk import Axes, Hidden, SplitTrunk, Tokens
from offramp.trunk.transformers import MeanClassifier, text_trunk

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
def bert() -> tuple[Any, SplitTrunk]:
    network = classifier("bert")
    return network, text_trunk(network)


@pytest.fixture(scope="module")
def roberta() -> tuple[Any, SplitTrunk]:
    network = classifier("roberta")
    return network, text_trunk(network)


class TestBert:
    def test_the_embeddings_and_four_layers(self, bert: tuple[Any, SplitTrunk]) -> None:
        network, trunk = bert
        assert trunk.num_exits == 5
        assert trunk.name == "bert"
        inputs = texts(2, 6, pad=0)
        embedded = trunk.stages[0](inputs)
        shown = trunk.representation(embedded, 0)
        assert isinstance(shown, Tokens)
        torch.testing.assert_close(shown.values, network.bert.embeddings(inputs["input_ids"]))
        assert shown.mask is not None
        assert torch.equal(shown.mask, inputs["attention_mask"])

    def test_after_each_layer_comes_its_hidden_state(self, bert: tuple[Any, SplitTrunk]) -> None:
        network, trunk = bert
        inputs = texts(3, 7, pad=0)
        states = network(**inputs, output_hidden_states=True).hidden_states
        hidden: Hidden = inputs
        for index, stage in enumerate(trunk.stages):
            hidden = stage(hidden)
            shown = trunk.representation(hidden, index)
            assert isinstance(shown, Tokens)
            torch.testing.assert_close(shown.values, states[index], rtol=1e-4, atol=1e-5)

    def test_contract(self, bert: tuple[Any, SplitTrunk]) -> None:
        network, trunk = bert
        check_trunk(trunk, texts(3, 12, pad=0), texts(2, 5, pad=0), network=logits_of(network), exact=False)

    def test_what_tokenizers_give(self, bert: tuple[Any, SplitTrunk]) -> None:
        network, trunk = bert
        inputs = texts(3, 9, pad=0)
        padded = {name: np.pad(leaf.numpy(), ((0, 0), (0, 20))) for name, leaf in inputs.items()}
        prepared = trunk.prepare(LIBRARY.BatchEncoding(padded))
        assert prepared["input_ids"].shape == (3, 9)
        torch.testing.assert_close(trunk(prepared), network(**inputs).logits, rtol=1e-4, atol=1e-5)
        assert trunk.sizes(prepared).tolist() == [9, 4, 9]
        with pytest.raises(InputError, match=r"split with \(input_ids, attention_mask\)"):
            trunk.prepare({**padded, "token_type_ids": padded["input_ids"]})


class TestRoberta:
    """Its padding is 1, and it counts positions by what is no padding."""

    def test_padding(self, roberta: tuple[Any, SplitTrunk]) -> None:
        network, trunk = roberta
        assert network.config.pad_token_id == 1
        assert trunk.axes(0)["input_ids"] == Axes(lengths=(1,), pad=1)
        joined = trunk.concatenate([texts(2, 4, pad=1), texts(2, 6, pad=1)], 0)
        assert joined["input_ids"][0, 4:].tolist() == [1, 1]
        assert joined["attention_mask"][0, 4:].tolist() == [0, 0]

    def test_contract(self, roberta: tuple[Any, SplitTrunk]) -> None:
        network, trunk = roberta
        assert trunk.num_exits == 5
        check_trunk(trunk, texts(3, 9, pad=1), texts(2, 12, pad=1), network=logits_of(network), exact=False)


def test_an_encoder_with_a_head_on_its_mean() -> None:
    torch.manual_seed(0)
    sizes = {"dim": 32, "n_layers": 4, "n_heads": 2, "hidden_dim": 64}
    encoder = LIBRARY.AutoModel.from_config(config("distilbert", **sizes))
    network = MeanClassifier(encoder, nn.Linear(32, 4))
    trunk = text_trunk(network, name="mine")
    assert trunk.num_exits == 5
    assert trunk.num_classes == 4
    assert trunk.name == "mine"
    inputs = texts(3, 9, pad=0)
    check_trunk(trunk, inputs, texts(2, 12, pad=0), network=lambda given: network(**given), exact=False)
    hidden = encoder(**inputs).last_hidden_state
    expected = torch.stack([hidden[0].mean(0), hidden[1, :4].mean(0), hidden[2].mean(0)])
    torch.testing.assert_close(trunk(inputs), network.head(expected), rtol=1e-4, atol=1e-5)


class TestRefusals:
    def test_other_networks(self) -> None:
        images = LIBRARY.ViTConfig(num_hidden_layers=1, hidden_size=32, num_attention_heads=2, intermediate_size=32)
        for network in (nn.Linear(3, 2), LIBRARY.ViTModel(images)):
            with pytest.raises(
                InputError, match=rf"got {type(network).__name__}, which has no config\.vocab_size; use"
            ):
                text_trunk(network)

    @pytest.mark.parametrize("problem", ["multi_label_classification", "regression"])
    def test_other_tasks(self, problem: str) -> None:
        with pytest.raises(SplitRefusedError, match=f"tuned for {problem.replace('_', ' ')}; offramp takes"):
            text_trunk(classifier("bert", problem_type=problem))

    def test_one_score(self) -> None:
        with pytest.raises(SplitRefusedError, match="single output"):
            text_trunk(classifier("bert", num_labels=1))

    def test_encoders_with_decoders(self) -> None:
        sizes = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
        network = classifier("bart", **sizes, encoder_attention_heads=2, decoder_attention_heads=2)
        with pytest.raises(SplitRefusedError, match=r"has an encoder and a decoder, .*MeanClassifier"):
            text_trunk(network)

    def test_token_labels(self) -> None:
        with pytest.raises(SplitRefusedError, match="labels every token"):
            text_trunk(LIBRARY.AutoModelForTokenClassification.from_config(config("bert")))


@pytest.mark.data
def test_minilm_on_intents() -> None:
    from benchmarks.texts import intents, minilm

    trunk = minilm("clinc150")
    assert trunk.num_exits == 7
    assert trunk.num_classes == 150
    rows = intents("clinc150", "test").read(0, 300)
    with torch.inference_mode():
        answers = trunk(trunk.prepare(trunk.preprocessing(rows.inputs))).argmax(1)
    assert (answers.numpy() == rows.labels).mean() >= 0.9
