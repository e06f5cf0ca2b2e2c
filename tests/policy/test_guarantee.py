from offramp.policy import Guarantee
from tests.cases import each


@each(
    ("loss", "at_most", "told"),
    [
        (
            "accuracy",
            0.01,
            "with 95 % confidence it loses at most 1 point of accuracy to the full network (0.5 lost on 2,000",
        ),
        ("accuracy", 0.005, "at most 0.5 points of accuracy"),
        ("disagreement", 0.02, "it answers at most 2 % of the samples otherwise than the full network (0.5 on 2,000"),
        ("brier", 0.02, "it has a Brier score at most 0.02 above the full network's (0.005 on 2,000"),
    ],
)
def test_told_in_one_line(loss: str, at_most: float, told: str) -> None:
    made = Guarantee(loss, at_most, confidence=0.95, bound="ltt", samples=2000, measured=0.005)
    assert told in str(made)
    assert "drawn as those of the calibrate split" in made.assumes
