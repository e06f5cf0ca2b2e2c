"""Exits before they are trained: of the kind the settings name."""

from dataclasses import replace

import pytest
import torch

from offramp.errors import InputError
from offramp.exits import ExitSet, LadderExits, LinearExits
from offramp.exits._linear import CumulativeLinearExits
from offramp.methods._initialization import create_exits, initialize_exits
from offramp.methods._settings import DEFAULT, PAPER, JointSettings
from tests.cases import each
from tests.methods.examples import clusters


@each(
    ("settings", "kind"),
    [(DEFAULT, LadderExits), (PAPER, LinearExits), (replace(PAPER, exits="cumulative"), CumulativeLinearExits)],
)
def test_of_the_kind_asked_for(settings: JointSettings, kind: type[ExitSet]) -> None:
    exits = create_exits((4, 5, 6, 7), (1, 3), 3, settings=settings)
    assert type(exits) is kind
    assert (exits.stages, exits.widths, exits.num_classes, exits.stacked) == ((0, 2), (4, 5, 6, 7), 3, 1)


def test_the_width_is_that_of_the_settings() -> None:
    exits = create_exits((4, 5), (1,), 3, settings=replace(DEFAULT, ladder_width=7))
    assert isinstance(exits, LadderExits)
    assert exits.width == 7


@each(("num_classes", "width"), [(2, 64), (32, 64), (33, 66), (100, 200), (128, 256), (1000, 256)])
def test_more_classes_need_a_wider_state(num_classes: int, width: int) -> None:
    exits = create_exits((4, 5), (1,), num_classes)
    assert isinstance(exits, LadderExits)
    assert exits.width == width


class TestBegun:
    """Exits that know their features."""

    def test_a_ladder_sees_features_of_one_scale(self) -> None:
        fit, tune = clusters(500), clusters(90, seed=1)
        exits = initialize_exits(fit, tune, DEFAULT, dtype=torch.float64)
        assert isinstance(exits, LadderExits)
        features = next(fit.in_order(batch_size=500)).features.double()
        seen = (features - exits.center) * exits.scale
        torch.testing.assert_close(seen.mean(0), torch.zeros(18).double(), atol=1e-6, rtol=0)
        torch.testing.assert_close(seen.std(0, correction=0), torch.ones(18).double(), atol=1e-6, rtol=0)

    def test_heads_of_a_cascade_answer_together(self) -> None:
        cascade = clusters(90, own_heads=(1,))
        assert initialize_exits(cascade, cascade, PAPER).averaging.stages == (1, 2)

    def test_no_samples(self) -> None:
        with pytest.raises(InputError, match="to fit and to tune on, got 0 and 90"):
            initialize_exits(clusters(0), clusters(90), DEFAULT)
