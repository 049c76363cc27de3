"""Names that left modules of tensorflow.python, and signatures that changed since 1.15."""

import inspect

import pytest
import tensorflow as tf
from tensorflow.python.data.ops import dataset_ops, options
from tensorflow.python.framework import ops, tensor_conversion_registry
from tensorflow.python.ops import array_ops, array_ops_stack, bincount_ops, math_ops
from tensorflow.python.tpu import tpu_embedding, tpu_replication
from tensorflow.python.util import nest

from tpu.check import explanations
from tpu.tf1 import moved_names, old_signatures

v1 = tf.compat.v1


@pytest.fixture
def moved():
    """Modules have the names that moved; returns the list of (old name, new name) in use."""
    found = []
    with moved_names.names(lambda *names: found.append(names)):
        yield found


@pytest.mark.parametrize(
    ("module", "name", "expected"),
    [
        (ops, "Tensor", tf.Tensor),
        (
            ops,
            "register_tensor_conversion_function",
            tensor_conversion_registry.register_tensor_conversion_function,
        ),
        (array_ops, "unstack", array_ops_stack.unstack),
        (dataset_ops, "AutotuneAlgorithm", options.AutotuneAlgorithm),
        (math_ops, "bincount_v1", bincount_ops.bincount_v1),
        (nest, "is_sequence", nest.is_nested),  # was renamed
    ],
)
def test_a_name_that_moved(moved, module, name, expected):
    assert getattr(module, name) is expected
    assert len(moved) == 1
    getattr(module, name)
    assert len(moved) == 1


def test_the_old_and_the_new_name_are_reported(moved):
    from tensorflow.python.ops.control_flow_ops import while_loop

    assert while_loop is tf.compat.v1.while_loop
    assert moved == [
        (
            "tensorflow.python.ops.control_flow_ops.while_loop",
            "tensorflow.python.ops.while_loop.while_loop",
        )
    ]


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (ops, "nowhere"),
        (array_ops, "while_loop"),  # ops.while_loop and ops.while_v2 define it
        (dataset_ops, "TensorDataset"),  # only generated modules define it, as an op
    ],
)
def test_a_name_that_did_not_move(moved, module, name):
    with pytest.raises(AttributeError, match=f"'{module.__name__}' has no attribute '{name}'"):
        getattr(module, name)


def test_libraries_of_this_release_find_what_2_15_has(moved):
    library = {"__name__": "keras.src.backend", "ops": ops}
    assert eval("hasattr(ops, 'Tensor')", library) is False
    assert eval("hasattr(ops, 'Tensor')", {**library, "__name__": "tf_slim.ops"}) is True


def test_names_end_with_the_block(moved):
    with moved_names.names():
        pass
    assert hasattr(ops, "Tensor")  # of the outer block


@pytest.mark.parametrize("shape", [[4, 5, 3], [4, 2, 2, 3]])
@pytest.mark.parametrize("is_fused", [False, True])
def test_batch_normalization_as_tf_slim_creates_it(shape, is_fused):
    from tensorflow.python.layers import normalization

    before = vars(normalization)["normalization"]
    with moved_names.lazy_modules(), tf.Graph().as_default(), v1.Session() as session:
        with v1.variable_scope("norm") as scope:
            layer = normalization.BatchNormalization(
                momentum=0.75, fused=is_fused, name=scope.name, _scope=scope, _reuse=None
            )
            outputs = layer.apply(tf.fill(shape, 8.0), training=True)
        session.run(v1.global_variables_initializer())
        session.run([outputs, v1.get_collection(v1.GraphKeys.UPDATE_OPS)])
        assert layer.moving_mean.op.name == "norm/moving_mean"
        assert session.run(layer.moving_mean).tolist() == [2] * 3
        assert session.run(layer.moving_variance).tolist() == [0.75] * 3
    assert vars(normalization)["normalization"] is before


@pytest.fixture
def old_arguments():
    """Functions accept calls with the arguments of 1.15."""
    with old_signatures.accepted():
        yield


