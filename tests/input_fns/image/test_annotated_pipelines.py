"""What a model is fed with of images with boxes or masks."""

import dataclasses
import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from input_fns import DataError
from input_fns.core import serving
from input_fns.image import augment
from input_fns.image.annotated_kind import BOX_LABELS
from input_fns.image.detection_pipeline import DetectionPipeline
from input_fns.image.segmentation_pipeline import SegmentationPipeline
from tests import annotated_data, shapes_data
from tests.marks import slow

SIZE = (72, 56)
PIPELINES = {"detection": DetectionPipeline, "segmentation": SegmentationPipeline}
WORDS = {
    "detection": "box_crop:0.5:0.5 scale_jitter:0.5:2 flip jitter:0.2 mosaic:0.5",
    "segmentation": "scale_jitter:0.5:2 flip rotate:10",
}
DRAWINGS = [shapes_data.draw(number) for number in range(11)]
TASKS = pytest.mark.parametrize("task", PIPELINES)
DETECTION_FIRST = pytest.mark.parametrize("task", ["detection", slow("segmentation")])


@pytest.fixture(scope="module")
def shapes(tmp_path_factory):
    """Drawn shapes of three sizes as PNG files, `{task: DatasetInfo}`."""
    return {
        task: annotated_data.write(tmp_path_factory.mktemp(task), task, DRAWINGS)
        for task in PIPELINES
    }


@pytest.fixture
def pipeline(shapes):
    """Makes the pipeline of a task."""

    def make(task, words="", size=SIZE, **more):
        return PIPELINES[task](shapes[task], size, augment.parse(words), **more)

    return make


def fetch(input_fn, session, batch_size, count=1):
    """The first `count` batches."""
    batches = input_fn({"batch_size": batch_size})
    element = tf.compat.v1.data.make_one_shot_iterator(batches).get_next()
    return [session.run(element) for _ in range(count)]


def assert_equal(one, other):
    tf.nest.map_structure(np.testing.assert_array_equal, one, other)


def test_detection_keeps_the_aspect_ratio_and_moves_the_boxes(pipeline, session):
    ((features, labels),) = fetch(pipeline("detection").eval_input_fn("train"), session, 13)
    assert features["weight"].tolist() == [1] * 11 + [0] * 2
    for i, drawing in enumerate(DRAWINGS):
        height, width = drawing.image.shape[:2]
        scale = min(SIZE[0] / height, SIZE[1] / width)
        np.testing.assert_allclose(features["image_info"][i], [height, width, scale], rtol=1e-6)
        image = features["image"][i]
        end = np.round([height * scale, width * scale]).astype(int)
        assert not image[end[0] :].any()
        assert not image[:, end[1] :].any()
        assert image[: end[0], : end[1]].min(axis=-1).mean() > 0
        stored = annotated_data.stored(drawing, i)
        np.testing.assert_allclose(labels["boxes"][i], stored["boxes"] * scale, rtol=1e-5)
        for name in ("classes", "is_crowd"):
            assert labels[name].dtype == np.int32
            np.testing.assert_array_equal(labels[name][i], stored[name])


def test_segmentation_fills_the_canvas(pipeline, session):
    ((features, labels),) = fetch(pipeline("segmentation").eval_input_fn("train"), session, 11)
    for drawing, image, mask in zip(DRAWINGS, features["image"], labels["mask"]):
        size = SIZE[::-1]
        expected = Image.fromarray(drawing.image).resize(size, Image.Resampling.BILINEAR)
        # Pillow rounds after each axis.
        assert np.abs(image - np.asarray(expected, float)).max() <= 1
        expected = Image.fromarray(shapes_data.void_borders(drawing))
        expected = np.asarray(expected.resize(size, Image.Resampling.NEAREST))
        is_edge = [
            ((np.arange(new) + 0.5) * old / new + 1e-4) % 1 < 2e-4  # between two pixels
            for new, old in zip(SIZE, drawing.image.shape)
        ]
        np.testing.assert_array_equal(
            mask[~is_edge[0]][:, ~is_edge[1]], expected[~is_edge[0]][:, ~is_edge[1]]
        )
    assert set(np.unique(labels["mask"])) == {0, 1, 2, 255}


