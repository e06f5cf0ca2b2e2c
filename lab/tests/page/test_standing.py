from lab.tests.page.made_up import task
from offramp_bench.page.reading import parse_task
from offramp_bench.page.results import Results, Task
from offramp_bench.page.standing import best_rival, describe_first, headline, near_misses, rivals, shortfalls, standing


def standings(parsed: Task) -> list[str]:
    return [standing(footing) for footing in parsed.footings]


def test_ahead_level_and_behind() -> None:
    # Optimal stopping on the default's own exits is a variant: it can put the default behind, but is no rival.
    assert standings(parse_task(task(means={"ladder, optimal stopping": 0.84}))) == ["ahead", "ahead"]
    assert standings(parse_task(task(noise=0.5))) == ["level", "level"]
    assert standings(parse_task(task(means={"ladder, optimal stopping": 0.85}))) == ["ahead", "behind"]
    assert standings(parse_task(task(means={"linear exits: entropy": 0.82}))) == ["behind", "ahead"]


def test_rivals_are_not_variants_of_the_default() -> None:
    policy, exits = parse_task(task()).footings
    assert [rival.label for rival in rivals(policy)] == ["entropy", "learned gates"]
    assert [rival.label for rival in rivals(exits)] == ["ZTW", "JEI-DNN", "linear"]
    best = best_rival(exits)
    assert best is not None
    assert best.name == "ZTW"


def test_where_the_default_is_behind() -> None:
    results = Results((parse_task(task(means={"linear exits: entropy": 0.82, "ZTW": 0.843})),), None)
    (sentence,) = shortfalls(results)
    comparison = "NCI1, graph network, policy track, on the paper's exits"
    assert sentence.startswith(f'{comparison}: behind 1 of 2 contestants. Most clearly, "entropy" is better in ')
    (sentence,) = near_misses(results)
    assert sentence.endswith("ZTW needs 0.56 of the cost, the default 0.56.")
    policy, exits = results.tasks[0].footings
    assert describe_first(policy) == "a simple method, entropy, is first by mean accuracy, the default number 2 of 3."
    assert describe_first(exits).startswith("ladder, optimal stopping is first")


def test_headline() -> None:
    tasks = parse_task(task(means={"ladder, optimal stopping": 0.8})), parse_task(task("cifar10", noise=0.5))
    assert headline(Results(tasks, None)) == [
        "Policy track, on the paper's exits, 2 tasks: behind on 0, level on 1 (cifar10), ahead on 1 (nci1).",
        "Exits track, the paper's features, 2 tasks: behind on 0, level on 1 (cifar10), ahead on 1 (nci1).",
    ]
