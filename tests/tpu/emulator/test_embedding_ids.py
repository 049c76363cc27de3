"""The operations that enqueue ids for TPU embeddings: dense, sparse and ragged ids."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu import tpu_embedding
from tensorflow.python.tpu.ops import tpu_ops

from tests import numerics
from tpu.emulator import embedding_ids, emulator, host_io

tf1 = tf.compat.v1
TABLE = np.arange(30, dtype=np.float32).reshape(10, 3) ** 2
SPARSE = [[0, 0], [0, 1], [0, 2], [2, 0], [3, 0], [3, 1]]
IDS = [1, 1, 7, 0, 2, 3]
FACTORS = [1.0, 2.0, 0.5, 3.0, 1.0, 1.0]
SPLITS = [0, 3, 3, 4, 6]


@pytest.fixture
def lookup():
    """`lookup(enqueue, combiner, length)` returns the activations of a batch of four examples."""

    def run(enqueue, combiner="sum", length=0):
        with emulator.emulate("1x1"), tf.Graph().as_default(), tf1.Session() as session:
            embedding = tpu_embedding.TPUEmbedding(
                {"t": tpu_embedding.TableConfig(10, 3, combiner=combiner)},
                {"x": tpu_embedding.FeatureConfig("t", max_sequence_length=length)},
                batch_size=4,
                mode=tpu_embedding.INFERENCE,
                master="",
            )
            load = tpu_ops.load_tpu_embedding_stochastic_gradient_descent_parameters(
                TABLE, 1, 0, table_name="t", config=embedding.config_proto.SerializeToString()
            )
            session.run([load, enqueue(embedding)])
            state = embedding_ids.tables()
            dtypes = embedding_ids.DTYPES
            queue = host_io.queue(embedding_ids.queue_name(0), dtypes)
            values = session.run(tf.raw_ops.QueueDequeueV2(handle=queue, component_types=dtypes))
        return state.receive(0, *values)[0]

    return run


def sparse_op(embedding):
    return tpu_ops.enqueue_tpu_embedding_sparse_tensor_batch(
        [SPARSE], [IDS], [FACTORS], [0], 0, combiners=[embedding._combiners[0]]
    )


def ragged_op(embedding):
    return tpu_ops.enqueue_tpu_embedding_ragged_tensor_batch(
        [SPLITS], [IDS], [FACTORS], [0], 0, combiners=[embedding._combiners[0]]
    )


def sparse_batch_op(embedding):
    examples = [example for example, _ in SPARSE]
    return tpu_ops.enqueue_tpu_embedding_sparse_batch(
        [examples], [IDS], [FACTORS], 0, combiners=[embedding._combiners[0]]
    )


def sparse_data(embedding):
    data = tpu_embedding.EnqueueData(ids(), tf.constant(SPARSE, tf.int64), weights())
    return embedding.generate_enqueue_ops([{"x": data}])


def ragged_data(embedding):
    data = tpu_embedding.RaggedEnqueueData(ids(), tf.constant(SPLITS, tf.int64), weights())
    return embedding.generate_enqueue_ops([{"x": data}], ragged=True)


def ids():
    return tf.constant(IDS, tf.int64)


def weights():
    return tf.constant(FACTORS)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize(
    "enqueue", [sparse_op, ragged_op, sparse_batch_op, sparse_data, ragged_data]
)
def test_bags_equal_those_of_tensorflow(lookup, enqueue, combiner):
    with tf.Graph().as_default(), tf1.Session() as session:
        sparse = [tf.SparseTensor(SPARSE, tf.constant(v), [4, 3]) for v in (IDS, FACTORS)]
        lookup_op = tf.nn.embedding_lookup_sparse(TABLE, *sparse, combiner=combiner)
        expected = session.run(lookup_op)[[0, 2, 3]]
    found = lookup(enqueue, combiner)
    numerics.assert_close(found[[0, 2, 3]], expected, terms=3, depth=3)
    np.testing.assert_array_equal(found[1], 0)  # an empty bag


@pytest.mark.parametrize("enqueue", [sparse_op, ragged_op, sparse_data, ragged_data])
def test_sequences_are_padded_and_cut(lookup, enqueue):
    found = lookup(enqueue, length=2)
    expected = np.zeros((4, 2, 3), np.float32)
    for (example, position), index, factor in zip(SPARSE, IDS, FACTORS):
        if position < 2:
            expected[example, position] = TABLE[index] * factor
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_dense_ids(lookup, dtype):
    ids = [3, 0, 9, 3]

    def integers(embedding):
        return tpu_ops.enqueue_tpu_embedding_integer_batch([tf.constant(ids, tf.int32)], 0)

    def data(embedding):
        data = tpu_embedding.EnqueueData(tf.constant(ids, dtype))
        return embedding.generate_enqueue_ops([{"x": data}])

    np.testing.assert_array_equal(lookup(integers, None), TABLE[ids])
    np.testing.assert_array_equal(lookup(data, None), TABLE[ids])


def test_too_few_dense_ids_are_an_error(lookup):
    def data(embedding):
        data = tpu_embedding.EnqueueData(tf.constant([1, 2, 3]))
        return embedding.generate_enqueue_ops([{"x": data}])

    with pytest.raises(ValueError, match="3 ids for 4 examples per core"):
        lookup(data, None)


def test_a_mode_override_is_refused(lookup):
    def data(embedding):
        data = tpu_embedding.EnqueueData(tf.constant([1, 2, 3, 4]))
        return embedding.generate_enqueue_ops([{"x": data}], mode_override="inference")

    with pytest.raises(NotImplementedError, match="mode_override='inference' is not emulated"):
        lookup(data, None)
