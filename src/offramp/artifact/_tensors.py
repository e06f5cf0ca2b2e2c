"""The tensors of one file of an artifact: each is checked, and none is left over."""

import torch
from torch import Tensor

from offramp.artifact._format import SAVE_AGAIN, Artifact
from offramp.errors import ArtifactError

__all__ = ["Tensors"]


class Tensors:
    """The tensors of one file.

    Args:
        artifact: The artifact.
        name: The manifest's name of the file.
    """

    def __init__(self, artifact: Artifact, name: str) -> None:
        if name not in artifact.tensors:
            raise ArtifactError(f"{artifact.content.file}, field 'files.{name}': is missing", hint=SAVE_AGAIN)
        self.file, self.named = artifact.files[name], artifact.tensors[name]
        self._read: set[str] = set()

    def wrong(self, name: str, *, expected: str, got: str = "other numbers") -> ArtifactError:
        """Return the error of a tensor that is not what was expected."""
        return ArtifactError(f"{self.file}, tensor '{name}'", expected=expected, got=got, hint=SAVE_AGAIN)

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
            name: Its name.
            shape: Its shape.
            dtype: Its type.
            within: The smallest and the largest number allowed; any finite ones if left out.
        """
        if name not in self.named:
            raise self.wrong(name, expected="a tensor", got="none")
        tensor = self.named[name]
        if tensor.dtype != dtype or tuple(tensor.shape) != shape:
            actual = f"{tensor.dtype} of shape {tuple(tensor.shape)}"
            raise self.wrong(name, expected=f"{dtype} of shape {shape}", got=actual)
        good = tensor.isfinite() if within is None else (tensor >= within[0]) & (tensor <= within[1])
        if not bool(good.all()):
            allowed = "finite numbers" if within is None else f"numbers from {within[0]:g} to {within[1]:g}"
            raise self.wrong(name, expected=allowed)
        self._read.add(name)
        return tensor

    def miscoverages(self, policy: str) -> list[float]:
        """Return the levels of a policy's conformal thresholds."""
        prefix = f"{policy}.conformal."
        levels = [name.removeprefix(prefix) for name in sorted(self.named) if name.startswith(prefix)]
        for level in levels:
            if not _is_share(level):
                raise self.wrong(prefix + level, expected="a miscoverage between 0 and 1 in the name", got=level)
        return [float(level) for level in levels]

    def check_all_read(self) -> None:
        """Refuse a tensor that was not read."""
        for name in self.named:
            if name not in self._read:
                raise self.wrong(name, expected="only tensors that the manifest names", got="another")


def _is_share(text: str) -> bool:
    try:
        return 0 < float(text) < 1 and repr(float(text)) == text
    except ValueError:
        return False
