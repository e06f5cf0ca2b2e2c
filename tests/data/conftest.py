import datasets
import pytest


@pytest.fixture(autouse=True, scope="session")
def _quiet_datasets() -> None:
    datasets.disable_progress_bars()
