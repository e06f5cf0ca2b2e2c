"""Answers for a set of inputs at a fraction of the calls, with a bound on what changes."""

from offramp.annotation._estimate import estimate_bill
from offramp.annotation._job import Annotation

__all__ = ["Annotation", "estimate_bill"]
