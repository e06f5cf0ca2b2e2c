"""A file that a preprocessing step needs, as data."""

import hashlib
from dataclasses import dataclass, field

__all__ = ["Attachment"]


@dataclass(frozen=True)
class Attachment:
    """Bytes too many for a parameter of their own, such as a tokenizer's vocabulary; known by their hash.

    Example:
        >>> Attachment(b"vocabulary").describe()
        {'sha256': '0c7e0de28a70f3c4...'}
    """

    content: bytes = field(repr=False)
    """The file's content."""

    @property
    def sha256(self) -> str:
        """Hash of the content."""
        return hashlib.sha256(self.content).hexdigest()

    def describe(self) -> dict[str, str]:
        """What stands for it where JSON is written; the content travels beside."""
        return {"sha256": self.sha256}
