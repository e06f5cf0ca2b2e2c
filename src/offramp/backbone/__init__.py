"""The frozen network as ordered stages."""

from offramp.backbone._cascading import Cascade
from offramp.backbone._cifar_resnet import CifarResNet
from offramp.backbone._factory import Factory
from offramp.backbone._hidden import Axes

__all__ = ["Axes", "Cascade", "CifarResNet", "Factory"]
