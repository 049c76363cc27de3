"""The training step: optimizers judged by Keras, decay, clipping and updates by hand."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import op_selector

from common.errors import UsageError
from common.params import Strings
from engine.train import optimizers
from tests import numerics
from tests.marks import slow

KERNEL = np.array([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]], np.float32)
BIAS = np.array([0.5, -0.25, 2.0], np.float32)
TARGET = np.array([[0.0, 1.0, -1.0], [2.0, 0.0, 1.0]], np.float32)
STEPS = 5
# A step has at most 6 operations from the weights to the gradient, 4 of clipping and decay, and 10
# from the gradient to the weights; its sums are those of the loss and of norms, over a kernel.
TRAINING = {"terms": 6, "depth": STEPS * (6 + 4 + 10)}


OPTIMIZERS = [
    "sgd",
    "momentum",
    "adagrad",
    "adam",
    "adamw",
    "bert_adamw",
    "rmsprop",
    "lars",
    "lamb",
    "adafactor",
]


def make_params(**changes):
    return {**optimizers.default_params(), **changes}


def loss_of(kernel, bias):
    return tf.reduce_sum((kernel - TARGET) ** 2) / 6 + tf.reduce_sum((bias * kernel) ** 2) / 60


@pytest.fixture
def train(session, minimize):
    """Our optimizer's kernel and bias after some steps: `train(params)`."""

    def run(params, learning_rate=0.1):
        return _train(session, minimize, params, learning_rate)

    return run


def separable_loss(kernel, bias):
    """What one of the two does changes nothing for the other."""
    return tf.reduce_sum((kernel - TARGET) ** 2) / 6 + tf.reduce_sum((bias - 1) ** 2)


def _train(session, minimize, params, learning_rate, loss=loss_of):
    with session.graph.as_default():
        kernel = tf.compat.v1.get_variable("kernel", initializer=KERNEL)
        bias = tf.compat.v1.get_variable("bias", initializer=BIAS)
        train_op = minimize(loss(kernel, bias), params, learning_rate)
        session.run(tf.compat.v1.global_variables_initializer())
        for _ in range(STEPS):
            session.run(train_op)
        assert session.run(tf.compat.v1.train.get_global_step()) == STEPS
        return session.run([kernel, bias])


def train_by_keras(optimizer, extra_gradient=lambda kernel: 0.0):
    kernel, bias = tf.Variable(KERNEL), tf.Variable(BIAS)
    for _ in range(STEPS):
        with tf.GradientTape() as tape:
            loss = loss_of(kernel, bias)
        gradients = tape.gradient(loss, [kernel, bias])
        gradients[0] += extra_gradient(kernel)
        optimizer.apply_gradients(zip(gradients, [kernel, bias]))
    return [kernel.numpy(), bias.numpy()]


def assert_equal(ours, theirs):
    for a, b in zip(ours, theirs):
        numerics.assert_close(a, b, **TRAINING)


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("params", "keras"),
    [
        ({"optimizer": "momentum"}, lambda keras: keras.SGD(0.1, 0.9)),
        ({"optimizer": "momentum", "momentum": 0.0}, lambda keras: keras.SGD(0.1)),
        ({"optimizer": "sgd"}, lambda keras: keras.SGD(0.1)),
        ({"optimizer": "adagrad"}, lambda keras: keras.Adagrad(0.1, epsilon=0.0)),
        (
            {"optimizer": "momentum", "nesterov": True},
            lambda keras: keras.SGD(0.1, 0.9, nesterov=True),
        ),
        (
            {"optimizer": "adam", "beta1": 0.8, "beta2": 0.95},
            lambda keras: keras.Adam(0.1, 0.8, 0.95),
        ),
    ],
)
def test_the_weights_are_those_of_keras(train, eager, params, keras):
    theirs = train_by_keras(keras(tf.keras.optimizers))
    assert_equal(train(make_params(**params)), theirs)


