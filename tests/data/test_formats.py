import subprocess
import sys
from pathlib import Path

import pytest

from offramp.data import FORMATS, open_data
from offramp.data._formats import Selection, TableColumns
from offramp.errors import InputError, MissingExtraError, UnknownNameError
from tests.cases import each, refuses


def test_every_format_opens_with_something() -> None:
    assert all(callable(FORMATS.get(name)) for name in FORMATS)


def test_nothing_there_lists_what_is_taken(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"got nothing at .*none\.csv; offramp opens .*\.csv, .*a folder of images"):
        open_data(tmp_path / "none.csv")


def test_an_unknown_suffix_lists_what_is_taken(tmp_path: Path) -> None:
    (tmp_path / "pets.xlsx").touch()
    with pytest.raises(InputError, match=r"got pets\.xlsx; offramp opens \.arrow, \.csv, .*\.npz, \.parquet"):
        open_data(tmp_path / "pets.xlsx")


@each("name", ["PETS.CSV", "pets.v1.csv"])
def test_suffixes_in_capitals_and_names_with_dots(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("text\none\n")
    data = open_data(str(tmp_path / name))
    assert data.read(0, 1).inputs == ["one"]
    assert data.name.startswith(name[:-4] + "-")


@each(
    ("name", "content"),
    [("a.csv", ""), ("a.csv", "text,label\n"), ("a.tsv", "label\ttext\n\n\n"), ("a.txt", "\n\n"), ("b.csv", "\n")],
)
def test_empty_files_are_refused(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match="is empty"):
        open_data(tmp_path / name)


def test_classes_as_one_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    with refuses(InputError, expected="list of names"):
        open_data(tmp_path / "a.txt", classes="cat")
    with refuses(InputError, expected="each class once"):
        open_data(tmp_path / "a.txt", classes=["cat", "cat"])


@each("name", ["a.csv", "a.npz", "a.parquet", "a.jsonl"])
def test_a_split_of_what_has_none_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("text\none\n")
    with refuses(InputError, expected="no split"):
        open_data(tmp_path / name, split="train")


@each(("name", "library", "extra"), [("a.csv", "PIL", "images"), ("a.jsonl", "datasets", "datasets")])
def test_a_missing_library_names_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, library: str, extra: str
) -> None:
    (tmp_path / "a.png").touch()
    (tmp_path / "a.csv").write_text("image\na.png\n")
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n')
    monkeypatch.delitem(sys.modules, "offramp.data._huggingface", raising=False)
    monkeypatch.setattr(FORMATS, "_entries", {**FORMATS._entries, ".jsonl": "offramp.data._huggingface:open_files"})
    for module in [module for module in sys.modules if module.partition(".")[0] == library]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'offramp\[{extra}\]'"):
        open_data(tmp_path / name)


def test_libraries_are_imported_only_when_used(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\none,0\n")
    code = (
        "import sys, offramp.data; offramp.data.open_data(sys.argv[1]).read(0, 1); "
        "print({'PIL', 'datasets', 'fsspec', 'pyarrow'} & {*sys.modules})"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.csv")], capture_output=True, text=True, check=True
    ).stdout
    assert printed.strip() == "set()"


@each(
    ("selection", "names", "expected"),
    [
        (Selection(), ["label", "text", "image"], TableColumns("label", ("text",))),
        (Selection(), ["image", "id"], TableColumns(None, ("image",))),
        (Selection(), ["a", "label", "b"], TableColumns("label", ("a", "b"))),
        (Selection(label="text"), ["text", "image"], TableColumns("text", ("image",))),
        (Selection(column="b"), ["a", "b", "text"], TableColumns(None, ("b",))),
    ],
)
def test_columns_are_found(selection: Selection, names: list[str], expected: TableColumns) -> None:
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
    with refuses(InputError, expected="inputs beside 'label'"):
        Selection().columns(["label"])
    with pytest.raises(InputError, match="'a' twice"):
        Selection().columns(["a", "b", "a"])
