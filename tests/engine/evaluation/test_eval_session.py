"""EvalSession and PredictSession do what Estimator does, with one graph and one session each."""

import numpy as np
import pytest
import tensorflow as tf

from engine.evaluation.eval_session import EvalSession, PredictSession

ModeKeys = tf.estimator.ModeKeys
STEPS = 3


class SessionRecorder(tf.estimator.SessionRunHook):
    """Records the sessions and counts the batches."""

    def __init__(self):
        self.sessions, self.batches = [], 0

    def after_create_session(self, session, coord):
        self.sessions.append(session)

    def after_run(self, run_context, run_values):
        self.batches += 1


class FailOnce(tf.estimator.SessionRunHook):
    """Fails once with UnavailableError, like a bucket."""

    def __init__(self, batch):
        self._left = batch

    def before_run(self, run_context):
        self._left -= 1
        if not self._left:
            raise tf.errors.UnavailableError(None, None, "503")


@pytest.fixture
def regression(tmp_path):
    """An Estimator of `y = weights x` with checkpoints of steps 1 to 5.

    Evaluation and prediction restore `weights` from `twice_the_weights`; evaluation adds `noise`.
    `graphs` lists the modes of all model_fn calls.
    """
    graphs = []

    def model_fn(features, labels, mode):
        graphs.append(mode)
        weights = tf.compat.v1.get_variable("weights", [4, 1])  # random initial values
        global_step = tf.compat.v1.train.get_global_step()
        outputs = tf.matmul(features, weights)[:, 0]
        saver = tf.compat.v1.train.Saver({"twice_the_weights": weights, "global_step": global_step})
        scaffold = tf.compat.v1.train.Scaffold(saver=saver)
        if mode == ModeKeys.PREDICT:
            return tf.estimator.EstimatorSpec(mode, {"y": outputs}, scaffold=scaffold)
        losses = tf.abs(outputs - labels)
        if estimator.noise:
            losses += tf.random.uniform(losses.shape, maxval=estimator.noise)
        loss = tf.reduce_mean(losses)
        if mode == ModeKeys.TRAIN:
            twice = tf.compat.v1.get_variable("twice_the_weights", [4, 1], trainable=False)
            train = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step)
            with tf.control_dependencies([train]):
                train = twice.assign(2 * weights.read_value())
            return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train)
        return tf.estimator.EstimatorSpec(
            mode,
            loss=loss,
            eval_metric_ops={
                "error": tf.compat.v1.metrics.mean(losses),
                "features": tf.compat.v1.metrics.mean_tensor(tf.reduce_mean(features, axis=0)),
            },
            scaffold=scaffold,
        )

    config = tf.estimator.RunConfig(str(tmp_path), tf_random_seed=1, save_checkpoints_steps=1)
    estimator = tf.estimator.Estimator(model_fn, config=config)
    estimator.noise = 0.0
    estimator.train(input_fn, max_steps=5)
    estimator.graphs = graphs
    del graphs[:]
    return estimator


def input_fn():
    """Returns 13 examples in batches of 5, repeated."""
    random = np.random.default_rng(3)
    examples = random.normal(size=[13, 4]).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((examples, examples.sum(axis=1)))
    return dataset.repeat().batch(5, drop_remainder=True)


def checkpoint(estimator, step):
    return f"{estimator.model_dir}/model.ckpt-{step}"


def events(folder):
    """Returns `(step, tag, value)` of all events in a folder."""
    return [
        (event.step, value.tag, value.simple_value or tf.make_ndarray(value.tensor).tolist())
        for path in tf.io.gfile.glob(f"{folder}/events*")
        for event in tf.compat.v1.train.summary_iterator(path)
        for value in event.summary.value
    ]


def node_names(folder):
    """Returns the names of the nodes of the graph in the event file of a folder."""
    (path,) = tf.io.gfile.glob(f"{folder}/events*")
    graphs = [event.graph_def for event in tf.compat.v1.train.summary_iterator(path)]
    graph_def = tf.compat.v1.GraphDef.FromString(max(graphs, key=len))
    return {node.name for node in graph_def.node}


def test_metrics_match_estimator_evaluate(regression):
    session = EvalSession(regression, input_fn)
    for step in (1, 5, 2):
        path = checkpoint(regression, step)
        expected = regression.evaluate(input_fn, STEPS, checkpoint_path=path)
        found = session.evaluate(STEPS, [], path)
        assert expected.keys() == found.keys()
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name])
        assert found["global_step"] == step