def test_a_thousandth_more_of_momentum_is_no_rounding(train, eager):
    theirs = train_by_keras(tf.keras.optimizers.SGD(0.1, 0.901))
    for a, b in zip(train(make_params(optimizer="momentum", momentum=0.9)), theirs):
        numerics.assert_far(a, b, **TRAINING)


def test_adamw_decays_kernels_alone_as_keras_does(train, eager):
    keras = tf.keras.optimizers.AdamW(0.1, weight_decay=0.2)
    keras.exclude_from_weight_decay(var_names=["bias"])
    kernel, bias = tf.Variable(KERNEL, name="kernel"), tf.Variable(BIAS, name="bias")
    for _ in range(STEPS):
        with tf.GradientTape() as tape:
            loss = loss_of(kernel, bias)
        keras.apply_gradients(zip(tape.gradient(loss, [kernel, bias]), [kernel, bias]))
    ours = train(make_params(optimizer="adamw", weight_decay=0.2))
    assert_equal(ours, [kernel.numpy(), bias.numpy()])


def test_rmsprop_by_hand(train):
    """Tieleman and Hinton's rule as TensorFlow 1 has it: the mean square begins with 1."""
    params = make_params(optimizer="rmsprop", momentum=0.5, rmsprop_decay=0.8, epsilon=1e-3)
    ours, _ = train(params)
    kernel, bias = KERNEL.astype(np.float64), BIAS.astype(np.float64)
    states = {"kernel": [1.0, 0.0], "bias": [1.0, 0.0]}
    for _ in range(STEPS):
        gradients = {
            "kernel": (kernel - TARGET) / 3 + kernel * bias**2 / 30,
            "bias": bias * (kernel**2).sum(axis=0) / 30,
        }
        steps = {}
        for name, gradient in gradients.items():
            square, momentum = states[name]
            square = 0.8 * square + 0.2 * gradient**2
            momentum = 0.5 * momentum + 0.1 * gradient / np.sqrt(square + 1e-3)
            states[name] = [square, momentum]
            steps[name] = momentum
        kernel, bias = kernel - steps["kernel"], bias - steps["bias"]
    numerics.assert_close(ours, kernel, **TRAINING)


def test_weight_decay_is_an_l2_penalty_of_kernels(train, eager):
    keras = tf.keras.optimizers.SGD(0.1, 0.9)
    theirs = train_by_keras(keras, extra_gradient=lambda kernel: 0.3 * kernel)
    assert_equal(train(make_params(optimizer="momentum", weight_decay=0.3)), theirs)


def test_gradients_are_clipped_to_their_global_norm(train, eager):
    keras = tf.keras.optimizers.SGD(0.1, 0.9, global_clipnorm=0.5)
    ours = train(make_params(optimizer="momentum", clip_norm=0.5))
    assert_equal(ours, train_by_keras(keras))


# Of tf-models-official 2.15.0, official/modeling/optimization/{lars,lamb}.py, after STEPS steps
# from KERNEL and BIAS: LARS(2.0, eeta=0.01) and LAMB(0.1, epsilon=1e-6), either with "bias"
# excluded from decay and adaptation.
LARGE_BATCH = {
    ("lars", 0.0): (
        [[0.80665517, -1.42831135, 2.12126255], [0.78334796, 3.23673058, -0.58141589]],
        [0.05546414, -0.24842228, -0.92700905],
    ),
    ("lars", 0.02): (
        [[0.80362606, -1.4298172, 2.12423825], [0.76629484, 3.22419691, -0.58750802]],
        [0.05658931, -0.24885409, -0.92273808],
    ),
    ("lamb", 0.0): (
        [[0.04647723, -0.99382657, 1.99413395], [1.48823094, 2.99093938, -0.00784959]],
        [0.02477506, 0.13110432, 1.52083695],
    ),
    ("lamb", 0.02): (
        [[0.06340943, -0.99519926, 1.97618008], [1.44094431, 2.95372295, -0.02760617]],
        [0.02633277, 0.13110933, 1.52122998],
    ),
}


