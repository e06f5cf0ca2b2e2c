"""A network whose stages are run by a backend. Its exits can be tuned on the features that are extracted with it."""

import hashlib
from typing import Self

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
        kind: Name of the backend.
        made_from: A text that tells backends of one name apart that compute different numbers.

    Attributes:
        backend: As above.
        kind: As above.
        made_from: As above.
    """

    def __init__(self, backbone: Backbone, backend: Backend, kind: str, *, made_from: str = "") -> None:
        super().__init__(backbone, range(backbone.num_exits))
        self.stages = nn.ModuleList(_Stage(backend, index) for index in range(backbone.num_exits))
        self.backend, self.kind, self.made_from = backend, kind, made_from

    def train(self, mode: bool = True) -> Self:
        """Keep the network in evaluation mode, too: a backend may share its modules."""
        for base in vars(self).get("_base", ()):  # not there yet while this is made
            base.eval()
        return super().train(mode)

    def own_logits(self, hidden: Hidden, stage: int) -> Tensor:
        """Return the logits of the network's head, which computes in full precision."""
        return super().own_logits(pytree.tree_map(_in_full_precision, hidden), stage)

    def fingerprint(self) -> str:
        """Hash the network, the name of the backend and what it was made from."""
        parts = self._base[0].fingerprint(), self.kind, self.made_from
        return hashlib.sha256(" ".join(parts).encode()).hexdigest()


class _Stage(nn.Module):
    """A stage, run by a backend."""

    def __init__(self, backend: Backend, index: int) -> None:
        super().__init__()
        self._run, self._index = backend.stage, index

    def forward(self, hidden: Hidden) -> Hidden:
        return self._run(self._index, hidden)


def _in_full_precision(leaf: object) -> object:
    return leaf.float() if isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.itemsize < 4 else leaf
