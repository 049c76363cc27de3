"""Values that a CPU refuses give the results of XLA, and one warning with the line."""

import contextlib
import functools
import io

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import tensor_shape
from tensorflow.python.ops import control_flow_util

from tests.marks import slow
from tpu.emulator import emulator, invalid_values

tf1 = tf.compat.v1
raw = tf.raw_ops
FEATURES = [np.float32([[2 * core], [2 * core + 1]]) for core in range(2)]
TABLE = np.arange(6, dtype=np.float32) + 1
MATRIX = TABLE.reshape(3, 2)
INDICES = np.array([-1, 0, 2, 5, 7])
CASES = {}


def case(build):
    """Registers a function of the features `[2, 1]` of a core, 2i and 2i + 1."""
    CASES[build.__name__] = build
    return build


def indices(features):
    """Returns INDICES as values that no compiler knows, int32 `[5]`."""
    return tf.cast(INDICES + 0 * features[0], tf.int32)


def table(features):
    return TABLE[:3] + 0 * features[0]


def computed(index, build, shape=()):
    """Runs `build` on an index that XLA does not take for a constant."""

    def body(i, sums):
        return i + 1, build(index + i + 0 * tf.cast(tf.reduce_sum(sums), tf.int32))

    return tf.while_loop(lambda i, _: i < 1, body, (0, tf.zeros(shape)), maximum_iterations=1)[1]


@case
def gather(features):
    return tf.gather(table(features), indices(features))  # the line of a gather


@case
def gather_columns(features):
    return tf.gather(MATRIX + features[0], indices(features), axis=1)


@case
def gather_vectors(features):
    pairs = tf.stack([indices(features), indices(features)], 1)
    return tf.gather_nd(MATRIX, pairs)


@case
def gradient_of_a_gather(features):
    values = table(features)
    (gradient,) = tf.gradients(tf.gather(values, indices(features)) ** 2, [values])
    return tf.convert_to_tensor(gradient)


@case
def gather_in_a_function(features):
    doubled = tf.function(lambda x: 2 * tf.gather(table(x), indices(x)), autograph=False)
    return doubled(features) + doubled(features)


@case
def gather_in_a_compiled_function(features):
    compiled = tf.function(
        lambda x: tf.gather(table(x), indices(x)), autograph=False, jit_compile=True
    )
    return compiled(features)


@case
def gather_in_a_branch_in_a_loop(features):
    def body(i, sums):
        found = tf.cond(
            i > 0, lambda: tf.gather(table(features), indices(features) + i), lambda: sums
        )
        return i + 1, sums + found

    return tf.while_loop(lambda i, _: i < 3, body, (0, tf.zeros([5])), maximum_iterations=3)[1]


@case
def row(features):
    return computed(indices(features)[4], lambda i: (MATRIX + features[0])[i], [2])


@case
def row_before_the_first(features):
    return computed(indices(features)[0] - 9, lambda i: (MATRIX + features[0])[..., i, :], [2])


@case
def part_of_a_vector(features):
    return computed(indices(features)[3], lambda i: tf.slice(TABLE + features[0], [i], [2]), [2])


@case
def scatter(features):
    return tf.scatter_nd(indices(features)[:, tf.newaxis], tf.range(1.0, 6), [3])


@case
def scatter_to_a_tensor(features):
    return tf.tensor_scatter_nd_add(
        table(features), indices(features)[:, tf.newaxis], tf.range(1.0, 6)
    )


@case
def unsorted_segments(features):
    return tf.math.unsorted_segment_sum(tf.range(1.0, 6), indices(features), 3)


@case
def labels(features):
    logits = tf.reshape(tf.range(20.0), [5, 4])
    return tf.nn.sparse_softmax_cross_entropy_with_logits(indices(features), logits)


@case
def integer_division(features):
    return tf.stack([divide(7, indices(features)) for divide in (tf.math.floordiv, raw_divide)])


def raw_divide(x, y):
    return raw.TruncateDiv(x=x, y=y)


@case
def integer_remainder(features):
    return -7 % indices(features)


@case
def negative_power(features):
    return tf.pow(tf.constant([2, 1, -1, 0, 3]), indices(features))


@case
def casts(features):
    values = tf.constant([1e20, -1e20, np.nan, np.inf, 3.7, -3.7, 300.0]) + 0 * features[0]
    types = (tf.int32, tf.int8, tf.uint8)
    return tf.stack([tf.cast(tf.cast(values, dtype), tf.float64) for dtype in types])


