"""The whole of it on a small problem, with nothing to download: digits, a transformer, a cascade, its off-ramps."""

from offramp.demo.digits import PREPROCESSING, Digits, digits
from offramp.demo.networks import DigitsCnn, DigitsTransformer, as_backbone, digits_cnn, digits_transformer
from offramp.demo.run import report, run, trained_networks
from offramp.demo.training import train

__all__ = [
    "PREPROCESSING",
    "Digits",
    "DigitsCnn",
    "DigitsTransformer",
    "as_backbone",
    "digits",
    "digits_cnn",
    "digits_transformer",
    "report",
    "run",
    "train",
    "trained_networks",
]
