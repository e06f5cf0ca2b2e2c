"""Language models behind an API as members of a cascade, through the official `openai` client."""

import hashlib
import json
import math
import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from offramp.backbone._factory import Factory
from offramp.backbone.adapters._callable import CalledModel, callable_model, describe_price
from offramp.calls._price import Price, as_price
from offramp.calls._replies import Reply
from offramp.errors import CallError, InputError, MissingExtraError

__all__ = ["llm"]

INSTRUCTIONS = "Classify the text that the user sends. Answer with exactly one of the classes."
"""Instructions if the user gives none."""

REFUSED_INPUT = (400, 413, 422)
"""Statuses of a text that the endpoint does not take, such as one that is too long: it gets no answer, others do."""

KEY_VARIABLE = "OPENAI_API_KEY"
"""Environment variable of the key, unless the user names another."""


def llm(
    model: str,
    classes: Sequence[str],
    *,
    instructions: str = INSTRUCTIONS,
    descriptions: Mapping[str, str] | None = None,
    base_url: str | None = None,
    key_variable: str = KEY_VARIABLE,
    price: Price | Mapping[str, Any] | None = None,
    log_probabilities: bool = False,
    field: str | None = None,
    concurrency: int = 8,
    timeout_s: float = 60.0,
    attempts: int = 6,
) -> CalledModel:
    """Make a language model a member of a cascade: one request per text, one class out by structured output.

    Works with every endpoint that speaks the protocol of OpenAI's chat completions. The key is read from the
    environment when the model is first asked, and is never saved. Texts are never logged.

    Args:
        model: Name of the model at the endpoint.
        classes: The class names, which the model is made to choose from.
        instructions: Instructions to the model.
        descriptions: A sentence about each class, or about some of them.
        base_url: Address of the endpoint; the client's default if left out.
        key_variable: Environment variable that holds the key.
        price: Price of an answer, by call and by tokens as the endpoint reports them; without one, calls are counted.
        log_probabilities: Ask for the probability of the answer, so that the model may be followed by another one;
            without, it gives labels alone and must be the last member.
        field: Key of the texts, if inputs are dictionaries.
        concurrency: Requests at the same time.
        timeout_s: Seconds after which a request counts as failed.
        attempts: Attempts at each request, with growing waits between them; `Retry-After` is honoured.
    """
    price = as_price(price)
    classes = tuple(classes)
    unknown = sorted(set(descriptions or {}) - set(classes))
    if len(set(classes)) != len(classes) or len(classes) < 2 or unknown:
        got = f"descriptions of {unknown}" if unknown else classes
        raise InputError("classes of a language model", expected="two or more different names", got=got)
    if base_url is not None and "@" in urlsplit(base_url).netloc:
        raise InputError("base_url", expected="an address without a user name or key", got="one that has them")
    described = [f"- {name}: {descriptions[name]}" for name in classes if descriptions and name in descriptions]
    prompt = "\n".join([instructions, *(["The classes:", *described] if described else [])])
    client = _Client(model, classes, prompt, base_url, key_variable, log_probabilities, timeout_s)
    identity = json.dumps([classes, prompt, base_url, log_probabilities])
    member = callable_model(
        client,
        classes,
        name=model,
        version=hashlib.blake2b(identity.encode(), digest_size=6).hexdigest(),
        price=price,
        field=field,
        batch_size=1,
        concurrency=concurrency,
        attempts=attempts,
    )
    if price is None or price.per_input is None:
        options: dict[str, Any] = {
            "model": model,
            "classes": list(classes),
            "instructions": instructions,
            "descriptions": dict(descriptions or {}),
            "base_url": base_url,
            "key_variable": key_variable,
            "price": describe_price(price),
            "log_probabilities": log_probabilities,
            "field": field,
            "concurrency": concurrency,
            "timeout_s": timeout_s,
            "attempts": attempts,
        }
        member.factory = Factory("llm", options)
    return member


class _Client:
    """Requests for classes to one endpoint; the client is made at the first request."""

    def __init__(
        self,
        model: str,
        classes: Sequence[str],
        prompt: str,
        base_url: str | None,
        key_variable: str,
        log_probabilities: bool,
        timeout_s: float,
    ) -> None:
        self.model, self.prompt, self.base_url, self.key_variable = model, prompt, base_url, key_variable
        self.log_probabilities, self.timeout_s, self.classes = log_probabilities, timeout_s, classes
        schema = {
            "type": "object",
            "properties": {"class": {"type": "string", "enum": list(classes)}},
            "required": ["class"],
            "additionalProperties": False,
        }
        self.format = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}
        self._client: Any = None
        self._lock = threading.Lock()

    def __call__(self, texts: Sequence[str]) -> list[Reply]:
        """Return one reply per text."""
        return [self._ask(text) for text in texts]

    def _ask(self, text: str) -> Reply:
        openai = _import_openai()
        more = {"logprobs": True} if self.log_probabilities else {}
        try:
            completion = self._connect().chat.completions.create(
                model=self.model,
                messages=[{"role": "system", "content": self.prompt}, {"role": "user", "content": text}],
                response_format=self.format,
                **more,
            )
        except openai.APIStatusError as error:
            if error.status_code in REFUSED_INPUT:
                return Reply(None)
            raise self._failure(error) from None  # the original holds the request, and with it the text
        except openai.APIConnectionError as error:
            raise CallError(f"'{self.model}' cannot be reached: {type(error).__name__}") from None
        usage = getattr(completion, "usage", None)
        tokens = (0, 0) if usage is None else (usage.prompt_tokens or 0, usage.completion_tokens or 0)
        return Reply(self._read(completion), *tokens)

    def _read(self, completion: Any) -> Any:
        """Return the class of a completion, or scores if probabilities were asked for; None if it is malformed."""
        try:
            choice = completion.choices[0]
            name = json.loads(choice.message.content)["class"]
            if not self.log_probabilities:
                return name
            chance = min(1.0, math.exp(sum(token.logprob for token in choice.logprobs.content)))
            rest = (1 - chance) / (len(self.classes) - 1)
            return [chance if other == name else rest for other in self.classes] if name in self.classes else None
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            return None

    def _failure(self, error: Any) -> CallError:
        """Describe a refusal by the endpoint, without the text that was sent."""
        status = error.status_code
        try:
            retry_after_s = float(error.response.headers.get("retry-after"))
        except (TypeError, ValueError):
            retry_after_s = None
        if retry_after_s is not None and not 0 <= retry_after_s < math.inf:
            retry_after_s = None
        hint = f"check the key in the environment variable {self.key_variable}" if status in (401, 403) else ""
        temporary = status in (408, 409, 425, 429) or status >= 500
        return CallError(
            f"'{self.model}' refused a request with status {status}",
            retry_after_s=retry_after_s,
            temporary=temporary,
            hint=hint,
        )

    def _connect(self) -> Any:
        with self._lock:
            if self._client is None:
                key = os.environ.get(self.key_variable)
                if not key:
                    raise CallError(
                        f"'{self.model}' needs a key",
                        temporary=False,
                        hint=f"set the environment variable {self.key_variable}",
                    )
                # Its own retries are off: all members are retried alike, by `offramp.calls`.
                self._client = _import_openai().OpenAI(
                    api_key=key, base_url=self.base_url, timeout=self.timeout_s, max_retries=0
                )
            return self._client


def _import_openai() -> Any:
    try:
        import openai
    except ImportError as error:
        raise MissingExtraError("offramp.llm needs openai", hint="pip install 'offramp[llm]'") from error
    return openai