@case
def cast_of_bfloat16(features):
    return tf.cast(tf.cast(1e20 + features[0], tf.bfloat16), tf.int32)


@case
def shifts(features):
    return tf.bitwise.left_shift(5, 11 * indices(features))


@case
def reverse_sequence(features):
    return tf.reverse_sequence(tf.ones([5, 3]) * [1.0, 2, 3], indices(features), 1, 0)


@case
def inverse_permutation(features):
    return tf.math.invert_permutation(indices(features))


@case
def counts(features):
    weights = tf.constant([], tf.float32)
    return raw.DenseBincount(input=indices(features), size=3, weights=weights)


@case
def assertion(features):
    with tf.control_dependencies([tf1.assert_less(features, 1.0)]):
        return tf.identity(features)


@case
def check_of_numbers(features):
    return tf.debugging.check_numerics(tf.math.log(features - 1), "not finite")


@case
def results_of_a_function(features):
    rows = [table(features) + i for i in range(3)]
    several = tf.function(lambda x: [tf.gather(x, indices(x)) for _ in range(5)], autograph=False)
    return tf.stack([tf.add_n(several(row)) for row in rows])


@case
def items_of_an_array(features):
    def gathered(values):
        array = tf.TensorArray(tf.float32, 3, clear_after_read=False, element_shape=[])
        return array.unstack(values).gather(indices(features))

    return tf.function(gathered, autograph=False)(table(features))


@case
def gradient_of_an_item(features):
    values = table(features)
    array = tf.TensorArray(tf.float32, 3, clear_after_read=False, element_shape=[])
    read = array.unstack(values).read(indices(features)[0])
    return tf.gradients(read**2, [values])[0]


@case
def singular_triangle(features):
    matrix = tf.zeros([3, 3]) * features[0]
    return tf.linalg.triangular_solve(matrix, tf.reshape(table(features), [3, 1]))


@case
def eigenvalues_of_nan(features):
    return tf.linalg.eigvalsh(np.nan * MATRIX[:2] + features[0])


@case
def grouped_convolutions(features):
    results = []
    for convolve, rank in ((tf.nn.conv2d, 2), (tf.nn.conv3d, 3)):
        images = tf.reshape(tf.range(4.0 * 5**rank), [1, *[5] * rank, 4]) + features[0, 0]
        kernel = tf.reshape(tf.range(12.0 * 3**rank), [*[3] * rank, 2, 6])
        strides = 2 if rank == 2 else [1] * 5
        convolved = convolve(images, kernel, strides, "SAME")
        gradients = tf.gradients(convolved, [images, kernel])
        results += [tf.reduce_sum(x, range(x.shape.rank - 1)) for x in [convolved, *gradients]]
    return tf.concat(results, 0)


@pytest.fixture(scope="module", params=["version 1", slow("version 2")])
def run(request):
    """(`{case: its results}` on two cores, standard error) with control flow of a version."""

    def compute(features):
        return [
            tf.reshape(tf.cast(build(features), tf.float64), [1, -1]) for build in CASES.values()
        ]

    printed = io.StringIO()
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(control_flow_util, "ENABLE_CONTROL_FLOW_V2", request.param == "version 2")
        stack.enter_context(contextlib.redirect_stderr(printed))
        stack.enter_context(emulator.emulate("1x2"))
        stack.enter_context(tf.Graph().as_default())
        session = stack.enter_context(tf1.Session())
        results = tf1.tpu.shard(compute, [tf.constant(np.concatenate(FEATURES))], num_shards=2)
        return dict(zip(CASES, session.run(results))), printed


@functools.cache
def results_of_xla(name):
    """Returns the results of a case on two cores, as XLA computes them."""
    with tf.Graph().as_default(), tf1.Session() as session:
        fed = tf1.placeholder(tf.float32, [2, 1])
        result = tf.function(CASES[name], autograph=False, jit_compile=True)(fed)
        return np.stack([session.run(result, {fed: values}).ravel() for values in FEATURES])


@pytest.mark.parametrize("name", CASES)
def test_results_equal_those_of_xla(run, name):
    np.testing.assert_allclose(run[0][name], results_of_xla(name), rtol=1e-6)