@pytest.mark.parametrize(("name", "weight_decay"), LARGE_BATCH)
def test_lars_and_lamb_are_those_of_the_model_garden(train, name, weight_decay):
    changes = {"lars": {"trust_coefficient": 0.01}, "lamb": {"epsilon": 1e-6}}[name]
    params = make_params(optimizer=name, weight_decay=weight_decay, **changes)
    ours = train(params, learning_rate={"lars": 2.0, "lamb": 0.1}[name])
    assert_equal(ours, LARGE_BATCH[name, weight_decay])


@pytest.mark.parametrize("clip_threshold", [1.0, 0.3])
@pytest.mark.parametrize("shape", [(3,), (5, 4), (2, 3, 4)])
def test_adafactor_is_that_of_keras(session, minimize, eager, shape, clip_threshold):
    random = np.random.default_rng(7)
    first, target = random.normal(size=[2, *shape]).astype(np.float32)
    keras = tf.keras.optimizers.Adafactor(
        0.1, clip_threshold=clip_threshold, relative_step=False, weight_decay=None
    )
    theirs = tf.Variable(first)
    for _ in range(STEPS):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((theirs - target) ** 4)
        keras.apply_gradients([(tape.gradient(loss, theirs), theirs)])
    with session.graph.as_default():
        ours = tf.compat.v1.get_variable("kernel", initializer=first)
        params = make_params(optimizer="adafactor", clip_threshold=clip_threshold)
        train_op = minimize(tf.reduce_sum((ours - target) ** 4), params, 0.1)
        session.run(tf.compat.v1.global_variables_initializer())
        for _ in range(STEPS):
            session.run(train_op)
        moved = session.run(ours)
    # The sums are over the variable; the fourth power and the roots are 12 operations more a step.
    bound = {"terms": first.size, "depth": STEPS * 32, "magnitude": np.abs(first).max()}
    numerics.assert_close(moved, theirs.numpy(), **bound)
    assert np.abs(moved - first).max() > 0.01


def test_adafactor_keeps_a_row_and_a_column_of_a_kernel(session, minimize):
    with session.graph.as_default():
        kernel = tf.compat.v1.get_variable("kernel", [13, 7])
        bias = tf.compat.v1.get_variable("bias", [7])
        loss = tf.reduce_sum(tf.square(kernel + bias))
        minimize(loss, make_params(optimizer="adafactor"), 0.1)
        shapes = {v.op.name: v.shape.as_list() for v in tf.compat.v1.global_variables()}
    assert shapes["kernel/Adafactor"] == [13]
    assert shapes["kernel/Adafactor_1"] == [7]
    assert shapes["bias/Adafactor"] == [7]


def test_adafactor_decays_kernels_alone(train):
    """By the learning rate, here nearly 0, times the weight decay."""
    params = make_params(optimizer="adafactor", weight_decay=1e5)
    kernel, bias = train(params, learning_rate=1e-6)
    np.testing.assert_allclose(kernel, KERNEL * 0.9**STEPS, rtol=1e-4)
    np.testing.assert_allclose(bias, BIAS, rtol=1e-4)


@pytest.mark.parametrize("name", ["lars", "lamb"])
def test_a_kernel_of_zeros_can_begin_to_learn(session, minimize, name):
    with session.graph.as_default():
        kernel = tf.compat.v1.get_variable("kernel", initializer=np.zeros([2, 3], np.float32))
        loss = tf.reduce_sum((kernel - TARGET) ** 2)
        train_op = minimize(loss, make_params(optimizer=name), 0.1)
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(train_op)
        moved = session.run(kernel)
    assert np.isfinite(moved).all()
    assert np.abs(moved).max() > 0


def test_weight_decay_reaches_the_rows_that_a_batch_does_not_use(session, minimize):
    with session.graph.as_default():
        table = tf.compat.v1.get_variable("table", initializer=np.ones([5, 2], np.float32))
        loss = tf.reduce_sum(tf.gather(table, [1, 1, 3]))
        params = make_params(optimizer="adamw", weight_decay=0.5)
        train_op = minimize(loss, params, 0.1)
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(train_op)
        others = session.run(table)[[0, 2, 4]]
        numerics.assert_close(others, np.full([3, 2], 0.95), depth=3)


