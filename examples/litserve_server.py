"""Serve an artifact with LitServe: python examples/litserve_server.py my-offramp 8000.

`offramp serve` needs none of this. It is for people who run LitServe already: workers and batches are LitServe's, and
each sample of a batch still leaves at its own exit. A request holds one text, or one image as rows of pixels:

    curl localhost:8000/predict -H 'Content-Type: application/json' --data '{"input": "where is my card?"}'

The answer to a bad input is an object with its `error`.
"""

import sys
from typing import Any

import litserve
import numpy as np

import offramp


class EarlyExitAPI(litserve.LitAPI):
    """An artifact behind LitServe's batches.

    Args:
        artifact: Folder of the artifact.
    """

    def __init__(self, artifact: str) -> None:
        super().__init__(max_batch_size=64, batch_timeout=0.005)
        self._artifact = artifact

    def setup(self, device: str) -> None:
        """Load the model, in a worker."""
        self._model = offramp.load(self._artifact)
        self._model.backbone.to(device)
        self._model.exits.to(device)

    def decode_request(self, request: dict[str, Any]) -> Any:
        """Return the input of one request; an error here would be the answer to the whole batch of LitServe."""
        value = request.get("input")
        if isinstance(value, str):
            return value
        try:
            return np.array(value, np.uint8)
        except (TypeError, ValueError, OverflowError):
            return None  # no input of any network: `predict` marks it

    def predict(self, inputs: Any) -> list[dict[str, Any]]:
        """Answer a batch: label, confidence, exit, relative cost and prediction sets of each sample, or its error."""
        return self._model.predict(inputs, on_error="mark").to_dicts()


if __name__ == "__main__":
    server = litserve.LitServer(EarlyExitAPI(sys.argv[1]), accelerator="cpu")
    server.run(host="127.0.0.1", port=int(sys.argv[2]), generate_client_file=False)