def test_events_match_estimator_evaluate(regression):
    session = EvalSession(regression, input_fn)
    for step in (2, 4):
        path = checkpoint(regression, step)
        session.evaluate(STEPS, [], path, "kept")
        regression.evaluate(input_fn, STEPS, checkpoint_path=path, name="estimator")
    assert events(regression.eval_dir("kept")) == events(regression.eval_dir("estimator"))
    assert len(events(regression.eval_dir("kept"))) == 8


def test_the_event_file_contains_the_graph(regression):
    path = checkpoint(regression, 2)
    EvalSession(regression, input_fn).evaluate(STEPS, [], path, "kept")
    regression.evaluate(input_fn, STEPS, checkpoint_path=path, name="estimator")
    kept, estimator = (node_names(regression.eval_dir(name)) for name in ("kept", "estimator"))
    assert (
        {"weights", "IteratorGetNext"} <= kept <= estimator
    )  # the Estimator has a counter of steps too


def test_an_evaluation_restarts_after_unavailable_error(regression):
    path = checkpoint(regression, 2)
    expected = regression.evaluate(input_fn, STEPS, checkpoint_path=path)
    found = EvalSession(regression, input_fn).evaluate(STEPS, [FailOnce(batch=2)], path)
    assert found["error"] == expected["error"]
    np.testing.assert_array_equal(found["features"], expected["features"])


def test_random_ops_are_reset_in_each_evaluation(regression):
    regression.noise = 1.0
    session, path = EvalSession(regression, input_fn), checkpoint(regression, 2)
    expected = regression.evaluate(input_fn, STEPS, checkpoint_path=path)["error"]
    found = [session.evaluate(STEPS, [], path)["error"] for _ in range(2)]
    assert found == [expected, expected]


def test_the_graph_and_the_session_are_reused(regression):
    session, recorder = EvalSession(regression, input_fn), SessionRecorder()
    assert regression.graphs == []
    for step in (1, 2, 3):
        session.evaluate(STEPS, [recorder], checkpoint(regression, step))
    assert regression.graphs == [ModeKeys.EVAL]
    assert len(set(recorder.sessions)) == 1


def test_hooks_run_in_each_evaluation(regression):
    session, recorder = EvalSession(regression, input_fn), SessionRecorder()
    for step in (1, 2):
        session.evaluate(STEPS, [recorder], checkpoint(regression, step))
    assert (len(recorder.sessions), recorder.batches) == (2, 2 * STEPS)


def test_a_failed_evaluation_leaves_the_session_usable(regression):
    session = EvalSession(regression, input_fn)
    expected = session.evaluate(STEPS, [], checkpoint(regression, 3))
    with pytest.raises((tf.errors.NotFoundError, ValueError)):
        session.evaluate(STEPS, [], checkpoint(regression, 7))
    found = session.evaluate(STEPS, [], checkpoint(regression, 3))
    np.testing.assert_array_equal(found["features"], expected["features"])
    assert found["error"] == expected["error"]


def predict_input_fn():
    """Returns the features of `input_fn` in batches of 5, 5 and 3, once."""
    return input_fn().map(lambda features, labels: features).unbatch().take(13).batch(5)


@pytest.mark.slow(cost=0.1)
def test_predictions_match_estimator_predict(regression):
    session = PredictSession(regression, predict_input_fn)
    for step in (1, 5, 2):
        path = checkpoint(regression, step)
        expected = regression.predict(
            predict_input_fn, checkpoint_path=path, yield_single_examples=False
        )
        found = list(session.predict([], path))
        assert [batch["y"].shape for batch in found] == [(5,), (5,), (3,)]
        for batch, other in zip(found, expected):
            np.testing.assert_array_equal(batch["y"], other["y"])


def test_predictions_reuse_the_graph_and_the_session(regression):
    session, recorder = PredictSession(regression, predict_input_fn), SessionRecorder()
    for step in (1, 2):
        list(session.predict([recorder], checkpoint(regression, step)))
    assert regression.graphs == [ModeKeys.PREDICT]
    assert len(set(recorder.sessions)) == 1
    assert (len(recorder.sessions), recorder.batches) == (2, 6)
