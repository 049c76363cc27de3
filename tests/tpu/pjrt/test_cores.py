"""TPUEstimator programs on PJRT devices: eight CPU devices of JAX."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from tests import numerics
from tests.tpu.emulator import tiny
from tpu.connect import topology
from tpu.emulator import emulator
from tpu.pjrt.client import Devices
from tpu.pjrt.cores import PJRTCores

tf1 = tf.compat.v1
ModeKeys = tf.estimator.ModeKeys
FEATURES = np.random.RandomState(0).randn(104, 7).astype(np.float32)
LABELS = np.random.RandomState(1).randint(0, 3, 104).astype(np.int32)

pytest.importorskip("jax", reason="the extra 'pjrt' is not installed")


@pytest.fixture(scope="module")
def devices():
    with Devices(sys.executable, "cpu", 8) as found:
        yield found


@pytest.fixture
def cores(devices):
    """The context manager of a program on PJRT devices."""
    return emulator.emulate(topology.find("1x8"), PJRTCores(devices))


def batches(params):
    dataset = tf.data.Dataset.from_tensor_slices((FEATURES, LABELS))
    return dataset.repeat().batch(params["batch_size"], drop_remainder=True)


def make_model_fn(log, dropout=0.0):
    """A dense network with batch norm, whose statistics differ per core, and two losses.

    Its host_call adds (step, loss of each core) to `log`.
    """

    def model_fn(features, labels, mode, params):
        del params
        hidden = tf1.layers.dense(features, 16, tf.nn.relu, name="hidden")
        hidden = tf1.layers.batch_normalization(hidden, training=mode == ModeKeys.TRAIN)
        if mode == ModeKeys.TRAIN and dropout:
            hidden = tf1.nn.dropout(hidden, rate=dropout)
        logits = tf1.layers.dense(hidden, 3, name="logits")
        if mode == ModeKeys.PREDICT:
            return tf1.estimator.tpu.TPUEstimatorSpec(mode, {"logits": logits})
        loss = tf1.losses.sparse_softmax_cross_entropy(labels, logits)
        loss += 0.1 * tf.reduce_mean(tf.square(hidden))
        optimizer = tf1.tpu.CrossShardOptimizer(tf1.train.MomentumOptimizer(0.1, 0.9))
        with tf.control_dependencies(tf1.get_collection(tf1.GraphKeys.UPDATE_OPS)):
            train_op = optimizer.minimize(loss, tf1.train.get_global_step())

        def metrics(labels, logits):
            return {"accuracy": tf1.metrics.accuracy(labels, tf.argmax(logits, -1))}

        def append(step, losses):
            log.append((int(step[0]), losses))
            return np.int64(0)

        def host_call(step, losses):
            return tf1.py_func(append, [step, losses], tf.int64)

        step = tf.reshape(tf1.train.get_global_step(), [1])
        return tf1.estimator.tpu.TPUEstimatorSpec(
            mode,
            loss=loss,
            train_op=train_op,
            eval_metrics=(metrics, [labels, logits]),
            host_call=(host_call, [step, tf.reshape(loss, [1])]),
        )

    return model_fn


def variables(folder):
    reader = tf.train.load_checkpoint(str(folder))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def train(folder, steps=12, **options):
    """Trains in loops of four steps; returns the estimator, and the log of its host_call."""
    log = []
    config = tiny.config(folder, tf_random_seed=3)
    estimator = tiny.estimator(config, make_model_fn(log, **options), batch_size=16)
    estimator.train(batches, max_steps=steps)
    return estimator, list(log)  # an evaluation calls it, too


@pytest.mark.slow(cost=0.1)
@pytest.mark.numeric
def test_trains_evaluates_and_predicts_as_emulated_cores(cores, tmp_path):
    outcomes = []
    for name, context in (("emulated", emulator.emulate("1x8")), ("devices", cores)):
        with context:
            estimator, log = train(tmp_path / name)
            metrics = estimator.evaluate(batches, steps=3)
            logits = [row["logits"] for row in estimator.predict(features_only)]
        outcomes.append((log, metrics, np.array(logits), variables(tmp_path / name)))
    (log, metrics, logits, trained), (expected_log, wanted, expected_logits, expected) = outcomes
    assert [step for step, _ in expected_log] == list(range(1, 13))
    assert [step for step, _ in log] == [step for step, _ in expected_log]
    assert logits.shape == (104, 3)
    assert metrics["global_step"] == wanted["global_step"] == 12
    depth = 12 * 8  # layers of all steps
    for step in range(12):
        numerics.assert_close(log[step][1], expected_log[step][1], terms=16, depth=depth)
    numerics.assert_close(metrics["loss"], wanted["loss"], terms=16, depth=depth)
    numerics.assert_close(logits, expected_logits, terms=16, depth=depth)
    for name, value in expected.items():
        numerics.assert_close(trained[name], value, terms=16, depth=depth, name=name)


def features_only(params):
    return tf.data.Dataset.from_tensor_slices(FEATURES).batch(params["batch_size"])


@pytest.mark.slow
def test_dropout_differs_per_core_and_repeats(cores, devices, tmp_path):
    with cores:
        first, second = (train(tmp_path / name, steps=4, dropout=0.5)[1] for name in "ab")
    np.testing.assert_array_equal([x for _, x in first], [x for _, x in second])
    rows = np.tile(FEATURES[:2], (8, 1))  # equal examples on all cores

    def repeated(params):
        dataset = tf.data.Dataset.from_tensors((rows, np.zeros(16, np.int32)))
        return dataset.repeat()

    log, config = [], tiny.config(tmp_path / "equal")
    estimator = tiny.estimator(config, make_model_fn(log, dropout=0.5), batch_size=16)
    with emulator.emulate(topology.find("1x8"), PJRTCores(devices)):
        estimator.train(repeated, max_steps=1)
    assert len(set(log[0][1].tolist())) == 8


@pytest.mark.slow(cost=0.1)
def test_variables_stay_on_the_devices_between_loops(cores, devices, tmp_path, monkeypatch):
    uploads, begin = [], devices.begin

    def record(program_id, arguments, state, step):
        uploads.append(sum(value is not None for value in state))
        return begin(program_id, arguments, state, step)

    monkeypatch.setattr(devices, "begin", record)
    with cores:
        train(tmp_path)
    assert uploads[0] == 1 + 15  # the loss and all variables
    assert uploads[1:] == [2, 2]  # the loss, and the global step: TensorFlow copies scalars


@pytest.mark.slow(cost=0.1)
def test_a_step_that_is_built_again_is_not_compiled_again(cores, devices, tmp_path, monkeypatch):
    ids, load = [], devices.load
    monkeypatch.setattr(devices, "load", lambda program: ids.append(load(program)) or ids[-1])
    with cores:
        train(tmp_path, steps=4)
        train(tmp_path, steps=8)
    assert ids[0] == ids[1]
