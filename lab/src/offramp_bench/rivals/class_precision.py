"""A threshold on confidence for each class and exit, set for a precision among the samples that reach the exit."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from offramp.policy import Observation, Policy
from offramp.policy._point import OperatingPoint
from offramp.policy._tuning import Tuning

__all__ = ["NEVER", "POLICY", "ClassPrecisionPolicy", "precision_thresholds"]

NEVER = 2.0
"""A threshold that no confidence reaches."""

TARGETS = torch.cat([1 - torch.logspace(0, -3, 127, dtype=torch.float64), torch.ones(1, dtype=torch.float64)])
"""The target precisions: 0 to 0.999, closer together near 1, where the frontier is decided; and 1."""


def precision_thresholds(
    confidence: Tensor, predictions: Tensor, correct: Tensor, target: float, classes: int
) -> Tensor:
    """Return for every class the smallest threshold at which its precision reaches a target.

    The precision of class k at a threshold is the accuracy of the samples predicted as k with at least that confidence.

    Args:
        confidence: `n` largest probabilities.
        predictions: `n` predicted classes.
        correct: `n` booleans, true where the prediction is right.
        target: The precision to reach.
        classes: K.

    Returns:
        `K` thresholds, each the confidence of a sample; 2, which no sample reaches, for classes that are never
        predicted or never reach the target.

    Example:
        >>> sure, right = torch.tensor([0.9, 0.8, 0.7, 0.6]), torch.tensor([True, False, True, True])
        >>> precision_thresholds(sure, torch.tensor([0, 0, 0, 1]), right, 0.6, 3)
        tensor([0.7000, 0.6000, 2.0000])
    """
    order = confidence.argsort(descending=True)
    order = order[predictions[order].argsort(stable=True)]  # class by class, the most confident first
    confidence, predictions, correct = confidence[order], predictions[order], correct[order]
    counts = predictions.bincount(minlength=classes)
    starts = counts.cumsum(0) - counts
    right = torch.cat([torch.zeros(1, dtype=torch.long), correct.long().cumsum(0)])
    rank = torch.arange(len(confidence)) - starts[predictions] + 1
    precision = (right[1:] - right[starts[predictions]]).double() / rank
    # Samples of the same class and confidence are counted all or none: only the last of them is a threshold.
    last = torch.ones(len(confidence), dtype=torch.bool)
    last[:-1] = (confidence[1:] != confidence[:-1]) | (predictions[1:] != predictions[:-1])
    is_threshold = last & (precision >= target)
    thresholds = confidence.new_full((classes,), NEVER)
    return thresholds.scatter_reduce(0, predictions[is_threshold], confidence[is_threshold], "amin")


class ClassPrecisionPolicy(Policy):
    """A policy that leaves at the first exit whose confidence reaches that exit's threshold for the predicted class.

    The rule of CalexNet [Aperstein2026], on temperature-scaled confidence. Parameters: `threshold`, one number per exit
    and class; above 1, no sample of that class leaves there.

    Example:
        >>> observation = Observation(probabilities=torch.tensor([[0.9, 0.1], [0.1, 0.9]]))
        >>> ClassPrecisionPolicy().step(observation, (), {"threshold": torch.tensor([0.8, 0.95])})[0]
        tensor([ True, False])
    """

    name = "class_precision"
    reads = frozenset({"probabilities"})
    parameters = frozenset({"threshold"})
    per_exit = frozenset({"threshold"})
    per_class = frozenset({"threshold"})
    stay_values = MappingProxyType({"threshold": NEVER})

    def initial_carry(self, _zeros: Tensor) -> Any:
        """Return no carry."""
        return ()

    def step(self, observation: Observation, carry: Any, parameters: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Leave where the confidence reaches the threshold of the predicted class."""
        assert observation.probabilities is not None
        confidence, prediction = observation.probabilities.max(-1)
        threshold = parameters["threshold"]
        samples = (threshold[..., 0] + confidence).shape  # points, if there are several, before the samples
        places = prediction.expand(samples)[..., None]
        own = threshold.expand(*samples, threshold.shape[-1]).gather(-1, places).squeeze(-1)
        return confidence >= own, carry

    def candidates(self, tuning: Tuning) -> list[OperatingPoint]:
        """Return thresholds for 128 target precisions, each calibrated on the survivors of the tune split.

        Exit by exit, the thresholds are the `precision_thresholds` of the samples that have not left before. The
        paper's abstract leaves open, and we chose: the targets, and that a prediction is right if it is the label.

        Returns:
            Points from "all samples leave at the first exit" to "no sample leaves early".
        """
        points = [self._calibrate(tuning, target) for target in TARGETS.tolist()]
        return [*points, self._calibrate(tuning, NEVER)]

    def _calibrate(self, tuning: Tuning, target: float) -> OperatingPoint:
        """Return the point for one target."""
        classes = tuning.probabilities(tuning.active[-1]).shape[-1]  # K; the labels need not include all classes
        thresholds = torch.full((len(tuning.early), classes), NEVER)
        survivors = torch.arange(len(tuning.labels))
        for place, exit in enumerate(tuning.early):
            confidence, predictions = tuning.confidence[survivors, exit], tuning.predictions[survivors, exit]
            correct = predictions == tuning.labels[survivors]
            thresholds[place] = precision_thresholds(confidence, predictions, correct, target, classes)
            survivors = survivors[confidence < thresholds[place, predictions]]
        return tuning.point(self.name, threshold=tuning.per_exit(thresholds, NEVER))

    def mul_adds(self, num_classes: int) -> int:
        """Count a softmax; comparisons are not counted."""
        return 3 * num_classes


POLICY = ClassPrecisionPolicy()
"""The registered policy."""
