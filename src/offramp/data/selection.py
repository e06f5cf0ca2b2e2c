"""What of the data to read: which column, which labels, which split."""

from collections.abc import Sequence
from dataclasses import dataclass

from offramp.data.location import Location
from offramp.errors import InputError
from offramp.registry import unknown_name

__all__ = ["Columns", "Selection"]

LABEL = "label"
FIRST_CHOICES = ("text", "image")
"""Columns that are the inputs if they are there, whatever else is."""


@dataclass(frozen=True)
class Columns:
    """Where the label and the inputs of a table lie.

    Example:
        >>> Columns("label", ("length", "width")).inputs
        ('length', 'width')
    """

    label: str | None
    """Column of the labels, if there is one."""
    inputs: tuple[str, ...]
    """Columns of the inputs; more than one are numbers."""


@dataclass(frozen=True)
class Selection:
    """What a caller of `open_data` asked for, as every format is given it.

    Example:
        >>> Selection(label="species").columns(["species", "text", "url"])
        Columns(label='species', inputs=('text',))
    """

    classes: tuple[str, ...] = ()
    """Names of all classes in the order of the network's outputs; empty to take them from the data."""
    label: str = LABEL
    """Column of the labels."""
    column: str | None = None
    """Column of the inputs; None to find it."""
    split: str | None = None
    """Split, where the data has several."""

    def __post_init__(self) -> None:
        if len(set(self.classes)) != len(self.classes):
            twice = next(name for name in self.classes if self.classes.count(name) > 1)
            raise InputError(f"expected each class once, got '{twice}' twice; give the names without repeats")

    def label_in(self, names: Sequence[str]) -> str | None:
        """The label's column among `names`; None if there is none and none was asked for."""
        if self.label in names:
            return self.label
        if self.label != LABEL:
            raise unknown_name("column", self.label, names)
        return None

    def input_in(self, names: Sequence[str], label: str | None, *, kind: str = "column") -> str:
        """The chosen input among `names`, which is not the label: with that, any network would be right."""
        if self.column is None or self.column not in names:
            raise unknown_name(kind, str(self.column), names)
        if self.column == label:
            raise InputError(
                f"expected a {kind} of inputs, got '{label}', that of the labels; name another: column=... or label=..."
            )
        return self.column

    def columns(self, names: Sequence[str]) -> Columns:
        """Where label and inputs lie among the columns `names`."""
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"expected columns with a name of their own, got '{twice}' twice; rename one")
        label = self.label_in(names)
        rest = [name for name in names if name != label]
        if self.column is not None:
            return Columns(label, (self.input_in(names, label),))
        if not rest:
            raise InputError(f"expected a column of inputs beside '{label}', got none; add one called text or image")
        first = next((name for name in FIRST_CHOICES if name in rest), None)
        return Columns(label, (first,) if first else tuple(rest))

    def refuse_column(self, path: Location) -> None:
        """Refuse a choice of column for data that has no columns."""
        if self.column is not None:
            raise InputError(f"expected no column for {path}, which has none, got '{self.column}'; leave it out")

    def refuse_split(self, path: Location) -> None:
        """Refuse a choice of split for data that has no splits."""
        if self.split is not None:
            raise InputError(f"expected no split for {path}, which has none, got '{self.split}'; leave it out")
