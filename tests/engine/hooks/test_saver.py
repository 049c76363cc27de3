"""Checkpoints are saved at multiples of save_steps and at the end."""

import os

import tensorflow as tf

from engine.hooks.saver import SaverHook


def train(model_dir, steps):
    """Counts up to a global step, saving every 4 steps and at the end."""
    with tf.Graph().as_default():
        count = tf.compat.v1.train.get_or_create_global_step().assign_add(1)
        hook = SaverHook(str(model_dir), save_steps=4, check=lambda session, step: None)
        stop = tf.estimator.StopAtStepHook(last_step=steps)
        with tf.compat.v1.train.MonitoredTrainingSession(
            checkpoint_dir=str(model_dir), save_checkpoint_secs=None, hooks=[stop, hook]
        ) as session:
            while not session.should_stop():
                session.run(count)


def steps_saved(model_dir):
    names = [name for name in os.listdir(model_dir) if name.endswith(".index")]
    return sorted(int(name[len("model.ckpt-") : -len(".index")]) for name in names)


def test_saves_every_save_steps_and_at_the_end(tmp_path):
    train(tmp_path, 10)
    assert steps_saved(tmp_path) == [4, 8, 10]


def test_a_resumed_training_saves_at_the_same_steps(tmp_path):
    train(tmp_path, 6)
    train(tmp_path, 11)
    assert steps_saved(tmp_path) == [4, 6, 8, 11]


def test_the_graph_is_written_for_tensorboard(tmp_path):
    train(tmp_path, 1)
    paths = tf.io.gfile.glob(str(tmp_path / "events.*"))
    events = [event for path in paths for event in tf.compat.v1.train.summary_iterator(path)]
    assert any(event.graph_def for event in events)
