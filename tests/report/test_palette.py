from itertools import permutations

from offramp.report._palette import PALETTE, policy_colours


def test_a_policy_has_one_colour_whatever_is_beside_it() -> None:
    known = {"threshold": "blue", "stopping": "green", "gates": "purple"}
    for count in range(4):
        for names in permutations(known, count):
            found = policy_colours(names)
            assert found == {name: PALETTE[known[name]] for name in names}
            assert list(found) == [name for name in known if name in names]


def test_others_follow_by_name() -> None:
    for names in permutations(("margin", "entropy", "gates")):
        assert list(policy_colours(names)) == ["gates", "entropy", "margin"]
        assert policy_colours(names)["entropy"] == PALETTE["gold"]


def test_orange_is_no_policy() -> None:
    assert PALETTE["orange"] not in policy_colours(map(str, range(20))).values()  # but a wrong answer, or a loss