@pytest.mark.parametrize(("kind", "row"), [("update", 3), ("add", 7), ("sub", 1), ("max", 4)])
def test_a_scatter_writes_only_rows_of_the_variable(kind, row, capsys):
    def scatter(indices):
        rows = tf.IndexedSlices(tf.constant([[5.0] * 2, [3.0] * 2, [5.0] * 2]), indices)
        with tf.control_dependencies([getattr(variable, f"scatter_{kind}")(rows)]):
            return variable.read_value()

    with emulator.emulate("1x1"), tf.Graph().as_default(), tf1.Session() as session:
        variable = tf1.get_variable("rows", initializer=np.full([3, 2], 4, np.float32))
        indices = tf1.placeholder(tf.int32, [3])
        (results,) = tf1.tpu.shard(scatter, [indices], num_shards=1)
        session.run(variable.initializer)
        rows = session.run(results, {indices: [-1, 1, 3]})
    np.testing.assert_array_equal(rows[:, 0], [4, row, 4])
    assert " writes index -1, which is not in [0, 3)" in capsys.readouterr().err


def test_an_operation_gives_one_warning_with_its_line(run):
    with open(__file__) as file:
        line = next(
            i for i, text in enumerate(file, 1) if text.endswith("# the line of a gather\n")
        )
    warnings = run[1].getvalue().splitlines()
    of_gather = [text for text in warnings if f"{__file__.split('/')[-1]}:{line} " in text]
    assert len(of_gather) == 1
    assert of_gather[0].startswith("tpu: warning: GatherV2 at ")
    assert of_gather[0].endswith(
        " reads index -1, which is not in [0, 3). A TPU reads the nearest valid index"
    )


def test_an_operation_without_a_tpu_kernel_gives_one_warning(capsys):
    def squares(x):
        return tf1.py_func(np.square, [x], tf.float32) + tf1.py_func(np.square, [x], tf.float32)

    with emulator.emulate("1x1"), tf.Graph().as_default(), tf1.Session() as session:
        (results,) = tf1.tpu.shard(squares, [tf.constant([1.0, 3.0])], num_shards=1)
        np.testing.assert_array_equal(session.run(results), [2, 18])
    (line,) = [text for text in capsys.readouterr().err.splitlines() if "refuses" in text]
    assert line.startswith("tpu: warning: a TPU refuses what is emulated here: PyFunc")
    assert "a TPU cannot run Python" in line
    assert "test_invalid_values.py:" in line


@pytest.mark.parametrize("is_version_2", [False, True])
def test_unknown_sizes_with_the_shapes_of_either_version(is_version_2, monkeypatch, capsys):
    def first_of_kept(x):
        return tf.gather(tf.boolean_mask(x, x > 1), [0, 3])

    monkeypatch.setattr(tensor_shape, "_TENSORSHAPE_V2_OVERRIDE", is_version_2)
    with emulator.emulate("1x1"), tf.Graph().as_default(), tf1.Session() as session:
        (results,) = tf1.tpu.shard(first_of_kept, [tf.constant([1.0, 3.0, 5.0])], num_shards=1)
        np.testing.assert_array_equal(session.run(results), [3, 5])
        images = tf1.placeholder(tf.float32, [1, 5, 5, 5, None])
        convolved = tf.nn.conv3d(images, tf.ones([1, 1, 1, 2, 2]), [1] * 5, "SAME")
        assert not invalid_values.RULES["Conv3D"].is_safe(convolved.op)
    assert " reads index 3, which is not in [0, 2)" in capsys.readouterr().err


def test_known_valid_values_are_not_checked():
    with tf.Graph().as_default():
        size = tf1.placeholder(tf.int32, [])
        values = tf1.placeholder(tf.float32, [4])
        safe = [
            tf.gather(values, [0, 3]),
            size // 2,
            size % tf.maximum(size, 1),
            values[1],
            tf.slice(values, [1], [2]),
            tf.bitwise.left_shift(size, 3),
            tf.cast(values, tf.float16),
        ]
        unknown = [tf.gather(values, size), size // size, values[size], tf.cast(values, tf.int32)]
        rules = invalid_values.RULES
        assert all(rules[tensor.op.type].is_safe(tensor.op) for tensor in safe)
        assert not any(rules[tensor.op.type].is_safe(tensor.op) for tensor in unknown)