@pytest.mark.slow(cost=0.1)
@TASKS
def test_the_model_gets_static_shapes(pipeline, task):
    made = pipeline(task, WORDS[task])
    rows = annotated_data.MAX_BOXES
    for input_fn, boxes in (
        (made.train_input_fn("train", 1), 4 * rows),  # of a mosaic
        (made.eval_input_fn("train"), rows),
    ):
        features, labels = input_fn({"batch_size": 8}).element_spec
        assert features["image"] == tf.TensorSpec([8, *SIZE, 3], tf.uint8)
        if task == "segmentation":
            assert labels == {"mask": tf.TensorSpec([8, *SIZE], tf.uint8)}
        else:
            assert features["image_info"] == tf.TensorSpec([8, 3], tf.float32)
            assert labels == {
                "boxes": tf.TensorSpec([8, boxes, 4], tf.float32),
                "classes": tf.TensorSpec([8, boxes], tf.int32),
                "is_crowd": tf.TensorSpec([8, boxes], tf.int32),
            }
    assert made.properties["image_size"] == SIZE
    assert made.properties["num_classes"] == {"detection": 2, "segmentation": 3}[task]


@DETECTION_FIRST
@pytest.mark.parametrize("batch_size", [slow(7), slow(1), slow(32)])
def test_prediction_sees_what_evaluation_sees(pipeline, session, task, batch_size):
    made = pipeline(task)
    count = -(-11 // batch_size)
    evaluated = fetch(made.eval_input_fn("train"), session, batch_size, count)
    predicted = fetch(made.predict_input_fn("train"), session, batch_size, count)
    for name in made.features:
        every = np.concatenate([features[name] for features, _ in evaluated])[:11]
        np.testing.assert_array_equal(np.concatenate([batch[name] for batch in predicted]), every)
    assert sum(features["weight"].sum() for features, _ in evaluated) == 11


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("task", "cache"),
    [("segmentation", "memory"), slow("detection", "none"), slow("detection", "memory")],
)
def test_resuming_continues_with_the_same_batches(pipeline, session, task, cache):
    made = pipeline(task, WORDS[task], cache=cache)
    whole = fetch(made.train_input_fn("train", seed=1), session, 4, count=3)
    assert_equal(fetch(made.train_input_fn("train", 1, start_step=2), session, 4), whole[2:])
    images = [features["image"] for features, _ in whole]
    assert not np.array_equal(images[0], images[1])


class Context:
    """What a TPUEstimator tells an input_fn."""

    def __init__(self, cores, host, num_hosts):
        self._deployment = (None, host, num_hosts, cores)

    def current_input_fn_deployment(self):
        return self._deployment


@pytest.mark.slow  # like those of test_image_pipeline.py
@TASKS
def test_global_batches_are_the_same_on_any_hosts_and_cores(pipeline, session, task):
    input_fn = pipeline(task, WORDS[task], cache="memory").train_input_fn("train", seed=1)
    (whole,) = fetch(input_fn, session, 16)
    parts = []
    for host in range(2):
        params = {"batch_size": 4, "context": Context(2, host, 2)}
        element = tf.compat.v1.data.make_one_shot_iterator(input_fn(params)).get_next()
        parts += [session.run(element) for _ in range(2)]
    assert_equal(tf.nest.map_structure(lambda *rows: np.concatenate(rows), *parts), whole)


@pytest.mark.slow
@TASKS
def test_training_without_augmentation_sees_what_evaluation_sees(pipeline, session, task):
    made = pipeline(task)
    ((evaluated, _),) = fetch(made.eval_input_fn("train"), session, 11)
    ((trained, _),) = fetch(made.train_input_fn("train", seed=1), session, 11)
    order = sorted(image.tobytes() for image in trained["image"])
    assert order == sorted(image.tobytes() for image in evaluated["image"])


