r"""Calibration error: the gap between confidence and accuracy, and its value by chance alone."""

import torch
from torch import Tensor

from offramp.errors import InputError

__all__ = ["calibration_error", "calibration_floor"]


def calibration_error(confidence: Tensor, correct: Tensor, *, bins: int = 15) -> Tensor:
    r"""Return the expected calibration error (ECE) over equal-mass bins.

    $$\mathrm{ECE} = \sum_b \frac{|Q_b|}{N}\, \bigl|\mathrm{ACC}(Q_b) - \bar P(Q_b)\bigr|,
    \qquad Q_b = \{\nu(\lfloor N(b-1)/B \rfloor + 1), \dots, \nu(\lfloor Nb/B \rfloor)\}$$

    Eq. 19 of [Regol2024], with $\nu$ sorting by confidence. As printed there, neighbouring bins share a sample; here
    they do not. Samples of equal confidence each count with the mean of `correct` over all of them, so that the order
    of samples does not matter. With fewer samples than bins, each sample is its own bin.

    The estimate is biased upwards, the more so the smaller N is: a perfectly calibrated model has an error above 0.
    Pass the whole test set at once (averaging over batches of 64 adds about 5 points), and compare to
    `calibration_floor`.

    Args:
        confidence: `N` probabilities given to the predicted classes.
        correct: `N` booleans, or 0 and 1; true where the prediction is right.
        bins: B, the number of bins.

    Returns:
        The error, a scalar in [0, 1], in the dtype of `confidence` (float32 for half precision).

    Raises:
        InputError: If there are no samples, shapes differ, or values are not probabilities and booleans.

    Example:
        >>> calibration_error(torch.tensor([0.6, 0.6, 0.9, 0.9]), torch.tensor([True, False, True, True]), bins=2)
        tensor(0.1000)
    """
    _check_confidence(confidence, bins)
    if correct.shape != confidence.shape or not ((correct == 0) | (correct == 1)).all():
        raise InputError(
            expected=f"correct to hold {len(confidence)} booleans, one for each confidence",
            got=f"{correct.dtype} of {tuple(correct.shape)}",
            hint="pass `predictions == labels`",
        )
    ordered, order = confidence.double().sort()
    error = _error_of_sorted(ordered, correct.double()[order], bins)
    return error.to(torch.promote_types(confidence.dtype, torch.float32))


def calibration_floor(confidence: Tensor, *, bins: int = 15, draws: int = 200, generator: torch.Generator) -> Tensor:
    r"""Return the `calibration_error` of a perfectly calibrated model with these confidences.

    The median over `draws` simulated test sets in which each prediction is right with exactly its confidence. A
    measured error near the floor is no evidence of miscalibration; their difference is not an unbiased error either.

    Args:
        confidence: `N` probabilities given to the predicted classes.
        bins: B, the number of bins, as given to `calibration_error`.
        draws: Number of simulated test sets; 200 give the median to a few percent.
        generator: Source of random numbers.

    Returns:
        The median error, a scalar in the dtype of `confidence` (float32 for half precision).

    Raises:
        InputError: If there are no samples, or values are not probabilities.

    Example:
        >>> confidence = torch.linspace(0.5, 1.0, 64)
        >>> bool(calibration_floor(confidence, generator=torch.Generator().manual_seed(0)) > 0.05)
        True
    """
    _check_confidence(confidence, bins)
    if draws < 1:
        raise InputError(expected="draws of at least 1", got=draws, hint="leave it at 200 when in doubt")
    ordered = confidence.double().sort().values
    errors = []
    for _ in range(draws):  # one at a time: memory stays at a few times N
        uniform = torch.rand(len(ordered), dtype=torch.float64, device=generator.device, generator=generator)
        errors.append(_error_of_sorted(ordered, (uniform.to(ordered.device) < ordered).double(), bins))
    return torch.stack(errors).quantile(0.5).to(torch.promote_types(confidence.dtype, torch.float32))


def _error_of_sorted(confidence: Tensor, correct: Tensor, bins: int) -> Tensor:
    """Return the error of float64 tensors sorted by confidence, independent of the order inside ties."""
    starts = torch.ones_like(confidence, dtype=torch.bool)
    starts[1:] = confidence[1:] != confidence[:-1]
    group = starts.cumsum(0) - 1
    # Sums of 0 and 1 are exact in float64, so they do not depend on the order either.
    gap = (group.bincount(correct) / group.bincount())[group] - confidence
    # |ACC - P| weighted by a bin's share is the absolute sum of the bin's gaps over N; an empty bin sums to 0.
    running = torch.cat([gap.new_zeros(1), gap.cumsum(0)])
    edges = torch.arange(bins + 1, device=gap.device) * len(gap) // bins
    return running[edges].diff().abs().sum() / len(gap)


def _check_confidence(confidence: Tensor, bins: int) -> None:
    if confidence.ndim != 1 or len(confidence) == 0:
        raise InputError(
            expected="confidence 'N' of at least one sample",
            got=tuple(confidence.shape),
            hint="pass the whole test set, one operating point at a time",
        )
    if not confidence.is_floating_point() or not ((confidence >= 0) & (confidence <= 1)).all():
        raise InputError(
            expected="confidence in [0, 1]",
            got=f"{confidence.dtype} in {confidence.min().item():g} to {confidence.max().item():g}",
            hint="pass probabilities, not logits or percentages",
        )
    if bins < 1:
        raise InputError(expected="bins of at least 1", got=bins, hint="the paper uses 15")
