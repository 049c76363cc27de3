"""Masks over images: colors, legend, and the files of the report."""

import io
import types

import numpy as np
import pytest
from PIL import Image

from common import drawing
from models.segmentation import overlay

NAMES = ("sky", "road", "a name that is much too long for a legend")


@pytest.mark.parametrize("channels", [1, 3])
def test_a_row_has_the_image_its_labels_and_its_prediction(channels):
    images = np.full([2, 6, 9, channels], 60, np.uint8)
    labels, classes = np.zeros([2, 6, 9], np.uint8), np.ones([2, 6, 9], np.int32)
    sheet = np.asarray(overlay.draw(images, labels, classes, ["first", "second"], NAMES))
    row_height = 160 + 14 + 4
    for row in range(2):
        middles = [sheet[14 + row * row_height + 94, 120 + i * 244].tolist() for i in range(3)]
        assert middles[0] == [60, 60, 60]
        for middle, number in zip(middles[1:], (0, 1)):
            assert middle == ((60 + np.array(drawing.class_color(number))) // 2).tolist()
    legend = sheet[14 + 2 * row_height + 7, [5, 165]]
    np.testing.assert_array_equal(legend, [drawing.class_color(0), drawing.class_color(1)])


def evaluation(size, worst):
    examples = {
        "features": {"image": np.zeros([size, 4, 4, 3], np.uint8)},
        "labels": {"mask": np.zeros([size, 4, 4], np.uint8)},
        "predictions": {"classes": np.zeros([size, 4, 4], np.int32)},
    }
    files = {}
    ranked = {**examples, "scores": np.zeros(size), "indices": np.arange(size)}
    return types.SimpleNamespace(
        step=9,
        **(examples if size else {"features": {}, "labels": None, "predictions": {}}),
        worst=ranked if worst else {},
        write_file=lambda name, content: files.update({name: content}),
        write_image=lambda tag, png: files.update({tag: png}),
        files=files,
    )


def test_the_first_and_the_worst_images_are_written():
    written = evaluation(3, worst=True)
    overlay.Overlays(NAMES).write(written)
    assert set(written.files) == {
        "first_images_9.png", "worst_images_9.png",
        "predictions/first_images", "predictions/worst_images",
    }  # fmt: skip
    assert Image.open(io.BytesIO(written.files["worst_images_9.png"])).width == 732


def test_nothing_is_written_where_no_examples_come_back():
    written = evaluation(0, worst=False)
    assert overlay.Overlays(NAMES).write(written) == {}
    assert not written.files