def train_embedding(params, make_dense=False, rows=200_000, steps=3):
    """Trains a table `[rows, 4]` of which 13 ids are gathered, two of them twice.

    Returns:
      The gradient, the ops that the train op needs, and the values after `steps`.
    """
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        initializer = tf.compat.v1.random_uniform_initializer(seed=1)
        table = tf.compat.v1.get_variable("table", [rows, 4], initializer=initializer)
        ids = np.array([1, 7, 7, 9, 1, *range(20, 28)]) * (rows // 100)
        loss = tf.reduce_sum((tf.gather(table, ids) - 0.3) ** 2)
        if make_dense:
            loss += 0.0 * tf.reduce_sum(table)
        optimizer = optimizers.create(params, 0.1)
        gradients = optimizers.compute_gradients(optimizer, loss, params)
        train_op = optimizers.apply_gradients(optimizer, gradients, params)
        ops = op_selector.get_backward_walk_ops([train_op], control_inputs=True)
        session.run(tf.compat.v1.global_variables_initializer())
        for _ in range(steps):
            session.run(train_op)
        return gradients[0][0], ops, session.run(table)


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "sgd"},
        {"optimizer": "adagrad"},
        {"optimizer": "sgd", "clip_norm": 0.5},
        {"optimizer": "sgd", "learning_rate_factors": ["tab.*:2"]},
        {"optimizer": "adam", "lazy_embeddings": True},
        {"optimizer": "momentum", "lazy_embeddings": True},
        {"optimizer": "rmsprop", "lazy_embeddings": True, "clip_norm": 0.5},
    ],
    ids=str,
)
def test_the_gradient_of_an_embedding_stays_sparse(changes):
    gradient, ops, _ = train_embedding(make_params(**changes), steps=1)
    assert isinstance(gradient, tf.IndexedSlices)
    outputs = {output.name: output.shape for op in ops for output in op.outputs}
    assert [13, 4] in outputs.values()
    assert not [name for name, shape in outputs.items() if shape == [200_000, 4]]


@pytest.mark.parametrize(
    "changes",
    [{"optimizer": "sgd"}, {"optimizer": "sgd", "clip_norm": 0.5}, {"optimizer": "adagrad"},
     {"optimizer": "adam"}, {"optimizer": "momentum"}, {"optimizer": "rmsprop"},
     {"optimizer": "adamw"}, {"optimizer": "bert_adamw", "clip_norm": 0.5},
     {"optimizer": "lars", "clip_norm": 0.5}, {"optimizer": "lamb"}, {"optimizer": "adafactor"},
     {"optimizer": "adam", "lazy_embeddings": True},
     {"optimizer": "momentum", "lazy_embeddings": True},
     {"optimizer": "rmsprop", "lazy_embeddings": True}],
    ids=str,
)  # fmt: skip
def test_a_sparse_update_equals_the_dense_update(changes):
    params = make_params(**changes)
    gradient, _, sparse = train_embedding(params, rows=1000)
    assert isinstance(gradient, tf.IndexedSlices)
    gradient, _, dense = train_embedding(params, make_dense=True, rows=1000)
    assert not isinstance(gradient, tf.IndexedSlices)
    numerics.assert_close(sparse, dense, **TRAINING)


@pytest.mark.parametrize("is_lazy", [True, False])
@pytest.mark.parametrize("name", ["adam", "momentum", "rmsprop"])
def test_a_lazy_update_skips_the_rows_that_a_batch_does_not_use(session, minimize, name, is_lazy):
    with session.graph.as_default():
        table = tf.compat.v1.get_variable("table", initializer=np.ones([9, 2], np.float32))
        ids = tf.compat.v1.placeholder(tf.int32, [None])
        params = make_params(optimizer=name, lazy_embeddings=is_lazy)
        train_op = minimize(tf.reduce_sum(tf.gather(table, ids) ** 2), params, 0.1)
        variables = tf.compat.v1.global_variables()
        slots = [v for v in variables if v.op.name.startswith("table/")]
        assert slots
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(train_op, {ids: [1, 1, 3]})
        before = session.run([table, *slots])
        session.run(train_op, {ids: [3, 5]})
        after = session.run([table, *slots])
    changed = [np.flatnonzero((a != b).any(axis=1)) for a, b in zip(before, after)]
    changed = set(np.concatenate(changed))
    if is_lazy:
        assert changed == {3, 5}
    else:  # the slots of rmsprop begin with ones, those of the others with zeros
        assert changed >= {1, 3, 5}


