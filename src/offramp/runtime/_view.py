"""A network as a backend computes it: what its exits see there can be extracted, and they can be tuned for it."""

import hashlib

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from offramp.backbone._backbone import Backbone
from offramp.backbone._hidden import Hidden
from offramp.backbone._merging import MergedBackbone
from offramp.runtime._backend import Backend

__all__ = ["BackendView"]


class BackendView(MergedBackbone):
    """A backbone whose stages are run by a backend; everything else is the backbone's own.

    Args:
        backbone: The frozen network.
        backend: The computation of its stages.
        key: A text that tells backends apart that compute different numbers; part of the fingerprint.
    """

    def __init__(self, backbone: Backbone, backend: Backend, key: str) -> None:
        super().__init__(backbone, range(backbone.num_exits))
        self.stages = nn.ModuleList(_Stage(backend, index) for index in range(backbone.num_exits))
        self.backend = backend
        self._key = key

    def own_logits(self, hidden: Hidden, stage: int) -> Tensor:
        """Return the logits of the network's head, which computes in full precision."""
        return super().own_logits(pytree.tree_map(_in_full_precision, hidden), stage)

    def fingerprint(self) -> str:
        """Hash the network and the backend's key."""
        return hashlib.sha256(f"{self._base[0].fingerprint()} {self._key}".encode()).hexdigest()


class _Stage(nn.Module):
    """A stage, run by a backend."""

    def __init__(self, backend: Backend, index: int) -> None:
        super().__init__()
        self._run, self._index = backend.stage, index

    def forward(self, hidden: Hidden) -> Hidden:
        return self._run(self._index, hidden)


def _in_full_precision(leaf: object) -> object:
    return leaf.float() if isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.itemsize < 4 else leaf