@pytest.mark.slow(cost=0.1)
def test_boxes_stay_on_their_objects_in_training(pipeline, session):
    """The shapes are brighter than anything else: each box has bright pixels at its center."""
    made = pipeline("detection", "box_crop:0.7:0.5 scale_jitter:0.6:2 flip mosaic:0.5")
    seen = 0
    for features, labels in fetch(made.train_input_fn("train", seed=2), session, 8, count=2):
        valid = labels["classes"] >= 0
        assert (labels["boxes"][~valid] == 0).all()
        assert (labels["is_crowd"][~valid] == 0).all()
        for image, boxes in zip(features["image"], map(lambda b, v: b[v], labels["boxes"], valid)):
            for y0, x0, y1, x1 in boxes:
                assert 0 <= y0 < y1 <= SIZE[0]
                assert 0 <= x0 < x1 <= SIZE[1]
                if min(y1 - y0, x1 - x0) >= 8:
                    inside = image[int(y0) + 3 : int(y1) - 2, int(x0) + 3 : int(x1) - 2]
                    assert np.median(inside.max(axis=-1)) > 125
                    seen += 1
    assert seen > 10


def test_masks_stay_on_their_objects_in_training(pipeline, session):
    made = pipeline("segmentation", WORDS["segmentation"])
    ((features, labels),) = fetch(made.train_input_fn("train", seed=2), session, 11)
    brightest = features["image"].max(axis=-1)
    is_shape = (labels["mask"] == 1) | (labels["mask"] == 2)
    # Linear interpolation and nearest neighbor differ at the edges.
    assert (brightest[is_shape] > 115).mean() > 0.95
    assert (brightest[labels["mask"] == 0] < 115).mean() > 0.95
    assert (labels["mask"] == 255).any()


def test_host_metrics_get_the_boxes_of_the_original_images(pipeline):
    batches = list(pipeline("detection").host_examples("train", 4))
    assert [len(features["image"]) for features, _ in batches] == [4, 4, 3]
    labels = {name: np.concatenate([found[name] for _, found in batches]) for name in BOX_LABELS}
    for i, drawing in enumerate(DRAWINGS):
        for name, value in annotated_data.stored(drawing, i).items():
            assert labels[name].dtype == value.dtype
            np.testing.assert_array_equal(labels[name][i], value)


@pytest.mark.slow
@TASKS
def test_stored_pixels_are_the_same_as_files(tmp_path, session, task):
    drawings = [shapes_data.draw(number, size=(64, 64)) for number in range(6)]
    found = []
    for raw in (False, True):
        folder = tmp_path / str(raw)
        folder.mkdir()
        data = annotated_data.write(folder, task, drawings, raw)
        made = PIPELINES[task](data, (48, 40), augment.parse(WORDS[task]))
        found.append(fetch(made.train_input_fn("train", 1), session, 4, 2))
    assert_equal(*found)
    assert PIPELINES[task](data).features["image"].shape == (64, 64, 3)


@pytest.mark.slow
@TASKS
def test_decoded_images_of_one_size_are_cached(tmp_path, session, task):
    """The same batches as from the encoded cache, which images of several sizes need."""
    drawings = [shapes_data.draw(number, size=(64, 48)) for number in range(6)]
    data = annotated_data.write(tmp_path, task, drawings)
    static = {
        name: dataclasses.replace(feature, shape=(64, 48, feature.shape[-1]))
        if feature.is_image_file
        else feature
        for name, feature in data.features.items()
    }
    found = []
    for each in (data, dataclasses.replace(data, features=static)):
        made = PIPELINES[task](each, (48, 40), augment.parse(WORDS[task]), cache="memory")
        found.append(fetch(made.train_input_fn("train", 1), session, 4, 2))
        assert made.plan("train").decoded == (each is not data)
    assert_equal(*found)


