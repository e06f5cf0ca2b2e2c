from pathlib import Path

import pytest
from PIL import Image

from offramp.data.image_files import ImageFiles, is_image_name, named_files
from offramp.errors import InputError


@pytest.mark.parametrize("name", ["a.png", "A.JPG", "x/y.jpeg", "a.webp", "a.bmp", "a.gif", "a.tif", "a.b.TIFF"])
def test_images_by_name(name: str) -> None:
    assert is_image_name(name)


@pytest.mark.parametrize("name", ["a.txt", "png", "a.png.txt", ".png", ".a.png", "x/._a.png", ""])
def test_no_images_by_name(name: str) -> None:
    assert not is_image_name(name)


def test_only_the_rows_asked_for_are_decoded(tmp_path: Path) -> None:
    Image.new("L", (3, 2), 5).save(tmp_path / "good.png")
    files = ImageFiles(tmp_path, ["none.png", "good.png", "none.png"])
    assert [int(image.max()) for image in files(1, 2)] == [5]


def test_files_that_a_table_names_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    names, sizes = named_files([("row 0", "a.png")], tmp_path)
    assert (list(names), sizes) == (["a.png"], [0])
    for name in ("none.png", "", "x" * 5000, "a\0.png"):
        with pytest.raises(InputError, match=r"row 3 names the image .*but there is no file .*; add it"):
            named_files([("row 0", "a.png"), ("row 3", name)], tmp_path)
