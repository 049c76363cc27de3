"""One graph and one session for checkpoint after checkpoint, against Estimator.evaluate."""

import numpy as np
import pytest
import tensorflow as tf

from training.eval_session import EvalSession

ModeKeys = tf.estimator.ModeKeys
STEPS = 3


class Passes(tf.estimator.SessionRunHook):
    """Counts the sessions and the batches that it sees."""

    sessions = batches = 0

    def after_create_session(self, session, coord):
        self.sessions += 1

    def after_run(self, run_context, run_values):
        self.batches += 1


@pytest.fixture
def regression(tmp_path):
    """An Estimator of `y = weights x` trained for 5 steps, of which it has 5 checkpoints.

    It evaluates what `twice_the_weights` holds. `graphs` lists the modes that it was called with.
    """
    graphs = []

    def model_fn(features, labels, mode):
        graphs.append(mode)
        weights = tf.compat.v1.get_variable("weights", [4, 1], initializer=tf.zeros_initializer())
        global_step = tf.compat.v1.train.get_global_step()
        losses = tf.abs(tf.matmul(features, weights)[:, 0] - labels)
        loss = tf.reduce_mean(losses)
        if mode == ModeKeys.TRAIN:
            twice = tf.compat.v1.get_variable("twice_the_weights", [4, 1], trainable=False)
            train = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step)
            with tf.control_dependencies([train]):
                train = twice.assign(2 * weights.read_value())
            return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)
        saver = tf.compat.v1.train.Saver({"twice_the_weights": weights, "global_step": global_step})
        return tf.estimator.EstimatorSpec(
            mode,
            loss=loss,
            eval_metric_ops={
                "error": tf.compat.v1.metrics.mean(losses),
                "features": tf.compat.v1.metrics.mean_tensor(tf.reduce_mean(features, axis=0)),
            },
            scaffold=tf.compat.v1.train.Scaffold(saver=saver),
        )

    config = tf.estimator.RunConfig(str(tmp_path), save_checkpoints_steps=1)
    estimator = tf.estimator.Estimator(model_fn, config=config)
    estimator.train(input_fn, max_steps=5)
    estimator.graphs = graphs
    del graphs[:]
    return estimator


def input_fn():
    """13 examples in batches of 5, 5 and 3, forever."""
    random = np.random.default_rng(3)
    examples = random.normal(size=[13, 4]).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((examples, examples.sum(axis=1)))
    return dataset.batch(5).repeat()


def checkpoint(estimator, step):
    return f"{estimator.model_dir}/model.ckpt-{step}"


def events(folder):
    """Returns `(step, tag, value)` of all of a folder's."""
    return [
        (event.step, value.tag, value.simple_value or tf.make_ndarray(value.tensor).tolist())
        for path in tf.io.gfile.glob(f"{folder}/events*")
        for event in tf.compat.v1.train.summary_iterator(path)
        for value in event.summary.value
    ]


def test_each_checkpoint_has_the_metrics_of_estimator_evaluate(regression):
    session = EvalSession(regression, input_fn)
    for step in (1, 5, 2):
        path = checkpoint(regression, step)
        expected = regression.evaluate(input_fn, STEPS, checkpoint_path=path)
        found = session.evaluate(STEPS, [], path)
        assert expected.keys() == found.keys()
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name])
        assert found["global_step"] == step


def test_the_events_are_those_of_estimator_evaluate(regression):
    session = EvalSession(regression, input_fn)
    for step in (2, 4):
        path = checkpoint(regression, step)
        session.evaluate(STEPS, [], path, "kept")
        regression.evaluate(input_fn, STEPS, checkpoint_path=path, name="anew")
    assert events(regression.eval_dir("kept")) == events(regression.eval_dir("anew"))
    assert len(events(regression.eval_dir("kept"))) == 8


def test_the_graph_is_made_once(regression):
    session = EvalSession(regression, input_fn)
    assert regression.graphs == []
    for step in (1, 2, 3):
        session.evaluate(STEPS, [], checkpoint(regression, step))
    assert regression.graphs == [ModeKeys.EVAL]


def test_hooks_see_every_pass(regression):
    session, passes = EvalSession(regression, input_fn), Passes()
    for step in (1, 2):
        session.evaluate(STEPS, [passes], checkpoint(regression, step))
    assert (passes.sessions, passes.batches) == (2, 2 * STEPS)


def test_a_pass_that_fails_leaves_the_session_usable(regression):
    session = EvalSession(regression, input_fn)
    expected = session.evaluate(STEPS, [], checkpoint(regression, 3))
    with pytest.raises((tf.errors.NotFoundError, ValueError)):
        session.evaluate(STEPS, [], checkpoint(regression, 7))
    found = session.evaluate(STEPS, [], checkpoint(regression, 3))
    np.testing.assert_array_equal(found["features"], expected["features"])
    assert found["error"] == expected["error"]
