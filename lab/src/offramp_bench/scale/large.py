"""Measure BERT-base and ViT-B/16 with random weights, through every step from the network to the server.

    python -m offramp_bench.scale.large [--small] [--network bert-base]

Each network has a process of its own, with one thread. Steps are processor times of that process, relative to one pass
of the network alone over the same rows. Peak memory is that of the process so far. Weights are random, so accuracies
mean nothing; times and sizes do not depend on the weights.
"""

import http.client
import json
import os
import resource
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

import offramp
import offramp_bench.torchvision_ops  # noqa: F401 (before transformers loads a model)
from offramp.backbone._backbone import Backbone
from offramp.backbone.adapters.transformers import image_backbone, text_backbone
from offramp.errors import OfframpWarning
from offramp.preprocessing import photo_preprocessing
from offramp.runtime import measure_latency
from offramp.runtime._processor import processor_name
from offramp_bench.bars import parser, report, say
from offramp_bench.cifar import cifar10
from offramp_bench.serving.processes import COMMAND, wait_until_ready
from offramp_bench.texts import intents, tokenizer

__all__ = ["NETWORKS", "make_table", "measure"]

T = TypeVar("T")

LABELS = 10
TOKENS = 128
"""Tokens of each text."""
SIDE = 224
"""Pixels of the images' sides."""
ROWS, SMALL_ROWS = 64, 16
"""Rows of the train split, and of the validation split."""
BATCH_SIZE = 8
SINGLE = 8
"""Number of timed requests, of one input each."""

