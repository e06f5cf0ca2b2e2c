"""Language models through the real client, to a local server that speaks the same protocol."""

import logging
from typing import Any

import numpy as np
import pytest

import offramp
from offramp.backbone._making import build
from offramp.errors import CallError, InputError, UntrustedNameError
from offramp.testing import serve_llm
from tests.cases import each

CLASSES = ("cat", "dog")
TEXTS = [f"{'purrs' if number % 3 else 'barks'} {number}" for number in range(40)]


def classify(text: str) -> str:
    return "cat" if "purrs" in text else "dog"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret-key")


def answers(member: Any, texts: list[str]) -> list[str]:
    return [CLASSES[label] for label in member(texts).argmax(1).tolist()]


def test_classes_come_back() -> None:
    with serve_llm(classify) as server:
        member = offramp.llm("large", CLASSES, base_url=server.base_url)
        assert answers(member, TEXTS) == [classify(text) for text in TEXTS]
    assert sorted(server.asked) == sorted(TEXTS)


def test_one_request_in_two_fails() -> None:
    failures = {"rate_limit": 0.1, "server_error": 0.1, "reset": 0.1, "malformed": 0.1, "slow": 0.1}
    with serve_llm(classify, failures=failures, retry_after_s=0.01, slow_s=1.0) as server:
        member = offramp.llm("large", CLASSES, base_url=server.base_url, attempts=12, timeout_s=0.3, concurrency=16)
        assert answers(member, TEXTS) == [classify(text) for text in TEXTS]
    assert len(server.asked) > len(TEXTS)


def test_tokens_are_paid_for() -> None:
    with serve_llm(classify, tokens=lambda text: 30) as server:
        price = {"per_input_token": 1e-3, "per_output_token": 1e-2, "currency": "EUR"}
        member = offramp.llm("large", CLASSES, base_url=server.base_url, price=price)
        member(TEXTS[:4])
        base, slope = member.caller.price_line
    mean = base + slope * float(member.caller.sizes(np.array(TEXTS[:4], dtype=object)).mean())
    assert mean == pytest.approx(30e-3 + 5e-2)  # the server reports five output tokens


def test_log_probabilities_give_scores() -> None:
    with serve_llm(classify) as server:
        member = offramp.llm("large", CLASSES, base_url=server.base_url, log_probabilities=True)
        scores = member(["purrs"]).double().softmax(1)
    assert float(scores[0, 0]) == pytest.approx(np.exp(-0.05), abs=1e-3)  # the server's only token


def test_a_key_comes_from_the_environment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(CallError, match="needs a key; set the environment variable MY_KEY"):
        offramp.llm("large", CLASSES, base_url="http://127.0.0.1:9/v1", key_variable="MY_KEY", attempts=1)(["purrs"])


def test_neither_texts_nor_keys_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="offramp")
    with serve_llm(classify, failures={"server_error": 1.0}) as server:
        member = offramp.llm("large", CLASSES, base_url=server.base_url, attempts=2)
        with pytest.raises(CallError) as caught:
            member(["purrs privately"])
    chain: BaseException | None = caught.value
    while chain is not None:
        assert "privately" not in str(chain)
        assert "secret-key" not in str(chain)
        chain = chain.__cause__
    assert "privately" not in caplog.text


def test_it_is_made_again_without_its_key_if_its_address_is_trusted() -> None:
    with serve_llm(classify) as server:
        member = offramp.llm("large", CLASSES, base_url=server.base_url, descriptions={"cat": "it purrs"})
        assert member.factory is not None
        assert "secret-key" not in str(member.factory)
        with pytest.raises(UntrustedNameError):
            build(member.factory, trust=())
        again = build(member.factory, trust=(server.base_url,))
        assert answers(again, TEXTS[:5]) == [classify(text) for text in TEXTS[:5]]
        assert again.name == member.name


@each("classes, descriptions", [(["cat"], {}), (["cat", "cat"], {}), (["cat", "dog"], {"cow": "it moos"})])
def test_classes_that_cannot_be_asked_for(classes: list[str], descriptions: dict[str, str]) -> None:
    with pytest.raises(InputError, match="two or more different names"):
        offramp.llm("large", classes, descriptions=descriptions)


def test_a_text_that_the_endpoint_refuses_gets_no_answer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("offramp.backbone.adapters._llm.REFUSED_INPUT", (500,))
    with serve_llm(classify, failures={"server_error": 0.5}) as server:
        member = offramp.llm("large", CLASSES, base_url=server.base_url, attempts=1, concurrency=1)
        scores = member.caller.ask(TEXTS)
    assert 0 < int(np.isnan(scores[:, 0]).sum()) < len(TEXTS)


def test_the_default_endpoint_and_another_key_need_trust_too() -> None:
    member = offramp.llm("large", CLASSES, key_variable="OTHER_KEY")
    assert member.factory is not None
    with pytest.raises(UntrustedNameError, match="openai with OTHER_KEY"):
        build(member.factory, trust=("openai",))
    assert build(member.factory, trust=("openai with OTHER_KEY",)).name == member.name
    with pytest.raises(InputError, match="an address without a user name or key"):
        offramp.llm("large", CLASSES, base_url="https://me:secret@example.org/v1")


def test_another_prompt_is_another_model() -> None:
    names = {offramp.llm("large", CLASSES, instructions=text).name for text in ("one", "another")}
    assert len(names) == 2
