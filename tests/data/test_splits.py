from pathlib import Path

import pytest

from offramp.data.splits import SPLITS, choose_split, is_split_name, split_of_file
from offramp.errors import InputError, UnknownNameError


@pytest.mark.parametrize("name", sorted(SPLITS))
def test_splits_by_name(name: str) -> None:
    assert is_split_name(name)
    assert is_split_name(name.upper())
    for ending in ("", "1", "-0", "_12", ".3", "-00001-of-00002", "-00000-of-00001-0123456789abcdef"):
        assert split_of_file(Path("data.v1", f"{name}{ending}.parquet")) == name


@pytest.mark.parametrize("name", ["a", "part-0", "testing", "latest", "trains-1", "my train", "00000"])
def test_no_splits_by_name(name: str) -> None:
    assert not is_split_name(name)
    assert split_of_file(Path("train", f"{name}.parquet")) is None


def test_a_split_is_asked_for_by_a_name_that_is_there() -> None:
    assert choose_split(Path("pets"), "test", ["train", "test"]) == "test"
    with pytest.raises(InputError, match="pets holds the splits train, test; choose one: split='train'"):
        choose_split(Path("pets"), None, ["train", "test"])
    with pytest.raises(UnknownNameError, match="did you mean 'train'"):
        choose_split(Path("pets"), "trian", ["train", "test"])
