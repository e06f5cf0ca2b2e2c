"""Measurements as text and as a table."""

import torch

from offramp.model._evaluation import Evaluation, Measured
from offramp.policy import OperatingPoint

MEASURED = Measured(
    accuracy=0.9,
    accuracy_interval=(0.88, 0.92),
    change=-0.004,
    change_interval=(-0.011, 0.003),
    relative_cost=0.61,
    cost_interval=None,
    calibration_error=0.02,
    exit_shares=(0.5, 0.5),
    class_accuracy=(0.9,),
    class_change=(0.0,),
)
POINT = OperatingPoint("threshold", {"threshold": torch.tensor(0.5)}, (0, 1), torch.ones(2))
MADE = Evaluation(1000, 0.904, (POINT,), (MEASURED,))


def test_as_text() -> None:
    assert str(MADE).splitlines() == [
        "1,000 samples, full network 90.40 % right",
        "threshold: relative cost 0.610, accuracy 90.00 % (-0.40 points, 95 % interval -1.10 to +0.30)",
    ]


def test_in_notebooks() -> None:
    assert MADE._repr_html_() == (
        "<p>1,000 samples, full network 90.40 % right</p><table>"
        "<tr><th>policy</th><th>relative cost</th><th>accuracy</th><th>change</th><th>95 % interval</th></tr>"
        "<tr><td>threshold</td><td>0.610</td><td>90.00</td><td>-0.40</td><td>-1.10 to +0.30</td></tr></table>"
    )
