"""The tensors of an artifact's file: each is what it should be, and none is left over."""

import torch
from torch import Tensor

from offramp.artifact import Artifact
from offramp.errors import ArtifactError

__all__ = ["Tensors"]


class Tensors:
    """The tensors of one file, and which of them were read.

    Args:
        artifact: Where the file is.
        name: The manifest's name of it.
    """

    def __init__(self, artifact: Artifact, name: str) -> None:
        if name not in artifact.tensors:
            raise ArtifactError(f"{artifact.content.file}, field 'files.{name}': is missing; save the frontier again")
        self.file, self.named = artifact.files[name], artifact.tensors[name]
        self._read: set[str] = set()

    def wrong(self, name: str, reason: str) -> ArtifactError:
        """The error that says what is wrong with a tensor."""
        return ArtifactError(f"{self.file}, tensor '{name}': {reason}; save the frontier again")

    def read(
        self,
        name: str,
        shape: tuple[int, ...],
        *,
        dtype: torch.dtype = torch.float32,
        within: tuple[float, float] | None = None,
    ) -> Tensor:
        """Return a tensor after checking it.

        Args:
            name: The tensor's.
            shape: Its shape.
            dtype: Its type.
            within: The smallest and the largest number allowed; any finite ones if left out.
        """
        if name not in self.named:
            raise self.wrong(name, "is missing")
        found = self.named[name]
        if found.dtype != dtype or tuple(found.shape) != shape:
            raise self.wrong(
                name, f"expected {dtype} of shape {shape}, got {found.dtype} of shape {tuple(found.shape)}"
            )
        good = found.isfinite() if within is None else (found >= within[0]) & (found <= within[1])
        if not bool(good.all()):
            allowed = "finite numbers" if within is None else f"numbers from {within[0]:g} to {within[1]:g}"
            raise self.wrong(name, f"expected {allowed}, got others")
        self._read.add(name)
        return found

    def miscoverages(self, policy: str) -> list[float]:
        """The levels of a policy's conformal thresholds."""
        prefix = f"{policy}.conformal."
        levels = [name.removeprefix(prefix) for name in sorted(self.named) if name.startswith(prefix)]
        for level in levels:
            if not _is_share(level):
                raise self.wrong(prefix + level, "expected a miscoverage between 0 and 1 in the name")
        return [float(level) for level in levels]

    def check_all_read(self) -> None:
        """Refuse a tensor that stands for nothing."""
        for name in self.named:
            if name not in self._read:
                raise self.wrong(name, "stands for nothing the manifest knows")


def _is_share(text: str) -> bool:
    try:
        return 0 < float(text) < 1 and repr(float(text)) == text
    except ValueError:
        return False