@pytest.mark.parametrize(
    "changes",
    [{"weight_decay": 0.1}, {"use_tpu": True}, {"optimizer": "adamw", "use_tpu": True}],
    ids=str,
)
def test_the_gradient_of_an_embedding_is_dense(changes):
    gradient, _, _ = train_embedding(make_params(**changes), rows=1000, steps=1)
    assert isinstance(gradient, tf.Tensor)


def train_embedding_on(devices, params):
    """Trains a table on a batch of two examples that the replicas share."""
    ids = np.array([[1, 1, 3, 4], [5, 1, 3, 8]])

    def step():
        table = tf.compat.v1.get_variable("table", initializer=np.ones([9, 2], np.float32))
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        own = tf.gather(tf.reshape(ids, [len(devices), -1]), replica)
        loss = tf.reduce_sum(tf.gather(table, own) ** 2)
        optimizer = optimizers.create(params, 0.1, layers=["table"])
        gradients = optimizers.compute_gradients(optimizer, loss, params)
        return optimizers.apply_gradients(optimizer, gradients, params)

    config = tf.compat.v1.ConfigProto(device_count={"CPU": 2}, allow_soft_placement=True)
    strategy = tf.distribute.MirroredStrategy(devices)
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        with strategy.scope():
            train_op = strategy.group(strategy.extended.call_for_each_replica(step))
        session.run(tf.compat.v1.global_variables_initializer())
        for _ in range(3):
            session.run(train_op)
        variables = {v.op.name: v for v in tf.compat.v1.global_variables()}
        return session.run(variables["table"])


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": "sgd"},
        {"optimizer": "sgd", "clip_norm": 0.5},
        {"optimizer": "bert_adamw", "clip_norm": 0.5, "layer_decay": 0.5},
    ],
    ids=str,
)
def test_replicas_train_an_embedding_as_one_device_does(changes):
    params = make_params(**changes)
    one = train_embedding_on(["/cpu:0"], params)
    two = train_embedding_on(["/cpu:0", "/cpu:1"], params)
    numerics.assert_close(two, one, **TRAINING)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_finds_the_minimum(session, minimize, name):
    with session.graph.as_default():
        point = tf.compat.v1.get_variable("point", initializer=BIAS)
        loss = tf.reduce_sum((point - [1.0, 2.0, -3.0]) ** 2)
        params = make_params(optimizer=name, momentum=0.5)
        train_op = minimize(loss, params, {"adagrad": 1.0}.get(name, 0.05))
        session.run(tf.compat.v1.global_variables_initializer())
        for _ in range(500):
            session.run(train_op)
        np.testing.assert_allclose(session.run(point), [1.0, 2.0, -3.0], atol=0.05)


def test_update_ops_run_with_the_step(session, train):
    with session.graph.as_default():
        counter = tf.compat.v1.get_variable("counter", initializer=0.0, trainable=False)
        update = counter.assign_add(1.0)
        tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.UPDATE_OPS, update)
        train(make_params())
        assert session.run(counter) == STEPS


# Of those that scale an update by a norm of the layer, LAMB; of the others, Adam with weight decay.
@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    "name", [name if name in ("adamw", "lamb") else slow(name) for name in OPTIMIZERS]
)
def test_a_factor_is_a_learning_rate_of_its_own(session, minimize, name):
    params = make_params(optimizer=name, weight_decay=0.01)
    faster = {**params, "learning_rate_factors": Strings(["ker.*:3"])}
    grouped = _train(session, minimize, faster, 0.1, separable_loss)
    with tf.Graph().as_default(), tf.compat.v1.Session() as other:
        kernel, _ = _train(other, minimize, params, 0.3, separable_loss)
    with tf.Graph().as_default(), tf.compat.v1.Session() as other:
        _, bias = _train(other, minimize, params, 0.1, separable_loss)
    assert_equal(grouped, (kernel, bias))


