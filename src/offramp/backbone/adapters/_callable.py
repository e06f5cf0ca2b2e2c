"""Functions as members of a cascade: models that are only called, and encoders that return embeddings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from offramp._registry import import_trusted
from offramp.backbone._backbone import Backbone
from offramp.backbone._factory import Factory
from offramp.backbone._hidden import Hidden
from offramp.calls._caller import Caller
from offramp.calls._price import CALLS, Price, as_price
from offramp.errors import CallError, InputError
from offramp.preprocessing._preprocessing import AS_IS, Preprocessing

__all__ = ["CalledModel", "callable_model", "describe_price", "encoder"]


def callable_model(
    function: Callable[[Any], Any] | str,
    classes: Sequence[str] | int,
    *,
    name: str | None = None,
    version: str = "",
    price: Price | Mapping[str, Any] | None = None,
    mul_adds: float | None = None,
    field: str | None = None,
    batch_size: int | None = None,
    concurrency: int = 1,
    timeout_s: float | None = None,
    attempts: int = 1,
    preprocessing: Preprocessing = AS_IS,
) -> "CalledModel":
    """Make a function a member of a cascade: a local model, a vendor's endpoint, anything that can be called.

    Args:
        function: A batch of raw inputs (a list of texts, or arrays) to one reply per input: class numbers, class names,
            `N x K` scores, log-probabilities or probabilities, or `offramp.calls.Reply` objects, which hold the tokens
            that were used. The last member of a cascade may return labels alone; others need scores. A function of a
            module, or its name `package.module:function`, can be loaded again from an artifact.
        classes: The class names in the order of the scores, or K.
        name: Identity of the model; the function's name if left out. Answers are kept and features are cached under
            it, so give another model another name.
        version: Part of the identity: give a changed model another version.
        price: Price of an answer; free if left out, but of the last member of a cascade calls are then counted.
        mul_adds: Mul-Adds per sample, for a cascade whose last member is a network.
        field: Key of the inputs that the function takes, if inputs are dictionaries.
        batch_size: Inputs per call; all that are there if left out, or ten if there is a spending cap.
        concurrency: Calls at the same time.
        timeout_s: Seconds after which a call counts as failed.
        attempts: Attempts at each call, with growing waits between them; 2 or more need `pip install offramp[llm]`.
        preprocessing: From raw inputs to what the function takes.

    Example:
        >>> member = callable_model(lambda texts: [len(text) % 2 for text in texts], ["even", "odd"], name="lengths")
        >>> member(["a", "to"]).argmax(1).tolist()
        [1, 0]
    """
    function, origin = _resolve(function)
    price = as_price(price)
    names = () if isinstance(classes, int) else tuple(classes)
    num_classes = classes if isinstance(classes, int) else len(names)
    name = getattr(function, "__name__", type(function).__name__) if name is None else name
    caller = Caller(
        function,
        num_classes,
        name=f"{name} {version}".strip(),
        price=price or CALLS,
        classes=names,
        batch_size=batch_size,
        concurrency=concurrency,
        timeout_s=timeout_s,
        attempts=attempts,
    )
    model = CalledModel(caller, field=field)
    model.price = price
    model.classes = names
    model.preprocessing = preprocessing
    model.is_priced = mul_adds is None
    model.declared_mul_adds = {0: mul_adds or 0.0}
    if origin is not None and (price is None or price.per_input is None):
        options = {
            "function": origin,
            "classes": list(names) or num_classes,
            "name": name,
            "version": version,
            "price": describe_price(price),
            "mul_adds": mul_adds,
            "field": field,
            "batch_size": batch_size,
            "concurrency": concurrency,
            "timeout_s": timeout_s,
            "attempts": attempts,
        }
        model.factory = Factory("callable_model", options)
    return model


def describe_price(price: Price | None) -> dict[str, Any] | None:
    """Return a price as JSON holds it."""
    return None if price is None else {key: part for key, part in asdict(price).items() if part is not None}


def _resolve(function: Callable[[Any], Any] | str) -> tuple[Callable[[Any], Any], str | None]:
    """Return a function, and the name it can be imported by, if there is one."""
    if isinstance(function, str):
        imported: Callable[[Any], Any] = import_trusted(function, (function,))
        return imported, function
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    importable = module not in (None, "__main__") and name.isidentifier()
    return function, f"{module}:{name}" if importable else None


class CalledModel(Backbone):
    """A model that is only called, as a backbone of one stage; made by `callable_model` and `offramp.llm`.

    Args:
        caller: The function, its price and the record of its answers.
        field: Key of the inputs that it takes, if inputs are dictionaries.

    Attributes:
        is_priced: True if its cost is money (or calls), False if it is Mul-Adds.
    """

    def __init__(self, caller: Caller, *, field: str | None = None) -> None:
        super().__init__(caller.name, [_Call(caller, field)], {0: nn.Identity()}, caller.num_classes)
        self.caller = caller
        self.field = field
        self.is_priced = True

    def prepare(self, inputs: Any) -> Any:
        """Return inputs unchanged: only the function knows what it takes."""
        return inputs

    def read_field(self, inputs: Any) -> Any:
        """Return the part of the inputs that the function takes."""
        return _read_field(inputs, self.field, self.name)

    def sizes(self, inputs: Hidden) -> Tensor:
        """Return what prices depend on: an input's own price, or its number of characters; ones if all cost the same.

        Tokens are counted by the model, after the call; characters are known before it.
        """
        return torch.from_numpy(self.caller.sizes(self.read_field(inputs)))

    @property
    def varies_in_size(self) -> bool:
        """True if inputs differ in price."""
        return self.caller.price.varies


class _Call(nn.Module):
    def __init__(self, caller: Caller, field: str | None) -> None:
        super().__init__()
        self._caller, self._field = caller, field
        if isinstance(caller.function, nn.Module):  # a submodule: frozen, and part of the fingerprint
            self.module = caller.function

    def forward(self, inputs: Any) -> Tensor:
        scores = self._caller.ask(_read_field(inputs, self._field, self._caller.name))
        missing = int(np.isnan(scores).any(1).sum())
        if missing:
            raise CallError(
                f"'{self._caller.name}' gave no answer to {missing} of {len(scores)} inputs "
                f"(attempts: {self._caller.attempts})",
                hint="a reply is a class number, a class name or K scores; if it replies so only at times, allow more "
                "attempts=...",
            )
        return torch.from_numpy(scores)

    def extra_repr(self) -> str:
        return f"{self._caller.name}, field={self._field}"  # part of the fingerprint


def encoder(
    function: Callable[[Any], Any] | str | None = None,
    *,
    name: str | None = None,
    field: str | None = None,
    preprocessing: Preprocessing = AS_IS,
    mul_adds: float = 0.0,
) -> Backbone:
    """Make a function that returns embeddings the first member of a cascade; an exit is trained on them.

    Args:
        function: A batch of raw inputs to `N x D` embeddings; left out, the inputs are embeddings.
        name: Identity of the encoder; the function's name if left out. Give another encoder another name.
        field: Key of the inputs that the function takes, if inputs are dictionaries.
        preprocessing: From raw inputs to what the function takes.
        mul_adds: Mul-Adds per sample, for a cascade whose last member is a network.

    Example:
        >>> front = encoder(field="embedding")
        >>> front.stages[0]({"embedding": np.ones((2, 3), np.float32), "text": ["a", "b"]}).shape
        torch.Size([2, 3])
    """
    origin = None
    if function is not None:
        function, origin = _resolve(function)
    if name is None:
        name = "embeddings" if function is None else getattr(function, "__name__", type(function).__name__)
    backbone = _Encoder(name, [_Embed(function, field, name)], {}, num_classes=0)
    backbone.preprocessing = preprocessing
    backbone.declared_mul_adds = {0: mul_adds}
    if function is None or origin is not None:
        options = {"function": origin, "name": name, "field": field, "mul_adds": mul_adds}
        backbone.factory = Factory("encoder", options)
    return backbone


class _Encoder(Backbone):
    def prepare(self, inputs: Any) -> Any:
        """Return inputs unchanged: only the function knows what it takes."""
        return inputs


class _Embed(nn.Module):
    def __init__(self, function: Callable[[Any], Any] | None, field: str | None, name: str) -> None:
        super().__init__()
        self._function, self._field, self._name = function, field, name

    def forward(self, inputs: Any) -> Tensor:
        rows = _read_field(inputs, self._field, self._name)
        if self._function is not None:
            rows = self._function(rows.tolist() if isinstance(rows, np.ndarray) and rows.dtype == object else rows)
        embeddings = torch.as_tensor(rows).float()
        if embeddings.ndim != 2:
            raise InputError(
                f"embeddings of '{self._name}'", expected="N x D numbers", got=f"shape {tuple(embeddings.shape)}"
            )
        return embeddings

    def extra_repr(self) -> str:
        return f"{self._name}, field={self._field}"


def _read_field(inputs: Any, field: str | None, name: str) -> Any:
    """Return one entry of inputs that are dictionaries, or the inputs themselves."""
    if field is None:
        return inputs
    if not isinstance(inputs, Mapping) or field not in inputs:
        got = f"entries {sorted(inputs)}" if isinstance(inputs, Mapping) else f"a {type(inputs).__name__}"
        raise InputError(f"inputs of '{name}'", expected=f"a dictionary with the entry '{field}'", got=got)
    return inputs[field]
