"""Calls of a model that can only be called: batches, concurrency, retries, a spending cap, and kept answers."""

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from offramp.calls._answers import AnswerStore, KeptAnswer, Usage
from offramp.calls._price import Price
from offramp.calls._replies import Scores, read_replies
from offramp.calls._retries import retry
from offramp.errors import CallError, InputError, OfframpError
from offramp.preprocessing._row_hashes import hash_rows

__all__ = ["Caller"]

CAPPED_BATCH = 10
"""Inputs per call where a spending cap is given and no batch size: the cap is passed by one batch at most."""

MOST_WITHOUT_ANSWER = 50
"""Inputs in a row without an answer after which a model counts as gone."""


class Caller:
    """A function that is asked for the classes of inputs, and the record of what it was asked.

    Args:
        function: A batch of inputs (a list of texts, or arrays) to one reply per input; see `read_replies`.
        num_classes: K.
        classes: Class names in the order of the scores; empty if unknown.
        name: Name of the model, with its version.
        price: Price of an answer.
        batch_size: Inputs per call; None: all at once, or ten if there is a spending cap.
        concurrency: Calls at the same time, each in a thread.
        timeout_s: Seconds after which a call counts as failed; its thread is left behind.
        attempts: Attempts at each call, with exponential waits between them.

    Attributes:
        answers: Where answers are kept; None: nowhere.
        max_spend: Spending cap, over all answers of this model in the store; None: no cap. It is passed by the price of
            the calls under way at most.
        usage: The use of the model by this object.
        identity: Name and classes of the model: answers are kept under it.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        num_classes: int,
        *,
        name: str,
        price: Price,
        classes: Sequence[str] = (),
        batch_size: int | None = None,
        concurrency: int = 1,
        timeout_s: float | None = None,
        attempts: int = 1,
    ) -> None:
        for option, value in (("batch_size", batch_size), ("concurrency", concurrency), ("attempts", attempts)):
            if value is not None and value < 1:
                raise InputError(option, expected="at least 1", got=value)
        self.function, self.num_classes, self.classes = function, num_classes, tuple(classes)
        self.name, self.price = name, price
        self.batch_size, self.concurrency, self.timeout_s, self.attempts = batch_size, concurrency, timeout_s, attempts
        self.answers: AnswerStore | None = None
        self.max_spend: float | None = None
        self.usage = Usage()
        self.identity = f"{name} {_digest([num_classes, *self.classes])}"
        self._without_answer = 0  # inputs in a row
        self._sums = np.zeros(5)  # of 1, size, size squared, price, size times price, over answered inputs
        self._not_before = 0.0  # monotonic time: a rate limit that one call met holds for all
        self._lock = threading.Lock()

    @contextmanager
    def keeping(self, answers: AnswerStore | None, *, max_spend: float | None = None) -> Iterator[None]:
        """Keep answers in a store, and spend no more than a cap, while in this context."""
        before = self.answers, self.max_spend
        self.answers, self.max_spend = answers, max_spend
        try:
            yield
        finally:
            self.answers, self.max_spend = before

    def ask(self, inputs: Any) -> Scores:
        """Return the class scores of a batch of inputs; nothing that has a kept answer is asked again.

        Args:
            inputs: n inputs: a list or an array of texts, or a pytree of arrays or tensors, samples first.

        Returns:
            `n x K` scores; NaN for inputs whose replies stayed malformed, or whose calls failed for good.

        Raises:
            CallError: If a call failed in a way that no later attempt can mend, such as a missing key, or the spending
                cap is reached; answers so far are kept.
        """
        count = _count(inputs)
        scores = np.full((count, self.num_classes), np.nan, np.float32)
        if count == 0:
            return scores
        keys = hash_rows(inputs) if self.answers is not None else np.arange(count)
        unique, first, place = np.unique(keys, return_index=True, return_inverse=True)
        known = {} if self.answers is None else self.answers.get(self.identity, unique.tolist())
        found = np.full((len(unique), self.num_classes), np.nan, np.float32)
        for row, key in enumerate(unique.tolist()):
            if key in known:
                found[row] = known[key].scores
        self._learn_prices(_take(inputs, first), [known.get(key) for key in unique.tolist()])
        pending = np.flatnonzero(np.isnan(found[:, 0]))
        step = self.batch_size or (max(1, len(pending)) if self.max_spend is None else CAPPED_BATCH)
        batches = [pending[start : start + step] for start in range(0, len(pending), step)]
        for rows, answered in self._ask_batches([(rows, unique[rows], _take(inputs, first[rows])) for rows in batches]):
            found[rows] = answered
        return found[place]

    def sizes(self, inputs: Any) -> npt.NDArray[np.float64]:
        """Return `n` numbers that prices grow with: an input's own price, or its characters; ones if all cost the same.

        Args:
            inputs: n inputs.
        """
        if self.price.per_input is not None:
            return np.array([float(self.price.per_input(sample)) for sample in _samples(inputs)])
        if not self.price.varies:
            return np.ones(_count(inputs))
        return np.array([len(sample) if isinstance(sample, str) else 1 for sample in _samples(inputs)], np.float64)

    @property
    def price_line(self) -> tuple[float, float]:
        """Price of an answer as a + b size: least squares over the answers so far where tokens are billed."""
        if self.price.per_input is not None:
            return self.price.per_call, 1.0
        if not self.price.varies:
            count, _, _, total, _ = self._sums
            return (float(total / count) if count else self.price.per_call), 0.0
        count, sizes, squares, total, products = self._sums
        if not count:
            raise InputError(
                f"price of '{self.name}'", expected="answers to learn it from", got="none", hint="ask it first"
            )
        spread = squares - sizes**2 / count
        slope = max(0.0, (products - sizes * total / count) / spread) if spread > 0 else 0.0
        return max(0.0, (total - slope * sizes) / count), slope

    @property
    def mean_size(self) -> float:
        """Mean size of the inputs answered so far; 1 without any."""
        count, sizes, *_ = self._sums
        return float(sizes / count) if count else 1.0

    def _learn_prices(self, inputs: Any, answers: Sequence[KeptAnswer | None]) -> None:
        """Add answers to the sums that `price_line` is fitted on."""
        kept = [(place, answer.price) for place, answer in enumerate(answers) if answer is not None]
        if not kept:
            return
        places, prices = np.array([place for place, _ in kept]), np.array([price for _, price in kept])
        sizes = self.sizes(_take(inputs, places)) if self.price.varies else np.ones(len(places))
        with self._lock:
            self._sums += [len(sizes), sizes.sum(), (sizes**2).sum(), prices.sum(), (sizes * prices).sum()]

    def _ask_batches(self, batches: list[tuple[Any, Any, Any]]) -> Iterator[tuple[Any, Scores]]:
        """Yield the rows and scores of each batch, several at a time."""
        if self.concurrency == 1 or len(batches) < 2:
            for rows, keys, inputs in batches:
                yield rows, self._ask_batch(keys, inputs)
            return
        with ThreadPoolExecutor(self.concurrency, thread_name_prefix=f"call {self.name}"[:40]) as pool:
            futures: dict[Future[Scores], Any] = {
                pool.submit(self._ask_batch, keys, inputs): rows for rows, keys, inputs in batches
            }
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                for future in futures:  # after an error or Ctrl-C: those under way still keep their answers
                    future.cancel()
            for future, rows in futures.items():
                if not future.cancelled():
                    yield rows, future.result()

    def _ask_batch(self, keys: npt.NDArray[np.int64], inputs: Any) -> Scores:
        """Ask until every input is answered or attempts are used up; keep each answer at once."""
        scores = np.full((len(keys), self.num_classes), np.nan, np.float32)

        def attempt() -> None:
            left = np.flatnonzero(np.isnan(scores[:, 0]))
            scores[left] = self._call(keys[left], _take(inputs, left))
            malformed = int(np.isnan(scores[:, 0]).sum())
            if malformed:
                raise CallError(f"{malformed} of {len(left)} replies of '{self.name}' are malformed")

        try:
            retry(attempt, attempts=self.attempts, on_wait=self._hold_calls)
        except CallError as error:
            if not error.temporary:
                raise
            self._count_failures(scores, error)
        else:
            self._without_answer = 0
        return scores

    def _count_failures(self, scores: Scores, error: CallError) -> None:
        """Stop if the model answers nothing any more: the other inputs would fail one by one."""
        missing = int(np.isnan(scores[:, 0]).sum())
        with self._lock:
            self._without_answer = self._without_answer + missing if missing == len(scores) else 0
        if self._without_answer >= MOST_WITHOUT_ANSWER:
            raise CallError(
                f"'{self.name}' gave no answer to {self._without_answer} inputs in a row; the last time: {error}",
                temporary=False,
                hint="run again when it answers: answers so far are kept",
            ) from error

    def _call(self, keys: npt.NDArray[np.int64], inputs: Any) -> Scores:
        """Call the function once; keep answers and record the usage."""
        while (seconds := self._not_before - time.monotonic()) > 0:
            time.sleep(seconds)
        self._check_spending()
        try:
            answers = read_replies(self._run(inputs), len(keys), self.classes, self.num_classes)
        except InputError as error:
            self._record({}, Usage(failures=1))
            raise InputError(f"replies of '{self.name}'", expected=error.expected, got=error.got) from error
        except OfframpError:
            self._record({}, Usage(failures=1))
            raise
        except Exception as error:  # of any kind: the function is the user's
            self._record({}, Usage(failures=1))
            raise CallError(
                f"'{self.name}' failed: {type(error).__name__}",
                retry_after_s=getattr(error, "retry_after_s", None),
                temporary=self.attempts > 1,
            ) from error
        samples = _samples(inputs) if self.price.per_input is not None else [None] * len(keys)
        kept, usage = {}, Usage()
        for key, row, reply, sample in zip(keys.tolist(), answers.scores, answers.replies, samples, strict=True):
            tokens = reply.input_tokens, reply.output_tokens
            price = self.price.of(sample, input_tokens=tokens[0], output_tokens=tokens[1])
            malformed = bool(np.isnan(row[0]))
            usage += Usage(1, int(malformed), 0, *tokens, price)
            if not malformed:
                kept[key] = KeptAnswer(row, *tokens, price)
        self._record(kept, usage)
        self._learn_prices(inputs, [kept.get(key) for key in keys.tolist()])
        return answers.scores

    def _run(self, inputs: Any) -> Any:
        """Call the function, at most as long as the timeout."""
        if self.timeout_s is None:
            return self.function(inputs)
        result: list[Any] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                result.append(self.function(inputs))
            except BaseException as error:  # given on to the thread that waits
                errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(self.timeout_s)
        if thread.is_alive():
            raise TimeoutError(f"no reply within {self.timeout_s:g} s")
        if errors:
            raise errors[0]
        return result[0]

    def _record(self, kept: dict[int, KeptAnswer], usage: Usage) -> None:
        with self._lock:
            self.usage += usage
        if self.answers is not None:
            self.answers.put(self.identity, kept, usage)

    def _check_spending(self) -> None:
        if self.max_spend is None:
            return
        spent = self.usage.spent if self.answers is None else self.answers.usage(self.identity).spent
        if spent >= self.max_spend:
            raise CallError(
                f"the spending cap of {self.max_spend:g} {self.price.currency} for '{self.name}' is reached: {spent:g} "
                "are spent",
                temporary=False,
                hint="answers so far are kept: run again with a higher cap",
            )

    def _hold_calls(self, seconds: float) -> None:
        """Let no call begin for some seconds: the model asked for it."""
        with self._lock:
            self._not_before = max(self._not_before, time.monotonic() + seconds)


def _digest(parts: Sequence[Any]) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=4).hexdigest()


def _count(inputs: Any) -> int:
    """Count the samples of raw inputs."""
    return len(inputs) if isinstance(inputs, list) else len(pytree.tree_leaves(inputs)[0])


def _take(inputs: Any, rows: npt.NDArray[np.int64]) -> Any:
    """Return some of the samples, texts as a list."""

    def take(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf[torch.from_numpy(rows).to(leaf.device)]
        taken = np.asarray(leaf, object)[rows] if isinstance(leaf, list) else leaf[rows]
        return taken.tolist() if taken.dtype.kind in "OSU" else taken

    return pytree.tree_map(take, inputs, is_leaf=lambda node: isinstance(node, list))


def _samples(inputs: Any) -> list[Any]:
    """Return the samples of raw inputs one by one."""
    if isinstance(inputs, list):
        return inputs
    leaves, spec = pytree.tree_flatten(inputs, is_leaf=lambda node: isinstance(node, list))
    return [pytree.tree_unflatten(list(sample), spec) for sample in zip(*leaves, strict=True)]
