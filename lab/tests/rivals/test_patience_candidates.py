from offramp.model._outcomes import simulate
from tests.model.candidates.examples import EXITS, answers, candidates, seen, tuning


def test_from_leaving_at_once_to_staying() -> None:
    tune = seen(*answers(300))
    exits = simulate(candidates("patience", tuning(tune)), tune)
    assert len(exits) == EXITS
    assert (exits[0] == 0).all()
    assert (exits[-1] == EXITS - 1).all()
    for patience, row in enumerate(exits[:-1]):
        assert int(row.min()) == patience  # samples with equal predictions at all exits
