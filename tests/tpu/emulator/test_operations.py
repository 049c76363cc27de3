"""Operations of TPU programs on 4 emulated cores; core i has the features 2i and 2i + 1."""

import re
import types

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.python.framework import function
from tensorflow.python.ops import control_flow_util
from tensorflow.python.tpu.ops import tpu_ops
from tensorflow_estimator.python.estimator.tpu import error_handling

from tests.marks import slow
from tests.tpu.emulator import tiny
from tpu.emulator import emulator, replication

tf1 = tf.compat.v1
ALL = [[0, 1, 2, 3]]
CASES = {}


def case(*expected):
    """Registers a function of the features `[2, 1]`; `expected` is its result on each core."""

    def register(build):
        CASES[build.__name__] = (build, np.reshape(expected, [4, -1]))
        return build

    return register


def core_tens(features):
    """Returns 10i to 10i + 3 on core i, `[4, 1]`."""
    return tf.reshape(tf.range(4.0) + 5 * features[0, 0], [4, 1])


@case(0, 1, 2, 3)
def replica_id(features):
    return xla.replica_id()


@case([0, 10, 20, 30], [1, 11, 21, 31], [2, 12, 22, 32], [3, 13, 23, 33])
def all_to_all(features):
    return tpu_ops.all_to_all(core_tens(features), 1, 0, 4, ALL)


@case([0, 2, 4, 6], [20, 22, 24, 26], [40, 42, 44, 46], [60, 62, 64, 66])
def gradient_of_all_to_all(features):
    values = core_tens(features)
    (gradient,) = tf.gradients(tpu_ops.all_to_all(values, 1, 0, 4, ALL) ** 2, [values])
    return gradient


@case([4, 5], [0, 1], [2, 3], [0, 0])
def collective_permute(features):
    return tpu_ops.collective_permute(features, [[0, 1], [1, 2], [2, 0]])


@case([0, 2], [4, 6], [8, 10], [12, 14])
def gradient_of_collective_permute(features):
    permuted = tpu_ops.collective_permute(features, [[0, 1], [1, 2], [2, 0], [3, 3]])
    return tf.gradients(permuted**2, [features])[0]


@case([2, 3], [2, 3], [6, 7], [6, 7])
def all_reduce_max(features):
    return gen_xla_ops.xla_all_reduce(features, [[0, 1], [2, 3]], "Max", "CrossReplica")


@case([3, 4], [3, 4], [3, 4], [3, 4])
def all_reduce_mean(features):
    return gen_xla_ops.xla_all_reduce(features, ALL, "Mean", "CrossReplica")


@case(12, 16, 20, 24)
def reduce_scatter(features):
    values = tf.range(4.0) + features[0, 0]
    return gen_xla_ops.xla_reduce_scatter(values, ALL, 0, "Add")


@case(*[[56, 72]] * 4)
def sum_in_two_calls_of_a_function(features):
    doubled = tf.function(lambda x: 2 * tf1.tpu.cross_replica_sum(x))
    return doubled(features) + doubled(features + 1)


@case(*[[96, 128]] * 4)
def gradient_of_a_sum_in_a_function(features):
    squared = tf.function(lambda x: tf1.tpu.cross_replica_sum(x) ** 2)
    return tf.gradients(squared(features), [features])[0]


@case([12, 17], [14, 21], [16, 25], [18, 29])
def sum_in_a_compiled_function(features):
    def both(x):
        return tf.cumsum(x) + tf1.tpu.cross_replica_sum(x)

    return tf.function(both, jit_compile=True)(features)


@case(*[[12, 16]] * 4)
def sum_in_a_version_1_function(features):
    @function.Defun(tf.float32)
    def total(x):
        return tf1.tpu.cross_replica_sum(x)

    result = total(features)
    result.set_shape([2, 1])
    return result


@case(*[[44, 56]] * 4)
def sum_in_a_branch_in_a_loop_in_nested_functions(features):
    def body(i, x):
        return i + 1, tf.cond(i > 0, lambda: tf1.tpu.cross_replica_sum(x), lambda: x + 1)

    inner = tf.function(lambda x: tf.while_loop(lambda i, _: i < 2, body, (0, x))[1])
    return tf.function(lambda x: inner(x) + inner(2 * x))(features)


@case([0, 1], [2, 3], [4, 5], [6, 7])
def xla_sort(features):
    return gen_xla_ops.xla_sort(features)


