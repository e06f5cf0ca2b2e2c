"""Run one server process.

python -m offramp_bench.serving.server NETWORK SIDE GRAPHS PORT [--overload-drop D] [--litserve BATCH_SIZE TIMEOUT_MS]

GRAPHS is a file that `offramp_bench.serving.networks.keep_graphs` wrote. With --litserve, LitServe's own batching
serves the model instead of the scheduler.
"""

import argparse
from pathlib import Path
from typing import Any

import litserve
import torch

import offramp_bench.torchvision_ops  # noqa: F401 (before transformers loads a model)
from offramp.model._model import EarlyExitModel
from offramp.serve import Scheduler
from offramp.serve._app import create_app
from offramp.serve._connections import run_app
from offramp.serve._requests import Limits
from offramp_bench.serving.networks import NETWORKS, build

MAX_QUEUE = 256
"""Samples that may wait, for all kinds of servers; with a longer queue, no answer is in time."""


class Peer(litserve.LitAPI):  # type: ignore[misc]
    """A model behind LitServe."""

    def __init__(self, network: str, side: str, graphs: Path, **options: Any) -> None:
        super().__init__(**options)
        self.parts = network, side, graphs

    def setup(self, device: str) -> None:
        self.model = load(*self.parts)

    def decode_request(self, request: dict[str, Any]) -> Any:
        return request["inputs"][0]

    def batch(self, inputs: list[Any]) -> list[Any]:
        return inputs

    def predict(self, inputs: Any) -> list[Any]:
        batch = inputs if isinstance(inputs, list) else [inputs]  # LitServe passes a batch of one as a single input
        return self.model.predict(batch).to_dicts()

    def unbatch(self, output: list[Any]) -> list[Any]:
        return output

    def encode_response(self, output: Any) -> Any:
        return output


def load(network: str, side: str, graphs: Path) -> EarlyExitModel:
    """Return a model, warmed up in several batch sizes."""
    torch.set_num_threads(1)
    model = build(network, side, graphs)
    for count in (1, 2, 64):
        model.predict(NETWORKS[network].test().read(0, count).inputs)
    return model


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("network")
    options.add_argument("side")
    options.add_argument("graphs", type=Path)
    options.add_argument("port", type=int)
    options.add_argument("--overload-drop", type=float)
    options.add_argument("--litserve", nargs=2, type=float)
    arguments = options.parse_args()
    parts = arguments.network, arguments.side, arguments.graphs
    if arguments.litserve is not None:
        size, timeout_ms = arguments.litserve
        api = Peer(*parts, max_batch_size=int(size), batch_timeout=timeout_ms / 1000)
        peer = litserve.LitServer(api, accelerator="cpu", timeout=60)
        peer.run(host="127.0.0.1", port=arguments.port, generate_client_file=False, log_level="warning")
        return
    scheduler = Scheduler(load(*parts), max_queue=MAX_QUEUE, overload_drop=arguments.overload_drop)
    limits = Limits()
    app = create_app(scheduler, name="served", limits=limits)
    run_app(app, host="127.0.0.1", port=arguments.port, limits=limits, most_requests=scheduler.most_requests)


if __name__ == "__main__":
    main()
