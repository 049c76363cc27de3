"""TensorBoard summaries of training."""

import types

import tensorflow as tf

from engine.hooks import progress, summaries


def read_values(directory):
    """Returns `{(tag, step): summary value}` of the event files of a directory."""
    paths = tf.io.gfile.glob(f"{directory}/events.*")
    events = (event for path in paths for event in tf.compat.v1.train.summary_iterator(path))
    return {(value.tag, event.step): value for event in events for value in event.summary.value}


def test_training_metrics_are_of_one_batch_each(tmp_path):
    labels = tf.compat.v1.placeholder(tf.int32, [None])
    count = tf.compat.v1.train.get_or_create_global_step().assign_add(1)
    metrics = {"accuracy": tf.compat.v1.metrics.accuracy(labels, tf.ones_like(labels))}
    counter = progress.StepCounter(steps_per_run=1)
    settings = types.SimpleNamespace(
        model_dir=str(tmp_path), train=types.SimpleNamespace(batch_size=13, summary_steps=2)
    )
    hook = summaries.TrainSummaryHook(
        lambda: summaries.train_summary({}, {"learning_rate": tf.constant(0.5)}, metrics),
        settings,
        types.SimpleNamespace(clock=progress.Clock(), counter=counter),
    )
    with tf.compat.v1.train.MonitoredSession(hooks=[counter, hook]) as session:
        for batch in ([0, 0], [1, 1], [0, 0], [1, 0]):
            session.run(count, {labels: batch})
    values = read_values(tmp_path)
    assert values["accuracy", 2].simple_value == 1.0
    assert values["accuracy", 4].simple_value == 0.5
    assert values["examples/sec", 4].simple_value > 0
    assert values["learning_rate", 4].simple_value == 0.5
    assert {step for tag, step in values if tag == "accuracy"} == {2, 4}


def test_only_images_are_written(session):
    image = tf.ones([13, 7, 5, 1], tf.uint8)
    features = {"image": image, "weight": tf.ones([13]), "nested": {"image": image}}
    merged = summaries.train_summary(features, {"learning_rate": tf.constant(0.5)}, {})
    values = tf.compat.v1.Summary.FromString(session.run(merged)).value
    tags = [value.tag for value in values]
    assert tags == ["learning_rate", *(f"input/image/image/{i}" for i in range(8))]
    assert (values[1].image.height, values[1].image.width) == (7, 5)


def test_summaries_of_the_model_are_written(session):
    tf.compat.v1.summary.scalar("own", tf.constant(0.25))
    merged = summaries.train_summary({}, {"loss": tf.constant(0.5)}, {})
    values = tf.compat.v1.Summary.FromString(session.run(merged)).value
    assert {value.tag: value.simple_value for value in values} == {"own": 0.25, "loss": 0.5}
    assert not tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SUMMARIES)