@case([0, 1], [2, 5], [4, 9], [6, 13])
def bfloat16_without_cpu_kernel(features):
    return tf.cast(tf.cumsum(tf.cast(features, tf.bfloat16)), tf.float32)


@case([0, 18], [36, 54], [72, 90], [108, 126])
def gradient_of_a_dilated_convolution(features):
    images = tf.ones([2, 5, 5, 1]) * tf.reshape(features, [2, 1, 1, 1])
    kernel = tf.ones([3, 3, 1, 1])
    convolved = tf.nn.conv2d(images, kernel, 1, "SAME", dilations=2)
    (gradient,) = tf.gradients(convolved[:, 2, 2], [images])
    return 2 * features * tf.reduce_sum(gradient, [1, 2])


@case([0, 9], [18, 27], [36, 45], [54, 63])
def convolution_with_channels_first(features):
    images = tf.ones([2, 1, 3, 3]) * tf.reshape(features, [2, 1, 1, 1])
    convolved = tf.nn.conv2d(images, tf.ones([3, 3, 1, 1]), 1, "VALID", data_format="NCHW")
    return tf.reshape(convolved, [2, 1])


@case([0, 2], [4, 6], [8, 10], [12, 14])
def hash_table(features):
    pairs = tf.lookup.KeyValueTensorInitializer(np.arange(8), 2 * np.arange(8.0, dtype=np.float32))
    return tf.lookup.StaticHashTable(pairs, -1.0).lookup(tf.cast(features, tf.int64))


@case([0, 1], [2, 3], [4, 5], [6, 7])
def summary_writer(features):
    with tf.summary.create_noop_writer().as_default():
        tf.summary.scalar("x", features[0, 0], step=0)
    return features


@case([0, 1], [2, 3], [4, 5], [6, 7])
def outside_compilation(features):
    return tf1.tpu.outside_compilation(tf.identity, features)


@pytest.fixture(scope="module", params=["version 1", "version 2"])
def results(request, tmp_path_factory):
    """`{case: its predictions}` with control flow of a version."""

    def predict(features):
        rows = {name: tf.reshape(build(features), [1, -1]) for name, (build, _) in CASES.items()}
        # Each of the two examples of a core gets the result of the core.
        return {name: tf.tile(row, [2, 1]) for name, row in rows.items()}

    patch = pytest.MonkeyPatch()
    with patch.context() as patch, emulator.emulate("1x4"):
        patch.setattr(control_flow_util, "ENABLE_CONTROL_FLOW_V2", request.param == "version 2")
        config = tiny.config(tmp_path_factory.mktemp("operations"), master="grpc://tpu")
        estimator = tiny.estimator(config, predict=predict)
        estimator.train(tiny.numbers, steps=1)
        rows = list(estimator.predict(tiny.numbers_once))
    return {name: np.stack([row[name] for row in rows[::2]]) for name in CASES}


@pytest.mark.parametrize("name", CASES)
def test_operation(results, name):
    np.testing.assert_array_equal(results[name], CASES[name][1])


def test_cores_draw_different_numbers_in_functions(tmp_path):
    def predict(features):
        return {"x": features * 0 + tf.function(lambda: tf.random.uniform([], seed=3))()}

    with emulator.emulate("1x4"):
        estimator = tiny.estimator(tiny.config(tmp_path, master="grpc://tpu"), predict=predict)
        estimator.train(tiny.numbers, steps=1)
        drawn = {float(row["x"].item()) for row in estimator.predict(tiny.numbers_once)}
    assert len(drawn) == 4


def predict_with(tmp_path, build):
    """Returns the predictions of `build(features)` on emulated cores."""
    with emulator.emulate("1x4"):
        config = tiny.config(tmp_path, master="grpc://tpu")
        estimator = tiny.estimator(config, predict=lambda features: {"x": build(features)})
        estimator.train(tiny.numbers, steps=1)
        return np.ravel([row["x"] for row in estimator.predict(tiny.numbers_once)])


def test_captured_tensors_of_one_operation(tmp_path):
    def build(features):
        with tf.init_scope():
            first, second = tf.split(tf.constant([10.0, 20.0]), 2)
            start = tf.identity(first, name="external/start")
        doubled = tf.function(lambda x: x + 2 * second)
        return doubled(features) + first + start

    np.testing.assert_array_equal(predict_with(tmp_path, build), np.arange(8) + 60)


