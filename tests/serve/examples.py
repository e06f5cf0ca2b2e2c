"""A small model to serve, and a backend that waits."""

import threading
from functools import cache
from typing import Any

import offramp
from offramp.runtime._eager import EagerBackend
from tests.model.examples import LINEAR, PREPROCESSING, backbone, images


@cache
def model() -> offramp.EarlyExitModel:
    data = images(200, seed=1), images(120, seed=2)
    fitted = offramp.fit(
        backbone(), *data, preprocessing=PREPROCESSING, classes=("a", "b", "c"), settings=LINEAR, progress=False
    )
    return fitted.at(max_drop=0.5, policy="threshold")


class Waiting(EagerBackend):
    """Computes when it is let."""

    def __init__(self, model: offramp.EarlyExitModel, let: threading.Event) -> None:
        super().__init__(model.backbone, model.pooling, model.exits_in_force)
        self._let = let
        self.started = threading.Event()

    def stage(self, index: int, hidden: Any) -> Any:
        self.started.set()
        self._let.wait(60)
        return super().stage(index, hidden)