@pytest.mark.parametrize("change", old_signatures._CHANGES, ids=lambda change: change.name)
def test_signatures_end_with_the_block(change):
    before = old_signatures._find(f"{change.module}.{change.name}")[2]
    with old_signatures.accepted():
        within = old_signatures._find(f"{change.module}.{change.name}")[2]
        assert inspect.signature(within) == inspect.signature(before)
        assert within is not before
    assert old_signatures._find(f"{change.module}.{change.name}")[2] is before


@pytest.fixture
def replicate_context():
    """A TPUReplicateContext of 2 replicas, and a variable for each."""
    with tf.Graph().as_default():
        variables = [v1.get_variable(name, [3], use_resource=True) for name in ("first", "second")]
        with v1.variable_scope("cluster"):
            pivot = v1.no_op("pivot")
        context = tpu_replication.TPUReplicateContext("cluster", 2, pivot)
        context.Enter()
        yield context, variables
        context.Exit()


def test_replicated_handle(old_arguments, replicate_context):
    context, variables = replicate_context
    handle = context.get_replicated_var_handle("weights", variables)
    assert handle.op.type == "TPUReplicatedInput"
    assert context.get_replicated_var_handle("weights", variables) is handle
    # The signature of 2.15; the name is not the key.
    assert context.get_replicated_var_handle("weights", "another", variables) is not handle


def test_name_by_position(old_arguments):
    with tf.Graph().as_default():
        values, indices = tf.nn.top_k(tf.constant([3.0, 5.0, 4.0]), 2, True, "best")
        [doubled] = tf.numpy_function(lambda x: x * 2, [values], [tf.float32], "doubled")
        assert values.op.name == "best"
        assert doubled.op.name == "doubled"
        assert indices.dtype == tf.int32
        with v1.Session() as session:
            assert session.run([indices, doubled])[0].tolist() == [1, 2]
        assert tf.nn.top_k([3.0, 5.0], 1, True, tf.int64).indices.dtype == tf.int64


@pytest.mark.parametrize("arguments", [(0.5, -1.0, 1.0), (0.5, True, -1.0, 1.0)])
def test_clipping_by_position_of_embedding_optimizers(old_arguments, arguments):
    parameters = tpu_embedding.StochasticGradientDescentParameters(*arguments)
    assert (parameters.clip_weight_min, parameters.clip_weight_max) == (-1.0, 1.0)


def test_removed_argument(old_arguments):
    tree = [1, [2, 3]]
    assert nest.flatten_up_to([0, 0], tree, check_subtrees_length=False) == [1, [2, 3]]


def test_a_call_that_neither_release_accepts(old_arguments):
    with pytest.raises(TypeError, match="nothing"):
        tf.nn.top_k([1.0], nothing=3)


def make_cross_replica_norm(base):
    class CrossReplicaNorm(base):
        def _moments(self, inputs, reduction_axes, keep_dims):
            mean, variance = super()._moments(inputs, reduction_axes, keep_dims=keep_dims)
            return mean + 7, variance

    return CrossReplicaNorm


@pytest.mark.parametrize("base", [v1.layers.BatchNormalization, v1.keras.layers.BatchNormalization])
def test_moments_that_a_batch_norm_of_1_15_overrides(old_arguments, base):
    with tf.Graph().as_default(), v1.Session() as session:
        layer = make_cross_replica_norm(base)(momentum=0.5, fused=False)
        update = layer(tf.fill([2, 3], 5.0), training=True), layer.updates
        session.run(v1.global_variables_initializer())
        session.run(update)
        assert session.run(layer.moving_mean).tolist() == [6] * 3


def test_overridden_moments_end_with_the_block():
    with old_signatures.accepted():
        pass
    norm = make_cross_replica_norm(v1.layers.BatchNormalization)(fused=False)
    with tf.Graph().as_default(), pytest.raises(TypeError, match="'mask'") as error:
        norm(tf.zeros([2, 3]), training=True)
    advice = ": Keras 2.15 passes it to this method. Add --tf1, or add the argument mask=None"
    assert explanations.advice_on_environment(error.value) == advice
