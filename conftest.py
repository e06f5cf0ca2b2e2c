"""For every test: operators of torchvision declared, `datasets` kept local, one thread; real data for `data` tests."""

import os
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import torch
from xdist.scheduler import LoadScopeScheduling

# timm and transformers import torchvision, whose compiled operators a CPU build of torch cannot load. Its models need
# none of them; its import only asks that two are declared.
_OPERATORS = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
for _name in ("nms", "qnms"):
    if not hasattr(torch.ops.torchvision, _name):
        _OPERATORS.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

os.environ.setdefault("HF_HUB_OFFLINE", "1")
_CACHE = tempfile.TemporaryDirectory(prefix="offramp-datasets-")  # until the tests end
os.environ["HF_DATASETS_CACHE"] = _CACHE.name

MISSING = "needs real data: set OFFRAMP_DATA to its folder"


def found_data() -> Path | None:
    """The folder OFFRAMP_DATA names, if it is there."""
    named = os.environ.get("OFFRAMP_DATA")
    return Path(named) if named and Path(named).is_dir() else None


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """One order of sums in every process; beside other work, two threads wait for one another most of the time."""
    os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that tests start
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real datasets and weights; for tests marked `data`."""
    folder = found_data()
    if folder is None:
        raise RuntimeError(f"{MISSING}, and mark the test with pytest.mark.data")
    return folder


class _ByFile(LoadScopeScheduling):
    """Tests of one file share fitted models, those of ONNX graphs the same ones: each group stays in one process."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "onnx" if file.startswith("tests/") and "onnx" in file else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _ByFile:
    """Hand out tests by groups, the largest first."""
    return _ByFile(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("lab/"):
            item.add_marker("lab")
    if found_data() is None:
        named = os.environ.get("OFFRAMP_DATA")
        reason = f"{MISSING} (got {named!r}, which is no folder)" if named else MISSING
        for item in items:
            if item.get_closest_marker("data"):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With OFFRAMP_REQUIRE_DATA=1, turn every skip of a `data` test, whatever its cause, into a failure."""
    report = yield
    required = os.environ.get("OFFRAMP_REQUIRE_DATA") == "1" and item.get_closest_marker("data") is not None
    if required and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"OFFRAMP_REQUIRE_DATA=1, but a data test was skipped: {reason}"
    return report