def test_names_of_the_program_may_be_those_of_the_emulator(tmp_path):
    def build(features):
        total = tf1.tpu.cross_replica_sum(features, name="sum")
        names = ("sum/add", "sum/sent_1/queue", "sum/received_1/enqueue", "external/start")
        return total + tf.add_n([tf.identity(features, name) for name in names])

    expected = np.tile([12, 16], 4) + 4 * np.arange(8)
    np.testing.assert_array_equal(predict_with(tmp_path, build), expected)


def test_groups_may_be_constants_outside_of_the_program(tmp_path):
    def build(features):
        with tf.init_scope():
            groups = tf.constant([[0, 1], [2, 3]])
        return gen_xla_ops.xla_all_reduce(features, groups, "Max", "CrossReplica")

    expected = [2, 3, 2, 3, 6, 7, 6, 7]
    np.testing.assert_array_equal(predict_with(tmp_path, build), expected)


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda x: tpu_ops.collective_permute(x, [[0, 4], [1, 0]]),
            r"CollectivePermute at .*:\d+: source_target_pairs are \[\[0, 4\], \[1, 0\]\]",
        ),
        (
            lambda x: tpu_ops.collective_permute(x, [[0, 2], [1, 2]]),
            r"CollectivePermute at .*:\d+: .* each at most once",
        ),
        (
            lambda x: tf1.tpu.cross_replica_sum(x, [[0, 1]]),
            r"CrossReplicaSum at .*:\d+: group_assignment is \[\[0, 1\]\]; each core from 0 to 3",
        ),
        (
            lambda x: gen_xla_ops.xla_all_reduce(x, [[0, 1], [1, 2]], "Add", "CrossReplica"),
            r"XlaAllReduce at .*:\d+: group_assignment is \[\[0, 1\], \[1, 2\]\]",
        ),
    ],
)
def test_invalid_groups_are_refused_with_their_line(tmp_path, build, message):
    with pytest.raises(ValueError, match=message):
        predict_with(tmp_path, build)


def some_sum_in_a_branch(x):
    return tf.cond(x[0, 0] > 3, lambda: tf1.tpu.cross_replica_sum(x), lambda: x)


def some_sums_in_a_loop(x):
    def body(i, total):
        return i + 1, tf1.tpu.cross_replica_sum(total)

    return tf.while_loop(lambda i, _: i < x[0, 0], body, (0.0, x))[1]


@pytest.mark.slow(cost=0.1)
@pytest.mark.parametrize("version_2", [False, slow(True)])
@pytest.mark.parametrize(
    "build",
    [some_sum_in_a_branch, some_sums_in_a_loop, tf.function(some_sum_in_a_branch)],
    ids=["branch", "loop", "function"],
)
def test_sum_that_some_cores_skip_is_an_error(tmp_path, monkeypatch, capsys, build, version_2):
    # TPUEstimator waits seconds for the errors of its other threads.
    no_wait = types.SimpleNamespace(sleep=lambda seconds: None)
    monkeypatch.setattr(error_handling, "time", no_wait)
    monkeypatch.setattr(control_flow_util, "ENABLE_CONTROL_FLOW_V2", version_2)
    # The session raises the first error: that of the check, or of a core that it cancels.
    with pytest.raises((tf.errors.OpError, RuntimeError)):
        predict_with(tmp_path, build)
    printed = capsys.readouterr().err
    message = r"tpu: error: CrossReplicaSum at .*:\d+ is in a conditional or loop whose condition"
    assert re.search(message, printed)


def test_a_group_may_skip_its_sum(tmp_path):
    def build(x):
        in_group = [[0, 1], [2, 3]]
        return tf.cond(x[0, 0] > 3, lambda: tf1.tpu.cross_replica_sum(x, in_group), lambda: x)

    np.testing.assert_array_equal(predict_with(tmp_path, build), [0, 1, 2, 3, 10, 12, 10, 12])


def test_groups_that_a_loop_changes_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(control_flow_util, "ENABLE_CONTROL_FLOW_V2", True)

    def build(x):
        def body(i, groups, total):
            total = gen_xla_ops.xla_all_reduce(total, groups, "Add", "CrossReplica")
            return i + 1, tf.constant([[0, 2], [1, 3]]), total

        first = tf.constant([[0, 1], [2, 3]])
        return tf.while_loop(lambda i, *_: i < 2, body, (0, first, x))[2]

    with pytest.raises(NotImplementedError, match=r"needs a constant .* the loop 'while' changes"):
        predict_with(tmp_path, build)


