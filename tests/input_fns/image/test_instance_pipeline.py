"""Masks of objects from COCO JSON to batches: what is stored, and how augmentation moves them."""

import json

import numpy as np
import pytest

from common import instance_masks
from input_fns import DataError, convert, dataset_info
from input_fns.convert import writer
from input_fns.convert.options import Options
from input_fns.core import records
from input_fns.core.synthetic import SyntheticPipeline
from input_fns.image import augment
from input_fns.image.annotated_kind import MASK_SIZE, unpack_outlines
from input_fns.image.instance_pipeline import InstancePipeline
from input_fns.image.sources import instances
from tests import shapes_data

pytest.importorskip("pycocotools")

COUNT = 6


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Drawings of 128 x 128 whose first object is a crowd; one more has no mask."""
    folder = tmp_path_factory.mktemp("instances")
    shapes_data.write_coco(folder / "raw", {"train": COUNT}, size=(128, 128))
    path = folder / "raw" / "annotations" / "instances_train.json"
    content = json.loads(path.read_text())
    content["annotations"][0]["iscrowd"] = 1
    without = {**content["annotations"][1], "id": 999, "segmentation": []}
    content["annotations"].append({**without, "bbox": [1, 1, 9, 9]})
    path.write_text(json.dumps(content))
    options = Options(
        "coco", source=str(folder / "raw"), task="instance_segmentation", validation_fraction=0
    )
    writer.write(convert.read(options), str(folder / "data"))
    return dataset_info.read(str(folder / "data"))


def stored(pipeline):
    """The labels as stored, and the drawings in the same order: that of "train" is random."""
    ((_, labels),) = pipeline.host_examples("train", COUNT)
    drawn = shapes_data.drawings("train", COUNT, size=(128, 128))
    return labels, [drawn[number] for number in labels["image_id"].tolist()]


def batch_of(pipeline, size=COUNT):
    """The features and labels of the split in order, as an evaluation gets them."""
    return next(records.iterate(lambda: pipeline.in_order("train").rebatch(size)))


def drawn(mask, frame, size):
    """Pixels whose center is in a part of the frame that the mask covers."""
    y0, x0, y1, x1 = frame
    rows, columns = (
        np.floor((np.arange(length) + 0.5 - low) / (high - low) * MASK_SIZE).astype(int)
        for low, high, length in ((y0, y1, size[0]), (x0, x1, size[1]))
    )
    inside = [(axis >= 0) & (axis < MASK_SIZE) for axis in (rows, columns)]
    pixels = mask[np.clip(rows, 0, MASK_SIZE - 1)[:, None], np.clip(columns, 0, MASK_SIZE - 1)]
    return (pixels > 0) & inside[0][:, None] & inside[1]


def test_an_object_without_a_mask_is_left_out_and_counted(data):
    assert data.kind.splits["train"].left_out == {"without a polygon or run lengths": 1}


@pytest.mark.slow(cost=0.1)
def test_a_batch_has_the_masks_of_all_boxes(data):
    pipeline = InstancePipeline(data, (128, 128))
    _, labels = batch_of(pipeline)
    assert labels["masks"].shape == (COUNT, data.kind.max_boxes, MASK_SIZE, MASK_SIZE)
    assert labels["masks"].dtype == np.uint8
    np.testing.assert_array_equal(labels["mask_frames"], labels["boxes"])
    for i, drawing in enumerate(stored(pipeline)[1]):
        for n, mask in enumerate(drawing.masks):
            # Boxes of up to 112 pixels lose nothing.
            found = drawn(labels["masks"][i, n], labels["mask_frames"][i, n], mask.shape)
            np.testing.assert_array_equal(found, mask)


def test_host_examples_have_the_exact_masks(data):
    labels, drawings = stored(InstancePipeline(data, (128, 128)))
    for outlines, drawing in zip(labels["outlines"], drawings):
        rles = unpack_outlines(outlines)
        assert len(rles) == len(drawing.masks)
        for rle, mask in zip(rles, drawing.masks):
            np.testing.assert_array_equal(instance_masks.from_rle(rle), mask)


def test_a_large_box_loses_at_most_half_a_cell_at_its_border():
    size, box = (900, 1200), np.array([40.0, 100.0, 880.0, 1100.0])
    y, x = np.ogrid[: size[0], : size[1]]
    mask = ((y - 459.5) / 420) ** 2 + ((x - 599.5) / 500) ** 2 <= 1
    bits = instances.crop(mask, box)
    found = drawn(np.unpackbits(bits, axis=1), box, size)
    wrong_rows = (found != mask).sum(axis=1).max()
    assert (found & mask).sum() / (found | mask).sum() > 0.98
    assert wrong_rows < size[1] / 8  # at the top and the bottom an ellipse is nearly horizontal


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    "text", ["flip", "box_crop:1:0.5 scale_jitter:0.5:2", "shift:0.2 scale:0.3"]
)
def test_augmentation_moves_masks_with_the_pixels(data, text):
    """The objects are brighter than the background, so pixels show where they are."""
    pipeline = InstancePipeline(data, (128, 128), augment.parse(text))
    train = pipeline.train_input_fn("train", 3)
    features, labels = next(records.iterate(lambda: train({"batch_size": 12})))
    agreeing, moved = [], 0
    for i, image in enumerate(features["image"]):
        is_valid = labels["classes"][i] >= 0
        shown = np.zeros(image.shape[:2], bool)
        for mask, frame in zip(labels["masks"][i][is_valid], labels["mask_frames"][i][is_valid]):
            shown |= drawn(mask, frame, image.shape[:2])
        bright = image.max(axis=-1) > 125
        if is_valid.any():
            agreeing.append((shown & bright).sum() / (shown | bright).sum())
        moved += (labels["boxes"][i] != labels["mask_frames"][i]).any()
    # Interpolated borders of objects of 20 to 48 pixels; objects that are mostly outside.
    assert np.median(agreeing) > 0.9
    assert moved > 0 or text == "flip"


@pytest.mark.parametrize("text", ["rotate:10", "shear:5", "randaugment:1:5", "mosaic:1"])
def test_an_augmentation_that_masks_cannot_follow_is_an_error(data, text):
    with pytest.raises(DataError, match=f"{text.partition(':')[0]} cannot move the masks"):
        InstancePipeline(data, (128, 128), augment.parse(text))


def test_masks_follow_the_exif_orientation():
    mask = np.zeros([4, 6], bool)
    mask[1, 2:5] = True
    from input_fns.image.sources import boxes

    corners = np.array([[1, 2, 2, 5]], np.float32)
    for orientation in range(1, 9):
        (y0, x0, y1, x1) = boxes.turned(corners, (4, 6), orientation)[0].astype(int)
        turned = boxes.turned_mask(mask, orientation)
        assert turned[y0:y1, x0:x1].all()
        assert turned.sum() == 3


def test_too_long_outlines_are_an_error():
    from input_fns.image import annotated_kind

    with pytest.raises(ValueError, match="bytes of run lengths"):
        annotated_kind.pack_outlines((3, 5), ["x" * 2**18])


def test_predictions_are_written_as_run_lengths(data, tmp_path):
    pipeline = InstancePipeline(data, (128, 128))
    masks = np.zeros([1, 2, 28, 28], np.float32)
    masks[0, 0] = 1
    batch = {
        "boxes": np.array([[[10, 20, 40, 60], [0, 0, 0, 0]]], np.float32),
        "classes": np.array([[1, 0]], np.int32),
        "scores": np.array([[0.5, 0]], np.float32),
        "num_detections": np.array([1], np.int32),
        "masks": masks,
        "image_size": np.array([[50, 70]], np.int32),
    }
    path = tmp_path / "found.jsonl"
    pipeline.prediction_writer(None).write(str(path), iter([batch]))
    line = json.loads(path.read_text())
    assert "masks" not in line
    (rle,) = line["segmentations"]
    expected = np.zeros([50, 70], bool)
    expected[10:40, 20:60] = True
    np.testing.assert_array_equal(instance_masks.from_rle(rle), expected)


@pytest.mark.slow(cost=0.1)
def test_synthetic_examples_are_shaped_as_the_real_ones(data):
    real = InstancePipeline(data, (16, 24))
    made = SyntheticPipeline(real)
    for name, arguments in (("train", [1]), ("eval", []), ("predict", [])):
        expected, found = (
            getattr(each, f"{name}_input_fn")("train", *arguments)({"batch_size": 4}).element_spec
            for each in (real, made)
        )
        assert found == expected
