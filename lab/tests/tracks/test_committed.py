"""The committed results are those of the default, the trainings and the tuning as they are now."""

import pytest

from offramp_bench.paper.tasks import TASKS
from offramp_bench.tracks.contestants import CASCADE, OTHER_NETWORKS, contestants_of
from offramp_bench.tracks.results import RESULTS, read_results, stamp
from tests.cases import each

MEASURED = sorted(path.stem for path in RESULTS.glob("*.json"))


def test_at_least_one_task_is_measured() -> None:
    assert MEASURED


@each("name", MEASURED)
def test_results_are_up_to_date(name: str) -> None:
    # Where this fails, the default or a training has changed: measure the task again (offramp-bench run paper --task).
    found = read_results()[name]
    assert name in TASKS
    assert found["measured with"] == stamp(name)
    assert found["seeds"] == [0, 1, 2, 3, 4]
    assert set(found["contestants"]) == set(contestants_of(name))
    for row in found["contestants"].values():
        # Seeds are different fits, except of other networks, which may run as they are; the cascade gets exits.
        is_fit = row["training"] not in OTHER_NETWORKS or row["training"] == CASCADE
        assert not is_fit or len(set(row["mean accuracies"])) > 1


@each("name", MEASURED)
def test_figures_are_shares(name: str) -> None:
    found = read_results()[name]
    for row in found["contestants"].values():
        assert set(row["figures"]) <= set(found["figures"])
        assert row["training"] in OTHER_NETWORKS or set(row["figures"]) == set(found["figures"])
        assert all(0 <= value <= 1 for value in row["figures"].values())
        assert row["curve"][-1] == pytest.approx([1, found["full accuracy"]], abs=1e-4)
