"""Writers of predictions: rows of JSON, arrays, and those of a pipeline."""

import json
import types

import numpy as np
import pytest
import tensorflow as tf

from common.errors import UsageError
from input_fns.core import predictions, serving
from input_fns.image.class_maps import ClassMapWriter
from input_fns.image.detection_pipeline import BoxWriter

BATCHES = [
    {"name": np.array(["a.png", "b.png"]), "classes": np.array([1, 0])},
    {"name": np.array(["c.png"]), "classes": np.array([1])},
]


def lines(writer, path, batches):
    writer.write(str(path), iter(batches))
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_for_each_example_with_its_class_name(tmp_path):
    found = lines(predictions.RowWriter(("cat", "dog")), tmp_path / "p.jsonl", BATCHES)
    assert found[0] == {"index": 0, "name": "a.png", "classes": 1, "class_names": "dog"}
    assert [line["index"] for line in found] == [0, 1, 2]


def test_a_line_with_the_names_of_several_labels(tmp_path):
    batch = {"labels": np.array([[1, 1], [0, 0]]), "probabilities": np.array([[0.9, 0.5], [0, 0]])}
    found = lines(predictions.RowWriter(("cat", "dog")), tmp_path / "p.jsonl", [batch])
    assert [line["class_names"] for line in found] == [["cat", "dog"], []]


def test_the_most_probable_of_several_labels_are_served(session):
    probabilities = tf.constant([[0.1, 0.9, 0.8], [0.7, 0.2, 0.6]])
    outputs = {"labels": tf.zeros([2, 3], tf.int32), "probabilities": probabilities}
    found = session.run(serving.class_outputs(outputs, ("a", "b", "c"), 2))
    assert found["top_class_names"].tolist() == [[b"b", b"c"], [b"a", b"c"]]
    assert "class_names" not in found


def test_arrays(tmp_path):
    predictions.RowWriter().write(str(tmp_path / "p.npz"), iter(BATCHES))
    with np.load(tmp_path / "p.npz") as arrays:
        assert arrays["classes"].tolist() == [1, 0, 1]


def test_complex_numbers_are_refused_as_json(tmp_path):
    batches = iter([{"spectrum": np.ones([2, 3], np.complex64)}])
    with pytest.raises(UsageError, match=r"'spectrum' is complex64, which JSON .*PATH\.npz"):
        predictions.RowWriter().write(str(tmp_path / "p.jsonl"), batches)
    assert not [*tmp_path.iterdir()]


def test_no_file_remains_if_the_number_is_wrong(tmp_path):
    def batches():
        yield BATCHES[0]
        raise ValueError("1 prediction is missing")

    with pytest.raises(ValueError, match="missing"):
        predictions.RowWriter().write(str(tmp_path / "p.jsonl"), batches())
    assert not [*tmp_path.iterdir()]


def test_boxes_are_cut_at_the_number_of_detections(tmp_path):
    batch = {
        "boxes": np.zeros([1, 3, 4]),
        "classes": np.array([[1, 0, 0]]),
        "num_detections": np.array([2]),
    }
    (line,) = lines(BoxWriter(("cat", "dog")), tmp_path / "p.jsonl", [batch])
    assert (line["classes"], line["class_names"]) == ([1, 0], ["dog", "cat"])
    assert np.shape(line["boxes"]) == (2, 4)


def test_class_maps_need_classes_of_pixels(tmp_path):
    with pytest.raises(
        UsageError, match=r"the model predicts classes \[2\], not 'classes' \[batch"
    ):
        ClassMapWriter(iter([(3, 5)])).write(str(tmp_path), iter(BATCHES))


def pipeline(**more):
    data = types.SimpleNamespace(name="own", all_class_names=("cat",))
    return types.SimpleNamespace(data=data, **more)


def test_a_pipeline_without_a_writer_gets_rows():
    examples = predictions.examples_of(pipeline(), "test", "")
    assert examples.what == "test"
    assert predictions.writer_of(pipeline(), examples).endings == (".jsonl", ".npz")


def test_a_pipeline_may_have_a_writer_of_its_own():
    own = object()
    assert predictions.writer_of(pipeline(prediction_writer=lambda _: own), None) is own


def test_files_need_a_pipeline_that_reads_them():
    with pytest.raises(
        UsageError, match="--input=x needs a data set of images, audio or plain texts, unlike own"
    ):
        predictions.examples_of(pipeline(), "test", "x")
