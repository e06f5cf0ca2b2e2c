from typing import get_args

import pytest
import torch

from offramp.functional import evidence
from offramp.policy._observation import Reading, observe, top_two_margin
from tests.cases import each

LOGITS = 3 * torch.randn(50, 7, generator=torch.Generator().manual_seed(0))
PROBABILITIES = (LOGITS / 1.7).softmax(1)
NOISE = torch.rand(50)


@each("reading", get_args(Reading))
def test_nothing_else_is_there(reading: str) -> None:
    observation = observe({reading}, LOGITS, PROBABILITIES, NOISE if reading == "noise" else None)
    assert [name for name in get_args(Reading) if getattr(observation, name) is not None] == [reading]
    assert len(getattr(observation, reading)) == 50


def test_the_numbers() -> None:
    observation = observe(get_args(Reading), LOGITS, PROBABILITIES, NOISE)
    assert observation.noise is NOISE
    assert observation.probabilities is PROBABILITIES
    assert observation.confidence is not None
    assert observation.evidence is not None
    assert observation.prediction is not None
    for row in range(50):
        likely = sorted(PROBABILITIES[row].tolist(), reverse=True)
        raw = LOGITS[row].double().softmax(0)
        ordered = raw.sort(descending=True).values
        assert float(observation.confidence[row]) == likely[0]
        assert int(observation.prediction[row]) == PROBABILITIES[row].tolist().index(likely[0])
        # Evidence is of the raw logits, as gates are trained: no temperature.
        expected = [float(ordered[0]), float(-(raw * raw.log()).sum()), float(ordered[0] - ordered[1])]
        assert observation.evidence[row, [0, 1, 3]].tolist() == pytest.approx(expected, abs=1e-5)


class TestTopTwoMargin:
    def test_equals_the_margin_of_the_evidence(self) -> None:
        rows = (3 * torch.randn(200, 10, generator=torch.Generator().manual_seed(0))).softmax(1)
        torch.testing.assert_close(top_two_margin(rows), evidence(rows.log())[:, 3], atol=1e-6, rtol=1e-5)

    def test_is_0_where_two_classes_tie(self) -> None:
        assert float(top_two_margin(torch.tensor([0.4, 0.2, 0.4]))) == 0