@pytest.mark.slow(cost=0.1)
@DETECTION_FIRST
@pytest.mark.parametrize("name", [slow("serving_default"), slow("tf_example"), "image_bytes"])
def test_each_signature_feeds_what_evaluation_feeds(pipeline, session, task, name):
    made = pipeline(task)
    (predicted,) = fetch(made.predict_input_fn("train"), session, 3)
    receiver = made.receivers()[name]
    requests = receiver.requests("train", 3)
    inputs = {key: tf.constant(requests[key], spec.dtype) for key, spec in receiver.inputs.items()}
    features = session.run(receiver.features(inputs))
    assert_equal({key: features[key] for key in made.features}, predicted)


def test_input_files_are_fed_like_the_split(pipeline, session):
    made = pipeline("detection")
    files = [annotated_data.png(drawing.image) for drawing in DRAWINGS[:3]]
    (predicted,) = fetch(made.predict_input_fn("train"), session, 3)
    (given,) = fetch(made.files_input_fn(lambda: iter(files)), session, 3)
    assert_equal(given, predicted)


def test_detections_are_served_with_the_names_of_their_classes(pipeline, session):
    predictions = {
        "classes": tf.constant([[1, 0, 0], [0, 0, 0]]),
        "num_detections": tf.constant([2, 0]),
    }
    names = session.run(pipeline("detection").outputs(predictions, {})["class_names"])
    assert names.tolist() == [[b"square", b"circle", b""], [b"", b"", b""]]


@pytest.mark.slow(cost=0.1)
def test_class_maps_are_served_in_the_size_of_the_picture(pipeline, session):
    made = pipeline("segmentation")
    receiver = made.receivers()[serving.IMAGE_BYTES]
    files = [annotated_data.png(drawing.image) for drawing in DRAWINGS[:3]]
    features = receiver.features({"image_bytes": tf.constant(files)})
    classes = tf.cast(features["image"][..., 0], tf.int32)
    served, classes = session.run(
        (receiver.outputs({"classes": classes}, features)["class_map"], classes)
    )
    for file, drawing, small in zip(served, DRAWINGS, classes):
        pixels = Image.open(io.BytesIO(file))
        assert pixels.size == drawing.image.shape[1::-1]
        expected = Image.fromarray(small.astype(np.uint8)).resize(pixels.size, 0)
        np.testing.assert_array_equal(pixels, expected)
    assert "class_map" not in made.outputs({"classes": classes}, {"image": None})


BROKEN = {
    "detection": (
        ("classes", np.int32(2), "outside the classes"),
        ("boxes", np.float32(np.nan), "infinite or not a number"),
    ),
    "segmentation": (("mask", np.full([8, 8], 3, np.uint8), "mask: a class in the shards"),),
}


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("task", "name", "value", "message"),
    [(task, *case) for task, cases in BROKEN.items() for case in cases],
)
def test_invalid_annotations_in_the_shards_are_errors(
    tmp_path, session, task, name, value, message
):
    def change(values):
        if task == "segmentation":
            values[name] = annotated_data.png(value)
        else:
            values[name] = value.tobytes() + values[name][value.nbytes :]

    data = annotated_data.write(tmp_path, task, DRAWINGS[:4], change=change)
    made = PIPELINES[task](data, SIZE)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        fetch(made.eval_input_fn("train"), session, 4)


@pytest.mark.parametrize(
    ("task", "words", "message"),
    [
        ("detection", "resize_crop:0.1", "need images with one class each"),
        ("segmentation", "cutmix:1", "need images with one class each"),
        ("segmentation", "mosaic:1", "box_crop and mosaic need boxes, but shapes has masks"),
    ],
)
def test_an_augmentation_of_another_task_is_an_error(pipeline, task, words, message):
    with pytest.raises(DataError, match=message):
        pipeline(task, words)


def test_images_of_several_sizes_need_one(pipeline):
    with pytest.raises(DataError, match="differ in size: set --image_size=HEIGHTxWIDTH"):
        pipeline("detection", size=None)
