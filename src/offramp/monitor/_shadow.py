"""Answers of the full network to some inputs of a batch, for comparison."""

import torch
from torch import Tensor

from offramp.backbone._hidden import Hidden
from offramp.model._model import EarlyExitModel

__all__ = ["full_labels", "label_hidden"]


@torch.inference_mode()
def full_labels(network: EarlyExitModel, inputs: object, rows: Tensor) -> Tensor:
    """Return the classes that the full network predicts for some inputs of a batch.

    Args:
        network: The network.
        inputs: Raw inputs, as `network.predict` takes them.
        rows: Indices of the n inputs to run, or one boolean per input. Draw them independently of the answers.

    Returns:
        `n` classes.
    """
    rows = rows.nonzero().squeeze(1) if rows.dtype == torch.bool else rows
    if not len(rows):
        return torch.empty(0, dtype=torch.long)
    backbone = network.feature_backbone
    prepared = network.preprocessing(inputs)
    with backbone.explain_errors(prepared):
        return label_hidden(network, backbone.select(backbone.prepare(prepared), rows, 0))


@torch.inference_mode()
def label_hidden(network: EarlyExitModel, hidden: Hidden) -> Tensor:
    """Return the classes that the full network predicts for prepared inputs.

    Args:
        network: The network.
        hidden: Inputs of n samples, from `EarlyExitModel.prepare`.

    Returns:
        `n` classes.
    """
    backbone = network.feature_backbone.eval()  # the caller may have put the model into training mode since
    logits: Tensor = backbone(hidden)
    return logits.argmax(1).cpu()