def test_the_first_pattern_that_matches_counts(session, minimize):
    factors = make_params(optimizer="momentum", learning_rate_factors=Strings(["kernel:2", ".*:5"]))
    found = _train(session, minimize, factors, 0.1, separable_loss)
    for rate, own in ((0.2, 0), (0.5, 1)):
        with tf.Graph().as_default(), tf.compat.v1.Session() as other:
            plain = _train(other, minimize, make_params(optimizer="momentum"), rate, separable_loss)
        numerics.assert_close(found[own], plain[own], **TRAINING)


LAYERS = ["layer_0/bias", "layer_1/bias", "layer_2/bias", "head/bias"]


def train_layers(minimize, names=LAYERS, **changes):
    """How far the weights of a head over three layers move in a step of Adam at a rate of 0.1."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = [tf.compat.v1.get_variable(name, initializer=0.0) for name in names]
        params = make_params(optimizer="adam", **changes)
        layers = [f"layer_{i}/.*" for i in range(3)]
        train_op = minimize(tf.add_n(variables), params, 0.1, layers)
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(train_op)
        return -np.array(session.run(variables)) / 0.1


def test_layer_decay_lowers_the_learning_rate_of_each_layer_below_the_head(minimize):
    moved = train_layers(minimize, layer_decay=0.5)
    np.testing.assert_allclose(moved, [0.125, 0.25, 0.5, 1.0], rtol=1e-5)


def test_layer_decay_is_multiplied_by_the_factor_of_a_variable(minimize):
    factors = Strings(["head/.*:10", "layer_1/.*:3"])
    moved = train_layers(minimize, layer_decay=0.5, learning_rate_factors=factors)
    np.testing.assert_allclose(moved, [0.125, 0.75, 0.5, 10.0], rtol=1e-5)


def test_layer_decay_of_frozen_layers_is_refused(minimize):
    with pytest.raises(UsageError, match=r"layer_decay=0\.5 .* none of them is trained"):
        train_layers(minimize, LAYERS[3:], layer_decay=0.5)


def test_a_factor_for_nothing_is_refused(train):
    with pytest.raises(UsageError, match=r"learning_rate_factors: 'head/.*' matches no trained"):
        train(make_params(learning_rate_factors=Strings(["head/.*:2"])))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"optimizer": "newton"},
            "optimizer=newton is unknown. Valid: adafactor, adagrad, adam, adamw",
        ),
        ({"beta1": 1.0}, r"beta1=1.0 must be in \[0, 1\)"),
        ({"ema_decay": -0.1}, "ema_decay=-0.1 must be in"),
        ({"clip_norm": -1.0}, "clip_norm=-1.0 must not be below 0"),
        (
            {"lazy_embeddings": True, "weight_decay": 0.1},
            "lazy_embeddings: weight_decay=0.1 updates every row. Set weight_decay=0",
        ),
        (
            {"lazy_embeddings": True, "optimizer": "lamb"},
            "lazy_embeddings: optimizer=lamb updates every row. Use one of sgd, momentum",
        ),
        ({"epsilon": 0.0}, "epsilon=0.0 must be above 0"),
        ({"layer_decay": 0.0}, "layer_decay=0.0 must be above 0 and at most 1"),
        ({"trainable": "logits/("}, r"trainable: 'logits/\(' is not a regular expression"),
        ({"learning_rate_factors": ["a(:2"]}, r"learning_rate_factors: 'a\(' is not a regular"),
        ({"learning_rate_factors": ["logits/.*"]}, "'logits/.*' must be REGEX:FACTOR"),
        ({"learning_rate_factors": ["logits/.*:0"]}, "'logits/.*:0' must be REGEX:FACTOR"),
    ],
)
def test_a_wrong_value_is_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        optimizers.check_params(make_params(**changes))