def test_two_outfeeds_of_a_step():
    with tf.Graph().as_default(), emulator.emulate("1x2"):

        def step(x):
            first = tpu_ops.outfeed_enqueue_tuple([x])
            with tf.control_dependencies([first]):
                second = tpu_ops.outfeed_enqueue_tuple([2 * x])
            with tf.control_dependencies([second]):
                return x + 1

        result = tf1.tpu.shard(step, [tf.constant([3.0, 4.0])], num_shards=2)
        received = [tpu_ops.outfeed_dequeue_tuple([tf.float32], [[1]], 1) for _ in range(2)]
        with tf1.Session() as session:
            values = session.run([result, *received])
    assert sorted(np.ravel(values[1:])) == [4, 8]


@pytest.fixture
def evaluate():
    """`evaluate(tensors)` returns their values in a session; four emulated cores."""
    with tf.Graph().as_default(), emulator.emulate("1x4"):

        def run(tensors):
            with tf1.Session() as session:
                session.run(tf1.global_variables_initializer())
                return session.run(tensors)

        yield run


def test_shard_returns_the_results_of_all_cores(evaluate):
    def first_and_row(x):
        return x[0], tf.reshape(x, [1, 2])

    firsts, rows = evaluate(
        tf1.tpu.shard(first_and_row, [tf.range(8)], num_shards=4, output_shard_axes=[0, 1])
    )
    np.testing.assert_array_equal(firsts, [0, 2, 4, 6])
    np.testing.assert_array_equal(rows, [np.arange(8)])


def test_shard_returns_the_results_of_one_core(evaluate):
    results = tf1.tpu.shard(tf.identity, [tf.range(8)], num_shards=4, outputs_from_all_shards=False)
    np.testing.assert_array_equal(evaluate(results), [[0, 1]])


def test_rewrite_runs_on_one_core(evaluate):
    results = tf1.tpu.rewrite(lambda x: tf1.tpu.cross_replica_sum(3 * x), [tf.range(3)])
    np.testing.assert_array_equal(evaluate(results), [[0, 3, 6]])


def test_replicate_keeps_structures_and_shapes(evaluate):
    def compute(x):
        return {"x": x, "sum": (tf1.tpu.cross_replica_sum(x), None)}

    results = tf1.tpu.replicate(compute, [[tf.fill([3], i)] for i in range(4)])
    assert [(core["sum"][0].shape, core["sum"][1]) for core in results] == [([3], None)] * 4
    values = evaluate([(core["x"], core["sum"][0]) for core in results])
    np.testing.assert_array_equal(values, [[[i] * 3, [6] * 3] for i in range(4)])


def test_a_second_computation_uses_the_results_of_the_first(evaluate):
    doubled = tf1.tpu.replicate(lambda x: 2 * x, [[tf.constant(i)] for i in (1.0, 2.0)])
    with tf.control_dependencies([x for (x,) in doubled]):
        summed = tf1.tpu.replicate(tf1.tpu.cross_replica_sum, [[x] for (x,) in doubled])
    assert evaluate(summed) == [[6], [6]]


@pytest.mark.parametrize("with_tensor", [True, False])
def test_operations_that_a_computation_returns_run(evaluate, with_tensor):
    count = tf1.get_variable("count", initializer=5.0, use_resource=True)

    def add(x):
        add = count.assign_add(tf1.tpu.cross_replica_sum(x), read_value=False)
        return (x, add) if with_tensor else add

    done = tf1.tpu.replicate(add, [[tf.constant(i)] for i in (1.0, 2.0)])
    with tf.control_dependencies(tf.nest.flatten(done)):
        total = count.read_value()
    assert evaluate(total) == 8


def test_results_of_other_cores_are_refused_if_cores_do_not_return_them():
    def run(build, num_cores):
        return replication.run(build, num_cores)[:1]

    cores = types.SimpleNamespace(waiting_threads=0, replacements=replication.replacements, run=run)
    with (
        tf.Graph().as_default(),
        emulator.emulate("1x2", cores),
        pytest.raises(NotImplementedError, match="return the results of core 0 only"),
    ):
        tf1.tpu.shard(tf.identity, [tf.range(6)], num_shards=2)
