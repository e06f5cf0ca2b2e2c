"""For every test: operators of torchvision declared, `datasets` kept local, one thread; real data for `data` tests."""

import os
import tempfile
from collections.abc import Generator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from xdist.scheduler import LoadScopeScheduling

_OPERATORS = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]


def _declare_operators() -> None:
    """Let torchvision be imported, which timm and transformers do, where its compiled operators do not fit torch.

    Beside a CPU build of torch they often cannot be loaded. Models need none of them; the import only asks that two are
    declared. Where they can be loaded they must not be declared as well: the process would be aborted.
    """
    found = find_spec("torchvision")
    for compiled in Path(found.origin).parent.glob("_C*.so") if found and found.origin else ():
        with suppress(OSError):
            torch.ops.load_library(str(compiled))
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            _OPERATORS.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


_declare_operators()

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


SHARED = {
    "tests/demo/": "demo",
    "tests/test_documents.py": "demo",
    "tests/runtime/onnx/": "onnx",
    "tests/test_offramp_onnx.py": "onnx",
    "tests/scale/": "scale",
}
"""Files, by what their paths begin with, that share trained networks, graphs or a cluster."""

LONGEST = ("onnx", "tests/end_to_end/test_main_road.py", "demo", "scale")
"""Groups that begin first, the longest first; what is not here takes less than a minute."""


def _group(nodeid: str) -> str:
    """Return the group of a test: the tests of a group share fitted models, and run in one process."""
    file = nodeid.partition("::")[0]
    return next((group for start, group in SHARED.items() if file.startswith(start)), file)


class _ByGroup(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _ByGroup:
    """Hand out tests by groups, in the order of the items."""
    config.option.loadscopereorder = False
    return _ByGroup(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("lab/"):
            item.add_marker("lab")
    if hasattr(config, "workerinput"):
        order = {group: place for place, group in enumerate(LONGEST)}
        items.sort(key=lambda item: order.get(_group(item.nodeid), len(order)))
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
