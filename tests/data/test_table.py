from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from offramp.data import open_data
from offramp.errors import InputError, UnknownNameError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "table.csv"


def test_text_is_taken_before_all_else(path: Path) -> None:
    path.write_text("image,text,label,score\nx.png,one,1,0.5\ny.png,,0,0.5\n")
    data = open_data(path)
    assert data.read(0, 2).inputs == ["one", ""]
    assert data.read(0, 2).labels.tolist() == [1, 0]
    assert data.classes == ()


def test_a_named_column_is_texts(path: Path) -> None:
    path.write_text("text,review,kind\none,1,b\ntwo,2,a\n")
    data = open_data(path, column="review", label="kind")
    assert data.read(0, 2).inputs == ["1", "2"]
    assert data.classes == ("a", "b")
    other = open_data(path, label="kind")
    assert other.name != data.name
    assert (other.read(0, 2).ids != data.read(0, 2).ids).all()  # of the inputs, and no other column


@pytest.mark.parametrize("option", ["label", "column"])
def test_an_unknown_column_suggests_the_nearest(path: Path, option: str) -> None:
    path.write_text("text,kind\none,b\n")
    with pytest.raises(UnknownNameError, match="unknown column 'kinds'; did you mean 'kind'"):
        open_data(path, **{option: "kinds"})


@pytest.mark.parametrize("column", ["image", "file"])
def test_images_lie_beside_the_table(tmp_path: Path, path: Path, column: str) -> None:
    (tmp_path / "pictures").mkdir()
    for value in (7, 8):
        Image.new("L", (value, 2), value).save(tmp_path / "pictures" / f"{value}.png")
    path.write_text(f"{column},label\npictures/8.png,b\npictures/7.png,a\n")
    data = open_data(path, column=None if column == "image" else column)
    rows = data.read(0, 2)
    assert [image.shape for image in rows.inputs] == [(2, 8, 3), (2, 7, 3)]
    assert int(rows.inputs[0].max()) == 8
    Image.new("L", (8, 2), 9).save(tmp_path / "pictures" / "8.png")  # the same table, but other samples
    assert (open_data(path, column=column).read(0, 2).ids != rows.ids).tolist() == [True, False]


def test_image_rows_are_called_by_their_paths_and_others_by_their_number(tmp_path: Path, path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    for name in "ab":
        Image.new("L", (2, 2)).save(tmp_path / "pictures" / f"{name}.png")
    path.write_text("image,text,label\npictures/b.png,one,1\npictures/a.png,two,0\npictures/b.png,three,0\n")
    assert open_data(path, column="image").keys(1, 3) == ["pictures/a.png", "pictures/b.png"]
    assert open_data(path).keys(1, 3) == ["1", "2"]


def test_the_labels_are_no_inputs(path: Path) -> None:
    path.write_text("text,label\none,0\n")
    with pytest.raises(InputError, match="got 'label', that of the labels"):
        open_data(path, column="label")


def test_a_label_column_that_is_empty_everywhere_is_none(path: Path) -> None:
    path.write_text("text,label\none,\ntwo, \n")
    data = open_data(path, classes=["cat", "dog"])
    assert not data.labelled
    assert data.read(0, 2).labels.tolist() == [-1, -1]
    assert data.classes == ("cat", "dog")


def test_a_missing_image_is_named_at_once(path: Path) -> None:
    path.write_text("image\nnone.png\n")
    with pytest.raises(InputError, match=r"line 2 of .*table\.csv names the image 'none\.png'"):
        open_data(path)


def test_other_columns_are_numbers(path: Path) -> None:
    path.write_text("width,label,height\n1,0,-2.5\n1e3,1, 0.1 \n")
    inputs = open_data(path).read(0, 2).inputs
    assert inputs.dtype == np.float32
    np.testing.assert_array_equal(inputs, np.array([[1, -2.5], [1000, 0.1]], np.float32))


@pytest.mark.parametrize("cell", ["", "nan", "inf", "1e39", "x", "1,5"])
def test_the_first_cell_that_is_no_number_is_named(path: Path, cell: str) -> None:
    path.write_text(f'a,b,label\n1,2,0\n3,"{cell}",1\nx,x,0\n')
    with pytest.raises(InputError, match=f"number in column 'b', line 3 of .*got '{cell}'"):
        open_data(path)


def test_a_nameless_column_of_row_numbers_is_refused(path: Path) -> None:
    path.write_text(",a,label\n0,2,0\n")
    with pytest.raises(InputError, match=r"column 1 of .* has no name"):
        open_data(path)
    path.write_text(",text,label\n0,two,0\n")
    assert open_data(path).read(0, 1).inputs == ["two"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("label\n0\n", "column of inputs beside 'label'"),
        ("a,a,label\n1,2,0\n", "got 'a' twice"),
        ("text,label\none,0\ntwo,-1\n", "got -1 at line 3 of"),
        ("text,label\none,0\ntwo,\n", "line 3 of .* has no label"),
    ],
)
def test_what_is_wrong_is_named(path: Path, content: str, message: str) -> None:
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        open_data(path)


def test_labels_out_of_range_of_the_classes(path: Path) -> None:
    path.write_text("text,label\none,0\ntwo,2\n")
    with pytest.raises(InputError, match="got 2 at line 3"):
        open_data(path, classes=["a", "b"])
    path.write_text("text,label\none,a\ntwo,c\n")
    with pytest.raises(UnknownNameError, match="unknown class 'c'"):
        open_data(path, classes=["a", "b"])


def test_without_labels(path: Path) -> None:
    path.write_text("text\none\ntwo\n")
    data = open_data(path)
    assert not data.labelled
    assert data.read(0, 2).labels.tolist() == [-1, -1]
