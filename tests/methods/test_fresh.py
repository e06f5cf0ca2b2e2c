"""Exits before they are trained: of the kind the settings name."""

from dataclasses import replace

import pytest

from offramp.exits import CumulativeLinearExits, ExitBank, LadderExits, LinearExits
from offramp.methods import DEFAULT, PAPER, JointSettings, fresh_exits


@pytest.mark.parametrize(
    ("settings", "kind"),
    [(DEFAULT, LadderExits), (PAPER, LinearExits), (replace(PAPER, exits="cumulative"), CumulativeLinearExits)],
)
def test_of_the_kind_asked_for(settings: JointSettings, kind: type[ExitBank]) -> None:
    bank = fresh_exits((4, 5, 6, 7), (1, 3), 3, settings=settings)
    assert type(bank) is kind
    assert (bank.stages, bank.widths, bank.num_classes, bank.stacked) == ((0, 2), (4, 5, 6, 7), 3, 1)


def test_the_width_is_that_of_the_settings() -> None:
    bank = fresh_exits((4, 5), (1,), 3, settings=replace(DEFAULT, ladder_width=7))
    assert isinstance(bank, LadderExits)
    assert bank.width == 7
