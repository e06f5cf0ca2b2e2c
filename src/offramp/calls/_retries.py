"""Repeated attempts at a call, by `tenacity`."""

from collections.abc import Callable
from typing import Any

from offramp.errors import CallError, MissingExtraError

__all__ = ["retry"]

FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 60.0
"""Waits between attempts double from the first to the longest, each with jitter."""


LONGEST_REQUESTED_WAIT_S = 600.0
"""Longest wait that a model may ask for; a longer one is cut, and the next attempt tells."""


def retry(attempt: Callable[[], None], *, attempts: int, on_wait: Callable[[float], None]) -> None:
    """Run a function until it raises no temporary `CallError`, or its attempts are used up.

    Args:
        attempt: The function.
        attempts: The largest number of attempts.
        on_wait: Called with the seconds that the model asked to wait, if it did.

    Raises:
        CallError: The last one.
    """
    if attempts == 1:
        attempt()
        return
    try:
        import tenacity
    except ImportError as error:
        raise MissingExtraError(
            "attempts=2 or more needs tenacity", hint="pip install 'offramp[llm]', or call with attempts=1"
        ) from error
    backoff = tenacity.wait_random_exponential(multiplier=FIRST_WAIT_S, max=LONGEST_WAIT_S)

    def seconds(state: Any) -> float:
        error = state.outcome.exception()
        if error.retry_after_s is None:
            return float(backoff(state))
        waited = min(error.retry_after_s, LONGEST_REQUESTED_WAIT_S)
        on_wait(waited)
        return float(waited)

    tenacity.Retrying(
        stop=tenacity.stop_after_attempt(attempts),
        wait=seconds,
        retry=tenacity.retry_if_exception(lambda error: isinstance(error, CallError) and error.temporary),
        reraise=True,
    )(attempt)
