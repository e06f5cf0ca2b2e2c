"""The local server that stands for a language model: it fails as often as asked, and records what it did."""

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from offramp.errors import InputError
from offramp.testing import serve_llm


def ask(base_url: str, text: str) -> Any:
    body = {"model": "m", "messages": [{"role": "system", "content": "?"}, {"role": "user", "content": text}]}
    request = urllib.request.Request(f"{base_url}/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=5) as reply:
        return json.loads(reply.read())


def test_an_answer_as_a_chat_completion() -> None:
    with serve_llm(str.upper, tokens=len) as server:
        reply = ask(server.base_url, "cat")
    assert json.loads(reply["choices"][0]["message"]["content"]) == {"class": "CAT"}
    assert reply["usage"] == {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
    assert (server.asked, server.answered) == (["cat"], ["cat"])


def test_a_rate_limit_names_the_wait() -> None:
    with serve_llm(str.upper, failures={"rate_limit": 1.0}, retry_after_s=2.5) as server:
        with pytest.raises(urllib.error.HTTPError) as caught:
            ask(server.base_url, "cat")
        assert (caught.value.code, caught.value.headers["Retry-After"]) == (429, "2.5")
        caught.value.close()
    assert (server.asked, server.answered) == (["cat"], [])


def test_malformed_answers() -> None:
    with serve_llm(str.upper, failures={"malformed": 1.0}) as server:
        assert ask(server.base_url, "cat")["choices"][0]["message"]["content"] == "no class"


def test_failures_are_as_frequent_as_asked() -> None:
    failed = 0
    with serve_llm(str.upper, failures={"server_error": 0.3}, seed=1) as server:
        for number in range(200):
            try:
                ask(server.base_url, str(number))
            except urllib.error.HTTPError as error:
                failed += 1
                error.close()
    assert 40 <= failed <= 80  # 60 expected, three standard deviations


def test_an_unknown_failure() -> None:
    with pytest.raises(InputError, match="expected rate_limit, server_error"), serve_llm(str.upper, failures={"x": 1}):
        pass
