"""Images of handwritten digits that come with scikit-learn."""

from dataclasses import dataclass

import numpy as np

from offramp.errors import MissingExtraError
from offramp.features import ArraySource
from offramp.preprocessing._images import image_preprocessing

__all__ = ["PREPROCESSING", "Digits", "digits"]

PREPROCESSING = image_preprocessing(mean=(0.5,), std=(0.5,))
"""Scales pixels from 0 to 255 to -1 to 1, `N x 1 x 8 x 8`."""

SIZES = (800, 500, 497)
"""Sizes of train, validation and test. Half of validation tunes, the other half calibrates."""


@dataclass(frozen=True)
class Digits:
    """1,797 images `8 x 8 x 1` of the digits 0 to 9 as bytes, in three disjoint parts."""

    train: ArraySource
    """To train the networks and to fit the exits."""
    validation: ArraySource
    """To tune and calibrate."""
    test: ArraySource
    """To evaluate."""


def digits(seed: int = 0) -> Digits:
    """Load the digits and split them at random.

    Args:
        seed: Seed of the split.

    Example:
        >>> parts = digits()
        >>> len(parts.train), len(parts.validation), len(parts.test), parts.train.read(0, 2).inputs.shape
        (800, 500, 497, (2, 8, 8, 1))
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise MissingExtraError("the demo needs scikit-learn's digits", hint="pip install 'offramp[demo]'") from error
    bunch = load_digits()
    images, labels = (bunch.images * (255 / 16)).astype(np.uint8)[..., None], bunch.target  # 0 to 16 there
    rows = np.split(np.random.default_rng(seed).permutation(len(labels)), np.cumsum(SIZES)[:-1])
    # The name includes the seed, so that a kept store belongs to one split.
    return Digits(
        *(
            ArraySource(images[part], labels[part], name=f"digits-{seed}-{name}")
            for name, part in zip(("train", "validation", "test"), rows, strict=True)
        )
    )
