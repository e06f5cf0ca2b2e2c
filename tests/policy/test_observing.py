from typing import get_args

import pytest
import torch

from offramp.policy import Reading, observe
from tests.cases import each

LOGITS = 3 * torch.randn(50, 7, generator=torch.Generator().manual_seed(0))
PROBABILITIES = (LOGITS / 1.7).softmax(1)
NOISE = torch.rand(50)


@each("reading", get_args(Reading))
def test_nothing_else_is_there(reading: str) -> None:
    seen = observe({reading}, LOGITS, PROBABILITIES, NOISE if reading == "noise" else None)
    assert [name for name in get_args(Reading) if getattr(seen, name) is not None] == [reading]
    assert len(getattr(seen, reading)) == 50


def test_the_numbers() -> None:
    seen = observe(get_args(Reading), LOGITS, PROBABILITIES, NOISE)
    assert seen.noise is NOISE
    assert seen.probabilities is PROBABILITIES
    assert seen.confidence is not None
    assert seen.evidence is not None
    assert seen.prediction is not None
    for row in range(50):
        likely = sorted(PROBABILITIES[row].tolist(), reverse=True)
        raw = LOGITS[row].double().softmax(0)
        ordered = raw.sort(descending=True).values
        assert float(seen.confidence[row]) == likely[0]
        assert int(seen.prediction[row]) == PROBABILITIES[row].tolist().index(likely[0])
        # Evidence is of the raw logits, as gates are trained: no temperature.
        expected = [float(ordered[0]), float(-(raw * raw.log()).sum()), float(ordered[0] - ordered[1])]
        assert seen.evidence[row, [0, 1, 3]].tolist() == pytest.approx(expected, abs=1e-5)
