"""Images of handwritten digits that come with scikit-learn."""

from dataclasses import dataclass

import numpy as np

from offramp.backbone import image_preprocessing
from offramp.errors import MissingExtraError
from offramp.features import ArraySource

__all__ = ["PREPROCESSING", "Digits", "digits"]

PREPROCESSING = image_preprocessing(mean=(0.5,), std=(0.5,))
"""From ink, 0 to 255, to numbers from -1 to 1, `N x 1 x 8 x 8`."""

SIZES = (800, 500, 497)
"""Of train, validation and test. Half of validation tunes, the other half calibrates: too few for fine figures."""


@dataclass(frozen=True)
class Digits:
    """1,797 images `8 x 8 x 1` of the digits 0 to 9 as bytes, in three parts that share none."""

    train: ArraySource
    """For the networks, and for the exits."""
    validation: ArraySource
    """Unseen by the networks: to tune and calibrate."""
    test: ArraySource
    """Seen by nothing: for figures to quote."""


def digits(seed: int = 0) -> Digits:
    """The digits, divided at random.

    Args:
        seed: Of the division.

    Example:
        >>> parts = digits()
        >>> len(parts.train), len(parts.validation), len(parts.test), parts.train.read(0, 2).inputs.shape
        (800, 500, 497, (2, 8, 8, 1))
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingExtraError("the demo needs scikit-learn's digits; pip install 'offramp[demo]'") from error
    found = load_digits()
    images, labels = (found.images * (255 / 16)).astype(np.uint8)[..., None], found.target  # 0 to 16 there
    rows = np.split(np.random.default_rng(seed).permutation(len(labels)), np.cumsum(SIZES)[:-1])
    # Names tell divisions apart: a store that was kept is of one of them.
    return Digits(
        *(
            ArraySource(images[part], labels[part], name=f"digits-{seed}-{name}")
            for name, part in zip(("train", "validation", "test"), rows, strict=True)
        )
    )
