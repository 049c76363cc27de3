"""Images of `--input` with their predictions drawn in."""

import types

import numpy as np
import pytest
from PIL import Image

from common import drawing
from common.errors import UsageError
from input_fns.core import predictions
from input_fns.image import overlays

NAMES = ("cat", "dog")
ROW = {
    "boxes": np.array([[10.0, 20, 50, 60], [10, 70, 50, 90], [0, 0, 0, 0]]),
    "scores": np.array([0.9, 0.1, 0.0]),
    "classes": np.array([1, 0, 0]),
    "num_detections": np.int32(2),
}


def drawn_colors(picture, number):
    """Returns where a picture has the color of a class, bool `[height, width]`."""
    return (np.asarray(picture) == drawing.class_color(number)).all(axis=-1)


def test_objects_are_drawn_in_the_scale_of_the_picture():
    drawn = overlays.draw_objects(Image.new("RGB", (200, 120)), 2.0, ROW, NAMES)
    assert drawn_colors(drawn, 1)[20:100, 40].all()


def test_objects_of_a_low_score_are_not_drawn():
    drawn = overlays.draw_objects(Image.new("RGB", (100, 60)), 1.0, ROW, NAMES)
    assert not drawn_colors(drawn, 0).any()


def test_masks_are_those_of_the_drawn_objects():
    masks = np.zeros([2, 60, 100], bool)
    masks[0, :, :9], masks[1, :, 91:] = True, True
    row = {**ROW, "scores": np.array([0.1, 0.9, 0.0])}
    drawn = np.asarray(overlays.draw_objects(Image.new("RGB", (100, 60)), 1.0, row, NAMES, masks))
    assert not drawn[30, 3].any()
    assert drawn[30, 97].any()


def test_classes_of_pixels_have_a_legend():
    classes = np.array([[0, 1]])
    drawn = overlays.draw_classes(Image.new("RGB", (170, 40)), classes, NAMES)
    assert drawn.size == (170, 40 + 2 * 14)
    half = np.array(drawing.class_color(1)) // 2
    np.testing.assert_array_equal(np.asarray(drawn)[20, 160], half)


def test_a_name_cannot_leave_the_folder(tmp_path):
    writer = types.SimpleNamespace(endings=(), write=lambda path, batches: list(batches))
    examples = types.SimpleNamespace(pictures=lambda: iter([Image.new("RGB", (7, 5))]))
    made = overlays.OverlayWriter(
        writer, str(tmp_path / "drawn"), examples, lambda picture, scale, row: picture
    )
    made.write("", iter([{"name": np.array(["../../a b\\c.png"])}]))
    (path,) = (tmp_path / "drawn").iterdir()
    assert path.name == "000000_a_b_c.jpg"


def test_class_names_of_the_other_writer_stay_known():
    writer = types.SimpleNamespace(endings=(".jsonl",), class_names=NAMES)
    made = overlays.OverlayWriter(writer, "drawn", None, None)
    assert (made.endings, made.class_names) == ((".jsonl",), NAMES)


def test_images_with_classes_have_nothing_to_draw():
    data = types.SimpleNamespace(name="pets", all_class_names=NAMES)
    with pytest.raises(UsageError, match="but pets has none of them"):
        predictions.writer_of(types.SimpleNamespace(data=data), None, "drawn")
