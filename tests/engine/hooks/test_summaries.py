"""What TensorBoard is given."""

import numpy as np
import tensorflow as tf

from engine.evaluation import confusion_matrix
from engine.hooks import progress, summaries

MATRIX = np.array([[3, 1], [0, 0]])


def values_in(directory):
    """Every summary value in the event files of a directory, by tag and step."""
    paths = tf.io.gfile.glob(f"{directory}/events.*")
    events = (event for path in paths for event in tf.compat.v1.train.summary_iterator(path))
    return {(value.tag, event.step): value for event in events for value in event.summary.value}


def test_the_confusion_matrix_is_written_as_image_and_table(tmp_path, session):
    png = confusion_matrix.png(MATRIX, ("cat", "dog"))
    summaries.write_confusion_matrix(str(tmp_path), 7, MATRIX, ("cat", "dog"), png)
    values = values_in(tmp_path)
    image = values["confusion_matrix/rows_are_labels", 7].image
    assert image.encoded_image_string == png
    decoded = session.run(tf.io.decode_png(image.encoded_image_string))
    assert decoded.shape == (image.height, image.width, image.colorspace)
    table = tf.make_ndarray(values["confusion_matrix/table", 7].tensor).item().decode()
    assert table.splitlines() == [
        "| label / prediction | cat | dog |",
        "| --- | --- | --- |",
        "| **cat** | 3 | 1 |",
        "| **dog** | 0 | 0 |",
    ]


def test_training_metrics_are_of_one_batch_each(tmp_path):
    labels = tf.compat.v1.placeholder(tf.int32, [None])
    count = tf.compat.v1.train.get_or_create_global_step().assign_add(1)
    metrics = {"accuracy": tf.compat.v1.metrics.accuracy(labels, tf.ones_like(labels))}
    counter = progress.StepCounter(steps_per_run=1)
    summary = summaries.of_step({}, {"learning_rate": tf.constant(0.5)}, metrics)
    hook = summaries.TrainSummaryHook(summary, 13, 2, str(tmp_path), progress.Clock(), counter)
    with tf.compat.v1.train.MonitoredSession(hooks=[counter, hook]) as session:
        for batch in ([0, 0], [1, 1], [0, 0], [1, 0]):
            session.run(count, {labels: batch})
    values = values_in(tmp_path)
    assert values["accuracy", 2].simple_value == 1.0
    assert values["accuracy", 4].simple_value == 0.5
    assert values["examples/sec", 4].simple_value > 0
    assert values["learning_rate", 4].simple_value == 0.5
    assert {step for tag, step in values if tag == "accuracy"} == {2, 4}


def test_pictures_are_shown_and_other_features_are_not(session):
    features = {"image": tf.ones([13, 7, 5, 1], tf.uint8), "weight": tf.ones([13])}
    merged = summaries.of_step(features, {"learning_rate": tf.constant(0.5)}, {})
    values = tf.compat.v1.Summary.FromString(session.run(merged)).value
    tags = [value.tag for value in values]
    assert tags == ["learning_rate", *(f"input/image/image/{i}" for i in range(8))]
    assert (values[1].image.height, values[1].image.width) == (7, 5)


def test_what_a_model_summarises_is_shown_too(session):
    tf.compat.v1.summary.scalar("own", tf.constant(0.25))
    merged = summaries.of_step({}, {"loss": tf.constant(0.5)}, {})
    values = tf.compat.v1.Summary.FromString(session.run(merged)).value
    assert {value.tag: value.simple_value for value in values} == {"own": 0.25, "loss": 0.5}
    assert not tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SUMMARIES)
