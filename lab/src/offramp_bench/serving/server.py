"""One server process.

python -m offramp_bench.serving.server NETWORK SIDE BACKEND PORT
"""

import sys

import torch
import uvicorn

import offramp_bench.torchvision_ops  # noqa: F401 (before transformers loads a model)
from offramp.serve import Scheduler
from offramp.serve._app import create_app
from offramp.serve._requests import Limits
from offramp_bench.serving.networks import NETWORKS, build

MAX_QUEUE = 256
"""Samples that wait on both sides; a queue of a second and more serves nobody in time."""


def main() -> None:
    network, side, backend, port = sys.argv[1:]
    torch.set_num_threads(1)
    model = build(network, side, backend)
    rows = NETWORKS[network].rows()
    for count in (1, 2, 64):
        model.predict(rows[:count] if isinstance(rows[0], str) else torch.tensor(rows[:count]).byte().numpy())
    app = create_app(Scheduler(model, max_queue=MAX_QUEUE), name=network, limits=Limits())
    uvicorn.run(app, port=int(port), access_log=False, log_level="warning")


if __name__ == "__main__":
    main()
