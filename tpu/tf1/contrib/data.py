"""tf.contrib.data."""

from __future__ import annotations

import tensorflow as tf

__all__ = [
    "batch_and_drop_remainder",
    "padded_batch_and_drop_remainder",
    "read_batch_features",
    "reduce_dataset",
    "sloppy_interleave",
]


def batch_and_drop_remainder(batch_size):
    """Returns a transformation for `Dataset.apply`: batches, all of the same size."""
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(batch_size, padded_shapes, padding_values=None):
    """Returns a transformation for `Dataset.apply`: padded batches, all of the same size."""
    return lambda dataset: dataset.padded_batch(
        batch_size, padded_shapes, padding_values, drop_remainder=True
    )


def sloppy_interleave(map_func, cycle_length, block_length=1):
    """Returns a transformation for `Dataset.apply`: a nondeterministic parallel interleave."""
    return tf.compat.v1.data.experimental.parallel_interleave(
        map_func, cycle_length, block_length, sloppy=True
    )


def reduce_dataset(dataset, reducer):
    """Returns the result of a `Reducer` over all elements."""
    state = dataset.reduce(reducer.init_func(tf.constant(0, tf.int64)), reducer.reduce_func)
    return reducer.finalize_func(state)


def read_batch_features(
    file_pattern,
    batch_size,
    features,
    reader=tf.data.TFRecordDataset,
    reader_args=None,
    randomize_input=True,
    num_epochs=None,
    capacity=10000,
):
    """Returns a dict of feature tensors of the next batch of parsed tf.Examples."""
    dataset = tf.compat.v1.data.experimental.make_batched_features_dataset(
        file_pattern,
        batch_size,
        features,
        reader=reader,
        reader_args=reader_args,
        num_epochs=num_epochs,
        shuffle=randomize_input,
        shuffle_buffer_size=capacity,
    )
    return tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()
