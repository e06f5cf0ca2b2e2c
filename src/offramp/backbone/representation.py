"""What an exit may look at after a stage, by how its numbers lie."""

from dataclasses import dataclass

from torch import Tensor

__all__ = ["Nodes", "Representation", "Tokens"]


@dataclass(frozen=True)
class Tokens:
    """A row of vectors a sample: patches of an image, or words."""

    values: Tensor
    """`N x T x C`."""
    mask: Tensor | None = None
    """`N x T`, true where there is a token; None where all samples have all T."""
    prefix: int = 0
    """How many tokens come before the patches: class, distillation, registers."""


@dataclass(frozen=True)
class Nodes:
    """The nodes of all graphs of a batch, one below the other."""

    values: Tensor
    """`M x C`."""
    graph: Tensor
    """`M` indices of the sample each node belongs to."""
    count: int
    """N: how many graphs there are, those without nodes included."""


Representation = Tensor | Tokens | Nodes
"""A tensor is a vector a sample, `N x C`, or a map, `N x C x H x W` (`N x C x T` in one dimension)."""
