"""A network whose stages take their time and are counted; replicas import it."""

import time
from pathlib import Path
from typing import Any

from offramp.backbone import CifarResNet

STAGE_S = 0.3


def make(log: str) -> CifarResNet:
    """Make a network that writes a line into a file at every stage."""

    def wait(*_: Any) -> None:
        with Path(log).open("a") as file:
            file.write("stage\n")
        time.sleep(STAGE_S)

    network = CifarResNet(8, num_classes=3)
    for stage in network.stages:
        stage.register_forward_pre_hook(wait)
    return network
