from lab.tests.page.examples import content
from offramp_bench.page import parse_results
from offramp_bench.page.results import Contestant
from offramp_bench.page.standing import best_rival, by_contestant, is_ahead, is_behind, of_kind, rivals, static

RESULTS = parse_results(content("cifar10", "cifar10-cascade", "nci1"))


def test_rivals_are_in_order_of_area() -> None:
    task = RESULTS.tasks["nci1"]
    areas = [one.area for one in rivals(task)]
    assert areas == sorted(areas, reverse=True)
    best = best_rival(task)
    assert best is not None
    assert best.name == "ZTW"
    assert {one.kind for one in rivals(task)} == {"rival"}


def test_a_cascade_has_the_smaller_networks_of_its_last() -> None:
    names = ["ResNet-20", "ResNet-32", "ResNet-44"]
    assert [one.name for one in static(RESULTS, RESULTS.tasks["cifar10"])] == names
    assert [one.name for one in static(RESULTS, RESULTS.tasks["cifar10-cascade"])] == names
    assert static(RESULTS, RESULTS.tasks["nci1"]) == []


def test_nobody_is_ahead_whose_interval_holds_zero() -> None:
    def one(low: float, high: float) -> Contestant:
        return Contestant("a", "rival", 0.5, (low + high) / 2, (low, high), ())

    assert [is_ahead(one(*ends)) for ends in ((-0.2, -0.1), (-0.1, 0.1), (0.1, 0.2))] == [True, False, False]
    assert [is_behind(one(*ends)) for ends in ((-0.2, -0.1), (-0.1, 0.1), (0.1, 0.2))] == [False, False, True]


def test_names_of_all_tasks() -> None:
    assert "cascade of full networks" in by_contestant(RESULTS.tasks, "rival")
    assert [*by_contestant(RESULTS.tasks, "default")] == ["offramp"]
    kinds = {one.kind for one in of_kind(RESULTS.tasks["nci1"], "default", "exits")}
    assert kinds == {"default", "exits"}
