"""The staged deployment that earlyon 0.3.0 documents: a graph a stage in ONNX Runtime, its rule between them."""

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

from offramp_bench.earlyon_heads import InARow

__all__ = ["Graphs"]


class Graphs:
    """An earlyon wrapper as graphs, cut after its enabled exits.

    Args:
        wrapper: Calibrated.
        exits: Whether it has any; without them it is the full network.
    """

    def __init__(self, wrapper: Any, *, exits: bool = True) -> None:
        self._config = wrapper.config
        enabled = [index for index, on in enumerate(self._config.enabled_exits) if on and exits]
        self._stretches = list(zip([*enabled, None], sessions(wrapper, enabled), strict=True))

    def run(self, image: Tensor) -> Tensor:
        """Logits of one prepared image, `1 x K`."""
        pixels = features = image.numpy()
        for exit, (anew, session) in self._stretches:
            features, found = session.run(None, {"input": pixels if anew else features})
            logits = torch.from_numpy(found)
            if exit is not None and self._leaves(logits, exit):
                break
        return logits

    def _leaves(self, logits: Tensor, exit: int) -> bool:
        config = self._config
        log = (logits / config.temperatures[config.exit_points[exit].name]).log_softmax(-1)
        if config.routing_policy == "confidence":
            return bool(log.max().exp().item() >= config.confidence_thresholds[exit])
        return bool(-(log.exp() * log).sum().item() <= config.entropy_thresholds[exit])


def sessions(wrapper: Any, enabled: list[int]) -> list[tuple[bool, Any]]:
    """A session of ONNX Runtime for the way to each enabled exit, and for the rest.

    With each: whether it reads the image, and not what the one before has left. What no exit reads is left out.
    """
    network, exits = wrapper.backbone, [wrapper.config.exit_points[index] for index in enabled]
    parts = {"first.": network.first, "second.": network.second} if isinstance(network, InARow) else {"": network}
    modules = {prefix + name: child for prefix, part in parts.items() for name, child in part.named_children()}
    names = list(modules)
    ends = [*(names.index(exit.layer_name) for exit in exits), len(names) - 1]
    heads = [*(wrapper.exit_heads[exit.name] for exit in exits), nn.Identity()]
    begins = {0, len(names) - len(list(parts.values())[-1])}
    image = features = torch.zeros(wrapper._input_shape)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    made, start = [], 0
    for end, head in zip(ends, heads, strict=True):
        start = max(place for place in {start, *begins} if place <= end)
        anew = start in begins
        stage = Stage(nn.Sequential(*(modules[name] for name in names[start : end + 1])), head).eval()
        graph, features = exported(stage, image if anew else features)
        made.append((anew, onnxruntime.InferenceSession(graph, options)))
        start = end + 1
    return made


def exported(stage: nn.Module, inputs: Tensor) -> tuple[bytes, Tensor]:
    """A stage as a graph, and the features it leaves."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), torch.no_grad():
        file = Path(folder) / "stage.onnx"
        warnings.simplefilter("ignore")  # the exporter that traces, which earlyon uses, is deprecated
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
