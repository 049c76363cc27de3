"""TPU embeddings on emulated cores: 20 steps equal those of NumPy, in tables, slots and weights."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu import tpu_embedding

from tests import numerics
from tests.marks import slow
from tests.tpu.emulator import recommender, recommender_reference
from tpu.connect import topology
from tpu.emulator import emulator

tf1 = tf.compat.v1
RATE = 0.2
L1, L2 = 0.01, 0.02


def sgd(step, table, row, gradient, rate=RATE):
    return [row - rate * gradient]


def adagrad(step, table, row, accumulator, gradient):
    accumulator = accumulator + gradient**2
    return row - RATE * gradient / accumulator**0.5, accumulator


def adam(step, table, row, momentum, velocity, gradient):
    momentum, velocity = 0.9 * momentum + 0.1 * gradient, 0.99 * velocity + 0.01 * gradient**2
    return row - RATE * momentum / (velocity + 1e-2**2) ** 0.5, momentum, velocity


def ftrl(step, table, row, accumulator, linear, gradient):
    new = accumulator + gradient**2
    linear = linear + gradient - (new**0.5 - accumulator**0.5) / RATE * row
    shrunk = np.sign(linear) * L1 - linear
    row = np.where(abs(linear) > L1, shrunk / (new**0.5 / RATE + 2 * L2), 0)
    return row, new, linear


# Optimizer: its parameters, the rule, the first value and the name of each slot.
EXPERIMENTAL = tf1.tpu.experimental
OPTIMIZERS = {
    "sgd": (EXPERIMENTAL.StochasticGradientDescentParameters(RATE), sgd, {}),
    "adagrad": (EXPERIMENTAL.AdagradParameters(RATE, 0.1), adagrad, {"Adagrad": 0.1}),
    "adam": (
        EXPERIMENTAL.AdamParameters(RATE, 0.9, 0.99, 1e-2),
        adam,
        {"Adam/m": 0.0, "Adam/v": 0.0},
    ),
    "ftrl": (
        EXPERIMENTAL.FtrlParameters(
            RATE,
            initial_accumulator_value=0.1,
            l1_regularization_strength=L1,
            l2_regularization_strength=L2,
        ),
        ftrl,
        {"Ftrl": 0.1, "Ftrl_1": 0.0},
    ),
}


def train(folder, slice_name, optimizer, **options):
    """Returns the variables of the checkpoint, named as those of the reference."""
    tpu_slice = topology.find(slice_name)
    parameters, _, slots = OPTIMIZERS[optimizer]
    pipeline = options.get("pipeline", recommender.V2)
    input_fn = recommender.make_input_fn(tpu_slice.num_hosts, tpu_slice.cores_per_host, pipeline)
    with emulator.emulate(tpu_slice):
        estimator = recommender.make_estimator(folder, slice_name, parameters, **options)
        estimator.train(input_fn, max_steps=recommender.STEPS)
    found = {}
    for name in recommender.FEATURES:
        found[f"dense/{name}"] = estimator.get_variable_value(f"dense/{name}")
    for table in recommender.TABLES:
        for i, name in enumerate([table, *(f"{table}/{slot}" for slot in slots)]):
            found[f"{table}/{i}"] = estimator.get_variable_value(name)
    return found


@functools.cache
def expected(slice_name, optimizer, **options):
    tpu_slice = topology.find(slice_name)
    _, rule, slots = OPTIMIZERS[optimizer]
    hosts = {"num_hosts": tpu_slice.num_hosts, **options}
    return recommender_reference.train(tpu_slice.num_cores, rule, slots.values(), **hosts)


def arithmetic(slice_name):
    """Returns the arguments of `numerics.excess`: four roundings per step, the other is float64."""
    examples = recommender.BATCH * topology.find(slice_name).num_cores
    return {"terms": examples, "depth": 4 * recommender.STEPS, "sides": 1}


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("slice_name", "optimizer", "strategy"),
    [
        slow("2x2", "adagrad", "div"),
        ("1x2", "adam", "div"),
        slow("1x2", "ftrl", "div"),
        slow("2x2", "sgd", "div"),
        slow("v2-8", "adagrad", "div"),
        slow("4x1", "adagrad", "mod"),
        slow("v2-8", "sgd", "div"),
        slow("v2-8", "adam", "div"),
        slow("v2-8", "ftrl", "div"),
        slow("4x8", "adagrad", "mod"),
        slow("4x8", "sgd", "mod"),
        slow("4x8", "sgd", "div"),
        slow("4x8", "adagrad", "div"),
        slow("4x8", "adam", "mod"),
        slow("4x8", "ftrl", "mod"),
    ],
)
def test_training_equals_numpy(tmp_path, slice_name, optimizer, strategy):
    found = train(tmp_path, slice_name, optimizer, partition_strategy=strategy)
    is_mod = strategy == "mod"
    right = expected(slice_name, optimizer, is_mod=is_mod)
    rounding = arithmetic(slice_name)
    assert numerics.excess(found, right, **rounding) <= 1
    # Negative controls.
    if optimizer != "sgd":
        wrong = expected(slice_name, optimizer, is_mod=is_mod, sum_duplicates=False)
        assert numerics.excess(found, wrong, **rounding) > numerics.FAR
    if topology.find(slice_name).num_hosts > 1:
        wrong = expected(slice_name, optimizer, is_mod=not is_mod)
        assert numerics.excess(found, wrong, **rounding) > numerics.FAR


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("slice_name", "optimizer"),
    [
        ("1x2", "adagrad"),
        *(slow("v2-8", optimizer) for optimizer in OPTIMIZERS),
        *(slow("4x8", optimizer) for optimizer in ("sgd", "adagrad")),
    ],
)
def test_a_pipelined_lookup_misses_one_update(tmp_path, slice_name, optimizer):
    options = {"pipeline_execution_with_tensor_core": True, "iterations": 10}
    found = train(tmp_path, slice_name, optimizer, **options)
    rounding = arithmetic(slice_name)
    assert numerics.excess(found, expected(slice_name, optimizer, stale=1), **rounding) <= 1
    for wrong in ({}, {"stale": 2}, {"stale": 1, "iterations": recommender.STEPS}):
        wrong = expected(slice_name, optimizer, **wrong)
        assert numerics.excess(found, wrong, **rounding) > numerics.FAR


@pytest.mark.slow(cost=0.1)
def test_one_batch_per_host_is_split_over_its_cores(tmp_path):
    found = train(tmp_path, "1x2", "adagrad", pipeline=recommender.V1)
    assert numerics.excess(found, expected("1x2", "adagrad"), **arithmetic("1x2")) <= 1


@pytest.mark.slow(cost=0.1)
def test_learning_rates_of_tables_are_computed_each_step(tmp_path):
    rates = {"user": lambda step: 0.3 / (1.0 + tf.cast(step, tf.float32))}

    def rule(step, table, row, gradient):
        # The program increments global_step before it computes the rate.
        return sgd(step, table, row, gradient, 0.3 / (2 + step) if table == "user" else RATE)

    found = train(tmp_path, "1x2", "sgd", rates=rates)
    right = recommender_reference.train(2, rule)
    assert numerics.excess(found, right, **arithmetic("1x2")) <= 1
    assert numerics.excess(found, expected("1x2", "sgd"), **arithmetic("1x2")) > numerics.FAR


@pytest.mark.slow
def test_training_resumes_with_its_slots(tmp_path):
    """Two processes of ten steps equal one of twenty."""
    input_fn = recommender.make_input_fn(1, 2)

    def skipping(params):
        return input_fn(params).skip(2 * 10)

    with emulator.emulate("1x2"):
        for steps, fn in ((10, input_fn), (20, skipping)):
            parameters = OPTIMIZERS["adagrad"][0]
            estimator = recommender.make_estimator(tmp_path, "1x2", parameters)
            estimator.train(fn, max_steps=steps)
    right = expected("1x2", "adagrad")
    found = {name: estimator.get_variable_value(_variable(name)) for name in right}
    assert numerics.excess(found, right, **arithmetic("1x2")) <= 1


def _variable(name):
    return name.replace("/0", "").replace("/1", "/Adagrad")


@pytest.mark.parametrize("strategy", [slow("mod"), slow("div")])
def test_evaluate_reads_the_tables(tmp_path, strategy):
    input_fn = recommender.make_input_fn(2, 2)
    with emulator.emulate("2x2"):
        parameters = OPTIMIZERS["adagrad"][0]
        estimator = recommender.make_estimator(
            tmp_path, "2x2", parameters, partition_strategy=strategy
        )
        estimator.train(input_fn, max_steps=2)
        before = {name: estimator.get_variable_value(name) for name in recommender.TABLES}
        metrics = estimator.evaluate(input_fn, steps=2)
    order = {
        name: recommender_reference._order(table.rows, 2, strategy == "mod")
        for name, table in recommender.TABLES.items()
    }
    tables = {name: value[np.argsort(order[name])] for name, value in before.items()}
    names = recommender.FEATURES
    dense = {name: estimator.get_variable_value(f"dense/{name}") for name in names}
    data = recommender.batches(4)
    data = {name: value.reshape(len(value), -1, *value.shape[3:]) for name, value in data.items()}
    batches = [{name: value[step] for name, value in data.items()} for step in range(2)]
    right = np.concatenate([recommender_reference.predict(tables, dense, b) for b in batches])
    numerics.assert_close(metrics["mean"], right.mean(), terms=16, depth=4, magnitude=4)
    for name, value in before.items():
        np.testing.assert_array_equal(estimator.get_variable_value(name), value)


@pytest.mark.slow(cost=0.1)
def test_feature_columns_train_as_on_a_cpu(tmp_path):
    """Names and values equal those of use_tpu=False, which predicts from either checkpoint."""
    random = np.random.RandomState(3)
    ids = {"user": random.randint(0, 9, (96, 2)), "item": random.randint(1, 5, (96, 1))}
    ids["seller"] = random.randint(1, 5, (96, 1))

    def input_fn(params):
        labels = (ids["user"][:, :1] / 9).astype(np.float32)
        data = tf.data.Dataset.from_tensor_slices((ids, labels))
        return data.repeat().batch(params["batch_size"], drop_remainder=True).map(sparse)

    def sparse(features, labels):
        return {k: tf.sparse.from_dense(v) for k, v in features.items()}, labels

    def predicted_ids(params):
        data = tf.data.Dataset.from_tensor_slices(ids).batch(params["batch_size"])
        return data.map(lambda features: sparse(features, 0)[0])

    found = {}
    for use_tpu in (False, True):
        with emulator.emulate("1x2"):
            estimator = _with_columns(tmp_path / str(use_tpu), use_tpu)
            estimator.train(input_fn, max_steps=20)
            names = estimator.get_variable_names()
            values = {name: estimator.get_variable_value(name) for name in names}
        on_cpu = _with_columns(tmp_path / str(use_tpu), use_tpu=False)
        predictions = [one["value"] for one in on_cpu.predict(predicted_ids)]
        found[use_tpu] = {**values, "predictions": np.concatenate(predictions)}
    assert numerics.excess(found[True], found[False], terms=8, depth=80) <= 1


def _with_columns(folder, use_tpu):
    """Returns a TPUEstimator of two tables, one of them shared, with SGD on CPU and TPU."""
    identity = tf1.feature_column.categorical_column_with_identity
    shared = [identity("item", 5), identity("seller", 5)]
    start = tf1.constant_initializer(0.5)
    columns = [
        EXPERIMENTAL.embedding_column(identity("user", 9), 4, "mean", start),
        *EXPERIMENTAL.shared_embedding_columns(shared, 3, "sum", start),
    ]

    def model_fn(features, labels, mode, params):
        inputs = tf1.keras.layers.DenseFeatures(columns)(features)
        random = np.random.RandomState(0).uniform(-1, 1, (10, 1)).astype(np.float32)
        value = inputs @ tf1.get_variable("dense", initializer=random)
        if mode == tf.estimator.ModeKeys.PREDICT:
            return tf1.estimator.tpu.TPUEstimatorSpec(mode, predictions={"value": value})
        optimizer = tf1.train.GradientDescentOptimizer(RATE)
        if params["use_tpu"]:
            optimizer = tf1.tpu.CrossShardOptimizer(optimizer)
        loss = tf.reduce_mean((value - labels) ** 2)
        train_op = optimizer.minimize(loss, tf1.train.get_global_step())
        return tf1.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    tpu_config = tf1.estimator.tpu.TPUConfig(
        iterations_per_loop=10, per_host_input_for_training=recommender.V2
    )
    return tf1.estimator.tpu.TPUEstimator(
        model_fn,
        config=tf1.estimator.tpu.RunConfig(
            model_dir=str(folder), tpu_config=tpu_config, master="grpc://tpu" if use_tpu else ""
        ),
        use_tpu=use_tpu,
        train_batch_size=8,
        predict_batch_size=8,
        embedding_config_spec=tf1.estimator.tpu.experimental.EmbeddingConfigSpec(
            columns, EXPERIMENTAL.StochasticGradientDescentParameters(RATE)
        ),
    )


@pytest.mark.slow(cost=0.1)
def test_an_id_outside_its_table_is_named(tmp_path):
    def change(data):
        return {**data, "genre": data["genre"] + 1}

    input_fn = recommender.make_input_fn(1, 2, change=change)
    message = "id 3 is not in TPU embedding table 'genre' of 3 rows"
    with emulator.emulate("1x2"):
        estimator = recommender.make_estimator(tmp_path, "1x2", OPTIMIZERS["sgd"][0])
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            estimator.train(input_fn, max_steps=1)


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (tpu_embedding.MomentumParameters(0.1, 0.9), "'momentum' is not emulated"),
        (
            EXPERIMENTAL.AdagradParameters(0.1, use_gradient_accumulation=False),
            "use_gradient_accumulation=False is not emulated",
        ),
        (
            EXPERIMENTAL.AdagradParameters(0.1, weight_decay_factor=0.1),
            "weight_decay_factor=0.1 is not emulated",
        ),
    ],
    ids=["momentum", "accumulation", "decay"],
)
def test_what_is_not_emulated_is_refused(tmp_path, parameters, message):
    with emulator.emulate("1x2"):
        estimator = recommender.make_estimator(tmp_path, "1x2", parameters)
        with pytest.raises(NotImplementedError, match=message):
            estimator.train(recommender.make_input_fn(1, 2), max_steps=1)
