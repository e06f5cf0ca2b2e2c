"""Preprocessing as data: named steps from raw inputs to what a backbone takes."""

from offramp.preprocessing._images import photo_preprocessing
from offramp.preprocessing._preprocessing import STEPS, Preprocessing
from offramp.preprocessing._text import text_preprocessing

__all__ = ["STEPS", "Preprocessing", "photo_preprocessing", "text_preprocessing"]
