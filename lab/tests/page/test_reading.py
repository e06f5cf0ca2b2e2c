from pathlib import Path

import pytest

from lab.tests.page.made_up import CLAIMS, task, write
from offramp.errors import InputError
from offramp_bench.page import read_results
from offramp_bench.page.results import TITLES
from offramp_bench.paper.tasks import TASKS
from offramp_bench.places import RESULTS


def test_tasks_come_in_the_order_of_the_comparison(tmp_path: Path) -> None:
    results = read_results(write(tmp_path, task("mine"), task("nci1"), task("cifar10"), claims=CLAIMS))
    assert [found.name for found in results.tasks] == ["cifar10", "nci1", "mine"]
    assert len(results.missing) == len(TITLES) - 2
    assert results.claims is not None
    assert results.claims[0].figures[0].by_task["nci1"].figure == -0.5
    policy, exits = results.tasks[0].footings
    assert (policy.track, policy.title) == ("policy", "on the paper's exits")
    assert [contestant.name for contestant in exits.contestants][:2] == ["ladder, optimal stopping", "ladder"]
    assert set(exits.leads) == {contestant.name for contestant in exits.contestants} - {"ladder"}


def test_no_results_say_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        read_results(tmp_path)
    assert "offramp-bench run paper" in refused.value.hint


@pytest.mark.parametrize("content", ["{", "[]", '{"task": "nci1"}'])
def test_a_file_of_something_else_is_refused_by_name(content: str, tmp_path: Path) -> None:
    (write(tmp_path) / "tracks" / "other.json").write_text(content)
    with pytest.raises(InputError) as refused:
        read_results(tmp_path)
    assert refused.value.problem.endswith("other.json")


def test_every_task_of_the_comparison_has_a_title() -> None:
    assert set(TITLES) == {name for name, found in TASKS.items() if found.alone is None}


def test_committed_results_can_be_read() -> None:
    assert read_results(RESULTS).tasks
