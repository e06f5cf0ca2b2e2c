import pytest

from offramp.data.selection import Columns, Selection
from offramp.errors import InputError, UnknownNameError


@pytest.mark.parametrize(
    ("selection", "names", "expected"),
    [
        (Selection(), ["label", "text", "image"], Columns("label", ("text",))),
        (Selection(), ["image", "id"], Columns(None, ("image",))),
        (Selection(), ["a", "label", "b"], Columns("label", ("a", "b"))),
        (Selection(label="text"), ["text", "image"], Columns("text", ("image",))),
        (Selection(column="b"), ["a", "b", "text"], Columns(None, ("b",))),
    ],
)
def test_columns_are_found(selection: Selection, names: list[str], expected: Columns) -> None:
    assert selection.columns(names) == expected


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="column 'kind'"):
        Selection(label="kind").columns(["text"])
    with pytest.raises(UnknownNameError, match="column 'kind'"):
        Selection(column="kind").columns(["text"])
    with pytest.raises(InputError, match="column of inputs, got 'label', that of the labels"):
        Selection(column="label").columns(["label", "text"])
    with pytest.raises(InputError, match="got 'text', that of the labels"):
        Selection(label="text", column="text").columns(["label", "text"])
    with pytest.raises(InputError, match="inputs beside 'label'"):
        Selection().columns(["label"])
    with pytest.raises(InputError, match="'a' twice"):
        Selection().columns(["a", "b", "a"])
