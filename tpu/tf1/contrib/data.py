"""tf.contrib.data."""

from __future__ import annotations

import tensorflow as tf

NAMES = {
    "v1.data": "Options",
    "v1.data.experimental": """AUTOTUNE CheckpointInputPipelineHook Counter CsvDataset Optional
        RandomDataset Reducer SqlDataset TFRecordWriter bucket_by_sequence_length
        choose_from_datasets copy_to_device dense_to_sparse_batch enumerate_dataset
        get_next_as_optional get_single_element group_by_reducer group_by_window ignore_errors
        make_batched_features_dataset make_csv_dataset make_saveable_from_iterator map_and_batch
        map_and_batch_with_legacy_function parallel_interleave parse_example_dataset
        prefetch_to_device rejection_resample sample_from_datasets scan shuffle_and_repeat unbatch
        unique""",
}

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