NETWORKS: dict[str, dict[str, Any]] = {
    "bert-base": {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
    "half as deep": {"num_hidden_layers": 6, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
    "half as wide": {"num_hidden_layers": 12, "hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536},
    "vit-b16": {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
}
"""Sizes of the networks; the second and the third are BERTs."""
SMALL_SIZES: dict[str, Any] = {
    "num_hidden_layers": 3,
    "hidden_size": 48,
    "num_attention_heads": 2,
    "intermediate_size": 96,
}


def measure(name: str, *, small: bool) -> dict[str, Any]:
    """Return the figures of one network.

    Args:
        name: One of NETWORKS.
        small: Use a tiny network of the same kind.
    """
    rows = SMALL_ROWS if small else ROWS
    sizes = {**(SMALL_SIZES if small else NETWORKS[name]), "num_labels": LABELS}
    network, inputs, attach = _vit(sizes, 2 * rows) if name == "vit-b16" else _bert(sizes, 2 * rows)
    labels = np.arange(2 * rows) % LABELS
    train, validation = (inputs[:rows], labels[:rows]), (inputs[rows:], labels[rows:])
    steps: dict[str, dict[str, float]] = {}

    def step(title: str, work: Callable[[], T]) -> T:
        before, begin = process_time(), perf_counter()
        result = work()
        steps[title] = {
            "cpu_s": process_time() - before,
            "seconds": perf_counter() - begin,
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        say(f"{title}: {steps[title]}")
        return result

    with TemporaryDirectory() as folder:
        store, artifact = Path(folder, "store"), Path(folder, "artifact")
        backbone = step("split", lambda: attach(network))
        step("bare pass", lambda: _run_all(backbone, train[0]))

        def fit() -> offramp.EarlyExitModel:
            options: dict[str, Any] = {"store": store, "anyway": True, "progress": False}
            return offramp.fit(backbone, train, validation, **options)

        step("extraction and fit", fit)
        model = step("fit", fit)  # the features are in the store
        step("save", lambda: model.save(artifact))
        loaded = step("load", lambda: offramp.load(artifact))
        step("predict", lambda: [loaded.predict(batch) for batch in _batches(train[0])])
        onnx = step("onnx", lambda: loaded.on("onnx", example=train[0][:2]))
        step("predict, onnx", lambda: [onnx.predict(batch) for batch in _batches(train[0])])
        step("int8", lambda: loaded.with_backend("int8", validation, anyway=True, progress=False))
        hidden = loaded.backbone.prepare(loaded.preprocessing(train[0][:BATCH_SIZE]))
        table = measure_latency(
            loaded.backbone,
            loaded.pooling,
            loaded.exits,
            hidden,
            batch_sizes=(1, BATCH_SIZE),
            repeats=3,
            progress=False,
        )
        predict_s = _median_s(lambda: loaded.predict(train[0][:1]))
        with _serving(artifact) as port:
            request_s = _median_s(lambda: _send_request(port, train[0][0]))
        return {
            "weights": sum(weight.numel() for weight in network.parameters()),
            "rows": rows,
            "processor seconds": {title: figures["cpu_s"] for title, figures in steps.items()},
            "peak_mb": {title: figures["peak_mb"] for title, figures in steps.items()},
            "store_bytes_per_row": _size(store) / (2 * rows),
            "artifact_mb": _size(artifact) / 1e6,
            "exits_mb": sum(weight.nbytes for weight in loaded.exits.state_dict().values()) / 1e6,
            "share of exits": {
                str(size): sum(row[place] for row in table.answer) / table.full[place]
                for place, size in enumerate(table.batch_sizes)
            },
            "request over predict": request_s / predict_s,
        }


def _bert(sizes: dict[str, Any], rows: int) -> tuple[nn.Module, Any, Callable[[nn.Module], Backbone]]:
    """Return a text classifier, texts of its full length in tokens, and the function that splits it."""
    from transformers import BertConfig, BertForSequenceClassification

    own = tokenizer()
    source = intents("banking77", "train")
    words = " ".join(source.read(0, len(source)).inputs).split()
    texts = np.array([" ".join(words[TOKENS * row : TOKENS * (row + 1)]) for row in range(rows)], dtype=object)
    network: nn.Module = BertForSequenceClassification(BertConfig(vocab_size=len(own), **sizes))  # type: ignore[no-untyped-call]
    return network.eval(), texts, lambda network: text_backbone(network, tokenizer=own, longest=TOKENS)


def _vit(sizes: dict[str, Any], rows: int) -> tuple[nn.Module, Any, Callable[[nn.Module], Backbone]]:
    """Return an image classifier, images, and the function that splits it."""
    from transformers import ViTConfig, ViTForImageClassification

    network: nn.Module = ViTForImageClassification(ViTConfig(image_size=SIDE, **sizes))
    prepare = photo_preprocessing(SIDE, resized=SIDE, mode="bilinear", mean=(0.5,) * 3, std=(0.5,) * 3)
    return (
        network.eval(),
        cifar10("test").read(0, rows).inputs,
        lambda network: image_backbone(network, side=SIDE, preprocessing=prepare),
    )


def _batches(inputs: Any) -> list[Any]:
    return [inputs[start : start + BATCH_SIZE] for start in range(0, len(inputs), BATCH_SIZE)]


def _run_all(backbone: Backbone, inputs: Any) -> None:
    with torch.inference_mode():
        for batch in _batches(inputs):
            backbone(backbone.prepare(backbone.preprocessing(batch)))


def _median_s(work: Callable[[], object]) -> float:
    work()
    times = []
    for _ in range(SINGLE):
        begin = perf_counter()
        work()
        times.append(perf_counter() - begin)
    return float(np.median(times))


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@contextmanager
def _serving(artifact: Path) -> Iterator[int]:
    """Serve an artifact by the command, with one thread, and yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    line = [sys.executable, "-c", COMMAND, "serve", str(artifact), "--port", str(port)]
    process = subprocess.Popen(line, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        wait_until_ready(process, f"http://127.0.0.1:{port}/v2/health/ready", within_s=300)
        yield port
    finally:
        process.terminate()
        process.wait()


def _send_request(port: int, value: Any) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    body = json.dumps({"inputs": [value if isinstance(value, str) else value.tolist()]})
    connection.request("POST", "/predict", body)
    response = connection.getresponse()
    content = response.read()
    assert response.status == 200, content
    connection.close()


def make_table(figures: dict[str, Any]) -> str:
    """Return the figures as a table for docs/evidence/scale.md.

    Args:
        figures: Results of this benchmark.
    """
    networks = figures["networks"]
    rows = {
        "weights, millions": [f"{row['weights'] / 1e6:.0f}" for row in networks.values()],
        "bare pass, ms per input": [
            f"{1000 * row['processor seconds']['bare pass'] / row['rows']:.0f}" for row in networks.values()
        ],
        **{
            f"{step}, bare passes": [
                f"{row['processor seconds'][step] / row['processor seconds']['bare pass']:.2g}"
                for row in networks.values()
            ]
            for step in next(iter(networks.values()))["processor seconds"]
            if step != "bare pass"
        },
        "exits, share of the time at batch 1": [
            f"{100 * row['share of exits']['1']:.1f} %" for row in networks.values()
        ],
        f"exits, share of the time at batch {BATCH_SIZE}": [
            f"{100 * row['share of exits'][str(BATCH_SIZE)]:.1f} %" for row in networks.values()
        ],
        "one request to the server, over `predict`": [
            f"{row['request over predict']:.2f}" for row in networks.values()
        ],
        "features, kB per row": [f"{row['store_bytes_per_row'] / 1e3:.0f}" for row in networks.values()],
        "exits, MB": [f"{row['exits_mb']:.1f}" for row in networks.values()],
        "artifact, MB": [f"{row['artifact_mb']:.0f}" for row in networks.values()],
        "peak memory after fitting, MB": [f"{row['peak_mb']['fit']:.0f}" for row in networks.values()],
        "peak memory after all, MB": [f"{max(row['peak_mb'].values()):.0f}" for row in networks.values()],
    }
    lines = [f"| | {' | '.join(networks)} |", "|---" * (len(networks) + 1) + "|"]
    return "\n".join(lines + [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()])


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--network", choices=list(NETWORKS), help="measure this network alone, in this process")
    options.add_argument("--small", action="store_true", help="tiny networks of the same kinds")
    arguments = options.parse_args()
    if arguments.network:
        torch.set_num_threads(1)
        warnings.simplefilter("ignore", OfframpWarning)  # random weights are no better than guessing
        print(json.dumps(measure(arguments.network, small=arguments.small)))
        return 0
    networks = {}
    for name in NETWORKS:
        line = [sys.executable, "-m", "offramp_bench.scale.large", "--network", name]
        small = ["--small"] if arguments.small else []
        networks[name] = json.loads(subprocess.run([*line, *small], stdout=subprocess.PIPE, check=True).stdout)
    return report({"processor": processor_name(), "networks": networks}, [], check=arguments.check)


if __name__ == "__main__":
    sys.exit(main())
