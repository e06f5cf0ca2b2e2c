"""The comparison as docs/evidence/tables.md shows it."""

from lab.tests.page.made_up import task
from offramp_bench.page.reading import parse_task
from offramp_bench.page.results import Results
from offramp_bench.paper.evidence import section


def test_tasks_with_five_seeds_are_shown() -> None:
    tasks = parse_task(task(means={"linear exits: entropy": 0.82})), parse_task(task("cifar10", seeds=1))
    text = section(Results(tasks, None)).replace("\N{MINUS SIGN}", "-")
    assert "| NCI1, graph network | 85.0 % | 0.60 | 0.58 entropy | -0.020 (-0.025 to -0.015) | behind |" in text
    assert "The default is behind here:\n\n* NCI1, graph network, policy track" in text
    assert "| CIFAR-10" not in text
    assert "Not measured yet: CIFAR-10, ResNet-56;" in text
    assert "Open track: not measured yet." in text


def test_no_task_with_five_seeds() -> None:
    text = section(Results((parse_task(task("mine", seeds=1)),), None))
    assert "No task is measured with five seeds yet." in text
    assert text.count("mine") == 1
