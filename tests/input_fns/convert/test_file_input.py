"""Images of --input: listed, counted, and read as those of the data set."""

import io
import types

import numpy as np
import pytest
from PIL import Image

from input_fns import DataError
from input_fns.convert.file_input import ImageInput
from input_fns.dataset_info import DatasetInfo, Feature
from tests.image_data import png


def data_of(shape=(None, None, 1), encoding="png", **prepared_with):
    features = {"image": Feature(encoding, "uint8", shape)}
    return DatasetInfo("photos", "data", features, ("a", "b"), {}, prepared_with=prepared_with)


def image_input(path, data):
    return ImageInput(str(path), types.SimpleNamespace(data=data, files_input_fn=None))


@pytest.fixture
def photo(tmp_path):
    file = io.BytesIO()
    Image.new("L", (5, 4), 9).save(file, "JPEG")
    return file.getvalue()


def test_what_is_skipped_is_counted_by_name(tmp_path, photo, capsys):
    for name in ("a.jpg", "b.JFIF", "c.jpe", "d", "e.txt", "._a.jpg", "Thumbs.db", "f.jp2"):
        (tmp_path / name).write_bytes(photo)
    given = image_input(tmp_path, data_of())
    assert [path[-6:] for path in given.paths] == ["/a.jpg", "b.JFIF", "/c.jpe"]
    out = capsys.readouterr().out
    for line in (
        "2 hidden files and files of the system, for example ._a.jpg, Thumbs.db",
        "1 files without an extension that are not used, for example d",
        "1 .txt files that are not used, for example e.txt",
        "1 .jp2 files that are not used (convert them to PNG), for example f.jp2",
    ):
        assert f"--input: left out: {line}\n" in out


def test_a_folder_without_images_names_what_is_there(tmp_path):
    (tmp_path / "x.jp2").write_bytes(b"1")
    with pytest.raises(DataError, match=r"must be an image file .*; left out: 1 .jp2 files that"):
        image_input(tmp_path, data_of())


DEEP = np.array([[0, 1000, 4095]], np.uint16)


def test_the_pixel_range_of_the_data_set_is_used(tmp_path):
    (tmp_path / "x.png").write_bytes(png(DEEP))
    (stored,) = image_input(tmp_path, data_of(pixel_range=[0.0, 4095.0])).files()
    assert np.asarray(Image.open(io.BytesIO(stored))).tolist() == [[0, 62, 255]]


def test_an_image_of_unknown_range_is_skipped_with_the_reason(tmp_path, photo, capsys):
    (tmp_path / "x.png").write_bytes(png(DEEP))
    (tmp_path / "y.jpg").write_bytes(photo)
    assert list(image_input(tmp_path, data_of()).files()) == [photo]
    out = capsys.readouterr().out
    assert "x.png is skipped: its pixels are unsigned integers of 16 bits from 0 to 4095" in out
    assert "Convert it to 8 bits" in out


@pytest.mark.parametrize("value", ["0,1", [1], [1, 0], ["0", "1"], [0, None]])
def test_an_invalid_range_in_the_data_set(tmp_path, photo, value):
    (tmp_path / "y.jpg").write_bytes(photo)
    with pytest.raises(DataError, match="prepared_with: pixel_range is"):
        image_input(tmp_path, data_of(pixel_range=value))


def test_stored_pixels_have_the_size_of_the_data_set(tmp_path, photo):
    (tmp_path / "y.jpg").write_bytes(photo)
    given = image_input(tmp_path, data_of((2, 3, 1), "raw"))
    assert list(given.files()) == [bytes([9] * 6)]
    assert given.sizes == [(2, 3)]
