"""Records of drawn shapes as input pipelines read them, written without prepare_data.py."""

import io
import pathlib

import numpy as np
import tensorflow as tf
from PIL import Image

from input_fns.dataset_info import DatasetInfo, Feature, ShardInfo, SplitInfo
from input_fns.image.annotated_kind import Annotations
from tests import shapes_data

MAX_BOXES = 5


def png(pixels):
    """Returns the PNG file of uint8 `[height, width]` or `[height, width, 3]`."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def padded(values, padding, dtype):
    """Returns `values` with `MAX_BOXES` rows."""
    rows = np.full([MAX_BOXES, *values.shape[1:]], padding, dtype)
    rows[: len(values)] = values
    return rows


def stored(drawing, number):
    """Returns `{feature: array}` of the labels of detection; every third object is a crowd."""
    boxes = drawing.boxes
    is_crowd = (np.arange(len(boxes)) + number) % 3 == 0
    return {
        "boxes": padded(boxes, 0, np.float32),
        "classes": padded(drawing.classes, -1, np.int32),
        "is_crowd": padded(is_crowd, 0, np.uint8),
        "areas": padded(np.prod(boxes[:, 2:] - boxes[:, :2], axis=1), 0, np.float32),
        "image_id": np.array(10 * number + 5, np.int64),
    }


def write(
    folder: pathlib.Path, task: str, drawings, raw: bool = False, num_shards: int = 2, change=None
) -> DatasetInfo:
    """Writes the split "train" of a data set; returns its metadata.

    Args:
      folder: where the shards are written.
      task: "detection" or "segmentation".
      drawings: `shapes_data.Drawing` objects.
      raw: whether images and masks are stored as pixels, not as PNG files.
      num_shards: number of shards.
      change: function that changes `{feature: bytes}` of an example in place; None for none.
    """
    features = {"image": Feature("image", "uint8", (None, None, 3))}
    size = drawings[0].image.shape[:2]
    if raw:
        features = {"image": Feature("raw", "uint8", (*size, 3))}
    if task == "detection":
        labels = stored(drawings[0], 0)
        for name, value in labels.items():
            features[name] = Feature("raw", value.dtype.name, value.shape)
    else:
        encoding, shape = ("raw", (*size, 1)) if raw else ("png", (None, None, 1))
        labels = {"mask": None}
        features["mask"] = Feature(encoding, "uint8", shape)
    encode = np.ndarray.tobytes if raw else png
    examples = []
    for number, drawing in enumerate(drawings):
        values = {"image": encode(drawing.image)}
        if task == "detection":
            values.update((k, v.tobytes()) for k, v in stored(drawing, number).items())
        else:
            values["mask"] = encode(shapes_data.void_borders(drawing))
        if change is not None:
            change(values)
        examples.append(values)
    shards = []
    for i, part in enumerate(np.array_split(np.arange(len(examples)), num_shards)):
        path = folder / f"train-{i}.tfrecord"
        with tf.io.TFRecordWriter(str(path)) as writer:
            for number in part:
                writer.write(_record(examples[number]))
        shards.append(ShardInfo(path.name, path.stat().st_size, len(part)))
    class_names = shapes_data.CLASS_NAMES
    if task == "segmentation":
        class_names = ("background", *class_names)
    return DatasetInfo(
        "shapes",
        str(folder),
        features,
        (),
        {"train": SplitInfo((), tuple(shards))},
        labels=tuple(labels),
        kind=Annotations(task, class_names, MAX_BOXES if task == "detection" else 0, splits={}),
    )


def _record(values):
    features = {
        name: tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        for name, value in values.items()
    }
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
