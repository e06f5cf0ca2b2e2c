"""What the full network would have answered."""

import torch
from torch import Tensor

from offramp.network import EarlyExitNetwork

__all__ = ["full_labels"]


@torch.inference_mode()
def full_labels(network: EarlyExitNetwork, inputs: object, rows: Tensor) -> Tensor:
    """Run some inputs of a batch to full depth, through the full network and its own last head.

    Args:
        network: The network.
        inputs: Raw inputs, as `network.predict` takes them.
        rows: `n` numbers of the inputs to run, or a boolean for each input. Draw them without looking at the answers.

    Returns:
        `n` classes.

    Example:
        >>> import offramp
        >>> from offramp.backbone import CifarResNet
        >>> images, labels = torch.randn(60, 3, 32, 32), torch.arange(60) % 10
        >>> quick = offramp.JointSettings(cost_weights=(1.0,), warmup_epochs=1, epochs=1)
        >>> data = (images[:30], labels[:30]), (images[30:], labels[30:])
        >>> network = offramp.fit(CifarResNet(8), *data, settings=quick, anyway=True, progress=False).choose(cost=1.1)
        >>> full_labels(network, images, torch.tensor([3, 4])).shape
        torch.Size([2])
    """
    rows = rows.nonzero().squeeze(1) if rows.dtype == torch.bool else rows
    if not len(rows):
        return torch.empty(0, dtype=torch.long)
    backbone = network.backbone.eval()  # the model it was made of may have been put into training mode since
    prepared = network.preprocessing(inputs)
    with backbone.explaining(prepared):
        hidden = backbone.select(backbone.prepare(prepared), rows, 0)
        logits: Tensor = backbone(hidden)
    return logits.argmax(1).cpu()
