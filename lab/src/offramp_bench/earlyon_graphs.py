"""The staged deployment that earlyon 0.3.0 documents: one graph per stage in ONNX Runtime, its rule between them."""

import tempfile
import warnings
from pathlib import Path
from typing import Any

import offramp_bench.torchvision_ops  # noqa: F401 (before earlyon imports torchvision)

# isort: split
import onnxruntime
import torch
from earlyon.staged import Stage
from torch import Tensor, nn

from offramp_bench.earlyon_heads import InSequence

__all__ = ["Graphs"]


class Graphs:
    """An earlyon wrapper as graphs, cut after its enabled exits.

    Args:
        wrapper: A calibrated wrapper of earlyon.
        exits: False to run the full network alone.
    """

    def __init__(self, wrapper: Any, *, exits: bool = True) -> None:
        self._config = wrapper.config
        enabled = [index for index, on in enumerate(self._config.enabled_exits) if on and exits]
        self._parts = list(zip([*enabled, None], open_sessions(wrapper, enabled), strict=True))

    def run(self, image: Tensor) -> Tensor:
        """Return the `1 x K` logits of one prepared image."""
        pixels = features = image.numpy()
        for exit, (from_image, session) in self._parts:
            features, answer = session.run(None, {"input": pixels if from_image else features})
            logits = torch.from_numpy(answer)
            if exit is not None and self._leaves(logits, exit):
                break
        return logits

    def _leaves(self, logits: Tensor, exit: int) -> bool:
        config = self._config
        log = (logits / config.temperatures[config.exit_points[exit].name]).log_softmax(-1)
        if config.routing_policy == "confidence":
            return bool(log.max().exp().item() >= config.confidence_thresholds[exit])
        return bool(-(log.exp() * log).sum().item() <= config.entropy_thresholds[exit])


def open_sessions(wrapper: Any, enabled: list[int]) -> list[tuple[bool, Any]]:
    """Open a session of ONNX Runtime for the part up to each enabled exit, and for the rest.

    Each comes with a boolean: true if it reads the image, false if it reads the features of the session before. Layers
    whose output nothing reads are left out.
    """
    network, exits = wrapper.backbone, [wrapper.config.exit_points[index] for index in enabled]
    parts = {"first.": network.first, "second.": network.second} if isinstance(network, InSequence) else {"": network}
    modules = {prefix + name: child for prefix, part in parts.items() for name, child in part.named_children()}
    names = list(modules)
    ends = [*(names.index(exit.layer_name) for exit in exits), len(names) - 1]
    heads = [*(wrapper.exit_heads[exit.name] for exit in exits), nn.Identity()]
    begins = {0, len(names) - len(list(parts.values())[-1])}
    image = features = torch.zeros(wrapper._input_shape)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    sessions, start = [], 0
    for end, head in zip(ends, heads, strict=True):
        start = max(place for place in {start, *begins} if place <= end)
        from_image = start in begins
        stage = Stage(nn.Sequential(*(modules[name] for name in names[start : end + 1])), head).eval()
        graph, features = export_stage(stage, image if from_image else features)
        sessions.append((from_image, onnxruntime.InferenceSession(graph, options)))
        start = end + 1
    return sessions


def export_stage(stage: nn.Module, inputs: Tensor) -> tuple[bytes, Tensor]:
    """Return a stage as a graph, and its features."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), torch.no_grad():
        file = Path(folder) / "stage.onnx"
        warnings.simplefilter("ignore")  # earlyon uses the tracing exporter, which is deprecated
        torch.onnx.export(
            stage,
            (inputs,),
            file,
            input_names=["input"],
            output_names=["features", "logits"],
            opset_version=17,
            dynamo=False,
        )
        features: Tensor = stage(inputs)[0]
        return file.read_bytes(), features
